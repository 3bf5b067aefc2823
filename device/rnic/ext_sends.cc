// SPDX-License-Identifier: Apache-2.0
#include "rnic/ext_sends.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/endian.h"
#include "rnic/datapath.h"
#include "rnic/ext_format.h"
#include "rnic/qp.h"

namespace openmana::rnic {
namespace {

constexpr unsigned kProducer = offsetof(mana_hw_ext_qp_record, sq_producer) / 4;
constexpr unsigned kKick = offsetof(mana_hw_ext_qp_record, sq_kick) / 4;
constexpr std::uint64_t kMaxMessage = 1ULL << 31;

/// What an opcode of a connected QP means.
struct Operation {
    std::uint8_t opcode;
    SegmentKind kind = SegmentKind::kInvalid;  ///< kInvalid: executed here
    bool immediate = false;
    bool invalidate = false;
    bool reliable = false;     ///< RC alone has it
    bool privileged = false;   ///< for kernels
    std::uint8_t segment = 0;  ///< bytes behind the control segment, if it is executed here
};
constexpr Operation kOperations[] = {
    {.opcode = MANA_HW_EXT_WQE_SEND, .kind = SegmentKind::kSend},
    {.opcode = MANA_HW_EXT_WQE_SEND_IMM, .kind = SegmentKind::kSend, .immediate = true},
    {.opcode = MANA_HW_EXT_WQE_SEND_INV,
     .kind = SegmentKind::kSend,
     .invalidate = true,
     .reliable = true},
    {.opcode = MANA_HW_EXT_WQE_WRITE, .kind = SegmentKind::kWrite},
    {.opcode = MANA_HW_EXT_WQE_WRITE_IMM, .kind = SegmentKind::kWrite, .immediate = true},
    {.opcode = MANA_HW_EXT_WQE_READ, .kind = SegmentKind::kRead, .reliable = true},
    {.opcode = MANA_HW_EXT_WQE_CMP_SWAP, .kind = SegmentKind::kAtomic, .reliable = true},
    {.opcode = MANA_HW_EXT_WQE_FETCH_ADD, .kind = SegmentKind::kAtomic, .reliable = true},
    {.opcode = MANA_HW_EXT_WQE_LOCAL_INV},
    {.opcode = MANA_HW_EXT_WQE_BIND_MW, .segment = sizeof(mana_hw_ext_bind)},
    {.opcode = MANA_HW_EXT_WQE_FAST_REGISTER,
     .privileged = true,
     .segment = sizeof(mana_hw_ext_register)},
};

/// Null if there is no such opcode.
const Operation* find_operation(std::uint8_t opcode) {
    return opcode < std::size(kOperations) ? &kOperations[opcode] : nullptr;
}
constexpr bool in_order() {
    for (std::size_t i = 0; i < std::size(kOperations); ++i)
        if (kOperations[i].opcode != i) return false;
    return true;
}
static_assert(in_order());
static_assert(kExtMaxSge <= kMostSges && kExtMaxInline <= kMostInline &&
              gdma::Wqe::kMaxSge <= kMostSges);

}  // namespace

ExtSends::ExtSends(Qp& qp, const gdma::SharedWords& record, gdma::Ring ring, bool privileged)
    : privileged_(privileged),
      qp_(qp),
      datapath_(qp.datapath),
      record_(record),
      ring_(std::move(ring)) {
    record_.store(kKick, 1);
}

ExtSends::~ExtSends() {
    datapath_.records.unwatch(*this);
}

// ---- the record

bool ExtSends::look() {
    const std::uint32_t producer = record_.load(kProducer).value_or(producer_);
    if (producer == producer_ || bad_record_) return false;
    if (producer - consumer_ > ring_.bytes() / MANA_HW_EXT_WQE_UNIT) {
        // Found by fetch(), when what was posted before is done. What it says is not looked for.
        bad_record_ = true;
        datapath_.counters.bad_records.add();
        return true;
    }
    producer_ = producer;
    return true;
}

bool ExtSends::sleep() {
    record_.store(kKick, 1);
    // Partner: the full barrier of the host between its producer and its look at the kick word.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return look();
}

void ExtSends::wake() {
    record_.store(kKick, 0);
}

bool ExtSends::ring_doorbell(std::uint32_t) {
    // The position in the doorbell says nothing that the record does not.
    (void)look();
    if (qp_.state() == MANA_HW_RNIC_QP_RTS) datapath_.records.watch(*this);
    return true;
}

bool ExtSends::posted() {
    if (consumer_ == producer_) (void)look();
    return bad_record_ || consumer_ != producer_;
}

// ---- work requests

ExtSends::Taken ExtSends::take_wqe() {
    const std::uint32_t available = producer_ - consumer_;
    const std::uint64_t at = std::uint64_t{consumer_} * MANA_HW_EXT_WQE_UNIT;
    auto& bytes = datapath_.scratch.wqe;
    if (!ring_.read(at, std::span(bytes).first(MANA_HW_EXT_WQE_UNIT)))
        return {{}, MANA_HW_RNIC_VE_TX_WQE_FETCH};
    const auto control = ext_segment_at<mana_hw_ext_control>(bytes, 0);
    const std::size_t size = std::size_t{control.size} * kExtControlBytes;
    const std::size_t units = (size + MANA_HW_EXT_WQE_UNIT - 1) / MANA_HW_EXT_WQE_UNIT;
    if (size < kExtControlBytes || size > bytes.size() || units > available)
        return {{}, MANA_HW_RNIC_VE_TX_WQE_SIZE};
    // The first unit is not read again: a guest that changes it meanwhile changes nothing.
    if (size > MANA_HW_EXT_WQE_UNIT &&
        !ring_.read(at + MANA_HW_EXT_WQE_UNIT,
                    std::span(bytes).first(size).subspan(MANA_HW_EXT_WQE_UNIT)))
        return {{}, MANA_HW_RNIC_VE_TX_WQE_FETCH};
    consumer_ += static_cast<std::uint32_t>(units);
    return {std::span(bytes).first(size), 0};
}

void ExtSends::prefetch(std::uint32_t position) const {
    constexpr std::uint64_t kUnit = MANA_HW_EXT_WQE_UNIT;
    ring_.prefetch(consumer_ * kUnit, (position - consumer_) * kUnit);
}

void ExtSends::prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) {
    constexpr std::uint32_t kAhead = 16;
    constexpr std::size_t kKey = offsetof(mana_hw_sge, key);
    if (static_cast<std::int32_t>(peeked_ - consumer_) < 0) peeked_ = consumer_;
    while (static_cast<std::int32_t>(producer_ - peeked_) > 0 && peeked_ - consumer_ < kAhead) {
        std::array<std::byte, MANA_HW_EXT_WQE_UNIT> unit;
        const bool read = ring_.read(std::uint64_t{peeked_} * unit.size(), unit);
        const auto control = ext_segment_at<mana_hw_ext_control>(unit, 0);
        const std::uint32_t units =
            (control.size * std::uint32_t{kExtControlBytes} + MANA_HW_EXT_WQE_UNIT - 1) /
            MANA_HW_EXT_WQE_UNIT;
        peeked_ = read && units != 0 ? peeked_ + units : producer_;
        if (!read) return;
        const bool remote =
            control.opcode >= MANA_HW_EXT_WQE_WRITE && control.opcode <= MANA_HW_EXT_WQE_READ;
        if (remote)
            peer.prefetch(
                gdma::Key(ext_segment_at<mana_hw_ext_remote>(unit, kExtControlBytes).rkey));
        const std::size_t list = kExtControlBytes + (remote ? sizeof(mana_hw_ext_remote) : 0);
        own.prefetch(gdma::Key(base::load_le<std::uint32_t>(unit.data() + list + kKey)));
    }
}

