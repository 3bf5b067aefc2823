// SPDX-License-Identifier: Apache-2.0
#include "rnic/scheduler.h"

#include "base/prefetch.h"
#include "rnic/qp_table.h"
#include "rnic/task_work.h"

namespace openmana::rnic {
namespace {

/// How often room for those held back is looked for.
constexpr base::Duration kHeldInterval = std::chrono::microseconds(200);

}  // namespace

Scheduler::Scheduler(base::Executor& executor, const Network& network, const QpTable& qps,
                     base::Counter& held_back)
    : executor_(executor),
      network_(network),
      qps_(qps),
      held_back_(held_back),
      held_timer_(executor, [this] { serve_held(); }),
      gather_timer_(executor, [this] { serve_gathering(); }) {}

void Scheduler::schedule(Qp& qp) {
    if (qp.scheduled) return;
    qp.scheduled = true;
    ready_.push_back(qp.qpn());
    pump_later();
}

void Scheduler::pump_later() {
    if (pump_posted_) return;
    pump_posted_ = true;
    executor_.post([token = std::weak_ptr<int>(alive_), this] {
        if (!token.expired()) pump();
    });
}

/// Each QP that waits gets one turn; then the executor looks after everything else before the next
/// round, and before the rest of this one if it is long.
void Scheduler::pump() {
    pump_posted_ = false;
    const TaskWork work;
    for (std::size_t n = ready_.size(); n > 0 && !work.done(); --n) {
        Qp* qp = qps_.find(ready_.front());
        ready_.pop_front();
        if (n > 1) {
            if (const Qp* const next = qps_.find(ready_.front()))
                base::prefetch(next->requester_memory());
        }
        if (qp == nullptr) continue;
        qp->scheduled = false;
        serve(*qp);
    }
    if (!ready_.empty()) pump_later();
}

void Scheduler::serve(Qp& qp) {
    bool more = false;
    base::count_work(1);
    if (qp.connected()) {
        if (qp.limiter) qp.tend_limiter();
        more = qp.responses.send();
        more = qp.requester.turn() || more;
    } else {
        more = qp.send_datagrams();
    }
    if (more) schedule(qp);
}

bool Scheduler::hold_back(Qp& qp) {
    if (network_.transmit_room() > 0) return false;
    if (qp.held) return true;
    held_back_.add();
    qp.held = true;
    held_.push_back(qp.qpn());
    if (!held_timer_.armed()) held_timer_.arm(kHeldInterval);
    return true;
}

/// Those that have waited longest go first, as far as the room goes.
void Scheduler::serve_held() {
    const TaskWork work;
    for (std::size_t n = held_.size(); n > 0 && network_.transmit_room() > 0 && !work.done(); --n) {
        Qp* const qp = qps_.find(held_.front());
        held_.pop_front();
        if (qp == nullptr || !qp->held) continue;
        qp->held = false;
        if (!qp->scheduled) serve(*qp);
    }
    if (!held_.empty()) held_timer_.arm(kHeldInterval);
}

void Scheduler::gather(Qp& qp, base::TimePoint end) {
    if (qp.gathering) return;
    qp.gathering = true;
    gathering_.push_back(qp.qpn());
    if (!gather_timer_.armed()) gather_timer_.arm_at(end);
}

/// All at once, unless they are many: each has waited for some of the time, and together they make
/// a larger burst.
void Scheduler::serve_gathering() {
    const TaskWork work;
    std::size_t n = gathering_.size();
    for (; n > 0 && !work.done(); --n) {
        Qp* const qp = qps_.find(gathering_.front());
        gathering_.pop_front();
        if (qp == nullptr || !qp->gathering) continue;
        qp->gathering = false;
        qp->requester.end_gathering();
        if (!qp->scheduled) serve(*qp);
    }
    if (n > 0) gather_timer_.arm_at(executor_.now());
}

void Scheduler::forget(const Qp& qp) {
    // Of those that are ready the next round drops it.
    if (qp.held) std::erase(held_, qp.qpn());
    if (qp.gathering) std::erase(gathering_, qp.qpn());
}

void Scheduler::clear() {
    ready_.clear();
    held_.clear();
    held_timer_.cancel();
    gathering_.clear();
    gather_timer_.cancel();
}

}  // namespace openmana::rnic
