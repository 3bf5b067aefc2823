// SPDX-License-Identifier: Apache-2.0
#include "eth/toeplitz.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/hex.h"

namespace openmana::eth {
namespace {

/// The key and the vectors that Microsoft publishes for verification of RSS hashes: source address,
/// destination address, source port, destination port.
constexpr const char* kKey =
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";

struct Vector {
    const char* addresses;
    const char* ports;
    std::uint32_t ip;
    std::uint32_t tcp;
};
const Vector kVectors[] = {
    {"420995bb a18e6450", "0aea 06e6", 0x323e8fc2, 0x51ccc178},
    {"c75c6f02 41458c53", "3796 1283", 0xd718262a, 0xc626b0ea},
    {"1813c65f 0c16cfb8", "3262 9488", 0xd2d0a5de, 0x5c2b394a},
    {"261bcd1e d18ea306", "bc64 08a9", 0x82989176, 0xafc7327f},
    {"9927a3bf cabc7f02", "acdb 0517", 0x5d1809c5, 0x10e828a2},
    {"3ffe2501 02001fff 00000000 00000007 3ffe2501 02000003 00000000 00000001", "0aea 06e6",
     0x2cc18cd5, 0x40207d3d},
    {"3ffe0501 00080000 026097ff fe40efab ff020000 00000000 00000000 00000001", "3796 1283",
     0x0f0c461c, 0xdde51bbf},
    {"3ffe1900 45450003 0200f8ff fe2167cf fe800000 00000000 0200f8ff fe2167cf", "acdb 9488",
     0x4b61e985, 0x02d1feef},
};

TEST(Toeplitz, PublishedVectors) {
    const auto key = test::from_hex(kKey);
    Toeplitz toeplitz;
    toeplitz.set_key(std::span<const std::byte, 40>(key));
    for (const Vector& v : kVectors) {
        auto input = test::from_hex(v.addresses);
        EXPECT_EQ(toeplitz.hash(input), v.ip) << v.addresses;
        const auto ports = test::from_hex(v.ports);
        input.insert(input.end(), ports.begin(), ports.end());
        EXPECT_EQ(toeplitz.hash(input), v.tcp) << v.addresses;
    }
}

TEST(Toeplitz, WithoutKeyEverythingHashesToZero) {
    EXPECT_EQ(Toeplitz().hash(test::from_hex("0102030405060708")), 0U);
}

}  // namespace
}  // namespace openmana::eth
