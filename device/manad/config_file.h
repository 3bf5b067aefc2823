// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "manad/network_options.h"

namespace openmana::manad {

/// An option as it is typed, and where.
struct OptionText {
    std::string text;
    std::string where;  ///< "--nic", or "manad.toml:12"
};

/// What a configuration file says, as the options of the command line would.
struct ConfigTexts {
    std::vector<OptionText> nics, uplinks, faults, policies, metrics;
    std::map<std::string, OptionText> scalars;  ///< by the option's name without "--"
};

/// Reads a configuration file: TOML, of which `data/manad.schema.json` says what may be in it. An
/// error names the file, the line and what is wrong. Takes no longer than the file does.
[[nodiscard]] Parsed<ConfigTexts> read_config_file(const std::string& path);
/// The same of a text, which `name` stands for.
[[nodiscard]] Parsed<ConfigTexts> read_config(const std::string& text, const std::string& name);

}  // namespace openmana::manad
