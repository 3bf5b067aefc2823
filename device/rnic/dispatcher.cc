// SPDX-License-Identifier: Apache-2.0
#include "rnic/dispatcher.h"

#include <memory>
#include <mutex>

#include "base/endian.h"
#include "base/probe.h"
#include "rnic/datapath.h"
#include "rnic/qp_table.h"
#include "rnic/task_work.h"

namespace openmana::rnic {

using roce::Operation;
using roce::Position;

namespace {

SegmentKind kind_of(Operation operation) {
    switch (operation) {
        case Operation::kSend:
            return SegmentKind::kSend;
        case Operation::kWrite:
            return SegmentKind::kWrite;
        case Operation::kReadRequest:
            return SegmentKind::kRead;
        case Operation::kCompareSwap:
        case Operation::kFetchAdd:
            return SegmentKind::kAtomic;
        default:
            return SegmentKind::kInvalid;
    }
}

}  // namespace

std::size_t Dispatcher::handle(std::span<const base::Frame> frames) {
    const TaskWork work;
    std::size_t handled = 0;
    while (handled < frames.size() && !work.done() && !datapath_.datagrams.busy())
        handle_frame(frames[handled++]);
    for (const Qpn qpn : batch_) {
        Qp* qp = qps_.find(qpn);
        if (qp == nullptr) continue;
        qp->in_batch = false;
        bool more = true;
        if (!work.done()) {
            more = qp->responses.send();
            more = qp->requester.turn() || more;
        }
        qp->requester.settle();
        if (more) datapath_.scheduler.schedule(*qp);
    }
    batch_.clear();
    return handled;
}

/// A packet goes no further.
void Dispatcher::drop(base::Counter& counter, const char* why) {
    counter.add();
    OM_PROBE(drop, datapath_.nic.c_str(), why);
}

void Dispatcher::count_drop(roce::DropReason reason) {
    switch (reason) {
        case roce::DropReason::kNotRoce:
            drop(datapath_.counters.drop_not_roce, "not_roce");
            break;
        case roce::DropReason::kMalformed:
            drop(datapath_.counters.drop_malformed, "malformed");
            break;
        case roce::DropReason::kIcrc:
            drop(datapath_.counters.drop_icrc, "icrc");
            break;
        case roce::DropReason::kVersion:
        case roce::DropReason::kOpcode:
            drop(datapath_.counters.drop_opcode, "opcode");
            break;
        case roce::DropReason::kQpn:
            drop(datapath_.counters.drop_qpn, "qpn");
            break;
    }
}

void Dispatcher::handle_frame(base::FrameView frame) {
    datapath_.counters.rx_frames.add();
    const auto packet = roce::parse(frame);
    if (!packet) {
        count_drop(roce::drop_reason(packet.error()));
        return;
    }
    const bool group = roce::is_multicast(packet->destination);
    const roce::Vlan vlan = packet->vlan();
    const bool ours =
        group ? (packet->destination_mac[0] & 1) != 0 && datapath_.addresses.in_vlan(vlan)
              : (packet->destination_mac == datapath_.config.mac ||
                 datapath_.network.may_have(packet->destination_mac)) &&
                    datapath_.addresses.owns({packet->destination, vlan});
    if (!ours) {
        drop(datapath_.counters.drop_address, "address");
        return;
    }
    if (!roce::pkeys_match(packet->pkey, roce::kDefaultPkey)) {
        drop(datapath_.counters.drop_pkey, "pkey");
        return;
    }
    if (group != (packet->destination_qpn == roce::kMulticastQpn) ||
        (group && roce::transport(packet->opcode) != roce::Transport::kUd)) {
        drop(datapath_.counters.drop_qpn, "qpn");
        return;
    }
    datapath_.counters.rx_packets.add();
    const bool marked = packet->ecn == roce::kEcnMarked;
    if (marked) datapath_.counters.ecn_marked.add();
    switch (roce::transport(packet->opcode)) {
        case roce::Transport::kCnp:
            handle_cnp(*packet);
            return;
        case roce::Transport::kUd:
            handle_datagram(*packet, group, marked);
            return;
        case roce::Transport::kRc:
        case roce::Transport::kUc:
            handle_connected(*packet, marked);
            return;
        default:
            drop(datapath_.counters.drop_opcode, "opcode");
            return;
    }
}

void Dispatcher::handle_datagram(const roce::Packet& packet, bool group, bool marked) {
    const std::span<std::byte> payload(const_cast<std::byte*>(packet.payload.data()),
                                       packet.payload.size());
    if (group) {
        datapath_.datagrams.deliver_to_group(packet, payload);
        return;
    }
    datapath_.datagrams.deliver(packet, Spans(&payload, 1), payload.size());
    Qp* const to = marked ? qps_.find(packet.destination_qpn) : nullptr;
    if (to != nullptr && !to->connected()) to->notify_congestion(packet);
}

void Dispatcher::handle_connected(const roce::Packet& packet, bool marked) {
    Qp* const qp = qps_.find(packet.destination_qpn);
    const QpType type =
        roce::transport(packet.opcode) == roce::Transport::kRc ? QpType::kRc : QpType::kUc;
    if (qp == nullptr || qp->type != type) {
        drop(datapath_.counters.drop_qpn, "qpn");
        return;
    }
    if (!qp->route.brings(packet)) {
        drop(datapath_.counters.drop_address, "address");
        return;
    }
    ++qp->requester.traffic.rx_packets;
    if (marked) qp->notify_congestion(packet);
    if (!qp->in_batch) {
        qp->in_batch = true;
        batch_.push_back(qp->qpn());
    }
    if (packet.info().known() && packet.info().response) {
        const gdma::KeyUse use;
        qp->requester.receive(packet);
    } else {
        handle_request(*qp, packet);
    }
}

void Dispatcher::handle_request(Qp& qp, const roce::Packet& packet) {
    const roce::OpcodeInfo& info = packet.info();
    const std::span<std::byte> payload(const_cast<std::byte*>(packet.payload.data()),
                                       packet.payload.size());
    Segment segment;
    segment.kind = kind_of(info.operation);
    segment.first = info.position == Position::kFirst || info.position == Position::kOnly;
    segment.last = info.position == Position::kLast || info.position == Position::kOnly;
    segment.immediate = info.has(roce::kHasImmediate);
    segment.invalidate = info.has(roce::kHasInvalidate);
    segment.ack_request = packet.ack_request;
    segment.psn = packet.psn;
    segment.length = static_cast<std::uint32_t>(payload.size());
    segment.payload = Spans(&payload, 1);
    segment.solicited = packet.solicited;
    segment.reth = packet.reth;
    if (segment.kind == SegmentKind::kAtomic) {
        segment.reth = {packet.atomic.address, packet.atomic.rkey, 0};
        segment.atomic = {info.operation == Operation::kCompareSwap, packet.atomic.swap_or_add,
                          packet.atomic.compare};
    }
    segment.value = segment.invalidate ? packet.invalidate_rkey.value()
                                       : base::load_be<std::uint32_t>(packet.immediate.data());
    if (packet.pad != (4 - payload.size() % 4) % 4) segment.kind = SegmentKind::kInvalid;
    // Held back as if it was lost, not refused (ROCE 4.3): drivers may not know of each other's
    // limits.
    if ((segment.kind == SegmentKind::kRead || segment.kind == SegmentKind::kAtomic) &&
        qp.responses.full()) {
        drop(datapath_.counters.drop_owed, "owed");
        return;
    }
    if (qp.receive_wait && qp.receive_wait->takes(segment)) return;
    Answer answer;
    {
        const gdma::KeyUse use;
        const std::lock_guard lock(qp.responder.mutex);
        answer = qp.responder.execute(segment);
    }
    if (answer.kind == Answer::Kind::kWait) {
        if (!qp.receive_wait) qp.receive_wait = std::make_unique<ReceiveWait>(qp);
        qp.receive_wait->begin(segment);
    }
    qp.responses.add(answer);
}

/// A CNP takes no PSN and is never answered. Wrong ones are ignored, like those for a QP that sends
/// nothing or has no limiter.
void Dispatcher::handle_cnp(const roce::Packet& cnp) {
    Qp* const qp = qps_.find(cnp.destination_qpn);
    if (!datapath_.config.congestion.on || qp == nullptr || !qp->connected() || !qp->responds() ||
        !qp->route.brings(cnp)) {
        datapath_.counters.cnps_ignored.add();
        return;
    }
    tally(datapath_.counters.cnps, qp->events.cnps);
    ++qp->requester.traffic.rx_packets;
    if (!qp->limiter) qp->limiter = std::make_unique<Limiter>(*qp);
    qp->limiter->on_cnp();
}

}  // namespace openmana::rnic
