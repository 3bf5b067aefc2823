// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/executor.h"
#include "base/frame.h"
#include "eth/ethernet_device.h"
#include "fabric/frame_headers.h"
#include "gdma/function.h"
#include "rnic/rnic.h"

namespace openmana::fabric {

/// Tells which device of a NIC a frame is for: the RDMA device gets RoCEv2 to an address of its
/// adapter, in the VLAN of the address, the Ethernet device the rest, and both what goes to a group
/// with members on both sides.
class Demultiplexer {
public:
    /// The devices outlive it; `mac` is the NIC's.
    Demultiplexer(const base::Executor& executor, gdma::Function& function,
                  eth::EthernetDevice& ethernet, rnic::Rnic& rdma, const base::MacAddr& mac);

    /// Of a visit: the frames and bytes, if it is more than one frame.
    static constexpr std::size_t kVisitFrames = 16;
    static constexpr std::size_t kVisitBytes = 64U << 10;

    /// A frame from the network. The executor.
    void receive(base::FrameView frame);
    /// The same on any thread that holds no gate, for several. How many of them it was, from the
    /// first on: all, unless the NIC is closed.
    [[nodiscard]] std::size_t receive_now(base::FrameViews frames);
    /// False if a frame that the NIC sends is neither for its own MAC address nor for a group, so
    /// that the next two say no.
    [[nodiscard]] bool may_return(std::span<const std::byte> frame) const;
    /// Whether a frame that the NIC sends is for its own RDMA device: no switch sends a frame back
    /// to where it came from. The executor.
    [[nodiscard]] bool returns_to_rdma(std::span<const std::byte> frame) const;
    /// What a port sends to a group or to itself comes back to packet queues with a rule for it, as
    /// on other RoCE NICs. True if the frame was for this NIC alone. The executor.
    [[nodiscard]] bool return_to_ethernet(base::FrameView frame);

    /// Whether a frame is RoCE for an address that the RDMA device serves. The executor.
    [[nodiscard]] bool for_rdma(std::span<const std::byte> frame) const;

private:
    [[nodiscard]] bool for_rdma(const FrameHeaders& headers) const;
    [[nodiscard]] bool hand_over(const FrameHeaders& headers, base::FrameView frame);
    [[nodiscard]] std::size_t hand_over(base::FrameViews frames, std::span<base::FrameView> rdma);
    [[nodiscard]] static base::FrameViews next_visit(base::FrameViews frames);
    [[nodiscard]] bool to_self(std::span<const std::byte> frame) const;

    const base::Executor& executor_;
    gdma::Function& function_;
    eth::EthernetDevice& ethernet_;
    rnic::Rnic& rdma_;
    const base::MacAddr mac_;
};

}  // namespace openmana::fabric
