// SPDX-License-Identifier: Apache-2.0
#include <mana/queue.h>

#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

class MemoryTest : public testing::Test {
protected:
    std::unique_ptr<DmaRegion> region_of(std::vector<std::uint64_t> pages, std::uint64_t length,
                                         std::uint32_t first_offset = 0) {
        return std::make_unique<DmaRegion>(length, first_offset, 12, pages);
    }
    std::uint64_t total() const {
        std::uint64_t n = 0;
        for (const auto span : spans) n += span.size();
        return n;
    }
    base::GuestMemory memory;
    test::GuestRam ram{memory};
    SpanList spans;
};

class DmaRegionTest : public MemoryTest {};

TEST_F(DmaRegionTest, MergesNeighboursOnly) {
    const auto region = region_of({0x3000, 0x4000, 0x8000, 0x7000, 0x9000}, 5 * 4096 - 10, 10);
    ASSERT_EQ(region->extents().size(), 4U);
    EXPECT_EQ(region->extents()[0].address.value(), 0x300aU);
    EXPECT_EQ(region->extents()[0].length, 8192U - 10);
    EXPECT_EQ(region->extents()[1].offset, 8192U - 10);
    EXPECT_EQ(region->extents()[3].address.value(), 0x9000U);
}

TEST_F(DmaRegionTest, TopOfTheAddressSpaceDoesNotWrapIntoZero) {
    const auto region = region_of({0xfffffffffffff000, 0}, 8192);
    ASSERT_EQ(region->extents().size(), 2U);
    EXPECT_FALSE(region->resolve(memory, 0, 8192, base::Access::kRead, spans));
}

TEST_F(DmaRegionTest, ResolvesEveryCut) {
    const auto pages = ram.alloc_scattered(6);
    const std::uint32_t skip = 100;
    const auto region = region_of(pages, 6 * 4096 - skip, skip);
    base::Random random(3);
    for (int i = 0; i < 5000; ++i) {
        const std::uint64_t offset = random.below(region->length());
        const std::uint64_t length = random.below(region->length() - offset) + 1;
        spans.clear();
        ASSERT_TRUE(region->resolve(memory, offset, length, base::Access::kWrite, spans));
        ASSERT_EQ(total(), length);
        std::uint64_t at = offset;
        for (const auto span : spans) {
            const std::uint64_t byte = skip + at;
            ASSERT_EQ(span.data(), ram.at(GuestAddr(pages[byte / 4096])) + byte % 4096);
            at += span.size();
        }
    }
}

TEST_F(DmaRegionTest, RefusesWhatLiesOutside) {
    const auto region = region_of({ram.alloc(4096).value()}, 4096);
    EXPECT_FALSE(region->resolve(memory, 0, 4097, base::Access::kRead, spans));
    EXPECT_FALSE(region->resolve(memory, 4096, 1, base::Access::kRead, spans));
    EXPECT_FALSE(region->resolve(memory, UINT64_MAX, 2, base::Access::kRead, spans));
    EXPECT_TRUE(region->resolve(memory, 4096, 0, base::Access::kRead, spans));
}

TEST_F(DmaRegionTest, AnExtentMaySpanGuestMemoryRanges) {
    std::vector<std::byte> low(8192), high(8192);
    base::GuestMemory two;
    ASSERT_TRUE(two.map_host(GuestAddr(0x10000), low));
    ASSERT_TRUE(two.map_host(GuestAddr(0x12000), high));
    const auto region = region_of({0x10000, 0x11000, 0x12000, 0x13000}, 4 * 4096);
    ASSERT_EQ(region->extents().size(), 1U);
    ASSERT_TRUE(region->resolve(two, 8000, 400, base::Access::kWrite, spans));
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_EQ(spans[0].data(), low.data() + 8000);
    EXPECT_EQ(spans[1].data(), high.data());
    ASSERT_TRUE(two.unmap(GuestAddr(0x12000), 8192));
    EXPECT_FALSE(region->resolve(two, 8000, 400, base::Access::kWrite, spans));
}

class RingTest : public MemoryTest {};

