// SPDX-License-Identifier: Apache-2.0
// The stock data path against the device library, both in one process.
#include <random>

#include "provider_fixture.h"
#include "unit/rnic/rnic_fixture.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kMr = 1U << 20;
constexpr std::uint32_t kAll =
    gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;

/// A NIC, its driver, and the provider's data path on one RC QP.
struct End {
    End(SimWorld& world, TestNetwork& network, std::uint8_t number)
        : node(world, network, number), provider(brought_up(node.host), StockLimits()) {
        buffer = node.ram.alloc(kMr);
        mr = node.host.hwc().create_mr(node.host.pd, buffer, kMr, kAll).value();
        Connection::fill(at(0, kMr), number);
    }
    static RdmaHost& brought_up(RdmaHost& host) {
        OM_CHECK(host.bring_up());
        return host;
    }
    void connect(const End& peer, std::uint32_t psn, std::uint32_t peer_psn) {
        OM_CHECK(provider.connect(
            psn, {peer.node.host.gid(), peer.node.host.mac(), peer.provider.qp.dp.qpn, peer_psn},
            1024));
    }
    [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t length) {
        return node.ram.bytes(buffer + offset, length);
    }
    [[nodiscard]] mana_dp_sge sge(std::uint64_t offset, std::uint32_t length) const {
        return {buffer.value() + offset, length, mr.lkey};
    }
    int recv(std::uint64_t id, std::uint64_t offset, std::uint32_t length) {
        const mana_dp_sge one = sge(offset, length);
        const int ret = provider.recv(id, one);
        if (ret == 0) provider.ring_recv(1);
        return ret;
    }
    void poll() {
        EXPECT_TRUE(provider.poll([this](const mana_completion& c) { done.push_back(c); }));
        std::uint32_t qpn = 0;
        while (mana_dp_cq_next_error(&provider.cq, &qpn))
            EXPECT_TRUE(node.host.to_state(*provider.host_qp, MANA_HW_RNIC_QP_ERR));
    }

    Node node;
    StockProvider provider;
    base::GuestAddr buffer{};
    DriverMr mr;
    std::vector<mana_completion> done;
};

class StockDeviceTest : public ::testing::TestWithParam<bool> {
protected:
    StockDeviceTest() : network(world), a(world, network, 1), b(world, network, 2) {
        network.local = GetParam();
        b.connect(a, 0x900, 0xfffff0);
        a.connect(b, 0xfffff0, 0x900);
    }
    int send(std::uint8_t opcode, std::uint64_t from, std::uint32_t length, std::uint64_t to = 0,
             std::uint8_t flags = MANA_HW_EXT_WQE_SIGNALED) {
        const mana_dp_sge list[2] = {a.sge(from, length / 2),
                                     a.sge(from + length / 2, length - length / 2)};
        mana_dp_send wr{};
        wr.wr_id = next_id;
        wr.opcode = opcode;
        wr.flags = flags;
        wr.sge = list;
        wr.sge_count = 2;
        wr.value = 0x11223344;
        wr.remote_address = b.buffer.value() + to;
        wr.rkey = b.mr.rkey;
        const int ret = a.provider.send(wr);
        if (ret != 0) return ret;
        ++next_id;
        a.provider.ring_send();
        return 0;
    }
    bool run(std::size_t sends, std::size_t receives = 0) {
        return world.run_until(
            [&] {
                a.poll();
                b.poll();
                return a.done.size() >= sends && b.done.size() >= receives;
            },
            std::chrono::seconds(60));
    }
    [[nodiscard]] bool same(std::uint64_t at_a, std::uint64_t at_b, std::uint64_t length) {
        return std::ranges::equal(a.at(at_a, length), b.at(at_b, length));
    }
    SimWorld world;
    TestNetwork network;
    End a, b;
    std::uint64_t next_id = 1;
};

INSTANTIATE_TEST_SUITE_P(Paths, StockDeviceTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(StockDeviceTest, WriteReadAndSend) {
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100000, 200000), 0);
    ASSERT_TRUE(run(1));
    EXPECT_EQ(a.done[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_TRUE(same(0, 200000, 100000));
    ASSERT_EQ(send(MANA_HW_EXT_WQE_READ, 400000, 5000, 700000), 0);
    ASSERT_TRUE(run(2));
    EXPECT_EQ(a.done[1].opcode, MANA_WC_RDMA_READ);
    EXPECT_TRUE(same(400000, 700000, 5000));
    ASSERT_EQ(b.recv(77, 900000, 4000), 0);
    ASSERT_EQ(b.recv(78, 900000, 4000), 0);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_SEND_IMM, 10, 3000), 0);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE_IMM, 10, 30, 500000), 0);
    ASSERT_TRUE(run(4, 2));
    EXPECT_EQ(b.done[0].wr_id, 77U);
    EXPECT_EQ(b.done[0].length, 3000U);
    EXPECT_EQ(b.done[0].value, 0x11223344U);
    EXPECT_TRUE(same(10, 900000, 3000));
    EXPECT_EQ(b.done[1].opcode, MANA_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(b.done[1].length, 30U);
}

