// SPDX-License-Identifier: Apache-2.0
// The GSI QP and UD QPs (RNIC 7), each case on the local path and on the wire.
#include <mana/ext.h>

#include "rnic/adapter.h"
#include "rnic_fixture.h"
#include "roce/icrc.h"
#include "support/state_damage.h"

namespace openmana::test {
namespace {

constexpr std::uint32_t kGsiQkey = 0x80010000;

/// A UD QP as the 7.2 kernel makes it.
struct UdQp {
    std::uint64_t handle = 0;
    DriverCq cq;
    DriverWq send, recv;
    base::GuestAddr buffer{};
    DriverMr mr;
};

class UdTest : public ::testing::TestWithParam<bool> {
protected:
    UdTest() : network(world), a(world, network, 1), b(world, network, 2) {
        network.local = GetParam();
        for (Node* node : {&a, &b}) EXPECT_TRUE(node->host.bring_up());
    }
    UdQp create(Node& node, std::uint32_t type, std::uint32_t qkey = kGsiQkey) {
        auto& host = node.host;
        UdQp qp;
        qp.cq = *host.create_cq();
        const RingMemory send = host.hwc().alloc_ring(8192);
        const RingMemory recv = host.hwc().alloc_ring(16384);
        Request create(MANA_HW_RNIC_CREATE_UD_QP, 112, 48, 3);
        create.put<std::uint64_t>(40, host.adapter)
            .put<std::uint64_t>(48, host.pd.handle)
            .put<std::uint64_t>(56, qp.cq.handle)
            .put<std::uint64_t>(64, qp.cq.handle)
            .put<std::uint64_t>(72, *host.hwc().create_region(send))
            .put<std::uint64_t>(80, *host.hwc().create_region(recv))
            .put<std::uint32_t>(88, type)
            .put<std::uint32_t>(92, host.device.page);
        const Response response = host.hwc().call(create.fit());
        EXPECT_TRUE(response.ok());
        qp.handle = response.get<std::uint64_t>(32);
        qp.send = host.hwc().make_wq(send, response.get<std::uint32_t>(40), host.device.page, true);
        qp.recv =
            host.hwc().make_wq(recv, response.get<std::uint32_t>(44), host.device.page, false);
        qp.buffer = node.ram.alloc(65536);
        qp.mr = *host.hwc().create_mr(host.pd, qp.buffer, 65536, 3);
        for (const std::uint32_t state : {1U, 2U, 3U}) {
            Request set(MANA_HW_RNIC_SET_QP_STATE, 184, 32, 3, 3);
            set.put<std::uint64_t>(40, host.adapter)
                .put<std::uint64_t>(48, qp.handle)
                .put<std::uint64_t>(56, state == 1 ? 0x41 : 1)
                .put<std::uint32_t>(64, state)
                .put<std::uint32_t>(168, qkey);
            EXPECT_TRUE(host.hwc().call(set.fit()).ok());
        }
        return qp;
    }
    void recv(UdQp& qp, std::uint64_t offset, std::uint32_t length) {
        const gdma::Sge sge{qp.buffer.value() + offset, gdma::Key(qp.mr.lkey), length};
        const std::array<std::byte, 8> garbage{std::byte{0x77}};
        qp.recv.post(garbage, std::span(&sge, 1));
        qp.recv.doorbell();
    }
    /// Writes the address vector, at 0 of the buffer.
    void write_av(UdQp& qp, Node& from, const roce::Gid& gid, const base::MacAddr& mac) {
        auto av = from.ram.bytes(qp.buffer, 64);
        std::ranges::fill(av, std::byte{0});
        const auto put = [&](std::size_t at, std::uint8_t value) { av[at] = std::byte{value}; };
        put(10, 0xff);
        put(11, 0xff);
        for (std::size_t i = 0; i < 4; ++i) {
            put(12 + i, gid[15 - i]);
            put(36 + i, from.host.gid()[15 - i]);
        }
        for (std::size_t i = 0; i < 6; ++i) put(16 + i, mac[5 - i]);
        put(22, 0x23);
        put(23, 0xc1);
        put(40, 64);
    }
    /// `length` bytes at 4096 of the buffer.
    void post(UdQp& qp, std::uint32_t dest_qpn, std::uint32_t length, std::uint32_t qkey) {
        const gdma::Sge sges[] = {{qp.buffer.value(), gdma::Key(qp.mr.lkey), 48},
                                  {qp.buffer.value() + 4096, gdma::Key(qp.mr.lkey), length}};
        const std::array<std::uint32_t, 6> oob{psn++ << 8 | 0x40, dest_qpn, qkey, 0, 0, 0};
        qp.send.post(std::as_bytes(std::span(oob)), sges, 0, 1U << 11 | 1024U << 16);
    }
    void send(UdQp& qp, Node& from, const Node& to, std::uint32_t dest_qpn, std::uint32_t length,
              std::uint32_t qkey = kGsiQkey) {
        write_av(qp, from, to.host.gid(), to.host.mac());
        post(qp, dest_qpn, length, qkey);
        qp.send.doorbell();
        world.advance(std::chrono::microseconds(10));
    }
    SimWorld world;
    TestNetwork network;
    Node a, b;
    std::uint32_t psn = 0;
};
INSTANTIATE_TEST_SUITE_P(Paths, UdTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ROCE 10: 126, 130
TEST_P(UdTest, GsiDeliversWithTheGrhArea) {
    UdQp from = create(a, 1);
    UdQp to = create(b, 1);
    EXPECT_EQ(to.recv.id, 1U);
    recv(to, 0, 296);
    recv(to, 512, 296);
    Connection::fill(a.ram.bytes(from.buffer + 4096, 256), 4);
    send(from, a, b, 1, 256, 0x1234);
    send(from, a, b, 1, 100);

    const auto sent = from.cq.poll();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->get<std::uint32_t>(0), 1U) << "type 1, vendor error 0";
    EXPECT_TRUE(sent->is_sq);
    EXPECT_EQ(sent->queue_id, from.send.id);
    EXPECT_TRUE(from.cq.poll());
    EXPECT_FALSE(from.cq.poll());

    const auto first = to.cq.poll();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->get<std::uint32_t>(0), 1U);
    EXPECT_EQ(first->get<std::uint32_t>(4), 296U);
    EXPECT_EQ(first->get<std::uint32_t>(8), 1U);
    EXPECT_EQ(first->queue_id, 1U);
    EXPECT_FALSE(first->is_sq);
    const auto second = to.cq.poll();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->get<std::uint32_t>(16), 32U);

