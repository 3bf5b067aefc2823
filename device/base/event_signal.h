// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// Signals eventfds that are shared with somebody else, and never waits for one. Any thread.
///
/// A write to an eventfd waits while its counter is full and O_NONBLOCK is not set, and whoever
/// shares the open file decides both; eventfds do not know RWF_NOWAIT. But the kernel itself
/// signals an eventfd that an asynchronous request names when the request completes, from where it
/// must not wait, and a full counter then stays full. So a signal is an empty read of /dev/null
/// with IOCB_FLAG_RESFD (io_submit(2)), which completes at once.
class EventSignal {
public:
    /// The one of this process, made by the first call.
    static EventSignal& shared();

    EventSignal();
    ~EventSignal();
    EventSignal(const EventSignal&) = delete;
    EventSignal& operator=(const EventSignal&) = delete;

    /// Why signals may wait after all: the system has no asynchronous requests for this process.
    /// Then they are writes, for which the caller sets O_NONBLOCK.
    [[nodiscard]] const Result<void>& ready() const { return ready_; }
    /// False if `eventfd` is none.
    [[nodiscard]] bool raise(int eventfd);

private:
    [[nodiscard]] bool submit(int eventfd);

    UniqueFd null_;
    unsigned long context_ = 0;
    Result<void> ready_;
};

}  // namespace openmana::base
