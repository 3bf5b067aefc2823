// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/endian.h"
#include "rnic/adapter.h"

namespace openmana::rnic {

using roce::NakCode;

namespace {

constexpr std::uint32_t kMaxMessage = 1U << 31;

}  // namespace

bool Responder::ring(std::uint32_t position) {
    // Without the lock, which a visitor may hold for a whole step: only the owner moves the
    // producer, and what a visitor consumes meanwhile makes the distance smaller.
    const std::uint32_t before = producer_.load(std::memory_order_relaxed);
    if (position - consumer_.load(std::memory_order_acquire) > ring_.bytes()) return false;
    if (static_cast<std::int32_t>(position - before) > 0)
        producer_.store(position, std::memory_order_release);
    return true;
}

void Responder::start(Psn expected) {
    expected_ = expected;
    nak_sent_ = false;
    message_ = SegmentKind::kInvalid;
    reads_.clear();
    next_read_ = 0;
}

void Responder::reset() {
    producer_.store(0, std::memory_order_relaxed);
    consumer_.store(0, std::memory_order_relaxed);
    msn_ = 0;
    start(Psn(0));
    error_reported_ = false;
    offset_ = 0;
    taken_ = false;
}

Answer Responder::nak_sequence() {
    nak_sent_ = true;
    return {Answer::Kind::kNak, roce::nak_syndrome(NakCode::kSequenceError), expected_, msn_, {}};
}

Answer Responder::fatal(NakCode code, std::uint16_t receive_error, bool nak) {
    RnicCounters& counters = qp_.adapter.counters;
    counters.fatal_errors.add();
    ++qp_.errors;
    qp_.set_state(MANA_HW_RNIC_QP_ERR);
    if (receive_error != 0 && qp_.adapter.error_cqes()) report_error(receive_error);
    qp_.adapter.post_to(qp_, [](Qp& qp) { qp.responder_failed(); });
    if (!nak) return {};
    return {Answer::Kind::kNak, roce::nak_syndrome(code), expected_, msn_, {}};
}

Answer Responder::refuse_read(Psn psn) {
    if (!qp_.responds()) return {};
    qp_.adapter.counters.remote_access.add();
    Answer answer = fatal(NakCode::kRemoteAccess, 0);
    answer.psn = psn;
    return answer;
}

bool Responder::report_error(std::uint16_t vendor) {
    if (error_reported_ || !outstanding()) return false;
    error_reported_ = true;
    qp_.adapter.counters.error_cqes.add();
    const std::uint32_t acked = qp_.type == QpType::kRc ? qp_.requester.acked().value() : 0;
    mana_hw_rnic_error_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | std::uint32_t{vendor}
                                                   << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
    cqe.msn_syndrome = msn_;
    cqe.psn_opcode = acked;
    cqe.responder_msn = msn_;
    cqe.responder_psn = 0xffffffff;
    qp_.recv_cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false);
    return true;
}

Responder::Take Responder::take_receive() {
    const std::uint32_t position = consumer_.load(std::memory_order_relaxed);
    const std::uint32_t available = producer_.load(std::memory_order_acquire) - position;
    if (available == 0) return Take::kEmpty;
    const auto wqe = gdma::Wqe::fetch(ring_, position, available, gdma::Wqe::kMaxReceiveBytes);
    if (!wqe) return Take::kMalformed;
    taken_ = true;
    taken_position_ = position;
    taken_sges_.assign(wqe->sges().begin(), wqe->sges().end());
    taken_total_ = wqe->total_length();
    consumer_.store(position + wqe->size(), std::memory_order_release);
    return Take::kOk;
}

void Responder::complete_receive(const Segment& segment) {
    mana_hw_rnic_recv_cqe cqe{};
    if (segment.kind == SegmentKind::kWrite)
        cqe.type = MANA_HW_RNIC_CQE_WRITE_IMM;
    else
        cqe.type = segment.immediate ? MANA_HW_RNIC_CQE_SEND_IMM : MANA_HW_RNIC_CQE_SEND;
    cqe.length = offset_;
    cqe.psn = (expected_ - 1).value();
    cqe.immediate = segment.value;
    cqe.wqe_offset = taken_position_;
    taken_ = false;
    qp_.recv_cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false);
}