    EXPECT_TRUE(
        std::ranges::equal(a.ram.bytes(from.buffer + 4096, 256), b.ram.bytes(to.buffer + 40, 256)));
    const auto grh = b.ram.bytes(to.buffer, 40);
    EXPECT_TRUE(std::ranges::all_of(grh.first(20), [](std::byte x) { return x == std::byte{0}; }));
    EXPECT_EQ(grh[20], std::byte{0x45});
    std::uint32_t sum = 0;
    for (std::size_t i = 20; i < 40; i += 2) sum += base::load_be<std::uint16_t>(&grh[i]);
    EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffU) << "a valid checksum";
    EXPECT_TRUE(std::memcmp(&grh[32], a.host.gid().data() + 12, 4) == 0);
    EXPECT_TRUE(std::memcmp(&grh[36], b.host.gid().data() + 12, 4) == 0);
}

// ROCE 10: 124, 127, 128
TEST_P(UdTest, BadDatagramsVanish) {
    UdQp from = create(a, 4, 0x11);
    UdQp to = create(b, 4, 0x11);
    send(from, a, b, to.recv.id, 10, 0x11);  // no receive
    recv(to, 0, 100);
    send(from, a, b, to.recv.id, 10, 0x12);    // wrong Q_Key
    send(from, a, b, to.recv.id, 61, 0x11);    // too long for the receive, which is kept
    send(from, a, b, 0x7777, 10, 0x11);        // nobody
    send(from, a, b, to.recv.id, 2000, 0x11);  // longer than the MTU: not sent
    EXPECT_FALSE(to.cq.poll());
    send(from, a, b, to.recv.id, 60, 0x80000000);  // high bit: the QP's own Q_Key
    const auto cqe = to.cq.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->get<std::uint32_t>(4), 100U);
    EXPECT_EQ(cqe->get<std::uint32_t>(8), from.recv.id);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(from.cq.poll()) << "one CQE for each send, " << i;
    EXPECT_FALSE(from.cq.poll());
    EXPECT_EQ(b.rnic.counters().drop_qkey.value(), 1U);
    EXPECT_EQ(b.rnic.counters().drop_no_receive.value(), 2U);
}

