// SPDX-License-Identifier: Apache-2.0
#include "fabric/frame_headers.h"

#include <gtest/gtest.h>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using Kind = FrameHeaders::Kind;
using test::FrameMaker;
using test::gid;

std::uint16_t ipv4_sum(const base::Frame& frame) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2)
        sum += base::load_be<std::uint16_t>(frame.data() + 14 + i);
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

TEST(FrameHeaders, ReadAddressesAndPorts) {
    const auto v4 = read_headers(FrameMaker{}.udp(1234, 53));
    EXPECT_EQ(v4.kind, Kind::kIpv4);
    EXPECT_EQ(v4.source, gid("10.0.0.1"));
    EXPECT_EQ(v4.destination, gid("10.0.0.2"));
    EXPECT_EQ(v4.source_port, 1234);
    EXPECT_EQ(v4.destination_port, 53);
    FrameMaker maker;
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    const auto v6 = read_headers(maker.tcp(1, 22));
    EXPECT_EQ(v6.kind, Kind::kIpv6);
    EXPECT_EQ(v6.source, gid("fd00::1"));
    EXPECT_EQ(v6.protocol, kProtocolTcp);
    EXPECT_EQ(v6.destination_port, 22);
}

TEST(FrameHeaders, LookBehindTwoTagsAndNoMore) {
    base::Frame frame = FrameMaker{}.udp(1, 2);
    const base::Frame tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{5}};
    for (int tags = 1; tags <= 2; ++tags) {
        frame.insert(frame.begin() + 12, tag.begin(), tag.end());
        EXPECT_EQ(read_headers(frame).destination_port, 2);
    }
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    EXPECT_EQ(read_headers(frame).kind, Kind::kMalformed);
}

TEST(FrameHeaders, FollowIpv6ExtensionHeaders) {
    FrameMaker maker;
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    const base::Frame plain = maker.udp(1, 4791, 40);
    base::Frame payload(8);  // hop-by-hop, 8 bytes, then UDP
    payload[0] = std::byte{17};
    payload.insert(payload.end(), plain.begin() + 54, plain.end());
    const auto headers = read_headers(maker.ip(0, payload));
    EXPECT_EQ(headers.kind, Kind::kIpv6);
    EXPECT_EQ(headers.protocol, kProtocolUdp);
    EXPECT_EQ(headers.destination_port, 4791);
    payload[1] = std::byte{200};  // longer than the packet
    EXPECT_EQ(read_headers(maker.ip(0, payload)).kind, Kind::kMalformed);
}

TEST(FrameHeaders, AFragmentHasNoPorts) {
    FrameMaker maker;
    maker.fragment = 0x2000;
    EXPECT_EQ(read_headers(maker.udp(1, 4791)).destination_port, 4791);
    EXPECT_FALSE(read_headers(maker.udp(1, 4791)).roce());
    maker.fragment = 0x0010;
    const auto later = read_headers(maker.udp(1, 4791));
    EXPECT_TRUE(later.fragment);
    EXPECT_FALSE(later.has_ports());
    EXPECT_EQ(later.destination_port, 0);
}

TEST(FrameHeaders, EveryCutOfAFrameIsRefusedOrRead) {
    FrameMaker v6;
    v6.source = gid("fd00::1");
    v6.destination = gid("fd00::2");
    for (const base::Frame& whole :
         {FrameMaker{}.udp(1, 2), FrameMaker{}.tcp(1, 2), FrameMaker{}.arp(), v6.udp(1, 2)}) {
        for (std::size_t size = 0; size < whole.size(); ++size) {
            // In memory of exactly that size, for the sanitizer to see any step beyond.
            const base::Frame cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
            const auto headers = read_headers(cut);
            EXPECT_LE(headers.end, cut.size());
            if (headers.kind != Kind::kArp) {
                EXPECT_EQ(headers.kind, Kind::kMalformed) << size;
            }
        }
    }
}

TEST(FrameHeaders, KnowRoceFromOtherUdp) {
    EXPECT_TRUE(read_headers(FrameMaker{}.roce({}, 64)).roce());
    EXPECT_TRUE(read_headers(FrameMaker{}.udp(1, 4791)).roce()) << "whatever is wrong behind it";
    EXPECT_FALSE(read_headers(FrameMaker{}.udp(4791, 53)).roce());
    EXPECT_FALSE(read_headers(FrameMaker{}.tcp(1, 4791)).roce());
    base::Frame v1 = FrameMaker{}.roce({}, 64);
    v1[12] = std::byte{0x89};
    v1[13] = std::byte{0x15};
    EXPECT_FALSE(read_headers(v1).roce());
}