Answer Responder::execute(const Segment& segment) {
    Adapter& adapter = qp_.adapter;
    RnicCounters& counters = adapter.counters;
    const std::uint32_t state = qp_.state();
    if (state != MANA_HW_RNIC_QP_RTR && state != MANA_HW_RNIC_QP_RTS &&
        state != MANA_HW_RNIC_QP_SQD) {
        counters.drop_state.add();
        return {};
    }
    const std::int32_t ahead = segment.psn - expected_;
    if (ahead > 0) {
        counters.out_of_sequence.add();
        return nak_sent_ ? Answer{} : nak_sequence();
    }
    if (ahead < 0) return duplicate(segment);
    nak_sent_ = false;

    // ROCE 4.3, in its order.
    if (segment.kind == SegmentKind::kInvalid)
        return fatal(NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_OPCODE);
    if (segment.kind == SegmentKind::kRead) {
        if (message_ != SegmentKind::kInvalid)
            return fatal(NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_OPCODE);
        return read(segment);
    }
    const bool send = segment.kind == SegmentKind::kSend;
    if (message_ != (segment.first ? SegmentKind::kInvalid : segment.kind))
        return fatal(NakCode::kInvalidRequest, taken_ ? MANA_HW_RNIC_VE_RX_OPCODE : 0);
    if (!send && segment.first &&
        (qp_.attributes.access & MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE) == 0)
        return fatal(NakCode::kInvalidRequest, 0);
    const bool needs_receive = send ? segment.first : segment.last && segment.immediate;
    if (needs_receive && !taken_) {
        const Take take = take_receive();
        if (take == Take::kEmpty) {
            counters.rnr_naks_sent.add();
            nak_sent_ = true;
            return {Answer::Kind::kRnr,
                    roce::rnr_syndrome(static_cast<std::uint8_t>(qp_.attributes.min_rnr_timer)),
                    expected_,
                    msn_,
                    {}};
        }
        if (take == Take::kMalformed) {
            counters.malformed_receives.add();
            return fatal(NakCode::kRemoteOperational, MANA_HW_RNIC_VE_RX_MALFORMED_WQE);
        }
    }
    if (segment.first) {
        offset_ = 0;
        write_ = segment.reth;
    }

    // Lengths, ROCE 4.5.
    const std::uint64_t mtu = qp_.attributes.mtu;
    const std::uint64_t room = segment.packets * mtu;
    bool fits = segment.length <= room;
    if (!segment.last) fits = segment.length == room;
    if (segment.last && !(segment.first && segment.length == 0))
        fits = fits && segment.length > room - mtu;
    if (!send) {
        const std::uint64_t after = std::uint64_t{offset_} + segment.length;
        fits = fits && write_.length <= kMaxMessage &&
               (segment.last ? after == write_.length : after < write_.length);
    }
    if (!fits) return fatal(NakCode::kInvalidRequest, taken_ ? MANA_HW_RNIC_VE_RX_OPCODE : 0);

    to_.clear();
    if (send) {
        if (offset_ > taken_total_ || segment.length > taken_total_ - offset_) {
            counters.receive_too_long.add();
            return fatal(NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_TOO_LONG);
        }
        const gdma::MrFault fault = gather(adapter.keys(), qp_.pd.id, taken_sges_, offset_,
                                           segment.length, gdma::kLocalWrite, to_);
        if (fault != gdma::MrFault::kNone) {
            counters.receive_qp_errors.add();
            return fatal(NakCode::kRemoteOperational, scatter_error(fault));
        }
    } else {
        // The whole range before the first byte is placed; each part again, since the region may be
        // gone by then.
        gdma::MrFault fault = gdma::MrFault::kNone;
        if (segment.first && !segment.last)
            fault = check_access(adapter.keys(), gdma::Key(write_.rkey), qp_.pd.id, write_.address,
                                 write_.length, gdma::kRemoteWrite);
        if (fault == gdma::MrFault::kNone)
            fault =
                adapter.keys().resolve(gdma::Key(write_.rkey), qp_.pd.id, write_.address + offset_,
                                       segment.length, gdma::kRemoteWrite, to_);
        if (fault != gdma::MrFault::kNone) {
            counters.remote_access.add();
            return fatal(NakCode::kRemoteAccess, 0);
        }
    }
    copy_spans(segment.payload, to_, segment.length);
    offset_ += segment.length;
    bytes += segment.length;
    counters.rx_bytes.add(segment.length);
    if (segment.invalidate && segment.last) {
        // No key of this ABI can be invalidated from afar: class J of ROCE 4.4.
        return fatal(NakCode::kInvalidRequest, MANA_HW_RNIC_VE_RX_RKEY, false);
    }
    expected_ += segment.packets;
    message_ = segment.last ? SegmentKind::kInvalid : segment.kind;
    if (segment.last) {
        msn_ = (msn_ + 1) & Psn::kMask;
        ++messages;
        (send ? counters.rx_sends : counters.rx_writes).add();
        if (send || segment.immediate) complete_receive(segment);
    }
    if (!segment.ack_request) return {Answer::Kind::kSilent, 0, expected_ - 1, msn_, {}};
    return {Answer::Kind::kAck, roce::kAckUnlimited, expected_ - 1, msn_, {}};
}

