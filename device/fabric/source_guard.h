// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "fabric/claims.h"
#include "fabric/switch.h"

namespace openmana::fabric {

/// Keeps back frames that somebody made who is not whom they are from: RoCE from an address that
/// the adapter of another NIC of the switch serves, and whatever has the MAC address of another
/// NIC. What adapters make themselves needs no such look: they send from what is theirs.
///
/// For one thread.
class SourceGuard {
public:
    /// Of a NIC, or with nulls of an uplink: what comes in there is from none of our NICs.
    SourceGuard(Switch& network, const Claims::Claimant* own, const base::MacAddr* own_mac)
        : network_(network), own_(own), own_mac_(own_mac) {}
    [[nodiscard]] bool passes(std::span<const std::byte> frame);

private:
    [[nodiscard]] bool foreign_mac(std::span<const std::byte> frame) const;

    Switch& network_;
    const Claims::Claimant* const own_;
    const base::MacAddr* const own_mac_;
    // The last address that was nobody else's, as long as the switch's count is this.
    roce::Gid good_{};
    std::uint64_t reach_ = 0;
};

}  // namespace openmana::fabric
