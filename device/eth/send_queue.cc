// SPDX-License-Identifier: Apache-2.0
#include "eth/send_queue.h"

#include <mana/eth.h>

#include "base/endian.h"
#include "base/log.h"
#include "base/mac_at.h"
#include "eth/ip.h"
#include "eth/queue_parts.h"

namespace openmana::eth {

void SendQueue::ring(std::uint32_t position) {
    if (failed_ || position - consumer_ > ring_.bytes()) {
        counters_.doorbell_ignored.add();
        return;
    }
    producer_ = position;
    if (ledger_) ledger_->posted.store(position, std::memory_order_release);
    if (!resuming_) work();
}

void SendQueue::resume() {
    resuming_ = false;
    work();
}

void SendQueue::work() {
    std::uint64_t frames = 0;
    for (std::uint32_t wqes = 0; consumer_ != producer_; ++wqes) {
        if (wqes == kWqesPerTurn || frames >= kFramesPerTurn) {
            resuming_ = true;
            transmitter_.resume_later(*this);
            return;
        }
        const auto wqe =
            gdma::Wqe::fetch(ring_, consumer_, producer_ - consumer_, gdma::Wqe::kMaxSendBytes);
        if (!wqe) {
            failed_ = true;
            OM_DEBUG("eth sq failed: sqn={:#x} position={:#x} error=\"{}\"", id_.value(), consumer_,
                     wqe.error().text);
            count(MANA_HW_ETH_CQE_TX_OOB);
            complete(MANA_HW_ETH_CQE_TX_OOB, consumer_);
            return;
        }
        const TxStatus status = transmit(*wqe, frames);
        consumer_ += wqe->size();
        count(status);
        if (!wants_no_completion(*wqe)) complete(status, wqe->position());
    }
}

TxStatus SendQueue::transmit(const gdma::Wqe& wqe, std::uint64_t& frames) {
    const auto offload = user_ == SqUser::kPackets ? parse_packet_oob(wqe) : parse_tx_oob(wqe);
    if (!offload) return offload.error();
    // The vPort's offset is 0 (CONFIG_VPORT_TX).
    if (offload->vport_offset != 0) return MANA_HW_ETH_CQE_TX_VPORT_INDEX;
    if (offload->segment) return transmit_segments(*offload, wqe, frames);
    ++frames;
    return transmit_whole(*offload, wqe);
}

bool SendQueue::gather(std::span<const gdma::Sge> sges) {
    spans_.clear();
    for (const gdma::Sge& sge : sges) {
        if (sge.length == 0) continue;
        if (keys_.resolve(sge.key, owner_.pd->id, sge.address, sge.length, gdma::kLocalRead,
                          spans_) != gdma::MrFault::kNone) {
            counters_.tx_gdma.add();
            return false;
        }
    }
    return true;
}

bool SendQueue::source_allowed(std::span<const std::byte> packet) const {
    if (user_ == SqUser::kPackets) return true;
    return transmitter_.may_send_from(base::mac_at(packet, base::kSourceMac));
}

TxStatus SendQueue::transmit_whole(const TxOffload& offload, const gdma::Wqe& wqe) {
    const std::uint64_t length = wqe.total_length();
    if (length < kEthernetBytes) return MANA_HW_ETH_CQE_TX_HEADERS;
    if (length > transmitter_.max_frame() + kVlanBytes) return MANA_HW_ETH_CQE_TX_MTU;
    if (!gather(wqe.sges())) return MANA_HW_ETH_CQE_TX_OOB;

    base::Frame frame;
    frame.reserve(length + (offload.vlan_tci ? kVlanBytes : 0));
    frame.resize(length);
    SpanReader(spans_).read(frame);
    // A tag among the data is not part of the MTU.
    if (length > transmitter_.max_frame() &&
        base::load_be<std::uint16_t>(frame.data() + kMacsBytes) != kTypeVlan)
        return MANA_HW_ETH_CQE_TX_MTU;
    if (!source_allowed(frame)) return MANA_HW_ETH_CQE_TX_SOURCE;
    if (const auto finished = finish_packet(offload, frame); !finished) return finished.error();
    transmitter_.send(std::move(frame));
    return MANA_HW_ETH_CQE_TX_OK;
}

TxStatus SendQueue::transmit_segments(const TxOffload& offload, const gdma::Wqe& wqe,
                                      std::uint64_t& frames) {
    const auto sges = wqe.sges();
    const std::size_t header_bytes = sges[0].length;
    if (header_bytes < kEthernetBytes || header_bytes > Segmenter::kMaxHeaders)
        return MANA_HW_ETH_CQE_TX_HEADERS;
    // Before memory is resolved, so that a huge length costs nothing.
    const std::uint64_t payload_bytes = wqe.total_length() - header_bytes;
    if (payload_bytes > Segmenter::kMaxPayload) return MANA_HW_ETH_CQE_TX_MTU;
    if (!gather(sges)) return MANA_HW_ETH_CQE_TX_OOB;

    SpanReader reader(spans_);
    std::array<std::byte, Segmenter::kMaxHeaders> headers;
    reader.read(std::span(headers).first(header_bytes));
    if (!source_allowed(headers)) return MANA_HW_ETH_CQE_TX_SOURCE;
    auto segmenter = Segmenter::create(offload, std::span(headers).first(header_bytes),
                                       payload_bytes, transmitter_.max_frame());
    if (!segmenter) return segmenter.error();
    frames += segmenter->segments();
    counters_.tx_segments.add(segmenter->segments());
    while (!segmenter->done()) transmitter_.send(segmenter->next(reader));
    return MANA_HW_ETH_CQE_TX_OK;
}

void SendQueue::count(TxStatus status) {
    switch (status) {
        case MANA_HW_ETH_CQE_TX_SOURCE:
            counters_.tx_source.add();
            break;
        case MANA_HW_ETH_CQE_TX_MTU:
            counters_.tx_mtu.add();
            break;
        case MANA_HW_ETH_CQE_TX_OOB:
            counters_.tx_oob.add();
            break;
        case MANA_HW_ETH_CQE_TX_ETHERTYPE:
            counters_.tx_ethertype.add();
            break;
        case MANA_HW_ETH_CQE_TX_HEADERS:
            counters_.tx_headers.add();
            break;
        case MANA_HW_ETH_CQE_TX_VPORT_INDEX:
            counters_.tx_vport_offset.add();
            break;
        default:
            break;
    }
}

void SendQueue::complete(TxStatus status, std::uint32_t position) {
    mana_hw_eth_tx_cqe cqe{};
    cqe.type = status | MANA_HW_ETH_CQE_CLIENT;
    cqe.wqe_offset = static_cast<std::uint32_t>(position % ring_.bytes());
    if (ledger_) ledger_->set_done(gdma::producer_of(*cq_) + 1, consumer_);
    cq_->post(std::as_bytes(std::span(&cqe, 1)), id_.value(), true);
}

void SendQueue::use_ledger(gdma::FunctionLedger& ledger) {
    // Programs with packet queues are told that their device is gone, and wait for nothing.
    if (user_ == SqUser::kPackets || cq_->eq() == nullptr) return;
    ledger_ = ledger.claim({.ring = gdma::place_of(ring_),
                            .cq = gdma::place_of(*cq_),
                            .eq = gdma::place_of(*cq_->eq()),
                            .id = id_.value()},
                           gdma::producer_of(*cq_), consumer_, producer_);
}

void SendQueue::save(base::StateWriter& out) const {
    QueueParts::save(out, handle_, id_.value(), owner_, ring_, *cq_, user_ == SqUser::kPackets);
    out(producer_, consumer_, resuming_, failed_);
}

void SendQueue::load(base::StateReader& in) {
    in(producer_, consumer_, resuming_, failed_);
    in.require(producer_ - consumer_ <= ring_.bytes(), "positions of an SQ that cannot be");
    if (in.ok() && resuming_) transmitter_.resume_later(*this);
}

}  // namespace openmana::eth
