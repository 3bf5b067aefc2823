// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/result.h"

namespace openmana::base {

/// Which pages of a range of memory were written to: a bit for each. Any thread notes pages; who
/// takes them sees to it that nobody does meanwhile.
class PageLog {
public:
    static constexpr std::uint64_t kPage = 4096;
    /// Of memory, by one word.
    static constexpr std::uint64_t kWordBytes = 64 * kPage;

    /// None is kept.
    PageLog() = default;
    /// Of so many bytes. The system gives memory for what is noted alone.
    static Result<PageLog> create(std::uint64_t length) {
        PageLog log;
        log.words_.reset(
            static_cast<Word*>(std::calloc((length - 1) / kWordBytes + 1, sizeof(Word))));
        if (log.words_ == nullptr) return fail(ErrorCode::kExhausted, "no memory for a write log");
        return log;
    }
    explicit operator bool() const { return words_ != nullptr; }

    /// `length` is not 0.
    void note(std::uint64_t offset, std::uint64_t length) const {
        if (length == 0) return;
        const std::uint64_t last = (offset + (length - 1)) / kPage;
        for (std::uint64_t page = offset / kPage; page <= last;) {
            const std::uint64_t end = std::min(last, page | 63);
            const Value mask = ~Value{0} >> (63 - (end - page)) << page % 64;
            std::atomic_ref<Value> word(words_[page / 64].value);
            // What is written to once is written to often.
            if ((word.load(std::memory_order_relaxed) & mask) != mask)
                word.fetch_or(mask, std::memory_order_relaxed);
            page = end + 1;
        }
    }
    /// Calls `each` with the offset of each page in these whole pages that was noted, and forgets
    /// it.
    template <typename Each>
    void take(std::uint64_t offset, std::uint64_t length, Each&& each) const {
        const std::uint64_t last = (offset + (length - 1)) / kPage;
        for (std::uint64_t page = offset / kPage; page <= last;) {
            const std::uint64_t end = std::min(last, page | 63);
            const Value mask = ~Value{0} >> (63 - (end - page)) << page % 64;
            Value& word = words_[page / 64].value;
            for (Value found = word & mask; found != 0; found &= found - 1)
                each((page / 64 * 64 + static_cast<unsigned>(std::countr_zero(found))) * kPage);
            if ((word & mask) != 0) word &= ~mask;
            page = end + 1;
        }
    }

private:
    using Value = std::uint64_t;
    struct Word {
        Value value;
    };
    struct Free {
        void operator()(Word* words) const { std::free(words); }
    };
    std::unique_ptr<Word[], Free> words_;
};

}  // namespace openmana::base
