// SPDX-License-Identifier: Apache-2.0
// A daemon that reads its options again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "daemon_fixture.h"
#include "held_loop.h"
#include "support/remote_nic.h"

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// What the daemon reads is what the test says.
class ReloadTest : public DaemonTest {
protected:
    void configure(Options& options) override {
        fixed = {"--control", options.control};
        arguments = {"--nic",       nic_text("a"), "--nic",
                     nic_text("b"), "--policy",    "nic=a,mac-check=on"};
        const auto parsed = parse();
        ASSERT_FALSE(parsed.exit) << parsed.text;
        options = parsed.options;
    }
    void SetUp() override {
        DaemonTest::SetUp();
        if (!HasFatalFailure()) daemon->set_reload([this] { return parse(); });
    }
    [[nodiscard]] std::string nic_text(const std::string& name, const char* more = "") const {
        return "id=" + name + ",socket=" + (directory / name).string() + more;
    }
    ParsedOptions parse() {
        const std::lock_guard lock(mutex);
        std::vector<const char*> pointers{"manad"};
        for (const auto* part : {&fixed, &arguments})
            for (const std::string& argument : *part) pointers.push_back(argument.c_str());
        return parse_options(static_cast<int>(pointers.size()), pointers.data());
    }
    json reload(std::vector<std::string> with) {
        {
            const std::lock_guard lock(mutex);
            arguments = std::move(with);
        }
        return ask({{"command", "reload"}});
    }
    [[nodiscard]] std::vector<std::string> policies() const {
        std::vector<std::string> all;
        const json shown = rows("policy");
        for (const json& row : shown)
            all.push_back(row["nic"].get<std::string>() + ": " + row["options"].get<std::string>());
        return all;
    }

    std::mutex mutex;  // protects arguments, which the daemon's thread reads
    std::vector<std::string> fixed;
    std::vector<std::string> arguments;
};

TEST_F(ReloadTest, TheSameAgainChangesNothing) {
    const auto client = test::RemoteNic::attach(directory / "a");
    ASSERT_TRUE(client);
    EXPECT_EQ(ask({{"command", "reload"}})["done"],
              "0 NICs added, 0 removed, 0 with another policy or other faults");
    EXPECT_THAT(names(), ElementsAre("a", "b"));
    EXPECT_TRUE(client->client().read(0, 0, 4).has_value());
}

TEST_F(ReloadTest, NicsComeAndGoAndPoliciesChange) {
    const json answer = reload({"--nic", nic_text("a"), "--nic", nic_text("c", ",network=red"),
                                "--policy", "nic=a,ips=10.0.0.1", "--policy", "nic=c,mac-check=on",
                                "--fault", "nic=c,loss=1%,dir=tx"});
    EXPECT_EQ(answer.value("done", answer.dump()),
              "1 NICs added, 1 removed, 1 with another policy or other faults");
    EXPECT_THAT(names(), ElementsAre("a", "c"));
    EXPECT_THAT(policies(), ElementsAre("a: ips=10.0.0.1", "c: mac-check=on"));
    EXPECT_EQ(rows("fault")[0]["options"], "dir=tx,loss=1%");
    EXPECT_EQ(reload({"--nic", nic_text("a"), "--nic", nic_text("c", ",network=red")})["done"],
              "0 NICs added, 0 removed, 2 with another policy or other faults");
    EXPECT_TRUE(policies().empty());
    EXPECT_TRUE(rows("fault").empty());
}

