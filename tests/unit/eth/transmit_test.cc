// SPDX-License-Identifier: Apache-2.0
#include <mana/eth.h>

#include "fixture.h"
#include "support/hex.h"

namespace openmana::eth::test {
namespace {

using openmana::test::to_hex;
using openmana::test::TxOptions;

class EthTransmit : public EthTest {
protected:
    void SetUp() override {
        EthTest::SetUp();
        up();
    }
    /// Sends and expects one good completion; returns the frames.
    std::vector<base::Frame> sent(const Bytes& packet, const TxOptions& options = {}) {
        sink.frames.clear();
        guest.send(guest.tx[0], packet, options);
        EXPECT_EQ(tx_type(), 32U);
        return sink.frames;
    }
    /// Sends and returns the completion type; nothing may come out.
    std::uint32_t refused(const Bytes& packet, const TxOptions& options = {}) {
        sink.frames.clear();
        guest.send(guest.tx[0], packet, options);
        const auto type = tx_type();
        EXPECT_TRUE(sink.frames.empty());
        EXPECT_FALSE(guest.poll(guest.tx[0]));
        return type;
    }
    /// A packet for segmentation (GDMA 6.12): lengths zero, pseudo header sum without length.
    static Bytes big(const Flow& f, const Bytes& payload, unsigned flags, std::size_t options = 0) {
        Bytes b = tcp(f, {}, 0xfffffff0, flags, 0xfffe, options);
        if (f.six) {
            set16(b, 18, 0);
        } else {
            set16(b, 16, 0);
            set16(b, 24, 0);
        }
        set16(b, f.transport() + 16, pseudo_sum(f, 0));
        b.insert(b.end(), payload.begin(), payload.end());
        return b;
    }
    static TxOptions tso(const Flow& f, std::uint32_t mss, std::size_t options = 0) {
        TxOptions o;
        o.ipv4 = !f.six;
        o.ipv6 = f.six;
        o.ip_checksum = true;
        o.tcp_checksum = true;
        o.transport = static_cast<std::uint32_t>(f.transport());
        o.mss = mss;
        o.header_bytes = static_cast<std::uint32_t>(f.transport() + 20 + options);
        return o;
    }
    /// The same packet cut by the simplest program.
    static std::vector<Bytes> cut(const Flow& f, const Bytes& payload, unsigned flags,
                                  std::size_t mss, std::size_t options = 0) {
        std::vector<Bytes> out;
        for (std::size_t at = 0; at < payload.size(); at += mss) {
            const bool last = payload.size() - at <= mss;
            unsigned these = flags;
            if (at != 0) these &= ~0x80U;
            if (!last) these &= ~0x09U;
            const Bytes piece(
                payload.begin() + static_cast<std::ptrdiff_t>(at),
                last ? payload.end() : payload.begin() + static_cast<std::ptrdiff_t>(at + mss));
            out.push_back(tcp(f, piece, static_cast<std::uint32_t>(0xfffffff0 + at), these,
                              (0xfffe + static_cast<unsigned>(at / mss)) & 0xffff, options));
        }
        return out;
    }
    void expect_cut(const Flow& f, std::size_t bytes, std::uint32_t mss, unsigned flags,
                    std::size_t options = 0, std::vector<std::size_t> pieces = {}) {
        const Bytes payload = pattern(bytes, mss);
        TxOptions o = tso(f, mss, options);
        o.pieces = std::move(pieces);
        const auto frames = sent(big(f, payload, flags, options), o);
        const auto want = cut(f, payload, flags, mss, options);
        ASSERT_EQ(frames.size(), want.size());
        for (std::size_t i = 0; i < frames.size(); ++i)
            ASSERT_EQ(to_hex(frames[i]), to_hex(want[i])) << i;
    }
};

// DPDK's driver asks for a completion of the last packet of a burst only, and takes that for all of
// them.
TEST_F(EthTransmit, CompletionsAreSuppressedPacketByPacket) {
    TxOptions quiet;
    quiet.no_completion = true;
    const Bytes packet = udp(flow4(), pattern(100));
    guest.send(guest.tx[0], packet, quiet);
    guest.send(guest.tx[0], packet, quiet);
    EXPECT_EQ(sink.frames.size(), 2U);
    EXPECT_FALSE(guest.poll(guest.tx[0]));
    EXPECT_EQ(sent(packet).size(), 1U);
    EXPECT_FALSE(guest.poll(guest.tx[0]));
}

TEST_F(EthTransmit, ARefusedPacketWithoutCompletionIsCountedOnly) {
    TxOptions quiet;
    quiet.no_completion = true;
    Bytes packet = udp(flow4(), pattern(100));
    packet[6] ^= std::byte{2};  // another source address
    guest.send(guest.tx[0], packet, quiet);
    EXPECT_TRUE(sink.frames.empty());
    EXPECT_FALSE(guest.poll(guest.tx[0]));
    EXPECT_EQ(eth.counters().tx_source.value(), 1U);
}

TEST_F(EthTransmit, PacketWithoutOffloadIsSentAsItIs) {
    const Bytes packet = tcp(flow4(), pattern(100));
    const auto frames = sent(packet);
    ASSERT_EQ(frames.size(), 1U);
    EXPECT_EQ(frames[0], packet);
    EXPECT_EQ(irq.count(1), 2U);  // the EQ's test event, and this completion
}

TEST_F(EthTransmit, CompletionBytes) {
    // GDMA 6.13: OK, WQE at unit 3: DW0 = 0x60, DW2 = 0x60.
    for (int i = 0; i < 4; ++i) guest.post(guest.tx[0], tcp(flow4(), {}));
    guest.tx[0].sq.doorbell();
    auto cqes = guest.tx[0].cq.drain();
    ASSERT_EQ(cqes.size(), 4U);
    EXPECT_TRUE(cqes[3].is_sq);
    EXPECT_EQ(cqes[3].queue_id, guest.tx[0].sq.id);
    Bytes want(60);
    want[0] = want[8] = std::byte{0x60};
    EXPECT_EQ(to_hex(cqes[3].data), to_hex(want));
}

TEST_F(EthTransmit, WqeBytes) {
    // GDMA 3.4: one SGE, short OOB: header 00000000 00000201; OOB by hand.
    const Bytes packet = tcp(flow4(), pattern(10));
    const auto at = ram.alloc(packet.size());
    std::memcpy(ram.at(at), packet.data(), packet.size());
    Bytes wqe(32);
    base::store_le<std::uint32_t>(wqe.data() + 4, 0x201);
    base::store_le<std::uint64_t>(wqe.data() + 16, at.value());
    base::store_le<std::uint32_t>(wqe.data() + 24, guest.device.gpa_key);
    base::store_le<std::uint32_t>(wqe.data() + 28, static_cast<std::uint32_t>(packet.size()));
    guest.tx[0].sq.post_raw(wqe);
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 32U);
    ASSERT_EQ(sink.frames.size(), 1U);
    EXPECT_EQ(sink.frames[0], packet);
}

/// GDMA 0.3: in queues of single pages WQEs cross from one to another.
TEST_F(EthTransmit, QueuesOfScatteredPages) {
    ASSERT_TRUE(guest.down());
    guest.scattered = true;
    up();
    TxOptions options;
    options.pieces.assign(10, 7);
    for (unsigned i = 0; i < 300; ++i) {
        const Bytes packet = tcp(flow4(6), pattern(100 + i));
        const auto frames = sent(packet, options);
        ASSERT_EQ(frames.size(), 1U) << i;
        Flow back = flow4(6);
        back.source_mac = kPeerMac;
        back.destination_mac = kOwnMac;
        const Bytes answer = tcp(back, pattern(100 + i));
        const auto done = receive(answer);
        ASSERT_TRUE(done) << i;
        EXPECT_EQ(done->frame, answer);
        guest.post_buffer(guest.rx[0]);
    }
}

TEST_F(EthTransmit, ManySmallPieces) {
    const Bytes packet = tcp(flow4(), pattern(1000));
    TxOptions o;
    for (std::size_t i = 0; i < 29; ++i) o.pieces.push_back(1 + i);
    EXPECT_EQ(sent(packet, o)[0], packet);
}

TEST_F(EthTransmit, TcpChecksum) {
    for (const bool six : {false, true})
        for (const std::size_t n : {0, 1, 2, 3, 100, 1421}) {
            const Flow f = six ? flow6() : flow4();
            const Bytes want = tcp(f, pattern(n));
            TxOptions o;
            o.ipv4 = !six;
            o.ipv6 = six;
            o.tcp_checksum = true;
            o.transport = static_cast<std::uint32_t>(f.transport());
            EXPECT_EQ(to_hex(sent(partial(f, want), o)[0]), to_hex(want));
        }
}

TEST_F(EthTransmit, UdpChecksumIsFoundByParsing) {
    for (const bool six : {false, true})
        for (const std::size_t n : {0, 1, 7, 1400}) {
            const Flow f = six ? flow6(17) : flow4(17);
            const Bytes want = udp(f, pattern(n));
            TxOptions o;
            o.ipv4 = !six;
            o.ipv6 = six;
            o.udp_checksum = true;
            EXPECT_EQ(to_hex(sent(partial(f, want), o)[0]), to_hex(want));
        }
}

TEST_F(EthTransmit, UdpChecksumZeroIsSentAsOnes) {
    const Flow f = flow4(17);
    // The last word is chosen so that the checksum comes out as zero.
    Bytes payload(2);
    set16(payload, 0, get16(udp(f, payload), 40));
    const Bytes want = udp(f, payload);
    ASSERT_EQ(get16(want, 40), 0xffffU);
    TxOptions o;
    o.ipv4 = true;
    o.udp_checksum = true;
    EXPECT_EQ(to_hex(sent(partial(f, want), o)[0]), to_hex(want));
}

TEST_F(EthTransmit, Ipv4HeaderChecksumAlone) {
    const Bytes want = tcp(flow4(), pattern(9));
    Bytes packet = want;
    set16(packet, 24, 0x5555);
    TxOptions o;
    o.ipv4 = true;
    o.ip_checksum = true;
    EXPECT_EQ(to_hex(sent(packet, o)[0]), to_hex(want));
}

TEST_F(EthTransmit, PaddingBehindThePacketIsNotSummed) {
    const Flow f = flow4();
    const Bytes want = tcp(f, {});
    Bytes packet = partial(f, want);
    packet.resize(60, std::byte{0x99});
    TxOptions o;
    o.ipv4 = true;
    o.tcp_checksum = true;
    o.transport = 34;
    const auto frames = sent(packet, o);
    EXPECT_EQ(to_hex(std::span(frames[0]).first(want.size())), to_hex(want));
}

TEST_F(EthTransmit, VlanTagIsInserted) {
    const Flow f = flow4();
    const Bytes want = tcp(f, pattern(50));
    TxOptions o;
    o.vlan_tci = 0xb123;
    EXPECT_EQ(to_hex(sent(want, o)[0]), to_hex(with_tag(want, 0xb123)));
    o.ipv4 = true;
    o.tcp_checksum = true;
    o.transport = 34;
    EXPECT_EQ(to_hex(sent(partial(f, want), o)[0]), to_hex(with_tag(want, 0xb123)));
}

TEST_F(EthTransmit, SegmentationIpv4) {
    expect_cut(flow4(), 5000, 1448, 0x18);
}
TEST_F(EthTransmit, SegmentationIpv6) {
    expect_cut(flow6(), 5000, 1428, 0x18);
}
TEST_F(EthTransmit, SegmentationExactMultiple) {
    expect_cut(flow4(), 4 * 1000, 1000, 0x10);
}
TEST_F(EthTransmit, SegmentationOneSegment) {
    expect_cut(flow4(), 10, 1448, 0x19);
}
TEST_F(EthTransmit, SegmentationOddSize) {
    expect_cut(flow6(), 4097, 333, 0x11);
}
TEST_F(EthTransmit, SegmentationFlags) {
    expect_cut(flow4(), 3000, 1000, 0xff);
}
TEST_F(EthTransmit, SegmentationTcpOptions) {
    expect_cut(flow4(), 9000, 1436, 0x18, 12);
}
TEST_F(EthTransmit, SegmentationOfPieces) {
    expect_cut(flow4(), 9000, 700, 0x18, 0, {1, 333, 4000, 3});
}
TEST_F(EthTransmit, SegmentationOf64Kilobytes) {
    expect_cut(flow4(), 65160, 8948, 0x18);
}
TEST_F(EthTransmit, SegmentationOf512Kilobytes) {
    expect_cut(flow6(), 524280 - 74, 1428, 0x18);
}

TEST_F(EthTransmit, SegmentationWithVlan) {
    const Flow f = flow4();
    const Bytes payload = pattern(3000);
    TxOptions o = tso(f, 1000);
    o.vlan_tci = 0x0005;
    const auto frames = sent(big(f, payload, 0x18), o);
    const auto want = cut(f, payload, 0x18, 1000);
    ASSERT_EQ(frames.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_EQ(to_hex(frames[i]), to_hex(with_tag(want[i], 5)));
}

TEST_F(EthTransmit, SpoofedSourceIsRefused) {
    EXPECT_EQ(refused(tcp({.source_mac = kPeerMac}, {})), 33U);
    const Flow f{.source_mac = kPeerMac};
    EXPECT_EQ(refused(big(f, pattern(3000), 0x10), tso(f, 1000)), 33U);
    EXPECT_EQ(eth.counters().tx_source.value(), 2U);
    sink.allowed = {kPeerMac};
    EXPECT_EQ(sent(tcp({.source_mac = kPeerMac}, {})).size(), 1U);
    EXPECT_EQ(sent(big(f, pattern(3000), 0x10), tso(f, 1000)).size(), 3U);
    EXPECT_EQ(eth.counters().tx_source.value(), 2U);
}

TEST_F(EthTransmit, LongerThanTheMtuIsRefused) {
    Bytes packet = tcp(flow4(), pattern(9014 - 54));
    EXPECT_EQ(sent(packet).size(), 1U);
    packet.push_back({});
    EXPECT_EQ(refused(packet), 34U);
    EXPECT_EQ(sent(with_tag(tcp(flow4(), pattern(9014 - 54)), 1)).size(), 1U);
    EXPECT_EQ(refused(big(flow4(), pattern(20000), 0x10), tso(flow4(), 8961)), 34U);
    EXPECT_EQ(eth.counters().tx_mtu.value(), 2U);
}

TEST_F(EthTransmit, TooShortIsRefused) {
    EXPECT_EQ(refused(pattern(13)), 37U);
}

TEST_F(EthTransmit, VportOffsetMustBeZero) {
    EXPECT_EQ(refused(tcp(flow4(), {}), {.vport_offset = 1}), 39U);
    TxOptions o;
    o.vport_offset = 300;
    EXPECT_EQ(refused(tcp(flow4(), {}), o), 39U);
    EXPECT_EQ(eth.counters().tx_vport_offset.value(), 2U);
}

TEST_F(EthTransmit, OffloadForAnotherFamilyIsRefused) {
    EXPECT_EQ(refused(tcp(flow6(), {}), {.ipv4 = true, .tcp_checksum = true, .transport = 54}),
              36U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.tcp_checksum = true, .transport = 34}), 35U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .ipv6 = true, .tcp_checksum = true}), 35U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .tcp_checksum = true, .udp_checksum = true}),
              35U);
}

