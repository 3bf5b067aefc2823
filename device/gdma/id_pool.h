// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/state.h"

namespace openmana::gdma {

/// Names of objects that are never given twice, not even after a reset.
class HandleNumbers {
public:
    [[nodiscard]] std::uint64_t take() { return next_++; }
    /// It has been given.
    [[nodiscard]] bool given(std::uint64_t handle) const {
        return handle >= kFirst && handle < next_;
    }
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.next_);
        a.require(self.next_ >= kFirst, "handles begin elsewhere");
    }

private:
    static constexpr std::uint64_t kFirst = 0x1000;
    std::uint64_t next_ = kFirst;
};

/// Ids `[first, first + count)`, handed out one by one: fresh ones first, then the one that was
/// freed longest ago.
class IdPool {
public:
    IdPool(std::uint32_t first, std::uint32_t count)
        : first_(first), next_(first), end_(first + count) {}
    std::optional<std::uint32_t> take() {
        if (next_ >= end_ && free_.empty()) return std::nullopt;
        ++used_;
        if (next_ < end_) return next_++;
        const std::uint32_t id = free_.front();
        free_.pop_front();
        return id;
    }
    void give_back(std::uint32_t id) {
        --used_;
        free_.push_back(id);
    }
    [[nodiscard]] std::uint32_t used() const { return used_; }

    void save(base::StateWriter& out) const { out(next_, free_); }
    /// Of a pool as it was made. Those who have an id say so by claim(), each for its own; in the
    /// end all_claimed().
    void load(base::StateReader& in) {
        in(next_, free_);
        in.require(next_ >= first_ && next_ <= end_ && free_.size() <= next_ - first_,
                   "ids that there are not");
        if (!in.ok()) return;
        unclaimed_.assign(next_ - first_, true);
        for (const std::uint32_t id : free_) in.require(claim(id), "an id is free twice");
        used_ = next_ - first_ - static_cast<std::uint32_t>(free_.size());
    }
    /// False if it is free, or somebody else's.
    [[nodiscard]] bool claim(std::uint32_t id) {
        if (id < first_ || id - first_ >= unclaimed_.size() || !unclaimed_[id - first_])
            return false;
        unclaimed_[id - first_] = false;
        return true;
    }
    [[nodiscard]] bool all_claimed() {
        const bool all = std::ranges::count(unclaimed_, true) == 0;
        std::vector<bool>().swap(unclaimed_);
        return all;
    }

private:
    std::uint32_t first_;
    std::uint32_t next_;
    std::uint32_t end_;
    std::uint32_t used_ = 0;
    std::deque<std::uint32_t> free_;
    std::vector<bool> unclaimed_;  // while a state is read
};

/// Queue ids in blocks of four, so that up to four neighbours at a multiple of four are one step
/// (RNIC 3.2). Single ids share blocks. The first block is kept back: its ids are never handed out.
class QueueIdPool {
public:
    static constexpr std::uint32_t kBlock = 4;
    /// All ids are in so many from the first one on.
    static constexpr std::uint32_t kSpan = 1U << 19;

    /// At most `quota` ids in use. `first` is a multiple of kBlock.
    explicit QueueIdPool(std::uint32_t quota, std::uint32_t first = 0)
        : quota_(quota), first_(first) {}

    std::optional<std::uint32_t> take(std::uint32_t count, std::uint32_t align) {
        const auto id = take_number(count, align);
        return id ? std::optional(first_ + *id) : std::nullopt;
    }
    /// Ids that are not taken are ignored.
    void give_back(std::uint32_t first, std::uint32_t count) {
        give_back_number(first - first_, count);
    }
    [[nodiscard]] std::uint32_t used() const { return used_; }
    [[nodiscard]] std::uint32_t first() const { return first_; }

