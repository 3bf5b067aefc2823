// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_ranges.h"

#include <gtest/gtest.h>

#include "base/bus_guard.h"

namespace openmana::manad {
namespace {

TEST(DmaRanges, ThoseOfAllNicsFitIntoHalfOfTheMappings) {
    constexpr std::uint64_t kDefault = 65530;
    EXPECT_EQ(dma_ranges_of_each(1, kDefault), 8192U);
    EXPECT_EQ(dma_ranges_of_each(3, kDefault), 8192U);
    EXPECT_EQ(dma_ranges_of_each(16, kDefault), 2047U);
    EXPECT_EQ(dma_ranges_of_each(300, kDefault), 109U);
    for (std::size_t nics = 1; nics < 1000; ++nics)
        EXPECT_LE(nics * dma_ranges_of_each(nics, kDefault), kDefault / 2) << nics;
}

TEST(DmaRanges, MoreMappingsThanTheGuardHasPlacesForDoNotCount) {
    EXPECT_EQ(dma_ranges_of_each(64, 1U << 20), base::BusGuard::kMaxRanges / 64);
}

TEST(DmaRanges, TheSystemSaysHowMany) {
    EXPECT_GE(mappings_of_a_process(), 1024U);
}

}  // namespace
}  // namespace openmana::manad
