// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/strong.h"
#include "esp/secret.h"

namespace openmana::esp {

inline constexpr std::size_t kPskBytes = 32;
/// A pre-shared key among those that this process ever had; not what is in it.
using PskId = base::Strong<struct PskIdTag, std::uint64_t>;

/// The pre-shared keys of a key file: the first is for what is sent, what comes may have any.
/// Does not change.
class KeyRing {
public:
    static constexpr std::size_t kMaxKeys = 8;
    /// Enough for as many lines, with a word on each.
    static constexpr std::size_t kMaxText = 4096;

    /// One key a line, 64 hex digits. Empty lines, and what is behind a `#`, are left out. The
    /// error's detail is the number of the line, if it is about one; it says nothing of the key.
    /// `before`, if any, gives the keys that stay their ids.
    static base::Result<std::shared_ptr<const KeyRing>> parse(std::string_view text,
                                                              const KeyRing* before);
    [[nodiscard]] std::size_t size() const { return ids_.size(); }
    [[nodiscard]] PskId id(std::size_t index) const { return ids_[index]; }
    [[nodiscard]] std::span<const std::byte> key(std::size_t index) const {
        return pages_.bytes().subspan(index * kPskBytes, kPskBytes);
    }
    [[nodiscard]] bool has(PskId id) const;
    /// The same keys in the same order.
    [[nodiscard]] bool same(const KeyRing& other) const { return ids_ == other.ids_; }

private:
    explicit KeyRing(SecretPages pages) : pages_(std::move(pages)) {}
    base::Result<void> add(std::string_view digits, std::size_t line, const KeyRing* before);

    SecretPages pages_;
    std::vector<PskId> ids_;
};

/// The ring in use, which whoever read the key file replaces while others use it. Any thread.
class KeyStore {
public:
    explicit KeyStore(std::shared_ptr<const KeyRing> ring) : ring_(std::move(ring)) {}
    [[nodiscard]] std::shared_ptr<const KeyRing> ring() const {
        const std::lock_guard lock(mutex_);
        return ring_;
    }
    void replace(std::shared_ptr<const KeyRing> ring) {
        {
            const std::lock_guard lock(mutex_);
            ring_.swap(ring);
        }
        // The release is for those who look at the generation alone: they find the new ring.
        generation_.fetch_add(1, std::memory_order_release);
    }
    /// Another after each `replace`.
    [[nodiscard]] std::uint64_t generation() const {
        return generation_.load(std::memory_order_acquire);
    }

private:
    mutable std::mutex mutex_;  // protects ring_
    std::shared_ptr<const KeyRing> ring_;
    std::atomic<std::uint64_t> generation_{0};
};

}  // namespace openmana::esp
