// SPDX-License-Identifier: Apache-2.0
#include "base/frame_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

namespace openmana::base {
namespace {

using Pushed = FrameQueue::Pushed;

Frame frame(std::uint32_t number, std::size_t bytes = 60) {
    Frame made(bytes);
    std::memcpy(made.data(), &number, sizeof number);
    return made;
}

std::uint32_t number_of(const Frame& frame) {
    std::uint32_t number = 0;
    std::memcpy(&number, frame.data(), sizeof number);
    return number;
}

TEST(FrameQueue, TellsTheFirstFromTheOthersUntilNothingWaits) {
    FrameQueue queue("test", 1 << 20);
    EXPECT_FALSE(queue.busy());
    EXPECT_EQ(queue.push(frame(1)), Pushed::kFirst);
    EXPECT_EQ(queue.push(std::span<const std::byte>(frame(2))), Pushed::kMore);
    EXPECT_TRUE(queue.busy());
    EXPECT_FALSE(queue.done());
    const FrameQueue::Chunk taken = queue.take();
    ASSERT_EQ(taken.size(), 2U);
    EXPECT_EQ(number_of(taken[0]), 1U);
    EXPECT_EQ(number_of(taken[1]), 2U);
    EXPECT_TRUE(queue.busy()) << "who takes has not said that it is done";
    EXPECT_EQ(queue.push(frame(3)), Pushed::kMore) << "so it is not called again";
    EXPECT_FALSE(queue.done()) << "but goes on";
    EXPECT_EQ(queue.take().size(), 1U);
    EXPECT_TRUE(queue.done());
    EXPECT_FALSE(queue.busy());
    EXPECT_TRUE(queue.take().empty());
    EXPECT_EQ(queue.push(frame(4)), Pushed::kFirst);
}

TEST(FrameQueue, KeepsWhetherAFrameLacksItsIcrc) {
    FrameQueue queue("test", 1 << 20);
    for (int round = 0; round < 3; ++round) {  // in the memory of others too
        for (unsigned i = 0; i < 6; ++i) {
            Frame one = frame(i);
            one.set_lacks_icrc((i + round) % 2 == 0);
            const FrameView view = one;
            if (i % 3 == 0) {
                EXPECT_NE(queue.push(view), Pushed::kFull);
            } else if (i % 3 == 1) {
                EXPECT_EQ(queue.push(FrameViews(&view, 1)).refused, 0U);
            } else {
                EXPECT_NE(queue.push(std::move(one)), Pushed::kFull);
            }
        }
        FrameQueue::Chunk taken = queue.take();
        ASSERT_EQ(taken.size(), 6U);
        for (unsigned i = 0; i < 6; ++i) EXPECT_EQ(taken[i].lacks_icrc(), (i + round) % 2 == 0);
        queue.recycle(std::move(taken));
        EXPECT_TRUE(queue.done());
    }
}

TEST(FrameQueue, ATurnTakesAFewFramesInTheirOrder) {
    FrameQueue queue("test", 1 << 20);
    for (std::uint32_t i = 0; i < 1000; ++i) ASSERT_NE(queue.push(frame(i)), Pushed::kFull);
    std::uint32_t next = 0;
    while (!queue.done()) {
        const FrameQueue::Chunk taken = queue.take();
        ASSERT_FALSE(taken.empty());
        EXPECT_LE(taken.size(), FrameQueue::kChunkFrames);
        for (const Frame& one : taken) EXPECT_EQ(number_of(one), next++);
    }
    EXPECT_EQ(next, 1000U);
}

TEST(FrameQueue, ATurnTakesFewBytesToo) {
    FrameQueue queue("test", 64 << 20);
    for (std::uint32_t i = 0; i < 30; ++i) ASSERT_NE(queue.push(frame(i, 60000)), Pushed::kFull);
    ASSERT_NE(queue.push(frame(30, 1 << 20)), Pushed::kFull);
    std::uint32_t next = 0;
    while (!queue.done()) {
        std::size_t bytes = 0;
        const FrameQueue::Chunk taken = queue.take();
        for (const Frame& one : taken) {
            EXPECT_EQ(number_of(one), next++);
            bytes += one.size();
        }
        if (taken.size() > 1) {
            EXPECT_LE(bytes, FrameQueue::kChunkBytes);
        }
    }
    EXPECT_EQ(next, 31U);
}

TEST(FrameQueue, WhatWaitsIsCountedUntilItIsTaken) {
    constexpr std::size_t kCost = 60 + FrameQueue::kFrameCost;
    constexpr std::size_t kFits = 2 * FrameQueue::kChunkFrames;
    FrameQueue queue("test", kFits * kCost);
    for (std::uint32_t i = 0; i < kFits; ++i) ASSERT_NE(queue.push(frame(i)), Pushed::kFull);
    EXPECT_EQ(queue.bytes(), kFits * kCost);
    EXPECT_EQ(queue.push(Frame()), Pushed::kFull) << "an empty one costs something, too";
    const FrameQueue::Chunk taken = queue.take();
    EXPECT_EQ(queue.bytes(), (kFits - taken.size()) * kCost) << "the rest is still there";
    for (std::uint32_t i = 0; i < taken.size(); ++i) EXPECT_EQ(queue.push(frame(i)), Pushed::kMore);
    EXPECT_EQ(queue.push(frame(0)), Pushed::kFull);
    queue.clear();
    EXPECT_EQ(queue.bytes(), 0U);
    EXPECT_TRUE(queue.busy()) << "who takes is on its way";
    EXPECT_TRUE(queue.take().empty());
    EXPECT_TRUE(queue.done());
}

TEST(FrameQueue, MemoryIsUsedAgain) {
    FrameQueue queue("test", 1 << 20);
    ASSERT_EQ(queue.push(frame(1, 2000)), Pushed::kFirst);
    FrameQueue::Chunk taken = queue.take();
    const std::byte* const memory = taken[0].data();
    const Frame* const chunk = taken.data();
    queue.recycle(std::move(taken));
    queue.recycle({});
    ASSERT_EQ(queue.push(std::span<const std::byte>(frame(2))), Pushed::kMore);
    taken = queue.take();
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].data(), memory);
    EXPECT_EQ(taken.data(), chunk);
    EXPECT_EQ(taken[0], frame(2));
}

