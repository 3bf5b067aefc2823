// SPDX-License-Identifier: Apache-2.0
#include "rnic/rnic.h"

#include <algorithm>
#include <bit>

#include "rnic/adapter.h"
#include "rnic/stock_queues.h"

namespace openmana::rnic {

Rnic::Rnic(gdma::Function& function, RnicConfig config, Network& network)
    : adapter_(std::make_unique<Adapter>(*this, function, config, network)) {
    function.attach(*this);
}

Rnic::~Rnic() = default;

void Rnic::command(const gdma::HwcRequest& request, gdma::HwcReply& reply) {
    adapter_->command(request, reply);
}
void Rnic::reset() {
    adapter_->reset();
}
void Rnic::receive(std::span<const std::byte> frame) {
    adapter_->inbox.receive(frame);
}
bool Rnic::owns(const roce::Gid& gid) const {
    return adapter_->addresses.owns(gid);
}
bool Rnic::takes_multicast() const {
    return !adapter_->datagram_qps.empty() || !adapter_->groups.empty();
}
gdma::Function& Rnic::function() {
    return adapter_->function;
}
const RnicCounters& Rnic::counters() const {
    return adapter_->counters;
}

std::vector<QpStatus> Rnic::qp_status() const {
    static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    static constexpr const char* kTypes[] = {"RC", "UD", "GSI", "UC"};
    std::vector<QpStatus> result;
    adapter_->qps.for_each([&](Qp& qp) {
        QpStatus status;
        status.qpn = qp.qpn();
        status.type = kTypes[static_cast<std::size_t>(qp.type)];
        status.state = kStates[qp.state()];
        status.path = qp.requester.path;
        status.remote_qpn = qp.route.dest_qpn;
        status.tx_messages = qp.requester.messages;
        status.tx_bytes = qp.requester.traffic.tx_bytes;
        status.rx_bytes = qp.requester.traffic.rx_bytes;
        status.retries = qp.events.retransmits.value();
        status.rnr_retries = qp.requester.rnr_retries;
        status.credit_waits = qp.events.credit_waits.value();
        status.errors = qp.events.fatal_errors.value();
        if (qp.limiter) status.rate_mbps = qp.limiter->rate_mbps();
        {
            const std::lock_guard lock(qp.responder.mutex);
            status.rx_messages = qp.responder.messages;
            status.tx_bytes += qp.responder.traffic.tx_bytes;
            status.rx_bytes += qp.responder.traffic.rx_bytes;
        }
        result.push_back(status);
    });
    return result;
}

Adapter::Adapter(Rnic& rnic, gdma::Function& function_, RnicConfig config_, Network& network_)
    : owner(rnic),
      function(function_),
      config(config_),
      network(network_),
      addresses(config.mac),
      events(counters),
      records(function.executor(), counters.record_posts),
      qp_memory(std::max(sizeof(QpWith<StockQueues>), sizeof(QpWith<ExtQueues>))),
      scheduler(function.executor(), network, qps, counters.held_back),
      inbox(function.executor(), counters.rx_overflow,
            [this](std::span<const base::Frame> frames) { handle_frames(frames); }) {
    current_rate_mbps = line_rate_mbps();
}

std::size_t Adapter::transmit(Qp& qp, const roce::Packet& packet, Spans payload) {
    roce::encode(packet, payload, scratch.frame);
    const std::size_t bytes = scratch.frame.size();
    counters.tx_frames.add();
    tally(counters.tx_packets, qp.requester.traffic.tx_packets);
    network.transmit_lent(scratch.frame);
    return bytes;
}

void Adapter::reset() {
    ++function_epoch;
    qps.for_each([this](Qp& qp) { remove_qp(qp); });
    function.key_changes().end_windows(std::nullopt);
    qps.clear();
    datagram_qps.clear();
    srqs.clear();
    srq_ids.reset();
    cqs.clear();
    addresses.clear();
    scheduler.clear();
    batch.clear();
    created = false;
    error_cqes_wanted = false;
    extensions_wanted = false;
    events.use(nullptr);
    inbox.clear();
}

}  // namespace openmana::rnic
