// SPDX-License-Identifier: Apache-2.0
#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using test::Request;

class CommandTest : public DriverFixture {
protected:
    std::uint32_t status(const Request& request) { return driver->call(request).status; }
    Request mr(std::uint64_t pd, std::uint32_t type) {
        Request request(MANA_HW_CREATE_MR, 88, 48, 0, 2);
        request.put<std::uint64_t>(40, pd).put<std::uint32_t>(48, type);
        return request;
    }
    MrFault resolve(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                    std::uint64_t length, std::uint32_t need = kLocalRead) {
        spans.clear();
        return function.keys().resolve(Key(key), Pdn(pd), address, length, need, spans);
    }
    SpanList spans;
};

// ---- the function as a whole

TEST_F(CommandTest, VerifyVersionOffersTimeoutAndBigPages) {
    Request request(MANA_HW_VERIFY_DRIVER_VERSION, 640, 72);
    request.put<std::uint64_t>(40, 1).put<std::uint64_t>(48, 1).put<std::uint64_t>(56, 0x27E686D);
    const auto response = driver->call(request);
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response.get<std::uint64_t>(32), 1U);
    EXPECT_EQ(response.get<std::uint64_t>(40), 0x8018U);
    EXPECT_EQ(response.get<std::uint64_t>(48), 0U);
    request.put<std::uint64_t>(40, 2).put<std::uint64_t>(48, 3);
    EXPECT_EQ(status(request), kHwcInvalidParameter);
    request.put<std::uint64_t>(40, 0).put<std::uint64_t>(48, 0);
    EXPECT_EQ(status(request), kHwcInvalidParameter);
}

TEST_F(CommandTest, MaxResourcesTellTheQuotas) {
    const auto response = driver->call(Request(MANA_HW_QUERY_MAX_RESOURCES, 40, 72));
    const std::array<std::uint32_t, 10> expected{0,    65536,   65536, 32768, 1024,
                                                 1024, 1048576, 0,     0,     65};
    for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_EQ(response.get<std::uint32_t>(32 + 4 * i), expected[i]) << i;
}

TEST_F(CommandTest, ListsTheDevicesByType) {
    const auto response = driver->call(Request(MANA_HW_LIST_DEVICES, 40, 296));
    EXPECT_EQ(response.bytes.size(), 296U);
    EXPECT_EQ(response.get<std::uint32_t>(32), 2U);
    EXPECT_EQ(response.get<std::uint32_t>(40), 2U);
    EXPECT_EQ(response.get<std::uint32_t>(44), 3U);
    EXPECT_EQ(response.get<std::uint32_t>(48), 0U);
}

TEST_F(CommandTest, TimeoutIsNeverZero) {
    auto response =
        driver->call(Request(MANA_HW_QUERY_HWC_TIMEOUT, 48, 40).put<std::uint32_t>(40, 12345));
    EXPECT_EQ(response.get<std::uint32_t>(32), 12345U);
    response = driver->call(Request(MANA_HW_QUERY_HWC_TIMEOUT, 48, 40));
    EXPECT_EQ(response.get<std::uint32_t>(32), 30000U);
}

TEST_F(CommandTest, ShortRequestsAreRefused) {
    for (const std::uint32_t opcode :
         {1U, 10U, 12U, 13U, 22U, 24U, 25U, 26U, 27U, 29U, 30U, 31U, 32U, 84U, 96U, 97U})
        EXPECT_EQ(status(Request(opcode, 40, 400)), kHwcInvalidParameter) << opcode;
    EXPECT_EQ(function.object_counts(), at_rest);
}

// ---- devices

TEST_F(CommandTest, DevicesGetPagesPdsAndKeysOfTheirOwn) {
    EXPECT_NE(eth.page, rnic.page);
    EXPECT_NE(eth.page, driver->hwc_eq.page);
    EXPECT_NE(rnic.page, driver->hwc_eq.page);
    EXPECT_NE(eth.pd, rnic.pd);
    EXPECT_NE(eth.gpa_key, rnic.gpa_key);
    const auto at = ram.alloc(4096);
    EXPECT_EQ(resolve(eth.gpa_key, eth.pd, at.value(), 4096, kLocalWrite), MrFault::kNone);
    EXPECT_EQ(resolve(eth.gpa_key, rnic.pd, at.value(), 4096), MrFault::kKey);
    EXPECT_EQ(resolve(eth.gpa_key, eth.pd, at.value(), 4096, kRemoteRead), MrFault::kAccess);
    EXPECT_TRUE(function.pages().find(DoorbellPage(eth.page)));
    EXPECT_FALSE(function.pages().find(DoorbellPage(driver->hwc_eq.page)));
    EXPECT_FALSE(function.pages().find(DoorbellPage(999)));
    EXPECT_FALSE(function.pages().find(DoorbellPage(99999)));
}

TEST_F(CommandTest, RegistrationIsOncePerDevice) {
    EXPECT_FALSE(driver->register_device(3));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_FALSE(driver->register_device(1));
    EXPECT_FALSE(driver->register_device(4));
    EXPECT_EQ(status(Request(MANA_HW_REGISTER_DEVICE, 40, 44, 3).put<std::uint16_t>(34, 1)),
              kHwcNotFound);
    EXPECT_TRUE(driver->deregister_device(3));
    EXPECT_EQ(rdma.resets, 1);
    EXPECT_FALSE(driver->deregister_device(3));
    EXPECT_EQ(resolve(rnic.gpa_key, rnic.pd, ram.alloc(4096).value(), 1), MrFault::kKey);
    EXPECT_TRUE(driver->register_device(3));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, DeregistrationTakesLeftOverEqs) {
    ASSERT_TRUE(driver->create_eq(3, rnic, 1));
    const auto kept = driver->create_eq(2, eth, 1);
    EXPECT_TRUE(driver->deregister_device(3));
    EXPECT_EQ(function.object_counts().eqs, at_rest.eqs + 1);
    EXPECT_TRUE(function.eqs().find(Eqn(kept->id)));
}

TEST_F(CommandTest, DeviceOpcodesGoToTheDeviceOfTheirFamily) {
    EXPECT_EQ(status(Request(0x20008, 44, 64, 2)), 0U);
    EXPECT_EQ(status(Request(0x30001, 40, 104, 3)), 0U);
    EXPECT_EQ(status(Request(0x40001, 40, 104, 3)), 0U);
    EXPECT_EQ(ethernet.opcodes, std::vector<std::uint32_t>{0x20008});
    EXPECT_EQ(rdma.opcodes, (std::vector<std::uint32_t>{0x30001, 0x40001}));
    EXPECT_EQ(status(Request(0x3000a, 160, 64, 2)), kHwcInvalidParameter);
    EXPECT_EQ(status(Request(0x20008, 44, 64, 3)), kHwcInvalidParameter);
    EXPECT_EQ(status(Request(0x20008, 44, 64, 0)), kHwcInvalidParameter);
    EXPECT_EQ(status(Request(0x40001, 44, 64, 9)), kHwcInvalidParameter);
    EXPECT_EQ(ethernet.opcodes.size() + rdma.opcodes.size(), 3U);
}

