// SPDX-License-Identifier: Apache-2.0
#include "manad/dma_limits.h"

#include <gtest/gtest.h>

#include "base/bus_guard.h"

namespace openmana::manad {
namespace {

constexpr std::uint64_t kDefault = 65530;
constexpr std::uint64_t kAddressSpace = 1ULL << 47;

TEST(DmaLimits, RangesOfAllNicsFitIntoHalfOfTheMappings) {
    EXPECT_EQ(dma_limits_of_each(1, kDefault).ranges, 8192U);
    EXPECT_EQ(dma_limits_of_each(2, kDefault).ranges, 8192U);
    EXPECT_EQ(dma_limits_of_each(16, kDefault).ranges, 1535U);
    EXPECT_EQ(dma_limits_of_each(300, kDefault).ranges, 81U);
    for (std::size_t nics = 1; nics < 1000; ++nics)
        EXPECT_LE(nics * dma_limits_of_each(nics, kDefault).ranges, kDefault / 2) << nics;
}

TEST(DmaLimits, BytesOfAllNicsFitIntoHalfOfTheAddressSpace) {
    constexpr std::uint64_t kTiB = 1ULL << 40;
    EXPECT_EQ(dma_limits_of_each(1, kDefault).bytes, 16 * kTiB);
    EXPECT_EQ(dma_limits_of_each(48, kDefault).bytes, kTiB);
    for (std::size_t nics = 1; nics < 1000; ++nics)
        EXPECT_LE(nics * dma_limits_of_each(nics, kDefault).bytes, kAddressSpace / 2) << nics;
}

TEST(DmaLimits, MoreMappingsThanTheGuardHasPlacesForDoNotCount) {
    EXPECT_EQ(dma_limits_of_each(64, 1U << 20).ranges, base::BusGuard::kMaxRanges / 64 * 3 / 4);
}

TEST(DmaLimits, ThereIsRoomForManyMoreNicsThanThereWereAtFirst) {
    for (const std::size_t nics : {1U, 16U, 200U}) {
        const pci::DmaLimits each = dma_limits_of_each(nics, kDefault);
        pci::DmaLimits promised{.ranges = nics * each.ranges, .bytes = nics * each.bytes};
        std::size_t more = 0;
        for (;; ++more) {
            const pci::DmaLimits limits = dma_limits_of_another(promised, kDefault);
            if (limits.ranges == 0) break;
            EXPECT_GE(limits.ranges, 64U);
            EXPECT_GE(limits.bytes, 1ULL << 36);
            promised.ranges += limits.ranges;
            promised.bytes += limits.bytes;
        }
        EXPECT_GE(more, 40U) << nics;
        EXPECT_LE(promised.ranges, kDefault / 2) << nics;
        EXPECT_LE(promised.bytes, kAddressSpace / 2) << nics;
    }
}

TEST(DmaLimits, TheSystemSaysHowManyMappings) {
    EXPECT_GE(mappings_of_a_process(), 1024U);
}

}  // namespace
}  // namespace openmana::manad
