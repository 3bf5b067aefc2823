// SPDX-License-Identifier: Apache-2.0
#include "roce/packet.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "roce/aeth.h"
#include "roce/icrc.h"
#include "support/hex.h"

namespace openmana::roce {
namespace {

using base::Frame;
using test::from_hex;
using test::to_hex;

constexpr base::MacAddr kMac1 = {2, 0, 0, 0, 0, 1};
constexpr base::MacAddr kMac2 = {2, 0, 0, 0, 0, 2};

Gid gid4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
Gid gid6(std::uint8_t last) {
    return {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last};
}

/// A packet from host 1 (192.0.2.1, QP 0x34) to host 2, as in the golden frames of ROCE 1.9.
Packet request(Opcode opcode, std::uint32_t psn) {
    Packet p;
    p.destination_mac = kMac2;
    p.source_mac = kMac1;
    p.source = gid4(192, 0, 2, 1);
    p.destination = gid4(192, 0, 2, 2);
    p.dscp = 26;
    p.ecn = kEcnCapable0;
    p.udp_source_port = 0xc123;
    p.opcode = opcode;
    p.migrated = false;
    p.ack_request = true;
    p.destination_qpn = Qpn(0x12);
    p.psn = Psn(psn);
    return p;
}
Packet response(Opcode opcode, std::uint32_t psn, std::uint8_t syndrome, std::uint32_t msn) {
    Packet p = request(opcode, psn);
    std::swap(p.destination_mac, p.source_mac);
    std::swap(p.source, p.destination);
    p.udp_source_port = 0xc321;
    p.ack_request = false;
    p.destination_qpn = Qpn(0x34);
    p.aeth = {syndrome, msn};
    return p;
}

std::string encoded(Packet packet, std::string_view payload = {}) {
    packet.payload = std::as_bytes(std::span(payload.data(), payload.size()));
    Frame out;
    encode(packet, out);
    return to_hex(out);
}

/// Frames of ROCE 1.9, and the fields from which they come.
struct Golden {
    const char* name;
    const char* hex;
    Packet packet;
    std::string payload;
};
void add_sends(std::vector<Golden>& list) {
    list.push_back(
        {"send only, 0 bytes",
         "0200000000020200000000010800456a002c000040004011b653c0000201c0000202c12312b700180000"
         "0400ffff0000001280fffffe8d6bba3b",
         request(Opcode::kSendOnly, 0xfffffe), ""});
    Packet p = request(Opcode::kSendOnlyImm, 0xffffff);
    p.solicited = true;
    p.immediate = {std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}, std::byte{0xdd}};
    list.push_back(
        {"send only with immediate",
         "0200000000020200000000010800456a0034000040004011b64bc0000201c0000202c12312b700200000"
         "0580ffff0000001280ffffffaabbccdd70696e676f45258d",
         p, "ping"});
    p = request(Opcode::kSendOnlyInvalidate, 0);
    p.invalidate_rkey = RKey(0x00cafe01);
    list.push_back(
        {"send only with invalidate",
         "0200000000020200000000010800456a0034000040004011b64bc0000201c0000202c12312b700200000"
         "1710ffff000000128000000000cafe01696e76007e45fb91",
         p, "inv"});
}
void add_acknowledgements(std::vector<Golden>& list) {
    list.push_back(
        {"ack",
         "0200000000010200000000020800456a0030000040004011b64fc0000202c0000201c32112b7001c0000"
         "1100ffff00000034000000001f000003cc9bead7",
         response(Opcode::kAcknowledge, 0, kAckUnlimited, 3), ""});
    list.push_back(
        {"rnr nak",
         "0200000000010200000000020800456a0030000040004011b64fc0000202c0000201c32112b7001c0000"
         "1100ffff00000034000000012c00000333e51408",
         response(Opcode::kAcknowledge, 1, rnr_syndrome(12), 3), ""});
    list.push_back(
        {"sequence nak",
         "0200000000010200000000020800456a0030000040004011b64fc0000202c0000201c32112b7001c0000"
         "1100ffff000000340000000160000003b602d6d9",
         response(Opcode::kAcknowledge, 1, nak_syndrome(NakCode::kSequenceError), 3), ""});
}
void add_reads_and_atomics(std::vector<Golden>& list) {
    Packet p = request(Opcode::kReadRequest, 1);
    p.reth = {0x0000700012345678, RKey(0x00cafe01), 5};
    list.push_back(
        {"read request",
         "0200000000020200000000010800456a003c000040004011b643c0000201c0000202c12312b700280000"
         "0c00ffff0000001280000001000070001234567800cafe010000000587450114",
         p, ""});
    list.push_back(
        {"read response only",
         "0200000000010200000000020800456a0038000040004011b647c0000202c0000201c32112b700240000"
         "1030ffff00000034000000011f00000468656c6c6f000000da436209",
         response(Opcode::kReadResponseOnly, 1, kAckUnlimited, 4), "hello"});
    p = request(Opcode::kFetchAdd, 2);
    p.atomic = {0x0000700012345680, RKey(0x00cafe01), 7, 0};
    list.push_back(
        {"fetch add",
         "0200000000020200000000010800456a0048000040004011b637c0000201c0000202c12312b700340000"
         "1400ffff0000001280000002000070001234568000cafe01000000000000000700000000000000001000"
         "8d1c",
         p, ""});
    p = response(Opcode::kAtomicAcknowledge, 2, kAckUnlimited, 5);
    p.atomic_original = 0x1122334455667788;
    list.push_back(
        {"atomic ack",
         "0200000000010200000000020800456a0038000040004011b647c0000202c0000201c32112b700240000"
         "1200ffff00000034000000021f000005112233445566778853297417",
         p, ""});
}
void add_others(std::vector<Golden>& list) {
    Packet p = response(Opcode::kCnp, 0, 0, 0);
    p.aeth = {};
    p.dscp = 48;
    p.becn = true;
    list.push_back(
        {"cnp",
         "020000000001020000000002080045c2003c000040004011b5ebc0000202c0000201c32112b700280000"
         "8100ffff40000034000000000000000000000000000000000000000066851422",
         p, ""});
    p = response(Opcode::kAcknowledge, 0x123456, kAckUnlimited, 0x789);
    std::swap(p.destination_mac, p.source_mac);
    p.source = gid6(1);
    p.destination = gid6(2);
    p.udp_source_port = 0xc123;
    p.vlan_tci = 0x6005;
    list.push_back(
        {"ack, IPv6, VLAN",
         "0200000000020200000000018100600586dd66a00000001c114020010db8000000000000000000000001"
         "20010db8000000000000000000000002c12312b7001c00001100ffff00000034001234561f0007892f58"
         "4004",
         p, ""});
}
std::vector<Golden> golden() {
    std::vector<Golden> list;
    add_sends(list);
    add_acknowledgements(list);
    add_reads_and_atomics(list);
    add_others(list);
    return list;
}

// ROCE 10: 3
TEST(RocePacket, GoldenFramesAreEncoded) {
    for (const Golden& g : golden()) {
        SCOPED_TRACE(g.name);
        EXPECT_EQ(encoded(g.packet, g.payload), g.hex);
    }
}

// ROCE 10: 3
TEST(RocePacket, GoldenFramesRoundTrip) {
    for (const Golden& g : golden()) {
        SCOPED_TRACE(g.name);
        const auto frame = from_hex(g.hex);
        const auto packet = parse(frame);
        ASSERT_TRUE(packet) << packet.error().text;
        EXPECT_EQ(packet->opcode, g.packet.opcode);
        EXPECT_EQ(packet->psn, g.packet.psn);
        EXPECT_EQ(packet->destination_qpn, g.packet.destination_qpn);
        EXPECT_EQ(packet->ack_request, g.packet.ack_request);
        EXPECT_EQ(packet->solicited, g.packet.solicited);
        EXPECT_EQ(packet->becn, g.packet.becn);
        EXPECT_EQ(packet->source, g.packet.source);
        EXPECT_EQ(packet->destination, g.packet.destination);
        EXPECT_EQ(packet->source_mac, g.packet.source_mac);
        EXPECT_EQ(packet->vlan_tci, g.packet.vlan_tci);
        EXPECT_EQ(packet->dscp, g.packet.dscp);
        EXPECT_EQ(packet->ecn, g.packet.ecn);
        EXPECT_EQ(packet->reth, g.packet.reth);
        EXPECT_EQ(packet->aeth, g.packet.aeth);
        EXPECT_EQ(packet->atomic, g.packet.atomic);
        EXPECT_EQ(packet->atomic_original, g.packet.atomic_original);
        EXPECT_EQ(packet->immediate, g.packet.immediate);
        EXPECT_EQ(packet->invalidate_rkey, g.packet.invalidate_rkey);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(packet->payload.data()),
                              packet->payload.size()),
                  g.payload);
        Frame again;
        encode(*packet, again);
        EXPECT_EQ(to_hex(again), g.hex);
    }
}

