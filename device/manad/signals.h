// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::manad {

/// Has SIGTERM, SIGINT and SIGHUP wait in the descriptor that is given (a signalfd, non-blocking),
/// and makes signals that report a failed write harmless: the write fails with EPIPE (SIGPIPE) or
/// EFBIG (SIGXFSZ, a file that reaches RLIMIT_FSIZE) anyway. SIGALRM kills, whatever the process
/// that started this one made of it. Before any thread starts, so that all of them leave the
/// signals to the descriptor.
base::Result<base::UniqueFd> prepare_signals();

/// A thread that waits for the first of these signals that is to end the program, and does nothing
/// else: whatever hangs, the program ends. Its owner destroys it once the program is about to end
/// by itself. The last resort is the system's (SIGALRM), and lasts beyond that.
class SignalThread {
public:
    struct Actions {
        std::function<void()> end;      ///< the signal is there
        std::function<void()> reload;   ///< SIGHUP; no more than that is asked for is waited for
        std::function<void()> give_up;  ///< and `to_end` later this object, too
    };
    /// From the signal on.
    struct Patience {
        base::Duration to_end;       ///< for `end`
        base::Duration last_resort;  ///< then the program is killed, whatever it is at
    };
    static base::Result<std::unique_ptr<SignalThread>> create(base::UniqueFd signals,
                                                              Patience patience, Actions actions);
    ~SignalThread();
    SignalThread(const SignalThread&) = delete;
    SignalThread& operator=(const SignalThread&) = delete;

private:
    SignalThread(base::UniqueFd signals, base::UniqueFd stop, Patience patience, Actions actions)
        : signals_(std::move(signals)),
          stop_(std::move(stop)),
          patience_(patience),
          actions_(std::move(actions)) {}
    void run();

    const base::UniqueFd signals_;
    const base::UniqueFd stop_;  // an eventfd
    const Patience patience_;
    const Actions actions_;
    std::thread thread_;
};

}  // namespace openmana::manad
