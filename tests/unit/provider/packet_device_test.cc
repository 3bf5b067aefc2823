// SPDX-License-Identifier: Apache-2.0
// The data path of raw packets against the Ethernet device, both in one process.
#include <dp_packet.h>
#include <mana/eth.h>
#include <mana/ext.h>
#include <mana/ext_eth.h>

#include "provider_fixture.h"
#include "unit/eth/fixture.h"

namespace openmana::test {
namespace {

using eth::test::Bytes;
using eth::test::flow4;
using eth::test::pattern;
using eth::test::udp;

class PacketDeviceTest : public eth::test::EthTest {
protected:
    void SetUp() override {
        EthTest::SetUp();
        eth.allow_packets(true);
        eq = driver.create_eq(2, guest.device, 1);
        ASSERT_TRUE(eq);
        doorbell.forward = [this](std::uint32_t offset, std::uint64_t value) {
            driver.write64(driver.doorbell_offset(guest.device.page) + offset, value);
        };
        mana_packet_attr attr{};
        attr.queues.max_send = attr.queues.max_recv = 16;
        attr.queues.max_send_sge = attr.queues.max_recv_sge = 2;
        mana_packet_layout layout{};
        ASSERT_EQ(mana_packet_lay_out(&attr, &layout), 0);
        const RingMemory rings[4] = {
            driver.alloc_ring(layout.sq_bytes), driver.alloc_ring(layout.send_cqes * 64),
            driver.alloc_ring(layout.rq_bytes), driver.alloc_ring(layout.recv_cqes * 64)};
        attr.queues.sq = reinterpret_cast<std::uint8_t*>(rings[0].at(0));
        attr.send_cq = rings[1].at(0);
        attr.queues.rq = reinterpret_cast<std::uint8_t*>(rings[2].at(0));
        attr.recv_cq = rings[3].at(0);
        ASSERT_EQ(mana_packet_init(&qp, &attr, &layout), 0);
        qp.dp.doorbell = doorbell.page();
        guest.packets = true;
        const Response send =
            make(MANA_HW_ETH_SQ, rings[0], rings[1], layout.sq_bytes, layout.send_cqes);
        const Response recv =
            make(MANA_HW_ETH_RQ, rings[2], rings[3], layout.rq_bytes, layout.recv_cqes);
        ASSERT_TRUE(send.ok() && recv.ok());
        mana_dp_cq_init(&cq, own.data(), 64,
                        reinterpret_cast<mana_hw_ext_cq_record*>(own.data() + 4096),
                        tables.sq.get(), tables.rq.get());
        mana_packet_join(&cq, &qp.send_side);
        mana_packet_join(&cq, &qp.recv_side);
        mana_packet_start(&qp, send.get<std::uint32_t>(32), send.get<std::uint32_t>(36),
                          recv.get<std::uint32_t>(32), recv.get<std::uint32_t>(36));
        qp.sends.allowed = qp.receives.allowed = true;
        ASSERT_TRUE(driver
                        .call(Request(MANA_HW_EXT_ADD_FLOW, 168, 40, 2)
                                  .put<std::uint64_t>(40, recv.get<std::uint64_t>(40)))
                        .ok());
        buffer = ram.alloc(1 << 16);
    }
    void TearDown() override { mana_packet_free(&qp); }
    Response make(std::uint32_t type, const RingMemory& ring, const RingMemory& cq_ring,
                  std::uint32_t bytes, std::uint32_t cqes) {
        return guest.create_wq(type, driver.create_region(ring).value(),
                               driver.create_region(cq_ring).value(), bytes, cqes * 64, eq->id);
    }
    mana_dp_sge sge(std::uint64_t offset, std::size_t length) const {
        return {buffer.value() + offset, static_cast<std::uint32_t>(length), guest.key};
    }
    /// Sends a frame from two pieces.
    void send(const Bytes& frame, std::uint64_t id) {
        std::memcpy(ram.at(buffer), frame.data(), frame.size());
        const mana_dp_sge list[2] = {sge(0, 20), sge(20, frame.size() - 20)};
        mana_dp_send wr{};
        wr.wr_id = id;
        wr.opcode = MANA_HW_EXT_WQE_SEND;
        wr.flags = MANA_HW_EXT_WQE_SIGNALED;
        wr.sge = list;
        wr.sge_count = 2;
        ASSERT_EQ(mana_packet_send(&qp, &wr), 0);
        mana_packet_ring_send(&qp);
    }
    std::vector<mana_completion> poll() {
        std::vector<mana_completion> out;
        mana_completion c{};
        while (mana_dp_cq_poll(&cq, &c) > 0) out.push_back(c);
        mana_dp_cq_done(&cq);
        return out;
    }

