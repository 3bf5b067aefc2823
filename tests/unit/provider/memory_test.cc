// SPDX-License-Identifier: Apache-2.0
// Copies between the host and device memory.
#include <array>
#include <cerrno>
#include <cstdint>
#include <numeric>

#include <gtest/gtest.h>

#include "dp_memory.h"

namespace openmana::test {
namespace {

class MemoryCopyTest : public ::testing::Test {
protected:
    static constexpr std::size_t kLength = 100;
    MemoryCopyTest() { std::iota(host.begin(), host.end(), std::uint8_t{1}); }
    alignas(8) std::array<std::uint8_t, kLength + 28> device{};
    std::array<std::uint8_t, kLength + 28> host{};
    mana_dp_memory memory{device.data(), kLength};
};

TEST_F(MemoryCopyTest, EveryOffsetAndLengthCopiesItsBytesAlone) {
    for (std::size_t offset = 0; offset <= 24; offset += MANA_DP_MEMORY_GRANULE) {
        for (std::size_t length = 0; length <= 40; length += MANA_DP_MEMORY_GRANULE) {
            device.fill(0xee);
            // Host memory is aligned as it happens to be.
            ASSERT_EQ(mana_dp_copy_to(&memory, offset, host.data() + 3, length), 0);
            for (std::size_t i = 0; i < device.size(); ++i)
                ASSERT_EQ(device[i],
                          i >= offset && i < offset + length ? host[i - offset + 3] : 0xee)
                    << offset << " " << length << " " << i;
            std::array<std::uint8_t, 64> back;
            back.fill(0x77);
            ASSERT_EQ(mana_dp_copy_from(back.data() + 1, &memory, offset, length), 0);
            for (std::size_t i = 0; i < back.size(); ++i)
                ASSERT_EQ(back[i], i >= 1 && i < 1 + length ? host[i + 2] : 0x77);
        }
    }
}

TEST_F(MemoryCopyTest, NothingBeyondTheEnd) {
    const auto before = device;
    for (const auto& [offset, length] : {std::pair<std::uint64_t, std::size_t>{0, kLength + 4},
                                         {kLength, 4},
                                         {kLength - 4, 8},
                                         {kLength + 4, 0},
                                         {UINT64_MAX - 3, 4},
                                         {4, SIZE_MAX - 3}}) {
        EXPECT_EQ(mana_dp_copy_to(&memory, offset, host.data(), length), EFAULT) << offset;
        EXPECT_EQ(mana_dp_copy_from(host.data(), &memory, offset, length), EFAULT) << offset;
    }
    EXPECT_EQ(device, before);
    EXPECT_EQ(mana_dp_copy_to(&memory, 0, host.data(), kLength), 0);
    EXPECT_EQ(mana_dp_copy_to(&memory, kLength, host.data(), 0), 0);
}

TEST_F(MemoryCopyTest, OffsetsAndLengthsAreMultiplesOfTheGranule) {
    for (const std::uint64_t offset : {1, 2, 3, 5}) {
        EXPECT_EQ(mana_dp_copy_to(&memory, offset, host.data(), 4), EINVAL);
        EXPECT_EQ(mana_dp_copy_from(host.data(), &memory, offset, 4), EINVAL);
        EXPECT_EQ(mana_dp_copy_to(&memory, 0, host.data(), offset), EINVAL);
        EXPECT_EQ(mana_dp_copy_from(host.data(), &memory, 0, offset), EINVAL);
    }
}

TEST_F(MemoryCopyTest, MemoryThatIsNotMapped) {
    const mana_dp_memory none{nullptr, kLength};
    EXPECT_EQ(mana_dp_copy_to(&none, 0, host.data(), 4), EOPNOTSUPP);
    EXPECT_EQ(mana_dp_copy_from(host.data(), &none, 0, 4), EOPNOTSUPP);
}

}  // namespace
}  // namespace openmana::test
