// SPDX-License-Identifier: Apache-2.0
// How requests end: what an acknowledgement finishes, what a NAK or an RNR NAK asks for, whatever
// path it came by (ROCE 3.5, 3.8).
#include <algorithm>

#include "base/probe.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::NakCode;

Requester::Step Requester::local_outcome(const Answer& answer) {
    switch (answer.kind) {
        case Answer::Kind::kAck:
            on_ack(answer.psn);
            break;
        case Answer::Kind::kNak:
        case Answer::Kind::kRnr:
            on_nak(answer.psn, answer.syndrome);
            break;
        default:
            break;
    }
    if (failure_ != 0 || rnr_timer_.armed()) return Step::kLeave;
    if (una_ == send_psn_) return Step::kGo;
    // No answer, or one that does not help: from here on as on a wire that lost the packet. A frame
    // may still answer it, and finds nothing under way that is not counted.
    rewind();
    stall();
    return Step::kWait;
}

/// The request was not executed, and is tried again: as after an RNR NAK, which it does not count
/// as.
void Requester::wait_for_receive(base::Duration delay) {
    rnr_timer_.arm(delay);
    watch();
}

/// True if the ACK was for something outstanding.
bool Requester::on_ack(Psn psn) {
    if (psn < una_ || psn >= next_psn_) {
        datapath_.counters.unexpected_acks.add();
        return false;
    }
    ack_through(psn);
    return true;
}

void Requester::on_nak(Psn psn, std::uint8_t syndrome) {
    RnicCounters& counters = datapath_.counters;
    QpEvents& events = qp_.events;
    const bool rnr = roce::aeth_kind(syndrome) == roce::AethKind::kRnrNak;
    const NakCode code = roce::nak_code(syndrome);
    const bool fatal = !rnr && code != NakCode::kSequenceError;
    if (psn < una_ || psn >= next_psn_) {
        // Soft-RoCE names the first PSN of a READ that failed half-way (ROCE 11.1).
        const bool of_read = fatal && !queue_.empty() && queue_.front().fetches() &&
                             psn == queue_.front().first + part_begin(queue_.front().done);
        if (!of_read) {
            counters.unexpected_acks.add();
            return;
        }
    } else if (psn != una_ && !ack_through(psn - 1)) {
        return;
    }
    if (rnr) {
        tally(counters.rnr_naks, events.rnr_naks);
        // Since the first of them nothing was sent that this could answer: a copy by the network.
        if (rnr_timer_.armed() && una_ == send_psn_) return;
        if (rnr_left_ == 0 && qp_.attributes.rnr_retry != 7) {
            tally(counters.rnr_exceeded, events.rnr_exceeded);
            fail(MANA_HW_RNIC_VE_RNR_RETRY);
            return;
        }
        if (rnr_left_ > 0) --rnr_left_;
        ++rnr_retries;
        rnr_timer_.arm(roce::rnr_delay(roce::aeth_value(syndrome)));
        rewind();
        return;
    }
    switch (code) {
        case NakCode::kSequenceError:
            tally(counters.oos_naks, events.oos_naks);
            // A NAK that follows an RNR NAK says nothing new.
            if (!rnr_timer_.armed()) retry();
            return;
        case NakCode::kInvalidRequest:
            tally(counters.nak_invalid_request, events.nak_invalid_request);
            fail(MANA_HW_RNIC_VE_NAK_INVALID_REQUEST);
            return;
        case NakCode::kRemoteAccess:
            tally(counters.nak_access, events.nak_access);
            fail(MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS);
            return;
        case NakCode::kRemoteOperational:
            tally(counters.nak_operation, events.nak_operation);
            fail(MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION);
            return;
    }
}

/// Finishes what an acknowledgement of `psn` covers. False if a READ that is not answered stands
/// before it, which says that its responses were lost (ROCE 3.5).
bool Requester::ack_through(Psn psn) {
    bool moved = false;
    bool complete = true;
    while (!queue_.empty() && !queue_.front().local && answered_by(queue_.front()) <= psn) {
        SendWqe& wqe = queue_.front();
        if (wqe.fetches()) {
            complete = false;
            break;
        }
        advance_to(wqe.last() + 1);
        complete_front();
        moved = true;
    }
    if (complete && !queue_.empty() && !queue_.front().fetches() && !queue_.front().local &&
        queue_.front().first <= psn && una_ <= psn) {
        advance_to(psn + 1);
        moved = true;
    }
    if (moved) progress();
    if (!complete) {
        tally(datapath_.counters.implicit_naks, qp_.events.implicit_naks);
        retry();
    }
    return complete;
}

void Requester::advance_to(Psn next) {
    // By a quarter in each round trip.
    const auto acked = static_cast<std::uint32_t>(std::max(0, next - una_));
    window_ = std::min(window_ + (acked + 3) / 4, datapath_.config.window_packets);
    una_ = next;
    if (send_psn_ < una_) {
        send_psn_ = una_;
        current_ = 0;
    }
}

void Requester::complete_front() {
    SendWqe& wqe = queue_.front();
    qp_.sends->complete(wqe);
    if (wqe.is_atomic() && reads_out_ > 0) --reads_out_;
    ++messages;
    if (!wqe.fetches()) tally(datapath_.counters.tx_bytes, traffic.tx_bytes, wqe.length);
    add_figures(wqe);
    queue_.pop();
    if (current_ > 0) --current_;
}

void Requester::add_figures(const SendWqe& wqe) {
    if (!wqe.local && !wqe.is_atomic()) datapath_.figures.add_bytes(wqe.request_kind(), wqe.length);
    if (!wqe.timed) [[likely]]
        return;
    const base::Duration time = timing_.end(datapath_.executor.now());
    if (wqe.local) return;
    datapath_.figures.add_time(wqe.request_kind(), time);
    OM_PROBE(request, datapath_.nic.c_str(), RequestFigures::name(wqe.request_kind()), wqe.length,
             time.count());
}

void Requester::progress() {
    retry_left_ = qp_.attributes.retry_count;
    timeouts_in_row_ = 0;
    rnr_left_ = qp_.attributes.rnr_retry;
    resent_ = false;
    stalled_ = false;
    watch();
}

/// UC: the message ends here, wherever it got to.
void Requester::discard(SendWqe& wqe) {
    una_ = send_psn_ = wqe.last() + 1;
    if (next_psn_ < una_) next_psn_ = una_;
    complete_front();
    current_ = 0;
}

const SendWqe* Requester::take_failed() {
    if (queue_.empty()) return nullptr;
    SendWqe& failed = datapath_.scratch.failed;
    failed = std::move(queue_.front());
    queue_.pop();
    current_ = 0;
    if (queue_.empty()) skip_to_next();
    return &failed;
}

/// Nothing is left to send. A guest may go on without a RESET: what it posts then follows on what
/// was sent, not on what was only fetched.
void Requester::skip_to_next() {
    una_ = send_psn_ = fetch_psn_ = next_psn_;
    reads_out_ = read_psns_ = 0;
    resent_ = false;
}

}  // namespace openmana::rnic
