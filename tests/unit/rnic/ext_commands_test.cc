// SPDX-License-Identifier: Apache-2.0
// Negotiation, commands and CQs of the extension (docs/extensions.md).
#include <mana/gdma.h>

#include "ext_fixture.h"

namespace openmana::test {
namespace {

constexpr std::uint32_t kUnknown = 0xffffffff;

class ExtCommandsTest : public ::testing::Test {
protected:
    void open(const ExtLink::Options& options = ExtLink::Options()) {
        link = std::make_unique<ExtLink>(true, options);
    }
    /// CREATE_QP with one thing changed.
    bool create_qp(const std::function<void(mana_hw_ext_create_qp_req&)>& change) {
        ExtHost& host = *link->a.host;
        const auto memory = host.alloc(8192);
        mana_hw_ext_create_qp_req message{};
        message.pd = host.host().pd.handle;
        message.send_cq = link->a.send_cq.handle;
        message.recv_cq = link->a.recv_cq.handle;
        message.region = memory->region;
        message.type = MANA_HW_EXT_QP_RC;
        message.doorbell_page = host.host().device.page;
        message.sq_bytes = 4096;
        message.rq_bytes = 4096;
        message.rq_stride = 64;
        change(message);
        return host.call(MANA_HW_EXT_CREATE_QP, message).ok();
    }
    std::unique_ptr<ExtLink> link;
};

TEST_F(ExtCommandsTest, CapabilityBitTellsOfIt) {
    SimWorld world;
    TestNetwork network(world);
    rnic::RnicConfig off;
    off.extensions = false;
    Node with(world, network, 1);
    Node without(world, network, 2, off);
    for (Node* node : {&with, &without}) {
        ASSERT_TRUE(node->host.bring_up());
        Request request(MANA_HW_RNIC_QUERY_CAPS, 40, 112, MANA_HW_RNIC_DEVICE_TYPE);
        const Response response = node->host.call(request.fit());
        ASSERT_TRUE(response.ok());
        EXPECT_EQ((response.get<std::uint64_t>(104) & MANA_HW_RNIC_CAP_EXTENSIONS) != 0,
                  node == &with);
    }
}

TEST_F(ExtCommandsTest, WithoutNegotiationAllIsUnknown) {
    for (const bool offered : {true, false}) {
        SimWorld world;
        TestNetwork network(world);
        rnic::RnicConfig config;
        config.extensions = offered;
        Node node(world, network, 1, config);
        if (!offered) node.host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
        ASSERT_TRUE(node.host.bring_up());
        ExtHost host(node.host);
        for (std::uint32_t opcode = 0x38000; opcode < 0x38014; ++opcode) {
            host.call(opcode, mana_hw_ext_create_qp_req{});
            EXPECT_EQ(host.status, kUnknown) << opcode;
        }
        EXPECT_FALSE(host.create_key(MANA_HW_EXT_MR_FAST_REGISTER, 16));
    }
}

TEST_F(ExtCommandsTest, CapsNameFeaturesAndLimits) {
    open();
    const auto caps = link->a.host->query_caps();
    ASSERT_TRUE(caps);
    EXPECT_EQ(caps->features, 0x7ffffU);
    EXPECT_EQ(caps->version, 1U);
    EXPECT_EQ(caps->clock_khz, 1000000U);
    EXPECT_GE(caps->max_send_sge, 16U);
    EXPECT_GE(caps->max_inline_bytes, 256U);
    link->a.host->call(0x38013, mana_hw_ext_create_qp_req{});
    EXPECT_EQ(link->a.host->status, kUnknown);
}

TEST_F(ExtCommandsTest, QpWithABadFieldIsRefused) {
    open();
    const auto none = [](mana_hw_ext_create_qp_req&) {};
    EXPECT_TRUE(create_qp(none));
    EXPECT_FALSE(create_qp([](auto& m) { m.pd = 99; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.send_cq = 99; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.recv_cq += 100; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.srq = 99; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.region = 99; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.type = 0; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.type = 5; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.flags = 2; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.doorbell_page = 1000; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.sq_bytes = 0; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.sq_bytes = 3000; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.sq_bytes = 8192; })) << "region too short";
    EXPECT_FALSE(create_qp([](auto& m) { m.sq_bytes = 0x80000000; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.rq_bytes = 3000; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.rq_bytes = 0x80000000; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.rq_stride = 16; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.rq_stride = 2048; }));
    EXPECT_FALSE(create_qp([](auto& m) { m.rq_stride = 48; }));
    auto stock = link->a.node->host.create_cq();
    ASSERT_TRUE(stock);
    EXPECT_FALSE(create_qp([&](auto& m) { m.send_cq = stock->handle; })) << "CQ without a record";
}

TEST_F(ExtCommandsTest, QpOnAnSrqHasNoReceiveRing) {
    open();
    const auto srq = link->a.host->create_srq();
    ASSERT_TRUE(srq);
    EXPECT_FALSE(create_qp([&](auto& m) { m.srq = srq->handle; }));
    EXPECT_TRUE(create_qp([&](auto& m) {
        m.srq = srq->handle;
        m.rq_bytes = 0;
    }));
    EXPECT_FALSE(link->a.host->destroy_srq(*srq)) << "in use";
}

TEST_F(ExtCommandsTest, OneGsiQp) {
    open();
    const auto gsi = [](auto& m) { m.type = MANA_HW_EXT_QP_GSI; };
    EXPECT_TRUE(create_qp(gsi));
    EXPECT_FALSE(create_qp(gsi));
}

TEST_F(ExtCommandsTest, CommandsOfTheOtherKindDoNotFindAQp) {
    open();
    mana_hw_rnic_destroy_qp_req message{};
    message.qp = link->a.qp.handle;
    EXPECT_FALSE(link->a.host->call(MANA_HW_RNIC_DESTROY_RC_QP, message).ok());
    EXPECT_FALSE(link->a.host->call(MANA_HW_RNIC_DESTROY_UD_QP, message).ok());
    EXPECT_TRUE(link->a.host->destroy_qp(link->a.qp));
    EXPECT_FALSE(link->a.host->query_qp(link->a.qp));
    EXPECT_FALSE(link->a.host->query_counters(link->a.qp));
    EXPECT_FALSE(link->a.host->destroy_qp(link->a.qp));
}

TEST_F(ExtCommandsTest, DoorbellOnAForeignPageIsIgnored) {
    open();
    const std::uint32_t page = link->a.node->host.hwc().allocate_page();
    ExtQp stranger = link->a.qp;
    stranger.page = page;
    link->a.qp.memory.store(0, 1);
    link->a.host->ring_send(stranger);
    link->idle();
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    EXPECT_GE(link->a.node->function.counters().doorbell_ignored.value(), 1U);
}

TEST_F(ExtCommandsTest, CqWithABadFieldIsRefused) {
    open();
    ExtHost& host = *link->a.host;
    const auto create = [&](std::uint32_t entries, std::uint32_t eq, std::uint32_t page) {
        const auto memory = host.alloc(64 * 64);
        mana_hw_ext_create_cq_req message{};
        message.region = memory->region;
        message.entries = entries;
        message.eq_id = eq;
        message.doorbell_page = page;
        return host.call(MANA_HW_EXT_CREATE_CQ, message).ok();
    };
    const std::uint32_t eq = host.host().eq.id;
    const std::uint32_t page = host.host().device.page;
    EXPECT_TRUE(create(64, eq, page));
    EXPECT_TRUE(create(1, eq, page));
    EXPECT_FALSE(create(0, eq, page));
    EXPECT_FALSE(create(63, eq, page));
    EXPECT_FALSE(create(128, eq, page));
    EXPECT_FALSE(create(0x80000000, eq, page));
    EXPECT_FALSE(create(64, 999, page));
    EXPECT_FALSE(create(64, eq, 1000));
}

TEST_F(ExtCommandsTest, ArmedCqSendsOneEvent) {
    open();
    auto& eq = link->a.node->host.eq;
    (void)eq.drain();
    const auto write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8);
    link->a.post(write);
    ASSERT_TRUE(link->run(1));
    EXPECT_TRUE(eq.drain().empty()) << "not armed";
    link->a.send_cq.arm();
    link->a.post(write);
    link->a.post(write);
    ASSERT_TRUE(link->run(3));
    const auto events = eq.drain();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].data[0], link->a.send_cq.id);
    link->a.send_cq.arm();
    link->a.post(write);
    ASSERT_TRUE(link->run(4));
    EXPECT_EQ(eq.drain().size(), 1U);
}

