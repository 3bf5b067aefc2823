// SPDX-License-Identifier: Apache-2.0
// The stock queue format: work requests (RNIC 3.3-3.6, 7.2), armed completions (RNIC 3.8), error
// completions and the end of a QP's life (RNIC 3.9, 3.10).
#include "rnic/stock_queues.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/endian.h"
#include "rnic/datapath.h"

namespace openmana::rnic {

namespace {

/// An application that looks only at the CQ of the side that did not fail learns of it after this
/// long.
constexpr base::Duration kHold = std::chrono::milliseconds(100);

gdma::Ring make_ring(Datapath& datapath, std::unique_ptr<gdma::DmaRegion> region) {
    // What the region has beyond a power of two is not part of the ring (RNIC 3.3).
    const std::uint64_t bytes = std::bit_floor(region->length());
    return {datapath.memory, std::move(region), bytes};
}

std::optional<gdma::Ring> make_read_ring(Datapath& datapath,
                                         std::unique_ptr<gdma::DmaRegion> region) {
    if (!region) return std::nullopt;
    return make_ring(datapath, std::move(region));
}

roce::Gid gid_of_av(const std::uint8_t (&bytes)[16], bool ipv6) {
    roce::Gid gid{};
    if (ipv6) {
        std::reverse_copy(std::begin(bytes), std::end(bytes), gid.begin());
    } else {
        gid[10] = gid[11] = 0xff;
        std::reverse_copy(bytes + 12, bytes + 16, gid.begin() + 12);
    }
    return gid;
}

}  // namespace

StockQueues::StockQueues(Qp& qp, Regions regions)
    : qp_(qp),
      datapath_(qp.datapath),
      send_ring_(make_ring(datapath_, std::move(regions.send))),
      hold_timer_(datapath_.executor, [this] { flush_other_side(); }),
      receive_ring_(make_ring(datapath_, std::move(regions.receive))),
      read_ring_(make_read_ring(datapath_, std::move(regions.read_scatter))),
      held_(std::move(regions.held)) {}

// ---- doorbells

bool StockQueues::ring_sends(std::uint32_t position) {
    if (position - send_consumer_ > send_ring_.bytes()) {
        datapath_.counters.bad_doorbell.add();
        if (qp_.type == QpType::kRc && qp_.state() == MANA_HW_RNIC_QP_RTS)
            qp_.fail_send(MANA_HW_RNIC_VE_TX_MISBEHAVING, false);
        return false;
    }
    if (static_cast<std::int32_t>(position - send_producer_) > 0) send_producer_ = position;
    // The host goes on to arm its completion.
    datapath_.rqs.prefetch(qp_.ids.rreq);
    return true;
}

void StockQueues::ring_reads(std::uint32_t position) {
    if (!read_ring_ || position - read_consumer_ > read_ring_->bytes()) {
        datapath_.counters.bad_doorbell.add();
        return;
    }
    if (static_cast<std::int32_t>(position - read_producer_) > 0) read_producer_ = position;
}

bool StockQueues::ring_receives(std::uint32_t position) {
    // Without the lock, which a visitor may hold for a whole step: only the owner moves the
    // producer, and what a visitor consumes meanwhile makes the distance smaller.
    const std::uint32_t before = receive_producer_.load(std::memory_order_relaxed);
    if (position - receive_consumer_.load(std::memory_order_acquire) > receive_ring_.bytes()) {
        datapath_.counters.bad_doorbell.add();
        return false;
    }
    if (static_cast<std::int32_t>(position - before) > 0)
        receive_producer_.store(position, std::memory_order_release);
    return true;
}

void StockQueues::posted_in_error() {
    // A post that crossed the error is flushed, unless the flush of this side is still held back.
    if (!hold_timer_.armed()) flush_other_side();
}

// ---- sends

void StockQueues::fetch(SendWqe& wqe, Psn next) {
    const auto fetched = gdma::Wqe::fetch(
        send_ring_, send_consumer_, send_producer_ - send_consumer_, gdma::Wqe::kMaxSendBytes);
    if (!fetched) {
        wqe.error = fetched.error().code == base::ErrorCode::kOutOfRange
                        ? MANA_HW_RNIC_VE_TX_WQE_FETCH
                        : MANA_HW_RNIC_VE_TX_WQE_SIZE;
        wqe.kind = SegmentKind::kInvalid;
        wqe.error_on_rreq = false;
        wqe.packets = 1;
    } else {
        wqe.parse(*fetched, next, qp_.route.mtu);
        send_consumer_ += fetched->size();
    }
    if (wqe.error != 0) {
        datapath_.counters.malformed_sends.add();
        wqe.first = next;
        return;
    }
    if (wqe.is_read()) {
        take_scatter(wqe);
        return;
    }
    const gdma::MrFault fault = check_sges(datapath_.keys, qp_.pd->id, wqe.sges, gdma::kLocalRead);
    if (fault == gdma::MrFault::kNone) return;
    wqe.error = gather_error(fault);
    tally(datapath_.counters.send_protection, qp_.events.send_protection);
}

void StockQueues::prefetch_sends(std::uint32_t position) const {
    send_ring_.prefetch(send_consumer_, position - send_consumer_);
}

/// Far enough ahead that a key is there when its turn comes, near enough that it is still there.
void StockQueues::prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) {
    constexpr std::uint32_t kAhead = 1024;
    if (static_cast<std::int32_t>(peeked_ - send_consumer_) < 0) peeked_ = send_consumer_;
    while (static_cast<std::int32_t>(send_producer_ - peeked_) > 0 &&
           peeked_ - send_consumer_ < kAhead) {
        const auto wqe = gdma::Wqe::peek(send_ring_, peeked_);
        peeked_ = wqe.size == 0 ? send_producer_ : peeked_ + wqe.size;
        constexpr std::size_t kRkey = 8 + offsetof(mana_hw_rnic_send_oob, u.rdma.rkey);
        const std::size_t lkey = 8 + wqe.oob_size + offsetof(mana_hw_sge, key);
        if (wqe.size == 0 || lkey + sizeof(std::uint32_t) > wqe.bytes.size()) continue;
        own.prefetch(gdma::Key(base::load_le<std::uint32_t>(wqe.bytes.data() + lkey)));
        peer.prefetch(gdma::Key(base::load_le<std::uint32_t>(wqe.bytes.data() + kRkey)));
    }
}

