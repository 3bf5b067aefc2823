// SPDX-License-Identifier: Apache-2.0
// The data path of raw packets: WQEs byte for byte, completions, limits, the test as the device.
#include <dp_packet.h>
#include <mana/eth.h>

#include "provider_fixture.h"

namespace openmana::test {
namespace {

using Rung = std::vector<DoorbellSink::Write>;
constexpr std::uint32_t kSq = 0x1477, kSendCq = 0x21, kRq = 0x78, kRecvCq = 0x22;

/// The ring of one side, written as the device writes it.
struct Ring {
    void write(mana_dp_cq& cq, const void* data, std::uint32_t queue_id, bool is_sq) {
        write_cqe(cq, produced++, data, queue_id, is_sq);
    }
    std::uint32_t produced = 64;
};

class PacketTest : public ::testing::Test {
protected:
    explicit PacketTest(std::uint32_t depth = 4, bool extended = true)
        : sq(4096), rq(4096), send_cq(4096), recv_cq(4096), cq(sink, tables, 64, extended) {
        mana_packet_attr attr{};
        attr.queues.max_send = attr.queues.max_recv = depth;
        attr.queues.max_send_sge = attr.queues.max_recv_sge = 3;
        attr.queues.sq = sq.data();
        attr.queues.rq = rq.data();
        attr.send_cq = send_cq.data();
        attr.recv_cq = recv_cq.data();
        mana_packet_layout layout{};
        EXPECT_EQ(mana_packet_lay_out(&attr, &layout), 0);
        EXPECT_EQ(layout.sq_bytes, 4096U);
        EXPECT_EQ(layout.rq_bytes, 4096U);
        EXPECT_EQ(layout.send_cqes, 64U);
        EXPECT_EQ(mana_packet_init(&qp, &attr, &layout), 0);
        qp.dp.qpn = 0xc00001;
        qp.dp.doorbell = sink.page();
        qp.dp.send_cq = qp.dp.recv_cq = &cq.dp;
        mana_packet_join(&cq.dp, &qp.send_side);
        mana_packet_join(&cq.dp, &qp.recv_side);
        start();
    }
    ~PacketTest() override { mana_packet_free(&qp); }
    void start() {
        mana_packet_start(&qp, kSq, kSendCq, kRq, kRecvCq);
        qp.sends.allowed = qp.receives.allowed = true;
        sends = receives = {};
    }
    int send(std::uint64_t id, std::uint32_t sges = 1, std::uint8_t flags = 0,
             std::uint8_t opcode = MANA_HW_EXT_WQE_SEND) {
        const mana_dp_sge list[4] = {{0x10000, 60, 7}, {0x20000, 40, 8}, {0x30000, 20, 9}, {}};
        mana_dp_send wr{};
        wr.wr_id = id;
        wr.opcode = opcode;
        wr.flags = flags;
        wr.sge = list;
        wr.sge_count = sges;
        return mana_packet_send(&qp, &wr);
    }
    int recv(std::uint64_t id, std::uint32_t sges = 1) {
        const mana_dp_sge list[4] = {{0x50000, 1514, 7}, {0x60000, 64, 8}, {0x70000, 64, 9}, {}};
        return mana_packet_recv(&qp, id, list, sges);
    }
    void sent(std::uint32_t type = MANA_HW_ETH_CQE_TX_OK) {
        mana_hw_eth_tx_cqe cqe{};
        cqe.type = type | MANA_HW_ETH_CQE_CLIENT;
        sends.write(qp.send_side.ring, &cqe, kSq, true);
    }
    void received(std::uint32_t length, std::uint32_t flags = 0,
                  std::uint32_t type = MANA_HW_ETH_CQE_RX_OK) {
        mana_hw_eth_rx_cqe cqe{};
        cqe.type = type | MANA_HW_ETH_CQE_CLIENT;
        cqe.flags = flags;
        cqe.packets[0].length = static_cast<std::uint16_t>(length);
        receives.write(qp.recv_side.ring, &cqe, kRq, false);
    }

