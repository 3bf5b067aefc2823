// SPDX-License-Identifier: Apache-2.0
// Congestion control of RoCEv2 (ROCE 8): who gets a mark tells the sender, who slows down.
#include "rnic/congestion.h"

#include <algorithm>

#include "rnic/adapter.h"

namespace openmana::rnic {

namespace {

constexpr std::uint8_t kCnpDscp = 48;
/// An idle QP is looked at this often until it has recovered.
constexpr base::Duration kIdleLook = std::chrono::milliseconds(1);

/// What all CNPs have in common (ROCE 2.3).
void make_cnp(roce::Packet& cnp, const roce::Packet& marked) {
    cnp.opcode = roce::Opcode::kCnp;
    cnp.dscp = kCnpDscp;
    cnp.ecn = roce::kEcnCapable0;
    cnp.migrated = false;
    cnp.becn = true;
    cnp.pkey = marked.pkey;
}

}  // namespace

Limiter::Limiter(Qp& qp)
    : qp_(qp),
      dcqcn_(qp.adapter.config.congestion.dcqcn, qp.adapter.function.executor().now()),
      timer_(qp.adapter.function.executor(), [&qp] { qp.adapter.scheduler.schedule(qp); }) {}

/// Brings the adapter's figures up to date.
void Limiter::note() {
    Adapter& adapter = qp_.adapter;
    if (const std::uint32_t increases = dcqcn_.take_increases(); increases > 0)
        tally(adapter.counters.rate_increases, qp_.events.rate_increases, increases);
    adapter.current_rate_mbps = rate_mbps();
}

std::uint32_t Limiter::rate_mbps() const {
    return static_cast<std::uint32_t>(dcqcn_.rate() / 1e6);
}

void Limiter::wake(base::TimePoint when) {
    if (!timer_.armed() || when < timer_.deadline()) timer_.arm_at(when);
}

void Limiter::on_cnp() {
    const base::TimePoint now = qp_.adapter.function.executor().now();
    dcqcn_.on_cnp(now);
    tally(qp_.adapter.counters.rate_cuts, qp_.events.rate_cuts);
    note();
    wake(now + kIdleLook);
}

bool Limiter::open() {
    const bool now_open = dcqcn_.open(qp_.adapter.function.executor().now());
    note();
    if (!now_open) wake(dcqcn_.open_at());
    return now_open;
}

void Limiter::charge(std::size_t bytes) {
    dcqcn_.charge(bytes, qp_.adapter.function.executor().now());
}

bool Limiter::recovered() {
    const base::TimePoint now = qp_.adapter.function.executor().now();
    const bool done = dcqcn_.recovered(now);
    note();
    if (!done) wake(now + kIdleLook);
    return done;
}

void Qp::tend_limiter() {
    if (!limiter->recovered()) return;
    limiter.reset();
    tally(adapter.counters.rate_recoveries, events.rate_recoveries);
    adapter.current_rate_mbps = adapter.line_rate_mbps();
}

std::uint32_t Adapter::line_rate_mbps() const {
    return static_cast<std::uint32_t>(config.congestion.dcqcn.line_rate / 1'000'000);
}

/// A packet with a mark has come for a QP: tells its sender, but not more often than once in an
/// interval.
void Adapter::notify_congestion(Qp& qp, const roce::Packet& marked) {
    if (!config.congestion.on || !qp.responds()) return;
    const base::TimePoint now = function.executor().now();
    if (now < qp.next_cnp) return;
    qp.next_cnp = now + config.congestion.cnp_interval;
    roce::Packet cnp;
    if (qp.connected()) {
        cnp = qp.packet();
    } else {
        cnp.destination_mac = marked.source_mac;
        cnp.source_mac = config.mac;
        cnp.source = marked.destination;
        cnp.destination = marked.source;
        cnp.flow_label = marked.flow_label;
        cnp.udp_source_port = marked.udp_source_port;
        cnp.destination_qpn = marked.deth.source;
    }
    make_cnp(cnp, marked);
    counters.cnps_sent.add();
    transmit(qp, cnp, {});
}

/// A CNP takes no PSN and is never answered. Wrong ones are ignored, like those for a QP that sends
/// nothing or has no limiter.
void Adapter::handle_cnp(const roce::Packet& cnp) {
    Qp* qp = find_qp(cnp.destination_qpn.value());
    if (!config.congestion.on || qp == nullptr || !qp->connected() || !qp->responds() ||
        cnp.source != qp->route.destination || cnp.destination != qp->route.source) {
        counters.cnps_ignored.add();
        return;
    }
    tally(counters.cnps, qp->events.cnps);
    ++qp->requester.traffic.rx_packets;
    if (!qp->limiter) qp->limiter = std::make_unique<Limiter>(*qp);
    qp->limiter->on_cnp();
}

}  // namespace openmana::rnic