TEST_F(RingTest, ReadsWrapAndCrossPages) {
    const auto pages = ram.alloc_scattered(2);
    for (std::uint64_t i = 0; i < 8192; ++i)
        *(ram.at(GuestAddr(pages[i / 4096])) + i % 4096) = static_cast<std::byte>(i * 7 >> 3);
    const Ring ring(memory, region_of(pages, 8192), 8192);
    std::array<std::byte, 512> out{};
    for (const std::uint64_t position : {0ULL, 3900ULL, 8000ULL, 8191ULL, 0xfffffff0ULL}) {
        ASSERT_TRUE(ring.read(position, out));
        for (std::uint64_t i = 0; i < out.size(); ++i)
            ASSERT_EQ(out[i], static_cast<std::byte>((position + i) % 8192 * 7 >> 3))
                << position << " " << i;
    }
}

TEST_F(RingTest, ReadOnlyMemoryTakesNoEntries) {
    std::vector<std::byte> host(4096);
    base::GuestMemory read_only;
    ASSERT_TRUE(read_only.map_host(GuestAddr(0x1000), host, false));
    Ring ring(read_only, region_of({0x1000}, 4096), 4096);
    std::array<std::byte, 64> entry{};
    EXPECT_TRUE(ring.read(0, entry));
    EXPECT_FALSE(ring.write_entry(0, entry));
}

TEST_F(RingTest, CrookedRegionIsNeverWrittenAcross) {
    const auto pages = ram.alloc_scattered(2);
    Ring ring(memory, region_of(pages, 8192 - 2, 2), 4096);
    std::array<std::byte, 64> entry{};
    EXPECT_FALSE(ring.write_entry(0, entry));
}

class MemoryTableTest : public MemoryTest {
protected:
    Handle<Pd> pd(std::uint32_t id) {
        if (id >= pds.size()) pds.resize(id + 1);
        if (!pds[id])
            pds[id] = make_handle<Pd>(Pdn(id), PdHandle(), kGuest, PdRights{.allows_gpa = true});
        return pds[id];
    }
    std::vector<Handle<Pd>> pds;
    base::Gate gate;
    base::MemoryAccount account;
    MemoryRegion gpa(std::uint32_t pd) {
        MemoryRegion region;
        region.pd = this->pd(pd);
        region.type = MrType::kGpa;
        region.access = kLocalRead | kLocalWrite;
        return region;
    }
};

TEST_F(MemoryTableTest, KeysAreNeverTrivialAndChangeOnReuse) {
    MemoryTable table(gate, memory, account, 4);
    std::vector<std::uint32_t> keys;
    for (int i = 0; i < 1000; ++i) {
        const auto key = table.insert(gpa(1));
        ASSERT_TRUE(key);
        EXPECT_NE(key->value(), 0U);
        EXPECT_NE(key->value(), 0xffffffffU);
        for (std::size_t back = 1; back <= std::min<std::size_t>(keys.size(), 255); ++back)
            ASSERT_NE(key->value(), keys[keys.size() - back]);
        keys.push_back(key->value());
        ASSERT_TRUE(table.remove(*key));
        EXPECT_FALSE(table.remove(*key));
    }
    EXPECT_EQ(table.size(), 0U);
}

/// What rests is paid for, so it is no more than that.
TEST_F(MemoryTableTest, OneRegionAtATimeNeedsASmallTableWhoseKeysComeBackLate) {
    MemoryTable table(gate, memory, account, 1 << 20);
    std::set<Key> keys;
    std::map<std::uint32_t, int> last;  // by index
    std::uint64_t used = 0;
    constexpr int kCycles = 1 << 16;
    for (int i = 0; i < kCycles; ++i) {
        const auto key = table.insert(gpa(1));
        ASSERT_TRUE(key);
        EXPECT_TRUE(keys.insert(*key).second) << "it is new";
        const auto [before, first] = last.try_emplace(key->value() >> 8, i);
        if (!first) {
            ASSERT_GE(i - std::exchange(before->second, i),
                      static_cast<int>(MemoryTable::kResting));
        }
        ASSERT_TRUE(table.remove(*key));
        if (i == 1 << 14) used = account.used();
    }
    EXPECT_EQ(account.used(), used);
    EXPECT_LE(used, std::uint64_t{64} * 2 * MemoryTable::kResting);
}

