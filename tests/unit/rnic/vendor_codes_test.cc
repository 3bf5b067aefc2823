// SPDX-License-Identifier: Apache-2.0
// Vendor errors that take a driver which breaks the ABI (RNIC 3.9); docs/transport-tests.md has the
// list of all.
#include <mana/queue.h>

#include <cstddef>

#include "base/gate.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;

constexpr std::size_t kOob = 8;  // behind the header of a WQE

class VendorCodesTest : public WireCase {
protected:
    /// Changes a word of the first WQE of a ring.
    static void change(const RingMemory& ring, std::size_t offset,
                       const std::function<std::uint32_t(std::uint32_t)>& to) {
        std::byte* const at = ring.at(offset);
        base::store_le<std::uint32_t>(at, to(base::load_le<std::uint32_t>(at)));
    }
    /// The one work request of a host fails with the code.
    template <typename Host>
    void expect_error(Host& host, bool receive, std::uint64_t id, std::uint32_t vendor) {
        link->idle();
        ASSERT_EQ(host.done.size(), 1U);
        EXPECT_EQ(host.done[0].receive, receive);
        EXPECT_EQ(host.done[0].type, unsigned{MANA_HW_RNIC_CQE_ERROR});
        EXPECT_EQ(host.done[0].vendor, vendor);
        EXPECT_EQ(host.done[0].id, id);
        EXPECT_STREQ(host.state(), "ERR");
    }
    /// A's does, at once.
    void expect_send_error(std::uint32_t vendor) {
        expect_error(link->a, false, 1, vendor);
        EXPECT_STREQ(link->b.state(), "RTS");
        EXPECT_TRUE(sent().empty());
    }
    void expect_receive_error(std::uint32_t vendor) { expect_error(link->b, true, 9, vendor); }
    /// As after so many READs whose post failed half-way: their scatter lists alone are there.
    void leave_scatter_lists(unsigned count) {
        const std::array<std::uint32_t, 2> oob{Connection::kPsnA - 1, 0};
        const gdma::Sge to = link->a.sge(1 << 20, 100);
        DriverWq& ring = link->a.qp->read;
        for (unsigned i = 0; i < count; ++i)
            ring.post(std::as_bytes(std::span(oob)), std::span(&to, 1));
        ring.doorbell(1);
    }
    /// A WRITE with one word of its WQE changed.
    void write_changed(std::size_t offset, const std::function<std::uint32_t(std::uint32_t)>& to) {
        open();
        write(1, 100, 0, false);
        change(link->a.qp->send.ring, offset, to);
        link->a.qp->send.doorbell();
    }
};

TEST_F(VendorCodesTest, UnknownOpcode) {
    write_changed(kOob, [](std::uint32_t flags) { return flags | MANA_HW_RNIC_OOB_OPCODE; });
    expect_send_error(0x215);
    EXPECT_EQ(at_a().malformed_sends.value(), 1U);
}

TEST_F(VendorCodesTest, AnotherPsnThanTheNext) {
    write_changed(kOob,
                  [](std::uint32_t flags) { return flags + (1U << MANA_HW_RNIC_OOB_PSN_SHIFT); });
    expect_send_error(0x211);
}

TEST_F(VendorCodesTest, ReadWithoutItsScatterList) {
    open();
    read(1, 100, false);
    change(link->a.qp->read.ring, kOob, [](std::uint32_t psn) { return psn + 1; });
    link->a.qp->send.doorbell();
    expect_send_error(0x211);
}

TEST_F(VendorCodesTest, ReadBehindTheLeftoversOfAWholeRing) {
    for (const unsigned leftovers : {127U, 128U}) {
        SCOPED_TRACE(leftovers);
        Connection::Options options;
        options.read_ring = 2 * 4096;  // twice what the ring of a provider holds
        open(options);
        leave_scatter_lists(leftovers);
        read(1, 100);
        if (leftovers == 128) {
            expect_send_error(0x211);
            continue;
        }
        ASSERT_TRUE(link->run(1));
        expect_ok(1);
        EXPECT_TRUE(same(1 << 20, 1 << 20, 100));
    }
}

TEST_F(VendorCodesTest, ScatterListOfAnotherLengthThanTheRead) {
    open();
    read(1, 100, false);
    constexpr std::size_t kLength = kOob + sizeof(mana_hw_rnic_recv_oob) + 12;
    change(link->a.qp->read.ring, kLength, [](std::uint32_t length) { return length - 1; });
    link->a.qp->send.doorbell();
    expect_send_error(0x10f);
}

TEST_F(VendorCodesTest, MoreEntriesThanAWqeHolds) {
    write_changed(4, [](std::uint32_t header) { return header | MANA_HW_WQE_SGE_COUNT; });
    expect_send_error(0x210);
}

