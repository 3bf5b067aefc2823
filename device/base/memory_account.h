// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/counters.h"
#include "base/result.h"

namespace openmana::base {

/// What one guest may have us allocate, and has. Everything whose size or number a guest decides
/// about is charged before it is made; who gets a charge keeps it with what it pays for. From any
/// thread, without a lock. It outlives its charges.
class MemoryAccount {
public:
    /// A share of the account, which ends with it.
    class Charge {
    public:
        Charge() = default;
        Charge(Charge&& other) noexcept
            : account_(std::exchange(other.account_, nullptr)),
              bytes_(std::exchange(other.bytes_, 0)) {}
        Charge& operator=(Charge&& other) noexcept {
            Charge taken(std::move(other));
            std::swap(account_, taken.account_);
            std::swap(bytes_, taken.bytes_);
            return *this;
        }
        ~Charge() {
            if (account_ != nullptr) account_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
        }
        [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

    private:
        friend class MemoryAccount;
        Charge(MemoryAccount& account, std::uint64_t bytes) : account_(&account), bytes_(bytes) {}
        MemoryAccount* account_ = nullptr;
        std::uint64_t bytes_ = 0;
    };

    /// Without a limit: for tests.
    explicit MemoryAccount(std::uint64_t limit = UINT64_MAX) : limit_(limit) {}
    MemoryAccount(const MemoryAccount&) = delete;
    MemoryAccount& operator=(const MemoryAccount&) = delete;

    /// kExhausted, and counted, if that is more than is left.
    [[nodiscard]] Result<Charge> charge(std::uint64_t bytes) {
        std::uint64_t before = used();
        do {
            if (bytes > limit_ - before) {
                refused_.add();
                return fail(ErrorCode::kExhausted, "the memory of this NIC is used up", bytes,
                            before);
            }
        } while (!used_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
        note_peak(before + bytes);
        return Charge(*this, bytes);
    }
    [[nodiscard]] std::uint64_t limit() const { return limit_; }
    [[nodiscard]] std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t left() const { return limit_ - used(); }
    [[nodiscard]] std::uint64_t peak() const { return peak_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t refused() const { return refused_.value(); }

    // As those of OM_COUNTERS.
    static constexpr CounterInfo kInfo[] = {
        {"nic.memory.limit", "bytes of `manad` that the guest may take: `memory=`"},
        {"nic.memory.used", "bytes that it has taken now"},
        {"nic.memory.peak", "the most that it ever had"},
        {"nic.memory.refused", "times that it asked for more than was left"},
    };
    template <typename F>
    void visit(F&& f) const {
        f(kInfo[0], limit());
        f(kInfo[1], used());
        f(kInfo[2], peak());
        f(kInfo[3], refused());
    }

private:
    void note_peak(std::uint64_t now) {
        std::uint64_t most = peak();
        while (now > most && !peak_.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
        }
    }

    const std::uint64_t limit_;
    std::atomic<std::uint64_t> used_{0};
    std::atomic<std::uint64_t> peak_{0};
    Counter refused_;
};

/// What the heap takes for so many bytes: it rounds up, and keeps their size before them.
[[nodiscard]] constexpr std::uint64_t heap_cost(std::uint64_t bytes) {
    return (bytes + 8 + 15) / 16 * 16;
}
/// The same for an element of a list, a map or a hash table: it has up to five words beside it.
[[nodiscard]] constexpr std::uint64_t node_cost(std::uint64_t bytes) {
    return heap_cost(bytes + 5 * sizeof(void*));
}

/// Makes room for `count` elements, and for twice as many as there was room for at least. `charge`
/// pays for all of it; both are as they were if the account refuses.
template <typename Vector>
[[nodiscard]] Result<void> reserve(Vector& vector, std::size_t count, MemoryAccount& account,
                                   MemoryAccount::Charge& charge) {
    using Allocator = typename Vector::allocator_type;
    if (count <= vector.capacity()) return {};
    const std::size_t capacity = std::max(count, 2 * vector.capacity());
    std::uint64_t bytes = heap_cost(capacity * sizeof(typename Vector::value_type));
    if constexpr (requires { Allocator::bytes(capacity); }) bytes = Allocator::bytes(capacity);
    // The old memory is there until the new one is filled.
    TRY(MemoryAccount::Charge paid, account.charge(bytes));
    vector.reserve(capacity);
    charge = std::move(paid);
    return {};
}

}  // namespace openmana::base