TEST_F(CommandTest, OnlyTheDeviceConfigurationComesBeforeRegistration) {
    ASSERT_TRUE(driver->deregister_device(2));
    EXPECT_EQ(status(Request(0x20001, 88, 80, 2)), 0U);
    EXPECT_EQ(status(Request(0x20008, 44, 64, 2)), kHwcNotFound);
    EXPECT_EQ(ethernet.opcodes, std::vector<std::uint32_t>{0x20001});
}

TEST_F(CommandTest, AFailedDeviceCommandAnswersABareHeader) {
    rdma.handler = [](const HwcRequest&, HwcReply& reply) {
        reply.put<std::uint32_t>(32, 1);
        reply.set_status(kHwcUnsupported);
    };
    const auto failed = function.counters().hwc_failed.value();
    const auto response = driver->call(Request(0x30099, 40, 104, 3));
    EXPECT_EQ(response.status, kHwcUnsupported);
    EXPECT_EQ(response.bytes.size(), 32U);
    EXPECT_EQ(function.counters().hwc_failed.value(), failed + 1);
}

// ---- EQs

TEST_F(CommandTest, EqIsBornArmedAndConsumesItsRegion) {
    const auto eq = driver->create_eq(3, rnic, 7);
    ASSERT_TRUE(eq);
    EXPECT_EQ(irq.count(7), 1U);
    EXPECT_EQ(function.object_counts().regions, 0U);
    EXPECT_TRUE(driver->destroy_eq(3, *eq));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, EqRefusalsLeaveTheRegion) {
    const auto region = driver->create_region(driver->alloc_ring(8192));
    ASSERT_TRUE(region);
    const auto build = [&] {
        Request request(MANA_HW_CREATE_QUEUE, 96, 36, 3);
        request.put<std::uint32_t>(40, 4)
            .put<std::uint32_t>(48, rnic.pd)
            .put<std::uint32_t>(52, rnic.page);
        request.put<std::uint64_t>(56, *region)
            .put<std::uint32_t>(68, 8192)
            .put<std::uint32_t>(76, 1);
        return request;
    };
    EXPECT_EQ(status(build().put<std::uint32_t>(40, 3)), kHwcUnsupported);
    EXPECT_EQ(status(build().put<std::uint16_t>(32, 1)), kHwcNotFound);
    EXPECT_EQ(status(build().put<std::uint32_t>(48, eth.pd)), kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint32_t>(52, eth.page)), kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint64_t>(56, *region + 1)), kHwcNotFound);
    EXPECT_EQ(status(build().put<std::uint32_t>(68, 16384)), kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint32_t>(68, 2048)), kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint32_t>(68, 4096 + 16)), kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint32_t>(76, 65)), kHwcInvalidParameter);
    EXPECT_EQ(function.object_counts().eqs, at_rest.eqs);
    EXPECT_EQ(status(build()), 0U);
    EXPECT_EQ(status(build()), kHwcNotFound);
}

TEST_F(CommandTest, EqsBelongToTheirDevice) {
    const auto eq = driver->create_eq(3, rnic, 1);
    EXPECT_FALSE(driver->destroy_eq(2, *eq));
    EXPECT_EQ(status(Request(MANA_HW_GENERATE_TEST_EQE, 44, 32, 2).put<std::uint32_t>(40, eq->id)),
              kHwcNotFound);
    EXPECT_EQ(
        status(Request(MANA_HW_GENERATE_TEST_EQE, 44, 32, 3).put<std::uint32_t>(40, 0xffffffff)),
        kHwcNotFound);
    EXPECT_FALSE(driver->destroy_eq(1, driver->hwc_eq));
    Request wrong_type(MANA_HW_DISABLE_QUEUE, 52, 32, 3);
    EXPECT_EQ(status(wrong_type.put<std::uint32_t>(40, 1).put<std::uint32_t>(44, eq->id)),
              kHwcUnsupported);
    EXPECT_TRUE(driver->destroy_eq(3, *eq));
    EXPECT_FALSE(driver->destroy_eq(3, *eq));
}

TEST_F(CommandTest, EqWithCqsCannotBeDestroyed) {
    const auto eq = driver->create_eq(3, rnic, 1);
    test::DriverCq view;
    auto cq = make_cq(*function.eqs().find(Eqn(eq->id)), view);
    ASSERT_NE(cq, nullptr);
    EXPECT_FALSE(driver->destroy_eq(3, *eq));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    cq = nullptr;
    EXPECT_TRUE(driver->destroy_eq(3, *eq));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, TheHwcEqTakesTestEvents) {
    driver->events.clear();
    ASSERT_TRUE(driver
                    ->call(Request(MANA_HW_GENERATE_TEST_EQE, 44, 32, 1)
                               .put<std::uint32_t>(40, driver->hwc_eq.id))
                    .ok());
    ASSERT_EQ(driver->events.size(), 1U);
    EXPECT_EQ(driver->events[0].type, 64);
}

// ---- doorbell pages

TEST_F(CommandTest, DoorbellPagesAreRanges) {
    const auto first = driver->allocate_page(16, 16);
    ASSERT_NE(first, UINT32_MAX);
    EXPECT_EQ(first % 16, 0U);
    EXPECT_TRUE(function.pages().find(DoorbellPage(first + 15)));
    EXPECT_FALSE(driver->free_page(first, 15));
    EXPECT_FALSE(driver->free_page(first + 1, 15));
    EXPECT_FALSE(driver->free_page(eth.page, 1));
    EXPECT_FALSE(driver->free_page(driver->hwc_eq.page, 1));
    EXPECT_FALSE(driver->free_page(0xffffffff, 2));
    EXPECT_FALSE(driver->free_page(first, 0));
    EXPECT_TRUE(driver->free_page(first, 16));
    EXPECT_FALSE(function.pages().find(DoorbellPage(first)));
    EXPECT_EQ(driver->allocate_page(0, 1), UINT32_MAX);
    EXPECT_EQ(driver->allocate_page(1, 0), UINT32_MAX);
    EXPECT_EQ(driver->allocate_page(0xffffffff, 1), UINT32_MAX);
    EXPECT_EQ(driver->allocate_page(1, 0xffffffff), 0xffffffffU);
    Request other(MANA_HW_ALLOCATE_RESOURCE_RANGE, 56, 36);
    EXPECT_EQ(status(other.put<std::uint32_t>(40, 26).put<std::uint32_t>(44, 1).put<std::uint32_t>(
                  48, 1)),
              kHwcUnsupported);
    Request far(MANA_HW_ALLOCATE_RESOURCE_RANGE, 56, 36);
    far.put<std::uint32_t>(40, 27).put<std::uint32_t>(44, 1).put<std::uint32_t>(48, 1);
    EXPECT_EQ(status(far.put<std::uint32_t>(52, 5000)), kHwcInvalidParameter);
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, DoorbellPagesRunOutAndComeBackLate) {
    const auto first = driver->allocate_page();
    EXPECT_TRUE(driver->free_page(first));
    EXPECT_NE(driver->allocate_page(), first);
    std::uint32_t count = 1;
    while (driver->allocate_page() != UINT32_MAX) ++count;
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    EXPECT_EQ(count + 3, function.config().doorbell_pages);
}

