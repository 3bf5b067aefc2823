// SPDX-License-Identifier: Apache-2.0
#include "fabric/fdb.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/hold_meter.h"
#include "base/mac_text.h"
#include "fabric/vxlan.h"
#include "support/sim_executor.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using Action = FdbLine::Action;
using Seen = Fdb::Seen;

TunnelEnd end_at(const char* address, std::uint16_t port = Vxlan::kPort, std::uint32_t vni = 5) {
    return {*parse_ip(address), port, vni};
}
base::MacAddr mac(std::uint8_t last) {
    return {2, 0, 0, 0, 0, last};
}
FdbContext context(const char* local = "10.0.0.1") {
    return {end_at(local), ""};
}

std::string error_of(std::string_view line) {
    const auto parsed = parse_fdb_line(line);
    return parsed ? "" : parsed.error();
}

FdbLine line_of(std::string_view text) {
    const auto parsed = parse_fdb_line(text);
    EXPECT_TRUE(parsed.has_value() && parsed->has_value()) << text << ": " << error_of(text);
    return parsed && *parsed ? **parsed : FdbLine();
}

TEST(FdbLineTest, CommandsAreThoseOfBridge) {
    const FdbLine add = line_of(
        "bridge fdb add 02:00:00:00:00:01 dev vx0 dst 10.0.0.2 port 8472 vni 9 src_vni 0x5 via "
        "eth0 self static");
    EXPECT_EQ(add.action, Action::kAdd);
    EXPECT_EQ(add.mac, mac(1));
    EXPECT_EQ(add.device, "vx0");
    EXPECT_EQ(ip_text(add.address), "10.0.0.2");
    EXPECT_EQ(add.port, 8472);
    EXPECT_EQ(add.vni, 9u);
    EXPECT_EQ(add.source_vni, 5u);
    EXPECT_FALSE(add.dynamic);
    EXPECT_EQ(line_of("fdb append 00:00:00:00:00:00 dst fd00::2").action, Action::kAppend);
    EXPECT_EQ(line_of("replace 02:00:00:00:00:01 dst 10.0.0.2").action, Action::kReplace);
    EXPECT_EQ(line_of("\tdel  02:00:00:00:00:01 dst 10.0.0.2 # gone").action, Action::kDelete);
    EXPECT_TRUE(line_of("add 02:00:00:00:00:01 dst 10.0.0.2 dynamic").dynamic);
}

/// As iproute2 6.15 prints them.
TEST(FdbLineTest, WhatBridgeShowsIsRead) {
    const FdbLine plain = line_of("02:00:00:00:00:03 dev vx0 dst 10.0.0.2 self ");
    EXPECT_EQ(plain.action, Action::kListed);
    EXPECT_EQ(plain.device, "vx0");
    EXPECT_FALSE(plain.port || plain.vni || plain.source_vni);
    const FdbLine external =
        line_of("02:00:00:00:00:06 dev vx1 dst 10.0.0.2 vni 200 src_vni 100 self permanent");
    EXPECT_EQ(external.vni, 200u);
    EXPECT_EQ(external.source_vni, 100u);
    EXPECT_EQ(line_of("02:00:00:00:00:04 dev vx0 dst 10.0.0.2 self extern_learn permanent").mac,
              mac(4));
    EXPECT_EQ(
        line_of("02:00:00:00:00:05 dev vx0 dst 10.0.0.2 port 99 vni 77 via lo self permanent").port,
        99);
    EXPECT_EQ(line_of("02:00:00:00:00:06 dev vx6 dst fd00::1 used 0/0 self permanent").mac, mac(6));
    for (const char* none : {"", "   ", "# a comment", "33:33:00:00:00:01 dev br0 self permanent",
                             "02:00:00:00:00:04 dev vx0 extern_learn master br0 ",
                             "a6:e7:30:0c:06:4f dev vx0 vlan 1 master br0 permanent"}) {
        const auto parsed = parse_fdb_line(none);
        ASSERT_TRUE(parsed.has_value()) << none << ": " << parsed.error();
        EXPECT_FALSE(parsed->has_value()) << none;
    }
}

