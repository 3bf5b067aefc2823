// SPDX-License-Identifier: Apache-2.0
// `manactl upgrade`: a manad has its program started anew, which goes on in its place; the service
// manager is told.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cstdlib>
#include <fstream>
#include <stop_token>
#include <thread>

#include "support/eventually.h"
#include "take_over_fixture.h"

namespace openmana::test {
namespace {

/// A service manager's end of NOTIFY_SOCKET.
class ServiceManager {
public:
    explicit ServiceManager(const std::string& path)
        : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        OM_CHECK(path.size() < sizeof address.sun_path);
        std::memcpy(address.sun_path, path.data(), path.size());
        const int on = 1;
        OM_CHECK(::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0);
        OM_CHECK(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address),
                        sizeof address) == 0);
        ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    }
    ~ServiceManager() { ::unsetenv("NOTIFY_SOCKET"); }
    ServiceManager(const ServiceManager&) = delete;
    ServiceManager& operator=(const ServiceManager&) = delete;

    struct Notice {
        std::string text;
        pid_t from = 0;
    };
    /// The next one; empty if none comes.
    Notice next() {
        Notice notice;
        (void)eventually([&] { return take(notice); });
        return notice;
    }

private:
    bool take(Notice& notice) {
        char text[256];
        iovec part{text, sizeof text};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(socket_.get(), &message, 0);
        if (n < 0) return false;
        notice.text.assign(text, static_cast<std::size_t>(n));
        const cmsghdr* const head = CMSG_FIRSTHDR(&message);
        if (head == nullptr || head->cmsg_type != SCM_CREDENTIALS) return true;
        ucred sender{};
        std::memcpy(&sender, CMSG_DATA(head), sizeof sender);
        notice.from = sender.pid;
        return true;
    }
    const base::UniqueFd socket_;
};

class UpgradeTest : public TakeOverTest {
protected:
    void TearDown() override {
        if (next_ > 0) {
            a_.reset();
            b_.reset();
            // Its last socket goes some time after its first one, and only its end says that all
            // are.
            const base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, next_, 0)));
            EXPECT_EQ(::kill(next_, SIGTERM), 0);
            pollfd end{.fd = process.get(), .events = POLLIN, .revents = 0};
            EXPECT_EQ(::poll(&end, 1, 60000), 1);
            EXPECT_FALSE(std::filesystem::exists(folder_ + "/control"));
        }
        TakeOverTest::TearDown();
    }
    [[nodiscard]] json look() const { return ask({{"command", "upgrade"}, {"action", "show"}}); }
    /// What another process that was not this one's child has as its parent.
    static pid_t parent_of(pid_t process) {
        std::ifstream status("/proc/" + std::to_string(process) + "/status");
        for (std::string word; status >> word;)
            if (word == "PPid:") {
                pid_t parent = 0;
                status >> parent;
                return parent;
            }
        return 0;
    }
    /// A copy of the program, which the first one is started from.
    std::string copy() {
        const std::string path = folder_ + "/manad";
        std::filesystem::copy_file(OPENMANA_MANAD, path);
        return path;
    }
    std::string manactl(const std::vector<std::string>& more, int& status) const {
        std::vector<std::string> all{OPENMANA_MANACTL, "--control", folder_ + "/control",
                                     "upgrade"};
        all.insert(all.end(), more.begin(), more.end());
        Process process(all);
        std::string text;
        for (char byte = 0; process.read(&byte, 1);) text += byte;
        status = process.wait().value_or(-1);
        return text;
    }

    pid_t next_ = 0;  // that is nobody's child here
};