// ---- DMA regions

TEST_F(CommandTest, RegionInOneMessage) {
    const auto at = ram.alloc(3 * 4096);
    const auto handle = driver->create_region(at + 100, 2 * 4096);
    ASSERT_TRUE(handle);
    const auto region = function.regions().find(RegionHandle(*handle));
    ASSERT_TRUE(region);
    EXPECT_EQ((*region)->length(), 8192U);
    EXPECT_EQ((*region)->first_offset(), 100U);
    ASSERT_EQ((*region)->extents().size(), 1U);
    EXPECT_EQ((*region)->extents()[0].address, at + 100);
    EXPECT_EQ((*region)->extents()[0].length, 8192U);
    EXPECT_TRUE(driver->destroy_region(*handle));
    EXPECT_FALSE(driver->destroy_region(*handle));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, RegionOverSeveralMessagesAnswersExactly) {
    const auto pages = ram.alloc_scattered(5);
    Request create(MANA_HW_CREATE_DMA_REGION, 64 + 16, 40);
    create.put<std::uint64_t>(40, 5 * 4096).put<std::uint32_t>(56, 5).put<std::uint32_t>(60, 2);
    create.put(64, pages[0]).put(72, pages[1]);
    auto response = driver->call(create);
    EXPECT_EQ(response.status, 0x105U);
    EXPECT_EQ(response.bytes.size(), 40U);
    const auto handle = response.get<std::uint64_t>(32);
    ASSERT_NE(handle, 0U);
    EXPECT_FALSE(function.regions().find(RegionHandle(handle)));

    Request add(MANA_HW_DMA_REGION_ADD_PAGES, 56 + 16);
    add.put<std::uint64_t>(40, handle)
        .put<std::uint32_t>(48, 2)
        .put(56, pages[2])
        .put(64, pages[3]);
    EXPECT_EQ(status(add), 0x105U);
    // Neither too many, nor more than the message holds, nor a crooked page does harm.
    EXPECT_EQ(status(add), kHwcInvalidParameter);
    add.put<std::uint32_t>(48, 3);
    EXPECT_EQ(status(add), kHwcInvalidParameter);
    Request last(MANA_HW_DMA_REGION_ADD_PAGES, 56 + 8);
    last.put<std::uint64_t>(40, handle).put<std::uint32_t>(48, 1).put(56, pages[4] + 8);
    EXPECT_EQ(status(last), kHwcInvalidParameter);
    last.put(56, pages[4]);
    EXPECT_EQ(status(last), 0U);
    EXPECT_EQ(status(last), kHwcInvalidParameter);
    const auto region = function.regions().find(RegionHandle(handle));
    ASSERT_TRUE(region);
    ASSERT_EQ((*region)->extents().size(), 5U);
    for (std::size_t i = 0; i < 5; ++i)
        EXPECT_EQ((*region)->extents()[i].address.value(), pages[i]);
    EXPECT_TRUE(driver->destroy_region(handle));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, BigRegionsTakeManyMessages) {
    std::vector<std::uint64_t> pages;
    for (std::uint64_t i = 0; i < 5000; ++i) pages.push_back(0x200000000 + i * 4096);
    const auto handle = driver->create_region(pages, 5000 * 4096);
    ASSERT_TRUE(handle);
    EXPECT_EQ((*function.regions().find(RegionHandle(*handle)))->extents().size(), 1U);
    EXPECT_TRUE(driver->create_region(pages, 5000 * 4096, 0, 12, 7));
}

TEST_F(CommandTest, IncompleteRegionsCanBeDestroyed) {
    Request create(MANA_HW_CREATE_DMA_REGION, 64, 40);
    create.put<std::uint64_t>(40, 5 * 4096).put<std::uint32_t>(56, 5);
    const auto response = driver->call(create);
    EXPECT_EQ(response.status, 0x105U);
    EXPECT_TRUE(driver->destroy_region(response.get<std::uint64_t>(32)));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, RegionRefusals) {
    const auto build = [&] {
        Request create(MANA_HW_CREATE_DMA_REGION, 72, 40);
        create.put<std::uint64_t>(40, 4096).put<std::uint32_t>(56, 1).put<std::uint32_t>(60, 1);
        create.put<std::uint64_t>(64, 0x100000000);
        return create;
    };
    EXPECT_EQ(status(build().put<std::uint64_t>(40, 0)), kHwcInvalidParameter);     // empty
    EXPECT_EQ(status(build().put<std::uint64_t>(40, 4097)), kHwcInvalidParameter);  // too few pages
    EXPECT_EQ(status(build().put<std::uint64_t>(40, UINT64_MAX).put<std::uint32_t>(48, 4095)),
              kHwcInvalidParameter);
    EXPECT_EQ(status(build().put<std::uint32_t>(48, 1)), kHwcInvalidParameter);  // passes the page
    EXPECT_EQ(status(build().put<std::uint32_t>(48, 4096)),
              kHwcInvalidParameter);  // offset outside
    EXPECT_EQ(status(build().put<std::uint32_t>(60, 2)),
              kHwcInvalidParameter);  // more than the total
    EXPECT_EQ(status(build().put<std::uint32_t>(56, 2).put<std::uint32_t>(60, 2)),
              kHwcInvalidParameter);  // cut
    EXPECT_EQ(status(build().put<std::uint64_t>(64, 0x100000001)), kHwcInvalidParameter);
    for (const std::uint32_t type : {11U, 17U, 20U, 52U, 0xffffffffU})
        EXPECT_EQ(status(build().put<std::uint32_t>(52, type)), kHwcInvalidParameter) << type;
    EXPECT_EQ(status(build().put<std::uint32_t>(56, 0xffffffff)), kHwcNoResources);
    EXPECT_EQ(status(Request(MANA_HW_DMA_REGION_ADD_PAGES, 56).put<std::uint64_t>(40, 1)),
              kHwcNotFound);
    EXPECT_EQ(function.object_counts(), at_rest);
    EXPECT_EQ(status(build()), 0U);
}

