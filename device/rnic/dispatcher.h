// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/frame.h"
#include "roce/packet.h"

namespace openmana::rnic {

struct Datapath;
struct Qp;
class QpTable;

/// Frames to the queue pairs that they are for, and what these have to say to a burst of them.
/// Executor only.
class Dispatcher {
public:
    Dispatcher(Datapath& datapath, const QpTable& qps) : datapath_(datapath), qps_(qps) {}

    /// A burst. How many of it are handled: as many as one task may, and none behind a datagram
    /// that is on its way to a group.
    std::size_t handle(std::span<const base::Frame> frames);
    /// One frame, whose answer waits for the end of a burst.
    void handle_frame(base::FrameView frame);
    /// Forgets who has something to answer.
    void clear() { batch_.clear(); }

private:
    void drop(base::Counter& counter, const char* why);
    void count_drop(roce::DropReason reason);
    void handle_datagram(const roce::Packet& packet, bool group, bool marked);
    void handle_connected(const roce::Packet& packet, bool marked);
    void handle_request(Qp& qp, const roce::Packet& packet);
    void handle_cnp(const roce::Packet& cnp);

    Datapath& datapath_;
    const QpTable& qps_;
    std::vector<roce::Qpn> batch_;  // QPNs that got frames
};

}  // namespace openmana::rnic
