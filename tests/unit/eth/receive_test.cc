// SPDX-License-Identifier: Apache-2.0
#include <mana/eth.h>

#include <thread>

#include "eth/toeplitz.h"
#include "fixture.h"
#include "support/hex.h"

namespace openmana::eth::test {
namespace {

using openmana::test::from_hex;
using openmana::test::RxConfig;
using openmana::test::to_hex;

constexpr std::uint32_t kIpGood = 1U << 25;
constexpr std::uint32_t kIpBad = 1U << 26;
constexpr std::uint32_t kTcpGood = 1U << 27;
constexpr std::uint32_t kTcpBad = 1U << 28;
constexpr std::uint32_t kUdpGood = 1U << 29;
constexpr std::uint32_t kUdpBad = 1U << 30;
constexpr base::MacAddr kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

Flow in4(unsigned protocol = 6) {
    Flow f = flow4(protocol);
    f.source_mac = kPeerMac;
    f.destination_mac = kOwnMac;
    return f;
}
Flow in6(unsigned protocol = 6) {
    Flow f = flow6(protocol);
    f.source_mac = kPeerMac;
    f.destination_mac = kOwnMac;
    return f;
}

class EthReceive : public EthTest {};

TEST_F(EthReceive, FrameArrivesWithItsCompletion) {
    up();
    const Bytes frame = tcp(in4(), pattern(100));
    const auto done = receive(frame);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, 1U);
    EXPECT_EQ(done->frame, frame);
    EXPECT_EQ(irq.count(1), 2U);
}

TEST_F(EthReceive, CompletionBytes) {
    // GDMA 6.15: OK, TCP/IPv4 hash, checksums good: DW0 = 0x41, DW1 = 0x0a020000.
    up(2);
    Bytes frame = tcp(in4(), pattern(100));
    eth.receive(frame);
    auto done = guest.poll(guest.rx[0]);
    if (!done) done = guest.poll(guest.rx[1]);
    ASSERT_TRUE(done);
    Bytes want(60);
    base::store_le<std::uint32_t>(want.data(), 0x41);
    base::store_le<std::uint32_t>(want.data() + 4, 0x0a020000);
    base::store_le<std::uint16_t>(want.data() + 8, static_cast<std::uint16_t>(frame.size()));
    base::store_le<std::uint32_t>(want.data() + 16, done->hash);
    EXPECT_EQ(to_hex(done->cqe), to_hex(want));
}

TEST_F(EthReceive, WqesAreConsumedInOrder) {
    up(1, 1500, 4);
    for (std::uint32_t i = 0; i < 100; ++i) {
        const Bytes frame = udp(in4(17), pattern(i));
        const auto done = receive(frame);
        ASSERT_TRUE(done) << i;
        EXPECT_EQ(done->wqe_offset, i * 32 % 16384);
        EXPECT_EQ(done->frame, frame);
        guest.post_buffer(guest.rx[0]);
    }
}

/// Several packets in a CQE (GDMA 6.8, 6.15): up to the parameter.
class EthReceiveTogether : public EthTest, public testing::WithParamInterface<unsigned> {
protected:
    void SetUp() override {
        EthTest::SetUp();
        up(1, 1500, 64);
        ask(GetParam(), 5);
    }
    void ask(unsigned packets, std::uint16_t version) {
        RxConfig config;
        config.default_rq = guest.rx[0].object;
        config.packets_per_cqe = packets;
        config.version = version;
        const auto answer = guest.config_rx(config);
        ASSERT_TRUE(answer.ok());
        told_ns = answer.get<std::uint32_t>(32);
    }
    auto poll() { return guest.poll_together(guest.rx[0]); }
    Bytes frame(unsigned number) const { return udp(in4(17), pattern(100 + number)); }
    std::uint32_t type() const {
        return GetParam() == 8 ? MANA_HW_ETH_CQE_RX_EIGHT : MANA_HW_ETH_CQE_RX_COALESCED;
    }
    std::uint32_t told_ns = 0;
};
INSTANTIATE_TEST_SUITE_P(Packets, EthReceiveTogether, testing::Values(4U, 8U),
                         testing::PrintToStringParamName());

TEST_P(EthReceiveTogether, AFullCqeIsWrittenAtOnce) {
    EXPECT_EQ(told_ns, 2048U);
    for (unsigned i = 0; i < 2 * GetParam(); ++i) eth.receive(frame(i));
    for (unsigned half = 0; half < 2; ++half) {
        const auto done = poll();
        ASSERT_TRUE(done);
        EXPECT_EQ(done->type, type());
        EXPECT_EQ(done->wqe_offset, half * GetParam() * 32);
        ASSERT_EQ(done->packets.size(), GetParam());
        for (unsigned i = 0; i < GetParam(); ++i)
            EXPECT_EQ(done->packets[i].first, frame(half * GetParam() + i)) << half << " " << i;
    }
    EXPECT_FALSE(poll());
}

TEST_P(EthReceiveTogether, WhatComesAloneIsToldOfInTime) {
    eth.receive(frame(0));
    world.advance(std::chrono::nanoseconds(2047));
    EXPECT_FALSE(poll());
    world.advance(std::chrono::nanoseconds(1));
    auto done = poll();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, MANA_HW_ETH_CQE_RX_OK);
    ASSERT_EQ(done->packets.size(), 1U);
    for (unsigned i = 0; i < 3; ++i) eth.receive(frame(i));
    world.advance(std::chrono::microseconds(3));
    done = poll();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, type());
    EXPECT_EQ(done->packets.size(), 3U);
    EXPECT_EQ(done->wqe_offset, 32U);
}