TEST_F(CommandTest, AllPageSizesWork) {
    for (const std::uint32_t type : {0U, 1U, 5U, 9U, 10U, 18U, 19U}) {
        const std::uint64_t size = 4096ULL << type;
        const std::vector<std::uint64_t> pages{4 * size, 5 * size, 8 * size};
        const auto handle = driver->create_region(pages, 3 * size - 100, 100, 12 + type);
        ASSERT_TRUE(handle) << type;
        const auto& extents = (*function.regions().find(RegionHandle(*handle)))->extents();
        ASSERT_EQ(extents.size(), 2U);
        EXPECT_EQ(extents[0].address.value(), 4 * size + 100);
        EXPECT_EQ(extents[0].length, 2 * size - 100);
        EXPECT_EQ(extents[1].length, size);
    }
}

// ---- PDs and MRs

TEST_F(CommandTest, PdsHaveIdsAndHandles) {
    const auto pd = driver->create_pd();
    ASSERT_TRUE(pd);
    EXPECT_EQ((*function.pds().find(PdHandle(pd->handle)))->id.value(), pd->id);
    EXPECT_EQ((*function.pds().find(Pdn(pd->id), 3))->handle.value(), pd->handle);
    EXPECT_TRUE(driver->destroy_pd(*pd));
    EXPECT_FALSE(driver->destroy_pd(*pd));
    EXPECT_EQ(driver->last_status, kHwcNotFound);
    EXPECT_FALSE(function.pds().find(Pdn(pd->id), 3));
    // A device's PD has no handle: not 0, not its id.
    EXPECT_FALSE(driver->destroy_pd({0, 0}));
    EXPECT_FALSE(driver->destroy_pd({rnic.pd, 0}));
}

TEST_F(CommandTest, ShortPdIdsHave16Bits) {
    Request request(MANA_HW_CREATE_PD, 48, 48);
    request.put<std::uint32_t>(40, 4);
    const auto response = driver->call(request);
    ASSERT_TRUE(response.ok());
    EXPECT_LT(response.get<std::uint32_t>(40), 65536U);
    // Whatever is asked for by the configuration.
    FunctionConfig many;
    many.max_pds = 1U << 20;
    const Function other(executor, memory, irq, many);
    EXPECT_LT(other.config().max_pds, 65536U);
}

TEST_F(CommandTest, PdInUseIsBusy) {
    const auto pd = driver->create_pd();
    const auto mr = driver->create_mr(*pd, ram.alloc(4096), 4096, kLocalRead);
    ASSERT_TRUE(mr);
    EXPECT_FALSE(driver->destroy_pd(*pd));
    EXPECT_EQ(driver->last_status, kHwcBusy);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    {
        const auto user = function.pds().find(PdHandle(pd->handle));
        EXPECT_FALSE(driver->destroy_pd(*pd));
        EXPECT_EQ(driver->last_status, kHwcBusy);
    }
    EXPECT_TRUE(driver->destroy_pd(*pd));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, GvaMrMapsItsAddresses) {
    const auto pd = driver->create_pd();
    const auto at = ram.alloc(3 * 4096) + 0x123;
    const std::uint64_t va = 0x7f0000000123;
    const auto mr = driver->create_mr(*pd, at, 5000, kLocalRead | kLocalWrite | kRemoteRead, va);
    ASSERT_TRUE(mr);
    EXPECT_NE(mr->lkey, 0U);
    EXPECT_EQ(mr->lkey, mr->rkey);
    EXPECT_EQ(function.object_counts().regions, 0U);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va, 5000, kLocalWrite), MrFault::kNone);
    ASSERT_EQ(spans.size(), 1U);
    EXPECT_EQ(spans[0].data(), ram.at(at));
    EXPECT_EQ(spans[0].size(), 5000U);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va + 4999, 1), MrFault::kNone);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va - 1, 2), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va + 4999, 2), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va, UINT64_MAX), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, pd->id, va, 1, kRemoteWrite), MrFault::kAccess);
    EXPECT_EQ(resolve(mr->lkey, pd->id + 1, va, 1), MrFault::kKey);
    EXPECT_EQ(resolve(mr->lkey + 1, pd->id, va, 1), MrFault::kKey);
    EXPECT_EQ(resolve(0, pd->id, 1, 0), MrFault::kNone);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    EXPECT_FALSE(driver->destroy_mr(*mr));
    EXPECT_EQ(resolve(mr->lkey, pd->id, va, 1), MrFault::kKey);
}

TEST_F(CommandTest, ZeroBasedMrStartsAtZero) {
    const auto pd = driver->create_pd();
    const auto at = ram.alloc(8192) + 16;
    const auto region = driver->create_region(at, 4096);
    const auto response = driver->call(
        mr(pd->handle, 4).put<std::uint64_t>(56, *region).put<std::uint32_t>(64, kLocalRead));
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(resolve(response.get<std::uint32_t>(40), pd->id, 1, 4095), MrFault::kNone);
    EXPECT_EQ(spans.at(0).data(), ram.at(at + 1));
    EXPECT_EQ(resolve(response.get<std::uint32_t>(40), pd->id, at.value(), 1), MrFault::kRange);
}

TEST_F(CommandTest, GpaMrNeedsAPdThatAllowsIt) {
    const auto user = driver->create_pd(false);
    const auto kernel = driver->create_pd(true);
    EXPECT_FALSE(driver->create_gpa_mr(*user));
    EXPECT_EQ(driver->last_status, kHwcInvalidParameter);
    const auto mr = driver->create_gpa_mr(*kernel);
    ASSERT_TRUE(mr);
    const auto at = ram.alloc(4096);
    EXPECT_EQ(resolve(mr->lkey, kernel->id, at.value() + 7, 9, kLocalWrite), MrFault::kNone);
    EXPECT_EQ(spans.at(0).data(), ram.at(at + 7));
    EXPECT_EQ(resolve(mr->lkey, kernel->id, at.value(), 1, kRemoteRead), MrFault::kAccess);
    EXPECT_EQ(resolve(mr->lkey, kernel->id, 0x5000, 1), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, kernel->id, UINT64_MAX, 2), MrFault::kRange);
}