TEST_F(UpgradeTest, AnotherOneIsStartedAndTheServiceManagerToldOfIt) {
    ServiceManager manager(folder_ + "/notify");
    start();
    attach();
    EXPECT_EQ(manager.next().text, "READY=1");
    const pid_t before = manad_->pid();
    const json asked = ask({{"command", "upgrade"}});
    ASSERT_EQ(asked["ok"], true) << asked;
    EXPECT_EQ(asked["pid"], before);
    while (manad_->running()) ASSERT_NO_FATAL_FAILURE(exchange());
    const auto status = manad_->wait();
    EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
    for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    const json now = look();
    ASSERT_EQ(now["ok"], true) << now;
    next_ = now["pid"].get<pid_t>();
    EXPECT_NE(next_, before);
    EXPECT_EQ(now["from"], before);
    ASSERT_EQ(now["nics"].size(), 2) << now;
    for (const json& nic : now["nics"]) EXPECT_GT(nic["blackout_ms"].get<double>(), 0) << now;
    // The one that goes may say so, for it is the main process until then.
    const auto main = manager.next();
    EXPECT_EQ(main.text, "MAINPID=" + std::to_string(next_));
    EXPECT_EQ(main.from, before);
    const auto ready = manager.next();
    EXPECT_EQ(ready.text, "READY=1");
    EXPECT_EQ(ready.from, next_);
    EXPECT_NE(parent_of(next_), ::getpid());
}

/// On a busy machine the threads of the NICs begin after the control socket answers.
TEST_F(UpgradeTest, ManactlWaitsAndSaysHowLongNobodyServed) {
    start();
    attach();
    std::vector<std::jthread> others;
    for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); ++i)
        others.emplace_back([](const std::stop_token& end) {
            while (!end.stop_requested()) {
            }
        });
    for (int i = 0; i < 3; ++i) {
        int status = -1;
        const pid_t before = look()["pid"].get<pid_t>();
        const std::string text = manactl({}, status);
        EXPECT_EQ(status, 0) << text;
        next_ = look()["pid"].get<pid_t>();
        EXPECT_NE(next_, before);
        EXPECT_EQ(text.find("manad " + std::to_string(before) + " goes on as " +
                            std::to_string(next_) + ": a "),
                  0)
            << text;
        EXPECT_NE(text.find(" b "), std::string::npos) << text;
    }
    others.clear();
    for (int j = 0; j < 20; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(UpgradeTest, ManactlStartsAnotherProgram) {
    start();
    attach();
    int status = -1;
    const std::string text = manactl({copy()}, status);
    EXPECT_EQ(status, 0) << text;
    next_ = look()["pid"].get<pid_t>();
    EXPECT_EQ(std::filesystem::read_symlink("/proc/" + std::to_string(next_) + "/exe"),
              folder_ + "/manad");
    for (int j = 0; j < 20; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(UpgradeTest, AProgramThatIsNoneLeavesTheFirstOneAtWork) {
    first_word_ = copy();
    start();
    attach();
    // A package in the middle of being replaced; then one that does not know the options.
    std::filesystem::remove(folder_ + "/manad");
    int status = -1;
    (void)manactl({}, status);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    EXPECT_NE(look()["failed"].get<std::string>().find("No such file"), std::string::npos);
    std::ofstream(folder_ + "/manad") << "#!/bin/sh\nexit 3\n";
    ASSERT_EQ(::chmod((folder_ + "/manad").c_str(), 0755), 0);
    (void)manactl({}, status);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    EXPECT_NE(look()["failed"].get<std::string>().find("ended"), std::string::npos) << look();
    for (int j = 0; j < 20; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
    std::filesystem::remove(folder_ + "/manad");
    (void)copy();
    const std::string text = manactl({}, status);
    EXPECT_EQ(status, 0) << text;
    next_ = look()["pid"].get<pid_t>();
    for (int j = 0; j < 20; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
}

TEST_F(UpgradeTest, TheStarterEndsWithItsManad) {
    start();
    const auto children = [&] {
        std::ifstream file("/proc/" + std::to_string(manad_->pid()) + "/task/" +
                           std::to_string(manad_->pid()) + "/children");
        std::vector<pid_t> all;
        for (pid_t one = 0; file >> one;) all.push_back(one);
        return all;
    };
    const auto before = children();
    ASSERT_EQ(before.size(), 1);
    killed_ = true;
    ::kill(manad_->pid(), SIGKILL);
    (void)manad_->wait();
    EXPECT_TRUE(eventually([&] {
        std::ifstream file("/proc/" + std::to_string(before[0]) + "/comm");
        std::string name;
        return !(file >> name) || name != "manad-starter";
    }));
}

}  // namespace
}  // namespace openmana::test