    DoorbellSink sink;
    Tables tables;
    QueueMemory sq, rq, send_cq, recv_cq;
    TestCq cq;
    mana_packet_qp qp{};
    Ring sends, receives;
};

TEST_F(PacketTest, SendWqe) {
    ASSERT_EQ(send(1), 0);
    EXPECT_EQ(sq.hex(0, 32),
              "0000000001020000"  // one SGE, short OOB (GDMA 3.4)
              "0021000000140000"  // CQ id 31:8; SQ id bits 23:10
              "0000010000000000070000003c000000");
    mana_packet_ring_send(&qp);
    EXPECT_EQ(sink.take(), (Rung{{MANA_HW_DB_SQ, 0x0000002000001477ULL}}));
    mana_packet_ring_send(&qp);
    EXPECT_TRUE(sink.take().empty());
}

TEST_F(PacketTest, SendWqeOfThreeSges) {
    std::memset(sq.data(), 0xee, 96);
    ASSERT_EQ(send(1, 3), 0);
    EXPECT_EQ(sq.hex(0, 64),
              "00000000030200000021000000140000"
              "0000010000000000070000003c000000"
              "00000200000000000800000028000000"
              "00000300000000000900000014000000");
    EXPECT_EQ(qp.sends.ring.producer, 64U);
}

TEST_F(PacketTest, ChecksumsAreAskedForByAllOffloadFlagsAtOnce) {
    const mana_dp_sge sge{0x10000, 60, 7};
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.checksums = true;
    wr.sge = &sge;
    wr.sge_count = 1;
    ASSERT_EQ(mana_packet_send(&qp, &wr), 0);
    EXPECT_EQ(sq.hex(8, 8), "7c21000000140000");
}

TEST_F(PacketTest, ReceiveWqe) {
    ASSERT_EQ(recv(1), 0);
    ASSERT_EQ(recv(2, 2), 0);
    EXPECT_EQ(rq.hex(0, 32),
              "00000000010200000000000000000000"
              "000005000000000007000000ea050000");
    EXPECT_EQ(rq.hex(32, 64),
              "00000000020200000000000000000000"
              "000005000000000007000000ea050000"
              "00000600000000000800000040000000"
              "00000000000000000000000000000000");
    mana_packet_ring_recv(&qp);
    EXPECT_EQ(sink.take(), (Rung{{MANA_HW_DB_RQ, 0x0000006000000078ULL}}));
}

TEST_F(PacketTest, CompletionsOfSendsInOrderAndOnlyOfThoseAskedFor) {
    ASSERT_EQ(send(1, 1, MANA_HW_EXT_WQE_SIGNALED), 0);
    ASSERT_EQ(send(2), 0);
    ASSERT_EQ(send(3, 1, MANA_HW_EXT_WQE_SIGNALED), 0);
    EXPECT_TRUE(cq.poll().empty());
    for (int i = 0; i < 3; ++i) sent();
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].qpn, 0xc00001U);
    EXPECT_EQ(done[0].opcode, MANA_WC_SEND);
    EXPECT_EQ(done[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_EQ(done[1].wr_id, 3U);
}

TEST_F(PacketTest, FailedSendsAreReportedWhateverWasAsked) {
    const std::pair<std::uint32_t, std::uint8_t> types[] = {
        {MANA_HW_ETH_CQE_TX_SOURCE, MANA_HW_WC_LOC_ACCESS_ERR},
        {MANA_HW_ETH_CQE_TX_MTU, MANA_HW_WC_LOC_LEN_ERR},
        {MANA_HW_ETH_CQE_TX_OOB, MANA_HW_WC_LOC_QP_OP_ERR},
        {MANA_HW_ETH_CQE_TX_VPORT_DISABLED, MANA_HW_WC_GENERAL_ERR},
    };
    for (const auto& [type, status] : types) {
        ASSERT_EQ(send(type), 0);
        sent(type);
        const auto done = cq.poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, type);
        EXPECT_EQ(done[0].status, status);
        EXPECT_EQ(done[0].vendor_error, type);
    }
}

TEST_F(PacketTest, ReceivedPacketsWithTheirChecksums) {
    for (std::uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(recv(id), 0);
    received(60);
    received(1514, MANA_HW_ETH_RX_IP_GOOD | MANA_HW_ETH_RX_UDP_GOOD);
    received(100, MANA_HW_ETH_RX_IP_GOOD | MANA_HW_ETH_RX_TCP_BAD);
    received(1600, 0, MANA_HW_ETH_CQE_RX_TRUNCATED);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 4U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].opcode, MANA_WC_RECV);
    EXPECT_EQ(done[0].length, 60U);
    EXPECT_EQ(done[0].flags, 0);
    EXPECT_EQ(done[1].length, 1514U);
    EXPECT_EQ(done[1].flags, MANA_WC_IP_CSUM_OK);
    EXPECT_EQ(done[2].flags, 0);
    EXPECT_EQ(done[3].status, MANA_HW_WC_LOC_LEN_ERR);
    EXPECT_EQ(done[3].vendor_error, 4U);
}

