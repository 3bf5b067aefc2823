// SPDX-License-Identifier: Apache-2.0
#include "fabric/inner_packet.h"

#include <gtest/gtest.h>

#include <set>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

constexpr std::array<std::uint64_t, 2> kKey{1, 2};

/// Of an IPv4 header of five words.
std::uint16_t sum_of(std::span<const std::byte> header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2) sum += base::load_be<std::uint16_t>(header.data() + i);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

/// UDP with the TOS and a right header checksum.
base::Frame ipv4_frame(int tos) {
    test::FrameMaker maker;
    maker.ecn = tos;
    base::Frame frame = maker.udp(1000, 4791);
    base::store_be(frame.data() + 24,
                   static_cast<std::uint16_t>(~sum_of(std::span(frame).subspan(14))));
    return frame;
}

base::Frame ipv6_frame(int tos) {
    test::FrameMaker maker;
    maker.source = test::gid("fd00::1");
    maker.destination = test::gid("fd00::2");
    base::Frame frame = maker.udp(1000, 4791);
    // With a flow label, whose first bits share a byte with the ECN field.
    base::store_be(frame.data() + 14,
                   0x60000000U | static_cast<std::uint32_t>(tos) << 20 | 0xfedcbU);
    return frame;
}

base::Frame tagged(base::Frame frame, std::initializer_list<int> tags) {
    base::Frame octets;
    test::append(octets, tags);
    frame.insert(frame.begin() + 12, octets.begin(), octets.end());
    return frame;
}

TEST(InnerPacketTest, TosIsFoundBehindTags) {
    for (const auto& frame : {ipv4_frame(0xb9), ipv6_frame(0xb9)}) {
        const InnerPacket plain = InnerPacket::of(frame);
        EXPECT_NE(plain.kind, InnerPacket::Kind::kOther);
        EXPECT_EQ(plain.network, 14u);
        EXPECT_EQ(plain.tos, 0xb9);
        const InnerPacket one = InnerPacket::of(tagged(frame, {0x81, 0, 0, 5}));
        EXPECT_EQ(one.kind, plain.kind);
        EXPECT_EQ(one.network, 18u);
        EXPECT_EQ(one.tos, 0xb9);
        const InnerPacket two = InnerPacket::of(tagged(frame, {0x88, 0xa8, 0, 5, 0x81, 0, 0, 6}));
        EXPECT_EQ(two.network, 22u);
        EXPECT_EQ(two.tos, 0xb9);
        const InnerPacket three =
            InnerPacket::of(tagged(frame, {0x81, 0, 0, 5, 0x81, 0, 0, 6, 0x81, 0, 0, 7}));
        EXPECT_EQ(three.kind, InnerPacket::Kind::kOther);
    }
}

TEST(InnerPacketTest, WhatIsNoWholeIpHeaderIsSomethingElse) {
    for (auto frame : {ipv4_frame(3), ipv6_frame(3)}) {
        const std::size_t whole = frame.size() > 80 ? 54 : 34;
        for (std::size_t size = 0; size < frame.size(); ++size) {
            const InnerPacket inner = InnerPacket::of(std::span(frame).first(size));
            EXPECT_EQ(inner.kind != InnerPacket::Kind::kOther, size >= whole) << size;
        }
        frame[14] = std::byte{0x50};
        EXPECT_EQ(InnerPacket::of(frame).kind, InnerPacket::Kind::kOther);
    }
    EXPECT_EQ(InnerPacket::of(test::FrameMaker{}.arp()).kind, InnerPacket::Kind::kOther);
}

TEST(OuterTosTest, EcnIsCopiedAlwaysAndDscpUnlessItIsFixed) {
    for (int tos = 0; tos < 256; ++tos) {
        const InnerPacket inner = InnerPacket::of(ipv4_frame(tos));
        EXPECT_EQ(outer_tos(inner, -1), tos);
        EXPECT_EQ(outer_tos(inner, 46), 46 << 2 | (tos & 3));
        EXPECT_EQ(outer_tos(inner, 0), tos & 3);
    }
    EXPECT_EQ(outer_tos(InnerPacket::of(test::FrameMaker{}.arp()), -1), 0);
}

/// RFC 6040, section 4.2: what leaves the tunnel, for each inner and outer field.
struct Row {
    Ecn inner;
    Ecn outer;
    Ecn leaves;
    EcnResult result;
};
constexpr Ecn kNot = Ecn::kNotEct;
constexpr Ecn k0 = Ecn::kEct0;
constexpr Ecn k1 = Ecn::kEct1;
constexpr Ecn kCe = Ecn::kCe;
constexpr Row kTable[] = {
    {kNot, kNot, kNot, EcnResult::kKept},     {kNot, k0, kNot, EcnResult::kSuspicious},
    {kNot, k1, kNot, EcnResult::kSuspicious}, {kNot, kCe, kNot, EcnResult::kDropped},
    {k0, kNot, k0, EcnResult::kKept},         {k0, k0, k0, EcnResult::kKept},
    {k0, k1, k1, EcnResult::kChanged},        {k0, kCe, kCe, EcnResult::kMarked},
    {k1, kNot, k1, EcnResult::kKept},         {k1, k0, k1, EcnResult::kSuspicious},
    {k1, k1, k1, EcnResult::kKept},           {k1, kCe, kCe, EcnResult::kMarked},
    {kCe, kNot, kCe, EcnResult::kKept},       {kCe, k0, kCe, EcnResult::kKept},
    {kCe, k1, kCe, EcnResult::kSuspicious},   {kCe, kCe, kCe, EcnResult::kKept},
};