TEST_P(EthReceiveTogether, OnlyPacketsOfOneKindShareACqe) {
    eth.receive(frame(0));
    eth.receive(frame(1));
    eth.receive(tcp(in4(), pattern(10)));
    const auto done = poll();
    ASSERT_TRUE(done) << "another kind ends the first";
    EXPECT_EQ(done->packets.size(), 2U);
    EXPECT_FALSE(poll());
    world.advance(std::chrono::microseconds(3));
    const auto other = poll();
    ASSERT_TRUE(other);
    EXPECT_EQ(other->packets.size(), 1U);
    EXPECT_NE(other->flags, done->flags);
}

TEST_P(EthReceiveTogether, EachHasItsHash) {
    RxConfig config;
    config.default_rq = guest.rx[0].object;
    config.packets_per_cqe = GetParam();
    config.version = 5;
    config.rss = true;
    config.key.emplace();
    config.key->fill(std::byte{0x6d});
    config.table.emplace(64, guest.rx[0].object);
    ASSERT_TRUE(guest.config_rx(config).ok());
    Flow one = in4(17);
    Flow two = one;
    two.source_port = one.source_port + 1;
    for (const Flow& flow : {one, two, one}) eth.receive(udp(flow, pattern(50)));
    world.advance(std::chrono::microseconds(3));
    const auto done = poll();
    ASSERT_TRUE(done);
    ASSERT_EQ(done->packets.size(), 3U);
    EXPECT_NE(done->packets[0].second, 0U);
    EXPECT_EQ(done->packets[0].second, done->packets[2].second);
    EXPECT_NE(done->packets[0].second, done->packets[1].second);
}

TEST_P(EthReceiveTogether, AFenceEndsTheWait) {
    eth.receive(frame(0));
    eth.receive(frame(1));
    ASSERT_TRUE(guest.fence(guest.rx[0].object).ok());
    const auto done = poll();
    ASSERT_TRUE(done);
    EXPECT_EQ(done->packets.size(), 2U);
    const auto fence = poll();
    ASSERT_TRUE(fence);
    EXPECT_EQ(fence->type, MANA_HW_ETH_CQE_RX_FENCE);
}

