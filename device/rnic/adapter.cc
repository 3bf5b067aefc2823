// SPDX-License-Identifier: Apache-2.0
#include "rnic/adapter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/hold_meter.h"
#include "base/log.h"
#include "rnic/ext_queues.h"
#include "rnic/stock_queues.h"

namespace openmana::rnic {

Adapter::Adapter(gdma::Function& function_, const RnicConfig& config, Network& network)
    : function(function_),
      datapath(function, config, network, qps),
      qps(function.gate(), function.account(),
          std::max(sizeof(QpWith<StockQueues>), sizeof(QpWith<ExtQueues>))),
      dispatcher(datapath, qps),
      inbox(datapath.executor, datapath.counters.rx_overflow,
            [this](std::span<const base::Frame> frames) { return dispatcher.handle(frames); }) {}

void Adapter::connect(Qp& qp, gdma::DoorbellTarget* reads) {
    const gdma::DoorbellPage page = qp.page->page;
    function.sqs().connect(qp.ids.sq, page, &qp.send_doorbell,
                           static_cast<std::uint16_t>(qp.requester_memory().size()));
    function.rqs().connect(qp.ids.rq, page, &qp.receive_doorbell);
    if (reads != nullptr) function.rqs().connect(qp.ids.rreq, page, reads);
    qps.link(qp);
    OM_DEBUG("qp create: nic={} qpn={:#x}", datapath.nic, qp.qpn().value());
}

Qp* Adapter::qp_of(std::uint64_t handle) const {
    const std::uint64_t qpn = handle - kQpHandle;
    return qpn <= MANA_HW_RNIC_24BIT ? qps.find(Qpn(static_cast<std::uint32_t>(qpn))) : nullptr;
}

void Adapter::free_qp(Qp& qp) {
    OM_DEBUG("qp destroy: nic={} qpn={:#x}", datapath.nic, qp.qpn().value());
    qp.end_connection();
    if (qp.type == QpType::kUd) datapath.datagrams.remove(qp.qpn());
    datapath.events.forget_qp(qp.qpn());
    datapath.scheduler.forget(qp);
    qps.destroy(qp);
}

void Adapter::free_all(std::vector<Qp*>&& unlinked) {
    const base::Gate::Recess recess(function.gate());
    const std::vector<Qp*> all = std::move(unlinked);  // it ends with the gate open as well
    base::count_work(all.size());
    // At once, not one QP after the other.
    datapath.datagrams.clear();
    datapath.scheduler.clear();
    for (Qp* const qp : all)
        if (qp != nullptr) free_qp(*qp);
    datapath.scratch.slots.clear();
    function.key_changes().end_windows(std::nullopt);
    srqs.clear();
    srq_ids.reset();
    for (const auto& cq : cqs)
        if (cq) datapath.events.forget_cq(cq->id().value());
    cqs.clear();
    full_cqs = {};
    dispatcher.clear();
}

void Adapter::reset() {
    const base::Gate::Exclusion exclusion(function.gate(), {"reset of the adapter"});
    free_all(qps.unlink_all());
    created = false;
    extensions_wanted = false;
    datapath.reset();
    // With what came meanwhile. No more does, since there are no addresses now that it could be
    // for.
    const base::Gate::Recess recess(function.gate());
    inbox.clear();
}

}  // namespace openmana::rnic