TEST(LeaveTunnelTest, EachPairOfFieldsIsThatOfTheTable) {
    static_assert(std::size(kTable) == 16);
    for (const Row& row : kTable) {
        for (const bool ipv4 : {true, false}) {
            for (const bool in_vlan : {false, true}) {
                const int dscp = 0x2e << 2;
                base::Frame frame = ipv4 ? ipv4_frame(dscp | static_cast<int>(row.inner))
                                         : ipv6_frame(dscp | static_cast<int>(row.inner));
                if (in_vlan) frame = tagged(frame, {0x81, 0, 0, 5});
                const base::Frame before = frame;
                const InnerPacket inner = InnerPacket::of(frame);
                // The outer DSCP stays outside.
                const auto outer = static_cast<std::uint8_t>(0x10 | static_cast<int>(row.outer));
                EXPECT_EQ(leave_tunnel(frame, inner, outer), row.result);
                const InnerPacket after = InnerPacket::of(frame);
                EXPECT_EQ(after.tos, dscp | static_cast<int>(row.leaves))
                    << static_cast<int>(row.inner) << " in " << static_cast<int>(row.outer);
                if (ipv4) {
                    EXPECT_EQ(sum_of(std::span(frame).subspan(inner.network)), 0xffff);
                    frame[inner.network + 1] = before[inner.network + 1];
                    frame[inner.network + 10] = before[inner.network + 10];
                    frame[inner.network + 11] = before[inner.network + 11];
                } else {
                    frame[inner.network + 1] = before[inner.network + 1];
                    EXPECT_EQ(base::load_be<std::uint32_t>(frame.data() + inner.network) & 0xfffff,
                              0xfedcbU);
                }
                EXPECT_EQ(frame, before) << "something else was changed";
            }
        }
    }
}

TEST(LeaveTunnelTest, WhatIsNotIpIsKept) {
    base::Frame frame = test::FrameMaker{}.arp();
    const base::Frame before = frame;
    EXPECT_EQ(leave_tunnel(frame, InnerPacket::of(frame), 3), EcnResult::kKept);
    EXPECT_EQ(frame, before);
}

/// The incremental checksum for all headers of one word that differs.
TEST(LeaveTunnelTest, ChecksumIsRightForEachTosAndIdentification) {
    for (unsigned id = 0; id < 0x10000; id += 251) {
        for (const int tos : {1, 2, 0xb9, 0xba, 0xfd, 0xfe}) {
            test::FrameMaker maker;
            maker.ecn = tos;
            maker.fragment_id = id;
            base::Frame frame = maker.udp(1, 2);
            base::store_be(frame.data() + 24,
                           static_cast<std::uint16_t>(~sum_of(std::span(frame).subspan(14))));
            EXPECT_EQ(leave_tunnel(frame, InnerPacket::of(frame), 3), EcnResult::kMarked);
            ASSERT_EQ(sum_of(std::span(frame).subspan(14)), 0xffff) << id << " " << tos;
        }
    }
}

std::uint64_t hash_of(const base::Frame& frame) {
    return flow_hash(frame, InnerPacket::of(frame), kKey);
}

TEST(FlowHashTest, OneFlowHasOneNumberAndOthersHaveOthers) {
    test::FrameMaker maker;
    EXPECT_EQ(hash_of(maker.udp(1, 2, 10)), hash_of(maker.udp(1, 2, 1000)));
    std::set<std::uint64_t> hashes;
    for (unsigned port = 0; port < 1000; ++port) {
        hashes.insert(hash_of(maker.udp(port, 4791)));
        hashes.insert(hash_of(maker.udp(4791, port)));
        hashes.insert(hash_of(maker.tcp(port, 4791)));
    }
    maker.source = test::gid("fd00::1");
    maker.destination = test::gid("fd00::2");
    for (unsigned port = 0; port < 1000; ++port) hashes.insert(hash_of(maker.udp(port, 4791)));
    EXPECT_EQ(hashes.size(), 4000u);
}

TEST(FlowHashTest, FragmentsOfAPacketStayTogether) {
    for (const bool ipv4 : {true, false}) {
        test::FrameMaker maker;
        if (!ipv4) {
            maker.source = test::gid("fd00::1");
            maker.destination = test::gid("fd00::2");
        }
        maker.fragment = 0x2000;
        const base::Frame first = maker.udp(1, 2);
        maker.fragment = 0x0010;
        EXPECT_EQ(hash_of(maker.udp(3, 4)), hash_of(first));
    }
}

TEST(FlowHashTest, AnotherKeyGivesOtherNumbers) {
    const base::Frame frame = test::FrameMaker{}.udp(1, 2);
    EXPECT_NE(flow_hash(frame, InnerPacket::of(frame), {3, 4}), hash_of(frame));
}

TEST(FlowHashTest, CutFramesAreReadOnlyAsFarAsTheyGo) {
    for (const base::Frame& frame : {ipv4_frame(0), ipv6_frame(0), test::FrameMaker{}.arp()}) {
        for (std::size_t size = 0; size <= frame.size(); ++size) {
            // At the end of its memory, so that a sanitizer sees more.
            const base::Frame cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
            (void)hash_of(cut);
        }
    }
    // A header that says it is longer than the frame.
    base::Frame frame = ipv4_frame(0);
    frame.resize(36);
    frame[14] = std::byte{0x4f};
    (void)hash_of(base::Frame(frame));
}

}  // namespace
}  // namespace openmana::fabric