/// That freed places rest for less long is no refusal.
TEST_F(MemoryTableTest, AnAccountThatPaysForNoLargerTableRefusesNothingWhileAPlaceIsFree) {
    MemoryTable table(gate, memory, account, 1 << 20);
    const Key kept = *table.insert(gpa(1));
    const auto rest = account.charge(account.left() - 1024);
    ASSERT_TRUE(rest);
    for (int i = 0; i < 1000; ++i) {
        const auto key = table.insert(gpa(1));
        ASSERT_TRUE(key) << i;
        ASSERT_TRUE(table.remove(*key));
    }
    EXPECT_EQ(account.refused(), 0U);
    EXPECT_NE(table.find(kept), nullptr);
}

TEST_F(MemoryTableTest, HoldsAMillionAndNoMore) {
    MemoryTable table(gate, memory, account, 1 << 20);
    std::uint32_t last = 0;
    for (int i = 0; i < 1 << 20; ++i)
        last = table.insert(gpa(static_cast<std::uint32_t>(i % 7)))->value();
    EXPECT_EQ(table.insert(gpa(1)).error().code, base::ErrorCode::kExhausted);
    const auto at = ram.alloc(4096);
    EXPECT_EQ(table.resolve(Key(last), Pdn(((1 << 20) - 1) % 7), at.value(), 10, kLocalRead, spans),
              MrFault::kNone);
    EXPECT_EQ(pd(6)->holders(), 2U + (1U << 20) / 7);
    table.clear();
    EXPECT_EQ(table.size(), 0U);
    EXPECT_EQ(pd(6)->holders(), 2U) << "the test and its argument";
    EXPECT_EQ(table.find(Key(last)), nullptr);
}

TEST_F(MemoryTableTest, RegionInOnePieceIsCheckedAsOneInMany) {
    const auto pages = ram.alloc_scattered(4);
    const auto at = ram.alloc(4 * 4096).value();
    MemoryTable table(gate, memory, account, 4);
    for (const bool piece : {true, false}) {
        SCOPED_TRACE(piece);
        MemoryRegion region = gpa(1);
        region.type = MrType::kGva;
        region.base = 0x7000000;
        region.length = 3 * 4096;
        region.region = piece ? region_of({at, at + 4096, at + 8192, at + 12288}, 3 * 4096, 100)
                              : region_of(pages, 3 * 4096, 100);
        const std::uint64_t base = region.base;
        const Key key = *table.insert(std::move(region));
        spans.clear();
        ASSERT_EQ(table.resolve(key, Pdn(1), base + 4000, 8000, kLocalWrite, spans),
                  MrFault::kNone);
        EXPECT_EQ(total(), 8000U);
        EXPECT_EQ(spans[0].data(), ram.at(GuestAddr(piece ? at : pages[1])) + (piece ? 4100 : 4));
        const auto says = [&](Key k, std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                              std::uint32_t need) {
            const MrFault fault = table.check(k, Pdn(pd), address, length, need);
            spans.clear();
            EXPECT_EQ(table.resolve(k, Pdn(pd), address, length, need, spans), fault);
            EXPECT_EQ(spans.empty(), fault != MrFault::kNone);
            return fault;
        };
        EXPECT_EQ(says(key, 2, base, 1, kLocalRead), MrFault::kKey);
        EXPECT_EQ(says(Key(key.value() ^ 1), 1, base, 1, kLocalRead), MrFault::kKey);
        EXPECT_EQ(says(Key(key.value() ^ 0x80000000), 1, base, 1, kLocalRead), MrFault::kKey);
        EXPECT_EQ(says(key, 1, base, 1, kRemoteRead), MrFault::kAccess);
        EXPECT_EQ(says(key, 1, base - 1, 2, kLocalRead), MrFault::kRange);
        EXPECT_EQ(says(key, 1, base, 3 * 4096 + 1, kLocalRead), MrFault::kRange);
        EXPECT_EQ(says(key, 1, base + 3 * 4096, 1, kLocalRead), MrFault::kRange);
        EXPECT_EQ(says(key, 1, UINT64_MAX, 2, kLocalRead), MrFault::kRange);
        EXPECT_EQ(says(key, 1, base, UINT64_MAX, kLocalRead), MrFault::kRange);
        EXPECT_EQ(says(key, 1, base + 3 * 4096 - 1, 1, kLocalRead), MrFault::kNone);
        ASSERT_TRUE(table.remove(key));
        EXPECT_EQ(says(key, 1, base, 1, kLocalRead), MrFault::kKey);
    }
    for (const std::uint32_t key : {0U, 1U, 0xffU, 0xffffffffU})
        EXPECT_EQ(table.check(Key(key), Pdn(0), 0, 1, 0), MrFault::kKey) << key;
}

