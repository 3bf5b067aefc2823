// SPDX-License-Identifier: Apache-2.0
// What peers and hostile neighbours would have to guess: QP numbers and keys.
#include <algorithm>
#include <set>

#include "base/clock.h"
#include "gdma/memory_table.h"
#include "gdma/work_queues.h"
#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

constexpr std::uint64_t kSeeds = 2000;

class PublicIds : public testing::Test {
protected:
    base::MemoryAccount account;
};

TEST_F(PublicIds, BeginElsewhereForEachSeedAndAfterEachReset) {
    std::set<std::uint32_t> begins;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        ReceiveQueues queues(account, 100, seed);
        for (int life = 0; life < 2; ++life) {
            const auto ids = queues.allocate_public(4, 4);
            ASSERT_TRUE(ids);
            EXPECT_EQ(ids->first().value() % 4, 0U);
            EXPECT_GE(ids->first(), queues.first_public());
            EXPECT_GE(ids->first().value(), QueueIdPool::kSpan);
            EXPECT_LE(ids->first().value(), (1U << 24) - QueueIdPool::kSpan);
            begins.insert(ids->first().value());
            queues.reset();
        }
    }
    EXPECT_GT(begins.size(), 2 * kSeeds * 99 / 100);
}

TEST_F(PublicIds, OneSeedBeginsAtOnePlace) {
    ReceiveQueues queues(account, 100, 7);
    ReceiveQueues again(account, 100, 7);
    EXPECT_EQ(queues.allocate_public(1, 1)->first(), again.allocate_public(1, 1)->first());
}

/// Short doorbells have room for 12 bits.
TEST_F(PublicIds, OthersStaySmall) {
    ReceiveQueues queues(account, 1000, 3);
    std::vector<RqIds> kept;
    for (int i = 0; i < 100; ++i) {
        kept.push_back(*queues.allocate_public(4, 4));
        kept.push_back(*queues.allocate(1, 1));
        EXPECT_LT(kept.back().first().value(), 4096U);
    }
    EXPECT_EQ(queues.used(), 500U);
}

TEST_F(PublicIds, BothKindsHaveOneQuota) {
    ReceiveQueues queues(account, 8, 3);
    auto ours = queues.allocate_public(4, 4);
    auto own = queues.allocate(4, 4);
    ASSERT_TRUE(ours && own);
    EXPECT_FALSE(queues.allocate(1, 1));
    EXPECT_FALSE(queues.allocate_public(1, 1));
    ours = QueueIds<Rqn>();
    EXPECT_TRUE(queues.allocate(4, 4));
}

TEST_F(PublicIds, DoorbellsFindBothKinds) {
    struct Target final : DoorbellTarget {
        void ring(std::uint32_t position) override { last = position; }
        std::uint32_t last = 0;
    };
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        ReceiveQueues queues(account, 1000, seed);
        const DoorbellPage page(3);
        std::vector<RqIds> ids;
        std::vector<std::unique_ptr<Target>> targets;
        for (int i = 0; i < 50; ++i) {
            ids.push_back(i % 2 == 0 ? *queues.allocate(2, 2) : *queues.allocate_public(4, 4));
            for (const std::uint32_t place : {0U, 1U}) {
                targets.push_back(std::make_unique<Target>());
                queues.connect(ids.back().at(place), page, targets.back().get());
            }
        }
        for (std::uint32_t i = 0; i < targets.size(); ++i) {
            const std::uint32_t id = ids[i / 2].at(i % 2).value();
            EXPECT_TRUE(queues.ring(id, page, i + 1, false));
            EXPECT_FALSE(queues.ring(id, DoorbellPage(4), 9, false));
            EXPECT_EQ(targets[i]->last, i + 1);
        }
        for (const std::uint32_t nobody :
             {0U, 4000U, queues.first_public().value() - 4, queues.first_public().value(),
              ids.back().first().value() + 4, 0xffffffU})
            EXPECT_FALSE(queues.ring(nobody, page, 1, false)) << nobody;
    }
}

class ChanceTest : public testing::Test {
protected:
    static MemoryRegion region() {
        MemoryRegion region;
        region.pd = make_handle<Pd>(Pdn(1), PdHandle(), kGuest, PdRights{.allows_gpa = true});
        region.type = MrType::kGpa;
        region.access = kLocalRead;
        return region;
    }
    base::Gate gate;
    base::GuestMemory memory;
    base::MemoryAccount account;
};

TEST_F(ChanceTest, TheFirstKeyIsAnotherForEachSeedAndHas24Bits) {
    std::set<Key> keys;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        MemoryTable table(gate, memory, account, 1 << 20, seed);
        for (int life = 0; life < 2; ++life) {
            const Key key = *table.insert(region());
            EXPECT_LT(key.value(), 1U << 24) << "the HWC's key";
            EXPECT_GE(key.value(), 1U << 8);
            EXPECT_NE(table.find(key), nullptr);
            keys.insert(key);
            table.clear();
            EXPECT_EQ(table.find(key), nullptr);
        }
    }
    EXPECT_GT(keys.size(), 2 * kSeeds * 99 / 100);
}

/// Who knows one key does not know the next.
TEST_F(ChanceTest, TagsOfNeighboursAreChance) {
    MemoryTable table(gate, memory, account, 1 << 20, 5);
    std::array<unsigned, 256> steps{};
    std::uint32_t before = table.insert(region())->value();
    for (int i = 0; i < 10000; ++i) {
        const std::uint32_t key = table.insert(region())->value();
        EXPECT_EQ(key >> 8, (before >> 8) + 1);
        ++steps[(key - before) & 0xff];
        before = key;
    }
    EXPECT_LT(*std::ranges::max_element(steps), 100U) << "39 of each are expected";
}

}  // namespace
}  // namespace openmana::gdma