TEST_P(EthReceiveTogether, OlderMessagesHaveOneInACqe) {
    // As those of RSS QPs, whose reader may know no other.
    ask(4, 2);
    EXPECT_EQ(told_ns, 0U);
    eth.receive(frame(0));
    eth.receive(frame(1));
    for (unsigned i = 0; i < 2; ++i) {
        const auto done = poll();
        ASSERT_TRUE(done);
        EXPECT_EQ(done->type, MANA_HW_ETH_CQE_RX_OK);
    }
}

TEST_P(EthReceiveTogether, AQueueThatEndsMeanwhileIsNotToldOf) {
    eth.receive(frame(0));
    ASSERT_TRUE(guest.down());
    world.advance(std::chrono::microseconds(3));
}

TEST_F(EthReceive, AddressFilter) {
    up();
    Flow f = in4();
    EXPECT_TRUE(receive(tcp(f, {})));
    f.destination_mac = kBroadcast;
    EXPECT_TRUE(receive(tcp(f, {})));
    f.destination_mac = {0x01, 0, 0x5e, 1, 2, 3};
    EXPECT_TRUE(receive(tcp(f, {})));
    f.destination_mac = kPeerMac;
    EXPECT_FALSE(receive(tcp(f, {})));
    EXPECT_EQ(eth.counters().rx_filtered.value(), 1U);
    sink.allowed = {kPeerMac};
    EXPECT_TRUE(receive(tcp(f, {}))) << "the network lets the guest have it";
    EXPECT_EQ(eth.counters().rx_filtered.value(), 1U);
}

TEST_F(EthReceive, VlanTagIsStripped) {
    up();
    const Bytes frame = tcp(in4(), pattern(60));
    const auto done = receive(with_tag(frame, 0xb123));
    ASSERT_TRUE(done);
    EXPECT_EQ(done->frame, frame);
    EXPECT_EQ(done->flags & 0x1fff, 0x1123U);
    EXPECT_EQ(done->flags & (kIpGood | kTcpGood), kIpGood | kTcpGood);
}

TEST_F(EthReceive, FullSizeTaggedFrameFits) {
    up();
    const Bytes frame = tcp(in4(), pattern(1460));
    const auto done = receive(with_tag(frame, 7));
    ASSERT_TRUE(done);
    EXPECT_EQ(done->frame, frame);
}

TEST_F(EthReceive, ChecksumFlags) {
    up(1, 1500, 64);
    const auto flags = [&](const Bytes& frame) {
        const auto done = receive(frame);
        EXPECT_TRUE(done);
        return done ? done->flags : 0;
    };
    for (const bool six : {false, true}) {
        const Flow t = six ? in6() : in4();
        const Flow u = six ? in6(17) : in4(17);
        Bytes frame = tcp(t, pattern(77));
        EXPECT_EQ(flags(frame), kIpGood | kTcpGood);
        frame.resize(frame.size() + 3, std::byte{9});  // Ethernet padding
        EXPECT_EQ(flags(frame), kIpGood | kTcpGood);
        frame[60 + (six ? 20 : 0)] ^= std::byte{1};
        EXPECT_EQ(flags(frame), kIpGood | kTcpBad);
        frame = udp(u, pattern(78));
        EXPECT_EQ(flags(frame), kIpGood | kUdpGood);
        frame.back() ^= std::byte{1};
        EXPECT_EQ(flags(frame), kIpGood | kUdpBad);
        set16(frame, u.transport() + 6, 0);  // none was sent
        EXPECT_EQ(flags(frame), kIpGood);
        frame = udp(u, pattern(78));
        set16(frame, u.transport() + 4, 3);  // a length that makes no sense
        EXPECT_EQ(flags(frame), kIpGood);
        frame = tcp(t, {});
        frame.resize(frame.size() - 1);  // shorter than its IP length
        EXPECT_EQ(flags(frame), 0U);
    }
    Bytes frame = tcp(in4(), pattern(10));
    set16(frame, 24, get16(frame, 24) ^ 1);
    EXPECT_EQ(flags(frame), kIpBad);
    EXPECT_EQ(eth.counters().rx_checksum_bad.value(), 5U);
    // A fragment: only the header can be verified.
    frame = tcp(in4(), pattern(10));
    set16(frame, 20, 0x2000);
    set16(frame, 24, 0);
    set16(frame, 24, 0xffff & ~sum16(frame, 14, 34));
    EXPECT_EQ(flags(frame), kIpGood);
    // ARP.
    frame = pattern(60);
    for (std::size_t i = 0; i < 6; ++i) frame[i] = std::byte{0xff};
    set16(frame, 12, 0x0806);
    EXPECT_EQ(flags(frame), 0U);
}