TEST_F(MemoryTableTest, AFaultLeavesTheListAsItWas) {
    MemoryTable table(gate, memory, account, 4);
    MemoryRegion region = gpa(1);
    region.type = MrType::kGva;
    region.length = 2 * 4096;
    // The second page is not in guest memory.
    region.region = region_of({ram.alloc(4096).value(), 0x7000}, 2 * 4096);
    const auto key = table.insert(std::move(region));
    std::byte mark{};
    spans.emplace_back(&mark, 1);
    EXPECT_EQ(table.resolve(*key, Pdn(1), 4000, 200, kLocalRead, spans), MrFault::kRange);
    ASSERT_EQ(spans.size(), 1U);
    EXPECT_EQ(spans[0].data(), &mark);
    EXPECT_EQ(table.resolve(*key, Pdn(1), 4000, 96, kLocalRead, spans), MrFault::kNone);
    EXPECT_EQ(spans.size(), 2U);
}

TEST_F(MemoryTableTest, WriteNeedsWritableMemory) {
    std::vector<std::byte> host(4096);
    base::GuestMemory read_only;
    ASSERT_TRUE(read_only.map_host(GuestAddr(0x1000), host, false));
    MemoryTable table(gate, read_only, account, 4);
    const auto key = table.insert(gpa(1));
    EXPECT_EQ(table.resolve(*key, Pdn(1), 0x1000, 1, kLocalRead, spans), MrFault::kNone);
    EXPECT_EQ(table.resolve(*key, Pdn(1), 0x1000, 1, kLocalWrite, spans), MrFault::kRange);
}

TEST_F(MemoryTableTest, InvalidationWaitsForThoseWhoCopy) {
    MemoryTable table(gate, memory, account, 4);
    MemoryRegion made;
    made.pd = pd(1);
    made.type = MrType::kFastRegister;
    made.max_pages = 1;
    const Key key = *table.insert(std::move(made));
    const auto registered = [&] {
        (void)table.fast_register(
            {key, Pdn(1), kRemoteWrite, 0x1000, region_of({ram.alloc(4096).value()}, 4096)});
    };
    registered();
    base::Activity waiter;
    std::atomic<bool> copying{false}, invalid{false}, left{false};
    std::thread copier([&] {
        SpanList own;
        const KeyUse use;
        const KeyUse inner;
        EXPECT_EQ(table.resolve(key, Pdn(1), 0x1000, 10, kRemoteWrite, own), MrFault::kNone);
        copying = true;
        while (table.check(key, Pdn(1), 0x1000, 10, kRemoteWrite) == MrFault::kNone)
            std::this_thread::yield();
        // What does not wait for us goes on, and what does says so.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!invalid && waiter.note().waits_for == nullptr &&
               std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        const char* const waits_for = waiter.note().waits_for;
        EXPECT_STREQ(waits_for, "the users of a key to leave");
        left = true;
    });
    while (!copying) std::this_thread::yield();
    base::Activity::attach(&waiter);
    EXPECT_TRUE(table.invalidate(key, Pdn(1), WindowScope(0)));
    base::Activity::attach(nullptr);
    EXPECT_TRUE(left);
    invalid = true;
    copier.join();
    EXPECT_EQ(waiter.note().waits_for, nullptr);
    EXPECT_EQ(table.resolve(key, Pdn(1), 0x1000, 10, kRemoteWrite, spans), MrFault::kKey);
    // One who copies through it does not wait for himself.
    registered();
    const KeyUse use;
    EXPECT_EQ(table.resolve(key, Pdn(1), 0x1000, 10, kRemoteWrite, spans), MrFault::kNone);
    EXPECT_TRUE(table.invalidate(key, Pdn(1), WindowScope(0)));
}

