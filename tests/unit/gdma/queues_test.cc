// SPDX-License-Identifier: Apache-2.0
#include <mana/queue.h>

#include <numeric>
#include <thread>

#include "gdma/doorbell_pages.h"
#include "gdma/eq_table.h"
#include "support/state_damage.h"
#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

class QueueTest : public testing::Test {
protected:
    Ring make_ring(std::uint64_t bytes, bool scattered = false) {
        std::vector<std::uint64_t> pages;
        const std::uint64_t count = (bytes + 4095) / 4096;
        if (scattered) {
            pages = ram.alloc_scattered(count);
        } else {
            const auto first = ram.alloc(bytes).value();
            for (std::uint64_t i = 0; i < count; ++i) pages.push_back(first + i * 4096);
        }
        view = {&ram, pages, bytes};
        return Ring(memory, std::make_unique<DmaRegion>(bytes, 0, 12, pages), bytes);
    }
    base::GuestMemory memory;
    test::GuestRam ram{memory};
    test::FakeIrq irq;
    test::RingMemory view;  // of the last make_ring
};

/// Event queues of two functions: one writes its state, the other one reads it.
class EqStateTest : public QueueTest {
protected:
    EqStateTest() {
        pages = pages_of.allocate(kGuest).value();
        const std::uint64_t page = ram.alloc(4096).value();
        eq = eqs.create(kGuest,
                        RegionClaim(std::make_unique<DmaRegion>(4096, 0, 12, std::span(&page, 1))),
                        4096, pages, 0)
                 .value();
    }
    /// Into a function whose objects have taken so many bytes of so many.
    base::Result<void> load(std::uint64_t limit, std::uint64_t used) {
        const auto state = test::written({}, [&](base::StateWriter& out) { eqs.save(out); });
        base::MemoryAccount account(limit);
        const auto objects = account.charge(used).value();
        EqTable other(memory, irq, account, 16);
        return test::read_state(state, {}, [&](base::StateReader& in) {
            other.load(in, pages_of);
            other.finish_load(in);
        });
    }
    DoorbellPages pages_of{4};
    base::MemoryAccount unlimited;
    EqTable eqs{memory, irq, unlimited, 16};
    Handle<PageGrant> pages;
    Handle<EventQueue> eq;
};

TEST_F(EqStateTest, EventsThatAreHeldBackAreThoseOfObjects) {
    constexpr std::uint32_t kFits = 4096 / 16;
    constexpr std::uint32_t kHeld = 1000;
    for (std::uint32_t cq = 0; cq < kFits + kHeld; ++cq) eq->post(EqeType::kCompletion, {cq, 0, 0});
    ASSERT_EQ(eq->held(), kHeld);
    constexpr std::uint64_t kPaid = kHeld * EventQueue::held_cost();
    const auto loaded = load(4 * kPaid, kPaid);
    EXPECT_TRUE(loaded) << loaded.error().text;
    EXPECT_FALSE(load(4 * kPaid, kPaid / 4)) << "no objects that have them posted";
    EXPECT_FALSE(load(kPaid / 2, 0)) << "more than all objects together may take";
}

class EventQueueTest : public QueueTest {
protected:
    static constexpr std::uint32_t kEntries = 256;
    EventQueueTest()
        : held_eq(make_handle<EventQueue>(Eqn(9), page, make_ring(4096), irq, 3)),
          eq(*held_eq),
          consumer(view, 16) {}
    void post(std::uint32_t cq) { eq.post(EqeType::kCompletion, {cq, 0, 0}); }
    std::optional<std::uint32_t> next() {
        const auto* entry = consumer.next();
        if (entry == nullptr) return std::nullopt;
        return base::load_le<std::uint32_t>(entry);
    }
    const Handle<PageGrant> page = make_handle<PageGrant>(DoorbellPage(1), kGuest, true);
    const Handle<EventQueue> held_eq;
    EventQueue& eq;
    test::EntryRing consumer;
};

TEST_F(EventQueueTest, BornArmedOneMessagePerArming) {
    post(1);
    EXPECT_EQ(irq.count(3), 1U);
    post(2);
    EXPECT_EQ(irq.count(3), 1U);
    EXPECT_EQ(next(), 1U);
    EXPECT_EQ(next(), 2U);
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(irq.count(3), 1U);
    post(3);
    EXPECT_EQ(irq.count(3), 2U);
}