TEST_F(EthTransmit, HeadersThatDoNotFitAreRefused) {
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .tcp_checksum = true, .transport = 20}),
              37U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .tcp_checksum = true, .transport = 40}),
              37U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .tcp_checksum = true, .transport = 1023}),
              37U);
    EXPECT_EQ(refused(tcp(flow4(), {}), {.ipv4 = true, .udp_checksum = true}), 37U);
    Bytes packet = tcp(flow4(), {});
    packet[14] = std::byte{0x4f};  // more header than there is
    packet.resize(60);
    EXPECT_EQ(refused(packet, {.ipv4 = true, .ip_checksum = true}), 37U);
    packet[14] = std::byte{0x44};
    EXPECT_EQ(refused(packet, {.ipv4 = true, .ip_checksum = true}), 37U);
}

TEST_F(EthTransmit, BadSegmentationRequestsAreRefused) {
    const Flow f = flow4();
    const Bytes packet = big(f, pattern(3000), 0x10);
    TxOptions o = tso(f, 1000);
    o.header_bytes -= 1;
    EXPECT_EQ(refused(packet, o), 37U);
    o.header_bytes += 2;
    EXPECT_EQ(refused(packet, o), 37U);
    o.header_bytes = 300;
    EXPECT_EQ(refused(packet, o), 37U);
    o.header_bytes = 5;
    EXPECT_EQ(refused(packet, o), 37U);
    o = tso(f, 1000);
    o.transport = 1000;
    EXPECT_EQ(refused(packet, o), 37U);
    o = tso(f, 1000);
    o.tcp_checksum = false;
    EXPECT_EQ(refused(packet, o), 35U);
    o = tso(f, 1000);
    o.header_bytes = static_cast<std::uint32_t>(packet.size());  // a single SGE
    EXPECT_EQ(refused(packet, o), 35U);
    // More segments than one WQE may ask for.
    EXPECT_EQ(refused(big(f, pattern(20000), 0x10), tso(f, 1)), 37U);
    EXPECT_EQ(refused(big(f, pattern(524289), 0x10), tso(f, 1448)), 34U);
}