TEST_F(EthReceive, HostileHeadersAreOnlyData) {
    up(1, 1500, 64);
    std::uint64_t seed = 1;
    for (int round = 0; round < 3000; ++round) {
        Bytes frame = round % 2 != 0 ? tcp(in4(), pattern(20)) : udp(in6(17), pattern(20));
        for (int k = 0; k < 6; ++k) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            frame[12 + (seed >> 33) % (frame.size() - 12)] = static_cast<std::byte>(seed >> 56);
        }
        frame.resize(14 + (seed >> 20) % (frame.size() - 13));
        const Bytes exact(frame);  // no spare capacity: a read past the end is seen
        const auto done = receive(exact);
        if (!done) continue;
        EXPECT_LE(done->frame.size(), exact.size());
        guest.post_buffer(guest.rx[0]);
    }
    EXPECT_GT(eth.counters().rx_unicast_packets.value(), 2900U);
}

TEST_F(EthReceive, NoWqeIsCounted) {
    up(1, 1500, 2);
    ASSERT_TRUE(receive(tcp(in4(), {})));
    ASSERT_TRUE(receive(tcp(in4(), {})));
    EXPECT_FALSE(receive(tcp(in4(), {})));
    EXPECT_EQ(eth.counters().rx_no_wqe.value(), 1U);
    guest.post_buffer(guest.rx[0]);
    EXPECT_TRUE(receive(tcp(in4(), {})));
}

TEST_F(EthReceive, TooLongIsDroppedAndTheWqeKept) {
    up(1, 1500, 1);
    EXPECT_FALSE(receive(tcp(in4(), pattern(1461))));
    EXPECT_EQ(eth.counters().rx_too_long.value(), 1U);
    EXPECT_TRUE(receive(tcp(in4(), pattern(1460))));
    EXPECT_FALSE(receive(tcp(in4(), pattern(9000))));
    EXPECT_EQ(eth.counters().rx_too_long.value(), 2U);
}

TEST_F(EthReceive, JumboFrames) {
    up(1, 9000, 1);
    const Bytes frame = tcp(in4(), pattern(8960));
    const auto done = receive(frame);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->frame, frame);
}

TEST_F(EthReceive, TooShortIsMalformed) {
    up();
    eth.receive({});
    Bytes frame = tcp(in4(), {});
    frame.resize(13);
    eth.receive(frame);
    frame = with_tag(tcp(in4(), {}), 1);
    frame.resize(17);
    eth.receive(frame);
    EXPECT_EQ(eth.counters().rx_malformed.value(), 3U);
    EXPECT_FALSE(guest.poll(guest.rx[0]));
}

TEST_F(EthReceive, DisabledDropsAndFenceStillWorks) {
    up();
    RxConfig config;
    config.enable = false;
    config.update_default = false;
    ASSERT_TRUE(guest.config_rx(config).ok());
    EXPECT_FALSE(receive(tcp(in4(), {})));
    EXPECT_EQ(eth.counters().rx_disabled.value(), 1U);
    ASSERT_TRUE(guest.fence(guest.rx[0].object).ok());
    const auto done = guest.poll(guest.rx[0]);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, 3U);
}

