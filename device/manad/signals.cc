// SPDX-License-Identifier: Apache-2.0
#include "manad/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>

namespace openmana::manad {

base::Result<base::UniqueFd> prepare_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    base::UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd)
        return base::fail(base::ErrorCode::kIo, "cannot create a signalfd",
                          static_cast<unsigned>(errno));
    return fd;
}

base::Result<std::unique_ptr<SignalThread>> SignalThread::create(base::UniqueFd signals,
                                                                 base::Duration patience,
                                                                 Actions actions) {
    base::UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!stop)
        return base::fail(base::ErrorCode::kIo, "cannot create an eventfd",
                          static_cast<unsigned>(errno));
    return std::unique_ptr<SignalThread>(
        new SignalThread(std::move(signals), std::move(stop), patience, std::move(actions)));
}

SignalThread::SignalThread(base::UniqueFd signals, base::UniqueFd stop, base::Duration patience,
                           Actions actions)
    : signals_(std::move(signals)),
      stop_(std::move(stop)),
      patience_(patience),
      actions_(std::move(actions)),
      thread_([this] { run(); }) {}

SignalThread::~SignalThread() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
}

void SignalThread::run() {
    ::pthread_setname_np(::pthread_self(), "signals");
    pollfd fds[] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                    {.fd = signals_.get(), .events = POLLIN, .revents = 0}};
    while (::poll(fds, 2, -1) < 0) {
    }
    if (fds[0].revents != 0) return;
    actions_.end();
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(patience_);
    const int stopped = ::poll(fds, 1, static_cast<int>(patience.count()));
    if (stopped == 0) actions_.give_up();
}

}  // namespace openmana::manad