TEST_F(EventQueueTest, EntryIsByteExact) {
    eq.post(EqeType::kQpFatal, {0x11223344, 5, 6});
    const std::array<std::uint8_t, 16> expected{0x44, 0x33, 0x22, 0x11, 5,   0, 0, 0,
                                                6,    0,    0,    0,    176, 0, 0, 0x20};
    EXPECT_EQ(std::memcmp(view.at(0), expected.data(), 16), 0);
}

TEST_F(EventQueueTest, ArmingBehindTheProducerInterruptsAtOnce) {
    post(1);
    post(2);
    EXPECT_EQ(next(), 1U);
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(irq.count(3), 2U);
    post(3);
    EXPECT_EQ(irq.count(3), 2U);
}

TEST_F(EventQueueTest, IndexAheadIsNothingPending) {
    eq.ring_doorbell(kEntries + 5, true);
    EXPECT_EQ(irq.count(3), 0U);
    post(1);
    EXPECT_EQ(irq.count(3), 1U);
}

TEST_F(EventQueueTest, OwnerBitsOverManyLaps) {
    for (std::uint32_t i = 0; i < 20 * kEntries; ++i) {
        post(i);
        ASSERT_EQ(next(), i);
        ASSERT_FALSE(next());
        if (i % 100 == 0) eq.ring_doorbell(consumer.index(), true);
    }
    EXPECT_FALSE(consumer.overflowed());
}

TEST_F(EventQueueTest, HoldsEventsBackWhenFull) {
    for (std::uint32_t i = 0; i < kEntries + 50; ++i) post(i);
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
    EXPECT_FALSE(next());
    const auto before = irq.count(3);
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(irq.count(3), before + 1);
    for (std::uint32_t i = 0; i < 50; ++i) ASSERT_EQ(next(), kEntries + i);
    EXPECT_FALSE(next());
    EXPECT_FALSE(consumer.overflowed());
}

TEST_F(EventQueueTest, WhoPostsWaitsForAFewHeldEventsOnly) {
    for (std::uint32_t i = 0; i < 2 * kEntries; ++i) post(i);
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
    base::HoldMeter meter;
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(meter.largest().work, 64U) << meter.report();
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), kEntries + i);
    EXPECT_FALSE(next());
}

TEST_F(EventQueueTest, HeldEventsComeInOrderThroughASmallOpening) {
    for (std::uint32_t i = 0; i < kEntries + 10; ++i) post(i);
    for (std::uint32_t i = 0; i < kEntries + 10; ++i) {
        ASSERT_EQ(next(), i);
        eq.ring_doorbell(consumer.index(), true);
    }
    EXPECT_FALSE(next());
}

TEST_F(EventQueueTest, HeldEventsOfOneObjectAreOne) {
    for (std::uint32_t i = 0; i < kEntries; ++i) post(i);
    for (int i = 0; i < 100; ++i) {
        post(7);
        eq.post(EqeType::kTest, {0, 0, 0});
    }
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(next(), 7U);
    EXPECT_EQ(next(), 0U);
    EXPECT_FALSE(next());
}

TEST_F(EventQueueTest, LastHeldLinkEventStaysLast) {
    for (std::uint32_t i = 0; i < kEntries; ++i) post(i);
    eq.post(EqeType::kReconfigData, {2U << 24, 0, 0});
    eq.post(EqeType::kReconfigData, {3U << 24, 0, 0});
    eq.post(EqeType::kReconfigData, {2U << 24, 0, 0});
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
    eq.ring_doorbell(consumer.index(), true);
    EXPECT_EQ(next(), 3U << 24);
    EXPECT_EQ(next(), 2U << 24);
    EXPECT_FALSE(next());
}

TEST_F(EventQueueTest, ForgetsHeldEventsOfADeadCq) {
    for (std::uint32_t i = 0; i < kEntries; ++i) post(i);
    for (std::uint32_t i = 0; i < 1000; ++i) {
        post(5000);
        eq.forget(EqeType::kCompletion, 5000);
    }
    post(6000);
    post(5000);
    eq.forget(EqeType::kCompletion, 5000);
    post(5000);
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
    eq.ring_doorbell(consumer.index(), true);
    std::vector<std::uint32_t> got;
    while (const auto event = next()) got.push_back(*event);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, (std::vector<std::uint32_t>{5000, 6000}));
}

TEST_F(EventQueueTest, ADoorbellBackwardsTakesNoSpace) {
    for (std::uint32_t i = 0; i < 10; ++i) post(i);
    for (std::uint32_t i = 0; i < 10; ++i) (void)next();
    eq.ring_doorbell(consumer.index(), true);
    eq.ring_doorbell(kEntries, true);
    for (std::uint32_t i = 0; i < kEntries; ++i) post(i);
    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_EQ(next(), i);
}

