// SPDX-License-Identifier: Apache-2.0
#include "fabric/vxlan.h"

#include <gtest/gtest.h>

#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> octets) {
    base::Frame frame;
    test::append(frame, octets);
    return frame;
}

/// RFC 7348, section 5: flags with the I bit, three reserved bytes, VNI, one reserved byte.
TEST(VxlanTest, HeaderIsThatOfTheRfc) {
    const VxlanHeader header = encode_vxlan(0x123456);
    EXPECT_EQ(std::vector<std::byte>(header.begin(), header.end()),
              bytes_of({0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0}));
    const VxlanHeader last = encode_vxlan(Vxlan::kMaxVni);
    EXPECT_EQ(std::vector<std::byte>(last.begin(), last.end()),
              bytes_of({0x08, 0, 0, 0, 0xff, 0xff, 0xff, 0}));
}

TEST(VxlanTest, WhatWasEncodedIsDecoded) {
    for (const std::uint32_t vni : {0U, 1U, 0xabcdefU, Vxlan::kMaxVni}) {
        const VxlanHeader header = encode_vxlan(vni);
        std::vector<std::byte> datagram(header.begin(), header.end());
        const base::Frame frame = test::numbered(7);
        datagram.insert(datagram.end(), frame.begin(), frame.end());
        const auto decoded = decode_vxlan(datagram);
        ASSERT_TRUE(decoded.has_value());
        EXPECT_EQ(decoded->vni, vni);
        EXPECT_EQ(base::Frame(decoded->frame.begin(), decoded->frame.end()), frame);
    }
}

TEST(VxlanTest, ReservedBitsAreIgnored) {
    auto datagram = bytes_of({0xff, 0xff, 0xff, 0xff, 0, 0, 5, 0xff});
    datagram.resize(Vxlan::kBytes + 14);
    const auto decoded = decode_vxlan(datagram);
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->vni, 5u);
}

TEST(VxlanTest, ADatagramWithoutANetworkOrAFrameIsRefused) {
    auto datagram = bytes_of({0xf7, 0, 0, 0, 0, 0, 5, 0});
    datagram.resize(100);
    EXPECT_FALSE(decode_vxlan(datagram).has_value());
    datagram[0] = std::byte{8};
    for (const std::size_t size : {0U, 1U, 7U, 8U, 21U})
        EXPECT_FALSE(decode_vxlan(std::span(datagram).first(size)).has_value()) << size;
    EXPECT_TRUE(decode_vxlan(std::span(datagram).first(22)).has_value());
}

}  // namespace
}  // namespace openmana::fabric
