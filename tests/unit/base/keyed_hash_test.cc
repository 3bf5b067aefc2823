// SPDX-License-Identifier: Apache-2.0
#include "base/keyed_hash.h"

#include <gtest/gtest.h>

#include <set>

namespace openmana::base {
namespace {

/// The authors' vector for eight bytes 00 ... 07 and the key 00 ... 0f, which they give for SipHash
/// of two and four rounds.
TEST(KeyedHash, IsSipHash) {
    constexpr std::array<std::uint64_t, 2> kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};
    constexpr std::uint64_t kWord[] = {0x0706050403020100};
    EXPECT_EQ((KeyedHash::hash<2, 4>(kWord, kKey)), 0x93f5f5799a932462U);
}

TEST(KeyedHash, DependsOnTheKeyOfTheProcess) {
    constexpr std::array<std::uint64_t, 2> kOther{};
    constexpr std::uint64_t kWord[] = {7};
    EXPECT_EQ(KeyedHash()(7), KeyedHash::of(kWord));
    EXPECT_EQ(KeyedHash()(7), KeyedHash::hash(kWord, process_hash_key()));
    EXPECT_NE(KeyedHash()(7), KeyedHash::hash(kWord, kOther));
}

TEST(KeyedHash, SpreadsWordsThatDifferByAMultipleOfTheBuckets) {
    constexpr std::uint64_t kBuckets = 541;
    std::set<std::uint64_t> used;
    for (std::uint64_t i = 0; i < kBuckets; ++i) used.insert(KeyedHash()(i * kBuckets) % kBuckets);
    EXPECT_GT(used.size(), kBuckets / 2);
}

}  // namespace
}  // namespace openmana::base
