// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace openmana::test {

/// The thread of that name of a process, once it has given itself the name, or -1.
inline pid_t find_thread(pid_t process, const std::string& name) {
    const std::string folder = "/proc/" + std::to_string(process) + "/task";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < end) {
        std::error_code error;
        for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
            std::string comm;
            std::getline(std::ifstream(entry.path() / "comm"), comm);
            if (comm == name) return std::stoi(entry.path().filename());
        }
        ::usleep(1000);
    }
    return -1;
}

/// A thread of another process that stops where a test wants it to: at its system calls, before and
/// behind each, and a number of instructions after that.
class TracedThread {
public:
    /// Stops it once, and lets it run until it waits for something.
    TracedThread(pid_t process, pid_t thread) : process_(process), thread_(thread) {
        // What the kernel does at a stop: it waits for nobody, so neither does this.
        attached_ =
            thread > 0 && ::ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_TRACESYSGOOD) == 0;
        if (!attached_) return;
        ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
        if (stops_within(std::chrono::seconds(30)))
            ::ptrace(PTRACE_SYSCALL, thread_, nullptr, nullptr);
        (void)run(0, [] { return true; });
    }
    ~TracedThread() {
        if (!attached_) return;
        ::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr);
        if (stops_within(std::chrono::seconds(30)))
            ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    }
    TracedThread(const TracedThread&) = delete;
    TracedThread& operator=(const TracedThread&) = delete;

    [[nodiscard]] bool attached() const { return attached_; }
    /// Lets it run to its `stop`-th stop, and so many instructions further. False if it waits again
    /// before that, and is done.
    bool run_to(unsigned stop, unsigned instructions, const std::function<bool()>& done) {
        if (!run(stop, done)) return false;
        for (unsigned i = 0; i < instructions; ++i) {
            ::ptrace(PTRACE_SINGLESTEP, thread_, nullptr, nullptr);
            if (!stops_within(kWaits)) {
                // It waits. Where it is, is as good a place.
                return true;
            }
        }
        return true;
    }
    /// Ends the process where the thread is.
    void kill() {
        ::kill(process_, SIGKILL);
        attached_ = false;
        for (int status = 0; ::waitpid(thread_, &status, __WALL) == thread_;)
            if (WIFSIGNALED(status) || WIFEXITED(status)) break;
    }

private:
    /// Without a stop for so long, the thread waits for something.
    static constexpr std::chrono::milliseconds kWaits{100};

    bool run(unsigned stop, const std::function<bool()>& done) {
        for (unsigned n = 0; n < stop || stop == 0;) {
            if (!stops_within(kWaits)) {
                if (!attached_ || done()) return false;
                continue;
            }
            if (++n == stop) return true;
            ::ptrace(PTRACE_SYSCALL, thread_, nullptr, nullptr);
        }
        return true;
    }
    bool stops_within(std::chrono::milliseconds patience) {
        const auto end = std::chrono::steady_clock::now() + patience;
        unsigned looks = 0;
        do {
            int status = 0;
            const pid_t found = ::waitpid(thread_, &status, __WALL | WNOHANG);
            if (found == thread_ && WIFSTOPPED(status)) return true;
            if (found != 0) {
                attached_ = false;
                return false;
            }
            // Most stops come at once.
            if (++looks < 200)
                ::sched_yield();
            else
                ::usleep(100);
        } while (std::chrono::steady_clock::now() < end);
        return false;
    }

    const pid_t process_;
    const pid_t thread_;
    bool attached_ = false;
};

}  // namespace openmana::test