TEST_F(EthTransmit, UnreadableMemoryIsRefused) {
    const auto good = guest.key;
    guest.key = good + 1;
    EXPECT_EQ(refused(tcp(flow4(), {})), 35U);
    guest.key = 0;
    EXPECT_EQ(refused(tcp(flow4(), {})), 35U);
    guest.key = good;
    const gdma::Sge outside{1, gdma::Key(good), 100};
    const std::array<std::byte, 8> oob{};
    guest.tx[0].sq.post(oob, {&outside, 1});
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 35U);
    EXPECT_EQ(eth.counters().tx_gdma.value(), 3U);
}

TEST_F(EthTransmit, HugeLengthsAreRefused) {
    std::vector<gdma::Sge> sges(30,
                                gdma::Sge{ram.start().value(), gdma::Key(guest.key), 0xffffffff});
    const std::array<std::byte, 8> oob{};
    guest.tx[0].sq.post(oob, sges);
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 34U);
    std::array<std::byte, 8> segmented{};
    segmented[0] = std::byte{0x34};
    sges[0].length = 54;
    guest.tx[0].sq.post(segmented, sges, 54U << 24, 1U << 11 | 1000U << 16);
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 34U);
}

TEST_F(EthTransmit, UnknownFormatIsRefused) {
    const gdma::Sge sge{ram.start().value(), gdma::Key(guest.key), 64};
    for (const std::uint8_t format : {1, 2, 3}) {  // 1: long, but the OOB is short
        const std::array<std::byte, 8> oob{static_cast<std::byte>(format)};
        guest.tx[0].sq.post(oob, {&sge, 1});
        guest.tx[0].sq.doorbell();
        EXPECT_EQ(tx_type(), 35U);
    }
    EXPECT_EQ(eth.counters().tx_oob.value(), 3U);
}

