// SPDX-License-Identifier: Apache-2.0
#include "manad/signals.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "fabric/capture.h"
#include "fabric/flow_file.h"

namespace openmana::manad {
namespace {

constexpr rlim_t kLimit = 65536;

/// No file of this process may grow beyond kLimit.
class SmallFilesTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(::pthread_sigmask(SIG_SETMASK, nullptr, &mask_), 0);
        signals = prepare_signals();
        ASSERT_TRUE(signals.has_value());
        std::string pattern = (std::filesystem::temp_directory_path() / "small-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
        const rlimit small{kLimit, before_.rlim_max};
        ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    void TearDown() override {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
        std::filesystem::remove_all(directory);
    }
    base::Result<base::UniqueFd> signals;
    std::filesystem::path directory;
    base::SystemClock clock;

private:
    rlimit before_{};
    sigset_t mask_{};
};

TEST_F(SmallFilesTest, ACaptureThatReachesTheLimitEnds) {
    const auto capture = fabric::Capture::create(directory / "a.pcap", clock, base::WallTime());
    ASSERT_TRUE(capture.has_value());
    const std::array<std::byte, 9000> frame{};
    for (int i = 0; i < 8; ++i) (*capture)->frame(frame);
    (*capture)->flush();
    EXPECT_EQ((*capture)->error(), EFBIG);
    (*capture)->frame(frame);
    EXPECT_EQ((*capture)->counters().lost.value(), 1U);
    EXPECT_LE(std::filesystem::file_size(directory / "a.pcap"), kLimit);
}

TEST_F(SmallFilesTest, AFlowLogThatReachesTheLimitEnds) {
    const auto log = fabric::FlowFile::create(directory / "flows");
    ASSERT_TRUE(log.has_value());
    const std::string line(9000, 'x');
    for (int i = 0; i < 9; ++i) (*log)->line(line);
    EXPECT_EQ((*log)->error(), EFBIG);
    EXPECT_EQ((*log)->lost(), 2U);
    EXPECT_EQ(std::filesystem::file_size(directory / "flows"), kLimit);
}

}  // namespace
}  // namespace openmana::manad
