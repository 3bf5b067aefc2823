// SPDX-License-Identifier: Apache-2.0
#include "fabric/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "support/faulty_calls.h"
#include "support/hex.h"
#include "support/in_child.h"
#include "support/temp_dir.h"

namespace openmana::fabric {
namespace {

const std::string kOne = std::string(64, '1') + "\n";
const std::string kTwo = std::string(64, '2') + "\n";

class KeyFileTest : public ::testing::Test {
protected:
    KeyFileTest() { write(kOne); }
    void write(const std::string& text, mode_t mode = 0600) {
        std::ofstream(path) << text;
        ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    }
    std::string refusal() {
        const auto made = KeyFile::create(*loop, path);
        return made ? "" : made.error().text;
    }
    std::unique_ptr<KeyFile> open() {
        auto made = KeyFile::create(*loop, path);
        EXPECT_TRUE(made) << made.error().text;
        return made ? std::move(*made) : nullptr;
    }
    static std::size_t lines_with(const std::string& log, const std::string& text) {
        std::size_t count = 0;
        for (auto at = log.find(text); at != std::string::npos; at = log.find(text, at + 1))
            ++count;
        return count;
    }
    static std::string first_key(const KeyFile& file) {
        return test::to_hex(file.keys()->ring()->key(0)) + "\n";
    }
    /// Serves until the keys are other ones.
    void serve_until_replaced(const KeyFile& file) {
        const auto before = file.keys()->generation();
        std::function<void()> look = [&] {
            if (file.keys()->generation() != before)
                loop->stop();
            else
                loop->post(look);
        };
        loop->post(look);
        loop->run();
    }
    /// All events that there are now are handled.
    void serve_once() {
        for (int i = 0; i < 3; ++i) {
            loop->post([this] { loop->stop(); });
            loop->run();
        }
    }
    const test::TempDir folder{"keys"};
    const std::string path = folder.path() + "/key";
    std::unique_ptr<base::EventLoop> loop = std::move(*base::EventLoop::create());
};

TEST_F(KeyFileTest, IsForItsOwnerAlone) {
    for (const mode_t mode : {0644, 0640, 0604, 0660, 0610}) {
        write(kOne, mode);
        EXPECT_EQ(refusal(), "a key file is for its owner alone: chmod 600") << mode;
    }
    for (const mode_t mode : {0600, 0400}) {
        write(kOne, mode);
        EXPECT_EQ(refusal(), "") << mode;
    }
}

TEST_F(KeyFileTest, IsOfThisUserOrOfRoot) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
    ASSERT_EQ(::chown(path.c_str(), 12345, 12345), 0);
    EXPECT_EQ(refusal(), "a key file belongs to the user that manad runs as, or to root");
}

TEST_F(KeyFileTest, OfRootMayBeForTheGroupOfAService) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root becomes somebody else";
    ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
    ASSERT_EQ(::chown(path.c_str(), 0, 12345), 0);
    for (const auto& [mode, wanted] : {std::pair<mode_t, const char*>{0640, ""},
                                       {0440, ""},
                                       {0644, "a key file is for its owner alone: chmod 600"},
                                       {0660, "a key file is for its owner alone: chmod 600"},
                                       {0600, "cannot read the key file"}}) {
        ASSERT_EQ(::chmod(path.c_str(), mode), 0);
        const int status = test::in_child([&, wanted = wanted] {
            ASSERT_EQ(::setgid(12345), 0);
            ASSERT_EQ(::setuid(12345), 0);
            EXPECT_EQ(refusal(), wanted);
        });
        EXPECT_EQ(status, 0) << mode;
    }
}

TEST_F(KeyFileTest, IsARegularFileAndNoLink) {
    std::filesystem::rename(path, folder.path() + "/other");
    EXPECT_EQ(refusal(), "cannot read the key file");
    std::filesystem::create_symlink(folder.path() + "/other", path);
    EXPECT_EQ(refusal(), "a symbolic link is not followed");
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(refusal(), "a key file is a regular file");
    std::filesystem::remove(path);
    std::filesystem::create_directory(path);
    EXPECT_EQ(refusal(), "a key file is a regular file");
}

