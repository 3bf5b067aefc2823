// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_queues.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/endian.h"
#include "rnic/datapath.h"

namespace openmana::rnic {

namespace {

constexpr unsigned kSqProducer = offsetof(mana_hw_ext_qp_record, sq_producer) / 4;
constexpr unsigned kSqKick = offsetof(mana_hw_ext_qp_record, sq_kick) / 4;
constexpr unsigned kRqProducer = offsetof(mana_hw_ext_qp_record, rq_producer) / 4;
constexpr unsigned kRqKick = offsetof(mana_hw_ext_qp_record, rq_kick) / 4;

std::uint8_t send_status(std::uint16_t vendor) {
    switch (vendor) {
        case MANA_HW_RNIC_VE_TX_LENGTH:
        case MANA_HW_RNIC_VE_READ_LENGTH:
            return MANA_HW_WC_LOC_LEN_ERR;
        case MANA_HW_RNIC_VE_TX_DATA_ACCESS:
        case MANA_HW_RNIC_VE_TX_DATA_RANGE:
        case MANA_HW_RNIC_VE_TX_DATA_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_ACCESS:
        case MANA_HW_RNIC_VE_RX_SGE_RANGE:
            return MANA_HW_WC_LOC_PROT_ERR;
        case MANA_HW_RNIC_VE_FLUSHED:
            return MANA_HW_WC_WR_FLUSH_ERR;
        case MANA_HW_EXT_VE_MEMORY_OPERATION:
            return MANA_HW_WC_MW_BIND_ERR;
        case MANA_HW_RNIC_VE_BAD_RESPONSE:
            return MANA_HW_WC_BAD_RESP_ERR;
        case MANA_HW_RNIC_VE_NAK_INVALID_REQUEST:
            return MANA_HW_WC_REM_INV_REQ_ERR;
        case MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS:
            return MANA_HW_WC_REM_ACCESS_ERR;
        case MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION:
            return MANA_HW_WC_REM_OP_ERR;
        case MANA_HW_RNIC_VE_RETRY:
            return MANA_HW_WC_RETRY_EXC_ERR;
        case MANA_HW_RNIC_VE_RNR_RETRY:
            return MANA_HW_WC_RNR_RETRY_EXC_ERR;
        default:
            return MANA_HW_WC_LOC_QP_OP_ERR;
    }
}

/// ROCE 4.4.
std::uint8_t receive_status(std::uint16_t vendor) {
    switch (vendor) {
        case MANA_HW_RNIC_VE_RX_TOO_LONG:
            return MANA_HW_WC_LOC_LEN_ERR;
        case MANA_HW_RNIC_VE_RX_SGE_KEY:
        case MANA_HW_RNIC_VE_RX_SGE_ACCESS:
        case MANA_HW_RNIC_VE_RX_SGE_RANGE:
            return MANA_HW_WC_LOC_PROT_ERR;
        case MANA_HW_RNIC_VE_RX_OPCODE:
        case MANA_HW_RNIC_VE_RX_RKEY:
            return MANA_HW_WC_REM_INV_REQ_ERR;
        default:
            return MANA_HW_WC_LOC_QP_OP_ERR;
    }
}

}  // namespace

const ExtQueues::Outcome ExtQueues::kFlushedOutcome{MANA_HW_WC_WR_FLUSH_ERR,
                                                    MANA_HW_RNIC_VE_FLUSHED};

// ---- sends

ExtQueues::ExtQueues(Qp& qp, Layout layout)
    : qp_(qp),
      datapath_(qp.datapath),
      privileged_(layout.privileged),
      send_ring_(datapath_.memory, layout.region, layout.sq_bytes),
      record_(datapath_.memory, layout.region, std::uint64_t{layout.sq_bytes} + layout.rq_bytes),
      srq_(std::move(layout.srq)) {
    if (layout.rq_bytes != 0)
        receives_.emplace(
            gdma::Ring(datapath_.memory, layout.region, layout.rq_bytes, layout.sq_bytes),
            layout.rq_stride);
    record_.store(kSqKick, 1);
    record_.store(kRqKick, 0);
}

ExtQueues::~ExtQueues() {
    datapath_.records.unwatch(*this);
}

bool ExtQueues::look() {
    const std::uint32_t producer = record_.load(kSqProducer).value_or(send_producer_);
    if (producer == send_producer_ || bad_record_) return false;
    if (producer - send_consumer_ > send_ring_.bytes() / MANA_HW_EXT_WQE_UNIT) {
        // Found by fetch(), when what was posted before is done. What it says is not looked for.
        bad_record_ = true;
        datapath_.counters.bad_records.add();
        return true;
    }
    send_producer_ = producer;
    return true;
}

bool ExtQueues::sleep() {
    record_.store(kSqKick, 1);
    // Partner: the full barrier of the host between its producer and its look at the kick word.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return look();
}

void ExtQueues::wake() {
    record_.store(kSqKick, 0);
}

bool ExtQueues::ring_sends(std::uint32_t) {
    // The position in the doorbell says nothing that the record does not.
    (void)look();
    if (qp_.state() == MANA_HW_RNIC_QP_RTS) datapath_.records.watch(*this);
    return true;
}

bool ExtQueues::ring_receives(std::uint32_t) {
    return true;
}

bool ExtQueues::sends_posted() {
    if (send_consumer_ == send_producer_) (void)look();
    return bad_record_ || send_consumer_ != send_producer_;
}

// ---- datagrams

QueueFormat::Next ExtQueues::next_datagram(Datagram& datagram) {
    if (!sends_posted()) return Next::kNone;
    SendWqe& wqe = datagram_;
    wqe.clear();
    wqe.position = send_consumer_;
    if (send_consumer_ == send_producer_) {
        datagrams_failed(MANA_HW_RNIC_VE_TX_MISBEHAVING);
        event(MANA_HW_EXT_EVENT_QP_FATAL);  // a bad record
        flush();
        return Next::kNone;
    }
    const auto bytes = take_wqe(wqe.error);
    mana_hw_ext_ud ud{};
    if (!bytes.empty()) {
        const auto control = ext_segment_at<mana_hw_ext_control>(bytes, 0);
        wqe.opcode = control.opcode;
        wqe.signaled = (control.flags & MANA_HW_EXT_WQE_SIGNALED) != 0;
        wqe.solicited = (control.flags & MANA_HW_EXT_WQE_SOLICITED) != 0;
        wqe.is_inline = (control.flags & MANA_HW_EXT_WQE_INLINE) != 0;
        wqe.value = control.value;
        if (control.opcode > MANA_HW_EXT_WQE_SEND_IMM) {
            wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
        } else if (bytes.size() < kExtControlBytes + sizeof ud) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
        } else {
            ud = ext_segment_at<mana_hw_ext_ud>(bytes, kExtControlBytes);
            wqe.error = parse_data(wqe, bytes, kExtControlBytes + sizeof ud, control.inline_bytes);
        }
        if (wqe.error == 0 && wqe.length > datapath_.config.port_mtu)
            wqe.error = MANA_HW_RNIC_VE_TX_LENGTH;
    }
    datagram.payload->clear();
    if (wqe.error != 0) {
        datapath_.counters.malformed_sends.add();
    } else {
        const gdma::MrFault fault =
            gather_payload(datapath_.keys, qp_.pd->id, wqe, 0, wqe.length, *datagram.payload);
        if (fault != gdma::MrFault::kNone) {
            tally(datapath_.counters.send_protection, qp_.events.send_protection);
            wqe.error = gather_error(fault);
        }
    }
    if (wqe.error != 0) {
        datagrams_failed(wqe.error);
        complete_send(wqe, {send_status(wqe.error), wqe.error});
        flush();
        return Next::kNone;
    }
    roce::Packet& packet = datagram.packet;
    packet.opcode = wqe.opcode == MANA_HW_EXT_WQE_SEND ? roce::Opcode::kUdSendOnly
                                                       : roce::Opcode::kUdSendOnlyImm;
    std::copy(std::begin(ud.source_gid), std::end(ud.source_gid), packet.source.begin());
    std::copy(std::begin(ud.dest_gid), std::end(ud.dest_gid), packet.destination.begin());
    std::copy(std::begin(ud.dest_mac), std::end(ud.dest_mac), packet.destination_mac.begin());
    packet.dscp = ud.traffic_class >> 2;
    packet.hop_limit = ud.hop_limit;
    packet.flow_label = ud.flow_label & 0xfffff;
    packet.udp_source_port = ud.udp_source_port;
    packet.solicited = wqe.solicited;
    packet.destination_qpn = roce::Qpn(ud.dest_qpn & MANA_HW_RNIC_24BIT);
    packet.psn = datagram_psn_;
    packet.deth.qkey = QKey(ud.qkey);
    base::store_be<std::uint32_t>(packet.immediate.data(), wqe.value);
    ++datagram_psn_;
    datagram.length = wqe.length;
    return Next::kSend;
}