    DoorbellSink doorbell;
    Tables tables;
    QueueMemory own{4096 + 64};
    mana_dp_cq cq{};
    mana_packet_qp qp{};
    std::optional<DriverEq> eq;
    base::GuestAddr buffer{};
};

TEST_F(PacketDeviceTest, FramesGoOut) {
    for (std::uint64_t id = 0; id < 200; ++id) {
        const Bytes frame = udp(flow4(17), pattern(id % 80 + 1, static_cast<unsigned>(id)));
        send(frame, id);
        const auto done = poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, id);
        EXPECT_EQ(done[0].status, MANA_HW_WC_SUCCESS);
        ASSERT_EQ(sink.frames.size(), id + 1);
        EXPECT_EQ(sink.frames.back(), frame);
    }
}

TEST_F(PacketDeviceTest, FramesComeIn) {
    auto flow = flow4(17);
    flow.source_mac = eth::test::kPeerMac;
    flow.destination_mac = eth::test::kOwnMac;
    for (std::uint64_t id = 0; id < 200; ++id) {
        const mana_dp_sge list[2] = {sge(4096, 33), sge(8192, 1600)};
        ASSERT_EQ(mana_packet_recv(&qp, id, list, 2), 0);
        mana_packet_ring_recv(&qp);
        const Bytes frame = udp(flow, pattern(id * 7 + 1, static_cast<unsigned>(id)));
        eth.receive(frame);
        const auto done = poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, id);
        EXPECT_EQ(done[0].length, frame.size());
        EXPECT_EQ(done[0].flags, MANA_WC_IP_CSUM_OK);
        const std::byte* at = reinterpret_cast<const std::byte*>(ram.at(buffer));
        EXPECT_EQ(std::memcmp(at + 4096, frame.data(), 33), 0);
        EXPECT_EQ(std::memcmp(at + 8192, frame.data() + 33, frame.size() - 33), 0);
    }
}

TEST_F(PacketDeviceTest, ALongFrameIsRefusedAndTheNextFrameGoesOut) {
    send(udp(flow4(17), pattern(9014)), 1);
    send(udp(flow4(17), pattern(50)), 2);
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].status, MANA_HW_WC_LOC_LEN_ERR);
    EXPECT_EQ(done[0].vendor_error, MANA_HW_ETH_CQE_TX_MTU);
    EXPECT_EQ(done[1].status, MANA_HW_WC_SUCCESS);
}

TEST_F(PacketDeviceTest, ChecksumsAreFilledIn) {
    const Bytes good = udp(flow4(17), pattern(101));
    Bytes frame = good;
    eth::test::set16(frame, 24, 0);
    eth::test::set16(frame, 40, 0);
    std::memcpy(ram.at(buffer), frame.data(), frame.size());
    const mana_dp_sge list = sge(0, frame.size());
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.checksums = true;
    wr.sge = &list;
    wr.sge_count = 1;
    ASSERT_EQ(mana_packet_send(&qp, &wr), 0);
    mana_packet_ring_send(&qp);
    ASSERT_EQ(sink.frames.size(), 1U);
    EXPECT_EQ(sink.frames[0], good);
}

TEST_F(PacketDeviceTest, ArmedQueuesSendOneEvent) {
    const auto before = irq.count(1);
    mana_dp_cq_arm(&cq, false);
    send(udp(flow4(17), pattern(50)), 1);
    send(udp(flow4(17), pattern(50)), 2);
    EXPECT_EQ(irq.count(1), before + 1);
    EXPECT_EQ(poll().size(), 2U);
}

}  // namespace
}  // namespace openmana::test
