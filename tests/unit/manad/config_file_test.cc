// SPDX-License-Identifier: Apache-2.0
#include "manad/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "manad/options.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> texts(const std::vector<OptionText>& of) {
    std::vector<std::string> all;
    for (const OptionText& one : of) all.push_back(one.text);
    return all;
}

ConfigTexts read(const std::string& text) {
    auto read = read_config(text, "f");
    EXPECT_TRUE(read.has_value()) << read.error();
    return read ? *read : ConfigTexts();
}

std::string refusal(const std::string& text) {
    const auto read = read_config(text, "f");
    EXPECT_FALSE(read.has_value());
    return read ? "" : read.error();
}

TEST(ConfigFile, SaysWhatTheCommandLineWould) {
    const ConfigTexts config = read(R"(
format = 1
control = "/run/c"
log = "warn"

[[nic]]
id = "a"
socket = "/run/a"
mtu = 1500
ext = false
trunk = ["10", "20-29"]
[nic.policy]
mac-check = true
ips = ["10.0.0.1", "fd00::1/64"]
acl = ["deny tx tcp to any port 25", "allow"]
[[nic.fault]]
loss = "1%"
dir = "tx"
[[nic.fault]]
dup = "1%"
dir = "rx"

[[nic]]
id = "b"
socket = "/run/b"
[nic.fault]
delay = "10us"
)");
    EXPECT_THAT(
        texts(config.nics),
        ElementsAre("ext=off,id=a,mtu=1500,socket=/run/a,trunk=10+20-29", "id=b,socket=/run/b"));
    EXPECT_THAT(texts(config.policies),
                ElementsAre("nic=a,acl=deny tx tcp to any port 25;allow,ips=10.0.0.1+fd00::1/64,"
                            "mac-check=on"));
    EXPECT_THAT(texts(config.faults),
                ElementsAre("nic=a,dir=tx,loss=1%", "nic=a,dir=rx,dup=1%", "nic=b,delay=10us"));
    EXPECT_EQ(config.scalars.at("control").text, "/run/c");
    EXPECT_EQ(config.scalars.at("control").where, "f:3");
    EXPECT_EQ(config.nics[1].where, "f:23");
}

TEST(ConfigFile, HasUplinksOfEachKind) {
    const ConfigTexts config = read(R"(
[[uplink]]
kind = "udp"
local = "192.0.2.1:4500"
remote = "192.0.2.2:4500"
network = "red"
[[uplink]]
kind = "tap"
interface = "tap0"
network = "blue"
[[uplink]]
kind = "stream"
path = "/run/s"
listen = true
access = ":kvm:0660"
[[uplink]]
kind = "stream"
path = "/run/t"
listen = false
[[uplink]]
kind = "vxlan"
local = "192.0.2.1"
vni = 5
remote = ["192.0.2.2", "192.0.2.3"]
[[uplink]]
kind = "xdp"
interface = "eth1"
queues = 2
mode = "copy"
)");
    EXPECT_THAT(
        texts(config.uplinks),
        ElementsAre("udp=local=192.0.2.1:4500,network=red,remote=192.0.2.2:4500",
                    "tap=tap0,network=blue", "stream=/run/s,listen,access=:kvm:0660",
                    "stream=/run/t", "vxlan=local=192.0.2.1,remote=192.0.2.2+192.0.2.3,vni=5",
                    "xdp=eth1,mode=copy,queues=2"));
    for (const std::string& text :
         {config.uplinks[0].text, config.uplinks[1].text, config.uplinks[3].text,
          config.uplinks[4].text, config.uplinks[5].text})
        EXPECT_TRUE(parse_uplink(text).has_value()) << text << parse_uplink(text).error();
}

/// Found by the fuzzer: an assertion of toml++ 3.3.0 ended the process.
TEST(ConfigFile, WhatIsNoTomlAtAllIsRefused) {
    using namespace std::string_literals;
    EXPECT_THAT(refusal(std::string(48, '[') + "\0z3.3\1\0\0\00076777777799997777"s),
                StartsWith("f:1: "));
    EXPECT_THAT(refusal("\n\0"s), StartsWith("f:2: "));
    // And a letter near the spaces of its table was undefined behaviour, in a string or not.
    EXPECT_THAT(refusal("# caf\u00e9\n\u048a = 1"), StartsWith("f:2: "));
    EXPECT_THAT(refusal("a = 1 \u0382"), StartsWith("f:1: "));
    EXPECT_THAT(refusal("+--ni=9=00(oo<\0\0\0oooso\"{\u0382\2cs(`d"s), StartsWith("f:1: "));
    EXPECT_THAT(refusal("control = \"/\\\"\u00e9\" \u00e9"), StartsWith("f:1: "));
    EXPECT_EQ(read("control = \"/\u00e9\" # caf\u00e9").scalars.at("control").text, "/\u00e9");
    EXPECT_THAT(refusal(std::string(100000, '[')), StartsWith("f:1: "));
}