// ROCE 10: 1
TEST(RocePacket, WorkedExampleA) {
    Packet p = request(Opcode::kWriteOnly, 0xabc);
    p.ipv4_id = 0x1234;
    p.reth = {0x0000700012345678, RKey(0x00cafe01), 5};
    EXPECT_EQ(encoded(p, "hello"),
              "0200000000020200000000010800456a00441234400040"
              "11a407c0000201c0000202c12312b7003000000a30ffff0000001280000abc"
              "000070001234567800cafe010000000568656c6c6f000000e1323f1e");
}

// ROCE 10: 1
TEST(RocePacket, WorkedExampleB) {
    Packet p = request(Opcode::kUdSendOnly, 7);
    p.source = gid6(1);
    p.destination = gid6(2);
    p.flow_label = 0x12345;
    p.udp_source_port = 0xd2d1;
    p.solicited = true;
    p.ack_request = false;
    p.destination_qpn = kGsiQpn;
    p.deth = {QKey(0x80010000), kGsiQpn};
    const std::string hex = encoded(p, "RoCEv2 UD");
    EXPECT_EQ(hex,
              "02000000000202000000000186dd66a12345002c1140"
              "20010db800000000000000000000000120010db8000000000000000000000002"
              "d2d112b7002c000064b0ffff0000000100000007800100000000000152"
              "6f4345763220554400"
              "0000e09295cf");
    const auto frame = from_hex(hex);
    const auto back = parse(frame);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->deth, p.deth);
    EXPECT_EQ(back->flow_label, 0x12345U);
    EXPECT_EQ(back->payload.size(), 9U);
    EXPECT_EQ(back->pad, 3);
}