// ROCE 10: 28
TEST_F(ExtCommandsTest, SolicitedArmWaitsForSolicitedOrError) {
    open();
    auto& eq = link->b.node->host.eq;
    for (std::uint32_t i = 0; i < 3; ++i) link->b.recv(i, 0x80000, 64);
    (void)eq.drain();
    link->b.recv_cq.arm(true);
    ExtWr send = link->wr(MANA_HW_EXT_WQE_SEND, 0, 8);
    link->a.post(send);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_TRUE(eq.drain().empty());
    send.flags |= MANA_HW_EXT_WQE_SOLICITED;
    link->a.post(send);
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(eq.drain().size(), 1U);
    link->b.recv_cq.arm(true);
    ASSERT_TRUE(link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_EQ(eq.drain().size(), 1U);
}

TEST_F(ExtCommandsTest, FullCqFailsItsQps) {
    ExtLink::Options options;
    options.entries = 4;
    open(options);
    for (int i = 0; i < 5; ++i) link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
    link->world.run_until_idle();
    EXPECT_TRUE(link->a.had_event(link->a.send_cq.id, MANA_HW_EXT_EVENT_CQ_ERROR));
    EXPECT_TRUE(
        std::ranges::count(link->a.seen,
                           std::pair(link->a.qp.qpn, unsigned{MANA_HW_EXT_EVENT_QP_FATAL})) == 1);
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    EXPECT_EQ(link->a.send_cq.drain().size(), 4U) << "what was written stays";
}

TEST_F(ExtCommandsTest, ConsumerAheadOfTheProducerIsAFullCq) {
    open();
    link->a.send_cq.memory.store(0, 0x40000000);
    for (int i = 0; i < 257; ++i) {
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
        link->world.run_until_idle();
    }
    EXPECT_TRUE(link->a.had_event(link->a.send_cq.id, MANA_HW_EXT_EVENT_CQ_ERROR));
}

TEST_F(ExtCommandsTest, ResizeKeepsWhatIsNotTaken) {
    ExtLink::Options options;
    options.entries = 8;
    open(options);
    for (int i = 0; i < 6; ++i) {
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
        link->world.run_until_idle();
        if (i < 3) {
            ASSERT_TRUE(link->a.send_cq.poll());
        }
    }
    link->a.send_cq.arm();
    EXPECT_FALSE(link->a.host->resize_cq(link->a.send_cq, 2)) << "three do not fit";
    ASSERT_TRUE(link->a.host->resize_cq(link->a.send_cq, 32));
    (void)link->a.node->host.eq.drain();
    for (int i = 0; i < 20; ++i) {
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
        link->world.run_until_idle();
    }
    const auto all = link->a.send_cq.drain();
    ASSERT_EQ(all.size(), 23U);
    for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].status, 0);
        EXPECT_EQ(all[i].cookie, i + 3);
    }
    EXPECT_EQ(link->a.node->host.eq.drain().size(), 1U) << "the arm went along";
    ASSERT_TRUE(link->a.host->resize_cq(link->a.send_cq, 4));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
    ASSERT_TRUE(link->run(1));
}

