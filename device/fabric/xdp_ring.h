// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/if_xdp.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace openmana::fabric {

/// A ring that is shared with the kernel: `T` is xdp_desc, or the address of a chunk. Its size is a
/// power of two. Each end is used by one thread at a time; which of the two ends is ours depends on
/// the ring. The kernel's half of each pair of barriers is in its net/xdp/xsk_queue.h.
template <typename T>
class XdpRing {
public:
    XdpRing() = default;
    ~XdpRing() { unmap(); }
    XdpRing(const XdpRing&) = delete;
    XdpRing& operator=(const XdpRing&) = delete;

    base::Result<void> map(int socket, std::uint64_t page_offset, const xdp_ring_offset& offsets,
                           std::uint32_t entries) {
        length_ = offsets.desc + std::size_t{entries} * sizeof(T);
        void* const at = ::mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                socket, static_cast<off_t>(page_offset));
        if (at == MAP_FAILED)
            return base::fail(base::ErrorCode::kIo, "cannot map a ring of the interface",
                              static_cast<unsigned>(errno));
        base_ = static_cast<std::byte*>(at);
        producer_ = word(offsets.producer);
        consumer_ = word(offsets.consumer);
        flags_ = word(offsets.flags);
        entries_ = reinterpret_cast<T*>(base_ + offsets.desc);
        size_ = entries;
        own_ = 0;
        return {};
    }
    void unmap() {
        if (base_ != nullptr) ::munmap(std::exchange(base_, nullptr), length_);
    }

    // Of the end that puts entries in.
    [[nodiscard]] std::uint32_t room() const { return size_ - (own_ - load(consumer_)); }
    void put(const T& entry) { entries_[own_++ & (size_ - 1)] = entry; }
    /// What was put, all of it, is the kernel's from now on.
    void publish() { std::atomic_ref(*producer_).store(own_, std::memory_order_release); }
    /// Of what was published, what the kernel has not taken.
    [[nodiscard]] std::uint32_t waiting() const { return own_ - load(consumer_); }
    /// It sleeps until it is called. Behind publish(): whoever is second sees what the first did.
    [[nodiscard]] bool needs_wakeup() const {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return (std::atomic_ref(*flags_).load(std::memory_order_relaxed) & XDP_RING_NEED_WAKEUP) !=
               0;
    }

    // Of the end that takes them out.
    [[nodiscard]] std::uint32_t available() const { return load(producer_) - own_; }
    [[nodiscard]] const T& peek(std::uint32_t index) const {
        return entries_[(own_ + index) & (size_ - 1)];
    }
    /// The kernel may use their places again.
    void release(std::uint32_t count) {
        own_ += count;
        std::atomic_ref(*consumer_).store(own_, std::memory_order_release);
    }

private:
    std::uint32_t* word(std::uint64_t offset) {
        return reinterpret_cast<std::uint32_t*>(base_ + offset);
    }
    static std::uint32_t load(std::uint32_t* at) {
        return std::atomic_ref(*at).load(std::memory_order_acquire);
    }
    std::byte* base_ = nullptr;
    std::size_t length_ = 0;
    std::uint32_t* producer_ = nullptr;
    std::uint32_t* consumer_ = nullptr;
    std::uint32_t* flags_ = nullptr;
    T* entries_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t own_ = 0;  // our end
};

}  // namespace openmana::fabric
