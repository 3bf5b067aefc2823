// SPDX-License-Identifier: Apache-2.0
#include "fabric/output_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace openmana::fabric {
namespace {

class OutputFileTest : public ::testing::TestWithParam<OutputMode> {
protected:
    OutputFileTest() {
        std::string pattern = (std::filesystem::temp_directory_path() / "output-XXXXXX").string();
        directory = ::mkdtemp(pattern.data());
        path = directory / "file";
    }
    ~OutputFileTest() override { std::filesystem::remove_all(directory); }
    /// Why it is refused.
    std::string refusal(const std::string& what) {
        const auto opened = open_output(what, GetParam());
        EXPECT_FALSE(opened.has_value());
        return opened ? "" : opened.error().text;
    }
    std::filesystem::path directory;
    std::filesystem::path path;
};

TEST_P(OutputFileTest, IsCreatedForItsOwnerAlone) {
    const mode_t before = ::umask(0);
    const auto file = open_output(path, GetParam());
    ::umask(before);
    ASSERT_TRUE(file.has_value());
    struct stat status {};
    ASSERT_EQ(::fstat(file->get(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777U, 0600U);
}

TEST_P(OutputFileTest, ASymbolicLinkIsNotFollowed) {
    std::ofstream(directory / "other") << "precious";
    std::filesystem::create_symlink(directory / "other", path);
    EXPECT_EQ(refusal(path), "a symbolic link is not followed");
    EXPECT_EQ(std::filesystem::file_size(directory / "other"), 8U);
    std::filesystem::remove(path);
    std::filesystem::create_symlink(directory / "nothing", path);
    EXPECT_EQ(refusal(path), "a symbolic link is not followed");
    EXPECT_FALSE(std::filesystem::exists(directory / "nothing"));
}

TEST_P(OutputFileTest, NothingButARegularFileIsWritten) {
    EXPECT_EQ(refusal("/dev/null"), "this is no regular file");
    EXPECT_EQ(refusal("/dev/full"), "this is no regular file");
    EXPECT_EQ(refusal(directory), "this is no regular file");
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(refusal(path), "a pipe or socket is no file");
}

INSTANTIATE_TEST_SUITE_P(BothModes, OutputFileTest,
                         ::testing::Values(OutputMode::kReplace, OutputMode::kAppend));

}  // namespace
}  // namespace openmana::fabric
