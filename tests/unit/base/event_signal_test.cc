// SPDX-License-Identifier: Apache-2.0
#include "base/event_signal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <thread>
#include <vector>

namespace openmana::base {
namespace {

class EventSignalTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!signal.ready()) GTEST_SKIP() << signal.ready().error().text;
    }
    std::uint64_t taken() const {
        std::uint64_t count = 0;
        return ::read(fd.get(), &count, sizeof count) == sizeof count ? count : 0;
    }
    EventSignal signal;
    UniqueFd fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST_F(EventSignalTest, EachCountsOneAndWakes) {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(signal.raise(fd.get())) << i;
    pollfd wait{.fd = fd.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&wait, 1, 0), 1);
    EXPECT_EQ(taken(), 1000U);
}

TEST_F(EventSignalTest, WhatIsNoEventfdIsRefused) {
    EXPECT_FALSE(signal.raise(-1));
    EXPECT_FALSE(signal.raise(STDIN_FILENO));
    EXPECT_TRUE(signal.raise(fd.get()));
}

TEST_F(EventSignalTest, ManyThreadsLoseNone) {
    constexpr std::uint64_t kThreads = 8;
    constexpr std::uint64_t kEach = 5000;
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&] {
            for (std::uint64_t n = 0; n < kEach; ++n) EXPECT_TRUE(signal.raise(fd.get()));
        });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(taken(), kThreads * kEach);
}

}  // namespace
}  // namespace openmana::base