TEST_F(ExtCommandsTest, ResizeOfAnythingElseIsRefused) {
    open();
    auto stock = *link->a.node->host.create_cq();
    ExtCq other;
    other.handle = stock.handle;
    EXPECT_FALSE(link->a.host->resize_cq(other, 64));
    EXPECT_FALSE(link->a.host->resize_cq(link->a.send_cq, 63));
    other.handle = 99;
    EXPECT_FALSE(link->a.host->resize_cq(other, 64));
}

TEST_F(ExtCommandsTest, SrqWithABadFieldIsRefused) {
    open();
    ExtHost& host = *link->a.host;
    EXPECT_TRUE(host.create_srq(4096, 32, 128));
    EXPECT_FALSE(host.create_srq(4096, 16));
    EXPECT_FALSE(host.create_srq(4096, 48));
    EXPECT_FALSE(host.create_srq(3000, 64));
    EXPECT_FALSE(host.create_srq(4096, 64, 65)) << "limit above its entries";
    const auto srq = host.create_srq();
    ASSERT_TRUE(srq);
    EXPECT_TRUE(host.destroy_srq(*srq));
    EXPECT_FALSE(host.destroy_srq(*srq));
    EXPECT_FALSE(host.query_srq(*srq));
}

TEST_F(ExtCommandsTest, KeysForFastRegistrationAreBounded) {
    open();
    EXPECT_TRUE(link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 1));
    EXPECT_FALSE(link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 0));
    EXPECT_FALSE(link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 1ULL << 32));
}

// docs/extensions.md, byte for byte
TEST_F(ExtCommandsTest, MrIsModifiedWithItsKeys) {
    open();
    RdmaHost& host = link->a.node->host;
    const auto pd = host.hwc().create_pd();
    const auto region = host.hwc().create_region(link->a.node->ram.alloc(4096), 4096);
    ASSERT_TRUE(pd && region);
    const auto& keys = link->a.node->function.keys();
    const gdma::MemoryRegion* const mr = keys.find(gdma::Key(link->a.mr.lkey));
    ASSERT_NE(mr, nullptr);
    const auto send = [&](std::uint32_t flags) {
        Request request(0x3800d, 88, 32, MANA_HW_RNIC_DEVICE_TYPE);
        request.put<std::uint64_t>(40, host.adapter)
            .put<std::uint64_t>(48, link->a.mr.handle)
            .put<std::uint64_t>(56, pd->handle)
            .put<std::uint64_t>(64, *region)
            .put<std::uint64_t>(72, 0x12340000)
            .put<std::uint32_t>(80, gdma::kLocalRead)
            .put<std::uint32_t>(84, flags);
        return host.call(request.fit()).status;
    };
    EXPECT_EQ(send(8), std::uint32_t{gdma::kHwcInvalidParameter}) << "unknown flag";
    const gdma::Pdn before = mr->pd->id;
    EXPECT_EQ(send(2), 0U);
    EXPECT_EQ(mr->access, std::uint32_t{gdma::kLocalRead});
    EXPECT_EQ(mr->pd->id, before);
    EXPECT_EQ(send(1), 0U);
    EXPECT_EQ(mr->pd->id.value(), pd->id);
    EXPECT_EQ(mr->length, ExtLink::kMr);
    EXPECT_EQ(send(4), 0U);
    EXPECT_EQ(mr->base, 0x12340000U);
    EXPECT_EQ(mr->length, 4096U);
    EXPECT_EQ(send(4), std::uint32_t{gdma::kHwcNotFound}) << "the region is taken";
    EXPECT_EQ(mr->key.value(), link->a.mr.lkey);
}