TEST_F(CommandTest, WindowsAreNeverAccessible) {
    const auto pd = driver->create_pd();
    for (const std::uint32_t type : {6U, 7U}) {
        const auto response = driver->call(mr(pd->handle, type));
        ASSERT_TRUE(response.ok());
        EXPECT_EQ(resolve(response.get<std::uint32_t>(44), pd->id, 0, 1, 0), MrFault::kKey);
        EXPECT_TRUE(driver->destroy_mr({response.get<std::uint64_t>(32), 0, 0}));
    }
}

TEST_F(CommandTest, DeviceMemoryIsReachedThroughItsMr) {
    const auto pd = driver->create_pd();
    const auto dm = driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 1000));
    ASSERT_TRUE(dm.ok());
    const auto handle = dm.get<std::uint64_t>(32);
    const auto build = [&](std::uint64_t offset, std::uint64_t length) {
        return mr(pd->handle, 5)
            .put<std::uint64_t>(56, handle)
            .put<std::uint64_t>(64, offset)
            .put<std::uint32_t>(72, kLocalRead | kLocalWrite)
            .put<std::uint64_t>(80, length);
    };
    EXPECT_EQ(status(build(0, 1001)), kHwcInvalidParameter);
    EXPECT_EQ(status(build(1000, 1)), kHwcInvalidParameter);
    EXPECT_EQ(status(build(UINT64_MAX, 2)), kHwcInvalidParameter);
    const auto none = driver->call(build(1000, 0));
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(resolve(none.get<std::uint32_t>(40), pd->id, 0, 1), MrFault::kRange);
    EXPECT_TRUE(driver->destroy_mr({none.get<std::uint64_t>(32), 0, 0}));
    EXPECT_EQ(status(build(0, 1).put<std::uint64_t>(56, handle + 1)), kHwcNotFound);
    const auto response = driver->call(build(100, 900));
    ASSERT_TRUE(response.ok());
    const auto key = response.get<std::uint32_t>(40);
    EXPECT_EQ(resolve(key, pd->id, 0, 900, kLocalWrite), MrFault::kNone);
    ASSERT_EQ(spans.size(), 1U);
    spans[0][0] = std::byte{0x5a};
    EXPECT_EQ(resolve(key, pd->id, 1, 900), MrFault::kRange);
    EXPECT_EQ(status(Request(MANA_HW_DESTROY_DM, 48).put<std::uint64_t>(40, handle)), kHwcBusy);
    EXPECT_TRUE(driver->destroy_mr({response.get<std::uint64_t>(32), 0, 0}));
    EXPECT_EQ(status(Request(MANA_HW_DESTROY_DM, 48).put<std::uint64_t>(40, handle)), 0U);
    EXPECT_EQ(status(Request(MANA_HW_DESTROY_DM, 48).put<std::uint64_t>(40, handle)), kHwcNotFound);
    EXPECT_EQ(status(Request(MANA_HW_ALLOC_DM, 56, 40)), kHwcInvalidParameter);
    EXPECT_EQ(status(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, UINT64_MAX)),
              kHwcNoResources);
    EXPECT_TRUE(driver->destroy_pd(*pd));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, FailedMrLeavesTheRegionWithTheDriver) {
    const auto pd = driver->create_pd();
    const auto region = driver->create_region(ram.alloc(4096), 4096);
    EXPECT_FALSE(driver->create_mr_of(*pd, *region, 0, 0x40));                // unknown right
    EXPECT_FALSE(driver->create_mr_of({pd->handle + 99, 0}, *region, 0, 1));  // no such PD
    EXPECT_FALSE(driver->create_mr_of(*pd, *region, UINT64_MAX - 4094, 1));   // wraps
    EXPECT_FALSE(driver->create_mr_of(*pd, *region + 1, 0, 1));               // no such region
    EXPECT_EQ(status(mr(pd->handle, 3)), kHwcInvalidParameter);
    EXPECT_EQ(status(mr(pd->handle, 0)), kHwcInvalidParameter);
    EXPECT_TRUE(function.regions().find(RegionHandle(*region)));
    EXPECT_TRUE(driver->create_mr_of(*pd, *region, UINT64_MAX - 4095, 1));
    EXPECT_FALSE(driver->create_mr_of(*pd, *region, 0, 1));  // consumed
    EXPECT_FALSE(driver->destroy_region(*region));
}

TEST_F(CommandTest, MrChangesAndKeepsItsKey) {
    const auto pd = driver->create_pd();
    const auto other = driver->create_pd();
    const auto at = ram.alloc(4096);
    const auto mr = driver->create_mr(*pd, at, 4096, kLocalRead, 0);
    KeyChanges::Change change{.mr = mr->handle};
    ASSERT_TRUE(function.key_changes().change(change)) << "nothing";
    change.access = kLocalRead | kLocalWrite;
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(mr->lkey, pd->id, 0, 4096, kLocalWrite), MrFault::kNone);
    change = {.mr = mr->handle, .pd = PdHandle(other->handle)};
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(mr->lkey, pd->id, 0, 1), MrFault::kKey);
    EXPECT_EQ(resolve(mr->lkey, other->id, 0, 1, kLocalWrite), MrFault::kNone);
    EXPECT_TRUE(driver->destroy_pd(*pd)) << "not in use any more";
    EXPECT_FALSE(driver->destroy_pd(*other));
    const std::uint64_t used = function.account().used();
    const auto memory_behind = ram.alloc(8192);
    const auto region = driver->create_region(memory_behind, 8192);
    change = {.mr = mr->handle, .region = RegionHandle(*region), .address = 0x700000};
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(mr->lkey, other->id, 0, 1), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, other->id, 0x700000, 8192), MrFault::kNone);
    EXPECT_EQ(spans.at(0).data(), ram.at(memory_behind));
    EXPECT_FALSE(driver->destroy_region(*region)) << "taken";
    EXPECT_EQ(function.account().used(), used) << "the old one is freed";
    // To memory in two pieces, and back to one.
    const auto low = ram.alloc(4096);
    (void)ram.alloc(4096);
    const auto high = ram.alloc(4096);
    const std::uint64_t pages[] = {high.value(), low.value()};
    change.region = RegionHandle(*driver->create_region(pages, 8192));
    change.address = 0x5000;
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(mr->lkey, other->id, 0x700000, 1), MrFault::kRange);
    EXPECT_EQ(resolve(mr->lkey, other->id, 0x5000, 8192), MrFault::kNone);
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_EQ(spans[0].data(), ram.at(high));
    EXPECT_EQ(spans[1].data(), ram.at(low));
    change.region = RegionHandle(*driver->create_region(low, 4096));
    change.access = kLocalRead;
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(mr->lkey, other->id, 0x5000, 4096), MrFault::kNone);
    EXPECT_EQ(spans.at(0).data(), ram.at(low));
    EXPECT_EQ(resolve(mr->lkey, other->id, 0x5000, 1, kLocalWrite), MrFault::kAccess);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    EXPECT_TRUE(driver->destroy_pd(*other));
    EXPECT_EQ(function.object_counts(), at_rest);
}