TEST_F(KeyFileTest, SaysWhatIsWrongWithIt) {
    write("");
    EXPECT_EQ(refusal(), "no key in it");
    write(std::string(5000, '\n') + kOne);
    EXPECT_EQ(refusal(), "more than 4096 bytes");
    write(kOne);
    const test::FaultyCalls calls("read", EIO);
    EXPECT_EQ(refusal(), "cannot read the key file");
}

TEST_F(KeyFileTest, IsReadAgainWhenItWasWritten) {
    const auto file = open();
    write(kTwo);
    serve_until_replaced(*file);
    EXPECT_EQ(first_key(*file), kTwo);
}

TEST_F(KeyFileTest, IsReadAgainWhenAnotherTookItsPlace) {
    const auto file = open();
    const std::string fresh = folder.path() + "/fresh";
    std::ofstream(fresh) << kTwo;
    ASSERT_EQ(::chmod(fresh.c_str(), 0600), 0);
    std::filesystem::rename(fresh, path);
    serve_until_replaced(*file);
    EXPECT_EQ(first_key(*file), kTwo);
}

TEST_F(KeyFileTest, WhatCannotBeUsedChangesNothing) {
    const auto file = open();
    write("no key\n");
    serve_once();
    EXPECT_EQ(first_key(*file), kOne);
    write(kTwo, 0644);
    serve_once();
    EXPECT_EQ(first_key(*file), kOne);
    std::filesystem::remove(path);
    serve_once();
    EXPECT_EQ(first_key(*file), kOne);
    // Nor does what has the same keys.
    write("# a comment\n" + kOne);
    serve_once();
    EXPECT_EQ(file->keys()->generation(), 0U);
    // And a mode that is mended is enough.
    write(kTwo, 0644);
    serve_once();
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    serve_until_replaced(*file);
    EXPECT_EQ(first_key(*file), kTwo);
}

TEST_F(KeyFileTest, SaysOnceThatItIsGone) {
    const auto file = open();
    const std::string elsewhere = folder.path() + "/elsewhere";
    for (const bool removed : {true, false}) {
        ::testing::internal::CaptureStdout();
        if (removed)
            std::filesystem::remove(path);
        else
            std::filesystem::rename(path, elsewhere);
        serve_once();
        // What has no file's name does not say it again.
        ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
        serve_once();
        const std::string log = ::testing::internal::GetCapturedStdout();
        EXPECT_EQ(lines_with(log, "key file gone: "), 1U) << log;
        EXPECT_EQ(first_key(*file), kOne);
        write(kOne);
        serve_once();
    }
}

TEST_F(KeyFileTest, SaysThatNobodyWatchesWhenItsDirectoryIsAnother) {
    const std::string directory = folder.path() + "/directory";
    for (const bool removed : {true, false}) {
        std::filesystem::create_directory(directory);
        const std::string key = directory + "/key";
        std::ofstream(key) << kOne;
        ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
        auto file = KeyFile::create(*loop, key);
        ASSERT_TRUE(file);
        ::testing::internal::CaptureStdout();
        if (removed)
            std::filesystem::remove_all(directory);
        else
            std::filesystem::rename(directory, folder.path() + "/moved");
        serve_once();
        const std::string log = ::testing::internal::GetCapturedStdout();
        EXPECT_EQ(lines_with(log, "its directory was moved or removed"), 1U) << log;
        EXPECT_EQ(first_key(**file), kOne);
        // It is still read when somebody asks.
        std::filesystem::create_directory(directory);
        std::ofstream(key) << kTwo;
        ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
        EXPECT_TRUE((*file)->reload());
        EXPECT_EQ(first_key(**file), kTwo);
        std::filesystem::remove_all(directory);
    }
}

TEST_F(KeyFileTest, OtherFilesOfItsDirectoryAreNotItsConcern) {
    const auto file = open();
    {
        // Not seen: whoever writes it is not done.
        std::ofstream half(path);
        half << kTwo.substr(0, 20) << std::flush;
        std::ofstream(folder.path() + "/other") << "x";
        serve_once();
        half << kTwo.substr(20) << std::flush;
    }
    serve_until_replaced(*file);
    EXPECT_EQ(first_key(*file), kTwo);
}

}  // namespace
}  // namespace openmana::fabric