class CompletionQueueTest : public EventQueueTest {
protected:
    static constexpr std::uint32_t kCqes = 64;
    CompletionQueueTest() : cq(Cqn(0x123), page, make_ring(4096), held_eq), cqes(view, 64) {}
    std::size_t events() {
        std::size_t count = 0;
        while (const auto event = next()) {
            EXPECT_EQ(*event, 0x123U);
            ++count;
        }
        return count;
    }
    CompletionQueue cq;
    test::EntryRing cqes;
};

TEST_F(CompletionQueueTest, EntryIsByteExact) {
    const std::array<std::byte, 3> data{std::byte{1}, std::byte{2}, std::byte{3}};
    std::memset(view.at(0), 0, 64);
    cq.post(data, 0x20, true);
    std::array<std::uint8_t, 64> expected{1, 2, 3};
    expected[60] = 0x20;
    expected[63] = 0x21;
    EXPECT_EQ(std::memcmp(view.at(0), expected.data(), 64), 0);
    cq.post({}, 0xffffffff, false);
    EXPECT_EQ(base::load_le<std::uint32_t>(view.at(124)), 0x20ffffffU);
    EXPECT_EQ(cq.posted(), 2U);
}

TEST_F(CompletionQueueTest, BornDisarmed) {
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 0U);
}

TEST_F(CompletionQueueTest, OneEventPerArming) {
    cq.ring_doorbell(kCqes, true);
    EXPECT_EQ(events(), 0U);
    cq.post({}, 1, false);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 1U);
    cq.ring_doorbell(kCqes + 1, true);  // one newer: at once
    EXPECT_EQ(events(), 1U);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 0U);
    cq.ring_doorbell(kCqes + 3, true);
    EXPECT_EQ(events(), 0U);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, IndexAheadArms) {
    // The provider adds one when it arms twice (RNIC 4.4).
    cq.ring_doorbell(kCqes, true);
    cq.ring_doorbell(kCqes + 1, true);
    cq.ring_doorbell(kCqes + 2, true);
    EXPECT_EQ(events(), 0U);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, IndexThatOnlyMovedOnDoesNotHideANewEntry) {
    // A provider that armed twice for nothing counts on from there, and is one ahead of what it has
    // read for as long as it reads one entry for each arming.
    for (const std::uint32_t ahead : {1U, 2U, 5U}) {
        const std::uint32_t read = kCqes + static_cast<std::uint32_t>(cq.posted());
        for (std::uint32_t i = 0; i <= ahead; ++i) cq.ring_doorbell(read + i, true);
        cq.post({}, 1, false);
        EXPECT_EQ(events(), 1U);
        // Read that entry; the next one comes before the arming that waits for it.
        cq.post({}, 1, false);
        cq.ring_doorbell(read + ahead + 1, true);
        EXPECT_EQ(events(), 1U) << ahead << " ahead";
        cq.ring_doorbell(read + ahead + 2, true);
        EXPECT_EQ(events(), 0U) << "it has had its event";
        cq.post({}, 1, false);
        EXPECT_EQ(events(), 1U);
        // Reads all, and waits where nothing is new.
        cq.ring_doorbell(kCqes + static_cast<std::uint32_t>(cq.posted()), true);
        EXPECT_EQ(events(), 0U);
        cq.post({}, 1, false);
        EXPECT_EQ(events(), 1U);
    }
}

TEST_F(CompletionQueueTest, UnarmedDoorbellLeavesTheArmedState) {
    cq.ring_doorbell(kCqes, true);
    cq.ring_doorbell(kCqes, false);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 1U);
    cq.ring_doorbell(kCqes, false);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 0U);
}

TEST_F(CompletionQueueTest, ThresholdIsFourLaps) {
    // The consumer's index may be laps behind: up to 4N - 1 newer entries fire, from 4N on they do
    // not.
    for (std::uint32_t i = 0; i < 4 * kCqes - 1; ++i) cq.post({}, 1, false);
    cq.ring_doorbell(kCqes, true);
    EXPECT_EQ(events(), 1U);
    cq.post({}, 1, false);
    cq.ring_doorbell(kCqes, true);
    EXPECT_EQ(events(), 0U);
    cq.post({}, 1, false);
    EXPECT_EQ(events(), 1U);
}

