// SPDX-License-Identifier: Apache-2.0
#include "rnic/receive_wait.h"

#include <mutex>

#include "base/memory_account.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

ReceiveWait::ReceiveWait(Qp& qp) : qp_(qp), timer_(qp.datapath.executor, [this] { try_again(); }) {}

/// With the growth of the vector that it lies in.
std::uint64_t ReceiveWait::cost(const Segment& segment) {
    return 2 * sizeof(Request) + base::heap_cost(segment.length);
}

bool ReceiveWait::push(const Segment& segment) {
    std::uint64_t& used = qp_.datapath.receive_waits.used;
    const std::uint64_t bytes = cost(segment);
    if (size() >= kMostRequests || bytes > kMostBytes - bytes_ ||
        bytes > ReceiveWaitBudget::kMost - used)
        return false;
    Request& request = requests_.emplace_back(Request{segment, {}});
    request.segment.payload = {};
    request.payload.reserve(segment.length);
    for (const std::span<std::byte> part : segment.payload)
        request.payload.insert(request.payload.end(), part.begin(), part.end());
    bytes_ += bytes;
    used += bytes;
    next_ = segment.psn + (segment.kind == SegmentKind::kRead
                               ? packets_of(segment.reth.length, qp_.route.mtu)
                               : segment.packets);
    qp_.datapath.counters.waiting_packets.add();
    return true;
}

void ReceiveWait::clear() {
    timer_.cancel();
    qp_.datapath.receive_waits.used -= bytes_;
    bytes_ = 0;
    requests_ = {};
    done_ = 0;
    gap_ = false;
}

void ReceiveWait::begin(const Segment& segment, base::Duration delay) {
    if (push(segment))
        timer_.arm(delay);
    else
        refuse();
}

bool ReceiveWait::takes(const Segment& segment) {
    if (size() == 0) return false;
    if (!qp_.responds()) {
        clear();
        return false;
    }
    const Psn first = requests_[done_].segment.psn;
    if (segment.psn < first) return false;  // a duplicate of what is done
    if (segment.psn == first) {
        // The peer's patience is less than ours. It has lost one retry, and is not to lose more.
        refuse();
    } else if (segment.psn != next_) {
        // One that waits already, or one behind a packet that was lost.
        tally(qp_.datapath.counters.out_of_sequence, qp_.events.out_of_sequence);
        gap_ = gap_ || segment.psn > next_;
    } else if (!push(segment)) {
        refuse();
    }
    return true;
}

/// Nothing waits any longer: the peer sends it again.
void ReceiveWait::refuse() {
    Answer answer;
    {
        const std::lock_guard lock(qp_.responder.mutex);
        answer = qp_.responder.end_wait();
    }
    clear();
    qp_.responses.add(answer);
}

void ReceiveWait::try_again() {
    while (size() > 0 && execute(requests_[done_])) {
        const std::uint64_t bytes = cost(requests_[done_].segment);
        bytes_ -= bytes;
        qp_.datapath.receive_waits.used -= bytes;
        requests_[done_].payload = {};
        ++done_;
    }
    if (size() == 0) {
        if (gap_) {
            const std::lock_guard lock(qp_.responder.mutex);
            qp_.responses.add(qp_.responder.report_gap());
        }
        clear();
    }
    qp_.datapath.scheduler.schedule(qp_);
}

/// False if it has to wait on, or if all that waits has been dropped.
bool ReceiveWait::execute(Request& request) {
    if ((request.segment.kind == SegmentKind::kRead ||
         request.segment.kind == SegmentKind::kAtomic) &&
        qp_.responses.full()) {
        qp_.datapath.counters.drop_owed.add();
        clear();
        gap_ = true;
        return false;
    }
    const std::span<std::byte> payload(request.payload);
    request.segment.payload = Spans(&payload, 1);
    Answer answer;
    bool moved = false;
    base::Duration delay{};
    {
        const gdma::KeyUse use;
        const std::lock_guard lock(qp_.responder.mutex);
        answer = qp_.responder.execute(request.segment);
        moved = qp_.responder.expected() > request.segment.psn;
        if (answer.kind == Answer::Kind::kWait) delay = qp_.responder.wait_delay();
    }
    request.segment.payload = {};
    if (answer.kind == Answer::Kind::kWait) {
        timer_.arm(delay);
        return false;
    }
    // Behind one that was refused nothing makes sense.
    if (!moved) clear();
    qp_.responses.add(answer);
    return moved;
}

}  // namespace openmana::rnic
