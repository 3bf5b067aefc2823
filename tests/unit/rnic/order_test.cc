// SPDX-License-Identifier: Apache-2.0
// Packets, their order and what they carry, when nothing is lost (ROCE 10.2).
#include <set>

#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;
using Words = std::vector<std::string>;

class OrderTest : public WireCase {};

// ROCE 10: 7
TEST_F(OrderTest, ShortSendsArePaddedAndKeepTheirLength) {
    open();
    for (std::uint32_t length = 0; length < 10; ++length) {
        link->b.recv(length, 4096 * length, 64);
        send(length, length);
    }
    ASSERT_TRUE(link->run(10, 10));
    std::uint32_t length = 0;
    for (const roce::Packet& p : sent()) {
        if (p.info().response) continue;
        EXPECT_EQ(p.pad, (4 - length % 4) % 4);
        EXPECT_EQ(link->b.done[length].length, length);
        EXPECT_TRUE(zero_at_b(4096 * length + length, 64)) << "no pad byte lands in memory";
        ++length;
    }
}

// ROCE 10: 15
TEST_F(OrderTest, SendsAreCutAtThePathMtu) {
    const std::vector<std::pair<std::uint32_t, Words>> cases = {
        {0, {"SO100"}},
        {1, {"SO100"}},
        {1023, {"SO100"}},
        {1024, {"SO100"}},
        {1025, {"SF100", "SL101"}},
        {2048, {"SF100", "SL101"}},
        {2049, {"SF100", "SM101", "SL102"}}};
    for (const auto& [length, words] : cases) {
        SCOPED_TRACE(length);
        for (const bool ipv6 : {false, true}) {
            Connection::Options options;
            options.ipv6 = ipv6;
            open(options);
            link->b.recv(1, 0, 4096);
            send(1, length);
            ASSERT_TRUE(link->run(1, 1));
            Words expected = words;
            expected.push_back("A" + words.back().substr(2));
            EXPECT_EQ(story(), expected);
            for (std::size_t i = 0; i < words.size(); ++i)
                EXPECT_EQ(sent()[i].ack_request, i + 1 == words.size());
            EXPECT_TRUE(same(0, 0, length));
        }
    }
}

// ROCE 10: 16
TEST_F(OrderTest, LengthOfAWriteIsInItsFirstPacket) {
    open();
    write(1, 3000);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(story(), (Words{"WF100", "WM101", "WL102", "A102"}));
    EXPECT_EQ(sent()[0].reth.length, 3000U);
    EXPECT_FALSE(sent()[1].info().has(roce::kHasReth));
    EXPECT_FALSE(sent()[2].info().has(roce::kHasReth));
}

// ROCE 10: 18
TEST_F(OrderTest, ReadOfNothingTakesOnePsn) {
    open();
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_READ, 1, 0, 0);
    wr.rkey = 0;
    link->post(wr);
    write(2, 1);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    EXPECT_EQ(story(), (Words{"RR100", "WO101", "RO100", "A101"}));
    EXPECT_EQ(link->network.sent_bytes[2], 0U);
}

// ROCE 10: 19
TEST_F(OrderTest, ImmediateAloneNeedsNoKey) {
    open();
    link->b.recv(1, 0, 0);
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 1, 0, 0);
    wr.rkey = 0xdeadbeef;
    wr.remote_address = ~std::uint64_t{0};
    wr.immediate = 77;
    link->post(wr);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_EQ(link->b.done[0].length, 0U);
    EXPECT_EQ(link->b.done[0].immediate, 77U);
}