TEST_F(CommandTest, RefusedChangeLeavesMrAndRegion) {
    const auto pd = driver->create_pd(true);
    const auto mr = driver->create_mr(*pd, ram.alloc(4096), 4096, kLocalRead, 0);
    const auto gpa = driver->create_gpa_mr(*pd);
    const auto region = driver->create_region(ram.alloc(4096), 4096);
    const auto why = [&](const KeyChanges::Change& change) {
        const auto changed = function.key_changes().change(change);
        return changed ? base::ErrorCode::kIo : changed.error().code;
    };
    const auto handle = RegionHandle(*region);
    const auto access = kLocalRead | kLocalWrite;
    EXPECT_EQ(why({.mr = mr->lkey, .access = access}), base::ErrorCode::kNotFound);
    EXPECT_EQ(why({.mr = mr->handle + 0x100000, .access = access}), base::ErrorCode::kNotFound);
    EXPECT_EQ(why({.mr = 1ULL << 32 | rnic.gpa_key, .access = access}), base::ErrorCode::kNotFound);
    EXPECT_EQ(why({.mr = gpa->handle, .access = access}), base::ErrorCode::kInvalidArgument);
    EXPECT_EQ(why({.mr = gpa->handle, .region = handle}), base::ErrorCode::kInvalidArgument);
    EXPECT_EQ(why({.mr = mr->handle, .access = 0x40}), base::ErrorCode::kInvalidArgument);
    EXPECT_EQ(why({.mr = mr->handle, .pd = PdHandle(pd->handle + 99), .access = access}),
              base::ErrorCode::kNotFound);
    EXPECT_EQ(why({.mr = mr->handle, .pd = PdHandle(0), .access = access}),
              base::ErrorCode::kNotFound);
    EXPECT_EQ(why({.mr = mr->handle, .access = access, .region = RegionHandle(*region + 1)}),
              base::ErrorCode::kNotFound);
    EXPECT_EQ(
        why({.mr = mr->handle, .access = access, .region = handle, .address = UINT64_MAX - 4094}),
        base::ErrorCode::kInvalidArgument);
    EXPECT_EQ(resolve(mr->lkey, pd->id, 0, 4096), MrFault::kNone);
    EXPECT_EQ(resolve(mr->lkey, pd->id, 0, 1, kLocalWrite), MrFault::kAccess);
    EXPECT_TRUE(function.regions().find(handle));
    EXPECT_TRUE(driver->destroy_region(*region));
}

TEST_F(CommandTest, DeviceMemoryChangesItsRightsAlone) {
    const auto pd = driver->create_pd();
    const auto handle = driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 1000))
                            .get<std::uint64_t>(32);
    const auto response = driver->call(mr(pd->handle, 5)
                                           .put<std::uint64_t>(56, handle)
                                           .put<std::uint32_t>(72, kLocalRead)
                                           .put<std::uint64_t>(80, 1000));
    ASSERT_TRUE(response.ok());
    const auto key = response.get<std::uint32_t>(40);
    KeyChanges::Change change{.mr = response.get<std::uint64_t>(32),
                              .access = kLocalRead | kLocalWrite};
    ASSERT_TRUE(function.key_changes().change(change));
    EXPECT_EQ(resolve(key, pd->id, 0, 1000, kLocalWrite), MrFault::kNone);
    const auto region = driver->create_region(ram.alloc(4096), 4096);
    change.region = RegionHandle(*region);
    EXPECT_FALSE(function.key_changes().change(change));
    EXPECT_TRUE(driver->destroy_region(*region));
}

class DmCopyTest : public CommandTest {
protected:
    static constexpr std::uint64_t kBytes = 200000;
    void SetUp() override {
        CommandTest::SetUp();
        dm = alloc(kBytes);
        at = ram.alloc(kPiece + 4096);
        std::uint8_t value = 0;
        for (std::byte& byte : ram.bytes(at, kPiece + 4096)) byte = std::byte{value += 7};
    }
    std::uint64_t alloc(std::uint64_t bytes) {
        return driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, bytes))
            .get<std::uint64_t>(32);
    }
    /// What is in the memory, by an MR of it.
    std::vector<std::byte> contents() {
        const auto pd = driver->create_pd();
        const auto response = driver->call(mr(pd->handle, 5)
                                               .put<std::uint64_t>(56, dm)
                                               .put<std::uint32_t>(72, kLocalRead)
                                               .put<std::uint64_t>(80, kBytes));
        EXPECT_EQ(resolve(response.get<std::uint32_t>(40), pd->id, 0, kBytes), MrFault::kNone);
        const std::vector<std::byte> bytes(spans.at(0).begin(), spans.at(0).end());
        EXPECT_TRUE(driver->destroy_mr({response.get<std::uint64_t>(32), 0, 0}));
        EXPECT_TRUE(driver->destroy_pd(*pd));
        return bytes;
    }
    static constexpr std::uint32_t kPiece = MANA_HW_EXT_COPY_DM_BYTES;
    std::uint64_t dm = 0;
    GuestAddr at{};
};

TEST_F(DmCopyTest, EveryPlaceAndLength) {
    std::vector<std::byte> want(kBytes);
    for (const std::uint64_t offset : {0UL, 1UL, 4095UL, 99999UL, kBytes - kPiece}) {
        for (const std::uint32_t length : {1U, 2U, 4096U, 5001U, kPiece}) {
            ASSERT_TRUE(function.device_memory().copy({dm, offset, at + offset % 8, length, true}));
            std::ranges::copy(ram.bytes(at + offset % 8, length),
                              want.begin() + static_cast<std::ptrdiff_t>(offset));
            ASSERT_EQ(contents(), want) << offset << " " << length;
            const auto back = ram.alloc(kPiece + 4096);
            ASSERT_TRUE(function.device_memory().copy({dm, offset, back + 3, length, false}));
            ASSERT_TRUE(std::ranges::equal(
                ram.bytes(back + 3, length),
                std::span(want).subspan(static_cast<std::size_t>(offset), length)));
            EXPECT_EQ(ram.bytes(back + 2, 1)[0], std::byte{0});
            EXPECT_EQ(ram.bytes(back + 3 + length, 1)[0], std::byte{0});
        }
    }
    EXPECT_TRUE(function.device_memory().copy({dm, kBytes - 1, at, 1, true}));
}

