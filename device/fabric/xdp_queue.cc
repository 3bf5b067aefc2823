// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_queue.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#ifndef SOL_XDP
#define SOL_XDP 283
#endif

namespace openmana::fabric {
namespace {

/// XDP_PKT_CONTD: the frame goes on in the next entry. Headers before Linux 6.6 do not know it.
constexpr std::uint32_t kContinued = 1;
/// The kernel takes 32 entries a call where it copies.
constexpr int kCallsOfBurst = 8;

}  // namespace

base::Result<void> XdpQueue::open(base::UniqueFd socket, std::span<std::byte> memory,
                                  const XdpHandles::Facts& facts) {
    const std::lock_guard lock(mutex_);
    socket_ = std::move(socket);
    memory_ = memory;
    if (auto mapped = map(); !mapped) {
        unmap();
        socket_.reset();
        return mapped;
    }
    fragments_ = facts.fragments;
    zero_copy_ = facts.zero_copy;
    free_.clear();
    for (std::uint64_t chunk = 2 * kChunks; chunk > kChunks; --chunk)
        free_.push_back((chunk - 1) * kChunkBytes);
    for (std::uint64_t chunk = 0; chunk < kChunks; ++chunk) fill_.put(chunk * kChunkBytes);
    fill_.publish();
    taken_ = 0;
    count_ = joining_ = 0;
    partial_ = false;
    joined_.resize(kBurst);
    return {};
}

base::Result<void> XdpQueue::map() {
    xdp_mmap_offsets offsets{};
    socklen_t length = sizeof offsets;
    if (::getsockopt(socket_.get(), SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length) != 0 ||
        length != sizeof offsets)
        return base::fail(base::ErrorCode::kIo, "the rings of an XDP socket are others",
                          static_cast<unsigned>(errno));
    const int fd = socket_.get();
    TRY_VOID(received_.map(fd, XDP_PGOFF_RX_RING, offsets.rx, kChunks));
    TRY_VOID(sends_.map(fd, XDP_PGOFF_TX_RING, offsets.tx, kChunks));
    TRY_VOID(fill_.map(fd, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, kChunks));
    return sent_.map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, kChunks);
}

void XdpQueue::unmap() {
    received_.unmap();
    sends_.unmap();
    fill_.unmap();
    sent_.unmap();
}

void XdpQueue::close() {
    const std::lock_guard lock(mutex_);
    if (!socket_) return;
    unmap();
    socket_.reset();
    memory_ = {};
}

/// Chunks that were sent are free again.
void XdpQueue::reap_locked() {
    const std::uint32_t count = sent_.available();
    for (std::uint32_t i = 0; i < count; ++i) free_.push_back(sent_.peek(i));
    if (count > 0) sent_.release(count);
}

bool XdpQueue::put_locked(base::FrameView frame) {
    const std::size_t pieces =
        std::max<std::size_t>(1, (frame.size() + kChunkBytes - 1) / kChunkBytes);
    if (free_.size() < pieces) reap_locked();
    if (free_.size() < pieces) {
        sends_.publish();
        (void)push_locked();
        reap_locked();
    }
    if (free_.size() < pieces) return false;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        const base::FrameView part = frame.first(std::min(frame.size(), kChunkBytes));
        frame = frame.subspan(part.size());
        const std::uint64_t chunk = free_.back();
        free_.pop_back();
        std::memcpy(memory_.data() + chunk, part.data(), part.size());
        xdp_desc entry{};
        entry.addr = chunk;
        entry.len = static_cast<std::uint32_t>(part.size());
        entry.options = frame.empty() ? 0 : kContinued;
        sends_.put(entry);
    }
    return true;
}

XdpQueue::Sent XdpQueue::send(base::FrameViews frames) {
    Sent result;
    const std::lock_guard lock(mutex_);
    base::count_work(frames.size());
    if (!socket_) {
        result.closed = frames.size();
        return result;
    }
    const std::size_t largest = fragments_ ? kMaxPieces * kChunkBytes : kChunkBytes;
    for (const base::FrameView frame : frames) {
        if (frame.size() > largest) {
            ++result.large;
        } else if (!put_locked(frame)) {
            ++result.full;
        } else {
            ++result.frames;
            result.bytes += frame.size();
        }
    }
    sends_.publish();
    result.waits = push_locked();
    return result;
}

bool XdpQueue::push() {
    const std::lock_guard lock(mutex_);
    return socket_ && push_locked();
}

/// Where the kernel copies, it sends what is in the ring in the call, and says EAGAIN if it left
/// some: because that was enough for a call, or because the device takes no more now. A driver that
/// does not copy goes on by itself once it was called.
bool XdpQueue::push_locked() {
    for (int call = 0; call < kCallsOfBurst; ++call) {
        const std::uint32_t before = sends_.waiting();
        if (before == 0 || (zero_copy_ && !sends_.needs_wakeup())) return false;
        const bool done = ::sendto(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0;
        if (zero_copy_) return !done;
        if (sends_.waiting() == before) break;
    }
    return sends_.waiting() != 0;
}

base::FrameViews XdpQueue::receive() {
    const std::uint32_t ready = received_.available();
    while (taken_ < ready && count_ < kBurst) take(received_.peek(taken_++));
    return base::FrameViews(views_).first(count_);
}

void XdpQueue::take(const xdp_desc& piece) {
    const base::FrameView bytes = memory_.subspan(piece.addr, piece.len);
    const bool more = (piece.options & kContinued) != 0;
    if (!partial_ && !more) {
        views_[count_++] = bytes;
        return;
    }
    base::Frame& frame = joined_[joining_];
    if (!partial_) frame.clear();
    // One that is too long goes on to its end, and is longer than it may be.
    if (frame.size() <= kMaxFrame) frame.insert(frame.end(), bytes.begin(), bytes.end());
    partial_ = more;
    if (more) return;
    if (frame.size() > kMaxFrame) {
        ++oversized_;
        return;
    }
    views_[count_++] = frame;
    ++joining_;
}

void XdpQueue::done() {
    for (std::uint32_t i = 0; i < taken_; ++i)
        fill_.put(received_.peek(i).addr / kChunkBytes * kChunkBytes);
    if (taken_ > 0) {
        fill_.publish();
        received_.release(taken_);
    }
    if (partial_ && joining_ != 0) joined_[0].swap(joined_[joining_]);
    taken_ = 0;
    count_ = joining_ = 0;
    if (fill_.needs_wakeup())
        (void)::recvfrom(socket_.get(), nullptr, 0, MSG_DONTWAIT, nullptr, nullptr);
}

xdp_statistics XdpQueue::statistics() {
    const std::lock_guard lock(mutex_);
    xdp_statistics result{};
    socklen_t length = sizeof result;
    if (socket_) (void)::getsockopt(socket_.get(), SOL_XDP, XDP_STATISTICS, &result, &length);
    return result;
}

}  // namespace openmana::fabric
