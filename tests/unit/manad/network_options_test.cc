// SPDX-License-Identifier: Apache-2.0
#include "manad/network_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "manad/options.h"

namespace openmana::manad {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kRdma = 0;
constexpr std::size_t kEthernet = 1;

TEST(Units, AreReadExactly) {
    EXPECT_EQ(parse_chance("1%"), 10000u);
    EXPECT_EQ(parse_chance("0.5%"), 5000u);
    EXPECT_EQ(parse_chance("100%"), 1000000u);
    EXPECT_EQ(parse_chance("7ppm"), 7u);
    EXPECT_EQ(parse_duration("10us"), 10us);
    EXPECT_EQ(parse_duration("1.5ms"), 1500us);
    EXPECT_EQ(parse_duration("2s"), 2s);
    EXPECT_EQ(parse_duration("3ns"), 3ns);
    EXPECT_EQ(parse_rate("10G"), 10000000000u);
    EXPECT_EQ(parse_rate("2.5M"), 2500000u);
    EXPECT_EQ(parse_rate("64000"), 64000u);
    EXPECT_EQ(parse_size("256K"), 262144u);
}

TEST(Units, RefuseNonsense) {
    for (const char* text :
         {"", "1", "%", "101%", "-1%", "1.%", ".5%", "0.00001%", "1.5ppm", "1e3ppm", "1 %"})
        EXPECT_FALSE(parse_chance(text).has_value()) << text;
    for (const char* text :
         {"", "10", "us", "1m", "99999999999999999999s", "18446744073709551615s", "1.5ns"})
        EXPECT_FALSE(parse_duration(text).has_value()) << text;
    for (const char* text : {"", "G", "10g", "10GB"})
        EXPECT_FALSE(parse_rate(text).has_value()) << text;
}

TEST(FaultOption, TakesEveryKey) {
    const auto fault = parse_faults(
        "nic=a,dir=rx,loss=1%,dup=2%,reorder=3%,corrupt=40ppm,delay=10us,jitter=5us,seed=7,flap=5s/"
        "200ms");
    ASSERT_TRUE(fault.has_value()) << fault.error();
    EXPECT_EQ(fault->nic, "a");
    EXPECT_FALSE(fault->directions[0]);
    EXPECT_TRUE(fault->directions[1]);
    EXPECT_EQ(fault->faults.loss_ppm, 10000u);
    EXPECT_EQ(fault->faults.duplicate_ppm, 20000u);
    EXPECT_EQ(fault->faults.reorder_ppm, 30000u);
    EXPECT_EQ(fault->faults.corrupt_ppm, 40u);
    EXPECT_EQ(fault->faults.delay, 10us);
    EXPECT_EQ(fault->faults.jitter, 5us);
    EXPECT_EQ(fault->faults.seed, 7u);
    EXPECT_EQ(fault->flaps.up, 5s);
    EXPECT_EQ(fault->flaps.down, 200ms);
    EXPECT_EQ(fault->text.find("nic="), std::string::npos);
}

TEST(FaultOption, SaysWhatIsWrong) {
    for (const char* text : {"", "loss", "nic=a", "loss=200%", "loss=1", "dir=up,loss=1%",
                             "delay=61s", "delay=10", "seed=x,loss=1%", "flap=1s", "flap=1s/0s",
                             "flap=86401s/1s", "flap=1s/9223372036s", "lose=1%", "loss=1%,loss=2%"})
        EXPECT_FALSE(parse_faults(text).has_value()) << text;
    EXPECT_EQ(parse_faults("loss=200%").error(), "loss=200% is not a chance such as 1% or 200ppm");
}

TEST(PolicyOption, TakesEveryKey) {
    const auto policy = parse_policy(
        "nic=a,mac-check=on,ips=10.0.0.1+fd00::/64,acl=deny tcp to any port 22; allow "
        "any,limit=10G,rdma-limit=8G,"
        "eth-limit=5G,rdma-guarantee=4G,eth-guarantee=1G,dir=both,queue=1M,ecn=100K/400K/"
        "20%,flow-log=/tmp/"
        "f,flow-idle=30s");
    ASSERT_TRUE(policy.has_value()) << policy.error();
    EXPECT_EQ(policy->nic, "a");
    EXPECT_TRUE(policy->policy.check_mac);
    EXPECT_EQ(policy->policy.addresses.size(), 2u);
    EXPECT_EQ(policy->policy.acl.rules().size(), 2u);
    const auto& shaper = policy->policy.shaper;
    EXPECT_EQ(shaper.limit, 10000000000u);
    EXPECT_EQ(shaper.classes[kRdma].limit, 8000000000u);
    EXPECT_EQ(shaper.classes[kEthernet].limit, 5000000000u);
    EXPECT_EQ(shaper.classes[kRdma].guarantee, 4000000000u);
    EXPECT_EQ(shaper.classes[kEthernet].guarantee, 1000000000u);
    EXPECT_EQ(shaper.queue_bytes, 1u << 20);
    EXPECT_EQ(shaper.ecn_bytes, 100u << 10);
    EXPECT_EQ(shaper.ecn_max_bytes, 400u << 10);
    EXPECT_EQ(shaper.ecn_ppm, 200000u);
    EXPECT_TRUE(policy->policy.shape[0]);
    EXPECT_TRUE(policy->policy.shape[1]);
    EXPECT_EQ(policy->policy.flow_log, "/tmp/f");
    EXPECT_EQ(policy->policy.flow_idle, 30s);
    EXPECT_TRUE(policy->policy.filters());
    EXPECT_TRUE(policy->policy.shapes());
}

TEST(PolicyOption, MacAddressesOfAGuestAreNamedOrAny) {
    const auto policy = parse_policy("nic=a,macs=02:00:00:00:00:05+02:4d:41:7F:00:01");
    ASSERT_TRUE(policy.has_value()) << policy.error();
    EXPECT_FALSE(policy->policy.check_mac);
    EXPECT_FALSE(policy->policy.any_mac);
    EXPECT_EQ(policy->policy.macs,
              (std::vector<base::MacAddr>{{2, 0, 0, 0, 0, 5}, {2, 0x4d, 0x41, 0x7f, 0, 1}}));
    EXPECT_TRUE(policy->policy.filters());
    EXPECT_EQ(parse_policy("macs=02:00:00:00:00:05+02:00:00:00:00:05")->policy.macs.size(), 1U);
    EXPECT_TRUE(parse_policy("macs=02:00:00:00:00:05,mac-check=on")->policy.check_mac);
    const auto any = parse_policy("nic=a,macs=any");
    ASSERT_TRUE(any.has_value()) << any.error();
    EXPECT_TRUE(any->policy.any_mac);
    EXPECT_TRUE(any->policy.filters());
    EXPECT_TRUE(parse_policy("macs=any,mac-check=off").has_value());
    const auto both = parse_policy("mac-check=on,macs=any");
    ASSERT_FALSE(both.has_value());
    EXPECT_NE(both.error().find("contradict"), std::string::npos) << both.error();
    for (const char* text :
         {"macs=", "macs=02:00:00:00:00", "macs=02:00:00:00:00:05+", "macs=01:00:5e:00:00:01",
          "macs=00:00:00:00:00:00", "macs=any+02:00:00:00:00:05"})
        EXPECT_FALSE(parse_policy(text).has_value()) << text;
}

TEST(PolicyOption, RatesAreForWhatTheGuestSendsUnlessToldOtherwise) {
    const auto policy = parse_policy("limit=1G");
    ASSERT_TRUE(policy.has_value());
    EXPECT_TRUE(policy->policy.shape[0]);
    EXPECT_FALSE(policy->policy.shape[1]);
}

TEST(PolicyOption, SaysWhatIsWrong) {
    for (const char* text : {"limit=0",
                             "limit=fast",
                             "limit=2000G",
                             "mac-check=yes",
                             "ips=",
                             "ips=10.0.0.1+x",
                             "acl=forbid tcp",
                             "rdma-guarantee=1G",
                             "limit=1G,rdma-guarantee=2G",
                             "limit=1G,rdma-guarantee=600M,eth-guarantee=600M",
                             "limit=1G,rdma-limit=100M,rdma-guarantee=200M",
                             "queue=1K",
                             "limit=1G,queue=64K,ecn=65K",
                             "ecn=1K/2K",
                             "ecn=2K/1K/5%",
                             "ecn=1K/2K/5",
                             "limit=1G,queue=64K,ecn=1K/65K/1%",
                             "flow-log=",
                             "flow-idle=0s",
                             "speed=1G",
                             "limit=1G,limit=2G"})
        EXPECT_FALSE(parse_policy(text).has_value()) << text;
}

TEST(PolicyOption, TakesNoMoreThanALedgerHasRoomFor) {
    const std::string longest(PolicyOptions::kMaxText - std::string("flow-log=/").size(), 'x');
    EXPECT_TRUE(parse_policy("nic=a,flow-log=/" + longest).has_value());
    const auto longer = parse_policy("nic=a,flow-log=/x" + longest);
    ASSERT_FALSE(longer.has_value());
    EXPECT_EQ(longer.error(), "is longer than 256 KiB");
}

TEST(PolicyOption, WithNothingInItIsRefused) {
    for (const char* text : {"nic=a", "nic=a,dir=rx", "nic=a,queue=1M", "nic=a,flow-idle=5s"}) {
        const auto policy = parse_policy(text);
        ASSERT_FALSE(policy.has_value()) << text;
        EXPECT_NE(policy.error().find("names no policy"), std::string::npos) << policy.error();
    }
    for (const char* text : {"acl=", "acl= ", "acl=;;"}) {
        const auto policy = parse_policy(text);
        ASSERT_FALSE(policy.has_value()) << text;
        EXPECT_NE(policy.error().find("is not a rule such as"), std::string::npos)
            << policy.error();
    }
    EXPECT_TRUE(parse_policy("mac-check=off").has_value()) << "says what it wants";
}

TEST(UplinkOption, OfAStreamTakesNoOtherWordThanListen) {
    for (const char* text : {"stream=/tmp/s,listen=1", "stream=/tmp/s,server", "stream=/tmp/s,"}) {
        const auto uplink = parse_uplink(text);
        ASSERT_FALSE(uplink.has_value()) << text;
        EXPECT_NE(uplink.error().find("only 'listen'"), std::string::npos) << uplink.error();
    }
}

TEST(UplinkOption, TakesTheThreeKinds) {
    using Kind = fabric::UplinkConfig::Kind;
    const auto udp = parse_uplink("udp=local=127.0.0.1:4000,remote=127.0.0.1:4001");
    ASSERT_TRUE(udp.has_value()) << udp.error();
    EXPECT_EQ(udp->kind, Kind::kUdp);
    const auto tap = parse_uplink("tap=tap0");
    ASSERT_TRUE(tap.has_value()) << tap.error();
    EXPECT_EQ(tap->kind, Kind::kTap);
    EXPECT_EQ(tap->interface, "tap0");
    const auto stream = parse_uplink("stream=/tmp/s");
    ASSERT_TRUE(stream.has_value()) << stream.error();
    EXPECT_EQ(stream->path, "/tmp/s");
    EXPECT_FALSE(stream->listen);
    const auto listen = parse_uplink("stream=/tmp/s,listen");
    ASSERT_TRUE(listen.has_value()) << listen.error();
    EXPECT_EQ(listen->path, "/tmp/s");
    EXPECT_TRUE(listen->listen);
    EXPECT_EQ(listen->access.mode, 0600u);
}

TEST(UplinkOption, OfASocketSaysWhoMayConnect) {
    const auto own = parse_uplink("stream=/tmp/s,listen,access=0:0:0640");
    ASSERT_TRUE(own.has_value()) << own.error();
    EXPECT_EQ(own->path, "/tmp/s");
    EXPECT_EQ(own->access.owner, 0u);
    EXPECT_EQ(own->access.mode, 0640u);
    base::SocketAccess all;
    all.mode = 0666;
    EXPECT_EQ(parse_uplink("stream=/tmp/s,listen", all)->access.mode, 0666u);
    EXPECT_EQ(parse_uplink("stream=/tmp/s,listen,access=::", all)->access.mode, 0600u);
    EXPECT_FALSE(parse_uplink("stream=/tmp/s,listen,access=0").has_value());
    EXPECT_FALSE(parse_uplink("stream=/tmp/s,access=::").has_value())
        << "who connects owns no socket";
}

TEST(UplinkOption, NamesItsNetworkAnywhereBehindItsKind) {
    for (const char* text :
         {"udp=local=127.0.0.1:4000,remote=127.0.0.1:4001,network=red",
          "udp=local=127.0.0.1:4000,network=red,remote=127.0.0.1:4001", "tap=red,network=red",
          "stream=/tmp/s,network=red", "stream=/tmp/s,listen,access=::,network=red",
          "stream=/tmp/s,network=red,listen"}) {
        const auto uplink = parse_uplink(text);
        ASSERT_TRUE(uplink.has_value()) << text << ": " << uplink.error();
        EXPECT_EQ(uplink->network, "red");
        EXPECT_EQ(uplink->name.find("network"), std::string::npos) << uplink->name;
    }
    EXPECT_EQ(parse_uplink("tap=red,network=red")->interface, "red");
    EXPECT_TRUE(parse_uplink("stream=/tmp/s,network=red,listen")->listen);
    EXPECT_EQ(parse_uplink("tap=tap0")->network, "default");
    for (const char* text : {"tap=tap0,network=", "tap=tap0,network=a b", "network=red",
                             "tap=tap0,network=red,network=blue"})
        EXPECT_FALSE(parse_uplink(text).has_value()) << text;
}

TEST(UplinkOption, OfUdpCanBeEncrypted) {
    const std::string ends = "udp=local=127.0.0.1:4000,remote=127.0.0.1:4001";
    EXPECT_EQ(parse_uplink(ends)->encryption.key_file, "");
    const auto uplink = parse_uplink(ends + ",key-file=/etc/key,rekey=90s");
    ASSERT_TRUE(uplink.has_value()) << uplink.error();
    EXPECT_EQ(uplink->encryption.key_file, "/etc/key");
    EXPECT_EQ(uplink->encryption.limits.rekey, 90s);
    EXPECT_EQ(parse_uplink(ends + ",key-file=k")->encryption.limits.rekey, 1h);
    EXPECT_EQ(parse_uplink(ends + ",key-file=").error(), "key-file= is not a file");
    for (const char* time : {"0s", "999ms", "86401s", "", "1h"})
        EXPECT_EQ(parse_uplink(ends + ",key-file=k,rekey=" + time).error(),
                  std::string("rekey=") + time + " is not a time from 1s to 86400s");
    EXPECT_EQ(parse_uplink(ends + ",rekey=5s").error(), "rekey= is for an uplink with key-file=");
}

TEST(UplinkOption, OfUdpHasQueues) {
    const std::string ends = "udp=local=127.0.0.1:4000,remote=127.0.0.1:65530";
    EXPECT_EQ(parse_uplink(ends)->queues, 1U);
    EXPECT_EQ(parse_uplink(ends + ",queues=6")->queues, 6U);
    for (const char* queues : {"0", "17", "", "all", "-1"})
        EXPECT_EQ(parse_uplink(ends + ",queues=" + queues).error(),
                  std::string("queues=") + queues + " is not a number from 1 to 16");
    EXPECT_EQ(parse_uplink(ends + ",queues=7").error(),
              "127.0.0.1:65530: there are not 7 ports from there on");
}

TEST(UplinkOption, SaysWhatIsWrong) {
    for (const char* text :
         {"", "udp", "udp=", "udp=local=127.0.0.1:1", "udp=local=127.0.0.1:1,remote=[::1]:1",
          "udp=local=127.0.0.1:1,remote=host:1", "tap=", "tap=a/b", "tap=0123456789abcdef",
          "stream=", "stream=/tmp/s,wait", "vde=/tmp/s"})
        EXPECT_FALSE(parse_uplink(text).has_value()) << text;
}

ParsedOptions parse(std::vector<const char*> arguments) {
    for (const char* text : {"id=b,socket=/tmp/b", "--nic", "id=a,socket=/tmp/a", "--nic", "manad"})
        arguments.insert(arguments.begin(), text);
    return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST(NetworkOptions, AreTakenFromTheCommandLine) {
    const auto parsed = parse({"--fault", "nic=a,dir=tx,loss=1%", "--fault", "nic=a,dir=rx,loss=2%",
                               "--policy", "nic=b,limit=1G", "--uplink", "tap=t0", "--uplink",
                               "stream=/tmp/x", "--pcap", "/tmp/p"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    EXPECT_EQ(parsed.options.faults.size(), 2u);
    EXPECT_EQ(parsed.options.policies.size(), 1u);
    EXPECT_EQ(parsed.options.uplinks.size(), 2u);
    EXPECT_EQ(parsed.options.pcap, "/tmp/p");
}

TEST(NetworkOptions, MustFitTogether) {
    const std::vector<std::vector<const char*>> bad = {
        {"--fault", "nic=c,loss=1%"},
        {"--fault", "loss=1%"},
        {"--fault", "nic=a,loss=1%", "--fault", "nic=a,dir=rx,loss=2%"},
        {"--fault", "nic=a,flap=1s/1s", "--fault", "nic=a,flap=2s/2s"},
        {"--pcap", ""},
        {"--policy", "nic=c,limit=1G"},
        {"--policy", "nic=a,limit=1G", "--policy", "nic=a,limit=2G"},
        {"--uplink", "stream=/tmp/a,listen"},
        {"--uplink", "what"},
    };
    for (const auto& arguments : bad) {
        const auto parsed = parse(arguments);
        EXPECT_TRUE(parsed.exit) << arguments[1];
        EXPECT_EQ(parsed.status, 2) << arguments[1];
        EXPECT_EQ(std::count(parsed.text.begin(), parsed.text.end(), '\n'), 1) << parsed.text;
    }
}

}  // namespace
}  // namespace openmana::manad
