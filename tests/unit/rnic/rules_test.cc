// SPDX-License-Identifier: Apache-2.0
// Packets that break the rules, and what both ends make of them (ROCE 10.1, 10.5).
#include "roce/icrc.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;

class RulesTest : public WireCase {
protected:
    struct Crafted {
        Opcode opcode;
        std::uint32_t bytes = 0;
        std::uint32_t reth = 0;  ///< length
    };
    /// Sends these to B from PSN 0x100 on; all but the last must not be refused.
    void craft(const std::vector<Crafted>& packets) {
        std::uint32_t psn = 0x100;
        for (const Crafted& c : packets) {
            roce::Packet p = to(link->b, c.opcode, psn++);
            p.reth.length = c.reth;
            p.ack_request = &c == &packets.back();
            inject(link->b, p, c.bytes);
        }
    }
    static constexpr std::size_t kIp = 14;
    static std::size_t ip_bytes() { return over_ipv6() ? 40 : 20; }
    static std::size_t udp() { return kIp + ip_bytes(); }
    /// Makes header checksum and ICRC of a changed frame right again.
    static void seal(base::Frame& frame) {
        if (!over_ipv6()) {
            std::byte* const ip = frame.data() + kIp;
            std::uint32_t sum = 0;
            base::store_be<std::uint16_t>(ip + 10, 0);
            for (std::size_t i = 0; i < 20; i += 2) sum += base::load_be<std::uint16_t>(ip + i);
            sum = (sum & 0xffff) + (sum >> 16);
            base::store_be<std::uint16_t>(ip + 10, static_cast<std::uint16_t>(~sum));
        }
        const std::span<const std::byte> all = std::span<const std::byte>(frame).subspan(kIp);
        const std::size_t ip = ip_bytes();
        const std::uint32_t icrc = roce::icrc(all.first(ip), all.subspan(ip, all.size() - ip - 4));
        base::store_le<std::uint32_t>(frame.data() + frame.size() - 4, icrc);
    }
    void expect_invalid_request(std::uint32_t psn) {
        ASSERT_EQ(sent().size(), 1U);
        EXPECT_EQ(sent()[0].aeth.syndrome, 0x61);
        EXPECT_EQ(sent()[0].psn, Psn(psn));
        EXPECT_STREQ(link->b.state(), "ERR");
    }
};

// ROCE 10: 13, 14
TEST_F(RulesTest, PacketsForSomebodyElse) {
    open();
    roce::Packet good = to(link->b, Opcode::kWriteOnly, 0x100);
    good.reth.length = 10;
    roce::Packet p = good;
    p.source = test_gid(9);
    inject(link->b, p, 10);
    EXPECT_EQ(at_b().drop_address.value(), 1U);
    const roce::Gid second = test_gid(77);
    ASSERT_TRUE(link->b.node->host.config_address(second, true));
    p = good;
    p.destination = second;
    inject(link->b, p, 10);
    EXPECT_EQ(at_b().drop_address.value(), 2U) << "a local address, but not the QP's";
    p = good;
    p.destination_qpn = roce::Qpn(0x7654);
    inject(link->b, p, 10);
    EXPECT_EQ(at_b().drop_qpn.value(), 1U);
    p = good;
    p.opcode = Opcode::kUdSendOnly;
    inject(link->b, p, 10);
    EXPECT_EQ(at_b().drop_qpn.value(), 2U) << "a datagram for an RC QP";
    EXPECT_TRUE(sent().empty());
    EXPECT_TRUE(zero_at_b(0, 64));
    write(1, 100);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
}

// ROCE 10: 84
TEST_F(RulesTest, QueuePairWithoutTheRight) {
    for (const std::uint32_t opcode :
         {MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_WRITE_IMM, MANA_HW_RNIC_WQE_READ}) {
        SCOPED_TRACE(opcode);
        Connection::Options options;
        const bool read = opcode == MANA_HW_RNIC_WQE_READ;
        options.limits_b.access =
            read ? MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE : MANA_HW_RNIC_QP_ACCESS_REMOTE_READ;
        open(options);
        link->b.recv(1, 65536, 64);
        link->post(link->wr(opcode, 1, 0, 100));
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_NAK_INVALID_REQUEST});
        EXPECT_STREQ(link->b.state(), "ERR");
        EXPECT_TRUE(zero_at_b(0, 100));
    }
}