// ROCE 10: 20, 21
TEST_F(OrderTest, PsnsWrap) {
    Connection::Options options;
    options.psn_a = 0xfffffe;
    open(options);
    link->b.recv(1, 0, 8192);
    send(1, 5 * 1024);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(story(), (Words{"SFfffffe", "SMffffff", "SM0", "SM1", "SL2", "A2"}));
    EXPECT_TRUE(same(0, 0, 5 * 1024));

    options.psn_a = 0xffffff;
    open(options);
    read(1, 4 * 1024, false);
    write(2, 1);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    EXPECT_EQ(story(), (Words{"RRffffff", "WO3", "RFffffff", "RM0", "RM1", "RL2", "A3"}));
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

// ROCE 10: 22
TEST_F(OrderTest, EachRequestCountsOnceInTheMsn) {
    open();
    link->b.recv(1, 0, 64);
    send(1, 10);
    ASSERT_TRUE(link->run(1, 1));
    write(2, 3 * 1024);
    ASSERT_TRUE(link->run(2, 1));
    read(3, 2 * 1024);
    ASSERT_TRUE(link->run(3, 1));
    std::vector<std::uint32_t> msns;
    for (const roce::Packet& p : sent())
        if (p.info().has(roce::kHasAeth)) msns.push_back(p.aeth.msn);
    EXPECT_EQ(msns, (std::vector<std::uint32_t>{1, 2, 3, 3}));
}

// ROCE 10: 23
TEST_F(OrderTest, AcknowledgementsRunTogether) {
    Connection::Options options;
    options.ring = 16384;
    open(options);
    for (std::uint64_t i = 0; i < 100; ++i) write(i, 8, 8 * i, i == 99);
    ASSERT_TRUE(link->run(100));
    expect_ok(100);
    std::vector<std::uint32_t> acks;
    for (const roce::Packet& p : sent())
        if (is_ack(p)) acks.push_back(p.psn.value());
    EXPECT_LE(acks.size(), 100U);
    EXPECT_TRUE(std::ranges::is_sorted(acks, std::less_equal<>()) || acks.size() == 1);
    EXPECT_EQ(acks.back(), 0x100U + 99);
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(link->a.done[i].id, i);
}

// ROCE 10: 24
TEST_F(OrderTest, ReadsKeepToTheirDepth) {
    Connection::Options options;
    options.limits_a.reads_out = 2;
    open(options);
    std::size_t out = 0;
    std::size_t most = 0;
    link->network.fate = [&](const roce::Packet& p) {
        if (p.opcode == Opcode::kReadRequest) most = std::max(most, ++out);
        if (p.opcode == Opcode::kReadResponseOnly) --out;
        return Fate{};
    };
    for (std::uint64_t i = 0; i < 5; ++i) read(i, 100, i == 4);
    ASSERT_TRUE(link->run(5));
    expect_ok(5);
    EXPECT_EQ(most, 2U);
    for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(link->a.done[i].id, i);
}

// ROCE 10: 25
TEST_F(OrderTest, WhatIsBehindAReadThatWaitsWaitsToo) {
    Connection::Options options;
    options.limits_a.reads_out = 1;
    open(options);
    link->b.recv(1, 0, 64);
    read(1, 1 << 20, false);
    read(2, 10, false);
    send(3, 10);
    ASSERT_TRUE(link->run(3, 1));
    expect_ok(3, 1);
    const auto second_read = position([](const roce::Packet& p) {
        return p.opcode == Opcode::kReadRequest && p.reth.length == 10;
    });
    const auto last_response = position(response(0x100 + 1023));
    const auto sent_at =
        position([](const roce::Packet& p) { return p.opcode == Opcode::kSendOnly; });
    EXPECT_LT(last_response, second_read);
    EXPECT_LT(second_read, sent_at);
}

// ROCE 10: 26
TEST_F(OrderTest, WriteOvertakesTheDataOfAReadButItsAckDoesNot) {
    open();
    read(1, 65536, false);
    write(2, 10);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    EXPECT_LT(
        position([](const roce::Packet& p) { return p.opcode == Opcode::kWriteOnly; }),
        position([](const roce::Packet& p) { return p.opcode == Opcode::kReadResponseFirst; }));
    EXPECT_LT(position([](const roce::Packet& p) { return p.opcode == Opcode::kReadResponseLast; }),
              position(is_ack));
}

// ROCE 10: 28
TEST_F(OrderTest, SolicitedBitIsOnTheLastPacketOfWhatCompletesAReceive) {
    open();
    for (std::uint64_t i = 0; i < 2; ++i) link->b.recv(i, 8192 * i, 4096);
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 2000);
    wr.solicited = true;
    link->post(wr);
    wr = link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 2, 0, 2000, 32768);
    wr.solicited = true;
    link->post(wr);
    wr = link->wr(MANA_HW_RNIC_WQE_WRITE, 3, 0, 2000, 65536);
    wr.solicited = true;
    link->post(wr);
    ASSERT_TRUE(link->run(3, 2));
    for (const roce::Packet& p : sent())
        EXPECT_EQ(p.solicited, p.opcode == Opcode::kSendLast || p.opcode == Opcode::kWriteLastImm);
}

