// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include <mana/ext.h>
#include <mana/rnic.h>

#include "rnic/adapter.h"
#include "rnic/ext_queues.h"
#include "rnic/stock_queues.h"

// The state of an adapter: what its commands have made. Queue pairs are read when all that they
// need is there, and found by others when all of it is read.

namespace openmana::rnic {
namespace {

constexpr std::uint16_t kVersion = 1;

bool is_ring(const gdma::DmaRegion* region, std::uint64_t least, std::uint64_t most) {
    return region != nullptr && region->length() >= least && region->length() <= most;
}

}  // namespace

/// What only a driver that negotiated them can have.
void Adapter::require_extensions(base::StateReader& in, bool needed) const {
    in.require(!needed || datapath.config.extensions, "extensions that this NIC does not have");
}

// ---- queue pairs

namespace {

/// Ids and owner of a queue pair, as a state has them.
struct QpHead {
    Qpn qpn{};
    QpType type = QpType::kRc;
    bool extended = false;
    gdma::Sqn sq{};
    gdma::Pdn pd{};
    gdma::Cqn send_cq{};
    gdma::Cqn recv_cq{};
    gdma::DoorbellPage page{};
    std::uint32_t sq_position = 0;
    std::uint32_t rq_position = 0;
    std::uint32_t rreq_position = 0;

    /// Queue ids that it has of each kind (RNIC 3.2).
    [[nodiscard]] std::uint32_t ids() const {
        return !extended && (type == QpType::kRc || type == QpType::kUc) ? 4 : 1;
    }
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a.choice(self.type, QpType::kUc);
        a(self.qpn, self.extended, self.sq, self.pd, self.send_cq, self.recv_cq, self.page,
          self.sq_position, self.rq_position, self.rreq_position);
    }
};

}  // namespace

void Adapter::save_qp(base::StateWriter& out, const Qp& qp) const {
    QpHead head;
    head.qpn = qp.qpn();
    head.type = qp.type;
    const auto* const extended = dynamic_cast<const QpWith<ExtQueues>*>(&qp);
    head.extended = extended != nullptr;
    head.sq = qp.ids.sq;
    head.pd = qp.pd->id;
    head.send_cq = qp.send_cq->id();
    head.recv_cq = qp.recv_cq->id();
    head.page = qp.page->page;
    head.sq_position = function.sqs().position(qp.ids.sq);
    head.rq_position = function.rqs().position(qp.ids.rq);
    if (!head.extended && qp.type == QpType::kRc)
        head.rreq_position = function.rqs().position(qp.ids.rreq);
    out(head);
    if (extended != nullptr)
        extended->format.save_layout(out);
    else
        dynamic_cast<const QpWith<StockQueues>&>(qp).format.save_layout(out);
    qp.save(out);
}