TEST_F(PacketTest, AFullQueueIsAsItWasAndHasRoomAgainAfterItsCompletions) {
    for (std::uint64_t id = 0; id < 4; ++id) {
        ASSERT_EQ(send(id), 0);
        ASSERT_EQ(recv(id), 0);
    }
    const auto before = sq.hex(0, 256) + rq.hex(0, 256);
    EXPECT_EQ(send(9), ENOMEM);
    EXPECT_EQ(recv(9), ENOMEM);
    EXPECT_EQ(sq.hex(0, 256) + rq.hex(0, 256), before);
    sent();
    received(60);
    EXPECT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(send(9), 0);
    EXPECT_EQ(recv(9), 0);
}

TEST_F(PacketTest, RefusesWhatItCannotDo) {
    EXPECT_EQ(send(1, 4), EINVAL);
    EXPECT_EQ(recv(1, 4), EINVAL);
    EXPECT_EQ(send(1, 1, MANA_HW_EXT_WQE_INLINE), EINVAL);
    EXPECT_EQ(send(1, 1, 0, MANA_HW_EXT_WQE_WRITE), EOPNOTSUPP);
    qp.sends.allowed = qp.receives.allowed = false;
    EXPECT_EQ(send(1), EINVAL);
    EXPECT_EQ(recv(1), EINVAL);
    EXPECT_EQ(qp.sends.ring.producer + qp.receives.ring.producer, 0U);
    mana_packet_attr attr{};
    mana_packet_layout layout{};
    attr.queues.max_recv_sge = 16;
    EXPECT_EQ(mana_packet_lay_out(&attr, &layout), EINVAL);
    attr.queues.max_recv_sge = 15;
    attr.queues.max_send_sge = 31;
    EXPECT_EQ(mana_packet_lay_out(&attr, &layout), EINVAL);
    attr.queues.max_send_sge = 30;
    EXPECT_EQ(mana_packet_lay_out(&attr, &layout), 0);
    attr.queues.max_send = 0x80000001;
    EXPECT_EQ(mana_packet_lay_out(&attr, &layout), EINVAL);
}

TEST_F(PacketTest, InlineDataIsCopiedToASlotOfItsSend) {
    std::vector<std::uint8_t> slots(4 * 64), data(60, 0xab), more(4, 0xcd);
    qp.sends.inline_slots.base = slots.data();
    qp.sends.inline_slots.address = 0x90000;
    qp.sends.inline_slots.stride = 64;
    qp.sends.inline_slots.lkey = 0x55;
    ASSERT_EQ(send(1), 0);
    const mana_dp_sge sge[2] = {{reinterpret_cast<std::uintptr_t>(data.data()), 60, 0},
                                {reinterpret_cast<std::uintptr_t>(more.data()), 4, 0}};
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.flags = MANA_HW_EXT_WQE_INLINE;
    wr.sge = sge;
    wr.sge_count = 2;
    ASSERT_EQ(mana_packet_send(&qp, &wr), 0);
    EXPECT_EQ(sq.hex(32, 32),
              "0000000001020000"
              "0021000000140000"
              "40000900000000005500000040000000");
    EXPECT_EQ(slots[64], 0xab);
    EXPECT_EQ(slots[127], 0xcd);
}

TEST_F(PacketTest, AnEndedQueueFlushesWhatTheDeviceDidNotComplete) {
    ASSERT_EQ(send(1), 0);
    ASSERT_EQ(send(2), 0);
    ASSERT_EQ(recv(3), 0);
    ASSERT_EQ(recv(4), 0);
    received(60);
    mana_packet_end(&qp);
    const auto done = cq.poll();
    ASSERT_EQ(done.size(), 4U);
    std::size_t flushed = 0;
    for (const auto& c : done) {
        if (c.wr_id == 3) {
            EXPECT_EQ(c.status, MANA_HW_WC_SUCCESS);
        }
        flushed += c.status == MANA_HW_WC_WR_FLUSH_ERR;
    }
    EXPECT_EQ(flushed, 3U);
    EXPECT_TRUE(cq.poll().empty());
}

TEST_F(PacketTest, AResetQueueStartsAnew) {
    ASSERT_EQ(send(1, 1, MANA_HW_EXT_WQE_SIGNALED), 0);
    ASSERT_EQ(recv(2), 0);
    sent();
    received(60);
    mana_packet_end(&qp);
    mana_packet_reset(&qp);
    EXPECT_TRUE(cq.poll().empty());
    (void)sink.take();
    start();
    EXPECT_TRUE(sink.take().empty());
    ASSERT_EQ(send(5, 1, MANA_HW_EXT_WQE_SIGNALED), 0);
    mana_packet_ring_send(&qp);
    EXPECT_EQ(sink.take(), (Rung{{MANA_HW_DB_SQ, 0x0000002000001477ULL}}));
    sent();
    ASSERT_EQ(cq.poll().size(), 1U);
}

