// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_ranges.h"

#include <gtest/gtest.h>

#include "base/bus_guard.h"

namespace openmana::manad {
namespace {

TEST(DmaRanges, ThoseOfAllNicsFitIntoHalfOfTheMappings) {
    constexpr std::uint64_t kDefault = 65530;
    EXPECT_EQ(dma_ranges_of_each(1, kDefault), 8192U);
    EXPECT_EQ(dma_ranges_of_each(2, kDefault), 8192U);
    EXPECT_EQ(dma_ranges_of_each(16, kDefault), 1535U);
    EXPECT_EQ(dma_ranges_of_each(300, kDefault), 81U);
    for (std::size_t nics = 1; nics < 1000; ++nics)
        EXPECT_LE(nics * dma_ranges_of_each(nics, kDefault), kDefault / 2) << nics;
}

TEST(DmaRanges, MoreMappingsThanTheGuardHasPlacesForDoNotCount) {
    EXPECT_EQ(dma_ranges_of_each(64, 1U << 20), base::BusGuard::kMaxRanges / 64 * 3 / 4);
}

TEST(DmaRanges, ThereIsRoomForManyMoreNicsThanThereWereAtFirst) {
    constexpr std::uint64_t kDefault = 65530;
    for (const std::size_t nics : {1U, 16U, 200U}) {
        std::size_t promised = nics * dma_ranges_of_each(nics, kDefault);
        std::size_t more = 0;
        while (const std::size_t ranges = dma_ranges_of_another(promised, kDefault)) {
            EXPECT_GE(ranges, 64U);
            promised += ranges;
            ++more;
        }
        EXPECT_GE(more, 40U) << nics;
        EXPECT_LE(promised, kDefault / 2) << nics;
    }
}

TEST(DmaRanges, TheSystemSaysHowMany) {
    EXPECT_GE(mappings_of_a_process(), 1024U);
}

}  // namespace
}  // namespace openmana::manad