TEST(FdbLineTest, EachMistakeHasItsMessage) {
    const std::pair<const char*, const char*> kCases[] = {
        {"add", "the MAC address is missing"},
        {"bridge fdb", "the MAC address is missing"},
        {"add 02:00:00:00:00 dst 10.0.0.2", "'02:00:00:00:00' is not a MAC address"},
        {"show", "'show' is neither add, append, replace or del nor a MAC address"},
        {"add 02:00:00:00:00:01", "dst IP is missing"},
        {"add 02:00:00:00:00:01 dev vx0 master",
         "master is for bridges; a tunnel's entry has dst IP"},
        {"add 02:00:00:00:00:01 dst", "'dst' has nothing behind it"},
        {"add 02:00:00:00:00:01 dst host", "dst host is not an IP address"},
        {"add 02:00:00:00:00:01 dst 10.0.0.2 dst 10.0.0.3", "dst is there twice"},
        {"add 02:00:00:00:00:01 dst 10.0.0.2 port 0", "port 0 is not a number from 1 to 65535"},
        {"add 02:00:00:00:00:01 dst 10.0.0.2 port x", "port x is not a number from 1 to 65535"},
        {"add 02:00:00:00:00:01 dst 10.0.0.2 vni 16777216",
         "vni 16777216 is not a number from 0 to 16777215"},
        {"add 02:00:00:00:00:01 dst 10.0.0.2 src_vni -1",
         "src_vni -1 is not a number from 0 to 16777215"},
        {"add 02:00:00:00:00:01 dts 10.0.0.2", "'dts' is not a word of bridge fdb"},
        {"02:00:00:00:00:01 dev vx0 nhid 7 self",
         "nhid: groups of next hops are not known here, name the ends by dst"},
        {"add \x1b[2J dst 10.0.0.2", "'?[2J' is not a MAC address"},
    };
    for (const auto& [text, message] : kCases) EXPECT_EQ(error_of(text), message) << text;
    EXPECT_EQ(error_of(std::string(2000, ' ')), "the line is too long");
    EXPECT_EQ(
        error_of(std::string(500, 'x')),
        "'" + std::string(40, 'x') + "' is neither add, append, replace or del nor a MAC address");
}

std::string read_error(std::string_view text) {
    const auto table = FdbTable::read(text, context());
    return table ? "" : table.error();
}

TEST(FdbTableTest, AFileIsReadWithItsDefaults) {
    const auto table = FdbTable::read(
        "# ends\r\n"
        "00:00:00:00:00:00 dst 10.0.0.2\n"
        "00:00:00:00:00:00 dst 10.0.0.3 port 8472 vni 9\n"
        "\n"
        "add 02:00:00:00:00:01 dst 10.0.0.2\n"
        "replace 02:00:00:00:00:01 dst 10.0.0.3\n"
        "add 02:00:00:00:00:02 dst 10.0.0.2\n"
        "del 02:00:00:00:00:02 dst 10.0.0.2",
        context());
    ASSERT_TRUE(table.has_value()) << table.error();
    EXPECT_EQ(table->size(), 2u);
    EXPECT_EQ(*table->find(kFloodMac),
              (TunnelEnds{end_at("10.0.0.2"), end_at("10.0.0.3", 8472, 9)}));
    EXPECT_EQ(*table->find(mac(1)), TunnelEnds{end_at("10.0.0.3")});
    EXPECT_EQ(table->find(mac(2)), nullptr);
}

