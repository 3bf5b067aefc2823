// SPDX-License-Identifier: Apache-2.0
#include "manad/loop_watch.h"

#include <fmt/format.h>

#include "base/log.h"

namespace openmana::manad {
namespace {

double seconds(base::Duration time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

void LoopWatch::look(base::TimePoint now) {
    const base::EventLoop::Pulse pulse = loop_.pulse();
    if (pulse.idle || pulse.turn != turn_ || alive_ == base::TimePoint{}) {
        turn_ = pulse.turn;
        silent_since_.store(0, std::memory_order_relaxed);
        if (hangs_.exchange(false, std::memory_order_relaxed))
            OM_WARN("thread return: {} seconds={:.1f}", label_, seconds(now - alive_));
        alive_ = now;
        return;
    }
    silent_since_.store(alive_.time_since_epoch().count(), std::memory_order_relaxed);
    if (now - alive_ < kHang || hangs_.exchange(true, std::memory_order_relaxed)) return;
    counters_.hangs.add();
    OM_ERROR("thread hang: {} seconds={:.1f} doing=\"{}\"", label_, seconds(now - alive_), doing());
}

base::Duration LoopWatch::silent_for(base::TimePoint now) const {
    const auto since = silent_since_.load(std::memory_order_relaxed);
    return since == 0 ? base::Duration::zero() : now - base::TimePoint(base::Duration(since));
}

std::string LoopWatch::doing() const {
    const base::Activity::Note note = loop_.activity().note();
    std::string text = note.what;
    if (note.detail != 0) text += fmt::format(" {:#x}", note.detail);
    if (note.waits_for != nullptr) text += fmt::format(", waits for {}", note.waits_for);
    return text;
}

}  // namespace openmana::manad