TEST(FrameHeaders, RoceHidesBehindNothing) {
    base::Frame frame = FrameMaker{}.roce({}, 64);
    EXPECT_EQ(read_headers(frame).vlan, 0);
    const base::Frame tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{5}};
    frame.insert(frame.begin() + 12, tag.begin(), tag.end());
    EXPECT_TRUE(read_headers(frame).roce());
    EXPECT_EQ(read_headers(frame).vlan, 5);
    EXPECT_FALSE(read_headers(frame).stacked);
    base::Frame two = frame;
    two.insert(two.begin() + 12, {std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{9}});
    EXPECT_EQ(read_headers(two).vlan, 5) << "the inner one";
    EXPECT_EQ(read_headers(two).outer_vlan, 9);
    EXPECT_EQ(read_headers(frame).outer_vlan, 5);
    EXPECT_TRUE(read_headers(two).stacked);
    two[12] = std::byte{0x88};
    two[13] = std::byte{0xa8};
    EXPECT_TRUE(read_headers(two).stacked);
    base::Frame service = frame;
    service[12] = std::byte{0x88};
    service[13] = std::byte{0xa8};
    EXPECT_TRUE(read_headers(service).stacked);

    frame = FrameMaker{}.roce({}, 64);  // IPv4 with four bytes of options
    frame[14] = std::byte{0x46};
    base::store_be<std::uint16_t>(
        frame.data() + 16,
        static_cast<std::uint16_t>(base::load_be<std::uint16_t>(frame.data() + 16) + 4));
    frame.insert(frame.begin() + 34, 4, std::byte{1});
    EXPECT_TRUE(read_headers(frame).roce());

    FrameMaker v6;
    v6.source = gid("fd00::1");
    v6.destination = gid("fd00::2");
    const base::Frame plain = v6.roce({}, 64);
    for (const int header : {0, 43, 44, 60}) {  // 44: a fragment header of a whole packet
        base::Frame payload(8);
        payload[0] = std::byte{17};
        payload.insert(payload.end(), plain.begin() + 54, plain.end());
        EXPECT_TRUE(read_headers(v6.ip(header, payload)).roce()) << header;
    }
}

TEST(FrameHeaders, FragmentsAndCutPacketsAreNoRoce) {
    FrameMaker v6;
    v6.source = gid("fd00::1");
    v6.destination = gid("fd00::2");
    const base::Frame plain = v6.roce({}, 64);
    for (const int offset : {0x0001, 0x0008}) {  // the first with more to come, a later one
        base::Frame payload(8);
        payload[0] = std::byte{17};
        payload[3] = static_cast<std::byte>(offset);
        payload.insert(payload.end(), plain.begin() + 54, plain.end());
        EXPECT_FALSE(read_headers(v6.ip(44, payload)).roce()) << offset;
    }
    for (base::Frame frame : {plain, FrameMaker{}.roce({}, 64)}) {
        while (!frame.empty()) {
            frame.pop_back();
            EXPECT_FALSE(read_headers(frame).roce()) << frame.size();
        }
    }
}

TEST(MarkCongestion, MarksOnlyWhoCanHandleItAndKeepsTheChecksumRight) {
    FrameMaker maker;
    base::Frame frame = maker.roce({}, 64);
    EXPECT_FALSE(mark_congestion(frame, read_headers(frame)));
    EXPECT_EQ(ipv4_sum(frame), 0xffff);
    for (const int capable : {1, 2}) {
        maker.ecn = capable;
        frame = maker.roce({}, 64);
        EXPECT_TRUE(mark_congestion(frame, read_headers(frame)));
        EXPECT_EQ(std::to_integer<int>(frame[15]) & 3, 3);
        EXPECT_EQ(ipv4_sum(frame), 0xffff);
        EXPECT_TRUE(roce::parse(frame).has_value()) << "the ICRC does not cover the mark";
    }
}

TEST(MarkCongestion, MarksIpv6) {
    FrameMaker maker;
    maker.source = gid("fd00::1");
    maker.destination = gid("fd00::2");
    maker.ecn = 2;
    base::Frame frame = maker.roce({}, 64);
    EXPECT_TRUE(mark_congestion(frame, read_headers(frame)));
    const auto packet = roce::parse(frame);
    ASSERT_TRUE(packet.has_value());
    EXPECT_EQ(packet->ecn, roce::kEcnMarked);
}

}  // namespace
}  // namespace openmana::fabric