TEST_F(EthTransmit, SenselessWqeStopsTheQueue) {
    Bytes wqe(32);
    base::store_le<std::uint32_t>(wqe.data() + 4, 0x401);  // OOB of 16 bytes
    guest.tx[0].sq.post_raw(wqe);
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 35U);
    guest.send(guest.tx[0], tcp(flow4(), {}));
    EXPECT_FALSE(guest.poll(guest.tx[0]));
    EXPECT_TRUE(sink.frames.empty());
    EXPECT_EQ(eth.counters().doorbell_ignored.value(), 1U);
}

TEST_F(EthTransmit, WqeOfMoreThanWasPosted) {
    Bytes wqe(32);
    base::store_le<std::uint32_t>(wqe.data() + 4, 0x21e);  // 30 SGEs
    guest.tx[0].sq.post_raw(wqe);
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(tx_type(), 35U);
}

TEST_F(EthTransmit, RandomWqesGetOneCompletionEach) {
    const auto buffer = ram.alloc(1 << 20);
    base::Random random(7);
    for (int round = 0; round < 20000; ++round) {
        // Half of each choice is what a driver would do, so that the later checks are reached too.
        const auto sane = [&] { return random.below(2) != 0; };
        const bool six = sane();
        const Flow flow = six ? flow6() : flow4();
        const Bytes headers = tcp(flow, pattern(random.below(40)));
        std::memcpy(ram.at(buffer), headers.data(), headers.size());
        for (int k = sane() ? 3 : 0; k != 0; --k)
            *ram.at(buffer + (6 + random.below(70))) = static_cast<std::byte>(random.next());
        if (sane()) std::memcpy(ram.at(buffer + 6), kOwnMac.data(), 6);
        std::array<std::uint32_t, 6> oob{};
        oob[0] = sane() ? (six ? 0x38U : 0x34U) : static_cast<std::uint32_t>(random.below(128));
        oob[1] = sane() ? 0 : static_cast<std::uint32_t>(random.below(80));
        oob[2] = static_cast<std::uint32_t>(random.next());
        std::vector<gdma::Sge> sges;
        const auto count = 1 + random.below(5);
        for (std::uint64_t k = 0; k < count; ++k)
            sges.push_back({buffer.value() + (k == 0 ? 0 : random.below(2000)),
                            gdma::Key(guest.key),
                            static_cast<std::uint32_t>(k != 0   ? random.below(3000)
                                                       : sane() ? flow.transport() + 20
                                                                : 14 + random.below(70))});
        const auto mss = static_cast<std::uint32_t>(random.below(2000));
        guest.tx[0].sq.post(std::as_bytes(std::span(oob)).first(random.below(2) != 0 ? 8 : 24),
                            sges, 0, random.below(2) != 0 ? 1U << 11 | mss << 16 : 0);
        guest.tx[0].sq.doorbell();
        world.run_until_idle();
        const auto type = tx_type();
        ASSERT_GE(type, 32U);
        ASSERT_LE(type, 41U);
        ASSERT_FALSE(guest.poll(guest.tx[0]));
        for (const auto& frame : sink.frames) ASSERT_LE(frame.size(), 9014U + 4);
        sink.frames.clear();
    }
    EXPECT_GT(eth.counters().tx_segments.value(), 1000U);
}