/// Finds the scatter list of a READ by its PSN; older ones are left over from posts that failed
/// half-way (RNIC 3.6).
void StockQueues::take_scatter(SendWqe& wqe) {
    wqe.error_on_rreq = false;
    wqe.error = MANA_HW_RNIC_VE_TX_WQE_FIELD;
    while (read_ring_ && read_consumer_ != read_producer_) {
        const auto scatter =
            gdma::Wqe::fetch(*read_ring_, read_consumer_, read_producer_ - read_consumer_,
                             gdma::Wqe::kMaxReceiveBytes);
        if (!scatter) return;
        const Psn psn(base::load_le<std::uint32_t>(scatter->oob().data()));
        if (psn > wqe.first) return;
        read_consumer_ += scatter->size();
        if (psn != wqe.first) continue;
        wqe.sges.assign(scatter->sges().begin(), scatter->sges().end());
        wqe.error_on_rreq = true;
        if (scatter->total_length() != wqe.length) {
            wqe.error = MANA_HW_RNIC_VE_READ_LENGTH;
            return;
        }
        const gdma::MrFault fault =
            check_sges(datapath_.keys, qp_.pd->id, wqe.sges, gdma::kLocalWrite);
        wqe.error = fault == gdma::MrFault::kNone ? 0 : scatter_error(fault);
        if (wqe.error != 0) tally(datapath_.counters.send_protection, qp_.events.send_protection);
        return;
    }
}