TEST(FdbTableTest, OnlyLinesOfItsNetworkCount) {
    constexpr std::string_view kText =
        "02:00:00:00:00:01 dev vx5 dst 10.0.0.2 src_vni 5\n"
        "02:00:00:00:00:01 dev vx6 dst 10.0.0.3 src_vni 6\n"
        "02:00:00:00:00:02 dev vx6 dst 10.0.0.3\n";
    FdbContext five = context();
    const auto table = FdbTable::read(kText, five);
    ASSERT_TRUE(table.has_value()) << table.error();
    EXPECT_EQ(*table->find(mac(1)), TunnelEnds{end_at("10.0.0.2")});
    EXPECT_EQ(table->size(), 2u);
    five.device = "vx5";
    EXPECT_EQ(FdbTable::read(kText, five)->size(), 1u);
}

TEST(FdbTableTest, ABrokenLineIsNamed) {
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst 10.0.0.2\nadd 02:00:00:00:00:02 dst x\n"),
              "line 2: dst x is not an IP address");
    EXPECT_EQ(
        read_error("add 02:00:00:00:00:01 dst 10.0.0.2\n\nadd 02:00:00:00:00:01 dst 10.0.0.3"),
        "line 3: 02:00:00:00:00:01 dst 10.0.0.2:4789 is there already");
    EXPECT_EQ(read_error("append 02:00:00:00:00:01 dst 10.0.0.2\n"
                         "append 02:00:00:00:00:01 dst 10.0.0.3"),
              "line 2: 02:00:00:00:00:01 has dst 10.0.0.2:4789, and one station can have no other");
    EXPECT_EQ(read_error("append 00:00:00:00:00:00 dst 10.0.0.2\n"
                         "replace 00:00:00:00:00:00 dst 10.0.0.3"),
              "line 2: 00:00:00:00:00:00 can have several ends: del and append");
    EXPECT_EQ(read_error("del 02:00:00:00:00:01 dst 10.0.0.2"),
              "line 1: 02:00:00:00:00:01 dst 10.0.0.2 is not there");
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst fd00::2"),
              "line 1: dst fd00::2 is not of the local address's IP version");
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst 239.1.1.1"),
              "line 1: dst 239.1.1.1 is a group: name each end of the tunnel");
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst 0.0.0.0"),
              "line 1: dst 0.0.0.0 is nobody's address");
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst 10.0.0.1"),
              "line 1: dst 10.0.0.1 is this end of the tunnel itself");
    EXPECT_EQ(read_error("add 02:00:00:00:00:01 dst 10.0.0.1 port 4790"), "");
    const auto six = FdbTable::read("add 02:00:00:00:00:01 dst fe80::1", context("fd00::1"));
    ASSERT_FALSE(six.has_value());
    EXPECT_EQ(six.error(), "line 1: dst fe80::1 is good on one link only, and names none");
    EXPECT_EQ(read_error(std::string_view("\0\0\0\n", 4)),
              "line 1: '\?\?\?' is neither add, append, replace or del nor a MAC address");
}

TEST(FdbTableTest, TheSameLineTwiceIsOneEntry) {
    const auto table = FdbTable::read(
        "02:00:00:00:00:01 dev a dst 10.0.0.2 self\n02:00:00:00:00:01 dev b dst 10.0.0.2 self\n",
        context());
    ASSERT_TRUE(table.has_value()) << table.error();
    EXPECT_EQ(*table->find(mac(1)), TunnelEnds{end_at("10.0.0.2")});
}

TEST(FdbTableTest, HasLimits) {
    std::string text;
    for (unsigned i = 0; i <= FdbTable::kMaxEnds; ++i)
        text += fmt::format("00:00:00:00:00:00 dst 10.1.{}.{}\n", i / 256, i % 256);
    EXPECT_EQ(read_error(text), "line 1025: 00:00:00:00:00:00 has 1024 ends, and more cannot be");
    text.clear();
    for (unsigned i = 0; i <= FdbTable::kMaxAddresses; ++i)
        text += base::to_string({2, 1, static_cast<std::uint8_t>(i >> 24),
                                 static_cast<std::uint8_t>(i >> 16),
                                 static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)}) +
                " dst 10.0.0.2\n";
    EXPECT_EQ(read_error(text), "line 65537: there are 65536 addresses, and more cannot be");
    EXPECT_EQ(read_error(std::string(FdbTable::kMaxText + 1, '\n')), "more than 16777216 bytes");
}

