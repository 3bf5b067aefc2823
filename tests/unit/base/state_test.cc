// SPDX-License-Identifier: Apache-2.0
#include "base/state.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/strong.h"
#include "support/hex.h"

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

using Id = Strong<struct IdTag, std::uint32_t>;
enum class Color : std::uint8_t { kRed, kGreen };

struct Pair {
    std::uint16_t left = 0;
    std::uint16_t right = 0;
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.left, self.right);
    }
    friend bool operator==(const Pair&, const Pair&) = default;
};

/// One of each kind of value.
struct All {
    bool yes = true;
    std::uint64_t number = 0x1122334455667788;
    Id id{7};
    Color color = Color::kGreen;
    std::array<std::uint8_t, 3> octets{1, 2, 3};
    std::vector<std::uint32_t> list{10, 20};
    std::optional<Pair> some = Pair{1, 2};
    std::optional<Pair> none;
    double ratio = 0.5;
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.yes, self.number, self.id);
        a.choice(self.color, Color::kGreen);
        a(self.octets, self.list, self.some, self.none, self.ratio);
    }
    friend bool operator==(const All&, const All&) = default;
};

const TimePoint kThen{100s};
const TimePoint kNow{5000s};

std::vector<std::byte> written(const All& all) {
    StateWriter out(kThen);
    out.begin("TEST", 3);
    out(all);
    out.end();
    return std::move(out).finish();
}

Result<All> read(std::span<const std::byte> state, std::uint16_t newest = 3) {
    TRY(StateReader in, StateReader::open(state, kNow));
    in.begin("TEST", newest);
    All all{false, 0, {}, Color::kRed, {}, {}, std::nullopt, Pair{9, 9}, 0};
    in(all);
    in.end();
    TRY_VOID(in.result());
    return all;
}

std::string text(const Result<All>& result) {
    return result ? "" : result.error().text;
}

TEST(StateTest, WhatIsWrittenIsRead) {
    const All all;
    const auto result = read(written(all));
    ASSERT_TRUE(result) << text(result);
    EXPECT_EQ(*result, all);
}

// The format, byte for byte: what was written once is read for ever.
TEST(StateTest, Bytes) {
    StateWriter out(kThen);
    out.begin("AbCd", 2);
    out(std::uint16_t{0x1234}, true, Id(5));
    out(std::vector<std::uint8_t>{1, 2});
    out.end();
    const auto state = std::move(out).finish();
    EXPECT_EQ(test::to_hex(std::span(state).subspan(24)),
              "41624364"  // tag
              "0200"
              "0000"              // version
              "0d00000000000000"  // bytes of the part
              "3412"
              "01"
              "05000000"
              "02000000"
              "0102");
    EXPECT_EQ(test::to_hex(std::span(state).first(12)),
              "4f4d535441544531"
              "01000000");
    EXPECT_EQ(load_le<std::uint64_t>(state.data() + 16), state.size() - 24);
}

TEST(StateTest, TimesAreWhatIsLeftUntilThem) {
    StateWriter out(kThen);
    out(kThen + 3ms, kThen - 1s, Duration(7us), kThen + 1000h);
    const auto state = std::move(out).finish();
    auto in = StateReader::open(state, kNow);
    ASSERT_TRUE(in);
    EXPECT_EQ(in->get<TimePoint>(), kNow + 3ms);
    EXPECT_EQ(in->get<TimePoint>(), kNow - 1s);
    EXPECT_EQ(in->get<Duration>(), Duration(7us));
    EXPECT_EQ(in->get<TimePoint>(), kNow + 1h);  // nothing waits for so long
}

TEST(StateTest, APartOfANewerVersionIsRefused) {
    EXPECT_EQ(text(read(written({}), 2)), "part of a newer version");
}

TEST(StateTest, AnotherFormatIsRefused) {
    auto state = written({});
    state[8] = std::byte{2};
    EXPECT_EQ(text(read(state)), "state of another format");
}

