// SPDX-License-Identifier: Apache-2.0
#include "rnic/record_watch.h"

#include "rnic/ext_queues.h"

namespace openmana::rnic {
namespace {

/// SQs that are looked at: an idle NIC sleeps, a busy one does not spend its time on looking.
constexpr std::size_t kMaxWatched = 32;

}  // namespace

RecordWatch::RecordWatch(base::Executor& executor, base::Counter& posts)
    : executor_(executor), posts_(posts) {
    executor_.add_poller(*this);
}

RecordWatch::~RecordWatch() {
    executor_.remove_poller(*this);
}

void RecordWatch::watch(ExtQueues& queues) {
    queues.last_work = executor_.now();
    if (queues.watched || watched_.size() >= kMaxWatched) return;
    queues.watched = true;
    watched_.push_back(&queues);
    queues.wake();
}

void RecordWatch::unwatch(ExtQueues& queues) {
    if (!queues.watched) return;
    queues.watched = false;
    std::erase(watched_, &queues);
}

base::Poller::State RecordWatch::poll() {
    if (watched_.empty()) return State::kIdle;
    const base::TimePoint now = executor_.now();
    bool worked = false;
    // From the end, since a QP that fails leaves the list.
    for (std::size_t i = watched_.size(); i-- > 0;) {
        if (i >= watched_.size()) continue;
        ExtQueues& queues = *watched_[i];
        bool posted = queues.look();
        if (posted) queues.busy_poll.found();
        if (!posted && !queues.qp().scheduled && !queues.busy_poll.again(now - queues.last_work)) {
            posted = queues.sleep();
            if (posted)
                queues.wake();
            else
                unwatch(queues);
        }
        if (!posted) continue;
        posts_.add();
        queues.last_work = now;
        queues.qp().sends_posted();
        worked = true;
    }
    if (worked) return State::kWorked;
    return watched_.empty() ? State::kIdle : State::kWatching;
}

}  // namespace openmana::rnic