TEST_F(EthReceive, FenceComesBehindEarlierPackets) {
    up();
    eth.receive(tcp(in4(), {}));
    eth.receive(tcp(in4(), {}));
    ASSERT_TRUE(guest.fence(guest.rx[0].object).ok());
    EXPECT_EQ(guest.poll(guest.rx[0])->type, 1U);
    EXPECT_EQ(guest.poll(guest.rx[0])->type, 1U);
    EXPECT_EQ(guest.poll(guest.rx[0])->type, 3U);
    // It takes no WQE: the next packet has the third.
    EXPECT_EQ(receive(tcp(in4(), {}))->wqe_offset, 64U);
}

TEST_F(EthReceive, FenceWaitsForAReceiveWqe) {
    up(1, 1500, 1);
    ASSERT_TRUE(receive(tcp(in4(), {})));
    ASSERT_TRUE(guest.fence(guest.rx[0].object).ok());
    EXPECT_FALSE(guest.poll(guest.rx[0]));
    guest.post_buffer(guest.rx[0]);
    const auto done = guest.poll(guest.rx[0]);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, 3U);
    EXPECT_FALSE(guest.poll(guest.rx[0]));
}

TEST_F(EthReceive, NoMoreFencesWaitThanWhoDeliversMayWaitFor) {
    up(1, 1500, 1);
    ASSERT_TRUE(receive(tcp(in4(), {})));
    const std::uint64_t failed = eth.counters().commands_failed.value();
    for (int i = 0; i < 64; ++i) ASSERT_TRUE(guest.fence(guest.rx[0].object).ok());
    for (int i = 0; i < 100; ++i)
        ASSERT_EQ(guest.fence(guest.rx[0].object).status, gdma::kHwcNoResources);
    EXPECT_EQ(eth.counters().commands_failed.value(), failed + 100);
    int fences = 0;
    for (int i = 0; i < 20; ++i) {
        guest.post_buffer(guest.rx[0]);
        while (const auto done = guest.poll(guest.rx[0]))
            if (done->type == 3) ++fences;
    }
    EXPECT_EQ(fences, 64) << "each that was granted";
    EXPECT_TRUE(guest.fence(guest.rx[0].object).ok());
}

TEST_F(EthReceive, FenceChecksTheHandle) {
    up();
    EXPECT_FALSE(guest.fence(guest.tx[0].object).ok());
    EXPECT_FALSE(guest.fence(0).ok());
}

TEST_F(EthReceive, UnwritableBufferIsReportedAsTruncated) {
    up(1, 1500, 0);
    const auto good = guest.key;
    guest.key = good + 1;
    guest.post_buffer(guest.rx[0]);
    guest.key = good;
    guest.post_buffer(guest.rx[0]);
    // The fence of up() waited for the first WQE.
    ASSERT_EQ(guest.poll(guest.rx[0])->type, 3U);
    const auto bad = receive(tcp(in4(), {}));
    ASSERT_TRUE(bad);
    EXPECT_EQ(bad->type, 4U);
    EXPECT_EQ(eth.counters().rx_bad_wqe.value(), 1U);
    const auto done = receive(tcp(in4(), {}));
    ASSERT_TRUE(done);
    EXPECT_EQ(done->type, 1U);
}

TEST_F(EthReceive, SenselessWqeStopsTheQueue) {
    up(1, 1500, 0);
    Bytes wqe(32);
    base::store_le<std::uint32_t>(wqe.data() + 4, 0x301);
    guest.rx[0].rq.post_raw(wqe);
    guest.rx[0].rq.doorbell();
    ASSERT_EQ(guest.poll(guest.rx[0])->type, 3U);
    EXPECT_FALSE(receive(tcp(in4(), {})));
    guest.post_buffer(guest.rx[0]);
    EXPECT_FALSE(receive(tcp(in4(), {})));
    EXPECT_EQ(eth.counters().rx_bad_wqe.value(), 2U);
    EXPECT_EQ(eth.counters().doorbell_ignored.value(), 1U);
}

