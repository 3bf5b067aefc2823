// SPDX-License-Identifier: Apache-2.0
#include "manad/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>

#include "manad/thread.h"

namespace openmana::manad {
namespace {

/// SIGALRM ends the process then.
void arm_last_resort(base::Duration after) {
    const auto time = std::chrono::ceil<std::chrono::microseconds>(after).count();
    itimerval timer{};
    timer.it_value = {.tv_sec = time / 1000000, .tv_usec = time % 1000000};
    ::setitimer(ITIMER_REAL, &timer, nullptr);
}

}  // namespace

base::Result<base::UniqueFd> prepare_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    // The last resort. Who started this program may have ignored or blocked it.
    std::signal(SIGALRM, SIG_DFL);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
    base::UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        return base::fail(base::ErrorCode::kIo, "cannot create a signalfd",
                          static_cast<unsigned>(errno));
    return fd;
}

base::Result<std::unique_ptr<SignalThread>> SignalThread::create(base::UniqueFd signals,
                                                                 Patience patience,
                                                                 Actions actions) {
    base::UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop)
        return base::fail(base::ErrorCode::kIo, "cannot create an eventfd",
                          static_cast<unsigned>(errno));
    std::unique_ptr<SignalThread> thread(
        new SignalThread(std::move(signals), std::move(stop), patience, std::move(actions)));
    TRY(thread->thread_, start_thread("signals", [raw = thread.get()] { raw->run(); }));
    return thread;
}

SignalThread::~SignalThread() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
}

void SignalThread::run() {
    pollfd fds[] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                    {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    while (true) {
        if (::poll(fds, 2, -1) < 0) continue;
        if (fds[0].revents != 0) return;
        signalfd_siginfo signal{};
        if (::read(signals_.get(), &signal, sizeof signal) != sizeof signal) continue;
        if (signal.ssi_signo != SIGHUP) break;
        actions_.reload();
    }
    arm_last_resort(patience_.last_resort);
    actions_.end();
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(patience_.to_end);
    const int stopped = ::poll(fds, 1, static_cast<int>(patience.count()));
    if (stopped == 0) actions_.give_up();
}

}  // namespace openmana::manad
