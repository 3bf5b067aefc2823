// SPDX-License-Identifier: Apache-2.0
#include "manad/options.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace openmana::manad {
namespace {

ParsedOptions parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "manad");
    return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

/// The one line that the arguments are refused with.
std::string refusal(std::vector<const char*> arguments) {
    const ParsedOptions parsed = parse(std::move(arguments));
    EXPECT_TRUE(parsed.exit);
    EXPECT_EQ(parsed.status, 2);
    EXPECT_EQ(std::count(parsed.text.begin(), parsed.text.end(), '\n'), 1) << parsed.text;
    return parsed.text;
}

TEST(Options, TakeSeveralNics) {
    const auto parsed = parse(
        {"--nic", "id=a,socket=/tmp/a,mac=02:00:00:00:00:0a,mtu=1500,error-cqes=asked", "--nic",
         "id=b,socket=/tmp/b,ext=off,speed=25000,congestion=off,incoming=on,retain=30", "--control",
         "/tmp/c", "--log", "debug"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    ASSERT_EQ(parsed.options.nics.size(), 2u);
    const NicOptions& a = parsed.options.nics[0];
    EXPECT_EQ(a.nic.name, "a");
    EXPECT_EQ(a.socket, "/tmp/a");
    EXPECT_EQ(to_string(a.nic.mac), "02:00:00:00:00:0a");
    EXPECT_EQ(a.nic.max_mtu, 1500);
    EXPECT_FALSE(a.nic.error_cqes_unasked);
    EXPECT_TRUE(a.nic.congestion);
    const NicOptions& b = parsed.options.nics[1];
    EXPECT_EQ(b.nic.max_mtu, 9000);
    EXPECT_EQ(b.nic.link_speed_mbps, 25000u);
    EXPECT_FALSE(b.nic.congestion);
    EXPECT_TRUE(b.nic.incoming);
    EXPECT_EQ(b.retain, std::chrono::seconds(30));
    EXPECT_EQ(a.retain.count(), 0);
    EXPECT_TRUE(a.migration);
    EXPECT_FALSE(a.nic.incoming);
    EXPECT_TRUE(b.nic.error_cqes_unasked);
    EXPECT_EQ(parsed.options.control, "/tmp/c");
    EXPECT_EQ(parsed.options.log_level, base::LogLevel::kDebug);
}

TEST(Options, PutEachNicIntoOneNetwork) {
    const auto parsed =
        parse({"--nic", "id=a,socket=/tmp/a,network=red", "--nic", "id=b,socket=/tmp/b", "--uplink",
               "tap=tap0,network=red-2", "--uplink", "stream=/tmp/s,listen"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    EXPECT_EQ(parsed.options.nics[0].network, "red");
    EXPECT_EQ(parsed.options.nics[1].network, "default");
    EXPECT_EQ(parsed.options.uplinks[0].network, "red-2");
    EXPECT_EQ(parsed.options.uplinks[1].network, "default");
}

TEST(Options, ANicWithoutAddressHasOneThatDependsOnItsName) {
    const auto first = parse({"--nic", "id=a,socket=/tmp/a"});
    const auto again = parse({"--nic", "id=a,socket=/tmp/other"});
    const auto other = parse({"--nic", "id=b,socket=/tmp/a"});
    ASSERT_FALSE(first.exit || again.exit || other.exit);
    EXPECT_EQ(first.options.nics[0].nic.mac, again.options.nics[0].nic.mac);
    EXPECT_NE(first.options.nics[0].nic.mac, other.options.nics[0].nic.mac);
    EXPECT_EQ(first.options.nics[0].nic.mac[0] & 3, 2) << "unicast and locally administered";
}

TEST(Options, HelpAndVersionEndWell) {
    EXPECT_EQ(parse({"--help"}).status, 0);
    EXPECT_NE(parse({"--help"}).text.find("--nic"), std::string::npos);
    EXPECT_EQ(parse({"--version"}).text.rfind("manad ", 0), 0u);
}

TEST(Options, SayWhoMayConnect) {
    const auto parsed =
        parse({"--nic", "id=a,socket=/tmp/a", "--nic", "id=b,socket=/tmp/b,access=0::", "--uplink",
               "stream=/tmp/s,listen", "--socket-access", "::0666", "--control-access", ":0:"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    const auto& [nics, uplinks] = std::tie(parsed.options.nics, parsed.options.uplinks);
    EXPECT_EQ(nics[0].access.mode, 0666u);
    EXPECT_FALSE(nics[0].access.owner || nics[0].access.group);
    EXPECT_EQ(nics[1].access.mode, 0600u) << "its own, in all parts";
    EXPECT_EQ(nics[1].access.owner, 0u);
    EXPECT_EQ(uplinks[0].access.mode, 0666u);
    EXPECT_EQ(parsed.options.control_access.group, 0u);
    EXPECT_EQ(parsed.options.control_access.mode, 0660u) << "a group is named to let it in";

    const auto refused = [](const char* option, const char* value) {
        return refusal({"--nic", "id=a,socket=/tmp/a", option, value});
    };
    EXPECT_NE(refused("--socket-access", "frob::").find("no user 'frob'"), std::string::npos);
    EXPECT_NE(refused("--control-access", ":frob:").find("no group 'frob'"), std::string::npos);
    for (const char* bad : {"", "0660", "root", "root:0660", "::8", "::1777", "::rw", "::0660:"})
        EXPECT_NE(refused("--socket-access", bad).find("--socket-access"), std::string::npos);
    EXPECT_NE(refused("--nic", "id=b,socket=/tmp/b,access=x").find("access"), std::string::npos);
}

TEST(Options, SayHowMuchMemoryAGuestMayTake) {
    const auto memory = [](const std::string& keys) {
        const std::string nic = "id=a,socket=/tmp/a" + keys;
        return parse({"--nic", nic.c_str()}).options.nics.at(0).nic.memory;
    };
    EXPECT_EQ(memory(""), 1ULL << 30);
    EXPECT_EQ(memory(",memory=16M"), 16ULL << 20);
    EXPECT_EQ(memory(",memory=2G"), 2ULL << 30);
    for (const char* bad : {"id=a,socket=/tmp/a,memory=15M", "id=a,socket=/tmp/a,memory=lots",
                            "id=a,socket=/tmp/a,memory=1025G"})
        EXPECT_NE(refusal({"--nic", bad}).find("16M to 1024G"), std::string::npos);
}

TEST(Options, TheSandboxIsOnUnlessToldOtherwise) {
    const auto action = [](std::vector<const char*> more) {
        more.insert(more.begin(), {"--nic", "id=a,socket=/tmp/a"});
        return parse(std::move(more)).options.seccomp;
    };
    EXPECT_EQ(action({}), Seccomp::kKill);
    EXPECT_EQ(action({"--seccomp", "kill"}), Seccomp::kKill);
    EXPECT_EQ(action({"--seccomp", "log"}), Seccomp::kLog);
    EXPECT_EQ(action({"--seccomp", "off"}), Seccomp::kOff);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--seccomp", "on"}).find("--seccomp"),
              std::string::npos);
}

TEST(Options, AMonitorIsThereIfItIsAskedFor) {
    const auto monitored = [](std::vector<const char*> more) {
        more.insert(more.begin(), {"--nic", "id=a,socket=/tmp/a"});
        return parse(std::move(more)).options.monitor;
    };
    EXPECT_FALSE(monitored({}));
    EXPECT_TRUE(monitored({"--monitor", "on"}));
    EXPECT_FALSE(monitored({"--monitor", "off"}));
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--monitor", "yes"}).find("--monitor"),
              std::string::npos);
    // No other process can go on with its rings.
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--monitor", "on", "--uplink", "xdp=eth0"})
                  .find("XDP"),
              std::string::npos);
}

TEST(Options, NameTheUserToBecome) {
    const auto parsed = parse({"--nic", "id=a,socket=/tmp/a", "--user", "nobody:0"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    ASSERT_TRUE(parsed.options.user.has_value());
    EXPECT_EQ(parsed.options.user->gid, 0u);
    const auto refused = [](const char* user) {
        return refusal({"--nic", "id=a,socket=/tmp/a", "--user", user});
    };
    EXPECT_NE(refused("frob").find("--user: there is no user 'frob'"), std::string::npos);
    EXPECT_NE(refused("root").find("root is the one"), std::string::npos);
    EXPECT_NE(refused("").find("needs a user"), std::string::npos);
}

TEST(Options, SayInOneLineWhatIsWrong) {
    EXPECT_NE(refusal({}).find("--nic"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--frobnicate"}).find("frobnicate"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a"}).find("socket= is missing"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "socket=/tmp/a"}).find("id= is missing"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,color=red"}).find("unknown key 'color'"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,id=b"}).find("given twice"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket"}).find("not key=value"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a b,socket=/tmp/a"}).find("id=a b"), std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,mac=01:00:00:00:00:01"}).find("unicast"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,mac=02:00:00:00:00"}).find("mac="),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,mtu=9001"}).find("1500 to 9000"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,mtu=15x"}).find("1500 to 9000"),
              std::string::npos);
    for (const char* const nic : {"id=a,socket=/tmp/a,migration=off,incoming=on",
                                  "id=a,socket=/tmp/a,migration=off,retain=1"})
        EXPECT_NE(refusal({"--nic", nic}).find("need migration=on"), std::string::npos) << nic;
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,migration=no"}).find("'on' or 'off'"),
              std::string::npos);
    for (const char* const nic : {"id=a,socket=/tmp/a,retain=3601", "id=a,socket=/tmp/a,retain=-1",
                                  "id=a,socket=/tmp/a,retain=a"})
        EXPECT_NE(refusal({"--nic", nic}).find("0 to 3600"), std::string::npos) << nic;
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,incoming=maybe"}).find("'on' or 'off'"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a,ext=maybe"}).find("'on' or 'off'"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--log", "loud"}).find("loud"),
              std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--nic", "id=a,socket=/tmp/b"})
                  .find("two NICs have the id"),
              std::string::npos);
    EXPECT_NE(
        refusal({"--nic", "id=a,socket=/tmp/a", "--nic", "id=b,socket=/tmp/a"}).find("named twice"),
        std::string::npos);
    EXPECT_NE(refusal({"--nic", "id=a,socket=/tmp/a", "--control", "/tmp/a"}).find("named twice"),
              std::string::npos);
    const std::string mac = "id=a,socket=/tmp/a,mac=02:00:00:00:00:01";
    const std::string same = "id=b,socket=/tmp/b,mac=02:00:00:00:00:01";
    EXPECT_NE(refusal({"--nic", mac.c_str(), "--nic", same.c_str()}).find("the address"),
              std::string::npos);
    const std::string elsewhere = same + ",network=red";
    EXPECT_FALSE(parse({"--nic", mac.c_str(), "--nic", elsewhere.c_str()}).exit)
        << "the address of another network";
    EXPECT_NE(refusal({"--nic", elsewhere.c_str(), "--nic",
                       "id=c,socket=/tmp/c,mac=02:00:00:00:00:01,network=red"})
                  .find("two NICs of the network red have the address"),
              std::string::npos);
    for (const char* bad : {"", "a b", "red/blue", "0123456789abcdef0123456789abcdef0"}) {
        const std::string nic = std::string("id=a,socket=/tmp/a,network=") + bad;
        EXPECT_NE(refusal({"--nic", nic.c_str()}).find("is not a name of"), std::string::npos);
    }
    const std::string long_path = "id=a,socket=/" + std::string(200, 'x');
    EXPECT_NE(refusal({"--nic", long_path.c_str()}).find("path that a socket can have"),
              std::string::npos);
}

}  // namespace
}  // namespace openmana::manad
