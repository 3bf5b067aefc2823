// SPDX-License-Identifier: Apache-2.0
#include "sim/wire_check.h"

#include "roce/aeth.h"

namespace openmana::sim {

using roce::Psn;

namespace {

std::string hex(std::uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "%#x", value);
    return text;
}

}  // namespace

void WireCheck::start(const Limits& limits, Psn first, Psn expected) {
    *this = WireCheck{};
    limits_ = limits;
    first_ = next_ = first;
    arrived_ = expected_ = expected;
}

std::string WireCheck::sent(const rnic::Qp& qp, const roce::Packet& packet,
                            std::uint64_t messages) {
    if (packet.payload.size() > limits_.mtu) return "a frame larger than the path MTU";
    const std::uint32_t state = qp.state();
    const bool response = packet.info().response;
    if (state == MANA_HW_RNIC_QP_RESET || state == MANA_HW_RNIC_QP_INIT)
        return "a frame of a QP that is not connected";
    if (state == MANA_HW_RNIC_QP_ERR && !response) return "a request of a QP in ERR";
    if (fatal_sent_) return "a frame behind the fatal NAK";
    if (state == MANA_HW_RNIC_QP_ERR && ended_) return "an answer of a QP in ERR";
    if (packet.opcode == roce::Opcode::kCnp) return {};  // takes no PSN
    return response ? this->response(qp, packet, messages) : request(qp, packet);
}

std::string WireCheck::request(const rnic::Qp& qp, const roce::Packet& packet) {
    const std::int32_t ahead = packet.psn - next_;
    // What lies between may have gone by the local path.
    if (ahead > 0 && limits_.wire_only)
        return "a request leaves out PSNs: " + hex(packet.psn.value());
    if (packet.psn < qp.requester.view().una)
        return "a request that was acknowledged is sent again: " + hex(packet.psn.value());
    const bool has_reth = packet.info().has(roce::kHasReth);
    const Sent now{true, packet.opcode, packet.payload.size(), has_reth ? packet.reth.length : 0};
    const auto index = static_cast<std::size_t>(packet.psn - first_);
    if (ahead >= 0) {
        requests_.resize(index);
        requests_.push_back(now);
        const bool read = packet.opcode == roce::Opcode::kReadRequest;
        next_ = packet.psn + (read ? rnic::packets_of(packet.reth.length, limits_.mtu) : 1);
        requests_.resize(static_cast<std::size_t>(next_ - first_));
        return {};
    }
    if (packet.opcode == roce::Opcode::kReadRequest) return {};  // may be for the rest
    const Sent& then = requests_.at(index);
    if (!then.known) return {};
    if (then.opcode != now.opcode || then.payload != now.payload || then.length != now.length)
        return "a packet is not the same when sent again: " + hex(packet.psn.value());
    return {};
}

/// Whether an answer that goes back is that of a duplicate which has not had one yet.
bool WireCheck::answers_duplicate(const roce::Packet& packet) {
    if (packet.opcode != roce::Opcode::kAcknowledge ||
        roce::aeth_kind(packet.aeth.syndrome) == roce::AethKind::kNak) {
        // It begins with what was asked for, be it data or that they are not to be had.
        const auto duplicate = fetched_again_.find(packet.psn.value());
        if (duplicate == fetched_again_.end()) return false;
        fetched_again_.erase(duplicate);
        return true;
    }
    // An ACK names what has come, a NAK what comes next: back by this one step, no further.
    if (!last_was_nak_ || packet.psn + 1 != last_response_ || asked_again_ == 0) return false;
    --asked_again_;
    return true;
}

