// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "rnic/qp.h"
#include "rnic/rnic.h"
#include "roce/packet.h"

namespace openmana::sim {

/// Counts what becomes of each frame that the network brings to one NIC, by the rules (ROCE 1.11,
/// 4.2, 3.4) and by what is to be seen of the queue pair before and after, never by the NIC's own
/// counters; so that those can be held against it (ROCE 10.8, invariant 13).
class Arrivals {
public:
    Arrivals(rnic::Rnic& nic, const base::MacAddr& mac, const roce::Gid& gid)
        : nic_(nic), mac_(mac), gid_(gid) {}

    /// `deal` gives the frame to the NIC, and is back when it has been dealt with.
    void count(const base::Frame& frame, const std::function<void()>& deal);
    /// What the NIC counted otherwise, or an empty text. Requests that took the local path are
    /// among its counters too; then only what cannot come from there is compared.
    [[nodiscard]] std::string wrong(bool wire_only) const;
    [[nodiscard]] std::uint64_t frames() const { return frames_; }

private:
    void count(const roce::Packet& packet, const std::function<void()>& deal);
    void request(rnic::Qp& qp, const roce::Packet& packet, const std::function<void()>& deal);
    [[nodiscard]] static std::size_t waiting(const rnic::Qp& qp);
    void answer(rnic::Qp& qp, const roce::Packet& packet, const std::function<void()>& deal);
    void datagram(const roce::Packet& packet, const std::function<void()>& deal);

    rnic::Rnic& nic_;
    const base::MacAddr mac_;
    const roce::Gid gid_;
    std::uint64_t frames_ = 0;
    // Dropped unread.
    std::uint64_t not_roce_ = 0, malformed_ = 0, icrc_ = 0, opcode_ = 0, pkey_ = 0;
    std::uint64_t nobody_ = 0;   // to QP 0
    std::uint64_t foreign_ = 0;  // to a MAC or an IP address that is not the NIC's
    // Dropped for the sake of the queue pair.
    std::uint64_t qpn_ = 0, address_ = 0, state_ = 0, owed_ = 0;
    std::uint64_t ahead_ = 0, behind_ = 0, unexpected_ = 0;
    std::uint64_t lost_ = 0;                // of UC
    std::uint64_t qkey_ = 0, useless_ = 0;  // datagrams: a wrong Q_Key; no receive for it
    // In order, and not taken: told to come again, or the end of the queue pair.
    std::uint64_t put_off_ = 0, refused_ = 0;
    // Accepted.
    std::uint64_t waits_ = 0;  // for a receive, or behind one that does
    std::uint64_t taken_ = 0, answers_ = 0, notifications_ = 0, datagrams_ = 0;
    std::uint64_t to_groups_ = 0;
};

}  // namespace openmana::sim