TEST_F(ReloadTest, WhatManactlAddedStays) {
    ASSERT_EQ(ask({{"command", "nic"},
                   {"action", "add"},
                   {"options", nic_text("x")},
                   {"policy", "mac-check=on"}})["ok"],
              true);
    EXPECT_EQ(ask({{"command", "reload"}})["done"],
              "0 NICs added, 0 removed, 0 with another policy or other faults");
    EXPECT_THAT(names(), ElementsAre("a", "b", "x"));
    EXPECT_THAT(policies(), ElementsAre("a: mac-check=on", "x: mac-check=on"));
    // Once the configuration names it, it is one of those.
    const std::vector<std::string> three = {"--nic",       nic_text("a"), "--nic",
                                            nic_text("b"), "--nic",       nic_text("x")};
    EXPECT_EQ(reload(three)["ok"], true);
    EXPECT_EQ(reload({"--nic", nic_text("a"), "--nic", nic_text("b")})["ok"], true);
    EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST_F(ReloadTest, APolicyThatManactlSetGivesWayToTheConfigured) {
    ASSERT_EQ(ask({{"command", "policy"},
                   {"action", "set"},
                   {"nic", "a"},
                   {"options", "ips=10.0.0.9"}})["ok"],
              true);
    EXPECT_EQ(ask({{"command", "reload"}})["done"],
              "0 NICs added, 0 removed, 1 with another policy or other faults");
    EXPECT_THAT(policies(), ElementsAre("a: mac-check=on"));
}

TEST_F(ReloadTest, WhatCannotChangeIsSaidAndNothingElseChanges) {
    const auto refused = [&](std::vector<std::string> with) {
        with.insert(with.end(), {"--policy", "nic=a,ips=10.0.0.7"});
        const json answer = reload(with);
        EXPECT_EQ(answer["ok"], false) << answer;
        EXPECT_THAT(names(), ElementsAre("a", "b"));
        EXPECT_THAT(policies(), ElementsAre("a: mac-check=on"));
        return answer.value("error", "");
    };
    const std::string a = nic_text("a");
    const std::string b = nic_text("b");
    EXPECT_EQ(refused({"--nic", a, "--nic", b, "--uplink", "tap=tap7"}),
              "uplink=tap=tap7: cannot change while manad runs");
    EXPECT_EQ(refused({"--nic", a, "--nic", b, "--pcap", "/tmp/x"}),
              "pcap=/tmp/x: cannot change while manad runs");
    EXPECT_THAT(refused({"--nic", a, "--nic", nic_text("b", ",mtu=1500")}),
                StartsWith("NIC 'b' cannot change while it is there (id=b,"));
    EXPECT_THAT(refused({"--nic", a, "--nic", b, "--nic", "id=c,socket=/nowhere/c"}),
                HasSubstr("/nowhere/c: cannot bind the socket"));
    EXPECT_EQ(refused({"--nic", a, "--nic", b, "--log", "loud"}),
              "--log: 'loud' is not trace, debug, info, warn, error or off");
    // Of several that are to come, the first does not stay alone.
    EXPECT_THAT(refused({"--nic", a, "--nic", b, "--nic", nic_text("c"), "--nic",
                         "id=d,socket=/nowhere/d"}),
                HasSubstr("/nowhere/d: cannot bind the socket"));
    const auto client = test::RemoteNic::attach(directory / "b");
    ASSERT_TRUE(client);
    EXPECT_EQ(refused({"--nic", a}),
              "NIC 'b' has a client: take the device from the guest first, or force it");
    const HeldLoop held(loop_of("b"));
    EXPECT_THAT(refused({"--nic", a}), StartsWith("NIC 'b' does not answer"));
}

TEST_F(ReloadTest, TheLevelOfTheLogChanges) {
    const std::vector<std::string> same = arguments;
    auto quiet = same;
    quiet.insert(quiet.end(), {"--log", "error"});
    EXPECT_EQ(reload(quiet)["ok"], true);
    EXPECT_EQ(reload(same)["ok"], true);
}

/// What a process that goes on behind a crash finds of the policies.
class NotedPoliciesTest : public ReloadTest {
protected:
    void configure(Options& options) override {
        ReloadTest::configure(options);
        ledger = Ledger::create(8).value();
    }
    [[nodiscard]] NicOptions options_of(const std::string& name) const {
        return parse_nic(nic_text(name), {}).value();
    }
    [[nodiscard]] std::string noted(const std::string& name) const {
        return ledger->claim(options_of(name))->policy.get();
    }
};

TEST_F(NotedPoliciesTest, WhatAReloadHasChangedIsNotedThoughItFails) {
    EXPECT_EQ(noted("a"), "mac-check=on");
    const json answer = reload({"--nic", nic_text("a"), "--nic", nic_text("b"), "--policy",
                                "nic=a,ips=10.0.0.1", "--policy", "nic=b,flow-log=/nowhere/log"});
    EXPECT_THAT(answer.value("error", ""), StartsWith("/nowhere/log: "));
    EXPECT_EQ(noted("a"), "ips=10.0.0.1");  // before a request, behind which they are noted, too
    EXPECT_THAT(policies(), ElementsAre("a: ips=10.0.0.1"));
}

TEST_F(NotedPoliciesTest, ThatOfANicThatComesIsNotedBeforeItServes) {
    std::promise<std::string> found;
    daemon->loop().post([&] {
        const auto policy = parse_policy("nic=c,mac-check=on");
        EXPECT_TRUE(daemon->add_nic(options_of("c"), *policy));
        found.set_value(noted("c"));
    });
    EXPECT_EQ(found.get_future().get(), "mac-check=on");
}

TEST_F(DaemonTest, WithoutACommandLineThereIsNothingToReadAgain) {
    EXPECT_EQ(ask({{"command", "reload"}})["error"], "there is nothing to read again");
}

}  // namespace
}  // namespace openmana::manad
