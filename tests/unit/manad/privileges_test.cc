// SPDX-License-Identifier: Apache-2.0
#include "manad/privileges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/in_child.h"

namespace openmana::manad {
namespace {

using test::in_child;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A line of /proc/self/status, in numbers without blanks between.
std::string own(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word != field + ":") continue;
        std::string line;
        std::getline(status, line);
        std::erase_if(line, [](char c) { return c == '\t' || c == ' '; });
        return line;
    }
    return "?";
}

constexpr const char* kNone = "0000000000000000";

Options with_uplinks(const std::vector<const char*>& texts) {
    Options options;
    for (const char* text : texts) options.uplinks.push_back(parse_uplink(text).value());
    return options;
}

TEST(PrivilegesTest, OnlyWhatIsConfiguredTakesCapabilities) {
    EXPECT_THAT(capabilities_to_start(with_uplinks({})), IsEmpty());
    EXPECT_THAT(capabilities_to_start(with_uplinks({"stream=/tmp/s"})), IsEmpty());
    EXPECT_THAT(capabilities_to_start(with_uplinks({"stream=/tmp/s,listen,access=::0666"})),
                IsEmpty());
    EXPECT_THAT(capabilities_to_start(with_uplinks({"stream=/tmp/s,listen,access=nobody::"})),
                ElementsAre(CAP_CHOWN));
    Options control;
    control.control_access.group = 7;
    EXPECT_THAT(capabilities_to_start(control), ElementsAre(CAP_CHOWN));
    EXPECT_THAT(capabilities_to_start(with_uplinks({"tap=t0", "tap=t1"})),
                ElementsAre(CAP_NET_ADMIN));
    EXPECT_THAT(
        capabilities_to_start(with_uplinks({"udp=local=127.0.0.1:1024,remote=127.0.0.1:1"})),
        ElementsAre(CAP_NET_ADMIN));
    EXPECT_THAT(capabilities_to_start(with_uplinks({"udp=local=[::1]:1023,remote=[::1]:1024"})),
                ElementsAre(CAP_NET_ADMIN, CAP_NET_BIND_SERVICE));
    EXPECT_THAT(capabilities_to_start(with_uplinks({"xdp=eth1"})), ElementsAre(CAP_NET_RAW));
}

/// For what only root can do.
class AsRootTest : public testing::Test {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "needs root, who can become another user";
    }
    const Account nobody = parse_account("nobody").value();
};

TEST_F(AsRootTest, TheUserIsAllThatStays) {
    const int status = in_child([&] {
        const auto started = start_as(nobody, {});
        ASSERT_TRUE(started) << started.error().text;
        const std::string uid = std::to_string(nobody.uid);
        const std::string gid = std::to_string(nobody.gid);
        EXPECT_EQ(own("Uid"), uid + uid + uid + uid);
        EXPECT_EQ(own("Gid"), gid + gid + gid + gid);
        EXPECT_EQ(own("Groups"), gid);
        for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
            EXPECT_EQ(own(set), kNone) << set;
        EXPECT_EQ(own("NoNewPrivs"), "1");
        EXPECT_NE(::setuid(0), 0);
        EXPECT_TRUE(drop_privileges());
    });
    EXPECT_EQ(status, 0);
}

TEST_F(AsRootTest, CapabilitiesLastUntilAllIsMade) {
    const int status = in_child([&] {
        ASSERT_TRUE(start_as(nobody, {CAP_NET_BIND_SERVICE}));
        const std::string bind = "0000000000000400";
        EXPECT_EQ(own("CapPrm"), bind);
        EXPECT_EQ(own("CapEff"), bind);
        EXPECT_EQ(own("CapInh"), kNone);
        EXPECT_EQ(own("CapBnd"), kNone);
        ASSERT_TRUE(drop_privileges());
        EXPECT_EQ(own("CapPrm"), kNone);
        EXPECT_EQ(own("CapEff"), kNone);
    });
    EXPECT_EQ(status, 0);
}

TEST_F(AsRootTest, AGroupOfItsOwnAndAUserThatTheSystemDoesNotKnow) {
    const int status = in_child([&] {
        const auto account = parse_account("61000:61001");
        ASSERT_TRUE(account) << account.error();
        ASSERT_TRUE(start_as(*account, {}));
        EXPECT_EQ(own("Uid"), "61000610006100061000");
        EXPECT_EQ(own("Gid"), "61001610016100161001");
        EXPECT_EQ(own("Groups"), "") << "those of root are gone";
    });
    EXPECT_EQ(status, 0);
}

TEST_F(AsRootTest, RootWithoutAUserKeepsTheWayToItsFilesAlone) {
    const int status = in_child([] {
        const std::string before = own("CapBnd");
        ASSERT_TRUE(start_as(std::nullopt, {}));
        EXPECT_EQ(own("CapEff"), before) << "as before while all is made";
        ASSERT_TRUE(drop_privileges());
        EXPECT_EQ(own("CapEff"), "0000000000000002");
        EXPECT_EQ(own("NoNewPrivs"), "1");
    });
    EXPECT_EQ(status, 0);
}

TEST_F(AsRootTest, OnlyRootCanBecomeAnother) {
    const int status = in_child([&] {
        ASSERT_TRUE(start_as(nobody, {}));
        EXPECT_TRUE(start_as(nobody, {})) << "who one is already";
        const auto other = start_as(parse_account("61000:61001").value(), {});
        ASSERT_FALSE(other);
        EXPECT_THAT(other.error().text, HasSubstr("only root"));
    });
    EXPECT_EQ(status, 0);
}

TEST(AccountTest, IsReadByNameAndByNumber) {
    const Account root = parse_account("root").value();
    EXPECT_EQ(root.uid, 0u);
    EXPECT_EQ(root.gid, 0u);
    const Account nobody = parse_account("nobody:0").value();
    EXPECT_NE(nobody.uid, 0u);
    EXPECT_EQ(nobody.gid, 0u);
    EXPECT_TRUE(nobody.listed);
    EXPECT_FALSE(parse_account("4123456:7").value().listed);
}

TEST(AccountTest, SaysWhatIsWrong) {
    for (const char* text : {"", ":root", "root:", "no such user", "0x0", "-1", "4294967295",
                             "root:no such group", "root:0:0"})
        EXPECT_FALSE(parse_account(text)) << text;
    EXPECT_THAT(parse_account("4123456").error(), HasSubstr("needs a group"));
    EXPECT_THAT(parse_account("frob").error(), HasSubstr("no user 'frob'"));
    EXPECT_THAT(parse_account("root:frob").error(), HasSubstr("no group 'frob'"));
}

}  // namespace
}  // namespace openmana::manad