// ROCE 10: 31
TEST_F(OrderTest, WriteLeavesTheReceiveToTheSend) {
    open();
    link->b.recv(9, 0, 64);
    write(1, 100, 4096, false);
    send(2, 10);
    ASSERT_TRUE(link->run(2, 1));
    expect_ok(2, 1);
    EXPECT_EQ(link->b.done[0].id, 9U);
    EXPECT_EQ(link->b.done[0].length, 10U);
}

// ROCE 10: 35
TEST_F(OrderTest, ManyEntriesWithNothingAmongThem) {
    open();
    const std::uint32_t targets[] = {7, 0, 1501, 33, 400};
    std::vector<gdma::Sge> scatter;
    std::uint64_t at = 3;
    for (const std::uint32_t length : targets) {
        scatter.push_back(link->b.sge(at, length));
        at += length + 5;
    }
    ASSERT_TRUE(link->b.node->host.post_recv(*link->b.qp, 1, scatter));
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 0);
    wr.sges = {link->a.sge(11, 999), link->a.sge(5000, 0), link->a.sge(3001, 941)};
    link->post(wr);
    ASSERT_TRUE(link->run(1, 1));
    std::vector<std::byte> from;
    for (const auto& [offset, length] : {std::pair{11, 999}, std::pair{3001, 941}}) {
        const auto part = link->a.at(static_cast<unsigned>(offset), static_cast<unsigned>(length));
        from.insert(from.end(), part.begin(), part.end());
    }
    std::vector<std::byte> to;
    at = 3;
    for (const std::uint32_t length : targets) {
        const auto part = link->b.at(at, length);
        to.insert(to.end(), part.begin(), part.end());
        EXPECT_TRUE(zero_at_b(at + length, 5));
        at += length + 5;
    }
    to.resize(from.size());
    EXPECT_EQ(from, to);
}

class LargestMessageTest : public ::testing::Test {
protected:
    static constexpr std::uint64_t kLength = 1ULL << 31;
    static constexpr std::uint64_t kAddress = 0x7000'0000'0000ULL;

    /// A region of 2 GiB whose pages are all the same.
    static DriverMr huge(Connection::Side& side) {
        constexpr std::uint64_t kPage = 2U << 20;
        const std::uint64_t page = (side.buffer.value() + kPage - 1) / kPage * kPage;
        const std::vector<std::uint64_t> pages(kLength / kPage, page);
        auto& hwc = side.node->host.hwc();
        const auto region = hwc.create_region(pages, kLength, 0, 21);
        EXPECT_TRUE(region);
        const auto mr = hwc.create_mr_of(side.node->host.pd, *region, kAddress, Connection::kAll);
        EXPECT_TRUE(mr);
        return *mr;
    }
};

/// The local path: 2 GiB of frames would take a while.
// ROCE 10: 36
TEST_F(LargestMessageTest, TwoToThe31Bytes) {
    Connection::Options options;
    options.mtu = 4096;
    Connection link(true, options, {});
    const DriverMr from = huge(link.a);
    const DriverMr to = huge(link.b);
    SendWr wr;
    wr.opcode = MANA_HW_RNIC_WQE_WRITE;
    wr.sges = {{kAddress, gdma::Key(from.lkey), 1U << 31}};
    wr.remote_address = kAddress;
    wr.rkey = to.rkey;
    link.post(wr);
    ASSERT_TRUE(link.run(1));
    EXPECT_EQ(link.a.done[0].vendor, 0U);
    EXPECT_EQ(link.b.node->rnic.counters().rx_bytes.value(), kLength);
    wr.sges.push_back({kAddress, gdma::Key(from.lkey), 1});
    link.post(wr);
    ASSERT_TRUE(link.run(2));
    EXPECT_EQ(link.a.done[1].vendor, unsigned{MANA_HW_RNIC_VE_TX_LENGTH});
}