void StockQueues::finished(const SendWqe& wqe) {
    acked_.store(wqe.last().value(), std::memory_order_relaxed);
}

void StockQueues::start_sends(Psn first) {
    acked_.store((first - 1).value(), std::memory_order_relaxed);
    reported_ = first - 1;
    armed_ = false;
}

void StockQueues::arm(Psn psn) {
    if (reported_ >= psn) return;
    arm_psn_ = psn;
    armed_ = true;
    settle();
}

void StockQueues::settle() {
    if (armed_ && acked() >= arm_psn_) post_armed();
}

void StockQueues::post_armed() {
    mana_hw_rnic_armed_cqe cqe{};
    cqe.type = MANA_HW_RNIC_CQE_ARMED;
    cqe.msn_syndrome = std::uint32_t{roce::kAckUnlimited} << MANA_HW_RNIC_CQE_SYNDROME_SHIFT;
    cqe.psn = acked().value();
    armed_ = false;
    reported_ = acked();
    datapath_.counters.armed_cqes.add();
    qp_.send_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rreq.value(), false);
}

// ---- datagrams (RNIC 7)

QueueFormat::Next StockQueues::next_datagram(Datagram& datagram) {
    if (!sends_posted()) return Next::kNone;
    const auto wqe = gdma::Wqe::fetch(send_ring_, send_consumer_, send_producer_ - send_consumer_,
                                      gdma::Wqe::kMaxSendBytes);
    if (!wqe) {
        // Where the next one starts is unknown, and UD send CQEs carry no errors (RNIC 7.4).
        datapath_.counters.malformed_sends.add();
        {
            const std::lock_guard lock(qp_.responder.mutex);
            qp_.set_state(MANA_HW_RNIC_QP_ERR);
        }
        datapath_.events.qp_fatal(qp_.qpn());
        return Next::kNone;
    }
    send_consumer_ += wqe->size();
    datagram_position_ = wqe->position();
    return build_datagram(*wqe, datagram) ? Next::kSend : Next::kDrop;
}

/// What cannot be sent is dropped without a word: the network could have done that as well.
bool StockQueues::build_datagram(const gdma::Wqe& wqe, Datagram& datagram) {
    mana_hw_rnic_send_oob oob{};
    std::memcpy(&oob, wqe.oob().data(), std::min(wqe.oob().size(), sizeof oob));
    const std::uint32_t opcode = oob.flags_psn & MANA_HW_RNIC_OOB_OPCODE;
    const auto sges = wqe.sges();
    mana_hw_rnic_av av{};
    gdma::SpanList& from = *datagram.payload;
    from.clear();
    if (wqe.oob().size() < sizeof oob || opcode > MANA_HW_RNIC_WQE_UD_SEND_IMM ||
        !wqe.oob_in_sgl() || sges.empty() || sges[0].length < sizeof av ||
        gather(datapath_.keys, qp_.pd->id, sges.first(1), 0, sizeof av, gdma::kLocalRead, from) !=
            gdma::MrFault::kNone)
        return false;
    std::size_t at = 0;
    for (const auto& span : from) {
        std::memcpy(reinterpret_cast<std::byte*>(&av) + at, span.data(), span.size());
        at += span.size();
    }

    const bool ipv6 = (av.path & MANA_HW_RNIC_AV_IPV6) != 0;
    roce::Packet& packet = datagram.packet;
    packet.opcode = opcode == MANA_HW_RNIC_WQE_UD_SEND ? roce::Opcode::kUdSendOnly
                                                       : roce::Opcode::kUdSendOnlyImm;
    packet.source = gid_of_av(av.source, ipv6);
    packet.destination = gid_of_av(av.dest, ipv6);
    std::reverse_copy(std::begin(av.dest_mac), std::end(av.dest_mac),
                      packet.destination_mac.begin());
    packet.dscp =
        static_cast<std::uint8_t>(av.path >> MANA_HW_RNIC_AV_DSCP_SHIFT & MANA_HW_RNIC_AV_DSCP);
    packet.hop_limit = static_cast<std::uint8_t>(av.path & MANA_HW_RNIC_AV_HOP_LIMIT);
    packet.udp_source_port = av.udp_source_port;
    packet.solicited = (oob.flags_psn & MANA_HW_RNIC_OOB_SOLICITED) != 0;
    packet.destination_qpn = roce::Qpn(oob.ssn & MANA_HW_RNIC_24BIT);
    packet.psn = Psn(oob.flags_psn >> MANA_HW_RNIC_OOB_PSN_SHIFT);
    packet.deth.qkey = QKey(oob.u.ud.qkey);
    base::store_be<std::uint32_t>(packet.immediate.data(), oob.u.ud.immediate);

    const auto payload = sges.subspan(1);
    datagram.length = total_length(payload);
    from.clear();
    const std::uint64_t most =
        std::min<std::uint64_t>(wqe.client_data_unit(), datapath_.config.port_mtu);
    return datagram.length <= most &&
           gather(datapath_.keys, qp_.pd->id, payload, 0, datagram.length, gdma::kLocalRead,
                  from) == gdma::MrFault::kNone;
}

