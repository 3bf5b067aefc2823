// SPDX-License-Identifier: Apache-2.0
#include "manad/monitor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <optional>
#include <utility>

#include "base/log.h"
#include "manad/shared_fork.h"

namespace openmana::manad {
namespace {

using Clock = std::chrono::steady_clock;

/// Before the second, third, ... process of those that end one after the other.
constexpr base::Duration kFirstDelay = std::chrono::milliseconds(25);

/// From being told to end: longer than a process gives itself, and then that it takes to be killed.
constexpr base::Duration kToEnd = std::chrono::seconds(35);
constexpr base::Duration kToBeKilled = std::chrono::seconds(5);

class Monitor {
public:
    Monitor(const Ledger& ledger, CrashLimit limit) : ledger_(ledger), limit_(limit) {
        sigemptyset(&signals_);
        for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&signals_, number);
        sigprocmask(SIG_BLOCK, &signals_, &before_);
        (void)::prctl(PR_GET_NAME, name_.data(), 0, 0, 0);
    }

    base::Result<unsigned> run() {
        const pid_t self = ::getpid();
        for (unsigned life = 1;; ++life) {
            child_ = fork_sharing_descriptors(SIGCHLD);
            if (child_ < 0)
                return base::fail(base::ErrorCode::kIo, "cannot start a process",
                                  static_cast<unsigned>(errno));
            if (child_ == 0) {
                // A signal that it gets at once waits until it looks for signals.
                if (owed_ == 0) sigprocmask(SIG_SETMASK, &before_, nullptr);
                (void)::prctl(PR_SET_NAME, name_.data(), 0, 0, 0);
                (void)::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
                if (::getppid() != self) ::_exit(1);  // it has ended before that
                return life;
            }
            if (life == 1) (void)::prctl(PR_SET_NAME, "manad-monitor");
            deadline_.reset();
            killed_ = false;
            if (owed_ != 0) tell(std::exchange(owed_, 0));
            after(wait());
        }
    }

private:
    /// Its wait status.
    int wait() {
        for (;;) {
            const int number =
                deadline_ ? wait_for_signal(*deadline_) : ::sigwaitinfo(&signals_, nullptr);
            if (number < 0) {
                if (deadline_ && Clock::now() >= *deadline_) overdue();
                continue;
            }
            if (number != SIGCHLD) {
                pass_on(number);
                continue;
            }
            int status = 0;
            if (::waitpid(child_, &status, WNOHANG) == child_) return status;
        }
    }

    /// Less than zero if there is none before that.
    int wait_for_signal(Clock::time_point until) {
        const auto ns = std::max(until - Clock::now(), Clock::duration::zero()).count();
        const timespec time{.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        return ::sigtimedwait(&signals_, nullptr, &time);
    }

    /// One that is stopped, or waits in the kernel, hears no signal.
    void overdue() {
        if (killed_) {
            OM_ERROR("manad stop: reason=\"a process cannot be ended\" pid={}", child_);
            ::_exit(1);
        }
        OM_ERROR("manad kill: pid={} reason=\"it does not end\"", child_);
        (void)::kill(child_, SIGKILL);
        killed_ = true;
        deadline_ = Clock::now() + kToBeKilled;
    }

    void tell(int number) {
        (void)::kill(child_, number);
        if (number != SIGHUP && !deadline_) deadline_ = Clock::now() + kToEnd;
    }

    void pass_on(int number) {
        note(number);
        tell(number);
    }

    void note(int number) { ending_ = ending_ || number != SIGHUP; }

    /// One that came when nobody served. To end takes a process, too: it removes the sockets.
    void owe(int number) {
        note(number);
        if (owed_ == 0 || number != SIGHUP) owed_ = number;
    }

    /// Returns if another one is to serve.
    void after(int status) {
        const bool exited = WIFEXITED(status);
        if (exited && WEXITSTATUS(status) == 0) ::_exit(0);
        if (!ledger_.ready() || (ending_ && exited)) ::_exit(exited ? WEXITSTATUS(status) : 1);
        if (exited)
            OM_ERROR("manad crash: pid={} status={}", child_, WEXITSTATUS(status));
        else
            OM_ERROR("manad crash: pid={} signal={}", child_, WTERMSIG(status));
        const auto now = Clock::now();
        ends_.push_back(now);
        while (now - ends_.front() > limit_.within) ends_.pop_front();
        if (ends_.size() >= limit_.ends) {
            OM_ERROR("manad stop: reason=\"it has ended {} times in {} s\"", ends_.size(),
                     std::chrono::duration_cast<std::chrono::seconds>(limit_.within).count());
            ::_exit(1);
        }
        if (ending_) owe(SIGTERM);
        pause();
    }

    /// One that ends at once shall not keep the host busy.
    void pause() {
        const auto end =
            Clock::now() + (ends_.size() < 2
                                ? base::Duration::zero()
                                : kFirstDelay * (1 << std::min<std::size_t>(ends_.size(), 6)));
        while (!ending_ && Clock::now() < end) {
            const int number = wait_for_signal(end);
            if (number > 0 && number != SIGCHLD) owe(number);
        }
    }

    const Ledger& ledger_;
    const CrashLimit limit_;
    sigset_t signals_{};
    sigset_t before_{};
    std::array<char, 16> name_{};         // of a process that serves
    std::deque<Clock::time_point> ends_;  // within the time of the limit
    pid_t child_ = -1;
    std::optional<Clock::time_point> deadline_;  // of one that was told to end
    int owed_ = 0;                               // a signal for the next process
    bool killed_ = false;                        // since it did not end
    bool ending_ = false;
};

}  // namespace

base::Result<unsigned> start_monitor(const Ledger& ledger, CrashLimit limit) {
    return Monitor(ledger, limit).run();
}

}  // namespace openmana::manad