class FdbTest : public ::testing::Test {
protected:
    Fdb make(bool learns, TunnelEnds remotes = {end_at("10.0.0.2"), end_at("10.0.0.3")}) {
        return Fdb(world, context(), std::move(remotes), learns);
    }
    static TunnelEnds ends(Fdb& fdb, const base::MacAddr& address) {
        Fdb::Access access(fdb);
        const auto found = access.ends_of(address).ends;
        return {found.begin(), found.end()};
    }
    static Seen saw(Fdb& fdb, const base::MacAddr& address, const char* from) {
        return Fdb::Access(fdb).saw(address, {end_at(from)});
    }
    static std::string say(Fdb& fdb, std::string_view text) {
        const auto done = fdb.command(line_of(text));
        return done ? "" : done.error();
    }
    const TunnelEnds all{end_at("10.0.0.2"), end_at("10.0.0.3")};
    openmana::test::SimWorld world;
};

TEST_F(FdbTest, WhatNobodyKnowsGoesToAll) {
    Fdb fdb = make(true);
    EXPECT_EQ(ends(fdb, mac(1)), all);
    EXPECT_EQ(ends(fdb, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), all);
    EXPECT_TRUE(ends(*std::make_unique<Fdb>(world, context(), TunnelEnds{}, true), mac(1)).empty());
}

TEST_F(FdbTest, LearnsAndForgetsInTime) {
    Fdb fdb = make(true);
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.3"), Seen::kNew);
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.3"), Seen::kKnown);
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.3")});
    world.advance(Fdb::kAge);
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.3")});
    world.advance(1s);
    EXPECT_EQ(ends(fdb, mac(1)), all);
    // Where it is now is no move any more.
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.2"), Seen::kNew);
    EXPECT_EQ(fdb.counters().moved.value(), 0u);
}

TEST_F(FdbTest, AMoveIsCountedAndFollowed) {
    Fdb fdb = make(true);
    (void)saw(fdb, mac(1), "10.0.0.3");
    {
        Fdb::Access access(fdb);
        EXPECT_EQ(access.saw(mac(1), {end_at("10.0.0.2")}), Seen::kMoved);
        EXPECT_EQ(access.before(), end_at("10.0.0.3"));
    }
    EXPECT_EQ(fdb.counters().moved.value(), 1u);
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.2")});
}

TEST_F(FdbTest, WithoutLearningOnlyWhatIsWrittenCounts) {
    Fdb fdb = make(false);
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.3"), Seen::kKnown);
    EXPECT_EQ(ends(fdb, mac(1)), all);
    fdb.set_file(*FdbTable::read("02:00:00:00:00:01 dst 10.0.0.2", context()));
    // A guest may move before who feeds the file knows.
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.3"), Seen::kKnown);
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.2")});
}

TEST_F(FdbTest, ALearnedAddressNeverGoesBeforeAWrittenOne) {
    Fdb fdb = make(true);
    (void)saw(fdb, mac(1), "10.0.0.3");
    fdb.set_file(*FdbTable::read("02:00:00:00:00:01 dst 10.0.0.2", context()));
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.2")});
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.3"), Seen::kRefused);
    EXPECT_EQ(saw(fdb, mac(1), "10.0.0.2"), Seen::kKnown);
    EXPECT_EQ(fdb.counters().refused.value(), 1u);
    EXPECT_EQ(say(fdb, "replace 02:00:00:00:00:01 dst 10.0.0.4"), "");
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.4")});
}