/// A KeyUse may outlive the visit in which its thread found the key.
TEST_F(MemoryTableTest, WhoDestroysAKeyWaitsForThoseWhoFoundItInTheirVisit) {
    for (const bool with_all : {false, true}) {
        SCOPED_TRACE(with_all);
        MemoryTable table(gate, memory, account, 4);
        MemoryRegion made;
        made.pd = pd(1);
        made.type = MrType::kFastRegister;
        made.max_pages = 1;
        const Key key = *table.insert(std::move(made));
        (void)table.fast_register(
            {key, Pdn(1), kRemoteWrite, 0x1000, region_of({ram.alloc(4096).value()}, 4096)});
        std::atomic<bool> found{false}, destroyed{false}, left{false};
        std::thread visitor([&] {
            SpanList own;
            const KeyUse use;
            {
                const base::Gate::Visit visit(gate);
                EXPECT_EQ(table.resolve(key, Pdn(1), 0x1000, 10, kRemoteWrite, own),
                          MrFault::kNone);
            }
            found = true;
            for (bool there = true; there;) {
                std::this_thread::yield();
                const base::Gate::Visit visit(gate);
                there = table.find(key) != nullptr;
            }
            // What does not wait for us goes on long before so many turns are over.
            for (int i = 0; i < 2000 && !destroyed; ++i) std::this_thread::yield();
            left = true;
        });
        while (!found) std::this_thread::yield();
        {
            const base::Gate::Exclusion exclusion(gate);
            if (with_all)
                table.clear();
            else
                EXPECT_TRUE(table.remove(key));
            EXPECT_TRUE(left);
            destroyed = true;
        }
        visitor.join();
    }
}

class WqeTest : public MemoryTest {
protected:
    static constexpr std::uint64_t kBytes = 4096;
    WqeTest()
        : page_(ram.alloc(kBytes)), ring(memory, region_of({page_.value()}, kBytes), kBytes) {}
    void put(std::uint64_t position, const std::vector<std::uint32_t>& words) {
        for (std::size_t i = 0; i < words.size(); ++i)
            ram.write(page_ + (position + 4 * i) % kBytes, words[i]);
    }
    base::GuestAddr page_;
    Ring ring;
};

// RNIC 9, "WRITE a b, unsignaled".
TEST_F(WqeTest, ParsesTheGoldenWrite) {
    put(64, {0x00000000, 0x04000602, 0x12345905, 0x00000002, 0x00007000, 0x12345678, 0x00cafe01,
             0x00000c1c, 0x11223340, 0x00007f00, 0x00000102, 3000, 0x55667780, 0x00007f00,
             0x00000304, 100});
    const auto wqe = Wqe::fetch(ring, 64, 64, Wqe::kMaxSendBytes);
    ASSERT_TRUE(wqe);
    EXPECT_EQ(wqe->position(), 64U);
    EXPECT_EQ(wqe->size(), 64U);
    EXPECT_EQ(wqe->client_data_unit(), 1024U);
    EXPECT_EQ(wqe->oob().size(), 24U);
    EXPECT_EQ(base::load_le<std::uint32_t>(wqe->oob().data()), 0x12345905U);
    ASSERT_EQ(wqe->sges().size(), 2U);
    EXPECT_EQ(wqe->sges()[0].address, 0x7f0011223340U);
    EXPECT_EQ(wqe->sges()[0].key.value(), 0x102U);
    EXPECT_EQ(wqe->sges()[1].length, 100U);
    EXPECT_EQ(wqe->total_length(), 3100U);
    EXPECT_FALSE(wqe->check_sn());
    EXPECT_FALSE(wqe->oob_in_sgl());
}

// RNIC 9, "WRITE with immediate a": an OOB of 40 bytes, and one SGE of padding beyond the count.
TEST_F(WqeTest, ExtraLargeOobTakesTheFirstSgeSlot) {
    put(kBytes - 32,
        {0, 0x44000701, 0x12346146, 5, 0x7000, 0x12345678, 0xcafe01, 3000,  // wraps here
         0xaabbccdd, 0, 0, 0, 0x11223340, 0x7f00, 0x102, 3000});
    const auto wqe =
        Wqe::fetch(ring, static_cast<std::uint32_t>(kBytes - 32), 64, Wqe::kMaxSendBytes);
    ASSERT_TRUE(wqe);
    EXPECT_EQ(wqe->size(), 64U);
    EXPECT_EQ(wqe->oob().size(), 40U);
    EXPECT_EQ(base::load_le<std::uint32_t>(wqe->oob().data() + 24), 0xaabbccddU);
    ASSERT_EQ(wqe->sges().size(), 1U);
    EXPECT_EQ(wqe->sges()[0].address, 0x7f0011223340U);
    EXPECT_TRUE(wqe->check_sn());
}

