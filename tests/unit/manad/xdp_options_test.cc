// SPDX-License-Identifier: Apache-2.0
#include "manad/xdp_options.h"

#include <gtest/gtest.h>

namespace openmana::manad {
namespace {

using Mode = fabric::XdpConfig::Mode;

TEST(XdpOption, NamesAnInterface) {
    const auto uplink = parse_uplink("xdp=eth1");
    ASSERT_TRUE(uplink.has_value()) << uplink.error();
    EXPECT_EQ(uplink->kind, fabric::UplinkConfig::Kind::kXdp);
    EXPECT_EQ(uplink->name, "xdp=eth1");
    EXPECT_EQ(uplink->interface, "eth1");
    EXPECT_EQ(uplink->xdp.queues, 0U);
    EXPECT_EQ(uplink->xdp.mode, Mode::kAuto);
}

TEST(XdpOption, SaysHowManyQueuesAndHow) {
    const auto uplink = parse_uplink("xdp=eth1,network=red,queues=4,mode=zero-copy");
    ASSERT_TRUE(uplink.has_value()) << uplink.error();
    EXPECT_EQ(uplink->network, "red");
    EXPECT_EQ(uplink->xdp.queues, 4U);
    EXPECT_EQ(uplink->xdp.mode, Mode::kZeroCopy);
    EXPECT_EQ(parse_uplink("xdp=eth1,mode=generic,queues=all")->xdp.mode, Mode::kGeneric);
    EXPECT_EQ(parse_uplink("xdp=eth1,mode=copy")->xdp.mode, Mode::kCopy);
}

TEST(XdpOption, ThatIsWrongIsSaid) {
    for (const auto& [text, words] : {std::pair("xdp=", "a name that an interface can have"),
                                      {"xdp=a/b", "a name that an interface can have"},
                                      {"xdp=sixteen-letters1", "a name that an interface can have"},
                                      {"xdp=eth1,queues=0", "a number from 1 to 64"},
                                      {"xdp=eth1,queues=65", "a number from 1 to 64"},
                                      {"xdp=eth1,mode=fast", "auto, zero-copy, copy or generic"},
                                      {"xdp=eth1,local=1", "unknown key 'local'"},
                                      {"xdp=eth1,fast", "is not key=value"}}) {
        const auto uplink = parse_uplink(text);
        ASSERT_FALSE(uplink.has_value()) << text;
        EXPECT_NE(uplink.error().find(words), std::string::npos) << uplink.error();
    }
}

}  // namespace
}  // namespace openmana::manad
