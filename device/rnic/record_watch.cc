// SPDX-License-Identifier: Apache-2.0
#include "rnic/record_watch.h"

#include "rnic/ext_sends.h"
#include "rnic/qp.h"

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

void RecordWatch::watch(ExtSends& sends) {
    sends.last_work = executor_.now();
    if (sends.watched || watched_.size() >= kMaxWatched) return;
    sends.watched = true;
    watched_.push_back(&sends);
    sends.wake();
}

void RecordWatch::unwatch(ExtSends& sends) {
    if (!sends.watched) return;
    sends.watched = false;
    std::erase(watched_, &sends);
}

base::Poller::State RecordWatch::poll() {
    if (watched_.empty()) return State::kIdle;
    const base::TimePoint now = executor_.now();
    bool worked = false;
    // From the end, since a QP that fails leaves the list.
    for (std::size_t i = watched_.size(); i-- > 0;) {
        if (i >= watched_.size()) continue;
        ExtSends& sends = *watched_[i];
        bool posted = sends.look();
        if (posted) sends.busy_poll.found();
        if (!posted && !sends.qp().scheduled && !sends.busy_poll.again(now - sends.last_work)) {
            posted = sends.sleep();
            if (posted)
                sends.wake();
            else
                unwatch(sends);
        }
        if (!posted) continue;
        posts_.add();
        sends.last_work = now;
        sends.qp().sends_posted();
        worked = true;
    }
    if (worked) return State::kWorked;
    return watched_.empty() ? State::kIdle : State::kWatching;
}

}  // namespace openmana::rnic
