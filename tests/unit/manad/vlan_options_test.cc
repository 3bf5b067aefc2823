// SPDX-License-Identifier: Apache-2.0
#include "manad/vlan_options.h"

#include <gtest/gtest.h>

#include "manad/options.h"

namespace openmana::manad {
namespace {

/// What the keys come to, in words.
std::string of(const std::string& keys) {
    const std::string nic = "id=a,socket=/tmp/a" + (keys.empty() ? "" : "," + keys);
    const char* const arguments[] = {"manad", "--nic", nic.c_str()};
    const auto parsed = parse_options(3, arguments);
    return parsed.exit ? parsed.text : vlan_text(parsed.options.nics[0].nic.vlans);
}

TEST(VlanOptions, SayInWhichVlansANicIs) {
    EXPECT_EQ(of(""), "all");
    EXPECT_EQ(of("vlan=10"), "access 10");
    EXPECT_EQ(of("trunk=10"), "trunk 10");
    EXPECT_EQ(of("trunk=10+20-29"), "trunk 10+20-29");
    EXPECT_EQ(of("trunk=30+10-12+13+1-4"), "trunk 1-4+10-13+30");
    EXPECT_EQ(of("native=5,trunk=10"), "trunk 10 native 5");
    EXPECT_EQ(of("trunk=1-4094"), "trunk 1-4094");
}

TEST(VlanOptions, SayInOneLineWhatIsWrong) {
    for (const char* bad :
         {"vlan=", "vlan=0", "vlan=4095", "vlan=10-12", "vlan=1x", "vlan=-1", "trunk=", "trunk=10+",
          "trunk=+10", "trunk=10-", "trunk=12-10", "trunk=0-5", "trunk=10-4095", "trunk=a",
          "trunk=10,native=0", "trunk=10-12-14", "trunk=10,native=x"})
        EXPECT_NE(of(bad).find("from 1 to 4094"), std::string::npos) << bad << ": " << of(bad);
    EXPECT_NE(of("vlan=10,trunk=20").find("contradict"), std::string::npos);
    EXPECT_NE(of("native=10").find("with trunk= only"), std::string::npos);
    EXPECT_NE(of("native=10,vlan=5").find("with trunk= only"), std::string::npos);
    EXPECT_NE(of("trunk=10-12,native=11").find("is in trunk=, too"), std::string::npos);
}

}  // namespace
}  // namespace openmana::manad
