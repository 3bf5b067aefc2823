// SPDX-License-Identifier: Apache-2.0
#include "fabric/demultiplexer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/gate.h"
#include "roce/address.h"
#include "roce/packet.h"

namespace openmana::fabric {

Demultiplexer::Demultiplexer(const base::Executor& executor, gdma::Function& function,
                             eth::EthernetDevice& ethernet, rnic::Rnic& rdma,
                             const base::MacAddr& mac)
    : executor_(executor), function_(function), ethernet_(ethernet), rdma_(rdma), mac_(mac) {}

/// During a visit or on the executor.
bool Demultiplexer::for_rdma(const FrameHeaders& headers) const {
    if (!headers.roce() || headers.stacked) return false;
    return roce::is_multicast(headers.destination)
               ? rdma_.takes_multicast()
               : rdma_.owns({headers.destination, headers.vlan});
}

/// As for_rdma. True if the RDMA device gets the frame as well.
bool Demultiplexer::hand_over(const FrameHeaders& headers, base::FrameView frame) {
    const bool rdma = for_rdma(headers);
    // A group may have members on both sides.
    if (!rdma || roce::is_multicast(headers.destination)) {
        roce::put_icrc(frame);
        ethernet_.receive(frame);
    }
    return rdma;
}

bool Demultiplexer::for_rdma(std::span<const std::byte> frame) const {
    return for_rdma(read_headers(frame));
}

void Demultiplexer::receive(base::FrameView frame) {
    if (hand_over(read_headers(frame), frame)) rdma_.receive(frame);
}

/// The first of them.
base::FrameViews Demultiplexer::next_visit(base::FrameViews frames) {
    std::size_t count = 1;
    std::size_t bytes = frames.front().size();
    while (count < std::min(frames.size(), kVisitFrames) &&
           bytes + frames[count].size() <= kVisitBytes)
        bytes += frames[count++].size();
    return frames.first(count);
}

/// During a visit or on the executor: those that the RDMA device gets as well go to `rdma`.
std::size_t Demultiplexer::hand_over(base::FrameViews frames, std::span<base::FrameView> rdma) {
    std::size_t count = 0;
    for (const base::FrameView frame : frames) {
        base::count_work(1);
        if (hand_over(read_headers(frame), frame)) rdma[count++] = frame;
    }
    return count;
}

std::size_t Demultiplexer::receive_now(base::FrameViews frames) {
    const bool own = executor_.on_thread();
    std::size_t taken = 0;
    while (taken < frames.size()) {
        const base::FrameViews step = next_visit(frames.subspan(taken));
        std::array<base::FrameView, kVisitFrames> rdma;
        std::size_t count = 0;
        if (own) {
            count = hand_over(step, rdma);
        } else {
            const base::Gate::TryVisit visit(function_.gate());
            if (!visit) return taken;
            count = hand_over(step, rdma);
        }
        if (count > 0) rdma_.receive(base::FrameViews(rdma).first(count));
        taken += step.size();
    }
    return taken;
}

bool Demultiplexer::to_self(std::span<const std::byte> frame) const {
    return frame.size() >= mac_.size() && std::memcmp(frame.data(), mac_.data(), mac_.size()) == 0;
}

bool Demultiplexer::may_return(std::span<const std::byte> frame) const {
    return to_self(frame) || (!frame.empty() && (frame[0] & std::byte{1}) != std::byte{0});
}

bool Demultiplexer::returns_to_rdma(std::span<const std::byte> frame) const {
    return to_self(frame) && for_rdma(read_headers(frame));
}

bool Demultiplexer::return_to_ethernet(base::FrameView frame) {
    const bool own = to_self(frame);
    const bool to_group = !frame.empty() && (frame[0] & std::byte{1}) != std::byte{0};
    if (!to_group && !own) return false;
    roce::put_icrc(frame);
    return ethernet_.receive_own(frame) && own;
}

}  // namespace openmana::fabric
