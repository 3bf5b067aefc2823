// SPDX-License-Identifier: Apache-2.0
#include "rnic/rnic.h"

#include "rnic/adapter.h"

namespace openmana::rnic {

Rnic::Rnic(gdma::Function& function, RnicConfig config, Network& network)
    : adapter_(std::make_unique<Adapter>(function, config, network)) {
    function.attach(*this);
}

Rnic::~Rnic() = default;

void Rnic::command(const gdma::HwcRequest& request, gdma::HwcReply& reply) {
    adapter_->command(request, reply);
}
void Rnic::reset() {
    adapter_->reset();
}
void Rnic::save(base::StateWriter& out) const {
    adapter_->save(out);
}
void Rnic::load(base::StateReader& in) {
    adapter_->load(in);
}
void Rnic::receive(base::FrameViews frames) {
    adapter_->inbox.receive(frames);
}
void Rnic::review_addresses() {
    adapter_->datapath.addresses.review();
}
void Rnic::review_address(const roce::Address& address) {
    adapter_->datapath.addresses.review(address);
}
bool Rnic::owns(const roce::Address& address) const {
    return adapter_->datapath.addresses.owns(address);
}
bool Rnic::takes_multicast() const {
    return adapter_->datapath.datagrams.any_listener();
}
const LocalPeer& Rnic::local_peer() const {
    return adapter_->datapath.self;
}
const RnicCounters& Rnic::counters() const {
    return adapter_->datapath.counters;
}

const RequestFigures& Rnic::request_figures() const {
    return adapter_->datapath.figures;
}

const QpStates& Rnic::qp_states() const {
    return adapter_->datapath.states;
}

std::size_t Rnic::qp_count() const {
    return adapter_->qps.count();
}

std::vector<QpStatus> Rnic::qp_status() const {
    static constexpr const char* kTypes[] = {"RC", "UD", "GSI", "UC"};
    std::vector<QpStatus> result;
    adapter_->qps.for_each([&](Qp& qp) {
        QpStatus status;
        status.qpn = qp.qpn().value();
        status.type = kTypes[static_cast<std::size_t>(qp.type)];
        status.state = QpStates::kNames[qp.state()];
        status.path = qp.requester.path;
        status.remote_qpn = qp.route.dest_qpn.value();
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

}  // namespace openmana::rnic
