// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/state.h"
#include "rnic/counters.h"
#include "rnic/memory.h"
#include "roce/packet.h"

namespace openmana::rnic {

class QpTable;
class QpTasks;

/// Datagrams that have come, to the queue pairs that they are for, and who listens to which group.
/// The executor's, but for deliver() and any_listener(), which are visitors' as well.
class Datagrams {
public:
    static constexpr std::uint32_t kMaxGroups = 1024;
    static constexpr std::uint32_t kMaxGroupQps = 256;
    /// Receivers of a datagram to a group that one task looks at.
    static constexpr unsigned kTurnReceivers = 128;

    /// `port_mtu`: payload at most.
    Datagrams(const QpTable& qps, RnicCounters& counters, QpTasks& tasks, std::uint32_t port_mtu)
        : qps_(qps), counters_(counters), tasks_(tasks), port_mtu_(port_mtu) {}

    /// To the queue pair that it names.
    void deliver(const roce::Packet& packet, Spans payload, std::size_t length) const;
    /// To each that listens to the group: kTurnReceivers get it at once, the others in tasks of
    /// their own, of a copy. `payload`: of ours, not of a guest. Not in a KeyUse. Dropped while
    /// another one is on its way.
    void deliver_to_group(const roce::Packet& packet, std::span<std::byte> payload);
    /// A datagram to a group is on its way to the rest of it: the next one waits, so that each
    /// receiver has them in their order.
    [[nodiscard]] bool busy() const { return busy_; }

    /// A stock UD QP, which listens to all groups.
    void listen(roce::Qpn qpn);
    /// An extended UD QP, which joins groups. The answer is a status of the hardware channel.
    [[nodiscard]] std::uint32_t join(const roce::Gid& gid, roce::Qpn qpn);
    [[nodiscard]] std::uint32_t leave(const roce::Gid& gid, roce::Qpn qpn);
    /// The QP goes, whatever it listens to.
    void remove(roce::Qpn qpn);
    void clear();
    /// Into ones without anybody, when the queue pairs are there (adapter_state.cc). Without a
    /// datagram that is on its way: it is lost to the rest, as the network may lose it.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    [[nodiscard]] bool any_group() const { return !groups_.empty(); }
    /// A datagram to a group may find a receiver.
    [[nodiscard]] bool any_listener() const { return listened_.load(std::memory_order_relaxed); }

private:
    void tell_listened() {
        listened_.store(!listeners_.empty() || any_group(), std::memory_order_relaxed);
    }

    struct Group {
        roce::Gid gid;
        std::vector<roce::Qpn> qpns;  // in order
    };
    /// Who gets a datagram next: a listener or a member, of this number or above.
    struct Place {
        bool members = false;  ///< all listeners have it
        roce::Qpn next{};
    };
    [[nodiscard]] bool deliver_from(Place& place, const roce::Packet& packet,
                                    std::span<std::byte> payload) const;
    void go_on();

    const QpTable& qps_;
    RnicCounters& counters_;
    QpTasks& tasks_;
    const std::uint32_t port_mtu_;
    // In order of numbers: those that come and go while a datagram is on its way change nothing for
    // the others.
    std::vector<roce::Qpn> listeners_;
    std::vector<Group> groups_;
    std::atomic<bool> listened_{false};  // what visitors may know of these
    bool busy_ = false;
    // The datagram that is on its way.
    roce::Packet packet_;
    std::vector<std::byte> payload_;
    Place place_;
};

}  // namespace openmana::rnic
