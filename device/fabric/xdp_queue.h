// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/if_xdp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/frame.h"
#include "base/hold_meter.h"
#include "base/result.h"
#include "fabric/xdp_opener.h"
#include "fabric/xdp_ring.h"

namespace openmana::fabric {

/// A queue of an interface: the rings of its XDP socket, and which chunk of its memory is where.
/// Sends from any thread; opened, closed and received from on one.
class XdpQueue {
public:
    static constexpr std::size_t kBurst = 64;
    static constexpr std::size_t kMaxFrame = 65536;

    base::Result<void> open(base::UniqueFd socket, std::span<std::byte> memory,
                            const XdpHandles::Facts& facts);
    /// What the kernel has not sent is lost. Nothing is used of the memory any more.
    void close();
    [[nodiscard]] int fd() const { return socket_.get(); }

    struct Sent {
        std::uint64_t frames = 0;
        std::uint64_t bytes = 0;
        std::uint64_t full = 0;    ///< dropped: no chunk was free
        std::uint64_t closed = 0;  ///< dropped: it is not open
        std::uint64_t large = 0;   ///< dropped: more chunks than a frame may have
        bool waits = false;        ///< the kernel has not taken all: push() has to be called
    };
    /// In their order.
    Sent send(base::FrameViews frames);
    /// Has the kernel go on. True if there is still something that it has not taken.
    bool push();

    /// At most kBurst, in the order in which they came; good until done().
    [[nodiscard]] base::FrameViews receive();
    /// The kernel may fill their memory again.
    void done();
    /// Frames that came in more than kMaxFrame bytes, and are dropped.
    [[nodiscard]] std::uint64_t oversized() const { return oversized_; }

    /// The kernel's own counts since it was opened.
    [[nodiscard]] xdp_statistics statistics();

private:
    static constexpr std::uint32_t kChunks = XdpMemory::kChunks;
    static constexpr std::size_t kChunkBytes = XdpMemory::kChunkBytes;
    /// Of a frame that goes out: the kernel's MAX_SKB_FRAGS, or what most drivers can.
    static constexpr std::size_t kMaxPieces = 17;
    base::Result<void> map();
    void unmap();
    void reap_locked();
    bool put_locked(base::FrameView frame);
    bool push_locked();
    void take(const xdp_desc& piece);

    base::SharedMutex mutex_{"queue of an XDP uplink"};  // protects what is for sending
    base::UniqueFd socket_;  // changed under it, and read by the one thread without
    std::span<std::byte> memory_;
    bool fragments_ = false;
    bool zero_copy_ = false;
    XdpRing<xdp_desc> sends_;
    XdpRing<std::uint64_t> sent_;
    std::vector<std::uint64_t> free_;  // chunks to send from

    // Of the one thread.
    XdpRing<std::uint64_t> fill_;
    XdpRing<xdp_desc> received_;
    std::uint32_t taken_ = 0;
    std::array<base::FrameView, kBurst> views_;
    std::size_t count_ = 0;
    std::vector<base::Frame> joined_;  // frames of several chunks, for their memory
    std::size_t joining_ = 0;          // which is that, and whether it is not whole yet
    bool partial_ = false;
    std::uint64_t oversized_ = 0;
};

}  // namespace openmana::fabric