TEST_F(EthTransmit, DoorbellBeyondTheRingIsIgnored) {
    driver.ring_sq(guest.device.page, guest.tx[0].sq.id, 8192 + 32);
    driver.ring_sq(guest.device.page, guest.tx[0].sq.id, 0x80000000);
    EXPECT_FALSE(guest.poll(guest.tx[0]));
    EXPECT_EQ(eth.counters().doorbell_ignored.value(), 2U);
    EXPECT_EQ(sent(tcp(flow4(), {})).size(), 1U);
}

TEST_F(EthTransmit, OneCompletionPerWqeInOrder) {
    const Bytes good = tcp(flow4(), {});
    guest.post(guest.tx[0], good);
    guest.post(guest.tx[0], tcp({.source_mac = kPeerMac}, {}));
    guest.post(guest.tx[0], big(flow4(), pattern(3000), 0x10), tso(flow4(), 1000));
    guest.post(guest.tx[0], pattern(3));
    guest.post(guest.tx[0], good);
    guest.tx[0].sq.doorbell();
    std::vector<std::uint32_t> types;
    std::vector<std::uint32_t> offsets;
    while (const auto done = guest.poll(guest.tx[0])) {
        types.push_back(done->type);
        offsets.push_back(done->wqe_offset);
        EXPECT_EQ(done->client, 1U);
    }
    EXPECT_EQ(types, (std::vector<std::uint32_t>{32, 33, 32, 37, 32}));
    EXPECT_EQ(offsets, (std::vector<std::uint32_t>{0, 32, 64, 128, 160}));
    EXPECT_EQ(sink.frames.size(), 5U);
}

