// SPDX-License-Identifier: Apache-2.0
#include "rnic/addresses.h"

#include <gtest/gtest.h>

#include <set>

#include "base/hold_meter.h"
#include "gdma/types.h"
#include "rnic/local_peer.h"
#include "rnic/network.h"

namespace openmana::test {
namespace {

struct Nowhere final : rnic::Network {
    void transmit(base::Frame) override {}
    rnic::LocalEnd local_peer(const rnic::LocalPeer&, const rnic::Ends&) override { return {}; }
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
    for (unsigned i = 0; i < 1024; ++i) EXPECT_EQ(addresses.add(gid(i)), gdma::kHwcSuccess);
    for (unsigned i = 0; i < 256; ++i) EXPECT_EQ(addresses.add(mac(i)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(1024)), gdma::kHwcNoResources);
    for (unsigned i = 0; i < 1024; ++i) EXPECT_EQ(addresses.remove(gid(i)), gdma::kHwcSuccess);
    for (unsigned i = 0; i < 256; ++i) EXPECT_EQ(addresses.remove(mac(i)), gdma::kHwcSuccess);
    EXPECT_EQ(meter.largest().work, 17U) << meter.report();
}

/// Says who has which MAC address.
struct Register final : rnic::Network {
    void transmit(base::Frame) override {}
    rnic::LocalEnd local_peer(const rnic::LocalPeer&, const rnic::Ends&) override { return {}; }
    bool claim_mac(const base::MacAddr& mac) override {
        return mac != kTaken && claimed.insert(mac).second;
    }
    void release_mac(const base::MacAddr& mac) override { EXPECT_EQ(claimed.erase(mac), 1U); }
    static constexpr base::MacAddr kTaken{2, 0, 0, 0, 0, 9};
    std::set<base::MacAddr> claimed;
};

class AddressesByMac : public ::testing::Test {
protected:
    static constexpr base::MacAddr kOwn{2, 0, 0, 0, 0, 1}, kPod{2, 0, 0, 0, 0, 2};
    static roce::Gid gid(std::uint8_t number) {
        roce::Gid made{};
        made[15] = number;
        return made;
    }
    base::Gate gate;
    Register network;
    rnic::Addresses addresses{gate, kOwn, network};
};

TEST_F(AddressesByMac, AGroupsAddressOrThatOfNobodyIsNotClaimed) {
    constexpr base::MacAddr kGroup{3, 0, 0, 0, 0, 2}, kNobody{};
    for (const base::MacAddr& mac : {kGroup, kNobody}) {
        EXPECT_EQ(addresses.add(mac), gdma::kHwcInvalidParameter);
        EXPECT_EQ(addresses.add(gid(1), mac), gdma::kHwcInvalidParameter);
        EXPECT_FALSE(addresses.owns(mac));
    }
    EXPECT_TRUE(network.claimed.empty());
}

TEST_F(AddressesByMac, AMacAddressIsClaimedAsLongAsAnAddressIsReachedByIt) {
    EXPECT_EQ(addresses.add(gid(1)), gdma::kHwcSuccess);
    EXPECT_TRUE(network.claimed.empty()) << "its own needs no claim";
    EXPECT_EQ(addresses.add(gid(2), kPod), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(3), kPod), gdma::kHwcSuccess);
    EXPECT_EQ(network.claimed, std::set{kPod});
    EXPECT_TRUE(addresses.owns(kPod));
    EXPECT_EQ(addresses.mac_of(gid(1)), kOwn);
    EXPECT_EQ(addresses.mac_of(gid(2)), kPod);
    EXPECT_EQ(addresses.mac_of(gid(9)), kOwn);
    EXPECT_EQ(addresses.remove(gid(2), kOwn), gdma::kHwcNotFound);
    EXPECT_EQ(addresses.remove(gid(2), kPod), gdma::kHwcSuccess);
    EXPECT_EQ(network.claimed, std::set{kPod});
    EXPECT_EQ(addresses.remove(gid(3), kPod), gdma::kHwcSuccess);
    EXPECT_TRUE(network.claimed.empty());
    EXPECT_FALSE(addresses.owns(kPod));
}

TEST_F(AddressesByMac, AnAddressOfTwoInterfacesIsReachedByThatOfTheFirst) {
    EXPECT_EQ(addresses.add(gid(1)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(1), kPod), gdma::kHwcSuccess);
    EXPECT_TRUE(addresses.sends_from(gid(1)));
    EXPECT_EQ(addresses.sends_by(), kOwn);
    EXPECT_EQ(addresses.remove(gid(1)), gdma::kHwcSuccess);
    EXPECT_TRUE(addresses.sends_from(gid(1)));
    EXPECT_EQ(addresses.sends_by(), kPod) << "it has moved";
    EXPECT_EQ(addresses.remove(gid(1), kPod), gdma::kHwcSuccess);
    EXPECT_FALSE(addresses.owns(gid(1)));
}

TEST_F(AddressesByMac, AnAddressByAnothersMacAddressIsRefused) {
    EXPECT_EQ(addresses.add(gid(1), Register::kTaken), gdma::kHwcInvalidParameter);
    EXPECT_FALSE(addresses.owns(gid(1)));
    EXPECT_EQ(addresses.add(Register::kTaken), gdma::kHwcInvalidParameter);
    EXPECT_EQ(addresses.add(gid(1)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(1), Register::kTaken), gdma::kHwcInvalidParameter);
}

TEST_F(AddressesByMac, AnAdapterHas256OfThemAndAnAddressAsMany) {
    const auto mac = [](unsigned number) {
        return base::MacAddr{
            6, 0, 0, 0, static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number)};
    };
    for (unsigned i = 0; i < 255; ++i)
        EXPECT_EQ(addresses.add(gid(static_cast<std::uint8_t>(i)), mac(i)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(mac(255)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(255), mac(256)), gdma::kHwcNoResources);
    EXPECT_EQ(addresses.add(mac(256)), gdma::kHwcNoResources);
    EXPECT_EQ(network.claimed.size(), 256U);
    EXPECT_EQ(addresses.add(gid(255), mac(0)), gdma::kHwcSuccess) << "it has that";
    for (unsigned i = 1; i < 256; ++i)
        EXPECT_EQ(addresses.add(gid(255), mac(i)), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(gid(255), mac(0)), gdma::kHwcNoResources);
    EXPECT_EQ(addresses.add(gid(255)), gdma::kHwcNoResources);
    const std::uint64_t before = base::work_done;
    {
        const base::Gate::Exclusion exclusion(gate, {"test"});
        addresses.clear();
    }
    EXPECT_GE(base::work_done - before, 2U * 256) << "addresses and MAC addresses are given up";
}

TEST_F(AddressesByMac, AResetGivesThemUp) {
    EXPECT_EQ(addresses.add(gid(1), kPod), gdma::kHwcSuccess);
    EXPECT_EQ(addresses.add(base::MacAddr{2, 0, 0, 0, 0, 3}), gdma::kHwcSuccess);
    EXPECT_EQ(network.claimed.size(), 2U);
    {
        const base::Gate::Exclusion exclusion(gate, {"test"});
        addresses.clear();
    }
    EXPECT_TRUE(network.claimed.empty());
    EXPECT_FALSE(addresses.owns(kPod));
}

}  // namespace
}  // namespace openmana::test
