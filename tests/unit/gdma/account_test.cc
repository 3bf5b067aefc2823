// SPDX-License-Identifier: Apache-2.0
// What a guest makes is paid for from the account of its NIC; what that cannot pay for is refused,
// and leaves nothing behind.
#include <mana/gdma.h>

#include <vector>

#include "support/scarcity.h"
#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using test::Request;

class AccountTest : public DriverFixture {
protected:
    /// What is made has to cost `least` bytes.
    void expect_refusals(std::uint64_t least, const std::function<bool()>& make) {
        test::expect_refusals_leave_nothing(function, *driver, make, 0, least);
    }
    void TearDown() override {
        function.reset();
        EXPECT_EQ(function.account().used(), 0U);
    }
    base::MemoryAccount& account() { return function.account(); }
};

TEST_F(AccountTest, Pds) {
    expect_refusals(sizeof(Pd), [&] { return driver->create_pd().has_value(); });
}

TEST_F(AccountTest, Regions) {
    const auto pages = ram.alloc_scattered(100);
    expect_refusals(100 * sizeof(DmaRegion::Extent),
                    [&] { return driver->create_region(pages, 100 * 4096).has_value(); });
}

TEST_F(AccountTest, MemoryRegions) {
    const auto pd = driver->create_pd();
    const auto at = ram.alloc(8192);
    expect_refusals(sizeof(DmaRegion),
                    [&] { return driver->create_mr(*pd, at, 8192, 1).has_value(); });
}

TEST_F(AccountTest, AMemoryRegionThatIsRefusedLeavesItsDmaRegion) {
    const auto pd = driver->create_pd(true);
    while (function.object_counts().keys < 63) ASSERT_TRUE(driver->create_gpa_mr(*pd));
    const auto region = driver->create_region(ram.alloc(8192), 8192);
    ASSERT_TRUE(region);
    {
        const auto rest = account().charge(account().left());
        ASSERT_TRUE(rest);
        EXPECT_FALSE(driver->create_mr_of(*pd, *region, 0, 1)) << "the key table is to grow";
        EXPECT_EQ(driver->last_status, kHwcNoResources);
    }
    EXPECT_TRUE(driver->create_mr_of(*pd, *region, 0, 1));
}

TEST_F(AccountTest, TheKeyTable) {
    const auto pd = driver->create_pd(true);
    // It has 64 places at first.
    while (function.object_counts().keys < 63) ASSERT_TRUE(driver->create_gpa_mr(*pd));
    expect_refusals(64U * 64, [&] { return driver->create_gpa_mr(*pd).has_value(); });
}

TEST_F(AccountTest, APlaceOfTheKeyTableThatWasFreedIsUsedWhenTheTableCannotGrow) {
    const auto pd = driver->create_pd(true);
    while (function.object_counts().keys < 62) ASSERT_TRUE(driver->create_gpa_mr(*pd));
    const auto last = driver->create_gpa_mr(*pd);
    ASSERT_TRUE(last && driver->destroy_mr(*last));
    const auto rest = account().charge(account().left() - 1000);
    ASSERT_TRUE(rest);
    const auto next = driver->create_gpa_mr(*pd);
    ASSERT_TRUE(next);
    EXPECT_NE(next->lkey, last->lkey);
    EXPECT_FALSE(driver->create_gpa_mr(*pd));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
}

TEST_F(AccountTest, EventQueues) {
    expect_refusals(sizeof(EventQueue) + sizeof(DmaRegion),
                    [&] { return driver->create_eq(3, rnic, 1, 4096).has_value(); });
}

