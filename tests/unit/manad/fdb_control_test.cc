// SPDX-License-Identifier: Apache-2.0
#include "manad/fdb_control.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "manad/daemon.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using nlohmann::json;

std::string free_port() {
    const base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof any;
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    EXPECT_EQ(::bind(fd.get(), address, length), 0);
    EXPECT_EQ(::getsockname(fd.get(), address, &length), 0);
    return std::to_string(ntohs(any.sin_port));
}

/// A daemon whose threads do not run.
class FdbControlTest : public ::testing::Test {
protected:
    void start(const std::vector<std::string>& uplinks) {
        Options options;
        NicOptions nic;
        nic.nic.name = "a";
        nic.nic.mac = default_mac("a");
        nic.socket = folder.path() + "/a";
        options.nics.push_back(nic);
        for (const std::string& text : uplinks) options.uplinks.push_back(*parse_uplink(text));
        std::string subject;
        auto created = Daemon::create(options, subject);
        ASSERT_TRUE(created) << subject << ": " << created.error().text;
        daemon = std::move(*created);
    }
    json ask(const std::string& line = "") {
        json request = {{"command", "fdb"}};
        if (!line.empty()) request["line"] = line;
        return daemon->handle(request);
    }
    std::string error(const std::string& line) { return ask(line).value("error", ""); }

    const openmana::test::TempDir folder{"fdb"};
    const std::string local = "127.0.0.1:" + free_port();
    std::unique_ptr<Daemon> daemon;
};

TEST_F(FdbControlTest, ShowsAndChangesTheTable) {
    start({"vxlan=local=" + local + ",vni=5,remote=127.0.0.2,network=red"});
    json shown = ask();
    ASSERT_TRUE(shown["ok"]) << shown;
    EXPECT_EQ(shown["rows"],
              json::parse(R"([{"mac": "00:00:00:00:00:00", "dev": "vxlan5", "uplink": "vxlan=)" +
                          local + R"(,vni=5", "network": "red", "dst": "127.0.0.2", "port": 4789,
                          "vni": 5, "src_vni": 5, "from": "option"}])"));
    EXPECT_TRUE(ask("add 02:00:00:00:00:01 dst 127.0.0.3 port 99 vni 6")["ok"]);
    EXPECT_TRUE(ask("add 02:00:00:00:00:02 dst 127.0.0.3 dynamic")["ok"]);
    shown = ask();
    ASSERT_EQ(shown["rows"].size(), 3u);
    EXPECT_EQ(shown["rows"][1]["from"], "control");
    EXPECT_EQ(shown["rows"][1]["port"], 99);
    EXPECT_EQ(shown["rows"][1]["vni"], 6);
    EXPECT_EQ(shown["rows"][2]["from"], "learned");
    EXPECT_EQ(shown["rows"][2]["age_s"], 0);
    // With the last entry that names the end goes what is behind it.
    EXPECT_TRUE(ask("del 02:00:00:00:00:01 dst 127.0.0.3")["ok"]);
    EXPECT_EQ(ask()["rows"].size(), 1u);
}

TEST_F(FdbControlTest, NetworksAreToldApart) {
    start({"vxlan=local=" + local + ",vni=5", "vxlan=local=" + local + ",vni=6,network=red"});
    EXPECT_EQ(error("add 02:00:00:00:00:01 dst 127.0.0.3"),
              "there are several VXLAN uplinks: name one by src_vni N, or by dev NAME as manactl "
              "uplinks shows it");
    EXPECT_TRUE(ask("add 02:00:00:00:00:01 dst 127.0.0.3 src_vni 6")["ok"]);
    EXPECT_TRUE(ask("add 02:00:00:00:00:02 dst 127.0.0.3 dev vxlan6")["ok"]);
    EXPECT_TRUE(ask("add 02:00:00:00:00:03 dst 127.0.0.3 dev vxlan=" + local + ",vni=6")["ok"]);
    EXPECT_EQ(error("add 02:00:00:00:00:01 dst 127.0.0.3 src_vni 7"),
              "there is no such VXLAN uplink");
    const json shown = ask();
    ASSERT_EQ(shown["rows"].size(), 3u);
    for (const json& row : shown["rows"]) EXPECT_EQ(row["network"], "red");
    const json uplinks = daemon->handle({{"command", "uplinks"}});
    ASSERT_EQ(uplinks["uplinks"].size(), 2u);
    EXPECT_EQ(uplinks["uplinks"][1]["network"], "red");
    EXPECT_EQ(uplinks["uplinks"][1]["counters"]["fabric.vxlan.no_end"], 0);
    EXPECT_EQ(uplinks["uplinks"][1]["counters"]["fabric.fdb.reads"], 0);
}

TEST_F(FdbControlTest, WrongRequestsAreRefused) {
    start({"vxlan=local=" + local + ",vni=5"});
    EXPECT_EQ(error("add nonsense"), "'nonsense' is not a MAC address");
    EXPECT_EQ(error("# nothing"), "one of add, append, replace, del and show is missing");
    EXPECT_EQ(error("del 02:00:00:00:00:01 dst 127.0.0.3"),
              "02:00:00:00:00:01 dst 127.0.0.3 is not there");
    EXPECT_EQ(daemon->handle({{"command", "fdb"}, {"line", 5}})["error"],
              "'line' is a line as bridge fdb takes it");
}

TEST_F(FdbControlTest, WithoutVxlanThereIsNoTable) {
    start({});
    EXPECT_EQ(ask()["error"], "there is no VXLAN uplink");
}

}  // namespace
}  // namespace openmana::manad
