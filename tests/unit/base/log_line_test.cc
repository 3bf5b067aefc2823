// SPDX-License-Identifier: Apache-2.0
#include "base/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <string>

namespace openmana::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(LogLine, HasAnEventAndFields) {
    const LogLine line = LogLine::of("nic start: nic=vm1 network=red mac=02:00:00:00:00:01");
    EXPECT_EQ(line.event, "nic start");
    EXPECT_THAT(line.fields, ElementsAre(Pair("nic", "vm1"), Pair("network", "red"),
                                         Pair("mac", "02:00:00:00:00:01")));
}

TEST(LogLine, AValueInQuotesMayHaveSpacesQuotesAndWhatLooksLikeFields) {
    const LogLine line =
        LogLine::of(R"(thread hang: nic=a doing="hwc_req 0x1d, x=y of "b"" seconds=5.0)");
    EXPECT_THAT(line.fields,
                ElementsAre(Pair("nic", "a"), Pair("doing", R"(hwc_req 0x1d, x=y of "b")"),
                            Pair("seconds", "5.0")));
}

TEST(LogLine, WordsAreNoFields) {
    const LogLine line = LogLine::of("interrupts unsafe: a client can stall its peers errno=38");
    EXPECT_EQ(line.event, "interrupts unsafe");
    EXPECT_THAT(line.fields, ElementsAre(Pair("errno", "38")));
}

TEST(LogLine, AFieldBeforeTheColonIsNoEvent) {
    const LogLine line = LogLine::of("uplink=udp: a=1");
    EXPECT_EQ(line.event, "");
    EXPECT_THAT(line.fields, ElementsAre(Pair("uplink", "udp:"), Pair("a", "1")));
}

TEST(LogLine, WhatIsCutOrEmptyIsTakenAsItIs) {
    EXPECT_THAT(LogLine::of("").fields, IsEmpty());
    EXPECT_THAT(LogLine::of("e: a=").fields, ElementsAre(Pair("a", "")));
    EXPECT_THAT(LogLine::of("e: a=\"").fields, ElementsAre(Pair("a", "\"")));
    EXPECT_THAT(LogLine::of("e: a=\"x y").fields, ElementsAre(Pair("a", "\"x")));
    EXPECT_THAT(LogLine::of("e: =x  a=1").fields, ElementsAre(Pair("a", "1")));
    EXPECT_THAT(LogLine::of("e: a=\"\" b=1").fields, ElementsAre(Pair("a", ""), Pair("b", "1")));
}

TEST(LogLine, AsJson) {
    const std::chrono::system_clock::time_point time{std::chrono::milliseconds(1'700'000'000'007)};
    EXPECT_EQ(in_json(LogLevel::kWarn, time, "nic slow: nic=a reason=\"x\\\" errno=1"),
              R"({"time":"2023-11-14T22:13:20.007Z","level":"warn","event":"nic slow",)"
              R"("fields":{"nic":"a","reason":"x\\","errno":"1"},)"
              R"("message":"nic slow: nic=a reason=\"x\\\" errno=1"})"
              "\n");
    EXPECT_EQ(in_json(LogLevel::kInfo, {}, "a\tb"),
              R"({"time":"1970-01-01T00:00:00.000Z","level":"info","fields":{},)"
              R"("message":"a\tb"})"
              "\n");
}

TEST(LogLine, AsJsonWhatIsNotUtf8IsReplaced) {
    const std::string line =
        in_json(LogLevel::kWarn, {}, "file strange: file=\xff\xfe reason=\"cut \xc3\"");
    const auto object = nlohmann::json::parse(line, nullptr, false);
    ASSERT_FALSE(object.is_discarded()) << line;
    EXPECT_EQ(object["fields"]["file"], "\uFFFD\uFFFD");
    EXPECT_EQ(object["fields"]["reason"], "cut \uFFFD");
    EXPECT_EQ(object["message"], "file strange: file=\uFFFD\uFFFD reason=\"cut \uFFFD\"");
}

TEST(LogLine, AsJsonAFieldIsThereOnce) {
    const std::string line = in_json(LogLevel::kInfo, {}, "link up: nic=a nic=b");
    EXPECT_THAT(line, ::testing::HasSubstr(R"("fields":{"nic":"b"})"));
}

TEST(LogLine, ForTheJournal) {
    EXPECT_EQ(in_journal(LogLevel::kError, "manad", "reload refused: reason=\"no file\" nic=a"),
              "MESSAGE=reload refused: reason=\"no file\" nic=a\n"
              "PRIORITY=3\n"
              "SYSLOG_IDENTIFIER=manad\n"
              "OPENMANA_EVENT=reload refused\n"
              "OPENMANA_REASON=no file\n"
              "OPENMANA_NIC=a\n");
}

TEST(LogLine, ForTheJournalANewlineHasItsLengthBefore) {
    using namespace std::string_literals;
    EXPECT_EQ(in_journal(LogLevel::kDebug, "m", "a\nb"),
              "MESSAGE\n\x03\0\0\0\0\0\0\0a\nb\nPRIORITY=7\nSYSLOG_IDENTIFIER=m\n"s);
}

}  // namespace
}  // namespace openmana::base
