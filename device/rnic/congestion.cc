// SPDX-License-Identifier: Apache-2.0
// Congestion control of RoCEv2 (ROCE 8): who gets a mark tells the sender, who slows down.
#include "rnic/congestion.h"

#include <algorithm>

#include "rnic/datapath.h"
#include "rnic/qp.h"

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
      dcqcn_(qp.datapath.config.congestion.dcqcn, qp.datapath.executor.now()),
      timer_(qp.datapath.executor, [&qp] { qp.datapath.scheduler.schedule(qp); }) {}

/// Brings the port's figures up to date.
void Limiter::note() {
    Datapath& datapath = qp_.datapath;
    if (const std::uint32_t increases = dcqcn_.take_increases(); increases > 0)
        tally(datapath.counters.rate_increases, qp_.events.rate_increases, increases);
    datapath.current_rate_mbps = rate_mbps();
}

std::uint32_t Limiter::rate_mbps() const {
    return static_cast<std::uint32_t>(dcqcn_.rate() / 1e6);
}

void Limiter::wake(base::TimePoint when) {
    if (!timer_.armed() || when < timer_.deadline()) timer_.arm_at(when);
}

void Limiter::on_cnp() {
    const base::TimePoint now = qp_.datapath.executor.now();
    dcqcn_.on_cnp(now);
    tally(qp_.datapath.counters.rate_cuts, qp_.events.rate_cuts);
    note();
    wake(now + kIdleLook);
}

bool Limiter::open() {
    const bool now_open = dcqcn_.open(qp_.datapath.executor.now());
    note();
    if (!now_open) wake(dcqcn_.open_at());
    return now_open;
}

void Limiter::charge(std::size_t bytes) {
    dcqcn_.charge(bytes, qp_.datapath.executor.now());
}

bool Limiter::recovered() {
    const base::TimePoint now = qp_.datapath.executor.now();
    const bool done = dcqcn_.recovered(now);
    note();
    if (!done) wake(now + kIdleLook);
    return done;
}

void Qp::tend_limiter() {
    if (!limiter->recovered()) return;
    limiter.reset();
    tally(datapath.counters.rate_recoveries, events.rate_recoveries);
    datapath.current_rate_mbps = datapath.config.congestion.line_rate_mbps();
}

void Qp::notify_congestion(const roce::Packet& marked) {
    const CongestionConfig& config = datapath.config.congestion;
    if (!config.on || !responds()) return;
    const base::TimePoint now = datapath.executor.now();
    if (now < next_cnp) return;
    next_cnp = now + config.cnp_interval;
    roce::Packet cnp;
    if (connected()) {
        cnp = packet();
    } else {
        cnp.destination_mac = marked.source_mac;
        cnp.source_mac = datapath.addresses.mac_of({marked.destination, marked.vlan()});
        cnp.source = marked.destination;
        cnp.destination = marked.source;
        cnp.flow_label = marked.flow_label;
        cnp.udp_source_port = marked.udp_source_port;
        cnp.destination_qpn = marked.deth.source;
        cnp.set_tag(marked.vlan_tci.value_or(0));
    }
    make_cnp(cnp, marked);
    datapath.counters.cnps_sent.add();
    datapath.transmitter.send(requester.traffic, cnp, {});
}

}  // namespace openmana::rnic
