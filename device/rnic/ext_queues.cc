// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_queues.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/endian.h"
#include "rnic/adapter.h"

namespace openmana::rnic {

namespace {

constexpr std::uint64_t kMaxMessage = 1ULL << 31;
constexpr std::size_t kControlBytes = sizeof(mana_hw_ext_control);
constexpr unsigned kSqProducer = offsetof(mana_hw_ext_qp_record, sq_producer) / 4;
constexpr unsigned kSqKick = offsetof(mana_hw_ext_qp_record, sq_kick) / 4;
constexpr unsigned kRqProducer = offsetof(mana_hw_ext_qp_record, rq_producer) / 4;
constexpr unsigned kRqKick = offsetof(mana_hw_ext_qp_record, rq_kick) / 4;
constexpr unsigned kSrqProducer = offsetof(mana_hw_ext_srq_record, producer) / 4;

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

template <typename T>
T segment_at(std::span<const std::byte> bytes, std::size_t at) {
    T segment;
    std::memcpy(&segment, bytes.data() + at, sizeof segment);
    return segment;
}

gdma::Sge sge_at(const std::byte* at) {
    return {base::load_le<std::uint64_t>(at), gdma::Key(base::load_le<std::uint32_t>(at + 8)),
            base::load_le<std::uint32_t>(at + 12)};
}

}  // namespace

const ExtQueues::Outcome ExtQueues::kFlushedOutcome{MANA_HW_WC_WR_FLUSH_ERR,
                                                    MANA_HW_RNIC_VE_FLUSHED};

// ---- receives

QueueFormat::Take ReceiveRing::take(std::uint32_t producer, Receive& receive, bool& bad_index) {
    const std::uint32_t available = producer - consumer_;
    bad_index = available > entries_;
    if (bad_index) return QueueFormat::Take::kMalformed;
    if (available == 0) return QueueFormat::Take::kEmpty;
    std::array<std::byte, MANA_HW_EXT_WQE_MAX_BYTES> bytes;
    const auto wqe = std::span(bytes).first(stride_);
    receive.sges.clear();
    receive.total = 0;
    receive.name = 0;
    receive.named = false;
    const bool read = ring_.read(std::uint64_t{consumer_ % entries_} * stride_, wqe);
    ++consumer_;
    if (!read) return QueueFormat::Take::kMalformed;
    const auto header = segment_at<mana_hw_ext_receive>(wqe, 0);
    receive.name = header.cookie;
    receive.named = true;
    const std::size_t room = (stride_ - sizeof header) / sizeof(mana_hw_sge);
    if (header.sge_count > std::min<std::size_t>(room, kExtMaxSge))
        return QueueFormat::Take::kMalformed;
    for (std::uint32_t i = 0; i < header.sge_count; ++i) {
        receive.sges.push_back(sge_at(wqe.data() + sizeof header + i * sizeof(mana_hw_sge)));
        receive.total += receive.sges.back().length;
    }
    return QueueFormat::Take::kOk;
}

SharedReceiveQueue::SharedReceiveQueue(Adapter& adapter, std::uint32_t id,
                                       gdma::Handle<gdma::Pd> pd,
                                       std::shared_ptr<const gdma::DmaRegion> region,
                                       std::uint32_t ring_bytes, std::uint32_t stride,
                                       std::uint32_t limit)
    : adapter_(adapter),
      id_(id),
      pd_(std::move(pd)),
      record_(adapter.function.memory(), region, ring_bytes),
      receives_(gdma::Ring(adapter.function.memory(), region, ring_bytes), stride),
      limit_(limit) {}

QueueFormat::Take SharedReceiveQueue::take(Receive& receive) {
    const std::lock_guard lock(mutex_);
    if (failed_) return QueueFormat::Take::kEmpty;
    const auto producer = record_.load(kSrqProducer);
    bool bad_index = !producer.has_value();
    QueueFormat::Take taken = QueueFormat::Take::kEmpty;
    if (producer) taken = receives_.take(*producer, receive, bad_index);
    if (bad_index) {
        failed_ = true;
        adapter_.counters.bad_records.add();
        adapter_.post_event(id_, MANA_HW_EXT_EVENT_SRQ_ERROR);
        return QueueFormat::Take::kEmpty;
    }
    receive.pd = pd_->id;
    if (taken != QueueFormat::Take::kEmpty && receives_.posted(*producer) < limit_) {
        limit_ = 0;
        adapter_.post_event(id_, MANA_HW_EXT_EVENT_SRQ_LIMIT);
    }
    return taken;
}

void SharedReceiveQueue::set_limit(std::uint32_t limit) {
    const std::uint32_t now = posted();
    const std::lock_guard lock(mutex_);
    limit_ = limit;
    if (now >= limit) return;
    limit_ = 0;
    adapter_.post_event(id_, MANA_HW_EXT_EVENT_SRQ_LIMIT);
}

std::uint32_t SharedReceiveQueue::limit() const {
    const std::lock_guard lock(mutex_);
    return limit_;
}

std::uint32_t SharedReceiveQueue::posted() const {
    const std::lock_guard lock(mutex_);
    const auto producer = record_.load(kSrqProducer);
    return producer ? std::min(receives_.posted(*producer), receives_.entries()) : 0;
}

// ---- sends

ExtQueues::ExtQueues(Qp& qp, Layout layout)
    : qp_(qp),
      adapter_(qp.adapter),
      privileged_(layout.privileged),
      send_ring_(adapter_.function.memory(), layout.region, layout.sq_bytes),
      record_(adapter_.function.memory(), layout.region,
              std::uint64_t{layout.sq_bytes} + layout.rq_bytes),
      srq_(std::move(layout.srq)) {
    if (layout.rq_bytes != 0)
        receives_.emplace(
            gdma::Ring(adapter_.function.memory(), layout.region, layout.rq_bytes, layout.sq_bytes),
            layout.rq_stride);
    record_.store(kSqKick, 1);
    record_.store(kRqKick, 0);
}

ExtQueues::~ExtQueues() {
    adapter_.unwatch(*this);
}

bool ExtQueues::look() {
    const std::uint32_t producer = record_.load(kSqProducer).value_or(send_producer_);
    if (producer == send_producer_ || bad_record_) return false;
    if (producer - send_consumer_ > send_ring_.bytes() / MANA_HW_EXT_WQE_UNIT) {
        // Found by fetch(), when what was posted before is done. What it says is not looked for.
        bad_record_ = true;
        adapter_.counters.bad_records.add();
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
    if (qp_.state() == MANA_HW_RNIC_QP_RTS) adapter_.watch(*this);
    return true;
}

bool ExtQueues::ring_receives(std::uint32_t) {
    return true;
}

bool ExtQueues::sends_posted() {
    if (send_consumer_ == send_producer_) (void)look();
    return bad_record_ || send_consumer_ != send_producer_;
}

std::span<const std::byte> ExtQueues::take_wqe(std::uint16_t& error) {
    const std::uint32_t available = send_producer_ - send_consumer_;
    const std::uint64_t at = std::uint64_t{send_consumer_} * MANA_HW_EXT_WQE_UNIT;
    auto& bytes = adapter_.scratch.wqe;
    error = MANA_HW_RNIC_VE_TX_WQE_FETCH;
    if (!send_ring_.read(at, std::span(bytes).first(MANA_HW_EXT_WQE_UNIT))) return {};
    const auto control = segment_at<mana_hw_ext_control>(bytes, 0);
    const std::size_t size = std::size_t{control.size} * kControlBytes;
    const std::size_t units = (size + MANA_HW_EXT_WQE_UNIT - 1) / MANA_HW_EXT_WQE_UNIT;
    if (size < kControlBytes || size > bytes.size() || units > available) {
        error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
        return {};
    }
    // The first unit is not read again: a guest that changes it meanwhile changes nothing.
    if (size > MANA_HW_EXT_WQE_UNIT &&
        !send_ring_.read(at + MANA_HW_EXT_WQE_UNIT,
                         std::span(bytes).first(size).subspan(MANA_HW_EXT_WQE_UNIT)))
        return {};
    error = 0;
    send_consumer_ += static_cast<std::uint32_t>(units);
    return std::span(bytes).first(size);
}

void ExtQueues::prefetch_sends(std::uint32_t position) const {
    constexpr std::uint64_t kUnit = MANA_HW_EXT_WQE_UNIT;
    send_ring_.prefetch(send_consumer_ * kUnit, (position - send_consumer_) * kUnit);
}

void ExtQueues::prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) {
    constexpr std::uint32_t kAhead = 16;
    constexpr std::size_t kKey = offsetof(mana_hw_sge, key);
    if (static_cast<std::int32_t>(glimpsed_ - send_consumer_) < 0) glimpsed_ = send_consumer_;
    while (static_cast<std::int32_t>(send_producer_ - glimpsed_) > 0 &&
           glimpsed_ - send_consumer_ < kAhead) {
        std::array<std::byte, MANA_HW_EXT_WQE_UNIT> unit;
        const bool read = send_ring_.read(std::uint64_t{glimpsed_} * unit.size(), unit);
        const auto control = segment_at<mana_hw_ext_control>(unit, 0);
        const std::uint32_t units =
            (control.size * std::uint32_t{kControlBytes} + MANA_HW_EXT_WQE_UNIT - 1) /
            MANA_HW_EXT_WQE_UNIT;
        glimpsed_ = read && units != 0 ? glimpsed_ + units : send_producer_;
        if (!read) return;
        const bool remote =
            control.opcode >= MANA_HW_EXT_WQE_WRITE && control.opcode <= MANA_HW_EXT_WQE_READ;
        if (remote)
            peer.prefetch(gdma::Key(segment_at<mana_hw_ext_remote>(unit, kControlBytes).rkey));
        const std::size_t list = kControlBytes + (remote ? sizeof(mana_hw_ext_remote) : 0);
        own.prefetch(gdma::Key(base::load_le<std::uint32_t>(unit.data() + list + kKey)));
    }
}

void ExtQueues::fetch(SendWqe& wqe, Psn next) {
    wqe.first = next;
    wqe.mtu = qp_.attributes.mtu;
    wqe.position = send_consumer_;
    if (send_consumer_ == send_producer_) {
        wqe.error = MANA_HW_RNIC_VE_TX_MISBEHAVING;  // a bad record
        return;
    }
    const auto bytes = take_wqe(wqe.error);
    if (!bytes.empty()) parse(wqe, bytes);
    if (wqe.error != 0) {
        adapter_.counters.malformed_sends.add();
        wqe.local = false;
        wqe.packets = 1;
        return;
    }
    if (wqe.local) return;
    wqe.packets = wqe.is_atomic() ? 1 : packets_of(wqe.length, wqe.mtu);
    const std::uint32_t need = wqe.fetches() ? gdma::kLocalWrite : gdma::kLocalRead;
    const gdma::MrFault fault = check_sges(adapter_.keys(), qp_.pd->id, wqe.sges, need);
    if (fault == gdma::MrFault::kNone) return;
    wqe.error = wqe.fetches() ? scatter_error(fault) : gather_error(fault);
    tally(adapter_.counters.send_protection, qp_.events.send_protection);
}

/// What the bytes of a WQE of a connected QP ask for; `error` tells what is wrong with it.
void ExtQueues::parse(SendWqe& wqe, std::span<const std::byte> bytes) {
    const auto control = segment_at<mana_hw_ext_control>(bytes, 0);
    wqe.opcode = control.opcode;
    wqe.signaled = (control.flags & MANA_HW_EXT_WQE_SIGNALED) != 0;
    wqe.solicited = (control.flags & MANA_HW_EXT_WQE_SOLICITED) != 0;
    wqe.fence = (control.flags & MANA_HW_EXT_WQE_FENCE) != 0;
    wqe.is_inline = (control.flags & MANA_HW_EXT_WQE_INLINE) != 0;
    wqe.value = control.value;
    const bool reliable = qp_.type == QpType::kRc;
    std::size_t at = kControlBytes;
    std::size_t segment = 0;
    bool known = true;
    switch (control.opcode) {
        case MANA_HW_EXT_WQE_SEND_IMM:
            wqe.immediate = true;
            [[fallthrough]];
        case MANA_HW_EXT_WQE_SEND:
            wqe.kind = SegmentKind::kSend;
            break;
        case MANA_HW_EXT_WQE_SEND_INV:
            wqe.kind = SegmentKind::kSend;
            wqe.invalidate = true;
            known = reliable;
            break;
        case MANA_HW_EXT_WQE_WRITE_IMM:
            wqe.immediate = true;
            [[fallthrough]];
        case MANA_HW_EXT_WQE_WRITE:
            wqe.kind = SegmentKind::kWrite;
            break;
        case MANA_HW_EXT_WQE_READ:
            wqe.kind = SegmentKind::kRead;
            known = reliable;
            break;
        case MANA_HW_EXT_WQE_CMP_SWAP:
        case MANA_HW_EXT_WQE_FETCH_ADD:
            wqe.kind = SegmentKind::kAtomic;
            known = reliable;
            break;
        case MANA_HW_EXT_WQE_LOCAL_INV:
            wqe.local = true;
            break;
        case MANA_HW_EXT_WQE_BIND_MW:
            wqe.local = true;
            segment = sizeof(mana_hw_ext_bind);
            break;
        case MANA_HW_EXT_WQE_FAST_REGISTER:
            wqe.local = true;
            segment = sizeof(mana_hw_ext_register);
            known = privileged_;
            break;
        default:
            known = false;
            break;
    }
    if (!known) {
        wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
        return;
    }
    if (wqe.local) {
        if (bytes.size() < at + segment) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        std::memcpy(wqe.segment.data(), bytes.data() + at, segment);
        wqe.packets = 0;
        return;
    }
    if (wqe.kind != SegmentKind::kSend) {
        if (bytes.size() < at + sizeof(mana_hw_ext_remote)) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        const auto remote = segment_at<mana_hw_ext_remote>(bytes, at);
        wqe.address = remote.address;
        wqe.rkey = remote.rkey;
        at += sizeof remote;
    }
    if (wqe.is_atomic()) {
        if (bytes.size() < at + sizeof(mana_hw_ext_atomic)) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        const auto atomic = segment_at<mana_hw_ext_atomic>(bytes, at);
        wqe.atomic = {control.opcode == MANA_HW_EXT_WQE_CMP_SWAP, atomic.swap_add, atomic.compare};
        at += sizeof atomic;
    }
    if (wqe.fetches() && wqe.is_inline) {
        wqe.error = MANA_HW_RNIC_VE_TX_WQE_FIELD;
        return;
    }
    wqe.error = parse_data(wqe, bytes, at, control.inline_bytes);
    if (wqe.error == 0 && wqe.is_atomic() &&
        (wqe.length != sizeof(std::uint64_t) || wqe.sges.size() != 1))
        wqe.error = MANA_HW_RNIC_VE_TX_LENGTH;
}

std::uint16_t ExtQueues::parse_data(SendWqe& wqe, std::span<const std::byte> bytes, std::size_t at,
                                    std::uint32_t inline_bytes) {
    const auto data = bytes.subspan(at);
    if (wqe.is_inline) {
        if (inline_bytes > data.size() || inline_bytes > kExtMaxInline)
            return MANA_HW_RNIC_VE_TX_WQE_SIZE;
        wqe.inline_data.assign(data.begin(), data.begin() + inline_bytes);
        wqe.length = inline_bytes;
        return 0;
    }
    const std::size_t count = data.size() / sizeof(mana_hw_sge);
    if (count > kExtMaxSge) return MANA_HW_RNIC_VE_TX_WQE_SIZE;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < count; ++i) {
        wqe.sges.push_back(sge_at(data.data() + i * sizeof(mana_hw_sge)));
        total += wqe.sges.back().length;
    }
    if (total > kMaxMessage) return MANA_HW_RNIC_VE_TX_LENGTH;
    wqe.length = static_cast<std::uint32_t>(total);
    return 0;
}

