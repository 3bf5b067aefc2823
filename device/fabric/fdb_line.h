// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/frame.h"
#include "roce/address.h"

namespace openmana::fabric {

/// What iproute2's `bridge fdb` takes and prints, as far as it is about the ends of VXLAN tunnels.
struct FdbLine {
    enum class Action : std::uint8_t {
        kAdd,      ///< one that is not there yet
        kAppend,   ///< one end more for a group, or for what nobody knows
        kReplace,  ///< of a station, whether it is there or not
        kDelete,
        kListed,  ///< no command, but a line of `bridge fdb show`
    };
    Action action = Action::kListed;
    base::MacAddr mac{};
    std::string device;  ///< `dev`; empty if not given
    roce::Gid address{};
    std::optional<std::uint16_t> port;
    std::optional<std::uint32_t> vni;         ///< at the other end
    std::optional<std::uint32_t> source_vni;  ///< here
    bool dynamic = false;                     ///< goes when it was not seen for long
};

/// Reads a line: a command with or without "bridge fdb" before it, or one of `bridge fdb show`.
/// Nothing for a line that is empty, a comment (#), or listed but about no tunnel. The error says
/// what is wrong with which word.
[[nodiscard]] tl::expected<std::optional<FdbLine>, std::string> parse_fdb_line(
    std::string_view text);

}  // namespace openmana::fabric
