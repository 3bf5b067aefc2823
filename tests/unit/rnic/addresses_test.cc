// SPDX-License-Identifier: Apache-2.0
#include "rnic/addresses.h"

#include <gtest/gtest.h>

#include "base/hold_meter.h"
#include "gdma/types.h"
#include "rnic/network.h"

namespace openmana::test {
namespace {

struct Nowhere final : rnic::Network {
    void transmit(base::Frame) override {}
    const rnic::LocalPeer* local_peer(const rnic::LocalPeer&, const rnic::Ends&) override {
        return nullptr;
    }
};

/// Visitors wait for each of these.
TEST(Addresses, AChangeIsAFewStepsHoweverManyThereAre) {
    base::HoldMeter meter;  // before the gate
    base::Gate gate;
    Nowhere network;
    rnic::Addresses addresses(gate, base::MacAddr{}, network);
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
        EXPECT_EQ(addresses.add(gid(i)), gdma::kHwcSuccess);
        EXPECT_EQ(addresses.add(mac(i)), gdma::kHwcSuccess);
    }
    EXPECT_EQ(addresses.add(gid(1024)), gdma::kHwcNoResources);
    for (unsigned i = 0; i < 1024; ++i) {
        EXPECT_EQ(addresses.remove(gid(i)), gdma::kHwcSuccess);
        EXPECT_EQ(addresses.remove(mac(i)), gdma::kHwcSuccess);
    }
    EXPECT_EQ(meter.largest().work, 17U) << meter.report();
}

}  // namespace
}  // namespace openmana::test