// RNIC 6.2: no provider of the public format sends atomics, but a peer of another make does, and
// programs give the rights to them without asking what a queue pair can.
TEST_F(RulesTest, AtomicsOfAPeerOfAnotherMake) {
    constexpr std::uint32_t kAll = MANA_HW_RNIC_QP_ACCESS_REMOTE_ATOMIC;
    const auto atomic = [this](std::uint32_t qp_access, std::uint32_t key_access) {
        Connection::Options options;
        options.limits_b.access = qp_access;
        open(options);
        const auto mr = link->b.node->host.hwc().create_mr(
            link->b.node->host.pd, link->b.buffer, Connection::kMr, Connection::kAll | key_access);
        ASSERT_TRUE(mr);
        roce::Packet p = to(link->b, Opcode::kFetchAdd, 0x100);
        p.reth = {};
        p.atomic = {link->b.buffer.value(), roce::RKey(mr->rkey), 5, 0};
        inject(link->b, p);
        ASSERT_EQ(sent().size(), 1U);
    };
    const auto counted = [this] { return base::load_le<std::uint64_t>(link->b.at(0, 8).data()); };
    atomic(kAll, gdma::kRemoteAtomic);
    EXPECT_EQ(sent()[0].opcode, Opcode::kAtomicAcknowledge);
    EXPECT_EQ(counted(), 5U);
    EXPECT_STREQ(link->b.state(), "RTS");
    atomic(kAll, 0);
    EXPECT_EQ(sent()[0].aeth.syndrome, 0x62) << "a key without the right";
    EXPECT_EQ(counted(), 0U);
    EXPECT_STREQ(link->b.state(), "ERR");
    atomic(0, gdma::kRemoteAtomic);
    EXPECT_EQ(counted(), 0U);
    expect_invalid_request(0x100);
}

// ROCE 10: 86
TEST_F(RulesTest, WriteWithImmediateAndABadKeyIsToldOnce) {
    for (const bool posted : {false, true}) {
        open();
        if (posted) link->b.recv(1, 65536, 64);
        SendWr wr = link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 1, 0, 10);
        wr.rkey = 0x77;
        link->post(wr);
        if (!posted) {  // waits for a receive, and then fails
            link->idle();
            link->b.recv(1, 65536, 64);
        }
        ASSERT_TRUE(link->run(1, 1));
        link->idle(std::chrono::milliseconds(200));
        EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
        EXPECT_EQ(link->b.done.size(), 1U);
        EXPECT_TRUE(link->b.node->host.fatal_eq.drain().empty());
    }
}

// ROCE 10: 91
TEST_F(RulesTest, RegionRemovedHalfWayThroughARead) {
    constexpr std::uint32_t kLength = 1 << 20;
    rnic::RnicConfig config;
    config.congestion.dcqcn.line_rate = 1'000'000'000;
    config.congestion.dcqcn.rate_timer = std::chrono::hours(1);
    open({}, config);
    auto& host = link->b.node->host;
    const auto mr =
        host.hwc().create_mr(host.pd, link->b.buffer, Connection::kMr, Connection::kAll);
    std::ranges::fill(link->b.at(0, kLength), std::byte{0x11});
    std::ranges::fill(link->a.at(0, kLength), std::byte{0});
    inject(link->b, to(link->b, Opcode::kCnp, 0));  // B sends slowly from now on
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_READ, 1, 0, kLength, 0);
    wr.rkey = mr->rkey;
    link->post(wr);
    link->idle(std::chrono::milliseconds(1));
    const auto arrived = [&] {
        return static_cast<std::uint32_t>(
            std::ranges::count(link->a.at(0, kLength), std::byte{0x11}));
    };
    ASSERT_GT(arrived(), 0U);
    ASSERT_LT(arrived(), kLength);
    ASSERT_TRUE(host.hwc().destroy_mr(*mr));
    std::ranges::fill(link->b.at(0, kLength), std::byte{0x22});
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
    EXPECT_EQ(std::ranges::count(link->a.at(0, kLength), std::byte{0x22}), 0)
        << "nothing is read after the deregistration";
    EXPECT_EQ(sent().back().aeth.syndrome, 0x62);
    EXPECT_EQ(sent().back().psn.value() - Connection::kPsnA, arrived() / 1024)
        << "the first response that is missing";
}

