// SPDX-License-Identifier: Apache-2.0
// A manad process with a NIC whose thread stands still: this program stops it as a debugger does.
// manactl shows the NIC and serves the others; a signal ends manad all the same.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "process.h"
#include "support/eventually.h"

namespace openmana::test {
namespace {

using Clock = std::chrono::steady_clock;

/// The thread of that name; 0 if there is none.
pid_t thread_of(pid_t process, const std::string& name) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks)) {
        std::string found;
        std::getline(std::ifstream(task.path() / "comm"), found);
        if (found == name) return std::stoi(task.path().filename());
    }
    return 0;
}

/// A thread of another process that stands still as long as this lives. Of one thread.
class StoppedThread {
public:
    explicit StoppedThread(pid_t thread) : thread_(thread) {
        if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return;
        seized_ = true;
        stopped_ = ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) == 0 &&
                   eventually([&] { return ::waitpid(thread, nullptr, __WALL | WNOHANG) != 0; });
    }
    ~StoppedThread() {
        if (seized_) ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    }
    StoppedThread(const StoppedThread&) = delete;
    StoppedThread& operator=(const StoppedThread&) = delete;
    [[nodiscard]] bool seized() const { return seized_; }
    [[nodiscard]] bool stopped() const { return stopped_; }
    /// It was killed, and this has seen it.
    [[nodiscard]] bool gone() {
        int status = 0;
        const bool gone = eventually([&] {
            return ::waitpid(thread_, &status, __WALL | WNOHANG) == thread_ && !WIFSTOPPED(status);
        });
        if (gone) seized_ = false;
        return gone;
    }

private:
    const pid_t thread_;
    bool seized_ = false;
    bool stopped_ = false;
};

/// By the state behind the name in its stat file, see proc(5).
bool sleeps(pid_t process, pid_t thread) {
    std::ifstream file("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) +
                       "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const std::size_t name_end = text.rfind(')');
    return name_end != std::string::npos && text.compare(name_end, 3, ") S") == 0;
}

class HangTest : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/openmana-hang-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
        manad_.emplace(std::vector<std::string>{
            "/bin/sh", "-c", "exec \"$0\" \"$@\" 2>" + folder_ + "/log", OPENMANA_MANAD, "--nic",
            "id=a,socket=" + folder_ + "/a", "--nic", "id=b,socket=" + folder_ + "/b", "--control",
            folder_ + "/control"});
        char ready[6] = {};
        ASSERT_TRUE(manad_->read(ready, sizeof ready));
        pid_t thread = 0;
        ASSERT_TRUE(eventually([&] {
            thread = thread_of(manad_->pid(), "nic-a");
            return thread != 0;
        }));
        // Where it is to hang: a thread that has just begun is nowhere yet.
        ASSERT_EQ(manactl("status").status, 0);
        ASSERT_TRUE(eventually([&] { return sleeps(manad_->pid(), thread); }));
        stopped_.emplace(thread);
        if (!stopped_->seized()) GTEST_SKIP() << "ptrace: " << std::strerror(errno);
        ASSERT_TRUE(stopped_->stopped());
    }
    void TearDown() override {
        stopped_.reset();
        manad_.reset();
        std::filesystem::remove_all(folder_);
    }
    struct Done {
        std::optional<int> status;
        std::string text;  ///< of stdout and stderr
    };
    [[nodiscard]] Done manactl(const std::string& arguments) const {
        Process process({"/bin/sh", "-c",
                         std::string("exec " OPENMANA_MANACTL " --control ") + folder_ +
                             "/control " + arguments + " 2>&1"});
        Done done;
        for (char c = 0; process.read(&c, 1);) done.text += c;
        done.status = process.wait();
        return done;
    }
    [[nodiscard]] std::string log() const {
        std::ifstream file(folder_ + "/log");
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    [[nodiscard]] bool logs(const std::string& text) const {
        return eventually([&] { return log().find(text) != std::string::npos; });
    }
    static bool has(const std::string& text, const std::string& part) {
        return text.find(part) != std::string::npos;
    }

    std::string folder_;
    std::optional<Process> manad_;
    std::optional<StoppedThread> stopped_;
};

TEST_F(HangTest, ManactlShowsItServesOthersAndSeesItReturn) {
    const Done status = manactl("status");
    EXPECT_EQ(status.status, 0) << status.text;
    EXPECT_TRUE(has(status.text, "\nb ")) << status.text;
    EXPECT_TRUE(has(status.text, "\na does not answer for ")) << status.text;
    EXPECT_TRUE(has(status.text, "it is at: sleep")) << status.text;
    const Done refused = manactl("link a down");
    EXPECT_EQ(refused.status, 1 << 8);
    EXPECT_TRUE(has(refused.text, "NIC 'a' does not answer: nothing was done")) << refused.text;
    EXPECT_EQ(manactl("link b down").status, 0);
    EXPECT_TRUE(logs("thread hang: nic=a"));

    stopped_.reset();
    EXPECT_TRUE(logs("thread return: nic=a"));
    EXPECT_EQ(manactl("link a down").status, 0);
    EXPECT_FALSE(has(manactl("status").text, "does not answer"));
    ::kill(manad_->pid(), SIGTERM);
    EXPECT_EQ(manad_->wait(), 0);
}

TEST_F(HangTest, ASignalEndsManadAndTheLogNamesTheNic) {
    const auto start = Clock::now();
    ::kill(manad_->pid(), SIGTERM);
    ASSERT_TRUE(stopped_->gone());
    EXPECT_EQ(manad_->wait(), 1 << 8);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
    EXPECT_TRUE(has(log(), "thread abandon: nic=a doing=\"sleep\"")) << log();
    EXPECT_FALSE(has(log(), "abandon: nic=b")) << log();
    for (const char* socket : {"/a", "/b", "/control"})
        EXPECT_FALSE(std::filesystem::exists(folder_ + socket)) << socket;
}

}  // namespace
}  // namespace openmana::test
