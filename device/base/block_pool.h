// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/huge_pages.h"
#include "base/memory_account.h"
#include "base/result.h"

#if defined(__SANITIZE_ADDRESS__)
#define OM_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OM_POISONS 1
#endif
#endif
#ifdef OM_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace openmana::base {

/// Memory for objects of which there may be thousands, used in an order that nobody can guess. All
/// but the first few hundred lie in huge pages, if the system has them: in small ones each would
/// cost a walk of the page tables, which takes longer than the object itself does to come from
/// memory. Blocks start at a cache line. Without locks: changed by its owner only.
class BlockPool {
public:
    /// `account` pays for the memory that it has of the system, and outlives it.
    BlockPool(std::size_t bytes, MemoryAccount& account)
        : lines_((bytes + sizeof(Line) - 1) / sizeof(Line)), account_(account) {
        OM_CHECK(lines_ != 0 && lines_ <= kFirstLines);
    }
    ~BlockPool() {
        OM_CHECK(used_ == 0);
        release();
    }
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    /// Makes sure that there is a block to take.
    [[nodiscard]] Result<void> prepare() {
        if (!free_.empty()) return {};
        if (left_ < lines_) TRY_VOID(grow());
        free_.push_back(next_);
        next_ += lines_;
        left_ -= lines_;
        return {};
    }
    /// It is prepared.
    [[nodiscard]] void* take() {
        OM_CHECK(!free_.empty());
        Line* const block = free_.back();
        free_.pop_back();
        ++used_;
        poison(block, lines_, false);
        return block;
    }
    /// When the last one comes back, the memory goes back to the system.
    void give_back(void* block) {
        poison(static_cast<Line*>(block), lines_, true);
        free_.push_back(static_cast<Line*>(block));
        if (--used_ == 0) release();
    }

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    static constexpr std::size_t kHugeLines = HugePageAllocator<Line>::kPage / sizeof(Line);
    static constexpr std::size_t kFirstLines = kHugeLines / 4;

    struct Chunk {
        Line* memory;
        std::size_t lines;
        MemoryAccount::Charge charge;
    };

    [[nodiscard]] Result<void> grow() {
        const std::size_t lines = chunks_.empty() ? kFirstLines : kHugeLines;
        TRY(MemoryAccount::Charge charge, account_.charge(HugePageAllocator<Line>::bytes(lines)));
        next_ = HugePageAllocator<Line>().allocate(lines);
        left_ = lines;
        chunks_.push_back({next_, lines, std::move(charge)});
        poison(next_, lines, true);
        return {};
    }
    void release() {
        for (const Chunk& chunk : chunks_) {
            poison(chunk.memory, chunk.lines, false);
            HugePageAllocator<Line>().deallocate(chunk.memory, chunk.lines);
        }
        chunks_.clear();
        free_ = std::vector<Line*>();
        next_ = nullptr;
        left_ = 0;
    }
    /// To AddressSanitizer what is free is as if freed.
    static void poison([[maybe_unused]] Line* memory, [[maybe_unused]] std::size_t lines,
                       [[maybe_unused]] bool free) {
#ifdef OM_POISONS
        if (free)
            ASAN_POISON_MEMORY_REGION(memory, lines * sizeof(Line));
        else
            ASAN_UNPOISON_MEMORY_REGION(memory, lines * sizeof(Line));
#endif
    }

    const std::size_t lines_;  // of a block
    MemoryAccount& account_;
    std::size_t used_ = 0;
    std::vector<Chunk> chunks_;
    std::vector<Line*> free_;
    Line* next_ = nullptr;  // of the newest chunk: never used from there on
    std::size_t left_ = 0;
};

}  // namespace openmana::base