TEST_F(DmCopyTest, NothingOfWhatIsRefused) {
    ASSERT_TRUE(function.device_memory().copy({dm, 0, at, kPiece, true}));
    const auto before = contents();
    const std::vector<std::byte> guest(ram.bytes(at, kPiece).begin(), ram.bytes(at, kPiece).end());
    const auto other = alloc(64);
    const auto beyond = GuestAddr(1ULL << 50);
    for (const bool to_dm : {true, false}) {
        const auto why = [&](std::uint64_t handle, std::uint64_t offset, GuestAddr address,
                             std::uint32_t length) {
            const auto copied =
                function.device_memory().copy({handle, offset, address, length, to_dm});
            return copied ? base::ErrorCode::kIo : copied.error().code;
        };
        EXPECT_EQ(why(dm + 99, 0, at + 5, 8), base::ErrorCode::kNotFound);
        EXPECT_EQ(why(0, 0, at + 5, 8), base::ErrorCode::kNotFound);
        const auto invalid = base::ErrorCode::kInvalidArgument;
        EXPECT_EQ(why(dm, 0, at + 5, 0), invalid);
        EXPECT_EQ(why(dm, 0, at + 5, kPiece + 1), invalid);
        EXPECT_EQ(why(dm, 0, at + 5, UINT32_MAX), invalid);
        EXPECT_EQ(why(dm, kBytes, at + 5, 1), invalid);
        EXPECT_EQ(why(dm, kBytes - 7, at + 5, 8), invalid);
        EXPECT_EQ(why(dm, UINT64_MAX, at + 5, 1), invalid);
        EXPECT_EQ(why(dm, UINT64_MAX - 6, at + 5, 8), invalid);
        EXPECT_EQ(why(other, 1, at + 5, 64), invalid);
        EXPECT_EQ(why(dm, 0, beyond, 8), invalid);
        EXPECT_EQ(why(dm, 0, GuestAddr(UINT64_MAX - 3), 8), invalid);
        EXPECT_EQ(why(dm, 0, GuestAddr(UINT64_MAX), 1), invalid);
    }
    EXPECT_EQ(contents(), before);
    EXPECT_TRUE(std::ranges::equal(ram.bytes(at, kPiece), guest));
}

TEST_F(DmCopyTest, GuestMemoryWithAHoleIsRefusedAsAWhole) {
    std::vector<std::byte> two(8192, std::byte{0x55});
    std::vector<std::byte> readable(4096, std::byte{0x66});
    const auto base_of = GuestAddr(1ULL << 44);
    ASSERT_TRUE(memory.map_host(base_of, std::span(two).first(4096)));
    ASSERT_TRUE(memory.map_host(base_of + 4096, std::span(two).last(4096)));
    ASSERT_TRUE(memory.map_host(base_of + 8192, readable, false));
    ASSERT_TRUE(memory.map_hole(base_of + 12288, 4096));
    ASSERT_TRUE(function.device_memory().copy({dm, 10, base_of + 100, 8000, true})) << "neighbours";
    ASSERT_TRUE(function.device_memory().copy({dm, 10, base_of + 4096, 8192, true}));
    const auto before = contents();
    EXPECT_EQ(before[10], std::byte{0x55});
    EXPECT_EQ(before[10 + 8191], std::byte{0x66});
    EXPECT_FALSE(function.device_memory().copy({dm, 100000, base_of + 8000, 5000, true}))
        << "a hole";
    EXPECT_FALSE(function.device_memory().copy({dm, 100000, base_of + 8000, 200, false}))
        << "for reading";
    EXPECT_EQ(contents(), before);
    EXPECT_EQ(two[8191], std::byte{0x55});
    memory.unmap_all();
    EXPECT_FALSE(function.device_memory().copy({dm, 0, base_of, 1, true}));
}

TEST_F(DmCopyTest, EndedMemoryIsNone) {
    EXPECT_EQ(status(Request(MANA_HW_DESTROY_DM, 48).put<std::uint64_t>(40, dm)), 0U);
    EXPECT_FALSE(function.device_memory().copy({dm, 0, at, 1, true}));
    dm = alloc(8);
    EXPECT_TRUE(function.device_memory().copy({dm, 0, at, 8, true}));
    function.reset();
    EXPECT_FALSE(function.device_memory().copy({dm, 0, at, 8, true}));
}

TEST_F(CommandTest, IncompleteRegionIsNoMr) {
    const auto pd = driver->create_pd();
    Request create(MANA_HW_CREATE_DMA_REGION, 64, 40);
    create.put<std::uint64_t>(40, 4096).put<std::uint32_t>(56, 1);
    const auto handle = driver->call(create).get<std::uint64_t>(32);
    EXPECT_FALSE(driver->create_mr_of(*pd, handle, 0, 1));
    EXPECT_EQ(driver->last_status, kHwcNotFound);
}

TEST_F(CommandTest, ShortCreateMrOf612Works) {
    const auto pd = driver->create_pd();
    const auto region = driver->create_region(ram.alloc(4096), 4096);
    Request request(MANA_HW_CREATE_MR, 76, 48);
    request.put<std::uint64_t>(40, pd->handle)
        .put<std::uint32_t>(48, 2)
        .put<std::uint64_t>(56, *region);
    request.put<std::uint64_t>(64, 0x1000).put<std::uint32_t>(72, 1);
    EXPECT_EQ(status(request), 0U);
}

TEST_F(CommandTest, InternalKeysAreNotTheGuestsToDestroy) {
    EXPECT_FALSE(driver->destroy_mr({rnic.gpa_key, 0, 0}));
    EXPECT_FALSE(driver->destroy_mr({1ULL << 32 | rnic.gpa_key, 0, 0}));
    EXPECT_FALSE(driver->destroy_mr({1ULL << 32 | driver->init_data[MANA_HW_INIT_GPA_KEY], 0, 0}));
    EXPECT_TRUE(driver->call(Request(3, 40, 296)).ok());
}

TEST_F(CommandTest, AClaimThatEndsGivesTheRegionBack) {
    const RegionHandle handle(*driver->create_region(ram.alloc(4096), 4096));
    const ObjectCounts before = function.object_counts();
    {
        const auto claim = function.regions().claim(handle);
        ASSERT_TRUE(claim);
        EXPECT_FALSE(function.regions().claim(handle));
        EXPECT_EQ(function.object_counts(), before);
    }
    EXPECT_EQ(function.object_counts(), before);
    // Too small for that many entries.
    EXPECT_FALSE(
        function.cqs().create(*function.regions().claim(handle), 8192, nullptr, page_of(rnic), {}));
    EXPECT_EQ(function.object_counts(), before);
    const auto taken = function.regions().claim(handle)->take();
    EXPECT_EQ(taken->length(), 4096U);
    EXPECT_FALSE(driver->destroy_region(handle.value()));
    EXPECT_EQ(function.object_counts().regions, at_rest.regions);
    EXPECT_EQ(function.object_counts().region_pages, at_rest.region_pages);
}

