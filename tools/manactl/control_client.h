// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace openmana::manactl {

using nlohmann::json;

/// Prints one line and ends the program.
[[noreturn]] void die(const std::string& text);

/// Sends one request to the control socket and gives the answer. Ends the program if there is none,
/// or if the answer is that it failed.
json ask(const std::string& path, const json& request);
/// The same; nothing if there is none.
std::optional<json> try_to_ask(const std::string& path, const json& request);

}  // namespace openmana::manactl