std::string WireCheck::response(const rnic::Qp& qp, const roce::Packet& packet,
                                std::uint64_t messages) {
    // 7: back only for a duplicate. Those of the local path are not seen here.
    if (limits_.wire_only && answered_ && packet.psn < last_response_ && !answers_duplicate(packet))
        return "answers go back without a duplicate: " + hex(packet.psn.value());
    if (packet.psn > qp.responder.expected())
        return "an answer to what has not come: " + hex(packet.psn.value());
    answered_ = true;
    last_response_ = packet.psn;
    last_was_nak_ = packet.info().has(roce::kHasAeth) &&
                    roce::aeth_kind(packet.aeth.syndrome) != roce::AethKind::kAck;
    if (!packet.info().has(roce::kHasAeth)) return {};
    // 6
    const std::uint32_t msn = packet.aeth.msn;
    if (msn < msn_) return "the MSN decreases to " + std::to_string(msn);
    if (msn > messages) return "the MSN passes the messages posted: " + std::to_string(msn);
    msn_ = msn;
    const roce::AethKind kind = roce::aeth_kind(packet.aeth.syndrome);
    if (kind == roce::AethKind::kReserved) return "a reserved syndrome";
    if (kind == roce::AethKind::kAck) return {};
    const bool fatal = kind == roce::AethKind::kNak &&
                       roce::nak_code(packet.aeth.syndrome) != roce::NakCode::kSequenceError;
    if (fatal) {
        fatal_sent_ = true;
        return {};
    }
    // 8
    if (naks_ == 0 || nak_psn_ != packet.psn) {
        nak_psn_ = packet.psn;
        naks_ = 0;
        // One that waits behind READ data may be sent when the gap is closed already.
        naks_base_ = again_before_;
    }
    if (limits_.wire_only && ++naks_ > 1 + again_ - naks_base_)
        return "a second NAK for " + hex(packet.psn.value());
    return {};
}

void WireCheck::arriving(const rnic::Qp& qp, const roce::Packet& packet) {
    const std::int32_t ahead = packet.psn - arrived_;
    const bool read = packet.opcode == roce::Opcode::kReadRequest;
    if (packet.psn < qp.responder.expected()) {
        if (read || packet.info().has(roce::kHasAtomic))
            fetched_again_.insert(packet.psn.value());
        else if (packet.ack_request)
            ++asked_again_;
    }
    if (ahead < 0)
        ++again_;
    else if (ahead < 1 << 20)  // else left over from another life
        arrived_ = packet.psn + (read ? rnic::packets_of(packet.reth.length, limits_.mtu) : 1);
}

std::string WireCheck::position(const rnic::Qp& qp) {
    const rnic::RequesterView view = qp.requester.view();
    return "state " + std::to_string(qp.state()) + ", una " + hex(view.una.value()) + ", snd " +
           hex(view.send.value()) + ", next " + hex(view.next.value()) + ", expects " +
           hex(qp.responder.expected().value()) + ", READs out " + std::to_string(view.reads_out) +
           (view.ack_timer ? ", ACK timer" : "") + (view.rnr_timer ? ", RNR timer" : "") +
           (view.stalled ? ", stalled" : "");
}

std::string WireCheck::at_rest(const rnic::Qp& qp) {
    const rnic::RequesterView view = qp.requester.view();
    const std::uint32_t state = qp.state();
    // 5
    const std::int32_t under_way = view.send - view.una;
    if (under_way < 0 || view.next < view.send || view.next - view.una < 0)
        return "una <= snd <= next_psn does not hold";
    if (view.reads_out > limits_.reads) return "more READs outstanding than the depth allows";
    if (limits_.wire_only &&
        static_cast<std::uint32_t>(under_way) - view.read_psns > limits_.window + view.reads_out)
        return "the window is exceeded";
    const Psn expected = qp.responder.expected();
    if (expected < expected_) return "the expected PSN moves back to " + hex(expected.value());
    if (expected != expected_) again_before_ = again_;
    expected_ = expected;
    // 10
    if (view.ack_timer && view.rnr_timer) return "ACK and RNR timer at once";
    if (view.ack_timer && under_way == 0 && !view.stalled)
        return "the ACK timer runs and nothing is outstanding";
    const rnic::ReceiveWait* const wait = qp.receive_wait.get();
    if (wait != nullptr && wait->timer() != (wait->size() > 0))
        return "requests wait without a timer, or a timer runs and none does";
    if (wait != nullptr && wait->size() > 0 && !qp.responds())
        return "requests wait in the wrong state";
    // 11: what was owed before the error, and the NAK that tells of it, may still be waiting.
    ended_ = state == MANA_HW_RNIC_QP_ERR && qp.responses.empty();
    if (qp.responses.empty()) {
        // What has no answer by now gets none.
        fetched_again_.clear();
        asked_again_ = 0;
    }
    return timers(qp);
}

std::string WireCheck::timers(const rnic::Qp& qp) {
    const rnic::RequesterView view = qp.requester.view();
    const std::uint32_t state = qp.state();
    const bool works = state == MANA_HW_RNIC_QP_RTS || state == MANA_HW_RNIC_QP_SQD;
    if (!works && (view.ack_timer || view.rnr_timer)) return "a timer runs in the wrong state";
    return {};
}

}  // namespace openmana::sim
