// SPDX-License-Identifier: Apache-2.0
#include "base/histogram.h"

#include <gtest/gtest.h>

namespace openmana::base {
namespace {

using Doubles = Histogram<500, 1, 4>;  // up to 500, 1000, 2000 and beyond
using Fours = Histogram<16, 2, 4>;     // up to 16, 64, 256 and beyond

TEST(Histogram, ABucketHasItsUpperEndAndNotThatOfTheOneBefore) {
    EXPECT_EQ(Doubles::bucket_of(0), 0U);
    EXPECT_EQ(Doubles::bucket_of(500), 0U);
    EXPECT_EQ(Doubles::bucket_of(501), 1U);
    EXPECT_EQ(Doubles::bucket_of(1000), 1U);
    EXPECT_EQ(Doubles::bucket_of(1001), 2U);
    EXPECT_EQ(Doubles::bucket_of(2000), 2U);
    EXPECT_EQ(Doubles::bucket_of(2001), 3U);
    EXPECT_EQ(Fours::bucket_of(16), 0U);
    EXPECT_EQ(Fours::bucket_of(17), 1U);
    EXPECT_EQ(Fours::bucket_of(64), 1U);
    EXPECT_EQ(Fours::bucket_of(65), 2U);
    EXPECT_EQ(Fours::bucket_of(256), 2U);
    EXPECT_EQ(Fours::bucket_of(257), 3U);
}

TEST(Histogram, WhatIsBeyondAllIsInTheLast) {
    EXPECT_EQ(Doubles::bucket_of(UINT64_MAX), 3U);
    EXPECT_EQ(Fours::bucket_of(UINT64_MAX), 3U);
}

TEST(Histogram, TellsWhatWasAdded) {
    Fours histogram;
    for (const std::uint64_t value : {0, 16, 20, 300}) histogram.add(value);
    const HistogramReading reading = histogram.read();
    EXPECT_EQ(reading.upper, (std::vector<std::uint64_t>{16, 64, 256}));
    EXPECT_EQ(reading.counts, (std::vector<std::uint64_t>{2, 1, 0, 1}));
    EXPECT_EQ(reading.count(), 4U);
    EXPECT_EQ(reading.sum, 336U);
}

}  // namespace
}  // namespace openmana::base