void StockQueues::datagram_done() {
    mana_hw_rnic_ud_send_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
    cqe.wqe_offset = datagram_position_;
    qp_.send_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.sq.value(), true);
}

// ---- receives

QueueFormat::Take StockQueues::take(Receive& receive) {
    const std::uint32_t position = receive_consumer_.load(std::memory_order_relaxed);
    const std::uint32_t available = receive_producer_.load(std::memory_order_acquire) - position;
    if (available == 0) return Take::kEmpty;
    const auto wqe =
        gdma::Wqe::fetch(receive_ring_, position, available, gdma::Wqe::kMaxReceiveBytes);
    if (!wqe) return Take::kMalformed;
    receive.name = position;
    receive.pd = qp_.pd->id;
    receive.sges.assign(wqe->sges().begin(), wqe->sges().end());
    receive.total = wqe->total_length();
    receive_consumer_.store(position + wqe->size(), std::memory_order_release);
    return Take::kOk;
}

void StockQueues::received(const Receive& receive, const Received& message) {
    mana_hw_rnic_recv_cqe cqe{};
    if (message.kind == SegmentKind::kWrite)
        cqe.type = MANA_HW_RNIC_CQE_WRITE_IMM;
    else if (message.invalidate)
        cqe.type = MANA_HW_RNIC_CQE_SEND_INV;
    else
        cqe.type = message.immediate ? MANA_HW_RNIC_CQE_SEND_IMM : MANA_HW_RNIC_CQE_SEND;
    cqe.length = message.length;
    cqe.psn = message.psn.value();
    cqe.immediate = message.value;
    cqe.wqe_offset = receive.name;
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false,
                      message.solicited);
}

void StockQueues::received_datagram(const Receive& receive, const roce::Packet& packet,
                                    std::uint32_t length) {
    mana_hw_rnic_ud_recv_cqe cqe{};
    const bool immediate = packet.opcode == roce::Opcode::kUdSendOnlyImm;
    cqe.type = immediate ? MANA_HW_RNIC_CQE_UD_IMM : MANA_HW_RNIC_CQE_UD;
    cqe.length = length;
    cqe.source_qpn = packet.deth.source.value();
    if (immediate) cqe.immediate = base::load_be<std::uint32_t>(packet.immediate.data());
    cqe.wqe_offset = receive.name;
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false,
                      packet.solicited);
}

// ---- errors