TEST(ConfigFile, WhatIsWrongIsSaidWithItsLine) {
    EXPECT_THAT(refusal("a = \n"), StartsWith("f:1: "));
    EXPECT_EQ(refusal("\ncolour = \"red\""), "f:2: unknown key 'colour'");
    EXPECT_EQ(refusal("format = 2"), "f:1: format=2 is not 1, which this manad reads");
    EXPECT_EQ(refusal("[nic]\nid = \"a\""), "f:1: nic is a list of tables: [[nic]]");
    EXPECT_EQ(refusal("nic = [1]"), "f:1: nic is a list of tables: [[nic]]");
    EXPECT_EQ(refusal("[[nic]]\nsocket = \"/a\""), "f:1: a [[nic]] without an id");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\nmtu = 1.5"),
              "f:3: mtu is not a text, nor a list of texts");
    EXPECT_EQ(refusal("control = [\"a\"]"),
              "f:1: control is not a text, a number, or true or false");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\nsocket = \"/a,b\""), "f:3: socket has a comma in it");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\nips = [\"1+2\"]"),
              "f:3: ips has a '+' in one of its texts");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\npolicy = 1"), "f:3: policy is a table");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\n[nic.policy]\nnic = \"b\""),
              "f:4: policy is of the NIC that it stands in");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\"\nfault = [1]"), "f:3: fault is a table");
    EXPECT_EQ(refusal("[[nic]]\nid = \"a\\u0000\""), "f:2: id has a zero byte");
    EXPECT_EQ(refusal("[[uplink]]\nlocal = \"a\""),
              "f:1: an [[uplink]] without a kind, such as kind = \"udp\"");
    EXPECT_EQ(refusal("[[uplink]]\nkind = \"tap\""), "f:1: tap needs interface");
    EXPECT_EQ(refusal("[[uplink]]\nkind = \"stream\"\npath = \"/s\"\nlisten = 1"),
              "f:4: listen is true or false");
}

/// The command line with a file of this text.
class ConfiguredTest : public ::testing::Test {
protected:
    [[nodiscard]] ParsedOptions parse(const std::string& text,
                                      std::vector<std::string> arguments = {}) const {
        std::ofstream(path()) << text;
        arguments.insert(arguments.begin(), {"manad", "--config", path()});
        std::vector<const char*> pointers;
        for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
        return parse_options(static_cast<int>(pointers.size()), pointers.data());
    }
    [[nodiscard]] std::string path() const { return temp.path() + "/c.toml"; }
    test::TempDir temp{"config"};
};

TEST_F(ConfiguredTest, WhatIsTypedGoesBeforeTheFileOrAddsToIt) {
    const auto parsed = parse(
        "control = \"/f\"\nlog = \"warn\"\n[[nic]]\nid = \"a\"\n"
        "socket = \"/a\"\n",
        {"--nic", "id=b,socket=/b", "--control", "/typed"});
    ASSERT_FALSE(parsed.exit) << parsed.text;
    EXPECT_EQ(parsed.options.control, "/typed");
    EXPECT_EQ(parsed.options.log_level, base::LogLevel::kWarn);
    ASSERT_EQ(parsed.options.nics.size(), 2U);
    EXPECT_EQ(parsed.options.nics[0].nic.name, "a");
    EXPECT_EQ(parsed.options.nics[1].nic.name, "b");
}

TEST_F(ConfiguredTest, ErrorsNameTheLine) {
    const auto text = [&](const std::string& file) { return parse(file).text; };
    EXPECT_EQ(text("log = \"loud\""),
              "manad: " + path() + ":1: 'loud' is not trace, debug, info, warn, error or off\n");
    EXPECT_EQ(text("\n[[nic]]\nid = \"a\"\nsocket = \"/a\"\nmtu = 5\n"),
              "manad: " + path() + ":2: mtu=5 is not a number from 1500 to 9000\n");
    EXPECT_EQ(text("[[nic]]\nid = \"a\"\nsocket = \"/a\"\n[nic.policy]\nips = \"x\"\n"),
              "manad: " + path() + ":4: ips: 'x': not an IPv4 or IPv6 address\n");
    EXPECT_EQ(text("user = \"root\""),
              "manad: " + path() + ":1: root is the one that manad should not be\n");
    EXPECT_EQ(text(""),
              "manad: no NIC, and no --control by which one could come: --nic is needed\n");
    EXPECT_FALSE(parse("control = \"/c\"").exit) << "NICs may come later";
}

TEST_F(ConfiguredTest, AFileThatCannotBeReadIsNone) {
    ASSERT_EQ(::mkfifo((temp.path() + "/pipe").c_str(), 0600), 0);
    EXPECT_THAT(read_config_file(temp.path() + "/pipe").error(),
                HasSubstr("pipe: it is not a regular file"));
    EXPECT_THAT(read_config_file(temp.path() + "/none").error(),
                HasSubstr("none: cannot read the file: No such file or directory"));
}

TEST_F(ConfiguredTest, CheckSaysWhatIsMissing) {
    const auto check = [&](const std::string& file) { return parse(file, {"--check"}); };
    const std::string good = "[[nic]]\nid = \"a\"\nsocket = \"" + temp.path() + "/a" + "\"\n";
    EXPECT_EQ(check(good).text, "1 NICs, 0 uplinks, 0 policies: nothing is wrong\n");
    EXPECT_EQ(check(good).status, 0);
    EXPECT_EQ(check("[[nic]]\nid = \"a\"\nsocket = \"/nowhere/a\"\n").text,
              "manad: /nowhere/a: there is no directory /nowhere\n");
    EXPECT_EQ(check(good + "[nic.policy]\nflow-log = \"/nowhere/f\"\n").text,
              "manad: /nowhere/f: there is no directory /nowhere\n");
    const auto keyless = check(good +
                               "[[uplink]]\nkind = \"udp\"\nlocal = \"127.0.0.1:1\"\n"
                               "remote = \"127.0.0.1:2\"\nkey-file = \"/nowhere/k\"\n");
    EXPECT_EQ(keyless.text, "manad: /nowhere/k: there is no file of that name\n");
    EXPECT_EQ(keyless.status, 2);
}

}  // namespace
}  // namespace openmana::manad
