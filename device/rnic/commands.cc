// SPDX-License-Identifier: Apache-2.0
// The commands that make and destroy objects (RNIC 2). All run on the executor, with the gate open
// but where they change what visitors look at.
#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "rnic/adapter.h"
#include "rnic/ext_queues.h"
#include "rnic/stock_queues.h"

namespace openmana::rnic {

using gdma::HwcReply;
using gdma::HwcRequest;

namespace {

std::uint64_t count_of(const base::Counter& counter) {
    return counter.value();
}
std::uint64_t count_of(std::uint64_t count) {
    return count;
}

/// Of a port (RnicCounters) or a queue pair (QpEvents), into the answer that both have (RNIC 2.11).
template <typename Events>
void put_events(mana_hw_rnic_vf_counters_resp& answer, const Events& e) {
    answer.requester_timeouts = e.timeouts.value();
    answer.requester_oos_naks = e.oos_naks.value();
    answer.requester_rnr_naks = e.rnr_naks.value();
    answer.responder_rnr_naks = e.rnr_naks_sent.value();
    answer.responder_out_of_sequence = e.out_of_sequence.value();
    answer.responder_duplicates = e.duplicates.value();
    answer.requester_implicit_naks = e.implicit_naks.value();
    answer.read_response_psn_mismatches = e.read_psn_mismatches.value();
    answer.nak_invalid_request = e.nak_invalid_request.value();
    answer.nak_access_error = e.nak_access.value();
    answer.nak_operation_error = e.nak_operation.value();
    answer.responder_local_length_errors = e.receive_too_long.value();
    answer.requester_local_protection_errors = e.send_protection.value();
    answer.responder_remote_access_errors = e.remote_access.value();
    answer.responder_local_qp_errors = e.receive_qp_errors.value();
    answer.responder_malformed_wqes = e.malformed_receives.value();
    answer.requester_rnr_retries_exceeded = e.rnr_exceeded.value();
    answer.requester_retries_exceeded = e.retries_exceeded.value();
    answer.fatal_errors = e.fatal_errors.value();
    answer.received_cnps = e.cnps.value();
    answer.congested_qps = e.rate_cuts.value();
    answer.rate_increases = e.rate_increases.value();
    answer.recovered_qps = e.rate_recoveries.value();
    answer.duplicate_rx_requests = e.duplicates.value();
}

/// Adds that of a port (RnicCounters), or of a side of a queue pair (QpTraffic).
template <typename Traffic>
void add_traffic(mana_hw_rnic_vf_counters_resp& answer, const Traffic& t) {
    answer.tx_bytes += count_of(t.tx_bytes);
    answer.rx_bytes += count_of(t.rx_bytes);
    answer.rx_sends += count_of(t.rx_sends);
    answer.rx_writes += count_of(t.rx_writes);
    answer.rx_reads += count_of(t.rx_reads);
    answer.tx_packets += count_of(t.tx_packets);
    answer.rx_packets += count_of(t.rx_packets);
}

}  // namespace

void Adapter::command(const HwcRequest& request, HwcReply& reply) {
    const base::Gate::Recess recess(function.gate());
    const std::uint32_t opcode = request.opcode();
    if (opcode == MANA_HW_RNIC_QUERY_CAPS) {
        query_caps(reply);
        return;
    }
    std::uint32_t status = gdma::kHwcUnsupported;
    if (opcode == MANA_HW_RNIC_CREATE_ADAPTER) {
        status = create_adapter(request, reply);
    } else if (opcode >= MANA_HW_RNIC_DESTROY_ADAPTER &&
               opcode <= MANA_HW_RNIC_QUERY_DEVICE_COUNTERS &&
               (!created || request.get<std::uint64_t>(40) != kAdapterHandle)) {
        status = gdma::kHwcNotFound;
    } else if (opcode >= MANA_HW_EXT_QUERY_CAPS) {
        status = ext_command(request, reply);
    } else {
        switch (opcode) {
            case MANA_HW_RNIC_DESTROY_ADAPTER:
                reset();
                status = gdma::kHwcSuccess;
                break;
            case MANA_HW_RNIC_CONFIG_ADDRESS:
                status = config_address(request);
                break;
            case MANA_HW_RNIC_CONFIG_MAC:
                status = config_mac(request);
                break;
            case MANA_HW_RNIC_CREATE_CQ:
                status = create_cq(request, reply);
                break;
            case MANA_HW_RNIC_DESTROY_CQ:
                status = destroy_cq(request);
                break;
            case MANA_HW_RNIC_CREATE_RC_QP:
                status = create_rc_qp(request, reply);
                break;
            case MANA_HW_RNIC_DESTROY_RC_QP:
                status = destroy_qp(request, true);
                break;
            case MANA_HW_RNIC_CREATE_UC_QP:
                status = create_uc_qp(request, reply);
                break;
            case MANA_HW_RNIC_CREATE_UD_QP:
                status = create_ud_qp(request, reply);
                break;
            case MANA_HW_RNIC_DESTROY_UD_QP:
                status = destroy_qp(request, false);
                break;
            case MANA_HW_RNIC_SET_QP_STATE:
                status = set_qp_state(request);
                break;
            case MANA_HW_RNIC_QUERY_VF_COUNTERS:
                vf_counters(reply);
                status = gdma::kHwcSuccess;
                break;
            case MANA_HW_RNIC_QUERY_DEVICE_COUNTERS:
                device_counters(reply);
                status = gdma::kHwcSuccess;
                break;
            default:
                break;
        }
    }
    reply.set_status(status);
}

void Adapter::query_caps(HwcReply& reply) {
    const gdma::FunctionConfig& limits = function.config();
    mana_hw_rnic_query_caps_resp caps{};
    caps.max_sq_id = 0xffffff;
    caps.max_rq_id = 0xffffff;
    caps.max_cq_id = limits.max_cqs - 1;
    caps.max_qp = datapath.config.max_qps;
    caps.max_cq = std::min<std::uint32_t>(limits.max_cqs, 16384);
    caps.max_mr = limits.max_mrs;
    caps.max_pd = limits.max_pds;
    caps.max_inbound_reads = datapath.config.max_reads;
    caps.max_outbound_reads = datapath.config.max_reads;
    caps.max_mw = limits.max_mrs;
    caps.requester_sq_bytes = 4194304;
    caps.responder_sq_bytes = 4096;
    caps.requester_rq_bytes = 2097152;
    caps.responder_rq_bytes = 2097152;
    caps.max_send_sge = 29;
    caps.max_recv_sge = 15;
    caps.features = MANA_HW_RNIC_CAP_ERROR_CQES | MANA_HW_RNIC_CAP_DEVICE_COUNTERS;
    if (datapath.config.extensions) caps.features |= MANA_HW_RNIC_CAP_EXTENSIONS;
    write_message(reply, caps);
    reply.set_status(gdma::kHwcSuccess);
}

std::uint32_t Adapter::create_adapter(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_rnic_create_adapter_req>(request);
    if (created) return gdma::kHwcBusy;
    auto eq = function.eqs().find(gdma::Eqn(message.event_eq));
    if (!eq) return gdma::kHwcNotFound;
    const base::Gate::Exclusion exclusion(function.gate(), {"CREATE_ADAPTER"});
    created = true;
    qps.begin(Qpn(function.rqs().first_public().value()));
    datapath.events.use(std::move(*eq));
    datapath.error_cqes.wanted = (message.features & MANA_HW_RNIC_FEATURE_ERROR_CQES) != 0;
    extensions_wanted =
        datapath.config.extensions && (message.features & MANA_HW_RNIC_FEATURE_EXTENSIONS) != 0;
    function.key_changes().allow_fast_registration(extensions_wanted);
    datapath.network.extensions_negotiated(extensions_wanted);
    mana_hw_rnic_create_adapter_resp answer{};
    answer.adapter = kAdapterHandle;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::config_address(const HwcRequest& request) {
    const auto message = read_message<mana_hw_rnic_config_address_req>(request);
    roce::Gid gid{};
    std::reverse_copy(std::begin(message.gid), std::end(message.gid), gid.begin());
    if (roce::is_ipv4(gid) != (message.type == MANA_HW_RNIC_ADDRESS_IPV4))
        return gdma::kHwcInvalidParameter;
    if (message.operation == MANA_HW_RNIC_CONFIG_ADD) return datapath.addresses.add(gid);
    if (message.operation == MANA_HW_RNIC_CONFIG_REMOVE) return datapath.addresses.remove(gid);
    return gdma::kHwcInvalidParameter;
}

std::uint32_t Adapter::config_mac(const HwcRequest& request) {
    const auto message = read_message<mana_hw_rnic_config_mac_req>(request);
    base::MacAddr mac{};
    std::reverse_copy(std::begin(message.mac), std::end(message.mac), mac.begin());
    if ((mac[0] & 1) != 0 || mac == base::MacAddr{}) return gdma::kHwcInvalidParameter;
    if (message.operation == MANA_HW_RNIC_CONFIG_ADD) return datapath.addresses.add(mac);
    if (message.operation == MANA_HW_RNIC_CONFIG_REMOVE) return datapath.addresses.remove(mac);
    return gdma::kHwcInvalidParameter;
}

std::uint32_t Adapter::create_cq(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_rnic_create_cq_req>(request);
    const gdma::RegionHandle handle(message.region);
    const auto page = function.pages().find(gdma::DoorbellPage(message.doorbell_page));
    auto region = function.regions().claim(handle);
    const auto eq = function.eqs().find(gdma::Eqn(message.eq_id));
    if (!region || !eq) return gdma::kHwcNotFound;
    const std::uint64_t bytes = (*region)->length() / 64 * 64;
    if (bytes == 0 || !page) return gdma::kHwcInvalidParameter;
    const auto cq = function.cqs().create(std::move(*region), bytes, *eq, *page, {});
    if (!cq) return gdma::kHwcNoResources;
    const std::uint32_t id = (*cq)->id().value();
    if (id >= cqs.size()) cqs.resize(id + 1);
    OM_DEBUG("cq create: nic={} cqn={:#x} entries={}", datapath.nic, id, (*cq)->entries());
    cqs[id] = *cq;
    mana_hw_rnic_create_cq_resp answer{};
    answer.cq = kCqHandle + id;
    answer.cq_id = id;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

gdma::Handle<gdma::CompletionQueue> Adapter::cq_of(std::uint64_t handle) const {
    const std::uint64_t id = handle - kCqHandle;
    return id < cqs.size() ? cqs[id] : nullptr;
}

std::uint32_t Adapter::destroy_cq(const HwcRequest& request) {
    const auto message = read_message<mana_hw_rnic_destroy_cq_req>(request);
    const std::uint64_t id = message.cq - kCqHandle;
    if (id >= cqs.size() || !cqs[id]) return gdma::kHwcNotFound;
    if (cqs[id]->holders() > 1) return gdma::kHwcBusy;
    cqs[id] = nullptr;
    std::erase(full_cqs.round, id);
    std::erase(full_cqs.next, id);
    datapath.events.forget_cq(static_cast<std::uint32_t>(id));
    OM_DEBUG("cq destroy: nic={} cqn={:#x}", datapath.nic, id);
    return gdma::kHwcSuccess;
}

base::Result<QpUses> Adapter::uses_of(const NewQp& named, const NewIds& wanted) {
    const auto pd = function.pds().find(gdma::PdHandle(named.pd));
    auto send_cq = cq_of(named.send_cq);
    auto recv_cq = cq_of(named.recv_cq);
    if (!pd || !send_cq || !recv_cq)
        return base::fail(base::ErrorCode::kNotFound, "no such PD or CQ", named.pd);
    const auto page = function.pages().find(gdma::DoorbellPage(named.doorbell_page));
    if (!page)
        return base::fail(base::ErrorCode::kInvalidArgument, "no such doorbell page",
                          named.doorbell_page);
    if (qps.count() >= datapath.config.max_qps)
        return base::fail(base::ErrorCode::kExhausted, "no QP left", datapath.config.max_qps);
    TRY(auto charge, function.account().charge(Qp::growth()));
    TRY(auto sqs, function.sqs().allocate(wanted.count, wanted.align));
    TRY(auto rqs, wanted.gsi ? function.rqs().allocate_reserved(kGsiRq)
                             : function.rqs().allocate_public(wanted.count, wanted.align));
    if (!qps.prepare(Qpn(rqs.first().value())))
        return base::fail(base::ErrorCode::kExhausted, "no room for a QP", rqs.first().value());
    return QpUses{*pd,
                  std::move(send_cq),
                  std::move(recv_cq),
                  *page,
                  std::move(sqs),
                  std::move(rqs),
                  std::move(charge)};
}

namespace {

/// A ring of a new QP: the region that the message names, and how many bytes it has at least; 0 for
/// what is never read.
struct NewRing {
    std::uint64_t region;
    std::uint64_t least;
};

/// The regions, which become the QP's when they are taken. No region is two rings.
base::Result<std::vector<gdma::RegionClaim>> claim_rings(gdma::RegionTable& regions,
                                                         std::span<const NewRing> rings) {
    std::vector<gdma::RegionClaim> claims;
    for (const NewRing& ring : rings) {
        if (std::ranges::count(rings, ring.region, &NewRing::region) != 1)
            return base::fail(base::ErrorCode::kInvalidArgument, "a region for two rings",
                              ring.region);
        TRY(auto claim, regions.claim(gdma::RegionHandle(ring.region)));
        if (ring.least != 0 && (claim->length() < ring.least || claim->length() > kMaxRing))
            return base::fail(base::ErrorCode::kInvalidArgument, "no length of a ring",
                              claim->length());
        claims.push_back(std::move(claim));
    }
    return claims;
}

}  // namespace

std::uint32_t Adapter::create_rc_qp(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_rnic_create_rc_qp_req>(request);
    // Nothing is read from the SQs of the responder and of fast registration, which may be none.
    std::vector<NewRing> rings{{message.regions[MANA_HW_RNIC_REQUESTER_SQ], kMinSendRing},
                               {message.regions[MANA_HW_RNIC_REQUESTER_RQ], kMinReceiveRing},
                               {message.regions[MANA_HW_RNIC_RESPONDER_RQ], kMinReceiveRing},
                               {message.regions[MANA_HW_RNIC_RESPONDER_SQ], 0}};
    if (const std::uint64_t region = message.regions[MANA_HW_RNIC_FAST_REGISTER_SQ]; region != 0)
        rings.push_back({region, 0});
    auto claims = claim_rings(function.regions(), rings);
    if (!claims) return gdma::status_of(claims.error());
    auto uses = uses_of({message.pd, message.send_cq, message.recv_cq, message.doorbell_page},
                        {.count = 4, .align = 4});
    if (!uses) return gdma::status_of(uses.error());
    StockQueues::Regions queues;
    queues.send = (*claims)[0].take();
    queues.read_scatter = (*claims)[1].take();
    queues.receive = (*claims)[2].take();
    for (std::size_t i = 3; i < claims->size(); ++i) queues.held.push_back((*claims)[i].take());
    // Ids: RNIC 3.2.
    const Qp::Ids ids{uses->sqs.first(), uses->rqs.first(), uses->rqs.at(1)};
    QpWith<StockQueues>& qp =
        qps.create<StockQueues>(datapath, QpType::kRc, ids, std::move(*uses), std::move(queues));
    qp.attributes.max_read_out = datapath.config.max_reads;
    qp.attributes.max_read_in = datapath.config.max_reads;
    connect(qp, &qp.format.sends.read_doorbell());
    mana_hw_rnic_create_rc_qp_resp answer{};
    answer.qp = kQpHandle + qp.qpn().value();
    answer.queue_ids[MANA_HW_RNIC_REQUESTER_SQ] = ids.sq.value();
    answer.queue_ids[MANA_HW_RNIC_RESPONDER_SQ] = ids.sq.value() + 1;
    answer.queue_ids[MANA_HW_RNIC_FAST_REGISTER_SQ] = ids.sq.value() + 2;
    answer.queue_ids[MANA_HW_RNIC_REQUESTER_RQ] = ids.rreq.value();
    answer.queue_ids[MANA_HW_RNIC_RESPONDER_RQ] = ids.rq.value();
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::create_uc_qp(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_rnic_create_uc_qp_req>(request);
    // Nothing is read from the memory-management queue.
    const NewRing rings[] = {{message.regions[MANA_HW_RNIC_UC_SQ], kMinSendRing},
                             {message.regions[MANA_HW_RNIC_UC_RQ], kMinReceiveRing},
                             {message.regions[MANA_HW_RNIC_UC_MEMORY_SQ], 0}};
    auto claims = claim_rings(function.regions(), rings);
    if (!claims) return gdma::status_of(claims.error());
    auto uses = uses_of({message.pd, message.send_cq, message.recv_cq, message.doorbell_page},
                        {.count = 4, .align = 4});
    if (!uses) return gdma::status_of(uses.error());
    StockQueues::Regions queues;
    queues.send = (*claims)[0].take();
    queues.receive = (*claims)[1].take();
    queues.held.push_back((*claims)[2].take());
    const Qp::Ids ids{uses->sqs.first(), uses->rqs.first(), gdma::Rqn{}};
    Qp& qp =
        qps.create<StockQueues>(datapath, QpType::kUc, ids, std::move(*uses), std::move(queues));
    connect(qp);
    mana_hw_rnic_create_uc_qp_resp answer{};
    answer.qp = kQpHandle + qp.qpn().value();
    answer.queue_ids[MANA_HW_RNIC_UC_SQ] = ids.sq.value();
    answer.queue_ids[MANA_HW_RNIC_UC_RQ] = ids.rq.value();
    answer.queue_ids[MANA_HW_RNIC_UC_MEMORY_SQ] = ids.sq.value() + 2;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::create_ud_qp(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_rnic_create_ud_qp_req>(request);
    const bool gsi = message.type == MANA_HW_RNIC_UD_GSI;
    if (!gsi && message.type != MANA_HW_RNIC_UD_USER) return gdma::kHwcInvalidParameter;
    const NewRing rings[] = {{message.sq_region, kMinSendRing},
                             {message.rq_region, kMinReceiveRing}};
    // A block of ids of its own: the driver of 7.3 leaves their two low bits out (RNIC 3.2).
    auto claims = claim_rings(function.regions(), rings);
    if (!claims) return gdma::status_of(claims.error());
    auto uses = uses_of({message.pd, message.send_cq, message.recv_cq, message.doorbell_page},
                        {.count = 1, .align = 4, .gsi = gsi});
    if (!uses) return gdma::status_of(uses.error());
    StockQueues::Regions queues;
    queues.send = (*claims)[0].take();
    queues.receive = (*claims)[1].take();
    const Qp::Ids ids{uses->sqs.first(), uses->rqs.first(), gdma::Rqn{}};
    Qp& qp = qps.create<StockQueues>(datapath, gsi ? QpType::kGsi : QpType::kUd, ids,
                                     std::move(*uses), std::move(queues));
    if (!gsi) datapath.datagrams.listen(qp.qpn());
    connect(qp);
    mana_hw_rnic_create_ud_qp_resp answer{};
    answer.qp = kQpHandle + qp.qpn().value();
    answer.sq_id = ids.sq.value();
    answer.rq_id = ids.rq.value();
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::destroy_qp(const HwcRequest& request, bool connected) {
    const auto message = read_message<mana_hw_rnic_destroy_qp_req>(request);
    Qp* const qp = qp_with<StockQueues>(message.qp);
    if (qp == nullptr || qp->connected() != connected) return gdma::kHwcNotFound;
    qps.unlink(*qp);
    free_qp(*qp);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::set_qp_state(const HwcRequest& request) {
    const auto message = read_message<mana_hw_rnic_set_qp_state_req>(request);
    Qp* const qp = qp_of(message.qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    // What an older driver's message cannot carry keeps its default, whatever its mask says.
    const bool whole = request.size() >= sizeof message;
    return modify_qp(*qp, message, whole, roce::kNoVlan);
}

void Adapter::vf_counters(HwcReply& reply) const {
    mana_hw_rnic_vf_counters_resp answer{};
    put_events(answer, datapath.counters);
    add_traffic(answer, datapath.counters);
    answer.current_rate = datapath.current_rate_mbps;
    write_message(reply, answer);
}

/// What the port's answer has, but for what only the port can have: its rate, and two (invalid
/// READs, hardware errors) of which there are none here.
std::uint32_t Adapter::ext_query_qp_counters(const HwcRequest& request, HwcReply& reply) {
    Qp* const qp = ext_qp(read_message<mana_hw_rnic_destroy_qp_req>(request).qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    mana_hw_rnic_vf_counters_resp answer{};
    put_events(answer, qp->events);
    add_traffic(answer, qp->requester.traffic);
    {
        const std::lock_guard lock(qp->responder.mutex);
        add_traffic(answer, qp->responder.traffic);
    }
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

void Adapter::device_counters(HwcReply& reply) const {
    mana_hw_rnic_device_counters_resp answer{};
    const auto low = [](const base::Counter& counter) {
        return static_cast<std::uint32_t>(counter.value());
    };
    answer.sent_cnps = low(datapath.counters.cnps_sent);
    answer.received_ecns = low(datapath.counters.ecn_marked);
    answer.received_cnps = low(datapath.counters.cnps);
    answer.congested_qps = low(datapath.counters.rate_cuts);
    answer.recovered_qps = low(datapath.counters.rate_recoveries);
    answer.rate_increases = low(datapath.counters.rate_increases);
    write_message(reply, answer);
}

}  // namespace openmana::rnic