TEST_F(CompletionQueueTest, OwnerBitsOverManyLaps) {
    for (std::uint32_t i = 0; i < 50 * kCqes; ++i) {
        const std::uint32_t value = i;
        cq.post(std::as_bytes(std::span(&value, 1)), 5, false);
        const auto* entry = cqes.next();
        ASSERT_NE(entry, nullptr);
        ASSERT_EQ(base::load_le<std::uint32_t>(entry), i);
        ASSERT_EQ(cqes.next(), nullptr);
        cq.ring_doorbell(cqes.index(), true);
        ASSERT_EQ(events(), 0U);
        if (i % 64 == 0) eq.ring_doorbell(consumer.index(), true);
        cq.ring_doorbell(cqes.index(), true);
        // The arming above is used up by the next CQE.
        cq.post({}, 5, false);
        ASSERT_NE(cqes.next(), nullptr);
        ASSERT_EQ(events(), 1U);
        eq.ring_doorbell(consumer.index(), true);
    }
    EXPECT_FALSE(cqes.overflowed());
}

TEST_F(CompletionQueueTest, RingsOfAnySizeAndShape) {
    // 7 pages less 3 entries: not a power of two, not contiguous.
    const std::uint64_t bytes = 7 * 4096 - 3 * 64;
    CompletionQueue odd(Cqn(5), page, make_ring(bytes, true), nullptr);
    test::EntryRing reader(view, 64);
    EXPECT_EQ(odd.entries(), 445U);
    for (std::uint32_t i = 0; i < 20 * 445; ++i) {
        odd.post(std::as_bytes(std::span(&i, 1)), 5, false);
        const auto* entry = reader.next();
        ASSERT_NE(entry, nullptr);
        ASSERT_EQ(base::load_le<std::uint32_t>(entry), i);
        odd.ring_doorbell(reader.index(), true);
    }
}

TEST_F(CompletionQueueTest, UnmappedRingLosesCompletionsQuietly) {
    base::GuestMemory empty;
    const std::uint64_t address = 0x5000;
    CompletionQueue lost(
        Cqn(6), page,
        Ring(empty, std::make_unique<DmaRegion>(4096, 0, 12, std::span(&address, 1)), 4096),
        held_eq, true);
    lost.post({}, 1, false);
    EXPECT_EQ(lost.posted(), 1U);
}

TEST_F(CompletionQueueTest, PostsFromSeveralThreads) {
    // The consumer keeps up by handshake, so nothing overflows and every value arrives once.
    constexpr std::uint32_t kThreads = 4;
    constexpr std::uint32_t kEach = 2000;
    std::atomic<std::uint32_t> consumed{0};
    std::atomic<std::uint32_t> tickets{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (std::uint32_t i = 0; i < kEach; ++i) {
                const std::uint32_t ticket = tickets.fetch_add(1);
                while (ticket - consumed.load() >= kCqes / 2 && ticket >= consumed.load())
                    std::this_thread::yield();
                const std::uint32_t value = t * kEach + i;
                cq.post(std::as_bytes(std::span(&value, 1)), t, true);
            }
        });
    std::vector<bool> seen(kThreads * kEach);
    std::uint32_t count = 0;
    while (count < kThreads * kEach) {
        const auto* entry = cqes.next();
        if (entry == nullptr) {
            cq.ring_doorbell(cqes.index(), true);
            while (consumer.next() != nullptr) {
            }
            eq.ring_doorbell(consumer.index(), true);
            std::this_thread::yield();
            continue;
        }
        const auto value = base::load_le<std::uint32_t>(entry);
        ASSERT_LT(value, seen.size());
        EXPECT_FALSE(seen[value]);
        seen[value] = true;
        consumed.store(++count);
    }
    for (auto& thread : threads) thread.join();
    EXPECT_FALSE(cqes.overflowed());
}