TEST_P(StockDeviceTest, ManyOfAllKinds) {
    std::mt19937 random(GetParam() ? 1 : 2);
    std::uint64_t posted = 0, signaled = 0, receives = 0;
    std::vector<std::uint64_t> expected;
    while (posted < 1500) {
        static constexpr std::uint8_t kOpcodes[] = {MANA_HW_EXT_WQE_WRITE, MANA_HW_EXT_WQE_READ,
                                                    MANA_HW_EXT_WQE_SEND,
                                                    MANA_HW_EXT_WQE_WRITE_IMM};
        const std::uint8_t opcode = kOpcodes[random() % 4];
        const bool takes = opcode == MANA_HW_EXT_WQE_SEND || opcode == MANA_HW_EXT_WQE_WRITE_IMM;
        const bool wanted = random() % 3 == 0;
        if (takes && b.recv(receives, 800000, 8192) == 0) ++receives;
        const std::uint64_t id = next_id;
        const int ret = send(opcode, random() % 10000, static_cast<std::uint32_t>(random() % 5000),
                             random() % 100000, wanted ? MANA_HW_EXT_WQE_SIGNALED : 0);
        if (ret == 0) {
            ++posted;
            if (wanted) expected.push_back(id);
            signaled += wanted;
        } else {
            ASSERT_EQ(ret, ENOMEM);
        }
        if (random() % 4 == 0 || ret != 0) {
            world.advance(std::chrono::microseconds(20));
            (void)run(0);
        }
    }
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 8) == 0 || run(a.done.size() + 1), true);
    ASSERT_TRUE(run(signaled));
    for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(a.done[i].wr_id, expected[i]);
        ASSERT_EQ(a.done[i].status, MANA_HW_WC_SUCCESS);
    }
    for (std::size_t i = 0; i < b.done.size(); ++i) ASSERT_EQ(b.done[i].wr_id, i);
}

TEST_P(StockDeviceTest, RemoteAccessErrorThenFlushes) {
    ASSERT_EQ(b.recv(50, 0, 64), 0);
    ASSERT_EQ(a.recv(60, 0, 64), 0);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100), 0);
    const std::uint32_t good = b.mr.rkey;
    b.mr.rkey ^= 0x10;
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100), 0);
    b.mr.rkey = good;
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100, 0, 0), 0);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100), 0);
    ASSERT_TRUE(run(5, 1));
    std::vector<unsigned> sends;
    for (const auto& c : a.done)
        if (c.opcode != MANA_WC_RECV) sends.push_back(c.status);
    EXPECT_EQ(sends, (std::vector<unsigned>{MANA_HW_WC_SUCCESS, MANA_HW_WC_REM_ACCESS_ERR,
                                            MANA_HW_WC_WR_FLUSH_ERR, MANA_HW_WC_WR_FLUSH_ERR}));
    EXPECT_EQ(b.done[0].wr_id, 50U);
    EXPECT_EQ(b.done[0].status, MANA_HW_WC_WR_FLUSH_ERR);
    EXPECT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 8), EINVAL);
}

TEST_P(StockDeviceTest, EventAfterSolicitedArming) {
    mana_dp_cq_arm(&b.provider.cq, true);
    ASSERT_EQ(b.recv(50, 0, 100), 0);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_SEND, 0, 100), 0);  // its sender asks for no event
    world.advance(std::chrono::milliseconds(1));
    EXPECT_EQ(b.node.host.eq.drain().size(), 1U);
    ASSERT_TRUE(run(1, 1));
}

TEST_P(StockDeviceTest, EventAfterArming) {
    mana_dp_cq_arm(&a.provider.cq, false);
    ASSERT_EQ(send(MANA_HW_EXT_WQE_WRITE, 0, 100), 0);
    world.advance(std::chrono::milliseconds(1));
    EXPECT_EQ(a.node.host.eq.drain().size(), 1U);
    ASSERT_TRUE(run(1));
}

}  // namespace
}  // namespace openmana::test