void ExtQueues::datagrams_failed(std::uint16_t vendor) {
    const std::lock_guard lock(qp_.responder.mutex);
    qp_.set_state(stops_sends_only(vendor) ? MANA_HW_RNIC_QP_SQE : MANA_HW_RNIC_QP_ERR);
    tally(datapath_.counters.fatal_errors, qp_.events.fatal_errors);
}

void ExtQueues::datagram_done() {
    finished(datagram_);
}

// ---- completions

void ExtQueues::post(gdma::CompletionQueue& cq, mana_hw_ext_cqe& cqe, bool is_sq, bool solicited) {
    cqe.type = MANA_HW_EXT_CQE;
    cqe.timestamp = static_cast<std::uint64_t>(datapath_.executor.now().time_since_epoch().count());
    cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.qpn().value(), is_sq, solicited);
}

void ExtQueues::complete_send(const SendWqe& wqe, Outcome outcome) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = wqe.opcode;
    cqe.status = outcome.status;
    cqe.vendor_error = outcome.vendor;
    cqe.length = wqe.length;
    cqe.cookie = wqe.position;
    if (outcome.status != MANA_HW_WC_SUCCESS) datapath_.counters.error_cqes.add();
    post(*qp_.send_cq, cqe, true, outcome.status != MANA_HW_WC_SUCCESS);
}

