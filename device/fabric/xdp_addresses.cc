// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_addresses.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/endian.h"

namespace openmana::fabric {
namespace {

std::vector<std::uint64_t> words_of(const std::vector<base::MacAddr>& macs) {
    std::vector<std::uint64_t> words;
    for (const base::MacAddr& mac : macs) words.push_back(XdpAddresses::word_of(mac));
    return words;
}

/// Of one station, and not the address of nobody.
bool of_station(std::uint64_t word) {
    return (word & 1) == 0 && word != XdpAddresses::kUsed;
}

}  // namespace

std::uint64_t XdpAddresses::word_at(const std::byte* mac) {
    return kUsed | std::uint64_t{base::load_le<std::uint16_t>(mac + 4)} << 32 |
           base::load_le<std::uint32_t>(mac);
}

std::uint64_t XdpAddresses::word_of(const base::MacAddr& mac) {
    return word_at(reinterpret_cast<const std::byte*>(mac.data()));
}

XdpAddresses::XdpAddresses(std::uint64_t key, const std::vector<base::MacAddr>& fixed)
    : key_(key), buckets_(kBuckets), fixed_(words_of(fixed)) {
    for (const std::uint64_t word : fixed_) (void)add_locked(word);
}

XdpAddresses::Bucket& XdpAddresses::bucket_of(std::uint64_t word) {
    return buckets_[(word * key_) >> (64 - kBucketBits)];
}

bool XdpAddresses::has(const Bucket& bucket, std::uint64_t word) {
    return std::ranges::any_of(
        bucket, [&](const auto& place) { return place.load(std::memory_order_relaxed) == word; });
}

bool XdpAddresses::fixed_locked(std::uint64_t word) const {
    return std::ranges::find(fixed_, word) != fixed_.end();
}

base::Result<void> XdpAddresses::attach(int table) {
    void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, table, 0);
    if (at == MAP_FAILED)
        return base::fail(base::ErrorCode::kIo, "cannot map the addresses of the XDP program",
                          static_cast<unsigned>(errno));
    detach();
    const std::lock_guard lock(mutex_);
    table_ = static_cast<std::uint64_t*>(at);
    for (Bucket& bucket : buckets_)
        for (std::size_t place = 0; place < kPlaces; ++place)
            set_locked(bucket, place, bucket[place].load(std::memory_order_relaxed));
    return {};
}

void XdpAddresses::detach() {
    const std::lock_guard lock(mutex_);
    if (table_ != nullptr) ::munmap(std::exchange(table_, nullptr), kBytes);
}

bool XdpAddresses::set_host(const base::MacAddr& mac) {
    const std::uint64_t word = word_of(mac);
    const std::lock_guard lock(mutex_);
    host_.store(word, std::memory_order_relaxed);
    drop_locked(word);
    return !fixed_locked(word);
}

void XdpAddresses::add_fixed(const base::MacAddr& mac) {
    const std::uint64_t word = word_of(mac);
    const std::lock_guard lock(mutex_);
    if (!fixed_locked(word)) fixed_.push_back(word);
    (void)add_locked(word);
}

void XdpAddresses::remove_fixed(const base::MacAddr& mac) {
    const std::uint64_t word = word_of(mac);
    const std::lock_guard lock(mutex_);
    std::erase(fixed_, word);
    drop_locked(word);
}

XdpAddresses::Learned XdpAddresses::saw_inside(const std::byte* mac) {
    const std::uint64_t word = word_at(mac);
    if (has(bucket_of(word), word)) return Learned::kKnown;
    if (!of_station(word) || word == host_.load(std::memory_order_relaxed))
        return Learned::kRefused;
    const std::lock_guard lock(mutex_);
    return add_locked(word);
}

bool XdpAddresses::saw_outside(const std::byte* mac) {
    const std::uint64_t word = word_at(mac);
    if (!has(bucket_of(word), word)) return false;
    const std::lock_guard lock(mutex_);
    if (fixed_locked(word)) return false;
    drop_locked(word);
    return true;
}

/// The places of those of NICs are not for others.
XdpAddresses::Learned XdpAddresses::add_locked(std::uint64_t word) {
    Bucket& bucket = bucket_of(word);
    if (word == host_.load(std::memory_order_relaxed)) return Learned::kRefused;
    if (has(bucket, word)) return Learned::kKnown;
    for (std::size_t place = 0; place < kPlaces; ++place) {
        if (bucket[place].load(std::memory_order_relaxed) != 0) continue;
        set_locked(bucket, place, word);
        return Learned::kNew;
    }
    for (std::size_t tries = 0; tries < kPlaces; ++tries) {
        const std::size_t place = next_++ % kPlaces;
        if (fixed_locked(bucket[place].load(std::memory_order_relaxed))) continue;
        set_locked(bucket, place, word);
        return Learned::kReplaced;
    }
    return Learned::kRefused;
}

/// The program reads words, each of which is whole: relaxed.
void XdpAddresses::set_locked(Bucket& bucket, std::size_t place, std::uint64_t word) {
    bucket[place].store(word, std::memory_order_relaxed);
    if (table_ == nullptr) return;
    const auto index = static_cast<std::size_t>(&bucket - buckets_.data()) * kPlaces + place;
    std::atomic_ref(table_[index]).store(word, std::memory_order_relaxed);
}

void XdpAddresses::drop_locked(std::uint64_t word) {
    Bucket& bucket = bucket_of(word);
    for (std::size_t place = 0; place < kPlaces; ++place)
        if (bucket[place].load(std::memory_order_relaxed) == word) set_locked(bucket, place, 0);
}

}  // namespace openmana::fabric
