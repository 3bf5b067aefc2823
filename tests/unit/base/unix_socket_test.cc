// SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "support/in_child.h"

namespace openmana::base {
namespace {

using test::in_child;

// Nobody's.
constexpr uid_t kOther = 61000;
constexpr uid_t kOwner = 61001;

sockaddr_un address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    return address;
}

class UnixListenerTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = testing::TempDir() + "unix-socket-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        directory_ = pattern;
        path_ = directory_ + "/s";
        mask_ = ::umask(0022);
    }
    void TearDown() override {
        ::umask(mask_);
        std::filesystem::remove_all(directory_);
    }
    struct stat status() const {
        struct stat result {};
        EXPECT_EQ(::lstat(path_.c_str(), &result), 0);
        return result;
    }
    [[nodiscard]] mode_t mode() const { return status().st_mode & 07777; }
    /// Another user, in a directory that all can enter, gets an errno or 0 from its attempt.
    int connect_as_other() const {
        std::filesystem::permissions(directory_, std::filesystem::perms(0755));
        const int status = in_child([&] {
            EXPECT_EQ(::setresgid(kOther, kOther, kOther), 0);
            EXPECT_EQ(::setresuid(kOther, kOther, kOther), 0);
            const auto client = connect_unix(path_);
            ::_exit(client ? 0 : static_cast<int>(client.error().detail));
        });
        EXPECT_TRUE(WIFEXITED(status));
        return WEXITSTATUS(status);
    }

    /// A socket of kOwner's, bound by this name for path_. Nobody serves it once it is closed.
    UniqueFd given_away(const std::string& name) const {
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_un address = address_of(name);
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(::chmod(path_.c_str(), 0600), 0);
        EXPECT_EQ(::chown(path_.c_str(), kOwner, kOwner), 0);
        return fd;
    }
    /// kOther asks for a socket there that is to be kOwner's.
    Error refused_to_other() const {
        EXPECT_EQ(::chmod(directory_.c_str(), 0777), 0);
        EXPECT_EQ(::setresuid(kOther, kOther, kOther), 0);
        SocketAccess access;
        access.owner = kOwner;
        const auto refused = UnixListener::create({path_, access});
        EXPECT_FALSE(refused);
        return refused ? Error{} : refused.error();
    }

    std::string directory_;
    std::string path_;

private:
    mode_t mask_ = 0;
};

TEST_F(UnixListenerTest, IsItsOwnersAloneWhateverTheUmask) {
    for (const mode_t mask : {0000U, 0002U, 0022U, 0077U, 0777U}) {
        ::umask(mask);
        const auto listener = UnixListener::create(path_);
        ASSERT_TRUE(listener) << listener.error().text;
        EXPECT_EQ(mode(), 0600u);
        EXPECT_EQ(::umask(mask), mask) << "left as it was";
    }
}

TEST_F(UnixListenerTest, HasTheModeAskedForWhateverTheUmask) {
    SocketAccess access;
    access.mode = 0666;
    ::umask(0077);
    const auto listener = UnixListener::create({path_, access});
    ASSERT_TRUE(listener);
    EXPECT_EQ(mode(), 0666u);
}

TEST_F(UnixListenerTest, BelongsToWhomItWasGivenTo) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files to others";
    SocketAccess access;
    access.owner = kOther;
    access.group = kOther + 1;
    access.mode = 0660;
    const auto listener = UnixListener::create({path_, access});
    ASSERT_TRUE(listener) << listener.error().text;
    EXPECT_EQ(status().st_uid, kOther);
    EXPECT_EQ(status().st_gid, kOther + 1);
    EXPECT_EQ(mode(), 0660u);
    EXPECT_EQ(connect_as_other(), 0);
}

TEST_F(UnixListenerTest, OthersDoNotGetIn) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be another";
    ::umask(0);
    const auto listener = UnixListener::create(path_);
    ASSERT_TRUE(listener);
    EXPECT_EQ(connect_as_other(), EACCES);
}