// ROCE 10: 2
TEST(RocePacket, CnpOfConnectXIsAccepted) {
    const auto frame = from_hex(
        "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a00120100"
        "0012b7002800008100ffff4000011800000000000000000000000000000000000000008"
        "2fd002a");
    const auto packet = parse(frame);
    ASSERT_TRUE(packet) << packet.error().text;
    EXPECT_EQ(packet->opcode, Opcode::kCnp);
    EXPECT_EQ(packet->destination_qpn, Qpn(0x118));
    EXPECT_TRUE(packet->becn);
    EXPECT_FALSE(packet->migrated);
    EXPECT_EQ(packet->udp_source_port, 0);
    EXPECT_TRUE(packet->payload.empty());
    Frame again;
    encode(*packet, again);
    EXPECT_EQ(again, frame);
}

TEST(RocePacket, TheIcrcCanComeLater) {
    for (const Golden& g : golden()) {
        SCOPED_TRACE(g.name);
        const auto good = from_hex(g.hex);
        const Packet packet = *parse(good);
        std::vector<std::byte> payload(packet.payload.begin(), packet.payload.end());
        const std::span<std::byte> whole = payload;
        Frame frame;
        encode_without_icrc(packet, PayloadSpans(&whole, 1), frame);
        EXPECT_TRUE(frame.lacks_icrc());
        EXPECT_TRUE(parse(frame)) << "whoever gets it so checks none";
        EXPECT_FALSE(parse(base::FrameView(std::span<const std::byte>(frame))));
        put_icrc(frame);
        EXPECT_FALSE(frame.lacks_icrc());
        EXPECT_EQ(frame, good);
        frame.back() ^= std::byte{1};
        const Frame wrong = frame;
        put_icrc(frame);
        EXPECT_EQ(frame, wrong) << "it has one";
        encode(packet, frame);
        EXPECT_EQ(frame, good);
    }
}

