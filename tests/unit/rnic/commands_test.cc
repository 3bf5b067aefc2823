// SPDX-License-Identifier: Apache-2.0
// The commands of the RDMA device (RNIC 2, 3.2).
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

class RnicCommandTest : public ::testing::Test {
protected:
    RnicCommandTest() : network(world), node(world, network, 1), host(node.host) {
        EXPECT_TRUE(host.bring_up());
    }
    Response call(Request& request) { return host.hwc().call(request.fit()); }
    Request request(std::uint32_t opcode, std::size_t size, std::uint32_t room = 32) {
        Request r(opcode, size, room, 3);
        r.put<std::uint64_t>(40, host.adapter);
        return r;
    }
    SimWorld world;
    TestNetwork network;
    Node node;
    RdmaHost& host;
};

TEST_F(RnicCommandTest, CapsForBothDrivers) {
    for (const std::uint32_t room : {104U, 112U}) {
        Request caps(MANA_HW_RNIC_QUERY_CAPS, 40, room, 3, 1, room == 104 ? 3 : 4);
        const Response response = call(caps);
        ASSERT_TRUE(response.ok());
        ASSERT_EQ(response.bytes.size(), room);
        EXPECT_EQ(response.get<std::uint32_t>(44), 16384U);
        EXPECT_EQ(response.get<std::uint32_t>(60), 32U);
        EXPECT_EQ(response.get<std::uint32_t>(76), 4194304U);
        EXPECT_EQ(response.get<std::uint32_t>(92), 29U);
        EXPECT_EQ(response.get<std::uint32_t>(96), 15U);
        if (room == 112) {
            EXPECT_EQ(response.get<std::uint64_t>(104), 1ULL << 63 | 0x30U);
        }
    }
}

TEST_F(RnicCommandTest, QueueIdsFollowTheRules) {
    auto cq = *host.create_cq();
    std::vector<std::unique_ptr<HostQp>> qps;
    for (int i = 0; i < 5; ++i) {
        qps.push_back(host.create_rc(cq, cq));
        const auto& ids = qps.back()->ids;
        EXPECT_EQ(ids[4] % 4, 0U);
        EXPECT_EQ(ids[3], ids[4] + 1);
        EXPECT_EQ(ids[0] % 4, 0U);
        EXPECT_EQ(ids[1], ids[0] + 1);
        EXPECT_EQ(ids[2], ids[0] + 2);
        EXPECT_GT(ids[4], 1U);
        for (int j = 0; j < i; ++j) {
            EXPECT_NE(ids[4], qps[static_cast<std::size_t>(j)]->ids[4]);
            EXPECT_NE(ids[0], qps[static_cast<std::size_t>(j)]->ids[0]);
        }
    }
    for (auto& qp : qps) EXPECT_TRUE(host.destroy_rc(*qp));
    EXPECT_TRUE(host.destroy_cq(cq));
}

// ROCE 10: 120
TEST_F(RnicCommandTest, QueuesInUseStay) {
    auto cq = *host.create_cq();
    auto qp = host.create_rc(cq, cq);
    EXPECT_FALSE(host.destroy_cq(cq));
    EXPECT_FALSE(host.hwc().destroy_pd(host.pd));
    EXPECT_TRUE(host.destroy_rc(*qp));
    EXPECT_FALSE(host.destroy_rc(*qp));
    EXPECT_TRUE(host.destroy_cq(cq));
    EXPECT_TRUE(host.hwc().destroy_pd(host.pd));
}

TEST_F(RnicCommandTest, FailingCreateLeavesTheRegions) {
    auto cq = *host.create_cq();
    std::vector<std::uint64_t> regions;
    for (int i = 0; i < 4; ++i)
        regions.push_back(*host.hwc().create_region(host.hwc().alloc_ring(4096)));
    const auto attempt = [&](std::uint64_t pd, std::uint64_t send_cq, std::uint64_t last) {
        Request create = request(MANA_HW_RNIC_CREATE_RC_QP, 160, 64);
        create.put<std::uint64_t>(48, pd)
            .put<std::uint64_t>(56, send_cq)
            .put<std::uint64_t>(64, cq.handle)
            .put<std::uint64_t>(72, regions[0])
            .put<std::uint64_t>(80, regions[1])
            .put<std::uint64_t>(96, regions[2])
            .put<std::uint64_t>(104, last)
            .put<std::uint32_t>(136, host.device.page);
        return call(create).ok();
    };
    EXPECT_FALSE(attempt(host.pd.handle + 77, cq.handle, regions[3]));
    EXPECT_FALSE(attempt(host.pd.handle, ~0ULL, regions[3]));
    EXPECT_FALSE(attempt(host.pd.handle, cq.handle, regions[0])) << "one region twice";
    EXPECT_FALSE(attempt(host.pd.handle, cq.handle, 0x123456));
    EXPECT_TRUE(attempt(host.pd.handle, cq.handle, regions[3])) << "they were still there";
    for (const auto region : regions) EXPECT_FALSE(host.hwc().destroy_region(region));
}