TEST_F(VendorCodesTest, LengthThatIsNotThatOfTheEntries) {
    write_changed(kOob + offsetof(mana_hw_rnic_send_oob, u.rdma.length),
                  [](std::uint32_t length) { return length + 1; });
    expect_send_error(0x216);
}

TEST_F(VendorCodesTest, UnitLargerThanThePathMtu) {
    write_changed(4, [](std::uint32_t header) { return header + ((2048U - 1024U) << 16); });
    expect_send_error(0x217);
}

TEST_F(VendorCodesTest, SendDoorbellBeyondTheRing) {
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    write(1, 100);
    link->network.sent.clear();
    DriverWq& wq = link->a.qp->send;
    wq.driver->ring_sq(wq.page, wq.id, static_cast<std::uint32_t>(2 * wq.ring.bytes));
    expect_send_error(0x20b);
    EXPECT_EQ(at_a().bad_doorbell.value(), 1U);
}

TEST_F(VendorCodesTest, SendQueueThatIsNotInMemory) {
    open();
    write(1, 100, 0, false);
    Node& node = *link->a.node;
    {
        // All but the page with the WQE.
        const base::Gate::Exclusion alone(node.function.gate());
        const std::uint64_t start = node.ram.start().value(), bytes = node.ram.size();
        const std::uint64_t hole = link->a.qp->send.ring.pages[0];
        const std::uint64_t behind = hole + GuestRam::kPage;
        std::byte* const host = node.ram.at(node.ram.start());
        ASSERT_TRUE(node.memory.unmap(node.ram.start(), bytes));
        ASSERT_TRUE(node.memory.map_host(node.ram.start(), {host, hole - start}));
        ASSERT_TRUE(node.memory.map_host(base::GuestAddr(behind),
                                         {host + (behind - start), start + bytes - behind}));
    }
    link->a.qp->send.doorbell();
    expect_send_error(0x205);
}

TEST_F(VendorCodesTest, SendFromARegionThatMayNotBeRead) {
    open();
    Connection::Side& a = link->a;
    const auto mr =
        a.node->host.hwc().create_mr(a.node->host.pd, a.buffer, 4096, gdma::kLocalWrite);
    ASSERT_TRUE(mr);
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100);
    wr.sges[0].key = gdma::Key(mr->lkey);
    link->post(wr);
    expect_send_error(0x206);
    EXPECT_EQ(at_a().send_protection.value(), 1U);
}

TEST_F(VendorCodesTest, ReceiveDoorbellBeyondTheRing) {
    open();
    link->b.recv(9, 0, 100);
    DriverWq& wq = link->b.qp->recv;
    wq.driver->ring_rq(wq.page, wq.id, static_cast<std::uint32_t>(wq.ring.bytes) + MANA_HW_WQE_UNIT,
                       1);
    expect_receive_error(0x108);
    EXPECT_EQ(at_b().bad_doorbell.value(), 1U);
}

TEST_F(VendorCodesTest, MalformedReceive) {
    open();
    const gdma::Sge sge = link->b.sge(0, 100);
    ASSERT_TRUE(link->b.node->host.post_recv(*link->b.qp, 9, std::span(&sge, 1), false));
    change(link->b.qp->recv.ring, 4,
           [](std::uint32_t header) { return header | MANA_HW_WQE_SGE_COUNT; });
    link->b.qp->recv.doorbell(1);
    send(1, 100);
    expect_receive_error(0x109);
    EXPECT_EQ(at_b().malformed_receives.value(), 1U);
    ASSERT_EQ(link->a.done.size(), 1U);
    EXPECT_EQ(link->a.done[0].vendor, 0x163U);
}

TEST_F(VendorCodesTest, MiddleOfAWriteInsideASend) {
    open();
    link->b.recv(9, 0, 4096);
    inject(link->b, to(link->b, Opcode::kSendFirst, 0x100), 1024);
    inject(link->b, to(link->b, Opcode::kWriteMiddle, 0x101), 1024);
    expect_receive_error(0x003);
}

TEST_F(VendorCodesTest, InvalidationOfAnOrdinaryKey) {
    open();
    link->b.recv(9, 0, 4096);
    roce::Packet packet = to(link->b, Opcode::kSendOnlyInvalidate, 0x100);
    packet.invalidate_rkey = roce::RKey(link->b.mr.rkey);
    inject(link->b, packet, 100);
    expect_receive_error(0x043);
    EXPECT_TRUE(sent().empty()) << "class J of ROCE 4.4: no answer";
}

TEST_F(VendorCodesTest, AnswerOfAnotherKindThanTheRequest) {
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    write(1, 10);
    link->network.sent.clear();
    inject(link->a, to(link->a, Opcode::kReadResponseOnly, 0x100), 10);
    expect_send_error(0x165);
}

}  // namespace
}  // namespace openmana::test
