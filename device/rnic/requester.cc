// SPDX-License-Identifier: Apache-2.0
#include "rnic/requester.h"

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

/// One turn of a QP: the others, and the doorbells on the socket, wait no longer than this takes.
constexpr std::uint64_t kTurnBytes = 1U << 20;
constexpr std::uint32_t kTurnWqes = 64;

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
    part_ = read_part(window_, qp_.attributes.max_read_out);
    qp_.sends->start(first);
    // Nothing that counts with the old PSNs stays, even if the host changes them under way.
    queue_.clear();
    timing_.forget();
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
    timing_.forget();
}

void Requester::time_posted() {
    if (qp_.sends->producer() != qp_.sends->consumer())
        timing_.begin(qp_.sends->producer(), datapath_.executor.now());
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

/// Whom the connection reaches without packets, and whether it may send at all: what addresses and
/// policies decide. Asked again when any of them has changed.
void Requester::find_path() {
    const std::uint64_t generation = datapath_.network.generation();
    if (generation == path_generation_ && generation != 0) return;
    path_generation_ = generation;
    owns_source_ = datapath_.addresses.owns({qp_.route.source, qp_.route.vlan});
    local_ = owns_source_ ? datapath_.network.local_peer(
                                datapath_.self,
                                {qp_.route.source, qp_.route.destination, qp_.attributes.source_mac,
                                 qp_.attributes.destination_mac, qp_.route.vlan})
                          : LocalEnd();
}

bool Requester::turn() {
    if (!can_send() || (queue_.empty() && !qp_.sends->posted())) return false;
    Budget budget{kTurnBytes, kTurnWqes};
    find_path();
    if (!owns_source_) {
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
    do {
        // What is under way on the wire ends there; then the paths may change.
        const bool local = local_.peer != nullptr && una_ == send_psn_;
        if (local) {
            path = "local";
            credits_.lift();  // the peer says at once what it has no receive for
            turn_local(local_, budget);
        }
        if (!local || local_.peer == nullptr) {
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

/// A long READ is asked for in parts, each a request with a PSN range of its own (ROCE 3.2): the
/// answers to one are sent to their end, so a lost one costs all behind it. `at` and the results
/// count packets from the beginning of the READ.
std::uint32_t Requester::part_begin(std::uint32_t at) const {
    return at - at % part_;
}

std::uint32_t Requester::part_end(const SendWqe& wqe, std::uint32_t at) const {
    return std::min(wqe.packets, part_begin(at) + part_);
}

std::uint32_t Requester::parts(std::uint32_t packets) const {
    return 1 + (packets - 1) / part_;
}

/// The last PSN of the oldest request of `wqe` that is not finished.
Psn Requester::answered_by(const SendWqe& wqe) const {
    return wqe.is_read() ? wqe.first + (part_end(wqe, wqe.done) - 1) : wqe.last();
}

bool Requester::fetch() {
    if (queue_.size() >= kMaxQueued || qp_.state() != MANA_HW_RNIC_QP_RTS) return false;
    // Behind a broken WQE nothing makes sense.
    if (!queue_.empty() && queue_.at(queue_.size() - 1).error != 0) return false;
    if (!qp_.sends->posted()) return false;
    SendWqe* const taken = queue_.push();
    if (taken == nullptr) return false;
    qp_.sends->fetch(*taken, fetch_psn_);
    if (timing_.waits()) [[unlikely]]
        taken->timed = timing_.take(qp_.sends->consumer());
    if (!taken->local) {
        fetch_psn_ = taken->last() + 1;
        taken->ssn = credits_.next(taken->is_read() ? parts(taken->packets) : 1);
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

}  // namespace openmana::rnic
