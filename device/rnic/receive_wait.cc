// SPDX-License-Identifier: Apache-2.0
#include "rnic/receive_wait.h"

#include <mutex>

#include "base/memory_account.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

ReceiveWait::ReceiveWait(Qp& qp)
    : qp_(qp), datapath_(qp.datapath), timer_(datapath_.executor, [this] { try_again(); }) {}

std::uint64_t ReceiveWait::cost(std::size_t payload) {
    return base::node_cost(sizeof(Request)) + base::heap_cost(payload);
}

std::uint64_t ReceiveWait::stored() const {
    std::uint64_t bytes = 0;
    for (const Request& request : requests_) bytes += cost(request.payload.capacity());
    return bytes;
}

bool ReceiveWait::push(const Segment& segment) {
    std::uint64_t& used = datapath_.receive_waits.used;
    const std::uint64_t bytes = cost(segment.length);
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
    return true;
}

void ReceiveWait::pop() {
    const std::uint64_t bytes = cost(requests_.front().segment.length);
    bytes_ -= bytes;
    datapath_.receive_waits.used -= bytes;
    copied_ = false;
    requests_.pop_front();
}

void ReceiveWait::clear() {
    timer_.cancel();
    datapath_.counters.drop_waiting.add(size());
    datapath_.receive_waits.used -= bytes_;
    bytes_ = 0;
    requests_.clear();
    dropped_.reset();
    copied_ = false;
}

void ReceiveWait::begin(const Segment& segment) {
    if (!push(segment)) {
        refuse();
        return;
    }
    datapath_.counters.waiting_packets.add();
    Answer before;
    {
        const std::lock_guard lock(qp_.responder.mutex);
        timer_.arm(qp_.responder.begin_wait());
        before = qp_.responder.acknowledge();
    }
    // The peer need not wait for what is done.
    qp_.responses.add(before);
}

bool ReceiveWait::takes(const Segment& segment) {
    if (size() == 0) return false;
    if (!qp_.responds()) {
        clear();
        return false;
    }
    const Psn first = requests_.front().segment.psn;
    if (segment.psn < first) return false;  // a duplicate of what is done
    if (segment.psn == first) {
        bool early = false;
        {
            const std::lock_guard lock(qp_.responder.mutex);
            early = qp_.responder.waits_briefly();
        }
        // So soon, and once, it is a copy that the network has made. Else the patience of the peer
        // is less than ours. It has lost a retry, and is not to lose more.
        if (early && !copied_) {
            copied_ = true;
            tally(datapath_.counters.duplicates, qp_.events.duplicates);
        } else {
            refuse();
        }
    } else if (segment.psn < next_) {
        tally(datapath_.counters.out_of_sequence, qp_.events.out_of_sequence);  // it waits already
    } else if (segment.psn != next_ || !push(segment)) {
        drop(segment);
    } else {
        datapath_.counters.waiting_packets.add();
    }
    return true;
}

/// As if it was lost: behind one that was, or there is no room. The peer is told when nothing waits
/// any longer.
void ReceiveWait::drop(const Segment& segment) {
    tally(datapath_.counters.out_of_sequence, qp_.events.out_of_sequence);
    if (!dropped_ || segment.psn > *dropped_) dropped_ = segment.psn;
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
    while (size() > 0 && execute(requests_.front())) pop();
    Answer answer;
    {
        const std::lock_guard lock(qp_.responder.mutex);
        // Also if nobody asked: the timer of the peer is to see that it goes on.
        answer = size() == 0 && dropped_ ? qp_.responder.report_gap(*dropped_)
                                         : qp_.responder.acknowledge();
    }
    qp_.responses.add(answer);
    if (size() == 0) clear();
    if (!qp_.responses.empty()) datapath_.scheduler.schedule(qp_);
}

/// False if it has to wait on, or if all that waits has been dropped.
bool ReceiveWait::execute(Request& request) {
    if ((request.segment.kind == SegmentKind::kRead ||
         request.segment.kind == SegmentKind::kAtomic) &&
        qp_.responses.full()) {
        const Psn psn = request.segment.psn;
        datapath_.counters.drop_owed.add();
        clear();
        dropped_ = psn;
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
        if (answer.kind == Answer::Kind::kWait) delay = qp_.responder.begin_wait();
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