void ExtSends::fetch(SendWqe& wqe, Psn next) {
    wqe.first = next;
    wqe.mtu = qp_.route.mtu;
    wqe.position = consumer_;
    if (consumer_ == producer_) {
        wqe.error = MANA_HW_RNIC_VE_TX_MISBEHAVING;  // a bad record
        return;
    }
    const Taken taken = take_wqe();
    wqe.error = taken.error;
    if (wqe.error == 0) parse(wqe, taken.bytes);
    if (wqe.error != 0) {
        datapath_.counters.malformed_sends.add();
        wqe.local = false;
        wqe.packets = 1;
        return;
    }
    if (wqe.local) return;
    wqe.packets = wqe.is_atomic() ? 1 : packets_of(wqe.length, wqe.mtu);
    const std::uint32_t need = wqe.fetches() ? gdma::kLocalWrite : gdma::kLocalRead;
    const gdma::MrFault fault = check_sges(datapath_.keys, qp_.pd->id, wqe.sges, need);
    if (fault == gdma::MrFault::kNone) return;
    wqe.error = wqe.fetches() ? scatter_error(fault) : gather_error(fault);
    tally(datapath_.counters.send_protection, qp_.events.send_protection);
}

/// What the bytes of a WQE of a connected QP ask for; `error` tells what is wrong with it.
void ExtSends::parse(SendWqe& wqe, std::span<const std::byte> bytes) {
    const auto control = ext_segment_at<mana_hw_ext_control>(bytes, 0);
    wqe.opcode = control.opcode;
    wqe.signaled = (control.flags & MANA_HW_EXT_WQE_SIGNALED) != 0;
    wqe.solicited = (control.flags & MANA_HW_EXT_WQE_SOLICITED) != 0;
    wqe.fence = (control.flags & MANA_HW_EXT_WQE_FENCE) != 0;
    wqe.is_inline = (control.flags & MANA_HW_EXT_WQE_INLINE) != 0;
    wqe.value = control.value;
    const Operation* const operation = find_operation(control.opcode);
    if (operation != nullptr) {
        wqe.kind = operation->kind;
        wqe.immediate = operation->immediate;
        wqe.invalidate = operation->invalidate;
        wqe.local = operation->kind == SegmentKind::kInvalid;
    }
    std::size_t at = kExtControlBytes;
    if (operation == nullptr || (operation->reliable && qp_.type != QpType::kRc) ||
        (operation->privileged && !privileged_)) {
        wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
        return;
    }
    if (wqe.local) {
        if (bytes.size() < at + operation->segment) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        std::memcpy(wqe.segment.data(), bytes.data() + at, operation->segment);
        wqe.packets = 0;
        return;
    }
    if (wqe.kind != SegmentKind::kSend) {
        if (bytes.size() < at + sizeof(mana_hw_ext_remote)) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        const auto remote = ext_segment_at<mana_hw_ext_remote>(bytes, at);
        wqe.address = remote.address;
        wqe.rkey = RKey(remote.rkey);
        at += sizeof remote;
    }
    if (wqe.is_atomic()) {
        if (bytes.size() < at + sizeof(mana_hw_ext_atomic)) {
            wqe.error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
            return;
        }
        const auto atomic = ext_segment_at<mana_hw_ext_atomic>(bytes, at);
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

std::uint16_t ExtSends::parse_data(SendWqe& wqe, std::span<const std::byte> bytes, std::size_t at,
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
        wqe.sges.push_back(ext_sge_at(data.data() + i * sizeof(mana_hw_sge)));
        total += wqe.sges.back().length;
    }
    if (total > kMaxMessage) return MANA_HW_RNIC_VE_TX_LENGTH;
    wqe.length = static_cast<std::uint32_t>(total);
    return 0;
}

std::uint16_t ExtSends::execute_local(const SendWqe& wqe) {
    bool done = false;
    switch (wqe.opcode) {
        case MANA_HW_EXT_WQE_LOCAL_INV:
            done = datapath_.key_changes.invalidate(gdma::Key(wqe.value), qp_.pd->id, qp_.scope());
            break;
        case MANA_HW_EXT_WQE_BIND_MW: {
            const auto bind = ext_segment_at<mana_hw_ext_bind>(wqe.segment, 0);
            const bool zero_based = (bind.access & MANA_HW_EXT_ACCESS_ZERO_BASED) != 0;
            done = datapath_.key_changes.bind_window(
                {gdma::Key(bind.mw_key), gdma::Key(bind.new_key), gdma::Key(bind.mr_key),
                 qp_.pd->id, qp_.scope(), bind.access & ~MANA_HW_EXT_ACCESS_ZERO_BASED,
                 bind.address, bind.length, zero_based});
            break;
        }
        default: {
            const auto reg = ext_segment_at<mana_hw_ext_register>(wqe.segment, 0);
            const bool zero_based = (reg.access & MANA_HW_EXT_ACCESS_ZERO_BASED) != 0;
            done = datapath_.key_changes.fast_register(
                {gdma::Key(reg.key), qp_.pd->id, reg.access & ~MANA_HW_EXT_ACCESS_ZERO_BASED,
                 reg.iova, reg.length, base::GuestAddr(reg.page_list), reg.pages, reg.page_shift,
                 zero_based});
            break;
        }
    }
    return done ? 0 : MANA_HW_EXT_VE_MEMORY_OPERATION;
}

// ---- datagrams

SendFormat::Next ExtSends::next_datagram(Datagram& datagram) {
    if (!posted()) return Next::kNone;
    SendWqe& wqe = datagram_;
    wqe.clear();
    wqe.position = consumer_;
    if (consumer_ == producer_) {
        wqe.error = MANA_HW_RNIC_VE_TX_MISBEHAVING;  // a bad record
        return Next::kFailed;
    }
    const Taken taken = take_wqe();
    const auto bytes = taken.bytes;
    wqe.error = taken.error;
    mana_hw_ext_ud ud{};
    if (wqe.error == 0) {
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
    if (wqe.error != 0) return Next::kFailed;
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
    packet.set_tag(ud.vlan);
    packet.solicited = wqe.solicited;
    packet.destination_qpn = roce::Qpn(ud.dest_qpn & MANA_HW_RNIC_24BIT);
    packet.psn = datagram_psn_;
    packet.deth.qkey = QKey(ud.qkey);
    base::store_be<std::uint32_t>(packet.immediate.data(), wqe.value);
    ++datagram_psn_;
    datagram.length = wqe.length;
    return Next::kSend;
}

void ExtSends::complete_datagram() {
    complete(datagram_);
}

// ---- completions

void ExtSends::complete(const SendWqe& wqe) {
    if (wqe.signaled) complete(wqe, {});
}

void ExtSends::complete(const SendWqe& wqe, ExtOutcome outcome) {
    mana_hw_ext_cqe cqe{};
    cqe.opcode = wqe.opcode;
    cqe.status = outcome.status;
    cqe.vendor_error = outcome.vendor;
    cqe.length = wqe.length;
    cqe.cookie = wqe.position;
    if (outcome.status != MANA_HW_WC_SUCCESS) datapath_.counters.error_cqes.add();
    post_ext_cqe(qp_, *qp_.send_cq, cqe, true, outcome.status != MANA_HW_WC_SUCCESS);
}

void ExtSends::settle() {
    report_drained();
}

void ExtSends::report_drained() {
    if (qp_.state() != MANA_HW_RNIC_QP_SQD) {
        drained_reported_ = false;
    } else if (!drained_reported_ && qp_.requester.drained()) {
        drained_reported_ = true;
        datapath_.events.extension(qp_.qpn(), MANA_HW_EXT_EVENT_SQ_DRAINED);
    }
}

void ExtSends::start(Psn first) {
    datagram_psn_ = first;
}

void ExtSends::flush() {
    datapath_.records.unwatch(*this);
    record_.store(kKick, 1);
    // Partner: the full barrier of the host between its producer and its look at the kick word.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    while (const SendWqe* wqe = qp_.requester.take_failed())
        if (wqe->error != MANA_HW_RNIC_VE_TX_MISBEHAVING) complete(*wqe, kExtFlushed);
    (void)look();
    SendWqe wqe;
    while (consumer_ != producer_) {
        wqe.position = consumer_;
        const Taken taken = take_wqe();
        if (taken.error != 0) {
            // Where the next one starts is unknown.
            datapath_.counters.malformed_sends.add();
            consumer_ = producer_;
            return;
        }
        wqe.opcode = std::to_integer<std::uint8_t>(taken.bytes[0]);
        complete(wqe, kExtFlushed);
    }
}

void ExtSends::reset() {
    datapath_.records.unwatch(*this);
    record_.store(kKick, 1);
    producer_ = consumer_ = peeked_ = 0;
    drained_reported_ = bad_record_ = false;
}

}  // namespace openmana::rnic