TEST_F(UnixListenerTest, WhoMayNotGiveItAwayIsToldAndLeavesNothing) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be another";
    std::filesystem::permissions(directory_, std::filesystem::perms(0777));
    const int status = in_child([&] {
        ASSERT_EQ(::setresuid(kOther, kOther, kOther), 0);
        SocketAccess access;
        access.owner = 0;
        const auto refused = UnixListener::create({path_, access});
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().detail, static_cast<std::uint64_t>(EPERM));
    });
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, TakesTheWayOfNothingButADeadSocket) {
    {
        std::ofstream(directory_ + "/file") << "kept";
        std::filesystem::create_symlink(directory_ + "/file", path_);
        const auto refused = UnixListener::create(path_);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
        EXPECT_TRUE(std::filesystem::is_symlink(path_));
        std::filesystem::remove(path_);
    }
    // A link to a socket is no socket, whoever serves that.
    const auto listener = UnixListener::create(directory_ + "/real");
    ASSERT_TRUE(listener);
    std::filesystem::create_symlink(directory_ + "/real", path_);
    EXPECT_EQ(UnixListener::create(path_).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(UnixListenerTest, OneThatIsServedButFullIsNotWaitedForNorTaken) {
    const auto listener = UnixListener::create(path_);
    ASSERT_TRUE(listener);
    std::vector<UniqueFd> queue;  // until the listener's is full
    for (const sockaddr_un address = address_of(path_); queue.size() < 64;) {
        UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            break;
        queue.push_back(std::move(fd));
    }
    ASSERT_LT(queue.size(), 64u);
    const auto refused = UnixListener::create(path_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    EXPECT_TRUE(std::filesystem::is_socket(path_));
}

TEST_F(UnixListenerTest, OneThatIsServedForOthersIsNotTaken) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be another";
    const auto listener = UnixListener::create(path_);
    ASSERT_TRUE(listener);
    std::filesystem::permissions(directory_, std::filesystem::perms(0777));
    const int status = in_child([&] {
        ASSERT_EQ(::setresuid(kOther, kOther, kOther), 0);
        const auto refused = UnixListener::create(path_);
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().code, ErrorCode::kBusy);
    });
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(std::filesystem::is_socket(path_));
}

/// Who may not ask it looks into the system's table. What fails then is the end: without the
/// capability kOther gives nothing away.
TEST_F(UnixListenerTest, OneThatWasGivenAwayAndLeftIsTakenOver) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files to others";
    given_away(path_).reset();
    const int status =
        in_child([&] { EXPECT_EQ(refused_to_other().detail, static_cast<std::uint64_t>(EPERM)); });
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixListenerTest, OneThatWasGivenAwayAndIsServedIsNotTaken) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files to others";
    std::filesystem::create_directory_symlink(".", directory_ + "/link");
    for (const std::string& name : {path_, directory_ + "/link/s", std::string("s")}) {
        const int status = in_child([&] {
            std::filesystem::current_path(directory_);
            const UniqueFd fd = given_away(name);
            ASSERT_EQ(::listen(fd.get(), 1), 0);
            EXPECT_EQ(refused_to_other().code, ErrorCode::kBusy);
        });
        EXPECT_EQ(status, 0) << name;
        EXPECT_TRUE(std::filesystem::is_socket(path_)) << name;
        std::filesystem::remove(path_);
    }
}

TEST_F(UnixListenerTest, AnotherOwnersIsNotTakenEvenIfNobodyServesIt) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives files to others";
    given_away(path_).reset();
    ASSERT_EQ(::chown(path_.c_str(), kOwner + 1, kOwner), 0);
    const int status = in_child([&] { EXPECT_EQ(refused_to_other().code, ErrorCode::kBusy); });
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(std::filesystem::is_socket(path_));
}

}  // namespace
}  // namespace openmana::base
