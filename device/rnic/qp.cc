// SPDX-License-Identifier: Apache-2.0
#include "rnic/qp.h"

#include "base/log.h"
#include "rnic/datapath.h"

namespace openmana::rnic {

Qp::Qp(Datapath& datapath_, QpType type_, Ids ids_, Uses uses)
    : QpUpkeep(*this, uses),
      QpCore(*this, datapath_, type_, ids_, std::move(uses)),
      requester(*this) {
    life = datapath.tasks.begin_life();
    datapath.states.enter(state());
}

Qp::~Qp() {
    datapath.states.leave(state());
}

void Qp::set_state(std::uint32_t state) {
    // First, so that nobody who reads sees one leave that has not entered.
    datapath.states.enter(state);
    datapath.states.leave(state_.exchange(state, std::memory_order_acq_rel));
}

std::uint64_t Qp::growth() {
    constexpr std::uint64_t kReceive = base::heap_cost(kMostSges * sizeof(gdma::Sge));
    constexpr std::uint64_t kReads =
        base::heap_cost(ResponderHistory::kReadEntries * sizeof(ReadEntry));
    constexpr std::uint64_t kEvents = AdapterEvents::kOfQp * gdma::EventQueue::held_cost();
    // Its few slots, and the datagram that is being sent.
    constexpr std::uint64_t kSends = (SendSlots::kFew + 1) * SendSlots::kSlotCost;
    return kReceive + kReads + kEvents + kSends + Responses::most_bytes() +
           base::heap_cost(sizeof(Limiter)) + base::heap_cost(sizeof(ReceiveWait));
}

roce::Packet Qp::packet() const {
    roce::Packet packet;
    packet.destination_mac = attributes.destination_mac;
    packet.source_mac = attributes.source_mac;
    packet.source = route.source;
    packet.destination = route.destination;
    packet.dscp = attributes.dscp;
    packet.hop_limit = attributes.hop_limit;
    packet.flow_label = attributes.flow_label;
    packet.udp_source_port = attributes.udp_source_port;
    packet.destination_qpn = route.dest_qpn;
    packet.set_tag(roce::make_tci(route.vlan, attributes.priority));
    // Acknowledgements too: whoever gets their mark slows down what asks for them (ROCE 12).
    if (datapath.config.congestion.on) packet.ecn = roce::kEcnCapable0;
    return packet;
}

void Qp::fail_send(std::uint16_t vendor, bool on_rreq) {
    {
        const std::lock_guard lock(responder.mutex);
        if (state() == MANA_HW_RNIC_QP_ERR || state() == MANA_HW_RNIC_QP_RESET) return;
        set_state(errors->stops_sends_only(vendor) ? MANA_HW_RNIC_QP_SQE : MANA_HW_RNIC_QP_ERR);
    }
    OM_DEBUG("qp error: nic={} qpn={:#x} vendor={:#x}", datapath.nic, qpn().value(), vendor);
    tally(datapath.counters.fatal_errors, events.fatal_errors);
    if (type == QpType::kRc &&
        (vendor == MANA_HW_RNIC_VE_RETRY || vendor == MANA_HW_RNIC_VE_RNR_RETRY))
        datapath.network.connection_failed(connection(), vendor == MANA_HW_RNIC_VE_RETRY
                                                             ? Failure::kRetries
                                                             : Failure::kRnrRetries);
    requester.stop();
    drop_answers();
    errors->send_failed(vendor, on_rreq);
}

void Qp::responder_failed() {
    {
        const std::lock_guard lock(responder.mutex);
        responder.failure_told();
    }
    if (state() != MANA_HW_RNIC_QP_ERR) return;
    OM_DEBUG("qp responder error: nic={} qpn={:#x}", datapath.nic, qpn().value());
    requester.stop();
    if (receive_wait) receive_wait->clear();
    errors->responder_failed();
}

void Qp::enter_error() {
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_ERR);
    }
    requester.stop();
    drop_answers();
    errors->enter_error();
}

void Qp::drop_answers() {
    responses.clear();
    if (receive_wait) receive_wait->clear();
}

void Qp::end_connection() {
    const std::uint32_t before = state();
    if (type != QpType::kRc || before == MANA_HW_RNIC_QP_RESET || before == MANA_HW_RNIC_QP_INIT)
        return;
    datapath.network.connection_ended(connection());
}

Connection Qp::connection() const {
    return {route.source, route.destination, qpn(), route.dest_qpn, route.vlan};
}

void Qp::reset() {
    end_connection();
    {
        const std::lock_guard lock(responder.mutex);
        set_state(MANA_HW_RNIC_QP_RESET);
        responder.receives->reset();
        sends->reset();
        errors->reset();
        responder.reset();
    }
    requester.reset();
    drop_answers();
    limiter.reset();
    next_cnp = {};
    life = datapath.tasks.begin_life();
}

void Qp::sends_posted() {
    if (connected() && datapath.figures.time_this()) [[unlikely]]
        requester.time_posted();
    if (scheduled) return;
    if (connected() ? requester.turn() : send_datagrams()) datapath.scheduler.schedule(*this);
}

void SendDoorbell::prepare(std::uint32_t position) const {
    qp.sends->prefetch(position);
}

void SendDoorbell::ring(std::uint32_t position) {
    if (!qp.sends->ring_doorbell(position)) {
        if (qp.type == QpType::kRc && qp.state() == MANA_HW_RNIC_QP_RTS)
            qp.fail_send(MANA_HW_RNIC_VE_TX_MISBEHAVING, false);
        return;
    }
    qp.sends_posted();
    const std::uint32_t state = qp.state();
    if (state == MANA_HW_RNIC_QP_ERR || state == MANA_HW_RNIC_QP_SQE) qp.errors->posted_in_error();
}

void ReceiveDoorbell::ring(std::uint32_t position) {
    if (!qp.responder.receives->ring_doorbell(position)) {
        if (qp.type == QpType::kRc && qp.responds()) {
            {
                const std::lock_guard lock(qp.responder.mutex);
                qp.set_state(MANA_HW_RNIC_QP_ERR);
                qp.errors->receive_failed(roce::NakCode::kRemoteOperational,
                                          MANA_HW_RNIC_VE_RX_MISBEHAVING);
            }
            qp.responder_failed();
        }
        return;
    }
    if (qp.state() == MANA_HW_RNIC_QP_ERR) qp.errors->posted_in_error();
}

}  // namespace openmana::rnic
