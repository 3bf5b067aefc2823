// SPDX-License-Identifier: Apache-2.0
// Going back: the ACK timer, the retries that it and NAKs cost, and the window that shrinks with
// each (ROCE 3.6, 3.7).
#include <algorithm>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

/// Packets that the window keeps after a loss, by what told of it.
constexpr std::uint32_t kLeastAfterTimeout = 16;
constexpr std::uint32_t kLeastAfterNak = 64;

}  // namespace

/// Keeps the ACK timer running exactly while an answer is due.
void Requester::watch() {
    const bool due = (stalled_ || una_ != send_psn_) && failure_ == 0 && !rnr_timer_.armed();
    if (!due || qp_.attributes.timeout == 0) {
        ack_timer_.cancel();
        return;
    }
    ack_timer_.arm(roce::ack_timeout_after(qp_.attributes.timeout, timeouts_in_row_));
}

void Requester::stall() {
    stalled_ = true;
    watch();
}

void Requester::on_timeout() {
    tally(datapath_.counters.timeouts, qp_.events.timeouts);
    ++timeouts_in_row_;
    resent_ = false;
    stalled_ = false;
    if (retry(true) && turn()) datapath_.scheduler.schedule(qp_);
    settle();
}

/// Goes back for the sake of a lost packet. False if that costs the last retry, or was already
/// done.
bool Requester::retry(bool timed_out) {
    if (resent_) return false;
    if (retry_left_ == 0) {
        tally(datapath_.counters.retries_exceeded, qp_.events.retries_exceeded);
        fail(MANA_HW_RNIC_VE_RETRY);
        return false;
    }
    --retry_left_;
    tally(datapath_.counters.retransmits, qp_.events.retransmits);
    shrink_window(timed_out ? kLeastAfterTimeout : kLeastAfterNak);
    rewind();
    resent_ = true;
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

/// To what is not acknowledged. All before it is finished, so no answers are outstanding.
void Requester::rewind() {
    // An answer or the timer says where to go on; while an RNR wait runs no other timer would.
    stalled_ = false;
    send_psn_ = una_;
    current_ = 0;
    reads_out_ = read_psns_ = 0;
    watch();
}

}  // namespace openmana::rnic
