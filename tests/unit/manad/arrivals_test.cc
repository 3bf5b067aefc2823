// SPDX-License-Identifier: Apache-2.0
// States of NICs that come from another process while those before them are read.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/parcel.h"
#include "manad/take_over.h"

namespace openmana::manad {
namespace {

class ArrivalsTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::array<int, 2> ends{};
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        here = base::UniqueFd(ends[0]);
        there = base::UniqueFd(ends[1]);
    }
    /// More than a socket holds.
    static std::vector<std::byte> state(unsigned number) {
        return std::vector<std::byte>((1U << 20) + number, static_cast<std::byte>(number));
    }
    [[nodiscard]] bool send(unsigned number) const {
        return base::send_parcel(there.get(), state(number), {}, HandedOver::kPatience).has_value();
    }

    base::UniqueFd here, there;
    std::optional<Arrivals> arrivals = std::make_optional<Arrivals>();
};

TEST_F(ArrivalsTest, WhoWritesDoesNotWaitForWhoReads) {
    ASSERT_TRUE(arrivals->start(here.get(), 4));
    for (unsigned i = 0; i < 4; ++i) ASSERT_TRUE(send(i)) << "nobody has read one";
    for (unsigned i = 0; i < 4; ++i) {
        const auto parcel = arrivals->next();
        ASSERT_TRUE(parcel);
        EXPECT_EQ(parcel->bytes, state(i));
    }
}

TEST_F(ArrivalsTest, WhatIsMissingIsAnErrorWhenItsTurnComes) {
    ASSERT_TRUE(arrivals->start(here.get(), 3));
    ASSERT_TRUE(send(0));
    there.reset();
    EXPECT_TRUE(arrivals->next());
    const auto missing = arrivals->next();
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, base::ErrorCode::kClosed);
}

TEST_F(ArrivalsTest, EndsWhereverItIs) {
    for (unsigned sent = 0; sent < 7; ++sent) {
        SCOPED_TRACE(sent);
        arrivals.emplace();
        ASSERT_TRUE(arrivals->start(here.get(), 10));
        // Of more than may wait to be read a part is on its way.
        for (unsigned i = 0; i < std::min(sent, 5U); ++i) ASSERT_TRUE(send(i));
        if (sent > 5) {
            EXPECT_TRUE(arrivals->next());
        }
        arrivals.reset();
        SetUp();
    }
}

TEST_F(ArrivalsTest, OfNoneThereIsNothingToWaitFor) {
    EXPECT_TRUE(arrivals->start(here.get(), 0));
}

}  // namespace
}  // namespace openmana::manad