// ROCE 10: 4
TEST(RocePacket, IcrcIgnoresMaskedFields) {
    const auto good4 = from_hex(golden()[0].hex);
    auto frame = good4;
    frame[15] = std::byte{0x03};  // TOS
    frame[22] = std::byte{1};     // TTL
    // The header checksum follows, as a router would set it.
    std::uint32_t sum = 0;
    frame[24] = frame[25] = std::byte{0};
    for (int i = 14; i < 34; i += 2)
        sum += std::to_integer<unsigned>(frame[i]) << 8 | std::to_integer<unsigned>(frame[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    frame[24] = static_cast<std::byte>(~sum >> 8);
    frame[25] = static_cast<std::byte>(~sum);
    frame[40] = frame[41] = std::byte{0x77};  // UDP checksum
    frame[46] = std::byte{0xff};              // BTH byte 4
    const auto packet = parse(frame);
    ASSERT_TRUE(packet) << packet.error().text;
    EXPECT_EQ(packet->ecn, kEcnMarked);
    EXPECT_TRUE(packet->fecn);

    auto frame6 = from_hex(golden().back().hex);
    frame6[18] = std::byte{0x6f};
    frame6[19] = frame6[20] = frame6[21] = std::byte{0xff};
    frame6[25] = std::byte{3};
    EXPECT_TRUE(parse(frame6));
}

// ROCE 10: 5
TEST(RocePacket, IcrcCatchesEveryOtherBit) {
    for (const Golden& g : golden()) {
        SCOPED_TRACE(g.name);
        const auto good = from_hex(g.hex);
        const bool six = g.packet.vlan_tci.has_value();
        const std::size_t ip = six ? 18 : 14;
        const std::size_t udp = ip + (six ? 40 : 20);
        for (std::size_t byte = ip; byte < good.size(); ++byte) {
            for (int bit = 0; bit < 8; ++bit) {
                const std::size_t off = byte - ip;
                const bool masked_ip =
                    six ? (off == 0 && bit < 4) || (off >= 1 && off <= 3) || off == 7
                        : off == 1 || off == 8 || off == 10 || off == 11;
                const bool masked =
                    masked_ip || byte == udp + 6 || byte == udp + 7 || byte == udp + 12;
                if (masked) continue;
                auto frame = good;
                frame[byte] ^= static_cast<std::byte>(1 << bit);
                EXPECT_FALSE(parse(frame)) << "byte " << byte << " bit " << bit;
            }
        }
    }
}

// ROCE 10: 7
TEST(RocePacket, PadFollowsPayloadLength) {
    for (std::size_t n = 0; n < 10; ++n) {
        const std::string payload(n, 'x');
        const auto frame = from_hex(encoded(request(Opcode::kSendOnly, 1), payload));
        const auto packet = parse(frame);
        ASSERT_TRUE(packet);
        EXPECT_EQ(packet->payload.size(), n);
        EXPECT_EQ(packet->pad, (4 - n % 4) % 4);
        for (std::size_t i = 0; i < packet->pad; ++i)
            EXPECT_EQ(packet->payload.data()[n + i], std::byte{0});
    }
}

TEST(RocePacket, PayloadMayComeInPieces) {
    std::string text = "hello";
    auto bytes = std::as_writable_bytes(std::span(text));
    const std::vector<std::span<std::byte>> pieces = {
        bytes.first(1), {}, bytes.subspan(1, 3), bytes.last(1)};
    Frame whole;
    Packet packet = response(Opcode::kReadResponseOnly, 1, kAckUnlimited, 4);
    encode(packet, pieces, whole);
    EXPECT_EQ(to_hex(whole), golden()[7].hex);
}

// ROCE 10: 8
TEST(RocePacket, EthernetPaddingIsIgnored) {
    auto frame = from_hex(golden()[0].hex);
    frame.resize(60, std::byte{0xee});
    const auto packet = parse(frame);
    ASSERT_TRUE(packet);
    EXPECT_TRUE(packet->payload.empty());
}

// ROCE 10: 9
TEST(RocePacket, TruncationAtEveryLengthIsDropped) {
    for (const Golden& g : golden()) {
        const auto frame = from_hex(g.hex);
        for (std::size_t n = 0; n < frame.size(); ++n) {
            // A copy of exactly n bytes, so that a read past the end is seen.
            const std::vector<std::byte> cut(frame.begin(),
                                             frame.begin() + static_cast<std::ptrdiff_t>(n));
            EXPECT_FALSE(parse(cut)) << g.name << " at " << n;
        }
    }
}

class RoceHeaderLies : public testing::Test {
protected:
    std::vector<std::byte> frame = from_hex(golden()[1].hex);
    void set_ip_checksum() {
        frame[24] = frame[25] = std::byte{0};
        std::uint32_t sum = 0;
        for (int i = 14; i < 34; i += 2)
            sum +=
                std::to_integer<unsigned>(frame[i]) << 8 | std::to_integer<unsigned>(frame[i + 1]);
        sum = (sum & 0xffff) + (sum >> 16);
        frame[24] = static_cast<std::byte>(~sum >> 8);
        frame[25] = static_cast<std::byte>(~sum);
    }
    void set_icrc() {
        const std::span<const std::byte> all(frame);
        const auto value = icrc(all.subspan(14, 20), all.subspan(34, frame.size() - 38));
        std::memcpy(frame.data() + frame.size() - 4, &value, 4);
    }
    DropReason reason() {
        const auto packet = parse(frame);
        EXPECT_FALSE(packet);
        return packet ? DropReason::kNotRoce : drop_reason(packet.error());
    }
};

// ROCE 10: 10
TEST_F(RoceHeaderLies, OptionsAndFragments) {
    frame[14] = std::byte{0x46};
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kMalformed);
    frame[14] = std::byte{0x45};
    frame[20] = std::byte{0x20};  // more fragments
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kMalformed);
    frame[20] = std::byte{0x40};
    frame[21] = std::byte{1};  // offset 8
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kMalformed);
}

