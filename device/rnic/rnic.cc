// SPDX-License-Identifier: Apache-2.0
#include "rnic/rnic.h"

#include <algorithm>
#include <bit>

#include "rnic/adapter.h"
#include "rnic/stock_queues.h"

namespace openmana::rnic {
namespace {

/// How often room for those held back is looked for.
constexpr base::Duration kHeldInterval = std::chrono::microseconds(200);

}  // namespace

Rnic::Rnic(gdma::Function& function, RnicConfig config, Network& network)
    : impl_(std::make_unique<Impl>(*this, function, config, network)) {
    function.attach(*this);
}

Rnic::~Rnic() = default;

void Rnic::command(const gdma::HwcRequest& request, gdma::HwcReply& reply) {
    impl_->command(request, reply);
}
void Rnic::reset() {
    impl_->reset();
}
void Rnic::receive(std::span<const std::byte> frame) {
    impl_->receive(frame);
}
bool Rnic::owns(const roce::Gid& gid) const {
    return impl_->owns(gid);
}
bool Rnic::takes_multicast() const {
    return !impl_->datagram_qps.empty() || !impl_->groups.empty();
}
gdma::Function& Rnic::function() {
    return impl_->function;
}
const RnicCounters& Rnic::counters() const {
    return impl_->counters;
}

std::vector<QpStatus> Rnic::qp_status() const {
    static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    static constexpr const char* kTypes[] = {"RC", "UD", "GSI", "UC"};
    std::vector<QpStatus> result;
    for (const auto& qp : impl_->qps) {
        if (!qp) continue;
        QpStatus status;
        status.qpn = qp->qpn();
        status.type = kTypes[static_cast<std::size_t>(qp->type)];
        status.state = kStates[qp->state()];
        status.path = qp->requester.path;
        status.remote_qpn = qp->attributes.dest_qpn;
        status.tx_messages = qp->requester.messages;
        status.tx_bytes = qp->requester.traffic.tx_bytes;
        status.rx_bytes = qp->requester.traffic.rx_bytes;
        status.retries = qp->events.retransmits.value();
        status.rnr_retries = qp->requester.rnr_retries;
        status.credit_waits = qp->events.credit_waits.value();
        status.errors = qp->events.fatal_errors.value();
        if (qp->limiter) status.rate_mbps = qp->limiter->rate_mbps();
        {
            const std::lock_guard lock(qp->responder.mutex);
            status.rx_messages = qp->responder.messages;
            status.tx_bytes += qp->responder.traffic.tx_bytes;
            status.rx_bytes += qp->responder.traffic.rx_bytes;
        }
        result.push_back(status);
    }
    return result;
}

Rnic::Impl::Impl(Rnic& rnic, gdma::Function& function_, RnicConfig config_, Network& network_)
    : owner(rnic),
      function(function_),
      config(config_),
      network(network_),
      qp_memory(std::max(sizeof(QpWith<StockQueues>), sizeof(QpWith<ExtQueues>))),
      held_timer(function_.executor(), [this] { serve_held(); }) {
    current_rate_mbps = line_rate_mbps();
    function.executor().add_poller(*this);
}

Rnic::Impl::~Impl() {
    function.executor().remove_poller(*this);
}

bool Rnic::Impl::owns(const roce::Gid& gid) const {
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const Address& a) { return a.gid == gid; });
}

bool Rnic::Impl::owns(const base::MacAddr& mac) const {
    return mac == config.mac || std::find(macs.begin(), macs.end(), mac) != macs.end();
}

void Rnic::Impl::schedule(Qp& qp) {
    if (qp.scheduled) return;
    qp.scheduled = true;
    ready.push_back(qp.qpn());
    if (pump_posted) return;
    pump_posted = true;
    function.executor().post([token = std::weak_ptr<int>(alive), this] {
        if (!token.expired()) pump();
    });
}

/// Each QP that waits gets one turn; then the executor looks after everything else before the next
/// round.
void Rnic::Impl::pump() {
    pump_posted = false;
    for (std::size_t n = ready.size(); n > 0; --n) {
        Qp* qp = find_qp(ready.front());
        ready.pop_front();
        if (n > 1) {
            if (const Qp* const next = find_qp(ready.front()))
                base::prefetch(next->requester_memory());
        }
        if (qp == nullptr) continue;
        qp->scheduled = false;
        serve(*qp);
    }
}

void Rnic::Impl::serve(Qp& qp) {
    bool more = false;
    if (qp.connected()) {
        if (qp.limiter) qp.tend_limiter();
        more = qp.responses.send();
        more = qp.requester.turn() || more;
    } else {
        more = qp.send_datagrams();
    }
    if (more) schedule(qp);
}

bool Rnic::Impl::hold_back(Qp& qp) {
    if (network.transmit_room() > 0) return false;
    if (qp.held) return true;
    counters.held_back.add();
    qp.held = true;
    held.push_back(qp.qpn());
    if (!held_timer.armed()) held_timer.arm(kHeldInterval);
    return true;
}

/// Those that have waited longest go first, as far as the room goes.
void Rnic::Impl::serve_held() {
    for (std::size_t n = held.size(); n > 0 && network.transmit_room() > 0; --n) {
        Qp* const qp = find_qp(held.front());
        held.pop_front();
        if (qp == nullptr || !qp->held) continue;
        qp->held = false;
        if (!qp->scheduled) serve(*qp);
    }
    if (!held.empty()) held_timer.arm(kHeldInterval);
}

void Rnic::Impl::post_fatal_event(const Qp& qp) {
    counters.fatal_events.add();
    if (event_eq) event_eq->post(gdma::EqeType::kQpFatal, {qp.qpn(), 0, 0});
}

std::size_t Rnic::Impl::transmit(Qp& qp, const roce::Packet& packet, Spans payload) {
    roce::encode(packet, payload, scratch.frame);
    const std::size_t bytes = scratch.frame.size();
    counters.tx_frames.add();
    tally(counters.tx_packets, qp.requester.traffic.tx_packets);
    network.transmit_lent(scratch.frame);
    return bytes;
}

void Rnic::Impl::reset() {
    ++function_epoch;
    for (auto& qp : qps)
        if (qp) remove_qp(*qp);
    function.end_windows(std::nullopt);
    qps.clear();
    qps_generation = next_generation();
    datagram_qps.clear();
    srqs.clear();
    srq_ids.reset();
    cqs.clear();
    addresses.clear();
    macs.clear();
    ready.clear();
    held.clear();
    held_timer.cancel();
    batch.clear();
    created = false;
    error_cqes_wanted = false;
    extensions_wanted = false;
    event_eq = nullptr;
    const std::lock_guard lock(inbox_mutex);
    inbox.clear();
    spare.clear();
    inbox_bytes = 0;
}

Qp::Qp(Adapter& adapter_, QpType type_, Ids ids_, Uses uses)
    : page(std::move(uses.page)),
      adapter(adapter_),
      pd(std::move(uses.pd)),
      send_cq(std::move(uses.send_cq)),
      recv_cq(std::move(uses.recv_cq)),
      ids(ids_),
      type(type_),
      requester(*this) {
    life = adapter.next_life++;
}

void QpDeleter::operator()(Qp* qp) const {
    base::BlockPool& memory = qp->adapter.qp_memory;
    qp->~Qp();
    memory.give_back(qp);
}

}  // namespace openmana::rnic