TEST_F(CommandTest, AClaimOutlivesItsRegionAndItsTable) {
    const RegionHandle handle(*driver->create_region(ram.alloc(4096), 4096));
    auto claim = function.regions().claim(handle);
    ASSERT_TRUE(claim);
    EXPECT_TRUE(driver->destroy_region(handle.value()));
    *claim = RegionClaim();
    EXPECT_EQ(function.object_counts(), at_rest);
}

// ---- quotas

class QuotaTest : public DriverFixture {
protected:
    static FunctionConfig small() {
        FunctionConfig config;
        config.doorbell_pages = 8;
        config.max_sqs = 9;
        config.max_rqs = 9;
        config.max_cqs = 6;
        config.max_eqs = 3;
        config.max_pds = 4;
        config.max_mrs = 6;
        config.max_regions = 3;
        config.max_region_pages = 100;
        config.max_device_memory = 4096;
        return config;
    }
    QuotaTest() : DriverFixture(small()) {}
};

TEST_F(QuotaTest, EqsPdsAndMrs) {
    EXPECT_TRUE(driver->create_eq(3, rnic, 1));
    EXPECT_TRUE(driver->create_eq(3, rnic, 1));
    EXPECT_FALSE(driver->create_eq(3, rnic, 1));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    std::optional<test::DriverPd> pd;
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(pd = driver->create_pd());
    EXPECT_FALSE(driver->create_pd());
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    const auto at = ram.alloc(4096);
    std::optional<test::DriverMr> mr;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(mr = driver->create_mr(*pd, at, 4096, 1));
    EXPECT_FALSE(driver->create_mr(*pd, at, 4096, 1));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    EXPECT_EQ(function.object_counts().regions, 0U);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    const auto again = driver->create_mr(*pd, at, 4096, 1);
    ASSERT_TRUE(again);
    EXPECT_NE(again->lkey, mr->lkey);
}

TEST_F(QuotaTest, RegionsAndPages) {
    std::vector<std::uint64_t> handles;
    for (int i = 0; i < 3; ++i) handles.push_back(*driver->create_region(ram.alloc(4096), 4096));
    EXPECT_FALSE(driver->create_region(ram.alloc(4096), 4096));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    for (const auto handle : handles) EXPECT_TRUE(driver->destroy_region(handle));
    EXPECT_FALSE(driver->create_region(ram.alloc(101 * 4096), 101 * 4096));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    EXPECT_TRUE(driver->create_region(ram.alloc(100 * 4096), 100 * 4096));
    EXPECT_FALSE(driver->create_region(ram.alloc(4096), 4096));
}

TEST_F(QuotaTest, MemoryOfConsumedRegionsCounts) {
    const auto pd = driver->create_pd();
    const auto region = driver->create_region(ram.alloc_scattered(30), 30 * 4096);
    ASSERT_TRUE(region);
    const auto mr = driver->create_mr_of(*pd, *region, 0, 1);
    ASSERT_TRUE(mr);
    const auto rest = function.account().charge(function.account().left() - 600);
    EXPECT_FALSE(driver->create_region(ram.alloc_scattered(30), 30 * 4096));
    EXPECT_EQ(driver->last_status, kHwcNoResources);
    EXPECT_EQ(function.object_counts().regions, 0U);
    EXPECT_TRUE(driver->destroy_mr(*mr));
    EXPECT_TRUE(driver->create_region(ram.alloc_scattered(30), 30 * 4096));
}

TEST_F(QuotaTest, QueueIds) {
    std::vector<SqIds> sqs;
    for (int i = 0; i < 2; ++i) {
        auto three = function.sqs().allocate(3, 4);
        ASSERT_TRUE(three);
        sqs.push_back(std::move(*three));
    }
    EXPECT_EQ(function.sqs().allocate(3, 4).error().code, base::ErrorCode::kExhausted);
    const auto one = function.sqs().allocate(1, 1);
    EXPECT_TRUE(one);
    sqs.pop_back();
    EXPECT_TRUE(function.sqs().allocate(3, 4));
    std::vector<RqIds> rqs;
    for (auto rq = function.rqs().allocate(1, 1); rq; rq = function.rqs().allocate(1, 1))
        rqs.push_back(std::move(*rq));
    EXPECT_EQ(rqs.size(), 8U);
}

TEST_F(QuotaTest, CqIdsStayBelowTheLimitAndComeBackLate) {
    std::vector<std::uint32_t> ids;
    test::DriverCq view;
    for (int i = 0; i < 20; ++i) {
        auto cq = make_cq(nullptr, view);
        ASSERT_NE(cq, nullptr);
        EXPECT_LT(view.id, 6U);
        ids.push_back(view.id);
        cq = nullptr;
    }
    for (std::size_t i = 4; i < ids.size(); ++i) EXPECT_EQ(ids[i], ids[i - 4]);
    std::vector<Handle<CompletionQueue>> cqs;
    for (int i = 0; i < 4; ++i) cqs.push_back(make_cq(nullptr, view));
    EXPECT_NE(cqs.back(), nullptr);
    EXPECT_EQ(make_cq(nullptr, view), nullptr);
    EXPECT_EQ(function.object_counts().regions, 1U);  // of the one refused: the driver's again
}

TEST_F(QuotaTest, DeviceMemory) {
    const auto alloc = [&](std::uint64_t n) {
        return driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, n));
    };
    EXPECT_EQ(alloc(4097).status, kHwcNoResources);
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(alloc(1).ok());
    EXPECT_EQ(alloc(1).status, kHwcNoResources);
}

TEST_F(QuotaTest, ResetFreesAll) {
    const auto pd = driver->create_pd();
    (void)driver->create_mr(*pd, ram.alloc(4096), 4096, 1);
    (void)driver->create_eq(3, rnic, 1);
    (void)driver->create_region(ram.alloc(4096), 4096);
    (void)driver->call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 100));
    (void)driver->allocate_page();
    test::DriverCq view;
    auto cq = make_cq(nullptr, view);
    EXPECT_NE(cq, nullptr);
    bool objects_alive = false;
    rdma.on_reset = [&] {
        objects_alive = function.cqs().find(Cqn(view.id)) != nullptr;
        cq = nullptr;
    };
    function.reset();
    EXPECT_TRUE(objects_alive) << "clients are reset first";
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
    EXPECT_EQ(function.account().used(), 0U);
    EXPECT_EQ(function.counters().resets.value(), 1U);
    ASSERT_TRUE(driver->bring_up());
    EXPECT_TRUE(driver->register_device(3));
}

}  // namespace
}  // namespace openmana::gdma