TEST_F(RoceHeaderLies, WrongHeaderChecksum) {
    frame[25] ^= std::byte{1};
    EXPECT_EQ(reason(), DropReason::kMalformed);
}

// ROCE 10: 10
TEST_F(RoceHeaderLies, Lengths) {
    frame[39] = std::byte{0x21};  // UDP length beyond the IP length
    EXPECT_EQ(reason(), DropReason::kMalformed);
    frame[39] = std::byte{23};  // too short for a BTH and an ICRC
    EXPECT_EQ(reason(), DropReason::kMalformed);
    frame[39] = std::byte{0x20};
    frame[17] = std::byte{0x38};  // IP length beyond the frame
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kMalformed);
    frame[17] = std::byte{19};
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kMalformed);
}

// ROCE 10: 10
TEST_F(RoceHeaderLies, PadBeyondPayload) {
    // A SEND of no payload with immediate: 28 bytes of UDP, pad 3.
    frame.resize(62);
    frame[17] = std::byte{0x30};
    frame[39] = std::byte{0x1c};
    frame[43] = std::byte{0x30};
    set_ip_checksum();
    set_icrc();
    EXPECT_EQ(reason(), DropReason::kMalformed);
}

TEST_F(RoceHeaderLies, HeadersOfTheOpcodeDoNotFit) {
    frame[42] = std::byte{0x13};  // COMPARE SWAP
    set_icrc();
    EXPECT_EQ(reason(), DropReason::kMalformed);
}

// ROCE 10: 10, 11, 14
TEST_F(RoceHeaderLies, VersionOpcodeQpn) {
    frame[43] |= std::byte{1};
    set_icrc();
    EXPECT_EQ(reason(), DropReason::kVersion);
    frame[43] &= std::byte{0xf0};
    for (const int opcode : {0x2c, 0x3f, 0x40, 0x66, 0x80, 0x82, 0xa0, 0xe0}) {
        frame[42] = static_cast<std::byte>(opcode);
        set_icrc();
        EXPECT_EQ(reason(), DropReason::kOpcode) << opcode;
    }
    frame[42] = std::byte{4};
    frame[47] = frame[48] = frame[49] = std::byte{0};
    set_icrc();
    EXPECT_EQ(reason(), DropReason::kQpn);
}

TEST_F(RoceHeaderLies, ReservedRcOpcodeIsLeftToTheResponder) {
    frame[42] = std::byte{0x15};
    set_icrc();
    const auto packet = parse(frame);
    ASSERT_TRUE(packet);
    EXPECT_FALSE(packet->info().known());
    EXPECT_EQ(packet->payload.size(), 8U);
}

// ROCE 10: 11
TEST_F(RoceHeaderLies, ReservedBitsAreIgnored) {
    frame[46] = std::byte{0x3f};
    frame[50] |= std::byte{0x7f};
    frame[43] |= std::byte{0x40};
    set_icrc();
    const auto packet = parse(frame);
    ASSERT_TRUE(packet);
    EXPECT_EQ(packet->psn, Psn(0xffffff));
    EXPECT_TRUE(packet->ack_request);
    EXPECT_TRUE(packet->migrated);
}