TEST(FrameQueue, WhoAddsAndWhoTakesHoldItsLockForAFewFrames) {
    HoldMeter meter;
    FrameQueue queue("test", 64 << 20);
    for (std::uint32_t i = 0; i < 10000; ++i) ASSERT_NE(queue.push(frame(i)), Pushed::kFull);
    EXPECT_EQ(meter.largest().work, 1U);
    while (!queue.done()) queue.recycle(queue.take());
    for (std::uint32_t i = 0; i < 10000; ++i) ASSERT_NE(queue.push(frame(i)), Pushed::kFull);
    queue.clear();
    EXPECT_LE(meter.largest().work, FrameQueue::kChunkFrames);
}

TEST(FrameQueue, NoFrameOfManyThreadsIsLostOrOvertakesAnother) {
    constexpr std::uint32_t kThreads = 3, kFrames = 20000;
    FrameQueue queue("test", std::size_t{1} << 30);
    std::atomic<std::uint32_t> calls{0};
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
            for (std::uint32_t i = 0; i < kFrames; ++i)
                if (queue.push(frame(thread << 24 | i)) == Pushed::kFirst) ++calls;
        });
    std::array<std::uint32_t, kThreads> next{};
    std::uint32_t all = 0;
    while (all < kThreads * kFrames) {
        // As an executor does that is called.
        if (calls.load() == 0) {
            std::this_thread::yield();
            continue;
        }
        FrameQueue::Chunk taken = queue.take();
        for (const Frame& one : taken) {
            const std::uint32_t number = number_of(one);
            ASSERT_EQ(number & 0xffffff, next[number >> 24]++);
            ++all;
        }
        queue.recycle(std::move(taken));
        if (queue.done()) --calls;
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(calls.load(), 0U) << "one call for each time that something waited";
    EXPECT_FALSE(queue.busy());
}

}  // namespace
}  // namespace openmana::base
