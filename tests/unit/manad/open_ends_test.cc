// SPDX-License-Identifier: Apache-2.0
#include "manad/open_ends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

std::vector<std::string> open(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "manad");
    const auto parsed = parse_options(static_cast<int>(arguments.size()), arguments.data());
    EXPECT_FALSE(parsed.exit) << parsed.text;
    return open_ends(parsed.options);
}

TEST(OpenEnds, NameEachNicThatMaySpeakForOthers) {
    const auto lines = open({"--nic", "id=a,socket=/tmp/a", "--nic", "id=b,socket=/tmp/b"});
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_TRUE(lines[0].starts_with("network=default nics=a,b what=\"any IP address")) << lines[0];
    EXPECT_TRUE(lines[1].starts_with("network=default nics=a,b what=\"any MAC address"))
        << lines[1];
    EXPECT_TRUE(lines[2].starts_with("network=default nics=a,b what=\"any VLAN")) << lines[2];
}

TEST(OpenEnds, ANicThatIsInSomeVlansMayNotBeInOthers) {
    const auto lines = open({"--nic", "id=a,socket=/tmp/a,vlan=10", "--nic", "id=b,socket=/tmp/b",
                             "--nic", "id=c,socket=/tmp/c,trunk=10+20"});
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_TRUE(lines[2].starts_with("network=default nics=b what=\"any VLAN")) << lines[2];
}

TEST(OpenEnds, APolicyClosesThemOneByOne) {
    const std::vector<const char*> nics = {"--nic", "id=a,socket=/tmp/a,vlan=1", "--nic",
                                           "id=b,socket=/tmp/b,ext=off,vlan=1", "--policy"};
    const auto with = [&](const char* policy) {
        auto arguments = nics;
        arguments.push_back(policy);
        return open(arguments);
    };
    const auto first = with("nic=a,ips=10.0.0.1");
    ASSERT_EQ(first.size(), 2U);
    EXPECT_TRUE(first[0].starts_with("network=default nics=b what=\"any IP"));
    EXPECT_TRUE(first[1].starts_with("network=default nics=a,b what=\"any MAC"))
        << "the adapter of b can";
    const auto second = with("nic=a,mac-check=on,ips=10.0.0.1");
    ASSERT_EQ(second.size(), 2U);
    EXPECT_TRUE(second[1].starts_with("network=default nics=b what=\"any MAC"));
    auto all = nics;
    all.insert(all.end(),
               {"nic=a,mac-check=on,ips=10.0.0.1", "--policy", "nic=b,mac-check=on,ips=10.0.0.2"});
    EXPECT_TRUE(open(all).empty());
}

TEST(OpenEnds, UplinksAreNamed) {
    const auto lines =
        open({"--nic", "id=a,socket=/tmp/a,vlan=1", "--policy", "nic=a,mac-check=on,ips=10.0.0.1",
              "--uplink", "stream=/tmp/u,listen"});
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines[0].starts_with("network=default uplinks=stream")) << lines[0];
}

TEST(OpenEnds, AreThoseOfEachNetworkByItself) {
    const auto lines =
        open({"--nic", "id=a,socket=/tmp/a,network=red", "--nic", "id=b,socket=/tmp/b,network=blue",
              "--policy", "nic=a,mac-check=on", "--uplink", "stream=/tmp/u,listen,network=blue"});
    EXPECT_THAT(lines, ElementsAre(StartsWith("network=red nics=a what=\"any IP"),
                                   StartsWith("network=red nics=a what=\"any VLAN"),
                                   StartsWith("network=blue nics=b what=\"any IP"),
                                   StartsWith("network=blue nics=b what=\"any MAC"),
                                   StartsWith("network=blue nics=b what=\"any VLAN"),
                                   StartsWith("network=blue uplinks=stream=/tmp/u,listen what")));
}

}  // namespace
}  // namespace openmana::manad
