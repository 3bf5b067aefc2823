// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/frame.h"
#include "fabric/claims.h"
#include "fabric/switch.h"

namespace openmana::fabric {

/// Keeps back frames that somebody made who is not whom they are from: RoCE from an address that
/// the adapter of another NIC of the switch serves in the same VLAN, and whatever has the MAC
/// address of another NIC. What adapters make themselves needs no such look: they send from what is
/// theirs.
///
/// Who comes in by an uplink is kept from the addresses that a policy gives to a NIC, and those
/// that follow from MAC addresses: else a guest could cut a host off by taking its address. A guest
/// is kept from all that others serve.
///
/// For one thread.
class SourceGuard {
public:
    /// Of a NIC, or with nulls of an uplink: what comes in there is from none of our NICs.
    SourceGuard(Switch& network, const Claims::Claimant* own, const base::MacAddr* own_mac)
        : network_(network), own_(own), own_mac_(own_mac) {}
    [[nodiscard]] bool passes(std::span<const std::byte> frame);
    /// So many addresses at once cost no look at the claims, if they do not share a place.
    static constexpr std::size_t kKept = 64;

private:
    [[nodiscard]] bool foreign_mac(std::span<const std::byte> frame) const;

    Switch& network_;
    const Claims::Claimant* const own_;
    const base::MacAddr* const own_mac_;
    /// An address that was nobody else's, as long as the switch's count is this.
    struct Good {
        roce::Address address{};
        std::uint64_t reach = 0;
    };
    [[nodiscard]] static std::size_t place_of(const roce::Gid& address);
    std::array<Good, kKept> good_{};
};

}  // namespace openmana::fabric
