// SPDX-License-Identifier: Apache-2.0
// The wire path of the requester: acknowledgements, READ data and results of atomics (ROCE 3).
#include <algorithm>

#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

using roce::Operation;
using roce::Position;

void Requester::take_credits(roce::Aeth aeth) {
    if (!credits_.limited() && roce::aeth_value(aeth.syndrome) == roce::kAckUnlimited) return;
    Psn oldest = credits_.newest() + 1;
    for (std::uint32_t i = 0; i < queue_.size(); ++i)
        if (!queue_.at(i).local) {
            oldest = queue_.at(i).ssn + queue_.at(i).done / part_;
            break;
        }
    credits_.take(aeth, oldest);
}

void Requester::receive(const roce::Packet& packet) {
    const std::uint32_t state = qp_.state();
    if ((state != MANA_HW_RNIC_QP_RTS && state != MANA_HW_RNIC_QP_SQD) || failure_ != 0) {
        datapath_.counters.drop_state.add();
        return;
    }
    const std::uint8_t syndrome = packet.aeth.syndrome;
    switch (packet.info().operation) {
        case Operation::kAcknowledge:
            switch (roce::aeth_kind(syndrome)) {
                case roce::AethKind::kAck: {
                    // A peer may say its last ACK again, to give credits.
                    const bool last = packet.psn == una_ - 1;
                    if (on_ack(packet.psn) || last) take_credits(packet.aeth);
                    break;
                }
                case roce::AethKind::kNak:
                case roce::AethKind::kRnrNak:
                    on_nak(packet.psn, syndrome);
                    break;
                case roce::AethKind::kReserved:
                    break;
            }
            break;
        case Operation::kReadResponse:
            on_read_response(packet);
            break;
        case Operation::kAtomicAcknowledge:
            on_atomic_response(packet);
            break;
        default:
            break;
    }
}

/// Puts what an atomic found into the memory that its request names.
bool Requester::place_original(SendWqe& wqe, std::uint64_t original) {
    gdma::SpanList& to = datapath_.scratch.to;
    to.clear();
    const gdma::MrFault fault =
        gather(datapath_.keys, qp_.pd->id, wqe.sges, 0, sizeof original, gdma::kLocalWrite, to);
    if (fault != gdma::MrFault::kNone) {
        tally(datapath_.counters.send_protection, qp_.events.send_protection);
        fail(scatter_error(fault), true);
        return false;
    }
    const auto bytes = std::as_writable_bytes(std::span(&original, 1));
    const std::span<std::byte> from(bytes);
    copy_spans(Spans(&from, 1), to, sizeof original);
    return true;
}

void Requester::on_atomic_response(const roce::Packet& packet) {
    const Psn psn = packet.psn;
    if (psn < una_ || psn >= next_psn_) {
        datapath_.counters.unexpected_acks.add();
        return;
    }
    if (roce::aeth_kind(packet.aeth.syndrome) != roce::AethKind::kAck) {
        fail(MANA_HW_RNIC_VE_BAD_RESPONSE);
        return;
    }
    if (psn != una_ && !ack_through(psn - 1)) return;
    if (queue_.empty() || !queue_.front().is_atomic() || queue_.front().first != psn) {
        fail(MANA_HW_RNIC_VE_BAD_RESPONSE);
        return;
    }
    if (!place_original(queue_.front(), packet.atomic_original)) return;
    advance_to(psn + 1);
    complete_front();
    take_credits(packet.aeth);
    progress();
}

void Requester::on_read_response(const roce::Packet& packet) {
    const Psn psn = packet.psn;
    if (psn < una_ || psn >= next_psn_) {
        datapath_.counters.unexpected_acks.add();
        return;
    }
    if (packet.info().has(roce::kHasAeth) &&
        roce::aeth_kind(packet.aeth.syndrome) != roce::AethKind::kAck) {
        fail(MANA_HW_RNIC_VE_BAD_RESPONSE);
        return;
    }
    bool moved = false;
    while (!queue_.empty() && !queue_.front().fetches() && !queue_.front().local &&
           queue_.front().last() < psn) {
        advance_to(queue_.front().last() + 1);
        complete_front();
        moved = true;
    }
    if (moved) progress();
    if (queue_.empty()) return;
    SendWqe& wqe = queue_.front();
    if (wqe.is_atomic() && wqe.first < psn) {
        tally(datapath_.counters.implicit_naks, qp_.events.implicit_naks);
        retry();
        return;
    }
    if (!wqe.is_read()) {
        fail(MANA_HW_RNIC_VE_BAD_RESPONSE);
        return;
    }
    const Psn expected = wqe.first + wqe.done;
    if (psn < expected) return;
    if (psn > expected) {
        tally(datapath_.counters.read_psn_mismatches, qp_.events.read_psn_mismatches);
        tally(datapath_.counters.implicit_naks, qp_.events.implicit_naks);
        retry();
        return;
    }
    const Position position = packet.info().position;
    const bool ends = position == Position::kLast || position == Position::kOnly;
    const bool last = wqe.done + 1 == part_end(wqe, wqe.done);
    const std::uint32_t offset = wqe.done * wqe.mtu;
    const std::uint32_t want = std::min(wqe.length - offset, wqe.mtu);
    if (wqe.done == part_begin(wqe.done) &&
        (position == Position::kMiddle || position == Position::kLast)) {
        fail(MANA_HW_RNIC_VE_BAD_RESPONSE);
        return;
    }
    if (ends != last || packet.payload.size() != want) {
        fail(MANA_HW_RNIC_VE_READ_LENGTH, true);
        return;
    }
    gdma::SpanList& to = datapath_.scratch.to;
    to.clear();
    const gdma::MrFault fault =
        gather(datapath_.keys, qp_.pd->id, wqe.sges, offset, want, gdma::kLocalWrite, to);
    if (fault != gdma::MrFault::kNone) {
        tally(datapath_.counters.send_protection, qp_.events.send_protection);
        fail(scatter_error(fault), true);
        return;
    }
    // The frame is ours and is not written to.
    const std::span<std::byte> payload(const_cast<std::byte*>(packet.payload.data()),
                                       packet.payload.size());
    copy_spans(Spans(&payload, 1), to, want);
    tally(datapath_.counters.rx_bytes, traffic.rx_bytes, want);
    ++wqe.done;
    // Else it was about to be asked for, or was asked for by the local path, which counts nothing.
    std::uint32_t& under_way = last ? reads_out_ : read_psns_;
    if (send_psn_ > expected && under_way > 0) --under_way;
    advance_to(expected + 1);
    if (wqe.done == wqe.packets) complete_front();
    if (packet.info().has(roce::kHasAeth)) take_credits(packet.aeth);
    progress();
}

}  // namespace openmana::rnic
