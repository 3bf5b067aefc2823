// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/frame.h"
#include "base/gate.h"
#include "base/state.h"
#include "roce/address.h"

namespace openmana::rnic {

class Network;

/// The addresses that an adapter was given, and which of them it serves: not those that are
/// somebody else's. Changes on the executor; visitors look. The gate is closed just for what they
/// look at; the network is asked and told with the gate open. Answers are statuses of the hardware
/// channel.
class Addresses {
public:
    /// `own`: the MAC address that it has without being given it. Gate and network outlive this.
    Addresses(base::Gate& gate, const base::MacAddr& own, Network& network)
        : gate_(gate), own_(own), network_(network) {}

    /// The same address comes once for each interface that has it, with that one's MAC address.
    std::uint32_t add(const roce::Address& address, const base::MacAddr& mac);
    std::uint32_t remove(const roce::Address& address, const base::MacAddr& mac);
    /// By the MAC address that the adapter has without being given it.
    std::uint32_t add(const roce::Address& address) { return add(address, own_); }
    std::uint32_t remove(const roce::Address& address) { return remove(address, own_); }
    std::uint32_t add(const base::MacAddr& mac);
    std::uint32_t remove(const base::MacAddr& mac);
    void clear();
    /// Into none (adapter_state.cc). What was given to the adapter is claimed anew.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// Asks the network anew which of them are served, or whether this one is.
    void review() { review(entries_); }
    void review(const roce::Address& address);
    /// It was given the address, and serves it.
    [[nodiscard]] bool owns(const roce::Address& address) const;
    [[nodiscard]] bool owns(const base::MacAddr& mac) const;
    /// One is in a VLAN or has another MAC address than the adapter, as only a driver with the
    /// extension can want. Executor only.
    [[nodiscard]] bool any_extended() const;
    /// It serves an address in that VLAN, so what is for a group there may be for its guest. A
    /// group without a VLAN may always be.
    [[nodiscard]] bool in_vlan(roce::Vlan vlan) const;
    /// As owns(), for who asks again and again: one compare then. Executor only.
    [[nodiscard]] bool sends_from(const roce::Address& address) {
        if (address == sends_from_) return true;
        if (!owns(address)) return false;
        sends_from_ = address;
        sends_by_ = mac_of(address);
        return true;
    }
    /// The MAC address that packets from the address have which sends_from() has just allowed.
    /// Executor only.
    [[nodiscard]] const base::MacAddr& sends_by() const { return sends_by_; }
    /// The MAC address that it is reached by, that of the first interface that has it; the
    /// adapter's for one that it has not. Executor only.
    [[nodiscard]] const base::MacAddr& mac_of(const roce::Address& address) const;

private:
    // Of the adapter, and by which an address is reached.
    static constexpr std::size_t kMostMacs = 256;
    struct Entry {
        roce::Address address;
        std::vector<base::MacAddr> macs;  ///< one for each interface; the executor's alone
        bool served;
    };
    [[nodiscard]] std::vector<Entry>::iterator entry_of(const roce::Address& address);
    [[nodiscard]] std::uint32_t claim(const base::MacAddr& mac);
    void release(const base::MacAddr& mac);
    void review(std::span<Entry> entries);

    base::Gate& gate_;
    const base::MacAddr own_;
    Network& network_;
    std::vector<Entry> entries_;
    std::vector<base::MacAddr> macs_;
    std::map<base::MacAddr, std::uint32_t> claimed_;  // how often, the executor's alone
    std::optional<roce::Address> sends_from_;         // until an address is not served any more
    base::MacAddr sends_by_{};                        // of that address
};

}  // namespace openmana::rnic