TEST_F(EthReceive, BufferOfSeveralPieces) {
    up(1, 1500, 0);
    const auto at = ram.alloc(4096);
    const gdma::Key key(guest.key);
    const std::vector<gdma::Sge> sges = {{at.value(), key, 5},
                                         {at.value() + 100, key, 0},
                                         {at.value() + 200, key, 9},
                                         {at.value() + 300, key, 1500}};
    const std::array<std::byte, 8> oob{};
    guest.rx[0].rq.post(oob, sges);
    guest.rx[0].rq.doorbell();
    ASSERT_EQ(guest.poll(guest.rx[0])->type, 3U);
    const Bytes frame = tcp(in4(), pattern(50));
    eth.receive(frame);
    ASSERT_TRUE(guest.poll(guest.rx[0]));
    EXPECT_EQ(to_hex(ram.bytes(at, 5)), to_hex(std::span(frame).first(5)));
    EXPECT_EQ(to_hex(ram.bytes(at + 200, 9)), to_hex(std::span(frame).subspan(5, 9)));
    EXPECT_EQ(to_hex(ram.bytes(at + 300, frame.size() - 14)), to_hex(std::span(frame).subspan(14)));
}

TEST_F(EthReceive, LinkDownDrops) {
    up();
    eth.set_link(false);
    EXPECT_FALSE(receive(tcp(in4(), {})));
    EXPECT_EQ(eth.counters().rx_disabled.value(), 1U);
    eth.set_link(true);
    EXPECT_TRUE(receive(tcp(in4(), {})));
}

TEST_F(EthReceive, DefaultQueueTakesEverythingWithoutRss) {
    up(4);
    RxConfig config;
    config.default_rq = guest.rx[2].object;
    ASSERT_TRUE(guest.config_rx(config).ok());
    for (unsigned port = 0; port < 10; ++port) {
        Flow f = in4();
        f.source_port = port;
        const auto done = receive(tcp(f, {}), 2);
        ASSERT_TRUE(done);
        EXPECT_EQ(done->hash, 0U);
        EXPECT_EQ(done->flags >> 16 & 0x1ff, 0U);
    }
}

TEST_F(EthReceive, DestroyedQueueLeavesTheTable) {
    up(2);
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_RQ, guest.rx[0].object).ok());
    for (unsigned port = 0; port < 64; ++port) {
        Flow f = in4();
        f.source_port = port;
        eth.receive(tcp(f, {}));
        if (guest.poll(guest.rx[1])) guest.post_buffer(guest.rx[1]);
    }
    EXPECT_GT(eth.counters().rx_no_queue.value(), 0U);
    EXPECT_FALSE(guest.poll(guest.rx[0]));
}

/// Steering with Microsoft's key: the published hashes decide.
class EthRss : public EthTest {
protected:
    void SetUp() override {
        EthTest::SetUp();
        up(8, 1500, 16);
        RxConfig config;
        config.rss = true;
        config.default_rq = guest.rx[7].object;
        config.key.emplace();
        const auto key = from_hex(
            "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa");
        std::copy(key.begin(), key.end(), config.key->begin());
        config.table.emplace();
        for (std::size_t i = 0; i < 64; ++i) config.table->push_back(guest.rx[i % 7].object);
        ASSERT_TRUE(guest.config_rx(config).ok());
    }
    void expect(const Bytes& frame, std::uint32_t hash, std::uint32_t type) {
        const auto done = receive(frame, (hash & 63) % 7);
        ASSERT_TRUE(done);
        EXPECT_EQ(done->hash, hash);
        EXPECT_EQ(done->flags >> 16 & 0x1ff, type);
    }
};