/// The queues of this ABI know no error of a datagram: what cannot be read is not sent.
// ROCE 10: 117
TEST_P(UdTest, UnreadableDatagramDoesNotStopTheNext) {
    UdQp from = create(a, 4, 0x11);
    UdQp to = create(b, 4, 0x11);
    recv(to, 0, 200);
    send(from, a, b, to.recv.id, 100000, 0x11);  // beyond the region
    send(from, a, b, to.recv.id, 10, 0x11);
    EXPECT_TRUE(from.cq.poll());
    EXPECT_TRUE(from.cq.poll());
    const auto cqe = to.cq.poll();
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->get<std::uint32_t>(4), 50U);
    EXPECT_EQ(a.rnic.counters().drop_datagram.value(), 1U);
}

TEST_P(UdTest, Loopback) {
    UdQp gsi = create(a, 1);
    recv(gsi, 8192, 296);
    send(gsi, a, a, 1, 64);
    const auto one = gsi.cq.poll();
    const auto two = gsi.cq.poll();
    ASSERT_TRUE(one && two);
    EXPECT_NE(one->is_sq, two->is_sq);
}

TEST_P(UdTest, OneGsiQpOnly) {
    UdQp first = create(a, 1);
    auto& host = a.host;
    Request create(MANA_HW_RNIC_CREATE_UD_QP, 112, 48, 3);
    create.put<std::uint64_t>(40, host.adapter)
        .put<std::uint64_t>(48, host.pd.handle)
        .put<std::uint64_t>(56, first.cq.handle)
        .put<std::uint64_t>(64, first.cq.handle)
        .put<std::uint64_t>(72, *host.hwc().create_region(host.hwc().alloc_ring(8192)))
        .put<std::uint64_t>(80, *host.hwc().create_region(host.hwc().alloc_ring(8192)))
        .put<std::uint32_t>(88, 1)
        .put<std::uint32_t>(92, host.device.page);
    EXPECT_FALSE(host.hwc().call(create.fit()).ok());
}

/// Wherever the other numbers begin.
TEST_P(UdTest, TheGsiQpHasOneNumber) {
    UdQp from = create(a, 1);
    UdQp to = create(b, 1);
    recv(to, 0, 296);
    const std::uint32_t first = b.function.rqs().first_public().value();
    for (const std::uint32_t nobody : {2U, 5U, first - 3, first + 1}) send(from, a, b, nobody, 64);
    EXPECT_FALSE(to.cq.poll());
    EXPECT_EQ(b.rnic.counters().drop_qpn.value(), 4U);
    send(from, a, b, 1, 64);
    EXPECT_TRUE(to.cq.poll());
}

TEST_P(UdTest, ForeignSourceAddressIsNotSent) {
    UdQp from = create(a, 4, 0x11);
    UdQp to = create(b, 4, 0x11);
    recv(to, 0, 200);
    ASSERT_TRUE(a.host.config_address(a.host.gid(), false));
    send(from, a, b, to.recv.id, 10, 0x11);
    EXPECT_TRUE(from.cq.poll());
    EXPECT_FALSE(to.cq.poll());
    EXPECT_EQ(a.rnic.counters().drop_source.value(), 1U);
}

