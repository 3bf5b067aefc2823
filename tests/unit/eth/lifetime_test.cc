// SPDX-License-Identifier: Apache-2.0
// A queue holds what it was made with, and the vPort's setting names no successor of what ended.
#include <mana/eth.h>
#include <mana/gdma.h>

#include "fixture.h"
#include "support/scarcity.h"

namespace openmana::eth::test {
namespace {

class OtherDevice final : public gdma::Client {
public:
    [[nodiscard]] std::uint16_t device_type() const override { return 3; }
    void command(const gdma::HwcRequest&, gdma::HwcReply&) override {}
    void reset() override {}
};

class EthLifetime : public EthTest {
protected:
    EthLifetime() { function.attach(other); }
    std::uint32_t create_sq() {
        const auto ring = [&] { return *driver.create_region(driver.alloc_ring(8192)); };
        const auto reply =
            guest.create_wq(MANA_HW_ETH_SQ, ring(), ring(), 8192, 8192, MANA_HW_ETH_NO_EQ);
        object = reply.get<std::uint64_t>(0x28);
        return reply.status;
    }
    OtherDevice other;
    std::uint64_t object = 0;  // of the SQ made last
};

TEST_F(EthLifetime, TheVportTakesNoPdOfTheHwcOrOfAnotherDevice) {
    const auto device = driver.register_device(3);
    ASSERT_TRUE(device);
    EXPECT_FALSE(guest.config_tx(device->pd, guest.device.page).ok());
    EXPECT_FALSE(guest.config_tx(driver.init_data[MANA_HW_INIT_PD_ID], guest.device.page).ok());
    EXPECT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    const auto pd = driver.create_pd();
    EXPECT_TRUE(guest.config_tx(pd->id, guest.device.page).ok());
}

TEST_F(EthLifetime, ASendQueueHoldsItsPdAndItsPage) {
    const auto pd = driver.create_pd();
    const auto page = driver.allocate_page();
    ASSERT_TRUE(guest.config_tx(pd->id, page).ok());
    ASSERT_EQ(create_sq(), 0U);
    EXPECT_FALSE(driver.destroy_pd(*pd));
    EXPECT_EQ(driver.last_status, gdma::kHwcBusy);
    EXPECT_FALSE(driver.free_page(page));
    EXPECT_EQ(driver.last_status, gdma::kHwcBusy);
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_SQ, object).ok());
    EXPECT_TRUE(driver.destroy_pd(*pd)) << "the vPort's setting alone holds nothing";
    EXPECT_TRUE(driver.free_page(page));
}

TEST_F(EthLifetime, TheVportForgetsAPdThatEndedEvenWhenItsNumberComesBack) {
    auto pd = driver.create_pd();
    const auto id = pd->id;
    ASSERT_TRUE(guest.config_tx(id, guest.device.page).ok());
    ASSERT_TRUE(driver.destroy_pd(*pd));
    EXPECT_EQ(create_sq(), gdma::kHwcInvalidParameter);
    for (pd = driver.create_pd(); pd && pd->id != id; pd = driver.create_pd())
        ASSERT_TRUE(driver.destroy_pd(*pd));
    ASSERT_TRUE(pd);
    EXPECT_EQ(create_sq(), gdma::kHwcInvalidParameter) << "this is another one";
    ASSERT_TRUE(guest.config_tx(id, guest.device.page).ok());
    EXPECT_EQ(create_sq(), 0U);
}

TEST_F(EthLifetime, TheVportForgetsADoorbellPageThatEnded) {
    const auto page = driver.allocate_page();
    ASSERT_TRUE(guest.config_tx(guest.device.pd, page).ok());
    ASSERT_TRUE(driver.free_page(page));
    std::uint32_t again = driver.allocate_page();
    while (again != page) {
        ASSERT_TRUE(driver.free_page(again));
        again = driver.allocate_page();
    }
    EXPECT_EQ(create_sq(), gdma::kHwcInvalidParameter);
}

TEST_F(EthLifetime, AnotherDeviceThatAQueueNeedsIsNotDeregistered) {
    const auto device = driver.register_device(3);
    ASSERT_TRUE(guest.config_tx(guest.device.pd, device->page).ok());
    ASSERT_EQ(create_sq(), 0U);
    EXPECT_FALSE(driver.deregister_device(3));
    EXPECT_EQ(driver.last_status, gdma::kHwcBusy);
    EXPECT_TRUE(guest.destroy(MANA_HW_ETH_SQ, object).ok());
    EXPECT_TRUE(driver.deregister_device(3));
}

TEST_F(EthLifetime, QueuesAreRefusedWithoutMemoryAndTheirRegionsStay) {
    ASSERT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    for (const std::uint32_t type : {MANA_HW_ETH_SQ, MANA_HW_ETH_RQ}) {
        const auto work = driver.create_region(driver.alloc_ring(8192));
        const auto completions = driver.create_region(driver.alloc_ring(8192));
        ASSERT_TRUE(work && completions);
        openmana::test::expect_refusals_leave_nothing(
            function, driver,
            [&] {
                return guest.create_wq(type, *work, *completions, 8192, 8192, MANA_HW_ETH_NO_EQ)
                    .ok();
            },
            16384);
    }
    function.reset();
    EXPECT_EQ(function.account().used(), 0U);
}

}  // namespace
}  // namespace openmana::eth::test
