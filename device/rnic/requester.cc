// SPDX-License-Identifier: Apache-2.0
#include "rnic/requester.h"

#include <algorithm>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::NakCode;

namespace {

/// One turn of a QP: the others, and the doorbells on the socket, wait no longer than this takes.
constexpr std::uint64_t kTurnBytes = 1U << 20;
constexpr std::uint32_t kTurnWqes = 64;
/// Work taken from the ring and not finished; on the wire path also limited by the window.
constexpr std::uint32_t kMaxQueued = 1024;
/// The requester asks for an acknowledgement as often.
constexpr std::uint32_t kLeastAfterTimeout = 16;
constexpr std::uint32_t kLeastAfterNak = 64;

}  // namespace

Requester::Requester(Qp& qp)
    : qp_(qp),
      datapath_(qp.datapath),
      queue_(datapath_.scratch.slots),
      ack_timer_(datapath_.executor, [this] { on_timeout(); }),
      rnr_timer_(datapath_.executor, [this] {
          if (turn()) datapath_.scheduler.schedule(qp_);
      }) {}

void Requester::start(Psn first) {
    una_ = send_psn_ = next_psn_ = fetch_psn_ = first;
    window_ = datapath_.config.window_packets;
    qp_.sends->start(first);
    // Nothing that counts with the old PSNs stays, even if the host changes them under way.
    queue_.clear();
    current_ = reads_out_ = read_psns_ = since_ack_request_ = 0;
    credits_.start();
    asking_ = no_credits_ = false;
    progress();
}

void Requester::reset() {
    stop();
    failure_ = 0;
    path = "-";
    start(Psn(0));
}

void Requester::resume() {
    if (failure_ == 0) return;
    failure_ = 0;
    queue_.clear();
    current_ = 0;
    skip_to_next();
}

void Requester::stop() {
    ack_timer_.cancel();
    rnr_timer_.cancel();
    stalled_ = false;
}

void Requester::fail(std::uint16_t vendor, bool on_rreq) {
    if (failure_ != 0) return;
    failure_ = vendor;
    failure_on_rreq_ = on_rreq;
}

bool Requester::can_send() const {
    const std::uint32_t state = qp_.state();
    return (state == MANA_HW_RNIC_QP_RTS || state == MANA_HW_RNIC_QP_SQD) && failure_ == 0 &&
           !stalled_ && !rnr_timer_.armed();
}

bool Requester::turn() {
    if (!can_send() || (queue_.empty() && !qp_.sends->posted())) return false;
    Budget budget{kTurnBytes, kTurnWqes};
    if (!datapath_.addresses.owns(qp_.route.source)) {
        // As if the network dropped it: the address may come back.
        datapath_.counters.drop_source.add();
        SendWqe* const wqe = next();
        if (reliable()) {
            stall();
        } else if (wqe != nullptr) {
            discard(*wqe);
            --budget.wqes;
        }
        settle();
        return wqe != nullptr && !reliable() && can_send();
    }
    const LocalPeer* const peer = datapath_.network.local_peer(
        datapath_.self, qp_.route.destination, qp_.attributes.destination_mac);
    do {
        // What is under way on the wire ends there; then the paths may change.
        if (peer != nullptr && una_ == send_psn_) {
            path = "local";
            credits_.lift();  // the peer says at once what it has no receive for
            turn_local(*peer, budget);
        } else {
            path = "wire";
            turn_wire(budget);
        }
        // Not in the turn itself: it may visit the peer, and a change of keys shuts our own gate.
    } while (run_local(budget));
    const bool spent = budget.bytes == 0 || budget.wqes == 0;
    settle();
    return spent && can_send();
}

void Requester::settle() {
    queue_.settle();
    if (failure_ != 0) {
        qp_.fail_send(failure_, failure_on_rreq_);
        return;
    }
    qp_.sends->settle();
}

bool Requester::reliable() const {
    return qp_.type == QpType::kRc;
}

bool Requester::fetch() {
    if (queue_.size() >= kMaxQueued || qp_.state() != MANA_HW_RNIC_QP_RTS) return false;
    // Behind a broken WQE nothing makes sense.
    if (!queue_.empty() && queue_.at(queue_.size() - 1).error != 0) return false;
    if (!qp_.sends->posted()) return false;
    SendWqe& taken = queue_.push();
    qp_.sends->fetch(taken, fetch_psn_);
    if (!taken.local) {
        fetch_psn_ = taken.last() + 1;
        taken.ssn = credits_.next();
    }
    return true;
}

/// Executes the request at the head if it is a local operation. True if there may be more to do.
bool Requester::run_local(Budget& budget) {
    if (queue_.empty() || current_ != 0 || !queue_.front().local || !can_send() ||
        qp_.state() != MANA_HW_RNIC_QP_RTS)
        return false;
    SendWqe& wqe = queue_.front();
    if (wqe.error == 0) wqe.error = qp_.sends->execute_local(wqe);
    if (wqe.error != 0) {
        fail(wqe.error);
        return false;
    }
    complete_front();
    if (budget.wqes > 0) --budget.wqes;
    return budget.wqes > 0;
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
}