TEST_F(EthRss, Ipv4) {
    for (const unsigned protocol : {6U, 17U}) {
        Flow f = in4(protocol);
        f.source = {66, 9, 149, 187};
        f.destination = {161, 142, 100, 80};
        f.source_port = 2794;
        f.destination_port = 1766;
        expect(protocol == 6 ? tcp(f, pattern(3)) : udp(f, pattern(3)), 0x51ccc178,
               protocol == 6 ? 2 : 4);
        f.protocol = 47;
        Bytes gre = ip_headers(f, 8);
        gre.resize(gre.size() + 8);
        expect(gre, 0x323e8fc2, 1);
    }
}

TEST_F(EthRss, Ipv6) {
    Flow f = in6();
    const auto source = from_hex("3ffe2501020 01fff00000000 00000007");
    const auto destination = from_hex("3ffe2501 02000003 00000000 00000001");
    std::memcpy(f.source.data(), source.data(), 16);
    std::memcpy(f.destination.data(), destination.data(), 16);
    f.source_port = 2794;
    f.destination_port = 1766;
    expect(tcp(f, pattern(3)), 0x40207d3d, 1 << 4);
    f.protocol = 17;
    expect(udp(f, pattern(3)), 0x40207d3d, 1 << 5);
    f.protocol = 58;
    Bytes icmp = ip_headers(f, 8);
    icmp.resize(icmp.size() + 8);
    expect(icmp, 0x2cc18cd5, 1 << 3);
}

TEST_F(EthRss, FragmentsHashAddressesOnly) {
    Flow f = in4();
    f.source = {66, 9, 149, 187};
    f.destination = {161, 142, 100, 80};
    Bytes frame = tcp(f, pattern(10));
    set16(frame, 20, 0x2000);
    set16(frame, 24, 0);
    set16(frame, 24, 0xffff & ~sum16(frame, 14, 34));
    expect(frame, 0x323e8fc2, 1);
}

TEST_F(EthRss, OthersGoToTheDefaultQueue) {
    Bytes frame = pattern(60);
    for (std::size_t i = 0; i < 6; ++i) frame[i] = std::byte{0xff};
    set16(frame, 12, 0x0806);
    const auto done = receive(frame, 7);
    ASSERT_TRUE(done);
    EXPECT_EQ(done->hash, 0U);
}

TEST_F(EthRss, KeyAndTableStayWhenNotUpdated) {
    RxConfig config;
    config.rss = true;
    config.default_rq = guest.rx[7].object;
    config.update_default = false;
    ASSERT_TRUE(guest.config_rx(config).ok());
    Flow f = in4();
    f.source = {66, 9, 149, 187};
    f.destination = {161, 142, 100, 80};
    f.source_port = 2794;
    f.destination_port = 1766;
    expect(tcp(f, {}), 0x51ccc178, 2);
}

TEST_F(EthRss, SmallTable) {
    RxConfig config;
    config.rss = true;
    config.update_default = false;
    config.table_entries = 2;
    config.table = {guest.rx[5].object, guest.rx[6].object};
    ASSERT_TRUE(guest.config_rx(config).ok());
    Flow f = in4();
    f.source = {66, 9, 149, 187};
    f.destination = {161, 142, 100, 80};
    f.source_port = 2794;
    f.destination_port = 1766;
    EXPECT_TRUE(receive(tcp(f, {}), 5));
}

TEST_F(EthReceive, VisitorsDeliverWhileTheDriverPosts) {
    up(1, 1500, 16);
    std::atomic<bool> stop{false};
    const Bytes frame = tcp(in4(), pattern(200));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
        threads.emplace_back([&] {
            while (!stop) {
                const base::Gate::Visit visit(function.gate());
                eth.receive(frame);
            }
        });
    int seen = 0;
    while (seen < 2000) {
        const auto done = guest.poll(guest.rx[0]);
        if (!done) continue;
        EXPECT_EQ(done->type, 1U);
        EXPECT_EQ(done->frame, frame);
        ++seen;
        guest.post_buffer(guest.rx[0]);
    }
    ASSERT_TRUE(guest.down());
    stop = true;
    for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace openmana::eth::test