std::uint16_t ExtQueues::execute_local(const SendWqe& wqe) {
    bool done = false;
    switch (wqe.opcode) {
        case MANA_HW_EXT_WQE_LOCAL_INV:
            done = adapter_.function.invalidate(gdma::Key(wqe.value), qp_.pd->id, qp_.qpn());
            break;
        case MANA_HW_EXT_WQE_BIND_MW: {
            const auto bind = segment_at<mana_hw_ext_bind>(wqe.segment, 0);
            const bool zero_based = (bind.access & MANA_HW_EXT_ACCESS_ZERO_BASED) != 0;
            done = adapter_.function.bind_window({gdma::Key(bind.mw_key), gdma::Key(bind.new_key),
                                                  gdma::Key(bind.mr_key), qp_.pd->id, qp_.qpn(),
                                                  bind.access & ~MANA_HW_EXT_ACCESS_ZERO_BASED,
                                                  bind.address, bind.length, zero_based});
            break;
        }
        default: {
            const auto reg = segment_at<mana_hw_ext_register>(wqe.segment, 0);
            const bool zero_based = (reg.access & MANA_HW_EXT_ACCESS_ZERO_BASED) != 0;
            done = adapter_.function.fast_register(
                {gdma::Key(reg.key), qp_.pd->id, reg.access & ~MANA_HW_EXT_ACCESS_ZERO_BASED,
                 reg.iova, reg.length, base::GuestAddr(reg.page_list), reg.pages, reg.page_shift,
                 zero_based});
            break;
        }
    }
    return done ? 0 : MANA_HW_EXT_VE_MEMORY_OPERATION;
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
        const auto control = segment_at<mana_hw_ext_control>(bytes, 0);
        wqe.opcode = control.opcode;
        wqe.signaled = (control.flags & MANA_HW_EXT_WQE_SIGNALED) != 0;
        wqe.solicited = (control.flags & MANA_HW_EXT_WQE_SOLICITED) != 0;
        wqe.is_inline = (control.flags & MANA_HW_EXT_WQE_INLINE) != 0;
        wqe.value = control.value;
        if (control.opcode > MANA_HW_EXT_WQE_SEND_IMM) {
            wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
        } else if (bytes.size() < kControlBytes + sizeof ud) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
        } else {
            ud = segment_at<mana_hw_ext_ud>(bytes, kControlBytes);
            wqe.error = parse_data(wqe, bytes, kControlBytes + sizeof ud, control.inline_bytes);
        }
        if (wqe.error == 0 && wqe.length > adapter_.config.port_mtu)
            wqe.error = MANA_HW_RNIC_VE_TX_LENGTH;
    }
    datagram.payload->clear();
    if (wqe.error != 0) {
        adapter_.counters.malformed_sends.add();
    } else {
        const gdma::MrFault fault =
            gather_payload(adapter_.keys(), qp_.pd->id, wqe, 0, wqe.length, *datagram.payload);
        if (fault != gdma::MrFault::kNone) {
            tally(adapter_.counters.send_protection, qp_.events.send_protection);
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
    packet.deth.qkey = ud.qkey;
    base::store_be<std::uint32_t>(packet.immediate.data(), wqe.value);
    ++datagram_psn_;
    datagram.length = wqe.length;
    return Next::kSend;
}

void ExtQueues::datagrams_failed(std::uint16_t vendor) {
    const std::lock_guard lock(qp_.responder.mutex);
    qp_.set_state(stops_sends_only(vendor) ? MANA_HW_RNIC_QP_SQE : MANA_HW_RNIC_QP_ERR);
    tally(adapter_.counters.fatal_errors, qp_.events.fatal_errors);
}

void ExtQueues::datagram_done() {
    finished(datagram_);
}

// ---- completions

void ExtQueues::post(gdma::CompletionQueue& cq, mana_hw_ext_cqe& cqe, bool is_sq, bool solicited) {
    cqe.type = MANA_HW_EXT_CQE;
    cqe.timestamp =
        static_cast<std::uint64_t>(adapter_.function.executor().now().time_since_epoch().count());
    cq.post(std::as_bytes(std::span(&cqe, 1)), qp_.qpn(), is_sq, solicited);
}

void ExtQueues::complete_send(const SendWqe& wqe, Outcome outcome) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = wqe.opcode;
    cqe.status = outcome.status;
    cqe.vendor_error = outcome.vendor;
    cqe.length = wqe.length;
    cqe.cookie = wqe.position;
    if (outcome.status != MANA_HW_WC_SUCCESS) adapter_.counters.error_cqes.add();
    post(*qp_.send_cq, cqe, true, outcome.status != MANA_HW_WC_SUCCESS);
}

void ExtQueues::complete_receive(const Receive& receive, Outcome outcome) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    cqe.status = outcome.status;
    cqe.vendor_error = outcome.vendor;
    cqe.cookie = receive.name;
    adapter_.counters.error_cqes.add();
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
        drained_told_ = false;
    } else if (!drained_told_ && qp_.requester.drained()) {
        drained_told_ = true;
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
    if (bad_index) adapter_.counters.bad_records.add();
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
    cqe.source_qpn = qp_.attributes.dest_qpn;
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
    adapter_.post_event(qp_.qpn(), number);
}

void ExtQueues::established() {
    event(MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED);
}

void ExtQueues::flush() {
    adapter_.unwatch(*this);
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
            adapter_.counters.malformed_sends.add();
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
        if (!last_receive_told_) event(MANA_HW_EXT_EVENT_LAST_WQE_REACHED);
        last_receive_told_ = true;
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
    adapter_.unwatch(*this);
    record_.store(kSqKick, 1);
    record_.store(kRqKick, 0);
    send_producer_ = send_consumer_ = glimpsed_ = 0;
    if (receives_) receives_->reset();
    last_receive_told_ = drained_told_ = bad_record_ = false;
}

}  // namespace openmana::rnic