    void save(base::StateWriter& out) const {
        out(static_cast<std::uint32_t>(taken_.size()), single_block_, single_next_, free_);
    }
    /// Of a pool as it was made. Those who have ids claim() them; in the end all_claimed().
    void load(base::StateReader& in) {
        const auto blocks = in.get<std::uint32_t>();
        in(single_block_, single_next_, free_);
        in.require(blocks <= kMaxBlocks && free_.size() < std::max(blocks, 1U) &&
                       (single_block_ == 0 || single_block_ < blocks) && single_next_ <= kBlock,
                   "queue ids that there are not");
        if (!in.ok()) return;
        taken_.assign(blocks, 0);
        if (blocks != 0) taken_[0] = 0xff;
        // Marked as if somebody had them, until all others have claimed theirs.
        for (const std::uint32_t block : free_) {
            in.require(block < blocks && taken_[block] == 0 && block != single_block_,
                       "a block of ids is free twice");
            if (in.ok()) taken_[block] = 0xff;
        }
        used_ = 0;
    }
    [[nodiscard]] bool claim(std::uint32_t first, std::uint32_t count) {
        const std::uint32_t number = first - first_;
        if (first < first_ || count == 0 || count > kBlock || count > quota_ - used_) return false;
        for (std::uint32_t id = number; id - number < count; ++id) {
            if (id / kBlock >= taken_.size() || (taken_[id / kBlock] & bit(id)) != 0) return false;
            // Singles that were not given out yet.
            if (id / kBlock == single_block_ && id % kBlock >= single_next_) return false;
            taken_[id / kBlock] |= bit(id);
        }
        used_ += count;
        return true;
    }
    /// Whether no block is lost: each is free, or somebody's, or that of the singles.
    [[nodiscard]] bool all_claimed() {
        for (std::uint32_t block = 1; block < taken_.size(); ++block)
            if (taken_[block] == 0 && block != single_block_) return false;
        for (const std::uint32_t block : free_) taken_[block] = 0;
        return true;
    }

private:
    // Numbers are ids less the first one.
    std::optional<std::uint32_t> take_number(std::uint32_t count, std::uint32_t align) {
        if (count == 0 || count > kBlock || count > quota_ - used_) return std::nullopt;
        std::uint32_t first = 0;
        if (count == 1 && align == 1) {
            if (single_block_ == 0 || single_next_ == kBlock) {
                const auto block = take_block();
                if (!block) return std::nullopt;
                if (single_block_ != 0) release_if_empty(single_block_, 0);
                single_block_ = *block;
                single_next_ = 0;
            }
            first = single_block_ * kBlock + single_next_++;
        } else {
            const auto block = take_block();
            if (!block) return std::nullopt;
            first = *block * kBlock;
        }
        for (std::uint32_t i = 0; i < count; ++i) taken_[first / kBlock] |= bit(first + i);
        used_ += count;
        return first;
    }
    void give_back_number(std::uint32_t first, std::uint32_t count) {
        for (std::uint32_t id = first; id - first < count; ++id) {
            const std::uint32_t block = id / kBlock;
            if (block >= taken_.size() || (taken_[block] & bit(id)) == 0) continue;
            taken_[block] = static_cast<std::uint8_t>(taken_[block] & ~bit(id));
            --used_;
            // The block that singles come from is not empty for good yet.
            if (block != single_block_ || single_next_ == kBlock)
                release_if_empty(block, single_block_);
        }
    }
    /// So many blocks rest before the first of them is used again, so that late doorbells and
    /// packets meet nobody.
    static constexpr std::size_t kResting = 1024;
    static constexpr std::uint32_t kMaxBlocks = kSpan / kBlock;

    static std::uint8_t bit(std::uint32_t id) {
        return static_cast<std::uint8_t>(1U << id % kBlock);
    }
    std::optional<std::uint32_t> take_block() {
        if (free_.size() < kResting && taken_.size() < kMaxBlocks) {
            if (taken_.empty()) taken_.push_back(0xff);
            taken_.push_back(0);
            return static_cast<std::uint32_t>(taken_.size() - 1);
        }
        if (free_.empty()) return std::nullopt;
        const std::uint32_t block = free_.front();
        free_.pop_front();
        return block;
    }
    /// `current`: the exhausted block of the singles; it is forgotten when it goes back.
    void release_if_empty(std::uint32_t block, std::uint32_t current) {
        if (taken_[block] != 0) return;
        if (block == current) single_block_ = 0;
        free_.push_back(block);
    }

    std::uint32_t quota_;
    std::uint32_t first_;
    std::uint32_t used_ = 0;
    std::uint32_t single_block_ = 0;
    std::uint32_t single_next_ = 0;
    std::vector<std::uint8_t> taken_;  // bit per id, by block
    std::deque<std::uint32_t> free_;
};

}  // namespace openmana::gdma