/// Null if it is refused. What it holds is as uses_of() would find it.
Qp* Adapter::load_qp(base::StateReader& in) {
    const auto head = in.get<QpHead>();
    require_extensions(in, head.extended);
    if (!in.ok()) return nullptr;
    QpUses uses;
    uses.pd = function.pds().held(head.pd);
    uses.send_cq = function.cqs().restored(head.send_cq);
    uses.recv_cq = function.cqs().restored(head.recv_cq);
    uses.page = function.pages().held(head.page);
    const bool gsi = head.type == QpType::kGsi;
    const auto is_ours = [&](const gdma::Handle<gdma::CompletionQueue>& cq) {
        return cq && cq->id().value() < cqs.size() && cqs[cq->id().value()] == cq &&
               (!head.extended || cq->has_record());
    };
    in.require(uses.pd && uses.pd->owner == gdma::kGuest && uses.page && is_ours(uses.send_cq) &&
                   is_ours(uses.recv_cq) && qps.count() < datapath.config.max_qps &&
                   gsi == (head.qpn.value() == kGsiRq.value()),
               "queue pair that cannot be");
    auto charge = function.account().charge(Qp::growth());
    if (!charge) in.refuse(charge.error());
    if (!in.ok()) return nullptr;
    uses.charge = std::move(*charge);
    const std::uint32_t ids = head.ids();
    uses.sqs = function.sqs().adopt(in, head.sq, ids);
    uses.rqs = function.rqs().adopt(in, gdma::Rqn(head.qpn.value()), ids);
    in.require(ids == 1 || (head.sq.value() % ids == 0 && head.qpn.value() % ids == 0),
               "ids that no queue pair has");
    if (!in.ok()) return nullptr;
    if (const auto room = qps.prepare(head.qpn); !room) {
        in.refuse(room.error());
        return nullptr;
    }
    const bool scatters = !head.extended && head.type == QpType::kRc;
    const Qp::Ids all{head.sq, gdma::Rqn(head.qpn.value()),
                      scatters ? uses.rqs.at(1) : gdma::Rqn{}};
    Qp* const qp = head.extended ? load_extended(in, head.type, all, std::move(uses))
                                 : load_stock(in, head.type, all, std::move(uses));
    if (qp == nullptr) return nullptr;
    qp->load(in);
    if (!in.ok()) {
        qps.destroy(*qp);
        return nullptr;
    }
    gdma::DoorbellTarget* reads = nullptr;
    if (scatters) reads = &dynamic_cast<QpWith<StockQueues>&>(*qp).format.sends.read_doorbell();
    connect(*qp, reads);
    function.sqs().position(all.sq) = head.sq_position;
    function.rqs().position(all.rq) = head.rq_position;
    if (scatters) function.rqs().position(all.rreq) = head.rreq_position;
    return qp;
}

Qp* Adapter::load_stock(base::StateReader& in, QpType type, const QpIds& ids, QpUses uses) {
    auto regions = StockQueues::load_layout(in, function.account());
    const bool scatters = type == QpType::kRc;
    in.require(is_ring(regions.send.get(), kMinSendRing, kMaxRing) &&
                   is_ring(regions.receive.get(), kMinReceiveRing, kMaxRing) &&
                   (scatters ? is_ring(regions.read_scatter.get(), kMinReceiveRing, kMaxRing)
                             : regions.read_scatter == nullptr),
               "rings that no queue pair has");
    if (!in.ok()) return nullptr;
    return &qps.create<StockQueues>(datapath, type, ids, std::move(uses), std::move(regions));
}

Qp* Adapter::load_extended(base::StateReader& in, QpType type, const QpIds& ids, QpUses uses) {
    ExtQueues::Layout layout;
    layout.region = gdma::DmaRegion::load(in, function.account());
    std::uint32_t srq = 0;
    in(layout.sq_bytes, layout.rq_bytes, layout.rq_stride, layout.privileged, srq);
    layout.fresh = false;
    if (srq != 0) {
        layout.srq = srq < srqs.size() ? srqs[srq] : nullptr;
        in.require(bool(layout.srq), "queue pair of no SRQ");
    }
    in.require(layout.region != nullptr &&
                   ext_rings_fit(*layout.region, {layout.sq_bytes, layout.rq_bytes,
                                                  layout.rq_stride, bool(layout.srq)}),
               "rings that no queue pair has");
    if (!in.ok()) return nullptr;
    return &qps.create<ExtQueues>(datapath, type, ids, std::move(uses), std::move(layout));
}

// ---- completion queues, shared receive queues

void Adapter::save_cqs(base::StateWriter& out) const {
    out.count(static_cast<std::size_t>(
        std::ranges::count_if(cqs, [](const auto& cq) { return bool(cq); })));
    for (const auto& cq : cqs)
        if (cq) out(cq->id());
}

void Adapter::load_cqs(base::StateReader& in) {
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) {
        const auto id = in.get<gdma::Cqn>();
        auto cq = function.cqs().restored(id);
        in.require(bool(cq), "CQ that there is not");
        if (!in.ok()) return;
        if (id.value() >= cqs.size()) cqs.resize(id.value() + 1);
        in.require(!cqs[id.value()], "CQ that is there twice");
        require_extensions(in, cq->has_record());
        if (cq->has_record()) watch_overrun(*cq);
        cqs[id.value()] = std::move(cq);
    }
}

