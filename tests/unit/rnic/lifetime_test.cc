// SPDX-License-Identifier: Apache-2.0
// What an adapter and its objects hold does not go before them.
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

class RnicLifetime : public ::testing::Test {
protected:
    RnicLifetime() : network(world), node(world, network, 1), host(node.host), hwc(host.hwc()) {
        EXPECT_TRUE(host.bring_up());
    }
    bool destroy_adapter() {
        Request request(MANA_HW_RNIC_DESTROY_ADAPTER, 48, 32, 3);
        return host.call(request.put<std::uint64_t>(40, host.adapter)).ok();
    }
    SimWorld world;
    TestNetwork network;
    Node node;
    RdmaHost& host;
    HwcDriver& hwc;
};

TEST_F(RnicLifetime, TheAdapterHoldsTheEqOfItsEvents) {
    EXPECT_FALSE(hwc.destroy_eq(3, host.fatal_eq));
    EXPECT_EQ(hwc.last_status, gdma::kHwcBusy);
    EXPECT_TRUE(destroy_adapter());
    EXPECT_TRUE(hwc.destroy_eq(3, host.fatal_eq));
}

TEST_F(RnicLifetime, AQpHoldsItsPdItsCqsAndItsPage) {
    host.device.page = hwc.allocate_page();
    auto send_cq = *host.create_cq();
    auto recv_cq = *host.create_cq();
    auto qp = host.create_rc(send_cq, recv_cq);
    ASSERT_TRUE(qp);
    EXPECT_FALSE(hwc.destroy_pd(host.pd));
    EXPECT_EQ(hwc.last_status, gdma::kHwcBusy);
    EXPECT_FALSE(host.destroy_cq(send_cq));
    EXPECT_FALSE(host.destroy_cq(recv_cq));
    EXPECT_FALSE(hwc.free_page(host.device.page));
    EXPECT_EQ(hwc.last_status, gdma::kHwcBusy);
    EXPECT_TRUE(host.destroy_rc(*qp));
    EXPECT_TRUE(hwc.destroy_pd(host.pd));
    EXPECT_FALSE(hwc.free_page(host.device.page)) << "the CQs are on it";
    EXPECT_TRUE(host.destroy_cq(send_cq));
    EXPECT_TRUE(host.destroy_cq(recv_cq));
    EXPECT_TRUE(hwc.free_page(host.device.page));
}

TEST_F(RnicLifetime, DestroyingTheAdapterLetsGoOfAll) {
    auto cq = *host.create_cq();
    ASSERT_TRUE(host.create_rc(cq, cq));
    EXPECT_TRUE(destroy_adapter());
    EXPECT_TRUE(hwc.destroy_pd(host.pd));
    EXPECT_TRUE(hwc.destroy_eq(3, host.eq));
    EXPECT_TRUE(hwc.destroy_eq(3, host.fatal_eq));
    EXPECT_TRUE(hwc.deregister_device(3));
}

TEST_F(RnicLifetime, ACqThatFailsLeavesItsRegionWithTheDriver) {
    const auto at = node.ram.alloc(8192);
    // CQEs do not lie across cache lines.
    const auto region = *hwc.create_region(at + 16, 4096);
    const auto before = node.function.object_counts();
    Request request(MANA_HW_RNIC_CREATE_CQ, 64, 48, 3);
    request.put<std::uint64_t>(40, host.adapter)
        .put<std::uint64_t>(48, region)
        .put<std::uint32_t>(56, host.eq.id)
        .put<std::uint32_t>(60, host.device.page);
    EXPECT_FALSE(host.call(request.fit()).ok());
    EXPECT_EQ(node.function.object_counts(), before);
    EXPECT_TRUE(hwc.destroy_region(region));
}

}  // namespace
}  // namespace openmana::test
