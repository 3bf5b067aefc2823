// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_addresses.h"

#include <gtest/gtest.h>

namespace openmana::fabric {
namespace {

/// With the key 1 the bucket is that of the highest bits of an address as a number, which all of
/// these share.
base::MacAddr mac_of(std::uint8_t number) {
    return {2, 0, number, 0, 0, 0};
}

class XdpAddressesTest : public testing::Test {
protected:
    static const std::byte* bytes(const base::MacAddr& mac) {
        return reinterpret_cast<const std::byte*>(mac.data());
    }
    XdpAddresses::Learned inside(const base::MacAddr& mac) {
        return addresses.saw_inside(bytes(mac));
    }
    bool outside(const base::MacAddr& mac) { return addresses.saw_outside(bytes(mac)); }

    XdpAddresses addresses{1, {mac_of(1)}};
};

TEST_F(XdpAddressesTest, ALearnedOneThatIsSeenOutsideIsGivenUp) {
    EXPECT_EQ(inside(mac_of(9)), XdpAddresses::Learned::kNew);
    EXPECT_EQ(inside(mac_of(9)), XdpAddresses::Learned::kKnown);
    EXPECT_TRUE(outside(mac_of(9)));
    EXPECT_FALSE(outside(mac_of(9)));
}

/// Whoever sends from a NIC's address, or makes up as many as a bucket has places.
TEST_F(XdpAddressesTest, NobodyTakesThePlaceOfANic) {
    addresses.add_fixed(mac_of(2));
    addresses.add_fixed(mac_of(2));
    for (const std::uint8_t nic : {1, 2}) EXPECT_FALSE(outside(mac_of(nic)));
    for (std::uint8_t i = 10; i < 10 + 4 * XdpAddresses::kPlaces; ++i)
        EXPECT_NE(inside(mac_of(i)), XdpAddresses::Learned::kRefused);
    for (const std::uint8_t nic : {1, 2})
        EXPECT_EQ(inside(mac_of(nic)), XdpAddresses::Learned::kKnown);
}

/// NICs come and go as long as the host runs, more of them than a bucket has places.
TEST_F(XdpAddressesTest, TheAddressOfANicThatHasLeftIsAnybodys) {
    for (std::uint8_t nic = 1; nic <= 2 * XdpAddresses::kPlaces; ++nic) {
        addresses.add_fixed(mac_of(nic));
        addresses.remove_fixed(mac_of(nic));
    }
    EXPECT_EQ(inside(mac_of(1)), XdpAddresses::Learned::kNew);
    EXPECT_TRUE(outside(mac_of(1)));
}

}  // namespace
}  // namespace openmana::fabric