Answer Responder::read(const Segment& segment) {
    RnicCounters& counters = qp_.adapter.counters;
    if ((qp_.attributes.access & MANA_HW_RNIC_QP_ACCESS_REMOTE_READ) == 0 ||
        qp_.attributes.max_read_in == 0 || segment.reth.length > kMaxMessage || segment.length != 0)
        return fatal(NakCode::kInvalidRequest, 0);
    const gdma::MrFault fault =
        check_access(qp_.adapter.keys(), gdma::Key(segment.reth.rkey), qp_.pd.id,
                     segment.reth.address, segment.reth.length, gdma::kRemoteRead);
    if (fault != gdma::MrFault::kNone) {
        counters.remote_access.add();
        return fatal(NakCode::kRemoteAccess, 0);
    }
    if (reads_.empty()) reads_.resize(kReadEntries);
    const std::uint32_t packets = packets_of(segment.reth.length, qp_.attributes.mtu);
    reads_[next_read_] = {segment.psn, packets, segment.reth.address, segment.reth.rkey,
                          segment.reth.length};
    next_read_ = (next_read_ + 1) % kReadEntries;
    expected_ += packets;
    msn_ = (msn_ + 1) & Psn::kMask;
    ++messages;
    counters.rx_reads.add();
    return {Answer::Kind::kRead,
            roce::kAckUnlimited,
            segment.psn,
            msn_,
            {segment.psn, segment.reth.length, segment.reth.address, segment.reth.rkey, 0}};
}

Answer Responder::duplicate(const Segment& segment) {
    RnicCounters& counters = qp_.adapter.counters;
    if (!segment.continued) counters.duplicates.add();
    if (segment.kind == SegmentKind::kRead) {
        const std::uint64_t mtu = qp_.attributes.mtu;
        for (const ReadEntry& entry : reads_) {
            if (entry.packets == 0) continue;
            const std::int32_t behind = segment.psn - entry.first;
            if (behind < 0 || static_cast<std::uint32_t>(behind) >= entry.packets) continue;
            const std::uint64_t skipped = static_cast<std::uint64_t>(behind) * mtu;
            if (segment.reth.rkey != entry.rkey ||
                segment.reth.address != entry.address + skipped ||
                segment.reth.length != entry.length - skipped)
                continue;
            return {Answer::Kind::kRead,
                    roce::kAckUnlimited,
                    segment.psn,
                    msn_,
                    {segment.psn, segment.reth.length, segment.reth.address, segment.reth.rkey, 0}};
        }
        return {};
    }
    if (!segment.ack_request || segment.kind == SegmentKind::kInvalid) return {};
    // A gap that is still there after a retransmission is reported again.
    nak_sent_ = false;
    return {Answer::Kind::kAck, roce::kAckUnlimited, expected_ - 1, msn_, {}};
}

bool Responder::deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length) {
    RnicCounters& counters = qp_.adapter.counters;
    const std::uint64_t needed = 40 + std::uint64_t{length};
    if (!qp_.responds()) {
        counters.drop_state.add();
        return false;
    }
    const std::uint32_t qkey = qp_.type == QpType::kGsi ? 0x80010000U : qp_.attributes.qkey;
    if (packet.deth.qkey != qkey) {
        counters.drop_qkey.add();
        return false;
    }
    // A receive that was too small for an earlier datagram is kept for the next one.
    to_.clear();
    if ((!taken_ && take_receive() != Take::kOk) || needed > taken_total_ ||
        gather(qp_.adapter.keys(), qp_.pd.id, taken_sges_, 0, needed, gdma::kLocalWrite, to_) !=
            gdma::MrFault::kNone) {
        counters.drop_no_receive.add();
        return false;
    }
    std::array<std::byte, 40> grh{};
    roce::write_grh(packet, length, grh);
    from_.assign(1, std::span(grh));
    from_.insert(from_.end(), payload.begin(), payload.end());
    copy_spans(from_, to_, needed);
    mana_hw_rnic_ud_recv_cqe cqe{};
    const bool immediate = packet.opcode == roce::Opcode::kUdSendOnlyImm;
    cqe.type = immediate ? MANA_HW_RNIC_CQE_UD_IMM : MANA_HW_RNIC_CQE_UD;
    cqe.length = static_cast<std::uint32_t>(needed);
    cqe.source_qpn = packet.deth.source.value();
    if (immediate) cqe.immediate = base::load_be<std::uint32_t>(packet.immediate.data());
    cqe.wqe_offset = taken_position_;
    taken_ = false;
    ++messages;
    bytes += length;
    counters.rx_bytes.add(length);
    qp_.recv_cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false);
    return true;
}

}  // namespace openmana::rnic
