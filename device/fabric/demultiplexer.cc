// SPDX-License-Identifier: Apache-2.0
#include "fabric/demultiplexer.h"

#include <cstring>

#include "base/gate.h"
#include "roce/address.h"

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
bool Demultiplexer::hand_over(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const bool rdma = for_rdma(headers);
    // A group may have members on both sides.
    if (!rdma || roce::is_multicast(headers.destination)) ethernet_.receive(frame);
    return rdma;
}

bool Demultiplexer::for_rdma(std::span<const std::byte> frame) const {
    return for_rdma(read_headers(frame));
}

void Demultiplexer::receive(std::span<const std::byte> frame) {
    if (hand_over(read_headers(frame), frame)) rdma_.receive(frame);
}

bool Demultiplexer::receive_now(std::span<const std::byte> frame) {
    if (executor_.on_thread()) {
        receive(frame);
        return true;
    }
    const FrameHeaders headers = read_headers(frame);
    bool rdma = false;
    {
        const base::Gate::TryVisit visit(function_.gate());
        if (!visit) return false;
        base::count_work(1);
        rdma = hand_over(headers, frame);
    }
    if (rdma) rdma_.receive(frame);
    return true;
}

bool Demultiplexer::to_self(std::span<const std::byte> frame) const {
    return frame.size() >= mac_.size() && std::memcmp(frame.data(), mac_.data(), mac_.size()) == 0;
}

bool Demultiplexer::returns_to_rdma(std::span<const std::byte> frame) const {
    return to_self(frame) && for_rdma(read_headers(frame));
}

bool Demultiplexer::return_to_ethernet(std::span<const std::byte> frame) {
    const bool own = to_self(frame);
    const bool to_group = !frame.empty() && (frame[0] & std::byte{1}) != std::byte{0};
    return (to_group || own) && ethernet_.receive_own(frame) && own;
}

}  // namespace openmana::fabric