TEST_F(FdbTest, ForgetsWhatWasSilentForLongest) {
    Fdb fdb = make(true);
    const auto numbered = [](std::size_t i) {
        return base::MacAddr{
            2, 1, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    };
    for (std::size_t i = 0; i < Fdb::kMaxLearned; ++i) (void)saw(fdb, numbered(i), "10.0.0.3");
    (void)saw(fdb, numbered(0), "10.0.0.3");
    (void)saw(fdb, mac(9), "10.0.0.3");
    EXPECT_EQ(fdb.counters().forgotten.value(), 1u);
    EXPECT_EQ(ends(fdb, numbered(0)).size(), 1u);
    EXPECT_EQ(ends(fdb, numbered(1)).size(), 2u);
    EXPECT_EQ(fdb.rows().size(), Fdb::kMaxLearned + 2);
}

/// As many addresses as there may be from one end take no place of another's.
TEST_F(FdbTest, EachEndHasAShareThatNoOtherTakes) {
    Fdb fdb = make(true);
    const auto numbered = [](std::uint8_t end, std::size_t i) {
        return base::MacAddr{
            2, end, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    };
    const std::size_t share = Fdb::kMaxLearned / 3;  // of two ends, and of others
    // One fills the table while the other is silent, and then the other comes.
    for (std::size_t i = 0; i < 2 * Fdb::kMaxLearned; ++i)
        (void)saw(fdb, numbered(2, i), "10.0.0.2");
    EXPECT_EQ(fdb.counters().forgotten.value(), Fdb::kMaxLearned);
    for (std::size_t i = 0; i < share; ++i) (void)saw(fdb, numbered(3, i), "10.0.0.3");
    EXPECT_EQ(fdb.counters().over_share.value(), Fdb::kMaxLearned + share);
    // Neither the first nor any number of strangers takes these away.
    for (std::size_t i = 0; i < Fdb::kMaxLearned; ++i) {
        (void)saw(fdb, numbered(4, i), "10.0.0.2");
        const std::string stranger = fmt::format("10.7.{}.{}", i / 256, i % 256);
        (void)saw(fdb, numbered(5, i), stranger.c_str());
    }
    for (std::size_t i = 0; i < share; ++i)
        ASSERT_EQ(ends(fdb, numbered(3, i)), TunnelEnds{end_at("10.0.0.3")}) << i;
    EXPECT_EQ(fdb.rows().size(), Fdb::kMaxLearned + 2);
}

TEST_F(FdbTest, AnEndThatIsTakenOutTakesWhatWasLearnedAlong) {
    Fdb fdb = make(true);
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.4", context()));
    EXPECT_EQ(say(fdb, "append 00:00:00:00:00:00 dst 10.0.0.5"), "");
    for (std::uint8_t i = 0; i < 200; ++i) {
        (void)saw(fdb, mac(i), i % 2 == 0 ? "10.0.0.4" : "10.0.0.5");
        (void)saw(fdb, {2, 9, 0, 0, 0, i}, "10.0.0.3");
    }
    fdb.set_file(*FdbTable::read("", context()));
    EXPECT_EQ(ends(fdb, mac(2)).size(), 3u) << "whoever has it now";
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.5")});
    EXPECT_EQ(fdb.counters().end_gone.value(), 100u);
    EXPECT_EQ(say(fdb, "del 00:00:00:00:00:00 dst 10.0.0.5"), "");
    EXPECT_EQ(ends(fdb, mac(1)), all);
    EXPECT_EQ(ends(fdb, {2, 9, 0, 0, 0, 1}), TunnelEnds{end_at("10.0.0.3")});
    // Nor is it where the end was, if that has another port now.
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.6", context()));
    (void)saw(fdb, mac(1), "10.0.0.6");
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.6 port 99", context()));
    EXPECT_EQ(ends(fdb, mac(1)).size(), 3u);
}

/// Which of them sent is not in a datagram: its source port is the flow's.
TEST_F(FdbTest, BehindEndsOfOneAddressNothingIsLearned) {
    Fdb fdb = make(true, {end_at("10.0.0.2", 4789), end_at("10.0.0.2", 4790), end_at("10.0.0.3")});
    const auto known = Fdb::Access(fdb).known(*parse_ip("10.0.0.2"));
    ASSERT_TRUE(known && known->several);
    (void)saw(fdb, mac(1), "10.0.0.3");
    EXPECT_EQ(Fdb::Access(fdb).saw(mac(1), *known), Seen::kKnown);
    EXPECT_EQ(ends(fdb, mac(1)).size(), 3u) << "where it was it is not any more";
    EXPECT_EQ(fdb.counters().shared_address.value(), 1u);
}

TEST_F(FdbTest, NobodyHoldsItsLockForLong) {
    const base::HoldMeter meter;
    Fdb fdb = make(true);
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.4", context()));
    for (std::size_t i = 0; i < Fdb::kMaxLearned; ++i)
        (void)saw(fdb,
                  {2, 1, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)},
                  "10.0.0.4");
    EXPECT_EQ(fdb.rows().size(), Fdb::kMaxLearned + 3);
    fdb.set_file(FdbTable());
    EXPECT_EQ(fdb.rows().size(), 2u);
    EXPECT_LE(meter.largest(base::HoldKind::kLock).work, 4 * Fdb::kSlice);
}

/// However many entries there are, each with its line.
TEST_F(FdbTest, ATableOfControlClientsGrowsWhileFramesPass) {
    constexpr unsigned kEntries = 1000;
    const base::HoldMeter meter;
    Fdb fdb = make(true);
    for (unsigned i = 0; i < kEntries; ++i)
        ASSERT_EQ(
            say(fdb, fmt::format("add 02:01:00:00:{:02x}:{:02x} dst 10.0.0.3", i / 256, i % 256)),
            "");
    EXPECT_LE(meter.largest(base::HoldKind::kLock).work, 4 * Fdb::kSlice);
    EXPECT_EQ(fdb.rows().size(), kEntries + 2);
    EXPECT_EQ(ends(fdb, {2, 1, 0, 0, 0, 0}), TunnelEnds{end_at("10.0.0.3")}) << "none is lost";
}

TEST_F(FdbTest, AFileTakesThePlaceOfTheOneBefore) {
    Fdb fdb = make(true);
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.4\n02:00:00:00:00:01 dst 10.0.0.5",
                                 context()));
    EXPECT_EQ(ends(fdb, mac(9)),
              (TunnelEnds{end_at("10.0.0.2"), end_at("10.0.0.3"), end_at("10.0.0.4")}));
    EXPECT_TRUE(Fdb::Access(fdb).known(*parse_ip("10.0.0.5")).has_value());
    fdb.set_file(*FdbTable::read("00:00:00:00:00:00 dst 10.0.0.2", context()));
    EXPECT_EQ(ends(fdb, mac(9)), all);
    EXPECT_EQ(ends(fdb, mac(1)), all);
    EXPECT_FALSE(Fdb::Access(fdb).known(*parse_ip("10.0.0.5")).has_value());
}