TEST_F(PacketTest, ArmingReachesTheRingsOfItsQueues) {
    mana_dp_cq_arm(&cq.dp, false);
    const auto rung = sink.take();
    ASSERT_EQ(rung.size(), 2U);  // the extended CQ itself is armed in its record
    EXPECT_EQ(cq.dp.record->arm, 1U << MANA_HW_EXT_ARM_SEQUENCE_SHIFT);
    // N = 64, nothing consumed, armed (GDMA 3.9).
    EXPECT_EQ(std::min(rung[0].second, rung[1].second), 0x8000004000000021ULL);
    EXPECT_EQ(std::max(rung[0].second, rung[1].second), 0x8000004000000022ULL);
    EXPECT_EQ(rung[0].first, MANA_HW_DB_CQ);
}

TEST_F(PacketTest, ACqThatWasArmedBeforeTheQueuesStartedArmsThem) {
    mana_packet_end(&qp);
    mana_packet_reset(&qp);
    (void)sink.take();
    mana_dp_cq_arm(&cq.dp, false);
    EXPECT_TRUE(sink.take().empty());
    start();
    EXPECT_EQ(sink.take().size(), 2U);
    mana_packet_leave(&cq.dp, &qp.send_side);
    mana_packet_join(&cq.dp, &qp.send_side);
    EXPECT_TRUE(qp.send_side.wants_event);
}

TEST_F(PacketTest, AWorkQueueIsAReceiveSideAlone) {
    QueueMemory ring(4096), cqes(4096);
    mana_packet_attr attr{};
    attr.queues.max_recv = 4;
    attr.queues.max_recv_sge = 1;
    attr.queues.rq = ring.data();
    attr.recv_cq = cqes.data();
    mana_packet_layout layout{};
    ASSERT_EQ(mana_packet_lay_out(&attr, &layout), 0);
    mana_packet_qp wq{};
    ASSERT_EQ(mana_packet_init(&wq, &attr, &layout), 0);
    wq.dp.qpn = 0x501;
    wq.dp.doorbell = sink.page();
    mana_dp_cq_arm(&cq.dp, false);
    (void)sink.take();
    mana_packet_join(&cq.dp, &wq.recv_side);
    mana_packet_start(&wq, 0, 0, 0x501, 0x52);
    EXPECT_EQ(sink.take().size(), 1U) << "it is armed as its CQ was";
    const mana_dp_sge sge{0x1000, 100, 1};
    EXPECT_EQ(mana_packet_recv(&wq, 1, &sge, 1), EINVAL) << "not ready yet";
    wq.receives.allowed = true;
    for (std::uint64_t id = 1; id <= 3; ++id) ASSERT_EQ(mana_packet_recv(&wq, id, &sge, 1), 0);
    Ring device;
    mana_hw_eth_rx_cqe cqe{};
    cqe.type = MANA_HW_ETH_CQE_RX_OK;
    cqe.packets[0].length = 77;
    device.write(wq.recv_side.ring, &cqe, 0x501, false);
    auto done = cq.poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].qpn, 0x501U);
    EXPECT_EQ(done[0].length, 77U);
    mana_packet_end(&wq);
    done = cq.poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[1].wr_id, 3U);
    EXPECT_EQ(done[1].status, MANA_HW_WC_WR_FLUSH_ERR);
    mana_packet_leave(&cq.dp, &wq.recv_side);
    mana_packet_free(&wq);
}

