// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/clock.h"
#include "gdma/doorbell_pages.h"
#include "gdma/event_queue.h"
#include "gdma/handle.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::gdma {

class CqTable;

/// A completion queue (GDMA 3.5, 3.7, 3.10; RNIC 4.1, 4.4). `post` from any thread that is on the
/// executor or visits the function. Without a record there is no flow control: overflow is the
/// consumer's error and shows in the owner bits. With one (docs/extensions.md) a full ring is an
/// error of the CQ, and arming is a word in memory.
class CompletionQueue final : public Held {
public:
    /// `eq` may be null (no events). `entries` = ring bytes / 64. `table`: where it is found by its
    /// id as long as it lives, or null.
    CompletionQueue(Cqn id, Handle<PageGrant> page, Ring ring, Handle<EventQueue> eq,
                    bool armed = false, CqTable* table = nullptr);
    ~CompletionQueue();
    /// As use_record(), of one that is as a state says: what the record says stays.
    void restore_record(std::unique_ptr<SharedWords> words) { record_ = std::move(words); }
    /// At set-up, both. The consumer keeps a record in `words`; `lost` is called once, on whatever
    /// thread finds that a CQE does not fit.
    void use_record(std::unique_ptr<SharedWords> words);
    void on_overrun(std::function<void()> lost) { overrun_handler_ = std::move(lost); }
    [[nodiscard]] bool has_record() const { return record_ != nullptr; }
    /// Its owner has done what it does about an overrun. On the executor.
    void tell_overrun() { overrun_told_ = true; }
    [[nodiscard]] bool overrun_told() const { return overrun_told_; }
    /// True once a CQE did not fit; never again false.
    [[nodiscard]] bool overrun() const { return overrun_.load(std::memory_order_relaxed); }
    /// On its way to another ring, with what the consumer has not taken.
    struct Move {
        Ring ring;
        std::unique_ptr<SharedWords> words;
        std::uint32_t entries;  ///< of the ring
        std::uint32_t moved;    ///< CQEs so far
        std::uint64_t next;     ///< the first that was not, in the counting of the old ring
    };
    /// Nothing if what the consumer has not taken does not fit; then, as before the end, nothing
    /// has changed.
    [[nodiscard]] std::optional<Move> begin_move(Ring ring,
                                                 std::unique_ptr<SharedWords> words) const;
    enum class Moved : std::uint8_t { kPart, kAll, kTooMany };
    /// Moves up to kMoveStep CQEs, and goes on in the new ring when there are no more; the Move has
    /// the old one then. Each step under an exclusion; between them CQEs may come, which may be too
    /// many.
    [[nodiscard]] Moved move_step(Move& move);
    static constexpr std::uint32_t kMoveStep = 128;

    [[nodiscard]] Cqn id() const { return id_; }
    [[nodiscard]] DoorbellPage page() const { return page_; }
    [[nodiscard]] EventQueue* eq() const { return eq_.get(); }
    [[nodiscard]] std::uint32_t entries() const { return entries_; }
    /// Writes a CQE (`data`: at most 60 bytes, the rest is zero) and sends the completion event if
    /// armed. `solicited`: also if armed only for such.
    void post(std::span<const std::byte> data, std::uint32_t queue_id, bool is_sq,
              bool solicited = true);
    /// Before anything is posted: the next CQE goes there. Without a record.
    void go_on_at(std::uint64_t producer);
    /// CQ doorbell: index mod 8N and the arm bit, by the rule of RNIC 4.4. An index that only
    /// counts on from the last arming may be ahead of what was read: then an entry that had no
    /// event has one now, too. False if the consumer had more unread entries than the ring holds
    /// when it armed: it has lost some. The consumer finds that itself, by the owner bits; it may
    /// also have read on since it rang, so that this is a hint and no error (RNIC 4.3).
    bool ring_doorbell(std::uint32_t index, bool arm);
    /// How long an armed CQ without a record keeps its event back (GDMA 3.9): until it has so many
    /// entries, or the oldest of them is so old. Without a time it keeps back none.
    struct Moderation {
        std::uint16_t usec = 0;
        std::uint8_t completions = 0;
    };
    /// On the executor; only of one that is in a table.
    void moderate(Moderation moderation);
    [[nodiscard]] Moderation moderation() const;
    /// The time that it was held for is over. On the executor.
    void waited();
    /// CQEs written since creation.
    [[nodiscard]] std::uint64_t posted() const;
    [[nodiscard]] const Ring& ring() const { return ring_; }
    /// All but what it was made with. What waits is put off anew.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    void event_locked();
    [[nodiscard]] bool room_locked();
    [[nodiscard]] std::uint32_t waiting_locked() const;
    void finish_move_locked(Move& move);
    [[nodiscard]] bool due_locked(bool solicited);
    [[nodiscard]] bool waits_locked();

    const Cqn id_;
    const DoorbellPage page_;
    const Handle<PageGrant> grant_;
    const Handle<EventQueue> eq_;
    CqTable* const table_;
    mutable std::mutex mutex_;  // protects all below; before EventQueue's
    Ring ring_;
    std::uint32_t entries_;
    std::uint64_t producer_;  // starts at entries_: lap 1
    bool armed_;
    std::uint64_t notified_;         // the producer at the last event or arming
    std::uint32_t armed_index_ = 0;  // of the last doorbell that armed, mod 8N
    Moderation moderation_;
    bool waiting_ = false;  // armed, with entries: for due_
    base::TimePoint due_{};
    std::optional<base::TimePoint> called_at_;  // waited() will be; earlier calls are not for us
    std::unique_ptr<SharedWords> record_;
    std::function<void()> overrun_handler_;
    bool overrun_told_ = false;
    std::uint32_t consumer_ = 0;        // with a record: as last read from it
    std::uint32_t sequence_ = 0;        // of the last event
    std::atomic<bool> overrun_{false};  // written under mutex_
};

}  // namespace openmana::gdma
