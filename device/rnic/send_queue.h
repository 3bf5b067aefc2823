// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/memory_account.h"
#include "gdma/memory_table.h"
#include "gdma/wqe.h"
#include "rnic/request_figures.h"
#include "rnic/segment.h"

namespace openmana::rnic {

/// A send work request, taken over from its WQE: nothing is read from the ring again
/// (RNIC 3.4-3.6).
struct SendWqe {
    SegmentKind kind = SegmentKind::kInvalid;
    bool fence = false;
    bool solicited = false;
    bool immediate = false;
    bool invalidate = false;
    bool error_on_rreq = false;  ///< the error belongs to the READ's scatter list
    std::uint16_t error = 0;  ///< vendor error to fail with when all earlier work is done; 0: none
    std::uint32_t mtu = 0;    ///< data unit, by which the host counted the PSNs
    Psn first{};
    std::uint32_t packets = 1;  ///< PSNs taken
    std::uint32_t length = 0;
    RKey rkey{};
    std::uint32_t value = 0;  ///< immediate, or rkey to invalidate
    std::uint64_t address = 0;
    std::uint32_t done = 0;  ///< READ: packets of data placed
    /// Its number among the messages of the QP, or that of its first part: see Credits.
    Psn ssn{};
    std::vector<gdma::Sge> sges;  ///< capacity is kept when the slot is used again
    bool signaled = false;
    bool timed = false;          ///< RequestTiming wants to know when it is done
    std::uint32_t position = 0;  ///< where the WQE starts, in bytes; of the extension, in units
    // What only the extension has.
    std::uint8_t opcode = 0;  ///< MANA_HW_EXT_WQE_*, for the completion
    bool local = false;       ///< no packet: executed when all earlier work is done
    Atomic atomic{};
    bool is_inline = false;  ///< the payload is `inline_data`
    std::vector<std::byte> inline_data;
    std::array<std::byte, 64> segment{};  ///< of a local operation or a datagram

    [[nodiscard]] RequestKind request_kind() const {
        switch (kind) {
            case SegmentKind::kSend:
                return RequestKind::kSend;
            case SegmentKind::kRead:
                return RequestKind::kRead;
            case SegmentKind::kAtomic:
                return RequestKind::kAtomic;
            default:
                return RequestKind::kWrite;
        }
    }
    [[nodiscard]] Psn last() const { return first + (packets - 1); }
    [[nodiscard]] bool is_read() const { return kind == SegmentKind::kRead; }
    [[nodiscard]] bool is_atomic() const { return kind == SegmentKind::kAtomic; }
    /// The answer is what finishes it, not an acknowledgement.
    [[nodiscard]] bool fetches() const { return is_read() || is_atomic(); }
    [[nodiscard]] bool takes_receive() const { return kind == SegmentKind::kSend || immediate; }
    /// As new, but for the capacity of its vectors.
    void clear();
    /// Takes the fields over, with vendor error 0x21x in `error` if they make no sense. `expected`:
    /// PSN that comes next.
    void parse(const gdma::Wqe& wqe, Psn expected, std::uint32_t path_mtu);
};

/// What a work request may have of any format.
constexpr std::uint64_t kMostSges = 32;
constexpr std::uint64_t kMostInline = 512;

/// The vendor errors for a refused SGE of the requester, its READ scatter list and of a receive.
[[nodiscard]] std::uint16_t gather_error(gdma::MrFault fault);
[[nodiscard]] std::uint16_t scatter_error(gdma::MrFault fault);

/// Slots of send queues that have nothing outstanding. One for all queues of an adapter: the queue
/// that has work next gets those that were used last, which are still in the cache.
class SendSlots {
public:
    /// Those of one queue: a power of two. The first few of each its queue pair has paid for.
    struct Run {
        std::vector<SendWqe> slots;
        base::MemoryAccount::Charge charge;
    };
    static constexpr std::size_t kFew = 2;
    /// A slot with all that a work request may have.
    static constexpr std::uint64_t kSlotCost = sizeof(SendWqe) +
                                               base::heap_cost(kMostSges * sizeof(gdma::Sge)) +
                                               base::heap_cost(kMostInline);

    /// `account` pays for what is more than kFew, and outlives it.
    explicit SendSlots(base::MemoryAccount& account) : account_(account) {}
    [[nodiscard]] Run take();
    void give_back(Run run);
    /// Without a value: the account does not pay for so many.
    [[nodiscard]] std::optional<Run> make(std::size_t count);
    /// Gives back what nobody uses.
    void clear();

private:
    // Runs that are kept, and what they have in all: the rest goes back to the account.
    static constexpr std::size_t kMaxSpare = 64;
    static constexpr std::size_t kMaxSpareSlots = 1024;
    base::MemoryAccount& account_;
    std::vector<Run> spare_;
    std::size_t spare_slots_ = 0;
};

/// Work requests from the oldest unfinished on. A ring that grows to what is outstanding, as far as
/// that is paid for: then it is full until the oldest one ends.
class SendQueue {
public:
    explicit SendQueue(SendSlots& pool) : pool_(pool) {}
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::uint32_t size() const { return size_; }
    [[nodiscard]] SendWqe& at(std::uint32_t index) {
        return run_.slots[(head_ + index) & (run_.slots.size() - 1)];
    }
    [[nodiscard]] const SendWqe& at(std::uint32_t index) const {
        return run_.slots[(head_ + index) & (run_.slots.size() - 1)];
    }
    [[nodiscard]] SendWqe& front() { return at(0); }
    /// A slot as new: what used it before may have been of another format. Null if it is full.
    [[nodiscard]] SendWqe* push() {
        if (size_ == run_.slots.size() && !grow()) return nullptr;
        SendWqe& slot = at(size_++);
        slot.clear();
        return &slot;
    }
    /// Room for so many in one piece, of a queue that has no slots yet: it takes no more than one
    /// that grew to as many. False if that is not paid for.
    [[nodiscard]] bool reserve(std::uint32_t count);
    /// The batch has ended: an empty queue gives its slots back.
    void settle() {
        if (size_ == 0 && !run_.slots.empty()) pool_.give_back(std::exchange(run_, {}));
    }
    void pop() {
        --size_;
        // An empty queue starts at the first slot again, so that small work stays in warm memory.
        head_ = size_ == 0 ? 0 : (head_ + 1) & static_cast<std::uint32_t>(run_.slots.size() - 1);
    }
    void clear() { head_ = size_ = 0; }

private:
    [[nodiscard]] bool grow();

    SendSlots& pool_;
    SendSlots::Run run_;  // empty while nothing is outstanding
    std::uint32_t head_ = 0;
    std::uint32_t size_ = 0;
};

}  // namespace openmana::rnic
