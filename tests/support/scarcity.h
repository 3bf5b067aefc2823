// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "gdma/function.h"
#include "support/hwc_driver.h"

namespace openmana::test {

/// Has `make` tried with ever more left of the function's memory, until it succeeds: each time
/// before that a command is refused with kHwcNoResources, and all that others had taken comes back.
/// Tables that grow meanwhile may keep `tables` bytes. What is made has to cost `least` bytes.
inline void expect_refusals_leave_nothing(gdma::Function& function, HwcDriver& driver,
                                          const std::function<bool()>& make,
                                          std::uint64_t tables = 0, std::uint64_t least = 1) {
    base::MemoryAccount& account = function.account();
    const gdma::ObjectCounts before = function.object_counts();
    const std::uint64_t used = account.used();
    bool made = false;
    std::uint64_t refusals = 0;
    for (std::uint64_t left = 0; !made; left += std::max<std::uint64_t>(left / 32 / 16 * 16, 16)) {
        ASSERT_LT(left, 8U << 20);
        {
            const auto rest = account.charge(account.left() - left);
            ASSERT_TRUE(rest);
            driver.last_failure = 0;
            made = make();
        }
        if (made) break;
        ++refusals;
        ASSERT_EQ(driver.last_failure, gdma::kHwcNoResources) << left;
        ASSERT_EQ(function.object_counts(), before) << left;
        ASSERT_GE(account.used(), used) << left;
        ASSERT_LE(account.used(), used + tables) << left;
    }
    EXPECT_GT(refusals, 0U);
    EXPECT_GE(account.refused(), refusals);
    EXPECT_GE(account.used(), used + least);
}

}  // namespace openmana::test