TEST_F(PacketTest, QueuesAndTheCqsOwnRingTakeTurns) {
    mana_ext_attr attr{};
    attr.max_send = attr.max_recv = 8;
    attr.max_send_sge = attr.max_recv_sge = 1;
    attr.signal_all = true;
    mana_ext_layout layout{};
    ASSERT_EQ(mana_ext_lay_out(&attr, &layout), 0);
    QueueMemory memory(layout.bytes);
    mana_ext_qp other{};
    ASSERT_EQ(mana_ext_init(&other, &attr, &layout, memory.data()), 0);
    other.dp.qpn = 0x30;
    other.dp.doorbell = sink.page();
    other.dp.send_cq = other.dp.recv_cq = &cq.dp;
    other.can_send = true;
    ASSERT_EQ(mana_dp_table_add(tables.rq.get(), 0x30, &other.dp), 0);
    for (std::uint64_t id = 0; id < 4; ++id) {
        mana_dp_send wr{};
        wr.wr_id = 100 + id;
        wr.opcode = MANA_HW_EXT_WQE_SEND;
        const std::uint32_t start = other.sq_producer;
        ASSERT_EQ(mana_ext_send(&other, &wr), 0);
        mana_hw_ext_cqe cqe{};
        cqe.type = MANA_HW_EXT_CQE;
        cqe.opcode = MANA_HW_EXT_WQE_SEND;
        cqe.cookie = start;
        cq.write(cqe, 0x30, true);
        ASSERT_EQ(recv(id), 0);
        received(60);
    }
    const auto first = cq.poll(4);
    ASSERT_EQ(first.size(), 4U);
    EXPECT_EQ(std::count_if(first.begin(), first.end(), [](auto& c) { return c.wr_id < 100; }), 2);
    EXPECT_EQ(cq.poll().size(), 4U);
    mana_ext_free(&other);
}

TEST_F(PacketTest, QueuesOfOneCqTakeTurnsAndLeaveIt) {
    QueueMemory memory[4] = {QueueMemory(4096), QueueMemory(4096), QueueMemory(4096),
                             QueueMemory(4096)};
    mana_packet_attr attr{};
    attr.queues.max_send = attr.queues.max_recv = 4;
    attr.queues.max_send_sge = attr.queues.max_recv_sge = 1;
    attr.queues.sq = memory[0].data();
    attr.queues.rq = memory[1].data();
    attr.send_cq = memory[2].data();
    attr.recv_cq = memory[3].data();
    mana_packet_layout layout{};
    ASSERT_EQ(mana_packet_lay_out(&attr, &layout), 0);
    mana_packet_qp other{};
    ASSERT_EQ(mana_packet_init(&other, &attr, &layout), 0);
    other.dp.qpn = 0xc00002;
    other.dp.doorbell = sink.page();
    mana_packet_join(&cq.dp, &other.send_side);
    mana_packet_join(&cq.dp, &other.recv_side);
    mana_packet_start(&other, 0x500, 0x51, 0x501, 0x52);
    other.receives.allowed = true;
    const mana_dp_sge sge{0x1000, 100, 1};
    Ring ring;
    for (std::uint64_t id = 0; id < 3; ++id) {
        ASSERT_EQ(recv(id), 0);
        received(60);
        ASSERT_EQ(mana_packet_recv(&other, 100 + id, &sge, 1), 0);
        mana_hw_eth_rx_cqe cqe{};
        cqe.type = MANA_HW_ETH_CQE_RX_OK;
        ring.write(other.recv_side.ring, &cqe, 0x501, false);
    }
    const auto first = cq.poll(2);
    ASSERT_EQ(first.size(), 2U);
    EXPECT_NE(first[0].qpn, first[1].qpn);
    mana_packet_leave(&cq.dp, &other.recv_side);
    mana_packet_leave(&cq.dp, &other.send_side);
    EXPECT_EQ(cq.poll().size(), 2U);
    mana_packet_leave(&cq.dp, &qp.send_side);
    mana_packet_leave(&cq.dp, &qp.recv_side);
    EXPECT_EQ(cq.dp.packets, nullptr);
    EXPECT_TRUE(cq.poll().empty());
    mana_packet_free(&other);
}

TEST_F(PacketTest, ForeignAndUnknownEntriesAreSkipped) {
    ASSERT_EQ(recv(1), 0);
    mana_hw_eth_rx_cqe cqe{};
    cqe.type = MANA_HW_ETH_CQE_RX_OK;
    receives.write(qp.recv_side.ring, &cqe, kRq + 1, false);
    receives.write(qp.recv_side.ring, &cqe, kRq, true);
    received(0, 0, MANA_HW_ETH_CQE_RX_FENCE);
    EXPECT_TRUE(cq.poll().empty());
    sent();  // none was posted
    EXPECT_TRUE(cq.poll().empty());
    received(60);
    EXPECT_EQ(cq.poll().size(), 1U);
}

TEST_F(PacketTest, TheDeviceIsToldOfTakenEntriesEachFourLaps) {
    for (int i = 0; i < 5 * 64; ++i) {
        ASSERT_EQ(send(1), 0);
        sent();
        (void)cq.poll();
    }
    std::size_t told = 0;
    for (const auto& [offset, value] : sink.take()) told += offset == MANA_HW_DB_CQ;
    EXPECT_EQ(told, 1U);
}

}  // namespace
}  // namespace openmana::test