/// At the smallest path MTU a READ of 2 GiB takes all PSNs that may be under way.
// ROCE 10: 66
TEST_F(LargestMessageTest, NoMorePsnsAreOutThanCanBeToldApart) {
    constexpr std::uint32_t kMtu = 256;
    constexpr std::uint32_t kMost = 1U << 23;
    for (const std::uint32_t spare : {0U, 1U, 10U}) {
        for (const std::uint32_t opcode : {MANA_HW_RNIC_WQE_READ, MANA_HW_RNIC_WQE_WRITE}) {
            SCOPED_TRACE(testing::Message() << spare << " spare, then opcode " << opcode);
            Connection::Options options;
            options.mtu = kMtu;
            options.timeout = 0;
            rnic::RnicConfig config;
            config.window_packets = kMost;
            options.limits_a.reads_out = 2;
            Connection link(false, options, config);
            link.network.fate = [](const roce::Packet&) { return Fate{true}; };
            const DriverMr mr = huge(link.a);
            SendWr wr;
            wr.opcode = MANA_HW_RNIC_WQE_READ;
            wr.sges = {{kAddress, gdma::Key(mr.lkey), (1U << 31) - spare * kMtu}};
            wr.remote_address = link.b.buffer.value();
            wr.rkey = link.b.mr.rkey;
            link.post(wr);
            wr.opcode = opcode;
            if (opcode == MANA_HW_RNIC_WQE_WRITE) wr.sges[0].length = 64 * kMtu;
            link.post(wr);
            link.idle();
            const auto& sent = link.network.sent;
            const bool writes = opcode == MANA_HW_RNIC_WQE_WRITE;
            ASSERT_EQ(sent.size(), 2U + (writes ? spare : 0)) << "two parts";
            for (const roce::Packet& p : sent)
                EXPECT_LT((p.psn.value() - Connection::kPsnA) & Psn::kMask, kMost);
            if (sent.size() > 1) {
                EXPECT_TRUE(sent.back().ack_request) << "the last that the window allows";
            }
        }
    }
}

// ROCE 10: 38
TEST_F(OrderTest, QueuePairConnectedToItself) {
    for (const bool local : {false, true}) {
        SimWorld world;
        TestNetwork network(world);
        network.local = local;
        Node node(world, network, 1);
        auto& host = node.host;
        ASSERT_TRUE(host.bring_up());
        auto cq = *host.create_cq(4096);
        auto qp = host.create_rc(cq, cq);
        const auto buffer = node.ram.alloc(8192);
        const auto mr = *host.hwc().create_mr(host.pd, buffer, 8192, Connection::kAll);
        ASSERT_TRUE(host.connect(*qp, 5, {host.gid(), host.mac(), qp->qpn(), 5}));
        Connection::fill(node.ram.bytes(buffer, 4096), 3);
        const gdma::Sge target{buffer.value() + 4096, gdma::Key(mr.lkey), 4096};
        ASSERT_TRUE(host.post_recv(*qp, 1, std::span(&target, 1)));
        SendWr wr;
        wr.opcode = MANA_HW_RNIC_WQE_SEND;
        wr.id = 2;
        wr.sges = {{buffer.value(), gdma::Key(mr.lkey), 3000}};
        ASSERT_TRUE(host.post_send(*qp, wr));
        std::vector<Completion> done;
        HostQp* const qps[] = {qp.get()};
        ASSERT_TRUE(world.run_until(
            [&] {
                host.poll(cq, qps, done);
                return done.size() == 2;
            },
            std::chrono::seconds(1)));
        EXPECT_TRUE(
            std::ranges::equal(node.ram.bytes(buffer, 3000), node.ram.bytes(buffer + 4096, 3000)));
    }
}

}  // namespace
}  // namespace openmana::test