/// The WQE that may go out now, or null.
SendWqe* Requester::next() {
    if (current_ == queue_.size() && !fetch()) return nullptr;
    SendWqe& wqe = queue_.at(current_);
    if (wqe.error != 0) {
        // It fails when all before it is done.
        if (current_ == 0) fail(wqe.error, wqe.error_on_rreq);
        return nullptr;
    }
    if (wqe.local) return nullptr;  // see run_local
    const bool begun = send_psn_ != wqe.first;
    if (!begun && wqe.fence && reads_out_ > 0) return nullptr;
    // SQD ends what was begun, and begins nothing (ROCE 6.4).
    if (wqe.first >= next_psn_ && qp_.state() == MANA_HW_RNIC_QP_SQD) return nullptr;
    if (wqe.fetches() && reads_out_ >= qp_.attributes.max_read_out) {
        if (qp_.attributes.max_read_out != 0) return nullptr;
        // None is allowed, so waiting would be for ever (ROCE 3.3).
        wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
        if (current_ == 0) fail(wqe.error);
        return nullptr;
    }
    return &wqe;
}

/// Finishes what an acknowledgement of `psn` covers. False if a READ that is not answered stands
/// before it, which says that its responses were lost (ROCE 3.5).
bool Requester::ack_through(Psn psn) {
    bool moved = false;
    bool complete = true;
    while (!queue_.empty() && !queue_.front().local && queue_.front().last() <= psn) {
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
        retry(una_);
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
    if (wqe.fetches() && reads_out_ > 0) --reads_out_;
    ++messages;
    if (!wqe.fetches()) tally(datapath_.counters.tx_bytes, traffic.tx_bytes, wqe.length);
    queue_.pop();
    if (current_ > 0) --current_;
}

void Requester::progress() {
    retry_left_ = qp_.attributes.retry_count;
    rnr_left_ = qp_.attributes.rnr_retry;
    resent_from_.reset();
    stalled_ = false;
    watch();
}

/// Keeps the ACK timer running exactly while an answer is due.
void Requester::watch() {
    const bool due = (stalled_ || una_ != send_psn_) && failure_ == 0 && !rnr_timer_.armed();
    if (!due || qp_.attributes.timeout == 0) {
        ack_timer_.cancel();
        return;
    }
    ack_timer_.arm(base::Duration(4096ULL << std::min(qp_.attributes.timeout, 31U)));
}

void Requester::stall() {
    stalled_ = true;
    watch();
}

void Requester::on_timeout() {
    tally(datapath_.counters.timeouts, qp_.events.timeouts);
    resent_from_.reset();
    stalled_ = false;
    if (retry(una_, true) && turn()) datapath_.scheduler.schedule(qp_);
    settle();
}

/// Goes back to `psn` for the sake of a lost packet. False if that costs the last retry, or was
/// already done.
bool Requester::retry(Psn psn, bool timed_out) {
    if (resent_from_ == psn) return false;
    if (retry_left_ == 0) {
        tally(datapath_.counters.retries_exceeded, qp_.events.retries_exceeded);
        fail(MANA_HW_RNIC_VE_RETRY);
        return false;
    }
    --retry_left_;
    tally(datapath_.counters.retransmits, qp_.events.retransmits);
    shrink_window(timed_out ? kLeastAfterTimeout : kLeastAfterNak);
    rewind(psn);
    resent_from_ = psn;
    return true;
}

/// A network or a peer that loses packets gets fewer at once: whatever follows a lost one is sent
/// twice, and a slow peer (Soft-RoCE, say) would never answer in time for what queues up before it.
/// While NAKs come the window stays large enough that rarely its last packet is the lost one, which
/// no NAK would tell.
void Requester::shrink_window(std::uint32_t least) {
    const auto under_way = static_cast<std::uint32_t>(send_psn_ - una_);
    window_ = std::max(std::min(least, window_), std::min(window_, under_way) / 2);
}

void Requester::rewind(Psn psn) {
    // An answer or the timer says where to go on; while an RNR wait runs no other timer would.
    stalled_ = false;
    send_psn_ = psn;
    current_ = 0;
    reads_out_ = read_psns_ = 0;
    while (current_ < queue_.size() && !queue_.at(current_).local &&
           queue_.at(current_).last() < psn) {
        const SendWqe& wqe = queue_.at(current_++);
        if (!wqe.fetches()) continue;
        ++reads_out_;
        read_psns_ += wqe.packets - wqe.done - 1;
    }
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
        const bool of_read =
            fatal && !queue_.empty() && queue_.front().fetches() && psn == queue_.front().first;
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
        if (rnr_timer_.armed() && psn == send_psn_) return;
        if (rnr_left_ == 0 && qp_.attributes.rnr_retry != 7) {
            tally(counters.rnr_exceeded, events.rnr_exceeded);
            fail(MANA_HW_RNIC_VE_RNR_RETRY);
            return;
        }
        if (rnr_left_ > 0) --rnr_left_;
        ++rnr_retries;
        rnr_timer_.arm(roce::rnr_delay(roce::aeth_value(syndrome)));
        rewind(psn);
        return;
    }
    switch (code) {
        case NakCode::kSequenceError:
            tally(counters.oos_naks, events.oos_naks);
            // A NAK that follows an RNR NAK says nothing new.
            if (!rnr_timer_.armed()) retry(psn);
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

}  // namespace openmana::rnic
