// SPDX-License-Identifier: Apache-2.0
#include "fabric/unsent_frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace openmana::fabric {
namespace {

std::string text_of(const UnsentFrames::Step& step) {
    std::string text;
    for (std::size_t i = 0; i < step.count; ++i)
        text.append(static_cast<const char*>(step.parts[i].iov_base), step.parts[i].iov_len);
    return text;
}

void add(UnsentFrames& frames, const std::string& text) {
    frames.add(std::as_bytes(std::span(text)));
}

TEST(UnsentFramesTest, FramesGoOutInOrderEachBehindItsLength) {
    UnsentFrames frames;
    add(frames, "first");
    add(frames, "second");
    EXPECT_EQ(frames.bytes(), 19U);
    EXPECT_EQ(text_of(frames.next_step()), std::string("\0\0\0\5first\0\0\0\6second", 19));
    frames.sent(7);
    EXPECT_EQ(text_of(frames.next_step()), std::string("st\0\0\0\6second", 12));
    frames.sent(2);
    EXPECT_EQ(text_of(frames.next_step()), std::string("\0\0\0\6second", 10));
    frames.sent(10);
    EXPECT_TRUE(frames.empty());
    EXPECT_EQ(frames.bytes(), 0U);
    EXPECT_EQ(frames.next_step().count, 0U);
}

/// Who sends a frame waits for one step, however much waits and in whatever pieces.
TEST(UnsentFramesTest, AStepIsBoundedInBytesAndParts) {
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{60}, std::size_t{1500}, std::size_t{65536}}) {
        UnsentFrames frames;
        for (std::size_t i = 0; i * size < (1U << 20); ++i) {
            if (i == 4096) break;
            add(frames, std::string(size, static_cast<char>('a' + i % 26)));
        }
        std::size_t total = 0;
        const std::size_t all = frames.bytes();
        while (!frames.empty()) {
            const auto step = frames.next_step();
            ASSERT_GT(step.bytes, 0U);
            ASSERT_LE(step.bytes, 65536U);
            ASSERT_LE(step.count, 64U);
            ASSERT_EQ(text_of(step).size(), step.bytes);
            total += step.bytes;
            frames.sent(step.bytes);
        }
        EXPECT_EQ(total, all) << size;
    }
}

TEST(UnsentFramesTest, TheLastFrameCanBeMarked) {
    UnsentFrames frames;
    add(frames, "first");
    add(frames, "second");
    frames.last()[0] = std::byte{'S'};
    EXPECT_EQ(text_of(frames.next_step()), std::string("\0\0\0\5first\0\0\0\6Second", 19));
}

}  // namespace
}  // namespace openmana::fabric
