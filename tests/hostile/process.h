// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

extern char** environ;

namespace openmana::test {

/// A child process with pipes to its stdin and stdout; killed at the end if it still lives.
class Process {
public:
    explicit Process(std::vector<std::string> words) {
        int in[2];
        int out[2];
        if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) return;
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        pid_t pid = -1;
        if (::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ) == 0) pid_ = pid;
        posix_spawn_file_actions_destroy(&actions);
        ::close(in[0]);
        ::close(out[1]);
        in_ = base::UniqueFd(in[1]);
        out_ = base::UniqueFd(out[0]);
    }
    ~Process() {
        if (pid_ < 0) return;
        kill(SIGKILL);
        (void)wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    [[nodiscard]] pid_t pid() const { return pid_; }
    /// From any thread. Nobody has it once it was waited for.
    void kill(int signal) const {
        const pid_t pid = pid_;
        if (pid >= 0) ::kill(pid, signal);
    }
    [[nodiscard]] const base::UniqueFd& in() const { return in_; }
    /// As many bytes as asked for, or false at the end or when patience has run out.
    bool read(void* target, std::size_t size) const {
        auto* at = static_cast<char*>(target);
        while (size > 0) {
            pollfd wait{.fd = out_.get(), .events = POLLIN, .revents = 0};
            if (::poll(&wait, 1, 60000) <= 0) return false;
            const ssize_t n = ::read(out_.get(), at, size);
            if (n <= 0) return false;
            at += n;
            size -= static_cast<std::size_t>(n);
        }
        return true;
    }
    /// Whether what it says next is that it is ready, as manad does.
    [[nodiscard]] bool says_ready() const {
        char text[6] = {};
        return read(text, sizeof text) && std::string_view(text, sizeof text) == "ready\n";
    }
    /// Its wait status.
    std::optional<int> wait() {
        int status = 0;
        if (pid_ < 0 || ::waitpid(pid_, &status, 0) != pid_) return std::nullopt;
        pid_ = -1;
        return status;
    }
    [[nodiscard]] bool running() const {
        siginfo_t info{};
        return pid_ >= 0 &&
               ::waitid(P_PID, static_cast<id_t>(pid_.load()), &info,
                        WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == 0;
    }

private:
    std::atomic<pid_t> pid_ = -1;
    base::UniqueFd in_;
    base::UniqueFd out_;
};

}  // namespace openmana::test
