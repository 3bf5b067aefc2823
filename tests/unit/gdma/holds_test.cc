// SPDX-License-Identifier: Apache-2.0
// What a guest asks for, however much that is, keeps visitors out for a bounded number of entries,
// pages and keys.
#include <mana/ext.h>

#include <vector>

#include "base/endian.h"
#include "base/hold_meter.h"
#include "gdma/key_changes.h"
#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

/// Before the gate that it measures.
struct Metered {
    base::HoldMeter meter;
};

class KeyHoldsTest : public Metered, public testing::Test {
protected:
    MemoryRegion region(MrType type) {
        MemoryRegion made;
        made.pd = pd;
        made.type = type;
        return made;
    }
    Key insert(MemoryRegion made) {
        const base::Gate::Exclusion exclusion(gate, {"insert"});
        return *table.insert(std::move(made));
    }
    base::Gate gate;
    base::GuestMemory memory;
    Handle<Pd> pd = make_handle<Pd>(Pdn(1), PdHandle(), kGuest, PdRights{.allows_gpa = true});
    base::MemoryAccount account;
    MemoryTable table{gate, memory, account, 1 << 20};
};

TEST_F(KeyHoldsTest, ATableGrowsWhileVisitorsLookAtIt) {
    std::vector<Key> keys;
    for (int i = 0; i < 10000; ++i) keys.push_back(insert(region(MrType::kGpa)));
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
    for (const Key key : keys) ASSERT_NE(table.find(key), nullptr);
}

TEST_F(KeyHoldsTest, ARegionOfManyPiecesIsFreedWithTheGateOpen) {
    std::vector<std::uint64_t> pages(10000);
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = i * 8192;
    MemoryRegion made = region(MrType::kGva);
    made.region = std::make_unique<DmaRegion>(pages.size() * 4096, 0, 12, pages);
    made.length = made.region->length();
    const Key key = insert(std::move(made));
    MemoryChange change;
    change.region = RegionClaim(std::make_unique<DmaRegion>(pages.size() * 4096, 0, 12, pages));
    meter.clear();
    {
        const base::Gate::Exclusion exclusion(gate, {"change"});
        ASSERT_TRUE(table.change(key, std::move(change)));
    }
    {
        const base::Gate::Exclusion exclusion(gate, {"remove"});
        ASSERT_TRUE(table.remove(key));
    }
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
}

TEST_F(KeyHoldsTest, ManyWindowsEndWithTheGateOpen) {
    for (int i = 0; i < 5000; ++i) (void)insert(region(MrType::kWindowType2));
    meter.clear();
    {
        const base::Gate::Exclusion exclusion(gate, {"end"});
        table.end_windows(WindowScope(7));
    }
    {
        const base::Gate::Exclusion exclusion(gate, {"clear"});
        table.clear();
    }
    EXPECT_EQ(meter.largest().work, 0U) << meter.report();
    EXPECT_EQ(table.size(), 0U);
    EXPECT_EQ(pd->holders(), 1U);
}

TEST_F(KeyHoldsTest, AFastRegistrationFreesWhatTheKeyWasWithTheGateOpen) {
    HandleNumbers handles;
    RegionTable regions({1, 1}, handles, account);
    PdTable pds(4, handles, account);
    KeyChanges changes(gate, memory, table, regions, pds);
    std::vector<std::byte> host(std::size_t{16} << 12);
    const base::GuestAddr list(0x10000);
    ASSERT_TRUE(memory.map_host(list, host));
    constexpr std::uint32_t kPages = 1024;
    for (std::uint64_t i = 0; i < kPages; ++i)
        base::store_le<std::uint64_t>(host.data() + 8 * i, i * 8192);
    MemoryRegion made = region(MrType::kFastRegister);
    made.max_pages = kPages;
    const Key key = insert(std::move(made));
    const KeyChanges::FastRegister request{.key = key,
                                           .pd = Pdn(1),
                                           .length = kPages * 4096,
                                           .page_list = list,
                                           .pages = kPages,
                                           .page_shift = 12};
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(changes.fast_register(request));
        ASSERT_TRUE(changes.invalidate(key, Pdn(1), WindowScope(0)));
    }
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
}

class CommandHoldsTest : public Metered, public DriverFixture {};

TEST_F(CommandHoldsTest, RegionsAreMadeAndFreedWithTheGateOpen) {
    std::vector<std::uint64_t> pages(20000);
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = i * 8192;
    meter.clear();
    const auto unused = driver->create_region(pages, pages.size() * 4096);
    ASSERT_TRUE(unused);
    EXPECT_TRUE(driver->destroy_region(*unused));
    const auto pd = driver->create_pd();
    const auto used = driver->create_region(pages, pages.size() * 4096);
    ASSERT_TRUE(pd && used);
    const auto mr = driver->create_mr_of(*pd, *used, 0, 3);
    ASSERT_TRUE(mr);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    EXPECT_LE(meter.largest().work, 1U) << meter.report();
}

/// Visitors may reach device memory meanwhile.
TEST_F(CommandHoldsTest, ACopyOfDeviceMemoryIsAFewPages) {
    const auto length = static_cast<std::uint32_t>(MANA_HW_EXT_COPY_DM_BYTES);
    auto& table = function.device_memory();
    const auto dm = table.allocate(length);
    ASSERT_TRUE(dm);
    meter.clear();
    ASSERT_TRUE(
        table.copy({.dm = *dm, .address = ram.alloc(length), .length = length, .to_dm = true}));
    EXPECT_EQ(meter.largest().work, 1 + length / 4096) << meter.report();
    EXPECT_LE(meter.largest().work, 17U);
}

TEST_F(CommandHoldsTest, AResetFreesWithTheGateOpen) {
    std::vector<std::uint64_t> pages(20000);
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = i * 8192;
    const auto pd = driver->create_pd();
    ASSERT_TRUE(pd);
    for (int i = 0; i < 3; ++i) {
        const auto region = driver->create_region(pages, pages.size() * 4096);
        ASSERT_TRUE(region && driver->create_mr_of(*pd, *region, 0, 3));
    }
    ASSERT_TRUE(driver->create_region(pages, pages.size() * 4096));
    meter.clear();
    function.reset();
    EXPECT_LE(meter.largest().work, 8U) << meter.report();
    EXPECT_EQ(function.account().used(), 0U);
}

}  // namespace
}  // namespace openmana::gdma
