// SPDX-License-Identifier: Apache-2.0
#include "rnic/addresses.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/hold_meter.h"
#include "gdma/types.h"

namespace openmana::test {
namespace {

/// Visitors wait for each of these.
TEST(Addresses, AChangeIsAFewStepsHoweverManyThereAre) {
    rnic::Addresses addresses({});
    std::uint64_t most = 0;
    const auto work = [&](auto&& change) {
        const std::uint64_t before = base::work_done;
        EXPECT_EQ(change(), gdma::kHwcSuccess);
        most = std::max(most, base::work_done - before);
    };
    const auto gid = [](unsigned number) {
        roce::Gid made{};
        made[14] = static_cast<std::uint8_t>(number >> 8);
        made[15] = static_cast<std::uint8_t>(number);
        return made;
    };
    const auto mac = [](unsigned number) {
        return base::MacAddr{
            2, 0, 0, 0, static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)};
    };
    for (unsigned i = 0; i < 1024; ++i) {
        work([&] { return addresses.add(gid(i)); });
        work([&] { return addresses.add(mac(i)); });
    }
    EXPECT_EQ(addresses.add(gid(1024)), gdma::kHwcNoResources);
    for (unsigned i = 0; i < 1024; ++i) {
        work([&] { return addresses.remove(gid(i)); });
        work([&] { return addresses.remove(mac(i)); });
    }
    EXPECT_EQ(most, 17U);
}

}  // namespace
}  // namespace openmana::test
