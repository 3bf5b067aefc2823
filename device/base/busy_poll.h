// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace openmana::base {

/// Whether it pays to look for more work before going to sleep.
///
/// A stream of requests comes so fast that every sleep would cost its sender a wake-up: then the
/// looking goes on for a window after the last work. Where nothing comes within the window, as
/// between the messages of a ping-pong, looking takes the CPU from the guests that the answer has
/// to come from; after the second failure it is left out, and tried again after a number of sleeps
/// that doubles with each further one. Used by one thread.
class BusyPoll {
public:
    explicit BusyPoll(Duration window) : window_(window) {}

    /// Nothing was found, `idle` after the last work: true to look again, false to sleep.
    bool again(Duration idle) {
        if (left_out_ == 0 && idle <= window_) {
            looking_ = true;
            return true;
        }
        if (looking_) {
            looking_ = false;
            left_out_ = failures_;
            failures_ = std::min(2 * failures_ + 1, kMaxLeftOut);
        } else if (left_out_ > 0) {
            --left_out_;
        }
        return false;
    }
    /// Work was found.
    void found() {
        if (looking_) failures_ = 0;
        looking_ = false;
    }

private:
    static constexpr std::uint32_t kMaxLeftOut = 63;
    Duration window_;
    std::uint32_t left_out_ = 0;  ///< sleeps until the next try
    std::uint32_t failures_ = 0;  ///< 2^n - 1 after the n-th in a row
    bool looking_ = false;
};

}  // namespace openmana::base