bool StockQueues::report_send_error(std::uint16_t vendor, bool on_read_queue) {
    if (send_error_reported_ || (qp_.requester.idle() && !sends_posted())) return false;
    send_error_reported_ = true;
    // Rules a and b of RNIC 3.9: the providers blame the first WQE behind the PSN of the error.
    if (acked() != reported_) post_armed();
    datapath_.counters.error_cqes.add();
    mana_hw_rnic_error_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | std::uint32_t{vendor}
                                                   << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
    cqe.psn_opcode = acked().value();
    cqe.responder_psn = 0xffffffff;
    const std::uint32_t id = on_read_queue ? qp_.ids.rreq.value() : qp_.ids.sq.value();
    qp_.send_cq->post(std::as_bytes(std::span(&cqe, 1)), id, !on_read_queue);
    return true;
}

bool StockQueues::report_receive_error(std::uint16_t vendor) {
    const bool outstanding =
        qp_.responder.taken() || receive_producer_.load(std::memory_order_acquire) !=
                                     receive_consumer_.load(std::memory_order_relaxed);
    if (receive_error_reported_ || !outstanding) return false;
    receive_error_reported_ = true;
    datapath_.counters.error_cqes.add();
    mana_hw_rnic_error_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | std::uint32_t{vendor}
                                                   << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
    cqe.msn_syndrome = qp_.responder.msn();
    cqe.psn_opcode = qp_.type == QpType::kRc ? acked().value() : 0;
    cqe.responder_msn = qp_.responder.msn();
    cqe.responder_psn = 0xffffffff;
    qp_.recv_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.rq.value(), false);
    return true;
}

void StockQueues::send_failed(std::uint16_t vendor, bool on_read_queue) {
    const bool reported = datapath_.error_cqes.on() && report_send_error(vendor, on_read_queue);
    // A driver that did not ask for error CQEs may know nothing of them.
    if (!reported || !datapath_.error_cqes.wanted) datapath_.events.qp_fatal(qp_.qpn());
    if (datapath_.error_cqes.on()) hold_timer_.arm(kHold);
}

void StockQueues::receive_failed(roce::NakCode code, std::uint16_t vendor) {
    // A WRITE with immediate and a bad key: both sides are flushed, as for one without.
    if (code == roce::NakCode::kRemoteAccess) return;
    if (vendor != 0 && datapath_.error_cqes.on()) report_receive_error(vendor);
}

void StockQueues::responder_failed() {
    if (!datapath_.error_cqes.wanted) datapath_.events.qp_fatal(qp_.qpn());
    if (!datapath_.error_cqes.on()) return;
    bool reported = false;
    {
        const std::lock_guard lock(qp_.responder.mutex);
        reported = receive_error_reported_;
    }
    if (reported) {
        hold_timer_.arm(kHold);
        return;
    }
    // Neither side has a status of its own: flush both, and tell the host by the event if there is
    // nothing to flush.
    bool flushed = report_send_error(MANA_HW_RNIC_VE_FLUSHED, false);
    {
        const std::lock_guard lock(qp_.responder.mutex);
        flushed = report_receive_error(MANA_HW_RNIC_VE_FLUSHED) || flushed;
    }
    if (!flushed && datapath_.error_cqes.wanted) datapath_.events.qp_fatal(qp_.qpn());
}

void StockQueues::flush_other_side() {
    hold_timer_.cancel();
    if (!datapath_.error_cqes.on() || qp_.state() != MANA_HW_RNIC_QP_ERR) return;
    // The kernel's UD queues know no error completions (RNIC 7.4).
    if (qp_.type != QpType::kRc) return;
    report_send_error(MANA_HW_RNIC_VE_FLUSHED, false);
    const std::lock_guard lock(qp_.responder.mutex);
    report_receive_error(MANA_HW_RNIC_VE_FLUSHED);
}

void StockQueues::enter_error() {
    flush_other_side();
}

void StockQueues::reset() {
    hold_timer_.cancel();
    send_producer_ = send_consumer_ = peeked_ = read_producer_ = read_consumer_ = 0;
    send_error_reported_ = false;
    receive_producer_.store(0, std::memory_order_relaxed);
    receive_consumer_.store(0, std::memory_order_relaxed);
    receive_error_reported_ = false;
}

}  // namespace openmana::rnic
