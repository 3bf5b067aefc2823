// SPDX-License-Identifier: Apache-2.0
#include <mana/rnic.h>

#include <algorithm>
#include <bit>

#include "rnic/addresses.h"
#include "rnic/congestion.h"
#include "rnic/datagrams.h"
#include "rnic/datapath.h"
#include "rnic/qp.h"
#include "rnic/qp_table.h"

// The state of a queue pair as a whole, and of what queue pairs have in common.

namespace openmana::rnic {
namespace {

template <typename Archive, typename Self>
void route_fields(Archive& a, Self& route) {
    a(route.source, route.destination, route.dest_qpn, route.mtu, route.vlan, route.access);
}

template <typename Archive, typename Self>
void attribute_fields(Archive& a, Self& attributes) {
    a(attributes.source_mac, attributes.destination_mac, attributes.max_read_in,
      attributes.max_read_out, attributes.retry_count, attributes.rnr_retry,
      attributes.min_rnr_timer, attributes.timeout, attributes.qkey, attributes.flow_label,
      attributes.udp_source_port, attributes.hop_limit, attributes.dscp, attributes.priority);
}

/// What modify_qp() could have made of them.
bool sensible(const QpRoute& route, const QpAttributes& a) {
    return route.mtu >= 256 && route.mtu <= 4096 && std::has_single_bit(route.mtu) &&
           route.dest_qpn.value() <= MANA_HW_RNIC_24BIT && route.vlan <= roce::kVlanMask &&
           a.retry_count <= 7 && a.rnr_retry <= 7 && a.min_rnr_timer <= 31 && a.timeout <= 31 &&
           a.flow_label <= 0xfffff && a.hop_limit != 0 && a.dscp <= 0x3f && a.priority <= 7;
}

}  // namespace

void Qp::save(base::StateWriter& out) const {
    const std::lock_guard lock(responder.mutex);
    out(state(), next_cnp, events);
    route_fields(out, route);
    attribute_fields(out, attributes);
    requester.save(out);
    responder.save(out);
    responses.save(out);
    out(receive_wait != nullptr);
    if (receive_wait) receive_wait->save(out);
    out(limiter != nullptr);
    if (limiter) limiter->save(out);
    save_queues(out);
}

void Qp::load(base::StateReader& in) {
    const auto loaded = in.get<std::uint32_t>();
    in(next_cnp, events);
    route_fields(in, route);
    attribute_fields(in, attributes);
    in.require(loaded <= MANA_HW_RNIC_QP_ERR && sensible(route, attributes),
               "queue pair that cannot be");
    if (!in.ok()) return;
    requester.load(in);
    {
        const std::lock_guard lock(responder.mutex);
        responder.load(in);
    }
    responses.load(in);
    if (in.get<bool>()) {
        receive_wait = std::make_unique<ReceiveWait>(*this);
        receive_wait->load(in);
    }
    if (in.get<bool>()) {
        limiter = std::make_unique<Limiter>(*this);
        limiter->load(in);
    }
    load_queues(in);
    if (in.ok()) set_state(loaded);
}

/// What was on its way from a visitor to the owner, or from the owner to itself, is done now.
void Qp::go_on() {
    bool failing = false;
    {
        const std::lock_guard lock(responder.mutex);
        failing = responder.failing();
    }
    if (failing) datapath.tasks.post(*this, [](Qp& qp) { qp.responder_failed(); });
    datapath.scheduler.schedule(*this);
}

// ---- datagrams, addresses, the rate of a queue pair

void Datagrams::save(base::StateWriter& out) const {
    out(listeners_);
    out.count(groups_.size());
    for (const Group& group : groups_) out(group.gid, group.qpns);
}

void Datagrams::load(base::StateReader& in) {
    const auto is_ud = [&](roce::Qpn qpn) {
        const Qp* const qp = qps_.find(qpn);
        return qp != nullptr && qp->type == QpType::kUd;
    };
    std::vector<roce::Qpn> listeners;
    in(listeners);
    for (const roce::Qpn qpn : listeners) {
        in.require(is_ud(qpn) && !std::ranges::binary_search(listeners_, qpn),
                   "listener that is no UD queue pair");
        if (!in.ok()) return;
        listen(qpn);
    }
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) {
        roce::Gid gid{};
        std::vector<roce::Qpn> members;
        in(gid, members);
        in.require(!members.empty(), "group of nobody");
        for (const roce::Qpn qpn : members) {
            in.require(is_ud(qpn) && roce::is_multicast(gid) && join(gid, qpn) == gdma::kHwcSuccess,
                       "member of a group that it cannot be in");
            if (!in.ok()) return;
        }
    }
}

void Addresses::save(base::StateWriter& out) const {
    out(macs_);
    out.count(entries_.size());
    // Those that it serves come first: who serves an address claims it first again.
    for (const bool served : {true, false})
        for (const Entry& entry : entries_)
            if (entry.served == served) out(entry.address.gid, entry.address.vlan, entry.macs);
}

void Addresses::load(base::StateReader& in) {
    std::vector<base::MacAddr> macs;
    in(macs);
    for (const base::MacAddr& mac : macs)
        if (in.ok()) (void)add(mac);  // somebody else may have it here
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) {
        roce::Address address;
        in(address.gid, address.vlan, macs);
        in.require(address.vlan < roce::kReservedVlan && macs.size() <= kMostMacs,
                   "address that cannot be");
        for (const base::MacAddr& mac : macs)
            if (in.ok()) (void)add(address, mac);
    }
}

void Limiter::save(base::StateWriter& out) const {
    out(dcqcn_);
}

void Limiter::load(base::StateReader& in) {
    const base::TimePoint now = qp_.datapath.executor.now();
    in(dcqcn_);
    dcqcn_.resume(now);
    wake(now);
}

}  // namespace openmana::rnic
