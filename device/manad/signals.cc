// SPDX-License-Identifier: Apache-2.0
#include "manad/signals.h"

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

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

}  // namespace openmana::manad