TEST_F(RoceHeaderLies, OtherProtocolsAreNotOurs) {
    frame[37] = std::byte{0xb8};  // port 4792
    EXPECT_EQ(reason(), DropReason::kNotRoce);
    frame[23] = std::byte{6};  // TCP
    set_ip_checksum();
    EXPECT_EQ(reason(), DropReason::kNotRoce);
    frame[12] = std::byte{0x89};  // RoCEv1
    frame[13] = std::byte{0x15};
    EXPECT_EQ(reason(), DropReason::kNotRoce);
}

TEST(RocePacket, MappedAddressInsideIpv6IsMalformed) {
    auto frame = from_hex(golden().back().hex);
    for (int i = 0; i < 10; ++i) frame[static_cast<std::size_t>(26 + i)] = std::byte{0};
    frame[36] = frame[37] = std::byte{0xff};
    const auto packet = parse(frame);
    ASSERT_FALSE(packet);
    EXPECT_EQ(drop_reason(packet.error()), DropReason::kMalformed);
}

TEST(RocePacket, EveryKnownOpcodeRoundTrips) {
    for (int value = 0; value < 256; ++value) {
        const auto opcode = static_cast<Opcode>(value);
        if (!opcode_info(opcode).known()) continue;
        Packet p = request(opcode, 9);
        p.deth = {QKey(0x11223344), Qpn(0xabcdef)};
        p.feth = 0x13;
        p.reth = {0x0102030405060708, RKey(0x090a0b0c), 0x0d0e0f10};
        p.aeth = {0x1f, 0x654321};
        p.atomic = {0x0102030405060708, RKey(0x11121314), 0x2122232425262728, 0x3132333435363738};
        p.atomic_original = 0x4142434445464748;
        p.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
        p.invalidate_rkey = RKey(0x51525354);
        const auto& info = opcode_info(opcode);
        const auto frame = from_hex(encoded(p, info.payload ? "payload" : ""));
        EXPECT_EQ(frame.size(), 58U + info.extension_bytes + (info.payload ? 8 : 0));
        const auto back = parse(frame);
        ASSERT_TRUE(back) << value;
        EXPECT_EQ(back->opcode, opcode);
        if (info.has(kHasDeth)) {
            EXPECT_EQ(back->deth, p.deth);
        }
        if (info.has(kHasFeth)) {
            EXPECT_EQ(back->feth, p.feth);
        }
        if (info.has(kHasReth)) {
            EXPECT_EQ(back->reth, p.reth);
        }
        if (info.has(kHasAeth)) {
            EXPECT_EQ(back->aeth, p.aeth);
        }
        if (info.has(kHasAtomic)) {
            EXPECT_EQ(back->atomic, p.atomic);
        }
        if (info.has(kHasAtomicAck)) {
            EXPECT_EQ(back->atomic_original, p.atomic_original);
        }
        if (info.has(kHasImmediate)) {
            EXPECT_EQ(back->immediate, p.immediate);
        }
        if (info.has(kHasInvalidate)) {
            EXPECT_EQ(back->invalidate_rkey, p.invalidate_rkey);
        }
        EXPECT_EQ(back->payload.size(), info.payload ? 7U : 0U);
    }
}

TEST(RocePacket, LargestPacketHasTheSizesOfTheTable) {
    const std::string payload(4096, 'p');
    Packet p = request(Opcode::kWriteOnlyImm, 1);
    EXPECT_EQ(from_hex(encoded(p, payload)).size(), 14U + 4160);
    p.source = gid6(1);
    p.destination = gid6(2);
    EXPECT_EQ(from_hex(encoded(p, payload)).size(), 14U + 4180);
}

// ROCE 10: 126
TEST(RocePacket, GrhAreaHoldsTheIpHeader) {
    for (const bool six : {false, true}) {
        Packet p = request(Opcode::kUdSendOnlyImm, 1);
        if (six) {
            p.source = gid6(1);
            p.destination = gid6(2);
        }
        std::array<std::byte, 40> area{};
        area.fill(std::byte{0xee});
        write_grh(p, 5, area);
        const auto frame = from_hex(encoded(p, "hello"));
        std::vector<std::byte> want(six ? 0 : 20);
        want.insert(want.end(), frame.begin() + 14, frame.begin() + (six ? 54 : 34));
        EXPECT_EQ(to_hex(area), to_hex(want));
    }
}

TEST(RocePacket, HopLimitZeroMeansDefault) {
    Packet p = request(Opcode::kSendOnly, 0xfffffe);
    p.hop_limit = 0;
    EXPECT_EQ(encoded(p), golden()[0].hex);
}