TEST_F(AccountTest, CompletionQueues) {
    Handle<CompletionQueue> cq;
    const std::uint64_t at_first = account().used();
    {
        const auto rest = account().charge(account().left() - 200);
        ASSERT_TRUE(rest);
        const auto ring = driver->alloc_ring(4096);
        const auto handle = driver->create_region(ring);
        ASSERT_FALSE(handle);
    }
    EXPECT_EQ(account().used(), at_first);
    const auto region = driver->create_region(driver->alloc_ring(4096));
    ASSERT_TRUE(region);
    for (std::uint64_t left = 0; !cq; left += 16) {
        const std::uint64_t used = account().used();
        const auto rest = account().charge(account().left() - left);
        auto claim = function.regions().claim(RegionHandle(*region));
        ASSERT_TRUE(claim) << "it was given back";
        auto made = function.cqs().create(std::move(*claim), 4096, nullptr, page_of(rnic), {});
        if (made) {
            cq = *made;
            EXPECT_GE(account().used(), used + rest->bytes() + sizeof(CompletionQueue));
            break;
        }
        ASSERT_EQ(made.error().code, base::ErrorCode::kExhausted);
        ASSERT_EQ(account().used(), used + rest->bytes());
    }
    cq = nullptr;
}

TEST_F(AccountTest, DeviceMemory) {
    expect_refusals(1000, [&] {
        return driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 1000)).ok();
    });
}

TEST_F(AccountTest, ADeviceAndItsRegistration) {
    ASSERT_TRUE(driver->deregister_device(3));
    expect_refusals(1, [&] { return driver->register_device(3).has_value(); });
}

TEST_F(AccountTest, QueueIds) {
    // A block of four each: the tables of the doorbells grow by one place in each row.
    std::vector<SqIds> kept;
    const std::uint64_t used = account().used();
    for (int i = 0; i < 1000; ++i) kept.push_back(*function.sqs().allocate(4, 4));
    EXPECT_GE(account().used(), used + 1000 * 4 * (16 + 8 + 4));
    const auto rest = account().charge(account().left() - 1000);
    ASSERT_TRUE(rest);
    const std::uint32_t before = function.sqs().used();
    while (kept.size() < 2000) {
        auto more = function.sqs().allocate(4, 4);
        if (!more) {
            EXPECT_EQ(more.error().code, base::ErrorCode::kExhausted);
            break;
        }
        kept.push_back(std::move(*more));
    }
    EXPECT_LT(kept.size(), 2000U);
    EXPECT_EQ(function.sqs().used(), before + 4 * (kept.size() - 1000));
}

/// The last message of a region builds it: if that is refused it can be sent again.
TEST_F(AccountTest, APageListThatIsRefusedIsAsItWas) {
    const auto pages = ram.alloc_scattered(4);
    Request create(MANA_HW_CREATE_DMA_REGION, 64 + 16, 40);
    create.put<std::uint64_t>(40, 4 * 4096).put<std::uint32_t>(56, 4).put<std::uint32_t>(60, 2);
    create.put(64, pages[0]).put(72, pages[1]);
    const auto created = driver->call(create);
    ASSERT_EQ(created.status, kHwcMoreEntries);
    Request add(MANA_HW_DMA_REGION_ADD_PAGES, 56 + 16);
    add.put<std::uint64_t>(40, created.get<std::uint64_t>(32)).put<std::uint32_t>(48, 2);
    add.put(56, pages[2]).put(64, pages[3]);
    const std::uint64_t used = account().used();
    {
        const auto rest = account().charge(account().left());
        ASSERT_TRUE(rest);
        EXPECT_EQ(driver->call(add).status, kHwcNoResources);
    }
    EXPECT_EQ(account().used(), used);
    EXPECT_TRUE(driver->call(add).ok());
}

TEST_F(AccountTest, WhatEndsIsPaidBack) {
    const auto cycle = [&] {
        const auto pd = driver->create_pd();
        const auto mr = driver->create_mr(*pd, ram.start(), 8192, 1);
        const auto eq = driver->create_eq(3, rnic, 1, 4096);
        EXPECT_TRUE(mr && driver->destroy_mr(*mr));
        EXPECT_TRUE(eq && driver->destroy_eq(3, *eq));
        EXPECT_TRUE(driver->destroy_pd(*pd));
        return account().used();
    };
    const std::uint64_t used = cycle();
    for (int i = 0; i < 30; ++i) EXPECT_EQ(cycle(), used);
}

}  // namespace
}  // namespace openmana::gdma