// ROCE 10: 92
TEST_F(RulesTest, OpcodesOutOfSequence) {
    using C = Crafted;
    const std::vector<std::vector<C>> cases = {
        {C{Opcode::kSendMiddle, 1024}},
        {C{Opcode::kSendLast, 10}},
        {C{Opcode::kWriteMiddle, 1024}},
        {C{Opcode::kWriteLast, 10}},
        {C{Opcode::kWriteLastImm, 10}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kSendFirst, 1024}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kSendOnly, 10}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kReadRequest, 0, 10}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kWriteLast, 10}},
        {C{Opcode::kWriteFirst, 1024, 2000}, C{Opcode::kSendLast, 976}},
        {C{Opcode::kWriteFirst, 1024, 2000}, C{Opcode::kWriteOnly, 976, 976}},
        {C{Opcode::kWriteFirst, 1024, 2000}, C{Opcode::kReadRequest, 0, 10}},
        {C{Opcode::kWriteOnly, 10, 10}, C{Opcode::kWriteLast, 10}},
        {C{Opcode::kSendOnly, 10}, C{Opcode::kSendLast, 10}}};
    for (const auto& packets : cases) {
        SCOPED_TRACE(testing::Message()
                     << unsigned(packets[0].opcode) << " then " << unsigned(packets.back().opcode));
        open();
        link->b.recv(1, 0, 8192);
        craft(packets);
        expect_invalid_request(0x100 + static_cast<std::uint32_t>(packets.size()) - 1);
        link->idle();
        const auto events = link->b.node->host.fatal_eq.drain();
        const std::size_t errors = link->b.error(true) != 0 ? 1 : 0;
        EXPECT_EQ(events.size() + errors, 1U) << "told once, by event or completion";
    }
}

// ROCE 10: 93
TEST_F(RulesTest, ReservedOpcodes) {
    for (const unsigned opcode : {0x15U, 0x18U, 0x1fU}) {
        SCOPED_TRACE(opcode);
        open();
        // The codec makes no such frame: one of its own is changed.
        roce::Packet p = to(link->b, Opcode::kSendOnly, 0x100);
        const std::vector<std::byte> payload(16, std::byte{1});
        p.payload = payload;
        base::Frame frame;
        roce::encode(p, frame);
        frame[udp() + 8] = static_cast<std::byte>(opcode);
        seal(frame);
        link->b.recv(1, 0, 64);
        link->b.node->rnic.receive(frame);
        link->world.run_until_idle();
        expect_invalid_request(0x100);
        link->idle();
        EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED}) << "it was not in use";
    }
}

// ROCE 10: 94
TEST_F(RulesTest, PayloadsOfTheWrongSize) {
    using C = Crafted;
    const std::vector<std::vector<C>> cases = {
        {C{Opcode::kSendFirst, 1000}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kSendMiddle, 1023}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kSendLast, 0}},
        {C{Opcode::kSendFirst, 1024}, C{Opcode::kSendLast, 1025}},
        {C{Opcode::kSendOnly, 1025}},
        {C{Opcode::kWriteFirst, 1000, 2000}},
        {C{Opcode::kWriteFirst, 1024, 3000}, C{Opcode::kWriteMiddle, 1000}},
        {C{Opcode::kWriteFirst, 1024, 1024}},
        {C{Opcode::kWriteOnly, 1025, 1025}}};
    for (const auto& packets : cases) {
        SCOPED_TRACE(testing::Message()
                     << unsigned(packets.back().opcode) << " of " << packets.back().bytes);
        open();
        link->b.recv(1, 0, 8192);
        craft(packets);
        expect_invalid_request(0x100 + static_cast<std::uint32_t>(packets.size()) - 1);
    }
}

// ROCE 10: 94
TEST_F(RulesTest, PadThatIsNotThatOfTheLength) {
    for (const unsigned pad : {0U, 1U, 2U, 3U}) {
        SCOPED_TRACE(pad);
        open();
        link->b.recv(1, 0, 8192);
        roce::Packet p = to(link->b, Opcode::kSendOnly, 0x100);
        const std::vector<std::byte> payload(16, std::byte{1});
        p.payload = payload;
        base::Frame frame;
        roce::encode(p, frame);
        frame[udp() + 8 + 1] |= static_cast<std::byte>(pad << 4);
        // Payload and pad are a multiple of four whatever the pad says; not so without one byte.
        frame.erase(frame.end() - 5);
        for (const std::size_t at : {kIp + (over_ipv6() ? 4 : 2), udp() + 4}) {
            const auto length = base::load_be<std::uint16_t>(frame.data() + at);
            base::store_be<std::uint16_t>(frame.data() + at,
                                          static_cast<std::uint16_t>(length - 1));
        }
        seal(frame);
        link->b.node->rnic.receive(frame);
        link->world.run_until_idle();
        expect_invalid_request(0x100);
    }
}