void Adapter::save_srqs(base::StateWriter& out) const {
    out(srq_ids.has_value());
    if (!srq_ids) return;
    srq_ids->save(out);
    out.count(srq_ids->used());
    for (const auto& srq : srqs) {
        if (!srq) continue;
        out(srq->id(), srq->pd()->id, static_cast<std::uint32_t>(srq->ring().bytes()),
            srq->stride());
        srq->ring().region().save(out);
        srq->save(out);
    }
}

void Adapter::load_srqs(base::StateReader& in) {
    if (!in.get<bool>()) return;
    require_extensions(in, true);
    srq_ids.emplace(1, kMaxSrqs);
    srq_ids->load(in);
    const std::size_t count = in.count();
    in.require(count == srq_ids->used(), "SRQs without a number");
    for (std::size_t i = 0; i < count && in.ok(); ++i) {
        std::uint32_t id = 0;
        gdma::Pdn pdn;
        SharedReceiveQueue::Layout layout;
        in(id, pdn, layout.ring_bytes, layout.stride);
        layout.region = gdma::DmaRegion::load(in, function.account());
        auto pd = function.pds().held(pdn);
        auto charge = function.account().charge(SharedReceiveQueue::cost());
        if (!charge) in.refuse(charge.error());
        in.require(srq_ids->claim(id) && pd && pd->owner == gdma::kGuest && layout.region &&
                       srq_fits(*layout.region, layout.ring_bytes, layout.stride),
                   "SRQ that cannot be");
        if (!in.ok()) return;
        if (id >= srqs.size()) srqs.resize(id + 1);
        srqs[id] = gdma::make_handle<SharedReceiveQueue>(function.memory(), datapath.events,
                                                         datapath.counters.bad_records, id,
                                                         std::move(pd), layout, std::move(*charge));
        srqs[id]->load(in);
    }
    in.require(srq_ids->all_claimed(), "number of no SRQ");
}

// ---- all of it

void Adapter::save(base::StateWriter& out) const {
    out.begin("RNIC", kVersion);
    base::save_counters(out, datapath.counters);
    out(created, extensions_wanted);
    if (created) {
        out(datapath.events.eq() != nullptr ? datapath.events.eq()->id() : gdma::Eqn(0),
            datapath.error_cqes.wanted, datapath.current_rate_mbps);
        save_cqs(out);
        save_srqs(out);
        out.count(qps.count());
        // Who reads the last one first makes a table for all, which takes no more than this one.
        qps.for_each_backwards([&](const Qp& qp) { save_qp(out, qp); });
        datapath.datagrams.save(out);
    }
    datapath.addresses.save(out);
    inbox.save(out);
    out.end();
}

void Adapter::load(base::StateReader& in) {
    in.begin("RNIC", kVersion);
    base::load_counters(in, datapath.counters);
    in(created, extensions_wanted);
    require_extensions(in, extensions_wanted || function.key_changes().fast_registration_allowed());
    in.require(!extensions_wanted || created, "extensions without an adapter");
    std::vector<Qp*> loaded;
    if (created && in.ok()) {
        const auto eq = function.eqs().find(in.get<gdma::Eqn>());
        in(datapath.error_cqes.wanted, datapath.current_rate_mbps);
        in.require(eq.has_value(), "adapter without an EQ");
        if (in.ok()) {
            datapath.events.use(*eq);
            datapath.network.extensions_negotiated(extensions_wanted);
        }
        {
            const base::Gate::Exclusion exclusion(function.gate(), {"load of the adapter"});
            qps.begin(Qpn(function.rqs().first_public().value()));
        }
        load_cqs(in);
        load_srqs(in);
        for (std::size_t n = in.count(); n > 0 && in.ok(); --n)
            if (Qp* const qp = load_qp(in)) loaded.push_back(qp);
        datapath.datagrams.load(in);
    }
    datapath.addresses.load(in);
    require_extensions(in, datapath.datagrams.any_group() || datapath.addresses.any_extended());
    inbox.load(in);
    in.end();
    if (!in.ok()) return;
    for (Qp* const qp : loaded) qp->go_on();
    for (const auto& cq : cqs)
        if (cq && cq->overrun() && !cq->overrun_told())
            datapath.tasks.post([this, id = cq->id().value()] { cq_overrun(id); });
}

}  // namespace openmana::rnic