// RNIC 9, "WRITE a, signaled": one SGE of padding in the count.
TEST_F(WqeTest, PaddingSgesAreNotPayload) {
    put(0, {0x00000001, 0x04000602, 0x12345645, 1, 0x7000, 0x12345678, 0xcafe01, 3000, 0x11223340,
            0x7f00, 0x102, 3000});
    const auto wqe = Wqe::fetch(ring, 0, 64, Wqe::kMaxSendBytes);
    ASSERT_TRUE(wqe);
    EXPECT_EQ(wqe->size(), 64U);
    EXPECT_EQ(wqe->sges().size(), 1U);
    put(0, {0x00000003, 0x04000602});
    EXPECT_FALSE(Wqe::fetch(ring, 0, 64, Wqe::kMaxSendBytes));
}

TEST_F(WqeTest, TsoHeaderFields) {
    put(0, {0x36000000, 0x05A80A02});
    const auto wqe = Wqe::fetch(ring, 0, 64, Wqe::kMaxSendBytes);
    ASSERT_TRUE(wqe);
    EXPECT_EQ(wqe->last_vbytes(), 54);
    EXPECT_TRUE(wqe->oob_in_sgl());
    EXPECT_EQ(wqe->client_data_unit(), 1448);
    EXPECT_EQ(wqe->size(), 64U);
}

TEST_F(WqeTest, RefusesWhatMakesNoSense) {
    put(0, {0, 0x00000201});
    EXPECT_TRUE(Wqe::fetch(ring, 0, 32, Wqe::kMaxReceiveBytes));
    EXPECT_FALSE(Wqe::fetch(ring, 0, 31, Wqe::kMaxReceiveBytes));
    EXPECT_FALSE(Wqe::fetch(ring, 0, 0, Wqe::kMaxReceiveBytes));
    for (const std::uint32_t code : {0U, 1U, 3U, 4U, 5U}) {
        put(0, {0, code << 8 | 1});
        EXPECT_EQ(Wqe::fetch(ring, 0, 512, 512).error().code, base::ErrorCode::kProtocol) << code;
    }
    put(0, {0, 0x00000202});
    EXPECT_FALSE(Wqe::fetch(ring, 0, 32, 512)) << "not posted whole";
    put(0, {0, 0x00000200 | 15});
    EXPECT_TRUE(Wqe::fetch(ring, 0, 512, Wqe::kMaxReceiveBytes));
    put(0, {0, 0x00000200 | 16});
    EXPECT_FALSE(Wqe::fetch(ring, 0, 512, Wqe::kMaxReceiveBytes)) << "too big";
    put(0, {0, 0x00000200 | 31});
    ASSERT_TRUE(Wqe::fetch(ring, 0, 512, Wqe::kMaxSendBytes));
    EXPECT_EQ(Wqe::fetch(ring, 0, 512, Wqe::kMaxSendBytes)->sges().size(), 31U);
    put(0, {0, 0x00000200 | 32});
    EXPECT_FALSE(Wqe::fetch(ring, 0, 1024, 1024));
    put(0, {0, 0x000002ff});
    EXPECT_FALSE(Wqe::fetch(ring, 0, 1 << 20, 1 << 20));
}

TEST_F(WqeTest, MissingMemoryIsToldApart) {
    base::GuestMemory empty;
    const Ring gone(empty, region_of({0x5000}, 4096), 4096);
    EXPECT_EQ(Wqe::fetch(gone, 0, 64, 512).error().code, base::ErrorCode::kOutOfRange);
}

TEST_F(WqeTest, RandomBytesNeverHarm) {
    base::Random random(11);
    for (int i = 0; i < 20000; ++i) {
        for (std::uint32_t word = 0; word < 8; ++word) {
            auto value = static_cast<std::uint32_t>(random.next());
            if (word == 1 && random.below(2) == 0)
                value = (value & ~0x7ffU) | 0x600 | static_cast<std::uint32_t>(random.below(33));
            ram.write(page_ + 4 * word, value);
        }
        const auto available = static_cast<std::uint32_t>(random.below(700));
        const auto wqe = Wqe::fetch(ring, 0, available, Wqe::kMaxSendBytes);
        if (!wqe) continue;
        ASSERT_LE(wqe->size(), available);
        ASSERT_LE(wqe->size(), 512U);
        ASSERT_LE(wqe->sges().size(), 31U);
        (void)wqe->total_length();
    }
}

}  // namespace
}  // namespace openmana::gdma