// ROCE 10: 12
TEST(RocePacket, PkeyRules) {
    EXPECT_TRUE(pkeys_match(0xffff, 0xffff));
    EXPECT_TRUE(pkeys_match(0x7fff, 0xffff));
    EXPECT_FALSE(pkeys_match(0x7fff, 0x7fff));
    EXPECT_FALSE(pkeys_match(0x8000, 0xffff));
    EXPECT_FALSE(pkeys_match(0x0000, 0xffff));
    EXPECT_FALSE(pkeys_match(0x8001, 0xffff));
}

TEST(RocePacket, UdpSourcePortOfFlowLabel) {
    EXPECT_EQ(udp_source_port(0), 0xc000);
    EXPECT_EQ(udp_source_port(1), 0xc001);
    EXPECT_EQ(udp_source_port(0x12345), 0xe341);
    EXPECT_EQ(udp_source_port(0xfffff), 0xffc0);
    EXPECT_EQ(flow_label_of(Qpn(0x12), Qpn(0x34)), 0x3a8U);
    EXPECT_EQ(flow_label_of(Qpn(0x1234), Qpn(0xabcdef)), 0x61faU);
    EXPECT_EQ(flow_label_of(Qpn(17), Qpn(17)), 0x121U);
}

TEST(Aeth, SyndromeClasses) {
    EXPECT_EQ(aeth_kind(0x00), AethKind::kAck);
    EXPECT_EQ(aeth_kind(0x1f), AethKind::kAck);
    EXPECT_EQ(aeth_kind(0x20), AethKind::kRnrNak);
    EXPECT_EQ(aeth_kind(0x3f), AethKind::kRnrNak);
    EXPECT_EQ(aeth_kind(0x40), AethKind::kReserved);
    EXPECT_EQ(aeth_kind(0x5f), AethKind::kReserved);
    EXPECT_EQ(aeth_kind(0x60), AethKind::kNak);
    EXPECT_EQ(aeth_kind(0x63), AethKind::kNak);
    EXPECT_EQ(aeth_kind(0x64), AethKind::kReserved);
    EXPECT_EQ(aeth_kind(0xff), AethKind::kReserved);
    EXPECT_EQ(nak_code(nak_syndrome(NakCode::kRemoteOperational)), NakCode::kRemoteOperational);
}

TEST(Aeth, CreditTable) {
    const std::uint32_t want[] = {0,    1,    2,    3,     4,     6,     8,     12,
                                  16,   24,   32,   48,    64,    96,    128,   192,
                                  256,  384,  512,  768,   1024,  1536,  2048,  3072,
                                  4096, 6144, 8192, 12288, 16384, 24576, 32768, UINT32_MAX};
    for (std::uint8_t c = 0; c < 32; ++c) EXPECT_EQ(credits(c), want[c]) << int{c};
}

// ROCE 10: 68
TEST(Aeth, RnrTimerTable) {
    const unsigned want[] = {655360, 10,    20,    30,     40,     60,     80,     120,
                             160,    240,   320,   480,    640,    960,    1280,   1920,
                             2560,   3840,  5120,  7680,   10240,  15360,  20480,  30720,
                             40960,  61440, 81920, 122880, 163840, 245760, 327680, 491520};
    for (std::uint8_t code = 0; code < 32; ++code)
        EXPECT_EQ(rnr_delay(code), std::chrono::microseconds(want[code])) << int{code};
}

TEST(Psn, SerialNumberOrder) {
    EXPECT_LT(Psn(0xffffff), Psn(0));
    EXPECT_LT(Psn(0), Psn(0x7fffff));
    EXPECT_GT(Psn(0), Psn(0x800001));
    EXPECT_GE(Psn(5), Psn(5));
    EXPECT_EQ(Psn(0) - Psn(0xfffffe), 2);
    EXPECT_EQ(Psn(0xfffffe) - Psn(0), -2);
    EXPECT_EQ((Psn(0xffffff) + 2).value(), 1U);
    EXPECT_EQ((Psn(0) - 1U).value(), 0xffffffU);
    EXPECT_EQ(Psn(0x1000001).value(), 1U);
    Psn p(0xffffff);
    EXPECT_EQ(++p, Psn(0));
    EXPECT_LT(Psn(0x800000), Psn(0));  // half the range away counts as behind
}

}  // namespace
}  // namespace openmana::roce
