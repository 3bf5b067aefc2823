// SPDX-License-Identifier: Apache-2.0
#include "rnic/stock_sends.h"

#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/endian.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"

namespace openmana::rnic {

namespace {

/// Scatter lists that are looked at for one READ: as many as the ring of a provider holds (RNIC
/// 3.6). A neighbour waits meanwhile.
constexpr unsigned kMostScatterLists = 128;

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

StockSends::StockSends(Qp& qp, gdma::Ring sends, std::optional<gdma::Ring> reads)
    : qp_(qp), datapath_(qp.datapath), ring_(std::move(sends)), read_ring_(std::move(reads)) {}

// ---- doorbells

bool StockSends::ring_doorbell(std::uint32_t position) {
    if (position - consumer_ > ring_.bytes()) {
        datapath_.counters.bad_doorbell.add();
        return false;
    }
    if (static_cast<std::int32_t>(position - producer_) > 0) producer_ = position;
    // The host goes on to arm its completion.
    datapath_.rqs.prefetch(qp_.ids.rreq);
    return true;
}

void StockSends::ring_reads(std::uint32_t position) {
    if (!read_ring_ || position - read_consumer_ > read_ring_->bytes()) {
        datapath_.counters.bad_doorbell.add();
        return;
    }
    if (static_cast<std::int32_t>(position - read_producer_) > 0) read_producer_ = position;
}

// ---- connected queue pairs

void StockSends::fetch(SendWqe& wqe, Psn next) {
    const auto fetched =
        gdma::Wqe::fetch(ring_, consumer_, producer_ - consumer_, gdma::Wqe::kMaxSendBytes);
    if (!fetched) {
        wqe.error = fetched.error().code == base::ErrorCode::kOutOfRange
                        ? MANA_HW_RNIC_VE_TX_WQE_FETCH
                        : MANA_HW_RNIC_VE_TX_WQE_SIZE;
        wqe.kind = SegmentKind::kInvalid;
        wqe.error_on_rreq = false;
        wqe.packets = 1;
    } else {
        wqe.parse(*fetched, next, qp_.route.mtu);
        consumer_ += fetched->size();
        if (wqe.error == 0 && qp_.type == QpType::kUc && (wqe.is_read() || wqe.invalidate)) {
            wqe.error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
            wqe.packets = 1;
        }
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

void StockSends::prefetch(std::uint32_t position) const {
    ring_.prefetch(consumer_, position - consumer_);
}

/// Far enough ahead that a key is there when its turn comes, near enough that it is still there.
void StockSends::prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) {
    constexpr std::uint32_t kAhead = 1024;
    if (static_cast<std::int32_t>(peeked_ - consumer_) < 0) peeked_ = consumer_;
    while (static_cast<std::int32_t>(producer_ - peeked_) > 0 && peeked_ - consumer_ < kAhead) {
        const auto wqe = gdma::Wqe::peek(ring_, peeked_);
        peeked_ = wqe.size == 0 ? producer_ : peeked_ + wqe.size;
        constexpr std::size_t kRkey = 8 + offsetof(mana_hw_rnic_send_oob, u.rdma.rkey);
        const std::size_t lkey = 8 + wqe.oob_size + offsetof(mana_hw_sge, key);
        if (wqe.size == 0 || lkey + sizeof(std::uint32_t) > wqe.bytes.size()) continue;
        own.prefetch(gdma::Key(base::load_le<std::uint32_t>(wqe.bytes.data() + lkey)));
        peer.prefetch(gdma::Key(base::load_le<std::uint32_t>(wqe.bytes.data() + kRkey)));
    }
}

/// Finds the scatter list of a READ by its PSN; older ones are left over from posts that failed
/// half-way (RNIC 3.6). One that lies behind too many of them is as good as missing.
void StockSends::take_scatter(SendWqe& wqe) {
    wqe.error_on_rreq = false;
    wqe.error = MANA_HW_RNIC_VE_TX_WQE_FIELD;
    if (!read_ring_) return;
    for (unsigned n = 0; n < kMostScatterLists && read_consumer_ != read_producer_; ++n) {
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

std::uint16_t StockSends::execute_local(const SendWqe&) {
    return MANA_HW_RNIC_VE_TX_UNSUPPORTED;
}

void StockSends::complete(const SendWqe& wqe) {
    completions_.complete(wqe.last());
    if (qp_.type == QpType::kUc && wqe.signaled) post_send_cqe(wqe.position);
}

void StockSends::report_progress() {
    if (qp_.type == QpType::kRc) completions_.report(qp_);
}

Psn StockSends::error_psn() const {
    // A UC host completes by this what it did not want to be told of (RNIC 3.13).
    return qp_.type == QpType::kUc ? acked() + 1 : acked();
}

void StockSends::settle() {
    completions_.settle(qp_);
}

void StockSends::start(Psn first) {
    completions_.start(first);
}

// ---- datagrams (RNIC 7)

SendFormat::Next StockSends::next_datagram(Datagram& datagram) {
    if (!posted()) return Next::kNone;
    const auto wqe =
        gdma::Wqe::fetch(ring_, consumer_, producer_ - consumer_, gdma::Wqe::kMaxSendBytes);
    if (!wqe) {
        // Where the next one starts is unknown, and UD send CQEs carry no errors (RNIC 7.4).
        datapath_.counters.malformed_sends.add();
        return Next::kFailed;
    }
    consumer_ += wqe->size();
    datagram_position_ = wqe->position();
    return build_datagram(*wqe, datagram) ? Next::kSend : Next::kDrop;
}

/// What cannot be sent is dropped without a word: the network could have done that as well.
bool StockSends::build_datagram(const gdma::Wqe& wqe, Datagram& datagram) {
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

void StockSends::complete_datagram() {
    post_send_cqe(datagram_position_);
}

void StockSends::post_send_cqe(std::uint32_t position) {
    mana_hw_rnic_ud_send_cqe cqe{};
    cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
    cqe.wqe_offset = position;
    qp_.send_cq->post(std::as_bytes(std::span(&cqe, 1)), qp_.ids.sq.value(), true);
}

void StockSends::reset() {
    producer_ = consumer_ = peeked_ = read_producer_ = read_consumer_ = 0;
}

}  // namespace openmana::rnic