TEST(StateTest, WhatIsNotWholeIsRefused) {
    const auto state = written({});
    for (std::size_t size = 0; size < state.size(); ++size)
        EXPECT_FALSE(read(std::span(state).first(size))) << size;
}

TEST(StateTest, AChangedByteIsRefused) {
    const auto state = written({});
    for (std::size_t i = 0; i < state.size(); ++i) {
        auto broken = state;
        broken[i] ^= std::byte{0x10};
        EXPECT_FALSE(read(broken)) << i;
    }
}

// A list cannot be longer than what is left of the part, whatever it says.
TEST(StateTest, AListThatDoesNotFitIsRefusedBeforeItIsMade) {
    StateWriter out(kThen);
    out(std::uint32_t{0xffffffff}, std::uint32_t{1});
    const auto state = std::move(out).finish();
    auto in = StateReader::open(state, kNow);
    ASSERT_TRUE(in);
    std::vector<std::uint64_t> list;
    (*in)(list);
    EXPECT_TRUE(list.empty());
    EXPECT_STREQ(in->result().error().text, "more than there is room for");
}

TEST(StateTest, AfterARefusalAllIsZero) {
    StateWriter out(kThen);
    out(std::uint8_t{2}, std::uint32_t{5});
    const auto state = std::move(out).finish();
    auto in = StateReader::open(state, kNow);
    ASSERT_TRUE(in);
    EXPECT_FALSE(in->get<bool>());
    EXPECT_EQ(in->get<std::uint32_t>(), 0);
    EXPECT_STREQ(in->result().error().text, "neither true nor false");
}

TEST(StateTest, WhatIsLeftOfAPartIsRefused) {
    StateWriter out(kThen);
    out.begin("PART", 1);
    out(std::uint32_t{5});
    out.end();
    const auto state = std::move(out).finish();
    auto in = StateReader::open(state, kNow);
    ASSERT_TRUE(in);
    in->begin("PART", 1);
    in->end();
    EXPECT_STREQ(in->result().error().text, "part is longer than what is known of it");
}

#define TEST_COUNTERS(X)           \
    X(first, "a.b.first", "first") \
    X(second, "a.b.second", "second")
OM_COUNTERS(TwoCounters, TEST_COUNTERS);
#define OTHER_COUNTERS(X)          \
    X(third, "a.b.third", "third") \
    X(first, "a.b.first", "first")
OM_COUNTERS(OtherCounters, OTHER_COUNTERS);

// A build with other counters takes those that it knows.
TEST(StateTest, CountersAreKnownByTheirNames) {
    TwoCounters before;
    before.first.add(11);
    before.second.add(22);
    StateWriter out(kThen);
    save_counters(out, before);
    const auto state = std::move(out).finish();
    auto in = StateReader::open(state, kNow);
    ASSERT_TRUE(in);
    OtherCounters after;
    load_counters(*in, after);
    EXPECT_TRUE(in->ok());
    EXPECT_EQ(after.first.value(), 11);
    EXPECT_EQ(after.third.value(), 0);
}

TEST(StateTest, DescriptorsComeInTheirOrderAndAMissingOneIsRefused) {
    StateWriter out(kThen);
    out.descriptor(-1);
    out.descriptor(70);
    out.descriptor(71);
    EXPECT_EQ(out.descriptors().size(), 2);
    const auto state = std::move(out).finish();
    std::array<UniqueFd, 1> fds{UniqueFd(::dup(0))};
    const int first = fds[0].get();
    auto in = StateReader::open(state, kNow, fds);
    ASSERT_TRUE(in);
    EXPECT_FALSE(in->descriptor());
    EXPECT_EQ(in->descriptor().get(), first);
    EXPECT_FALSE(in->descriptor());
    EXPECT_STREQ(in->result().error().text, "a descriptor is missing");
}

}  // namespace
}  // namespace openmana::base
