// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/counters.h"
#include "base/frame.h"
#include "base/result.h"

namespace openmana::fabric {

/// What the XDP program takes frames for, in memory that it reads (`XdpProgram`): a hash table of
/// buckets, in each place a MAC address with kUsed, or 0. It is kept here as well, since the
/// program's is a new one each time that the interface is opened.
///
/// Who makes addresses up has others replaced that were learned and share a bucket, which nobody
/// can choose without the key; not those of NICs.
class XdpAddresses {
public:
    static constexpr unsigned kBucketBits = 11;
    static constexpr std::size_t kPlaces = 8;  ///< of a bucket
    static constexpr std::size_t kBucketBytes = kPlaces * sizeof(std::uint64_t);
    static constexpr std::size_t kBuckets = std::size_t{1} << kBucketBits;
    static constexpr std::size_t kBytes = kBuckets * kBucketBytes;
    static constexpr std::uint64_t kUsed = std::uint64_t{1} << 48;
    /// As the program loads it from a frame (little endian), with kUsed.
    [[nodiscard]] static std::uint64_t word_at(const std::byte* mac);
    [[nodiscard]] static std::uint64_t word_of(const base::MacAddr& mac);

    /// `key` is odd.
    XdpAddresses(std::uint64_t key, const std::vector<base::MacAddr>& fixed);
    ~XdpAddresses() { detach(); }
    XdpAddresses(const XdpAddresses&) = delete;
    XdpAddresses& operator=(const XdpAddresses&) = delete;
    [[nodiscard]] std::uint64_t key() const { return key_; }

    /// From now on the program whose table this is knows all of it.
    base::Result<void> attach(int table);
    void detach();
    /// The interface's own address, which is the host's and never ours. False if it is a NIC's.
    bool set_host(const base::MacAddr& mac);

    enum class Learned : std::uint8_t {
        kKnown,
        kNew,
        kReplaced,  ///< new, in the place of another
        kRefused,   ///< it cannot be ours
    };
    /// It is a NIC's from now on, as those that were there from the start are. Any thread.
    void add_fixed(const base::MacAddr& mac);
    /// It is no NIC's any more, from the start or not. Any thread.
    void remove_fixed(const base::MacAddr& mac);
    /// A frame goes out from this address. Any thread.
    Learned saw_inside(const std::byte* mac);
    /// A frame came in from it. True if it was ours until now, by learning.
    bool saw_outside(const std::byte* mac);

private:
    using Bucket = std::array<std::atomic<std::uint64_t>, kPlaces>;
    [[nodiscard]] Bucket& bucket_of(std::uint64_t word);
    [[nodiscard]] static bool has(const Bucket& bucket, std::uint64_t word);
    [[nodiscard]] bool fixed_locked(std::uint64_t word) const;
    Learned add_locked(std::uint64_t word);
    void set_locked(Bucket& bucket, std::size_t place, std::uint64_t word);
    void drop_locked(std::uint64_t word);

    const std::uint64_t key_;
    std::atomic<std::uint64_t> host_{0};
    std::vector<Bucket> buckets_;  // read without, written under the lock
    std::mutex mutex_;             // protects what follows
    std::vector<std::uint64_t> fixed_;
    std::uint64_t* table_ = nullptr;
    std::size_t next_ = 0;
};

}  // namespace openmana::fabric