TEST_F(RnicCommandTest, AddressesAreCounted) {
    const auto gid = ipv6_gid(7);
    EXPECT_TRUE(host.config_address(gid, true));
    EXPECT_TRUE(host.config_address(gid, true));
    EXPECT_TRUE(host.config_address(gid, false));
    EXPECT_TRUE(node.rnic.owns(gid));
    EXPECT_TRUE(host.config_address(gid, false));
    EXPECT_FALSE(node.rnic.owns(gid));
    EXPECT_FALSE(host.config_address(gid, false));
}

TEST_F(RnicCommandTest, Ipv4AddressIsReversedAsAWhole) {
    Request config = request(MANA_HW_RNIC_CONFIG_ADDRESS, 72);
    config.put<std::uint32_t>(48, 1)
        .put<std::uint32_t>(52, 1)
        .put<std::uint32_t>(56, 0xc0000205)
        .put<std::uint16_t>(60, 0xffff);
    ASSERT_TRUE(call(config).ok());
    roce::Gid gid{};
    gid[10] = gid[11] = 0xff;
    gid[12] = 192;
    gid[14] = 2;
    gid[15] = 5;
    EXPECT_TRUE(node.rnic.owns(gid));
}

TEST_F(RnicCommandTest, OldSetStateMessageKeepsTheDefaults) {
    auto cq = *host.create_cq();
    auto qp = host.create_rc(cq, cq);
    Request set = request(MANA_HW_RNIC_SET_QP_STATE, 160);
    // A mask that names what this message cannot carry.
    set.put<std::uint64_t>(48, qp->handle)
        .put<std::uint64_t>(56, ~0ULL)
        .put<std::uint32_t>(64, 1)
        .put<std::uint32_t>(68, 3);
    EXPECT_TRUE(call(set).ok());
    EXPECT_STREQ(node.rnic.qp_status()[0].state, "INIT");
    EXPECT_TRUE(call(set).ok()) << "INIT to INIT";
    for (const std::uint32_t state : {6U, 6U, 0U, 0U, 6U, 0U})
        EXPECT_TRUE(host.to_state(*qp, state));
    set.put<std::uint32_t>(64, 7);
    EXPECT_FALSE(call(set).ok());
    set.put<std::uint32_t>(64, 1).put<std::uint32_t>(68, 6);
    EXPECT_FALSE(call(set).ok());
}

TEST_F(RnicCommandTest, CountersForTheKernel) {
    Request vf = request(MANA_HW_RNIC_QUERY_VF_COUNTERS, 48, 304);
    const Response response = call(vf);
    ASSERT_TRUE(response.ok());
    EXPECT_EQ(response.bytes.size(), 304U);
    Request device = request(MANA_HW_RNIC_QUERY_DEVICE_COUNTERS, 48, 64);
    EXPECT_TRUE(call(device).ok());
}

TEST_F(RnicCommandTest, WrongHandlesAndUnknownCommands) {
    Request unknown = request(0x3000c, 64);
    EXPECT_EQ(call(unknown).status, 0xffffffffU);
    Request foreign = request(MANA_HW_RNIC_QUERY_VF_COUNTERS, 48, 304);
    foreign.put<std::uint64_t>(40, host.adapter + 1);
    EXPECT_FALSE(call(foreign).ok());
    Request wrong_type(MANA_HW_RNIC_CREATE_RC_QP, 160, 64, 2);
    EXPECT_FALSE(call(wrong_type).ok());
    Request second(MANA_HW_RNIC_CREATE_ADAPTER, 56, 40, 3, 2);
    second.put<std::uint32_t>(40, host.fatal_eq.id);
    EXPECT_FALSE(call(second).ok()) << "one adapter per function";
}

TEST_F(RnicCommandTest, DestroyAdapterDropsEverything) {
    auto cq = *host.create_cq();
    auto qp = host.create_rc(cq, cq);
    Request destroy = request(MANA_HW_RNIC_DESTROY_ADAPTER, 48);
    EXPECT_TRUE(call(destroy).ok());
    EXPECT_FALSE(node.rnic.owns(host.gid()));
    EXPECT_TRUE(node.rnic.qp_status().empty());
    host.hwc().ring_sq(host.device.page, qp->ids[0], 64);
    EXPECT_TRUE(host.hwc().destroy_pd(host.pd));
}

TEST_F(RnicCommandTest, FunctionResetDropsEverything) {
    auto cq = *host.create_cq();
    auto qp = host.create_rc(cq, cq);
    node.function.reset();
    EXPECT_TRUE(node.rnic.qp_status().empty());
    EXPECT_FALSE(node.rnic.owns(host.gid()));
    world.run_until_idle();
}

}  // namespace
}  // namespace openmana::test