void ExtQueues::complete_receive(const Receive& receive, Outcome outcome) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    cqe.status = outcome.status;
    cqe.vendor_error = outcome.vendor;
    cqe.cookie = receive.name;
    datapath_.counters.error_cqes.add();
    post(*qp_.recv_cq, cqe, false, true);
}

void ExtQueues::finished(const SendWqe& wqe) {
    if (wqe.signaled) complete_send(wqe, {});
}

void ExtQueues::settle() {
    state_changed();
}

void ExtQueues::state_changed() {
    if (qp_.state() != MANA_HW_RNIC_QP_SQD) {
        drained_reported_ = false;
    } else if (!drained_reported_ && qp_.requester.drained()) {
        drained_reported_ = true;
        event(MANA_HW_EXT_EVENT_SQ_DRAINED);
    }
}

void ExtQueues::start_sends(Psn first) {
    datagram_psn_ = first;
}

QueueFormat::Take ExtQueues::take(Receive& receive) {
    if (srq_ != nullptr) return srq_->take(receive);
    if (!receives_) return Take::kEmpty;
    receive.pd = qp_.pd->id;
    receive.named = false;
    const auto producer = record_.load(kRqProducer);
    bool bad_index = false;
    const Take taken = producer ? receives_->take(*producer, receive, bad_index) : Take::kMalformed;
    if (bad_index) datapath_.counters.bad_records.add();
    return taken;
}

void ExtQueues::received(const Receive& receive, const Received& message) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode =
        message.kind == SegmentKind::kWrite ? MANA_HW_EXT_WC_RECV_WRITE_IMM : MANA_HW_EXT_WC_RECV;
    cqe.flags = static_cast<std::uint8_t>((message.immediate ? MANA_HW_EXT_CQE_IMMEDIATE : 0) |
                                          (message.invalidate ? MANA_HW_EXT_CQE_INVALIDATED : 0) |
                                          (message.solicited ? MANA_HW_EXT_CQE_SOLICITED : 0));
    cqe.length = message.length;
    cqe.cookie = receive.name;
    cqe.value = message.immediate || message.invalidate ? message.value : 0;
    cqe.source_qpn = qp_.route.dest_qpn.value();
    post(*qp_.recv_cq, cqe, false, message.solicited);
}

/// A receive of an SRQ may not stay with one of its queue pairs, where it may never be used.
bool ExtQueues::abandoned(const Receive& receive) {
    if (srq_ == nullptr) return false;
    complete_receive(receive, {MANA_HW_WC_REM_ABORT_ERR, MANA_HW_RNIC_VE_RX_OPCODE});
    return true;
}

void ExtQueues::received_datagram(const Receive& receive, const roce::Packet& packet,
                                  std::uint32_t length) {
    const bool immediate = packet.opcode == roce::Opcode::kUdSendOnlyImm;
    mana_hw_ext_cqe cqe{};
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    cqe.flags = static_cast<std::uint8_t>(
        MANA_HW_EXT_CQE_GRH | (immediate ? MANA_HW_EXT_CQE_IMMEDIATE : 0) |
        (packet.solicited ? MANA_HW_EXT_CQE_SOLICITED : 0) |
        (roce::is_ipv4(packet.source) ? MANA_HW_EXT_CQE_IPV4 : 0));
    cqe.length = length;
    cqe.cookie = receive.name;
    if (immediate) cqe.value = base::load_be<std::uint32_t>(packet.immediate.data());
    cqe.source_qpn = packet.deth.source.value();
    std::copy(packet.source_mac.begin(), packet.source_mac.end(), std::begin(cqe.source_mac));
    post(*qp_.recv_cq, cqe, false, packet.solicited);
}

// ---- errors