TEST_F(EthTransmit, RingWrapsManyTimes) {
    for (int i = 0; i < 1000; ++i) {
        const auto options = i % 3 == 0 ? TxOptions{.pieces = {14, 20, 20}} : TxOptions{};
        const Bytes packet = tcp(flow4(), pattern(static_cast<std::size_t>(i)));
        ASSERT_EQ(sent(packet, options)[0], packet) << i;
    }
}

TEST_F(EthTransmit, BigBatchIsDoneInTurns) {
    for (int i = 0; i < 200; ++i) guest.post(guest.tx[0], tcp(flow4(), {}));
    guest.tx[0].sq.doorbell();
    EXPECT_EQ(sink.frames.size(), 64U);
    EXPECT_TRUE(executor.run_once());
    EXPECT_EQ(sink.frames.size(), 128U);
    world.run_until_idle();
    EXPECT_EQ(sink.frames.size(), 200U);
    EXPECT_EQ(guest.tx[0].cq.drain().size(), 200U);
}

TEST_F(EthTransmit, TurnAfterDestroyFindsNothing) {
    for (int i = 0; i < 200; ++i) guest.post(guest.tx[0], tcp(flow4(), {}));
    guest.tx[0].sq.doorbell();
    ASSERT_TRUE(guest.destroy(MANA_HW_ETH_SQ, guest.tx[0].object).ok());
    auto another = guest.create_tx();
    ASSERT_TRUE(another);
    world.run_until_idle();
    EXPECT_EQ(sink.frames.size(), 64U);
    EXPECT_EQ(guest.tx[0].cq.drain().size(), 64U);
}