TEST_F(ExtCommandsTest, BadModificationsOfMrsAreRefused) {
    open();
    ExtHost& host = *link->a.host;
    const auto modify = [&](const std::function<void(mana_hw_ext_modify_mr_req&)>& change) {
        mana_hw_ext_modify_mr_req message{};
        message.mr = link->a.mr.handle;
        message.access = gdma::kLocalRead;
        message.flags = MANA_HW_EXT_MODIFY_ACCESS;
        change(message);
        host.call(MANA_HW_EXT_MODIFY_MR, message);
        return host.status;
    };
    const auto window = host.create_key(MANA_HW_MR_WINDOW_TYPE2);
    const auto fast = host.create_key(MANA_HW_EXT_MR_FAST_REGISTER, 16);
    ASSERT_TRUE(window && fast);
    EXPECT_EQ(modify([](auto& m) { m.mr = 99; }), gdma::kHwcNotFound);
    EXPECT_EQ(modify([&](auto& m) { m.mr = link->a.mr.lkey; }), gdma::kHwcNotFound);
    EXPECT_EQ(modify([&](auto& m) { m.mr = window->handle; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(modify([&](auto& m) { m.mr = fast->handle; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(modify([](auto& m) { m.access = 1U << 6; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(modify([](auto& m) { m.flags |= MANA_HW_EXT_MODIFY_PD; }), gdma::kHwcNotFound);
    EXPECT_EQ(modify([](auto& m) { m.flags |= MANA_HW_EXT_MODIFY_MEMORY; }), gdma::kHwcNotFound);
    EXPECT_EQ(modify([](auto&) {}), gdma::kHwcSuccess);
}

TEST_F(ExtCommandsTest, DeviceMemoryIsCopied) {
    open();
    ExtHost& host = *link->a.host;
    GuestRam& ram = link->a.node->ram;
    const auto dm = host.host()
                        .hwc()
                        .call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 100))
                        .get<std::uint64_t>(32);
    const auto from = ram.alloc(4096);
    const auto to = ram.alloc(4096);
    ram.bytes(from, 1)[0] = std::byte{0x5a};
    const auto copy = [&](const std::function<void(mana_hw_ext_copy_dm_req&)>& change) {
        mana_hw_ext_copy_dm_req message{};
        message.dm = dm;
        message.offset = 99;
        message.address = from.value();
        message.length = 1;
        message.direction = MANA_HW_EXT_COPY_TO_DM;
        change(message);
        host.call(MANA_HW_EXT_COPY_DM, message);
        return host.status;
    };
    EXPECT_EQ(copy([](auto&) {}), gdma::kHwcSuccess);
    EXPECT_EQ(copy([&](auto& m) {
                  m.direction = MANA_HW_EXT_COPY_FROM_DM;
                  m.address = to.value();
              }),
              gdma::kHwcSuccess);
    EXPECT_EQ(ram.bytes(to, 1)[0], std::byte{0x5a});
    EXPECT_EQ(copy([](auto& m) { m.direction = 2; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.direction = UINT32_MAX; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.length = 0; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.length = 2; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.offset = UINT64_MAX; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.address = 1ULL << 50; }), gdma::kHwcInvalidParameter);
    EXPECT_EQ(copy([](auto& m) { m.dm += 1000; }), gdma::kHwcNotFound);
    EXPECT_EQ(copy([&](auto& m) { m.dm = link->a.mr.handle; }), gdma::kHwcNotFound);
}

TEST_F(ExtCommandsTest, ResetFreesEverything) {
    open();
    ASSERT_TRUE(link->a.host->create_srq());
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8));
    link->a.node->function.reset();
    link->world.run_until_idle();
    EXPECT_EQ(link->a.node->function.object_counts(), gdma::ObjectCounts{});
    EXPECT_EQ(link->a.node->function.account().used(), 0U);
}

}  // namespace
}  // namespace openmana::test
