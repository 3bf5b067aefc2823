// SPDX-License-Identifier: Apache-2.0
// Keys and packets byte for byte. The bytes are from vectors.py, which has the format once more and
// had Scapy 2.5 open each packet.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "esp/derive.h"
#include "esp/format.h"
#include "esp/gcm.h"
#include "esp_fixture.h"
#include "support/hex.h"

namespace openmana::esp {
namespace {

using test::from_hex;
using test::to_hex;

constexpr Spi kSpi{0x6a000000};

std::vector<std::byte> counted(std::size_t size, unsigned first) {
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(first + i));
    return bytes;
}

std::string derived(const Flow& flow) {
    SaKey key;
    EXPECT_TRUE(derive(counted(kPskBytes, 0), kSpi, flow, key));
    return to_hex(key.bytes());
}

TEST(DeriveTest, EachDirectionHasKeysOfItsOwn) {
    const Flow flow{end4(1, 4500), end4(2, 4501)};
    EXPECT_EQ(derived(flow),
              "6f17d80480693d0f6be766be82a0be413a74de72f46e8d02abce620ad8dcc6f1f97d8bd9");
    EXPECT_EQ(derived(flow.reversed()),
              "d14617b6f0e4cc1c72e163a18914bbc26a8a488fceb319d4d8a29c3d525583682ee5a7e6");
}

TEST(DeriveTest, AnIpv6AddressCountsWhole) {
    EXPECT_EQ(derived({end6(1, 4500), end6(2, 4501)}),
              "af8ce9024dcfbc4c473102948155ebb3571ad7da5e9aad460dd6362f69767105a6ea8e21");
}

struct Vector {
    NextHeader next_header;
    std::vector<std::byte> payload;
    std::string packet;
};
std::vector<Vector> vectors() {
    return {{NextHeader::kNone,
             {},
             "6a00000000000001deadbeef00000001ed2bcdc13895f157022076e9df1fab8652fa12cf"},
            {NextHeader::kEthernet, counted(14, 1),
             "6a00000000000002deadbeef00000002b2701453ff93676345e1f79381ccf7cd0b9ccec8904fc9665991"
             "2ae8f643319b"},
            {NextHeader::kUdp, counted(20, 0),
             "6a00000000000003deadbeef00000003e8f916a705986e97c7dc5893960c6b1c764f8a149c0992d68b74"
             "12cc41840cdda49ba4259d058d8e"},
            {NextHeader::kEthernet, counted(61, 0),
             "6a00000000000004deadbeef00000004d9e914f9e279941976c9f0468c78c6c9568862a28f51aa27a7c6"
             "a95aa575092fefe63eb0637dcadcda3f3e9c235ec7ecce01dad69c793ebd586f8b5b8307193adbb84723"
             "a30fd95b2a4e213cf637f043"}};
}

TEST(GcmTest, MakesThePacketsOfTheDocument) {
    SaKey key;
    ASSERT_TRUE(derive(counted(kPskBytes, 0), kSpi, {end4(1, 4500), end4(2, 4501)}, key));
    Gcm gcm;
    ASSERT_TRUE(gcm.set_key(key, Gcm::Use::kSeal));
    for (const Vector& vector : vectors()) {
        const auto expected = from_hex(vector.packet);
        ASSERT_EQ(expected.size(), sealed_size(vector.payload.size()));
        std::vector<std::byte> packet(expected.begin(), expected.begin() + kHeaderBytes);
        packet.resize(expected.size());
        const auto padding = padding_of(vector.payload.size());
        auto trailer = counted(padding, 1);
        trailer.push_back(static_cast<std::byte>(padding));
        trailer.push_back(static_cast<std::byte>(vector.next_header));
        // In two parts, cut anywhere.
        const auto whole = std::span<const std::byte>(vector.payload);
        for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
            const std::span<const std::byte> parts[] = {whole.first(cut), whole.subspan(cut)};
            ASSERT_TRUE(gcm.seal(parts, trailer, packet.data()));
            ASSERT_EQ(to_hex(packet), vector.packet) << "cut at " << cut;
        }
    }
}

TEST(GcmTest, OpensThePacketsOfTheDocument) {
    SaKey key;
    ASSERT_TRUE(derive(counted(kPskBytes, 0), kSpi, {end4(1, 4500), end4(2, 4501)}, key));
    Gcm gcm;
    ASSERT_TRUE(gcm.set_key(key, Gcm::Use::kOpen));
    for (const Vector& vector : vectors()) {
        auto packet = from_hex(vector.packet);
        ASSERT_TRUE(gcm.open(packet, packet.data() + kHeaderBytes));
        EXPECT_EQ(to_hex(std::span(packet).subspan(kHeaderBytes, vector.payload.size())),
                  to_hex(vector.payload));
        EXPECT_EQ(spi_of(packet.data()), kSpi);
    }
}

TEST(FormatTest, TheLargestPayloadFillsAPacket) {
    EXPECT_EQ(kSmallestPacket, 36U);
    for (std::size_t packet = 0; packet < 3000; ++packet) {
        const std::size_t payload = largest_payload(packet);
        if (packet < kSmallestPacket) {
            EXPECT_EQ(payload, 0U);
            continue;
        }
        EXPECT_LE(sealed_size(payload), packet);
        EXPECT_GT(sealed_size(payload + 1), packet);
    }
    // docs/network.md: an Ethernet of 1500 and of 9000 bytes, IPv4 outside.
    EXPECT_EQ(largest_payload(1500 - 28), 1438U);
    EXPECT_EQ(largest_payload(9000 - 28), 8938U);
}

}  // namespace
}  // namespace openmana::esp