TEST_F(EthTransmit, TurnAfterResetFindsNothing) {
    for (int i = 0; i < 200; ++i) guest.post(guest.tx[0], tcp(flow4(), {}));
    guest.tx[0].sq.doorbell();
    function.reset();
    world.run_until_idle();
    EXPECT_EQ(sink.frames.size(), 64U);
}

TEST_F(EthTransmit, LinkDownDropsButCompletes) {
    eth.set_link(false);
    EXPECT_TRUE(sent(tcp(flow4(), {})).empty());
    EXPECT_EQ(eth.counters().tx_link_down.value(), 1U);
    eth.set_link(true);
    EXPECT_EQ(sent(tcp(flow4(), {})).size(), 1U);
}

TEST_F(EthTransmit, RawQueueUsesKeysOfItsPdAndItsPage) {
    ASSERT_TRUE(guest.down());
    const auto pd = driver.create_pd();
    const auto other = driver.create_pd();
    const auto page = driver.allocate_page();
    ASSERT_TRUE(pd && other && page != ~0U);
    ASSERT_TRUE(guest.config_tx(pd->id, page).ok());
    auto raw = guest.create_tx(8192, 16384, page);
    ASSERT_TRUE(raw);
    const auto buffer = ram.alloc(4096);
    const Bytes packet = tcp(flow4(), pattern(10));
    std::memcpy(ram.at(buffer), packet.data(), packet.size());
    const auto mr =
        driver.create_mr(*pd, buffer, 4096, gdma::kLocalRead | gdma::kLocalWrite, 0x7000);
    const auto foreign = driver.create_mr(*other, buffer, 4096, gdma::kLocalRead, 0x7000);
    ASSERT_TRUE(mr && foreign);
    const auto send = [&](std::uint32_t key) {
        const gdma::Sge sge{0x7000, gdma::Key(key), static_cast<std::uint32_t>(packet.size())};
        const std::array<std::byte, 8> oob{};
        raw->sq.post(oob, {&sge, 1});
        raw->sq.doorbell();
        const auto done = guest.poll(*raw);
        return done ? done->type : 0;
    };
    EXPECT_EQ(send(mr->lkey), 32U);
    ASSERT_EQ(sink.frames.size(), 1U);
    EXPECT_EQ(sink.frames[0], packet);
    EXPECT_EQ(send(foreign->lkey), 35U);
    EXPECT_EQ(send(guest.device.gpa_key), 35U);
    // The kernel's page is not the queue's.
    driver.ring_sq(guest.device.page, raw->sq.id, raw->sq.head() + 32);
    EXPECT_FALSE(guest.poll(*raw));
    EXPECT_FALSE(driver.destroy_pd(*pd));  // in use
    EXPECT_TRUE(guest.destroy(MANA_HW_ETH_SQ, raw->object).ok());
    EXPECT_TRUE(driver.destroy_mr(*mr));
    EXPECT_TRUE(driver.destroy_pd(*pd));
    EXPECT_FALSE(guest.create_tx());  // the binding names a PD that is gone
}

}  // namespace
}  // namespace openmana::eth::test