/// A CQ with a record, which moves to another ring in steps.
class MoveTest : public QueueTest {
protected:
    static constexpr std::uint32_t kEntries = 1024;
    /// Memory of a ring, and of the record behind it.
    struct Place {
        base::GuestAddr start{};
        std::uint32_t entries = 0;
        std::shared_ptr<const DmaRegion> region;
        std::uint32_t consumer = 0;
    };
    Place place(std::uint32_t entries) {
        const std::uint64_t bytes = std::uint64_t{entries} * 64 + SharedWords::kBytes;
        Place made{ram.alloc(bytes), entries, nullptr, entries};
        std::vector<std::uint64_t> pages;
        for (std::uint64_t at = 0; at < bytes; at += 4096)
            pages.push_back((made.start + at).value());
        made.region = std::make_shared<DmaRegion>(bytes, 0, 12, pages);
        return made;
    }
    Ring ring_of(const Place& of) {
        return Ring(memory, of.region, std::uint64_t{of.entries} * 64);
    }
    std::unique_ptr<SharedWords> words_of(const Place& of) {
        return std::make_unique<SharedWords>(memory, of.region, std::uint64_t{of.entries} * 64);
    }
    void post(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i, ++posted)
            cq.post(std::as_bytes(std::span(&posted, 1)), 1, true);
    }
    /// All that the consumer finds, which it takes.
    std::vector<std::uint32_t> drain(Place& from) {
        std::vector<std::uint32_t> all;
        for (;; ++from.consumer) {
            const std::byte* const cqe = ram.at(from.start + from.consumer % from.entries * 64);
            const auto word = base::load_le<std::uint32_t>(cqe + 60);
            if (word >> MANA_HW_OWNER_SHIFT != (from.consumer / from.entries & MANA_HW_OWNER_MASK))
                break;
            all.push_back(base::load_le<std::uint32_t>(cqe));
        }
        ram.write(from.start + std::uint64_t{from.entries} * 64, from.consumer);
        return all;
    }
    static std::vector<std::uint32_t> numbers(std::uint32_t from, std::uint32_t to) {
        std::vector<std::uint32_t> all(to - from);
        std::iota(all.begin(), all.end(), from);
        return all;
    }
    const Handle<PageGrant> page = make_handle<PageGrant>(DoorbellPage(1), kGuest, true);
    Place old = place(kEntries);
    CompletionQueue cq{Cqn(5), page, ring_of(old), nullptr};
    std::uint32_t posted = 0;
    void SetUp() override { cq.use_record(words_of(old)); }
};

TEST_F(MoveTest, CqesThatComeBetweenTheStepsComeBehindThoseThatWere) {
    post(700);
    EXPECT_EQ(drain(old), numbers(0, 700));
    post(300);
    Place next = place(2 * kEntries);
    auto move = cq.begin_move(ring_of(next), words_of(next));
    ASSERT_TRUE(move);
    std::uint32_t steps = 1;
    for (; cq.move_step(*move) == CompletionQueue::Moved::kPart; ++steps) {
        EXPECT_EQ(cq.entries(), kEntries) << "not before the end";
        post(50);
    }
    EXPECT_EQ(steps, 4U);
    EXPECT_EQ(cq.entries(), 2 * kEntries);
    post(1000);
    EXPECT_EQ(drain(next), numbers(700, posted));
    EXPECT_FALSE(cq.overrun());
}

TEST_F(MoveTest, TooManyThatComeBetweenTheStepsLeaveAllAsItWas) {
    post(200);
    Place next = place(256);
    auto move = cq.begin_move(ring_of(next), words_of(next));
    ASSERT_TRUE(move);
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kPart);
    post(100);
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kPart);
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kTooMany);
    move.reset();
    EXPECT_EQ(cq.entries(), kEntries);
    post(kEntries - 300);
    EXPECT_EQ(drain(old), numbers(0, kEntries)) << "with its own record, too";
    post(10);
    EXPECT_EQ(drain(old), numbers(kEntries, kEntries + 10));
    Place other = place(256);
    move = cq.begin_move(ring_of(other), words_of(other));
    ASSERT_TRUE(move);
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kAll);
    post(3);
    EXPECT_EQ(drain(other), numbers(kEntries + 10, kEntries + 13));
}

TEST_F(MoveTest, ACqThatLosesACqeBetweenTheStepsDoesNotMove) {
    post(kEntries);
    Place next = place(2 * kEntries);
    auto move = cq.begin_move(ring_of(next), words_of(next));
    ASSERT_TRUE(move);
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kPart);
    post(1);
    EXPECT_TRUE(cq.overrun());
    EXPECT_EQ(cq.move_step(*move), CompletionQueue::Moved::kTooMany);
    EXPECT_EQ(drain(old), numbers(0, kEntries));
}

TEST_F(MoveTest, WhoIsToldOfALossSeesIt) {
    std::vector<bool> told;
    cq.on_overrun([&] { told.push_back(cq.overrun()); });
    post(kEntries);
    EXPECT_TRUE(told.empty());
    post(2);
    EXPECT_EQ(told, std::vector{true}) << "once, and another thread may look at once";
}

}  // namespace
}  // namespace openmana::gdma