void ExtQueues::event(std::uint32_t number) {
    datapath_.events.extension(qp_.qpn(), number);
}

void ExtQueues::established() {
    event(MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED);
}

void ExtQueues::flush() {
    datapath_.records.unwatch(*this);
    const bool both = qp_.state() == MANA_HW_RNIC_QP_ERR;
    record_.store(kSqKick, 1);
    if (both) record_.store(kRqKick, 1);
    // Partner: the full barrier of the host between a producer and its look at the kick word.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    flush_sends();
    if (both) flush_receives();
}

void ExtQueues::flush_sends() {
    while (const SendWqe* wqe = qp_.requester.take_failed())
        if (wqe->error != MANA_HW_RNIC_VE_TX_MISBEHAVING) complete_send(*wqe, kFlushedOutcome);
    (void)look();
    SendWqe wqe;
    while (send_consumer_ != send_producer_) {
        wqe.position = send_consumer_;
        const auto bytes = take_wqe(wqe.error);
        if (bytes.empty()) {
            // Where the next one starts is unknown.
            datapath_.counters.malformed_sends.add();
            send_consumer_ = send_producer_;
            return;
        }
        wqe.opcode = std::to_integer<std::uint8_t>(bytes[0]);
        complete_send(wqe, kFlushedOutcome);
    }
}

void ExtQueues::flush_receives() {
    const std::lock_guard lock(qp_.responder.mutex);
    flush_taken();
    if (srq_ != nullptr) {
        if (!last_receive_reported_) event(MANA_HW_EXT_EVENT_LAST_WQE_REACHED);
        last_receive_reported_ = true;
        return;
    }
    Receive receive;
    // At most what a ring holds in one go; the host rings for more.
    for (std::uint32_t n = receives_ ? receives_->entries() : 0; n > 0; --n) {
        const Take taken = take(receive);
        if (taken == Take::kEmpty || (taken == Take::kMalformed && !receive.named)) return;
        complete_receive(receive, kFlushedOutcome);
    }
}

/// The receive that a message is using, if there is one. Held: the responder's mutex.
void ExtQueues::flush_taken() {
    if (!qp_.responder.taken()) return;
    complete_receive(qp_.responder.receive(), kFlushedOutcome);
    qp_.responder.drop_receive();
}

void ExtQueues::give_back() {
    // A receive of the QP's own ring ends with the ring; that of an SRQ belongs to who posted it.
    if (srq_ != nullptr) flush_taken();
}

/// A request of an unreliable QP that cannot be executed stops its send queue (IBTA 10.3.1): SQE.
/// An impossible producer index leaves nothing to go on with.
bool ExtQueues::stops_sends_only(std::uint16_t vendor) const {
    return qp_.type != QpType::kRc && vendor != MANA_HW_RNIC_VE_TX_MISBEHAVING;
}

void ExtQueues::send_failed(std::uint16_t vendor, bool) {
    const SendWqe* const wqe =
        vendor == MANA_HW_RNIC_VE_TX_MISBEHAVING ? nullptr : qp_.requester.take_failed();
    if (wqe != nullptr)
        complete_send(*wqe, {send_status(vendor), vendor});
    else
        event(MANA_HW_EXT_EVENT_QP_FATAL);
    flush();
}

void ExtQueues::receive_failed(roce::NakCode code, std::uint16_t vendor) {
    if (vendor != 0 && qp_.responder.taken()) {
        const bool access = code == roce::NakCode::kRemoteAccess;
        const std::uint8_t status =
            access ? std::uint8_t{MANA_HW_WC_LOC_ACCESS_ERR} : receive_status(vendor);
        complete_receive(qp_.responder.receive(), {status, vendor});
        qp_.responder.drop_receive();
        return;
    }
    switch (code) {
        case roce::NakCode::kInvalidRequest:
            event(MANA_HW_EXT_EVENT_QP_REQUEST_ERROR);
            break;
        case roce::NakCode::kRemoteAccess:
            event(MANA_HW_EXT_EVENT_QP_ACCESS_ERROR);
            break;
        default:
            event(MANA_HW_EXT_EVENT_QP_FATAL);
            break;
    }
}

void ExtQueues::responder_failed() {
    flush();
}

void ExtQueues::enter_error() {
    flush();
}

void ExtQueues::posted_in_error() {
    flush();
}

void ExtQueues::reset() {
    give_back();
    datapath_.records.unwatch(*this);
    record_.store(kSqKick, 1);
    record_.store(kRqKick, 0);
    send_producer_ = send_consumer_ = peeked_ = 0;
    if (receives_) receives_->reset();
    last_receive_reported_ = drained_reported_ = bad_record_ = false;
}

}  // namespace openmana::rnic