TEST_F(FdbTest, AGroupMayHaveEndsOfItsOwn) {
    Fdb fdb = make(true);
    fdb.set_file(*FdbTable::read("01:00:5e:00:00:05 dst 10.0.0.3", context()));
    EXPECT_EQ(ends(fdb, {1, 0, 0x5e, 0, 0, 5}), TunnelEnds{end_at("10.0.0.3")});
    EXPECT_EQ(ends(fdb, {1, 0, 0x5e, 0, 0, 6}), all);
}

TEST_F(FdbTest, KnownEndsAreAnsweredAtTheirPortAndNetwork) {
    Fdb fdb = make(true, {end_at("10.0.0.2", 8472, 9)});
    const auto known = Fdb::Access(fdb).known(*parse_ip("10.0.0.2"));
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(known->end, end_at("10.0.0.2", 8472, 9));
    EXPECT_FALSE(known->several);
    EXPECT_FALSE(Fdb::Access(fdb).known(*parse_ip("10.0.0.3")).has_value());
}

TEST_F(FdbTest, ControlClientsChangeIt) {
    Fdb fdb = make(true);
    EXPECT_EQ(say(fdb, "add 02:00:00:00:00:01 dst 10.0.0.9"), "");
    EXPECT_EQ(say(fdb, "append 00:00:00:00:00:00 dst 10.0.0.9"), "");
    EXPECT_EQ(ends(fdb, mac(7)).size(), 3u);
    EXPECT_EQ(say(fdb, "del 02:00:00:00:00:01 dst 10.0.0.9"), "");
    EXPECT_EQ(ends(fdb, mac(1)).size(), 3u);
    EXPECT_EQ(say(fdb, "add 02:00:00:00:00:01 dst 10.0.0.9 dynamic"), "");
    EXPECT_EQ(ends(fdb, mac(1)), TunnelEnds{end_at("10.0.0.9")});
    EXPECT_EQ(say(fdb, "del 02:00:00:00:00:01 dst 10.0.0.9"), "");
    EXPECT_EQ(ends(fdb, mac(1)).size(), 3u);
    fdb.set_file(*FdbTable::read("02:00:00:00:00:02 dst 10.0.0.2", context()));
    EXPECT_EQ(
        say(fdb, "del 02:00:00:00:00:02 dst 10.0.0.2"),
        "02:00:00:00:00:02 dst 10.0.0.2 is not there but in the file, which has to be changed");
    EXPECT_EQ(say(fdb, "del 00:00:00:00:00:00 dst 10.0.0.2"),
              "00:00:00:00:00:00 dst 10.0.0.2 is not there but in the options (remote=)");
    EXPECT_EQ(say(fdb, "del 02:00:00:00:00:03 dst 10.0.0.2"),
              "02:00:00:00:00:03 dst 10.0.0.2 is not there");
    EXPECT_EQ(say(fdb, "add 02:00:00:00:00:01 dst 10.0.0.9 src_vni 6"), "the network's VNI is 5");
    EXPECT_EQ(say(fdb, "02:00:00:00:00:01 dst 10.0.0.9"),
              "one of add, append, replace and del is missing");
    EXPECT_EQ(say(fdb, "add 00:00:00:00:00:00 dst 10.0.0.9 dynamic"),
              "dynamic: only for the address of one station");
    EXPECT_EQ(say(fdb, "add 02:00:00:00:00:01 dst fd00::1 dynamic"),
              "dst fd00::1 is not of the local address's IP version");
    Fdb strict(world, context(), {}, false);
    EXPECT_EQ(say(strict, "add 02:00:00:00:00:01 dst 10.0.0.9 dynamic"),
              "dynamic: this network learns nothing (learn=off), leave it away");
}

TEST_F(FdbTest, ShowsWhereEachEntryIsFrom) {
    Fdb fdb = make(true, {end_at("10.0.0.2")});
    fdb.set_file(*FdbTable::read("02:00:00:00:00:03 dst 10.0.0.2", context()));
    (void)say(fdb, "add 02:00:00:00:00:02 dst 10.0.0.9");
    (void)saw(fdb, mac(1), "10.0.0.2");
    world.advance(7s);
    const auto rows = fdb.rows();
    ASSERT_EQ(rows.size(), 4u);
    EXPECT_EQ(rows[0].mac, kFloodMac);
    EXPECT_EQ(rows[0].origin, Fdb::Origin::kOption);
    EXPECT_EQ(rows[1].origin, Fdb::Origin::kLearned);
    EXPECT_EQ(rows[1].age, 7s);
    EXPECT_EQ(rows[2].origin, Fdb::Origin::kControl);
    EXPECT_EQ(rows[3].origin, Fdb::Origin::kFile);
    EXPECT_EQ(rows[3].mac, mac(3));
}

}  // namespace
}  // namespace openmana::fabric