/// The address vector is in memory of the program.
TEST_P(UdTest, AProgramSendsFromNoAddressThatItWasNotGranted) {
    UdQp to = create(b, 4, 0x11);
    a.host.pd = *a.host.hwc().create_pd(false, MANA_HW_EXT_PD_GRANTED_SOURCES);
    UdQp from = create(a, 4, 0x11);
    recv(to, 0, 200);
    send(from, a, b, to.recv.id, 10, 0x11);
    EXPECT_TRUE(from.cq.poll());
    EXPECT_FALSE(to.cq.poll());
    EXPECT_EQ(a.rnic.counters().drop_foreign_source.value(), 1U);
}

TEST_P(UdTest, PacketsAreCountedOnce) {
    UdQp from = create(a, 4, 0x11);
    UdQp to = create(b, 4, 0x11);
    recv(to, 0, 100);
    send(from, a, b, to.recv.id, 10, 0x11);
    ASSERT_TRUE(to.cq.poll());
    EXPECT_EQ(b.rnic.counters().rx_packets.value(), 1U);
}

/// Datagrams to groups; they are always frames (ROCE 5.5, case 129 of 10.7).
class MulticastTest : public UdTest {
protected:
    static roce::Packet datagram(std::uint32_t qkey) {
        roce::Packet packet;
        packet.opcode = roce::Opcode::kUdSendOnly;
        packet.source = ipv4_gid(9);
        packet.destination = ipv4_gid(1);
        packet.destination[12] = 239;  // 239.0.0.1
        packet.destination_mac = {1, 0, 0x5e, 0, 0, 1};
        packet.source_mac = test_mac(9);
        packet.destination_qpn = roce::kMulticastQpn;
        packet.deth = {roce::QKey(qkey), roce::Qpn(0x99)};
        return packet;
    }
    void deliver(roce::Packet packet) {
        static const std::vector<std::byte> payload(60, std::byte{7});
        packet.payload = payload;
        base::Frame frame;
        encode(packet, frame);
        b.rnic.receive(frame);
        world.run_until_idle();
    }
};
INSTANTIATE_TEST_SUITE_P(Paths, MulticastTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

// ROCE 10: 129
TEST_P(MulticastTest, ReachesEachQpWithTheQkey) {
    UdQp one = create(b, 4, 0x11);
    UdQp two = create(b, 4, 0x11);
    UdQp other = create(b, 4, 0x12);
    UdQp without = create(b, 4, 0x11);
    UdQp gsi = create(b, 1);
    for (UdQp* qp : {&one, &two, &other, &gsi}) recv(*qp, 0, 296);
    deliver(datagram(0x11));
    for (UdQp* qp : {&one, &two}) {
        const auto cqe = qp->cq.poll();
        ASSERT_TRUE(cqe);
        EXPECT_EQ(cqe->get<std::uint32_t>(4), 100U);
        EXPECT_EQ(cqe->get<std::uint32_t>(8), 0x99U);
    }
    EXPECT_FALSE(other.cq.poll());
    EXPECT_FALSE(without.cq.poll());
    deliver(datagram(kGsiQkey));
    EXPECT_FALSE(gsi.cq.poll());
    EXPECT_EQ(b.rnic.counters().drop_no_receive.value(), 1U);
    EXPECT_EQ(b.rnic.counters().drop_qkey.value(), 0U);
}

/// 64 frames lie in a chunk, and each of them is 20 deliveries.
TEST_P(MulticastTest, ATaskDeliversForAMillisecondAndLeavesTheOtherFrames) {
    for (int i = 0; i < 20; ++i) (void)create(b, 4, 0x11);
    base::Frame frame;
    encode(datagram(0x11), frame);
    const std::uint64_t before = b.rnic.counters().rx_frames.value();
    for (int i = 0; i < 64; ++i) b.rnic.receive(frame);
    ASSERT_TRUE(b.executor.run_once());
    EXPECT_EQ(b.rnic.counters().rx_frames.value() - before, 52U);
    EXPECT_EQ(b.rnic.counters().drop_no_receive.value(), 52U * 20);
    world.run_until_idle();
    EXPECT_EQ(b.rnic.counters().drop_no_receive.value(), 64U * 20);
}

TEST_P(MulticastTest, Ipv6GroupsToo) {
    UdQp qp = create(b, 4, 0x11);
    recv(qp, 0, 296);
    roce::Packet packet = datagram(0x11);
    packet.source = ipv6_gid(9);
    packet.destination = {0xff, 2};
    packet.destination[15] = 1;
    packet.destination_mac = {0x33, 0x33, 0, 0, 0, 1};
    deliver(packet);
    EXPECT_TRUE(qp.cq.poll());
}

TEST_P(MulticastTest, GroupNumberAndGroupAddressBelongTogether) {
    UdQp qp = create(b, 4, 0x11);
    recv(qp, 0, 296);
    roce::Packet packet = datagram(0x11);
    packet.destination_qpn = roce::Qpn(qp.recv.id);
    deliver(packet);
    packet = datagram(0x11);
    packet.destination = b.host.gid();
    packet.destination_mac = b.host.mac();
    deliver(packet);
    EXPECT_EQ(b.rnic.counters().drop_qpn.value(), 2U);
    packet = datagram(0x11);
    packet.destination_mac = b.host.mac();
    deliver(packet);
    EXPECT_EQ(b.rnic.counters().drop_address.value(), 1U);
    packet = datagram(0x11);
    packet.opcode = roce::Opcode::kSendOnly;
    deliver(packet);
    EXPECT_EQ(b.rnic.counters().drop_qpn.value(), 3U);
    EXPECT_FALSE(qp.cq.poll());
}

/// The longest datagram that UDP over IPv6 can express; a stream uplink carries it.
base::Frame longest_datagram(const roce::Packet& head) {
    constexpr std::size_t kIp = 14;
    constexpr std::size_t kUdp = kIp + 40;
    constexpr std::size_t kIcrc = 4;
    constexpr std::uint16_t kLength = 0xffff;
    base::Frame frame;
    encode(head, frame);
    frame.resize(kUdp + kLength);
    base::store_be(frame.data() + kIp + 4, kLength);
    base::store_be(frame.data() + kUdp + 4, kLength);
    const std::span<const std::byte> all(frame);
    const std::uint32_t sum = roce::icrc(all.subspan(kIp, 40), all.subspan(kUdp, kLength - kIcrc));
    base::store_le(frame.data() + frame.size() - kIcrc, sum);
    return frame;
}

// ROCE 2.2: at most the port's MTU.
TEST_P(MulticastTest, DatagramsBeyondTheMtuAreDropped) {
    UdQp qp = create(b, 4, 0x11);
    ASSERT_TRUE(b.host.config_address(ipv6_gid(2), true));
    const gdma::Sge halves[] = {{qp.buffer.value(), gdma::Key(qp.mr.lkey), 65536},
                                {qp.buffer.value(), gdma::Key(qp.mr.lkey), 65536}};
    qp.recv.post(std::array<std::byte, 8>{}, halves);
    qp.recv.doorbell();
    roce::Packet packet = datagram(0x11);
    packet.source = ipv6_gid(9);
    packet.destination = ipv6_gid(2);
    packet.destination_mac = b.host.mac();
    packet.destination_qpn = roce::Qpn(qp.recv.id);
    b.rnic.receive(longest_datagram(packet));
    packet.destination = {0xff, 2};
    packet.destination[15] = 1;
    packet.destination_mac = {0x33, 0x33, 0, 0, 0, 1};
    packet.destination_qpn = roce::kMulticastQpn;
    b.rnic.receive(longest_datagram(packet));
    world.run_until_idle();
    EXPECT_EQ(b.rnic.counters().drop_length.value(), 2U);
    EXPECT_FALSE(qp.cq.poll());
    deliver(packet);
    EXPECT_TRUE(qp.cq.poll()) << "the receive was kept";
}

// ROCE 10: 129
TEST_P(MulticastTest, SenderHearsItself) {
    UdQp from = create(a, 4, 0x11);
    UdQp second = create(a, 4, 0x11);
    recv(from, 8192, 296);
    recv(second, 8192, 296);
    const roce::Packet group = datagram(0x11);
    send(from, a, b, roce::kMulticastQpn.value(), 10, 0x11);  // unicast address: nobody
    ASSERT_TRUE(from.cq.poll());
    write_av(from, a, group.destination, group.destination_mac);
    post(from, roce::kMulticastQpn.value(), 10, 0x11);
    from.send.doorbell();
    world.run_until_idle();
    ASSERT_FALSE(network.sent.empty());
    EXPECT_EQ(network.sent.back().destination, group.destination);
    EXPECT_EQ(network.sent.back().ecn, roce::kEcnNone) << "datagrams have no rate to lower";
    EXPECT_TRUE(second.cq.poll());
    EXPECT_TRUE(from.cq.poll());
    EXPECT_TRUE(from.cq.poll()) << "its own, and that it was sent";
}

/// More queue pairs listen than get a datagram in one task.
class ManyReceiversTest : public MulticastTest {
protected:
    static constexpr std::size_t kReceivers = 300;
    static constexpr std::uint64_t kTurn = rnic::Datagrams::kTurnReceivers;

    /// Each with receives for two datagrams.
    void listen(Node& node, std::uint32_t qkey = 0x11) {
        for (std::size_t i = 0; i < kReceivers; ++i) {
            receivers.push_back(create(node, 4, qkey));
            for (const std::uint64_t offset : {0U, 512U}) recv(receivers.back(), offset, 296);
        }
        world.run_until_idle();
    }
    static base::Frame frame(std::size_t length) {
        const std::vector<std::byte> payload(length, std::byte{7});
        roce::Packet packet = datagram(0x11);
        packet.payload = payload;
        base::Frame out;
        encode(packet, out);
        return out;
    }
    /// Bytes of datagrams, of all receivers together.
    static std::uint64_t received(const Node& node) {
        return node.rnic.counters().rx_bytes.value();
    }
    /// Of the datagrams that a receiver has got.
    static std::vector<std::uint32_t> lengths(UdQp& qp) {
        std::vector<std::uint32_t> all;
        while (const auto cqe = qp.cq.poll()) all.push_back(cqe->get<std::uint32_t>(4) - 40);
        return all;
    }
    static rnic::Datagrams& datagrams(Node& node) { return node.rnic.adapter().datapath.datagrams; }
    std::vector<UdQp> receivers;
};
INSTANTIATE_TEST_SUITE_P(Paths, ManyReceiversTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

TEST_P(ManyReceiversTest, ATaskServesSomeAndTheNextFrameWaitsForTheOthers) {
    listen(b);
    b.rnic.receive(frame(60));
    ASSERT_TRUE(b.executor.run_once());
    EXPECT_EQ(received(b), kTurn * 60);
    b.rnic.receive(frame(20));
    ASSERT_TRUE(b.executor.run_once());
    EXPECT_EQ(received(b), 2 * kTurn * 60);
    world.run_until_idle();
    for (UdQp& qp : receivers) EXPECT_EQ(lengths(qp), (std::vector<std::uint32_t>{60, 20}));
}

TEST_P(ManyReceiversTest, ASenderWaitsUntilAllOfItsOwnNicHaveGotADatagram) {
    UdQp from = create(a, 4, 0x11);
    listen(a);
    const roce::Packet group = datagram(0x11);
    write_av(from, a, group.destination, group.destination_mac);
    for (const std::uint32_t length : {60U, 20U})
        post(from, roce::kMulticastQpn.value(), length, 0x11);
    from.send.doorbell();
    std::uint64_t before = 0;
    std::uint64_t most = 0;
    for (bool worked = true; worked; worked = a.executor.run_once()) {
        most = std::max(most, received(a) - before);
        before = received(a);
    }
    EXPECT_LE(most, 2 * kTurn * 60) << "that of the datagram and that of the sender";
    for (UdQp& qp : receivers) EXPECT_EQ(lengths(qp), (std::vector<std::uint32_t>{60, 20}));
}

/// Its ring may be written over when it has rung: what comes meanwhile is lost to its own NIC.
TEST_P(ManyReceiversTest, TheGsiQueuePairWaitsForNobody) {
    UdQp gsi = create(a, 1);
    listen(a, kGsiQkey);
    const roce::Packet group = datagram(kGsiQkey);
    write_av(gsi, a, group.destination, group.destination_mac);
    for (const std::uint32_t length : {60U, 20U})
        post(gsi, roce::kMulticastQpn.value(), length, kGsiQkey);
    gsi.send.doorbell();
    world.run_until_idle();
    EXPECT_TRUE(gsi.cq.poll() && gsi.cq.poll()) << "both are sent";
    for (UdQp& qp : receivers) EXPECT_EQ(lengths(qp), std::vector<std::uint32_t>{60});
    EXPECT_EQ(a.rnic.counters().rx_overflow.value(), 1U);
}

/// One that has got it, and one that has not.
TEST_P(ManyReceiversTest, ThoseThatLeaveInBetweenChangeNothingForTheOthers) {
    listen(b);
    b.rnic.receive(frame(60));
    ASSERT_TRUE(b.executor.run_once());
    const auto number = [](const UdQp& qp) { return qp.recv.id; };
    const auto [first, last] = std::ranges::minmax_element(receivers, {}, number);
    for (const auto& leaving : {first, last}) datagrams(b).remove(roce::Qpn(number(*leaving)));
    world.run_until_idle();
    for (UdQp& qp : receivers) EXPECT_EQ(lengths(qp).size(), number(qp) == number(*last) ? 0U : 1U);
}

TEST_P(ManyReceiversTest, AResetForgetsADatagramThatIsOnItsWay) {
    listen(b);
    b.rnic.receive(frame(60));
    ASSERT_TRUE(b.executor.run_once());
    ASSERT_TRUE(datagrams(b).busy());
    b.function.reset();
    EXPECT_FALSE(datagrams(b).busy());
    world.run_until_idle();
    EXPECT_EQ(received(b), kTurn * 60);
}

TEST_P(ManyReceiversTest, ADatagramThatIsOnItsWayDoesNotMoveAlong) {
    listen(b);
    b.rnic.receive(frame(60));
    ASSERT_TRUE(b.executor.run_once());
    ASSERT_EQ(b.move(), "");
    world.run_until_idle();
    EXPECT_EQ(received(b), kTurn * 60) << "the others lose it, as any datagram may be lost";
    b.rnic.receive(frame(20));
    world.run_until_idle();
    EXPECT_EQ(received(b), kTurn * 60 + kReceivers * 20);
}

/// Who listens, and who is in which group, as a state has it that anybody may have made.
class DatagramsStateTest : public UdTest {
protected:
    DatagramsStateTest() {
        if (other < ud) std::swap(ud, other);
    }
    struct Group {
        roce::Gid gid;
        std::vector<roce::Qpn> members;
    };
    [[nodiscard]] static roce::Gid group(std::uint32_t number) {
        roce::Gid gid{0xff, 2};
        base::store_be(reinterpret_cast<std::byte*>(gid.data()) + 12, number);
        return gid;
    }
    [[nodiscard]] Written state(const std::vector<roce::Qpn>& listeners,
                                const std::vector<Group>& groups) const {
        return written(world.now(), [&](base::StateWriter& out) {
            out(listeners);
            out.count(groups.size());
            for (const Group& one : groups) out(one.gid, one.members);
        });
    }
    /// Why it is refused, or "".
    std::string load(const Written& state) {
        rnic::Datagrams& datagrams = b.rnic.adapter().datapath.datagrams;
        datagrams.clear();
        const auto loaded =
            read_state(state, world.now(), [&](base::StateReader& in) { datagrams.load(in); });
        return loaded ? "" : loaded.error().text;
    }
    roce::Qpn ud{create(b, 4).recv.id};
    roce::Qpn other{create(b, 4).recv.id};
    const roce::Qpn gsi{create(b, 1).recv.id};
    const roce::Qpn nobody{0x777777};
};
INSTANTIATE_TEST_SUITE_P(Paths, DatagramsStateTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

TEST_P(DatagramsStateTest, GoodOnesAreReadInAnyOrder) {
    const Written good = state({ud, other}, {{group(1), {ud}}, {group(2), {ud, other}}});
    EXPECT_EQ(load(good), "");
    EXPECT_EQ(
        written(world.now(),
                [&](base::StateWriter& out) { b.rnic.adapter().datapath.datagrams.save(out); })
            .bytes,
        good.bytes);
    EXPECT_EQ(load(state({other, ud}, {{group(2), {other, ud}}})), "");
    EXPECT_EQ(load(state({}, {})), "");
}

TEST_P(DatagramsStateTest, OnlyAUdQueuePairListensAndOnce) {
    for (const std::vector<roce::Qpn>& listeners :
         {std::vector{nobody}, std::vector{gsi}, std::vector{other, ud, other}})
        EXPECT_EQ(load(state(listeners, {})), "listener that is no UD queue pair");
}

TEST_P(DatagramsStateTest, AGroupHasMembers) {
    EXPECT_EQ(load(state({}, {{group(1), {}}})), "group of nobody");
}

TEST_P(DatagramsStateTest, OnlyAUdQueuePairIsInAGroup) {
    for (const roce::Qpn member : {nobody, gsi})
        EXPECT_EQ(load(state({}, {{group(1), {ud, member}}})),
                  "member of a group that it cannot be in");
}

TEST_P(DatagramsStateTest, AnAddressOfOneHostIsNoGroup) {
    EXPECT_EQ(load(state({}, {{b.host.gid(), {ud}}})), "member of a group that it cannot be in");
}

TEST_P(DatagramsStateTest, ThereAreNoMoreGroupsThanADriverCanMake) {
    std::vector<Group> groups;
    for (std::uint32_t i = 0; i < rnic::Datagrams::kMaxGroups; ++i)
        groups.push_back({group(i), {ud}});
    EXPECT_EQ(load(state({}, groups)), "");
    groups.push_back({group(rnic::Datagrams::kMaxGroups), {ud}});
    EXPECT_EQ(load(state({}, groups)), "member of a group that it cannot be in");
}

TEST_P(DatagramsStateTest, AGroupHasNoMoreMembersThanADriverCanGiveIt) {
    std::vector<roce::Qpn> members;
    while (members.size() < rnic::Datagrams::kMaxGroupQps)
        members.emplace_back(create(b, 4).recv.id);
    EXPECT_EQ(load(state({}, {{group(1), members}})), "");
    members.push_back(ud);
    EXPECT_EQ(load(state({}, {{group(1), members}})), "member of a group that it cannot be in");
}

TEST_P(DatagramsStateTest, ANicWithoutExtensionsHasNoGroups) {
    rnic::RnicConfig config;
    config.extensions = false;
    Node plain(world, network, 3, config);
    ASSERT_TRUE(plain.host.bring_up());
    const roce::Qpn qpn(create(plain, 4).recv.id);
    EXPECT_EQ(plain.move(), "");
    // No command brings a queue pair of the stock ABI there.
    ASSERT_EQ(plain.rnic.adapter().datapath.datagrams.join(group(1), qpn), gdma::kHwcSuccess);
    EXPECT_EQ(plain.move(), "extensions that this NIC does not have");
}

/// Each part of it, and each with another byte, is read or refused.
TEST_P(DatagramsStateTest, AnyByteMayBeAnother) {
    const Written good = state({ud, other}, {{group(1), {ud, other}}});
    std::size_t refused = 0;
    for_each_damage(good.bytes, [&](const std::vector<std::byte>& bytes, const std::string& what) {
        if (!load({bytes, {}}).empty()) {
            ++refused;
            return;
        }
        EXPECT_FALSE(what.starts_with("the first")) << what;
    });
    EXPECT_GT(refused, good.bytes.size());
}

}  // namespace
}  // namespace openmana::test