// ROCE 10: 95
TEST_F(RulesTest, WriteOfAnotherLengthThanItSays) {
    for (const std::uint32_t last : {951U, 953U}) {
        open();
        craft({{Opcode::kWriteFirst, 1024, 3000},
               {Opcode::kWriteMiddle, 1024},
               {Opcode::kWriteLast, last}});
        expect_invalid_request(0x102);
        EXPECT_TRUE(zero_at_b(2048, 4096));
    }
}

// ROCE 10: 98
TEST_F(RulesTest, MoreReadsThanAgreedAreAnswered) {
    Connection::Options options;
    options.limits_b.reads_in = 2;
    open(options);
    for (std::uint32_t i = 0; i < 3; ++i) {
        roce::Packet p = to(link->b, Opcode::kReadRequest, 0x100 + i);
        p.reth.length = 100;
        p.reth.address += i;
        base::Frame frame;
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
    }
    link->world.run_until_idle();
    ASSERT_EQ(sent().size(), 3U) << "queued, as drivers without limits of their own need it";
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(sent()[i].opcode, Opcode::kReadResponseOnly);
        EXPECT_EQ(sent()[i].psn, Psn(0x100 + i));
    }
}

TEST_F(RulesTest, WhatAPeerIsOwedIsBounded) {
    open();
    const auto ask = [&](std::uint32_t psn) {
        roce::Packet p = to(link->b, Opcode::kReadRequest, psn);
        p.reth.length = 100;
        base::Frame frame;
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
    };
    // All come before the first is answered.
    link->b.node->room = 0;
    for (std::uint32_t i = 0; i < 300; ++i) ask(0x100 + i);
    link->world.run_until_idle();
    EXPECT_EQ(sent().size(), 0U);
    link->b.node->room = UINT64_MAX;
    link->world.advance(std::chrono::milliseconds(1));
    EXPECT_EQ(sent().size(), 128U);
    EXPECT_EQ(at_b().drop_owed.value(), 172U);
    EXPECT_STREQ(link->b.state(), "RTS");
    // As if they were lost: asked for again, they are answered.
    ask(0x180);
    link->world.run_until_idle();
    ASSERT_EQ(sent().size(), 129U);
    EXPECT_EQ(sent().back().opcode, Opcode::kReadResponseOnly);
    EXPECT_EQ(sent().back().psn, Psn(0x180));
}

// ROCE 10: 100
TEST_F(RulesTest, AnswersOfTheWrongKind) {
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    write(1, 10);
    inject(link->a, to(link->a, Opcode::kReadResponseOnly, 0x100), 10);
    ASSERT_EQ(link->a.done.size(), 1U);
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_BAD_RESPONSE});
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    read(1, 10);
    inject(link->a, to(link->a, Opcode::kAtomicAcknowledge, 0x100));
    ASSERT_EQ(link->a.done.size(), 1U);
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_BAD_RESPONSE});
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    read(1, 10);
    roce::Packet nak = to(link->a, Opcode::kReadResponseOnly, 0x100);
    nak.aeth.syndrome = 0x62;
    inject(link->a, nak, 10);
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_BAD_RESPONSE});
}

// ROCE 10: 101
TEST_F(RulesTest, ReadDataOfTheWrongLength) {
    struct Case {
        Opcode opcode;
        std::uint32_t asked, bytes;
    };
    for (const Case& c :
         {Case{Opcode::kReadResponseOnly, 100, 99}, Case{Opcode::kReadResponseOnly, 100, 101},
          Case{Opcode::kReadResponseFirst, 3000, 1000}, Case{Opcode::kReadResponseOnly, 3000, 1024},
          Case{Opcode::kReadResponseFirst, 100, 1024}}) {
        SCOPED_TRACE(testing::Message() << c.asked << " " << c.bytes);
        open();
        std::ranges::fill(link->a.at(1 << 20, 8192), std::byte{0});
        lose([](const roce::Packet&) { return true; }, 100);
        read(1, c.asked);
        inject(link->a, to(link->a, c.opcode, 0x100), c.bytes);
        ASSERT_EQ(link->a.done.size(), 1U);
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_READ_LENGTH});
        EXPECT_TRUE(std::ranges::all_of(link->a.at((1 << 20) + c.asked, 4096),
                                        [](std::byte b) { return b == std::byte{0}; }));
        EXPECT_STREQ(link->a.state(), "ERR");
    }
}

}  // namespace
}  // namespace openmana::test
