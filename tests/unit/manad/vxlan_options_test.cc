// SPDX-License-Identifier: Apache-2.0
#include "manad/vxlan_options.h"

#include <gtest/gtest.h>

#include "manad/options.h"

namespace openmana::manad {
namespace {

using Learn = fabric::VxlanConfig::Learn;

std::string error_of(const std::string& text) {
    const auto uplink = parse_uplink(text);
    return uplink ? "" : uplink.error();
}

TEST(VxlanOptions, TheLeastIsAnAddressAndANumber) {
    const auto uplink = parse_uplink("vxlan=local=10.0.0.1,vni=5");
    ASSERT_TRUE(uplink) << uplink.error();
    EXPECT_EQ(uplink->kind, fabric::UplinkConfig::Kind::kVxlan);
    EXPECT_EQ(uplink->name, "vxlan=10.0.0.1:4789,vni=5");
    EXPECT_EQ(uplink->network, "default");
    EXPECT_EQ(uplink->local.text(), "10.0.0.1:4789");
    EXPECT_EQ(uplink->vxlan.vni, 5u);
    EXPECT_TRUE(uplink->vxlan.remotes.empty());
    EXPECT_EQ(uplink->vxlan.learn, Learn::kPeers);
    EXPECT_EQ(uplink->vxlan.dscp, 0) << "a guest's is no business of the wire's";
    EXPECT_EQ(uplink->vxlan.flood, fabric::VxlanConfig::kFlood);
    EXPECT_EQ(uplink->vxlan.ttl, 0);
}

TEST(VxlanOptions, AllKeysAreRead) {
    const auto uplink = parse_uplink(
        "vxlan=local=[fd00::1]:8472,vni=16777215,remote=fd00::2+[fd00::3]:4790,learn=on,fdb=/run/t,"
        "fdb-dev=vx0,dscp=46,ttl=7,network=red");
    ASSERT_TRUE(uplink) << uplink.error();
    EXPECT_EQ(uplink->name, "vxlan=[fd00::1]:8472,vni=16777215");
    EXPECT_EQ(uplink->network, "red");
    const fabric::VxlanConfig& vxlan = uplink->vxlan;
    ASSERT_EQ(vxlan.remotes.size(), 2u);
    EXPECT_EQ(fabric::to_string(vxlan.remotes[0]), "[fd00::2]:4789");
    EXPECT_EQ(fabric::to_string(vxlan.remotes[1]), "[fd00::3]:4790");
    EXPECT_EQ(vxlan.remotes[1].vni, 16777215u);
    EXPECT_EQ(vxlan.learn, Learn::kAll);
    EXPECT_EQ(vxlan.fdb, "/run/t");
    EXPECT_EQ(vxlan.fdb_device, "vx0");
    EXPECT_EQ(vxlan.dscp, 46);
    EXPECT_EQ(vxlan.ttl, 7);
    EXPECT_EQ(parse_uplink("vxlan=local=10.0.0.1,vni=5,learn=off")->vxlan.learn, Learn::kNothing);
    EXPECT_EQ(parse_uplink("vxlan=local=10.0.0.1,vni=5,dscp=inherit")->vxlan.dscp, -1);
    EXPECT_EQ(parse_uplink("vxlan=local=10.0.0.1,vni=5,flood=off")->vxlan.flood, 0u);
    EXPECT_EQ(parse_uplink("vxlan=local=10.0.0.1,vni=5,flood=9")->vxlan.flood, 9u);
}

TEST(VxlanOptions, EachMistakeHasItsMessage) {
    const std::pair<const char*, const char*> kCases[] = {
        {"vni=5", "vxlan needs local=IP[:PORT],vni=N"},
        {"local=10.0.0.1", "vxlan needs local=IP[:PORT],vni=N"},
        {"local=10.0.0.1,vni=16777216", "vni=16777216 is not a number from 0 to 16777215"},
        {"local=10.0.0.1,vni=-1", "vni=-1 is not a number from 0 to 16777215"},
        {"local=host,vni=5",
         "local=host is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=10.0.0.1:0,vni=5",
         "local=10.0.0.1:0 is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=[10.0.0.1]:1,vni=5",
         "local=[10.0.0.1]:1 is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=239.0.0.1,vni=5",
         "local=239.0.0.1 is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=10.0.0.1,vni=5,remote=",
         "remote= is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=10.0.0.1,vni=5,remote=10.0.0.2+x",
         "remote=x is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=10.0.0.1,vni=5,remote=[fd00::2",
         "remote=[fd00::2 is not IP or IP:PORT, where IPv6 with a port is in brackets"},
        {"local=10.0.0.1,vni=5,remote=10.0.0.2+10.0.0.2:4789",
         "remote=10.0.0.2:4789 is there twice"},
        {"local=10.0.0.1,vni=5,remote=fd00::2",
         "remote=fd00::2 is not of the local address's IP version"},
        {"local=10.0.0.1,vni=5,remote=10.0.0.1",
         "remote=10.0.0.1 is this end of the tunnel itself"},
        {"local=10.0.0.1,vni=5,remote=239.1.1.1",
         "remote=239.1.1.1 is a group: name each end of the tunnel"},
        {"local=10.0.0.1,vni=5,learn=yes", "learn=yes is not 'peers', 'on' or 'off'"},
        {"local=0.0.0.0,vni=5", "local=0.0.0.0 is nobody's address"},
        {"local=::,vni=5", "local=:: is nobody's address"},
        {"local=255.255.255.255,vni=5",
         "local=255.255.255.255 is a group: name each end of the tunnel"},
        {"local=fe80::1,vni=5", "local=fe80::1 is good on one link only, and names none"},
        {"local=10.0.0.1,vni=5,flood=0", "flood=0 is not a number from 1 to 1000000000, or 'off'"},
        {"local=10.0.0.1,vni=5,dscp=64", "dscp=64 is not a number from 0 to 63, or 'inherit'"},
        {"local=10.0.0.1,vni=5,ttl=0", "ttl=0 is not a number from 1 to 255"},
        {"local=10.0.0.1,vni=5,queues=17", "queues=17 is not a number from 1 to 16"},
        {"local=10.0.0.1,vni=5,fdb=", "fdb= is not a file"},
        {"local=10.0.0.1,vni=5,fdb-dev=x", "fdb-dev= is about the file of fdb=, which is missing"},
        {"local=10.0.0.1,vni=5,fdb=/f,fdb-dev=a-name-that-is-long",
         "fdb-dev=a-name-that-is-long is not a name that an interface can have"},
        {"local=10.0.0.1,vni=5,mtu=5", "unknown key 'mtu'"},
        {"local=10.0.0.1,vni=5,vni=6", "'vni' is given twice"},
    };
    for (const auto& [text, message] : kCases)
        EXPECT_EQ(error_of(std::string("vxlan=") + text), message) << text;
}

std::string refusal(std::initializer_list<const char*> uplinks) {
    std::vector<const char*> argv{"manad", "--nic", "id=a,socket=/tmp/a"};
    for (const char* const uplink : uplinks) {
        argv.push_back("--uplink");
        argv.push_back(uplink);
    }
    const ParsedOptions parsed = parse_options(static_cast<int>(argv.size()), argv.data());
    return parsed.exit ? parsed.text : "";
}

TEST(VxlanOptions, OneAddressHasANetworkOnceAndOneTtl) {
    EXPECT_EQ(refusal({"vxlan=local=10.0.0.1,vni=5", "vxlan=local=10.0.0.1,vni=6",
                       "vxlan=local=10.0.0.2,vni=5,ttl=3"}),
              "");
    EXPECT_EQ(
        refusal({"vxlan=local=10.0.0.1,vni=5", "vxlan=local=10.0.0.1:4789,vni=5,network=red"}),
        "manad: --uplink: there are two vxlan=10.0.0.1:4789,vni=5\n");
    EXPECT_EQ(refusal({"vxlan=local=10.0.0.1,vni=5", "vxlan=local=10.0.0.1,vni=6,queues=2"}),
              "manad: --uplink: the networks of 10.0.0.1:4789 have the same queues\n");
    EXPECT_EQ(refusal({"vxlan=local=10.0.0.1,vni=5", "vxlan=local=10.0.0.1,vni=6,ttl=3"}),
              "manad: --uplink: the networks of 10.0.0.1:4789 have one ttl\n");
}

}  // namespace
}  // namespace openmana::manad
