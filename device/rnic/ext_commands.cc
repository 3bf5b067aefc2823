// SPDX-License-Identifier: Apache-2.0
// The commands of the extension (docs/extensions.md). All run on the executor, with the gate open
// but where they change what visitors look at.
#include <mana/ext.h>

#include <bit>
#include <utility>

#include "base/hold_meter.h"
#include "base/log.h"
#include "rnic/adapter.h"
#include "rnic/ext_format.h"
#include "rnic/ext_queues.h"
#include "rnic/task_work.h"

namespace openmana::rnic {

using gdma::HwcReply;
using gdma::HwcRequest;

namespace {

constexpr std::uint32_t kMaxCqEntries = 1U << 22;
constexpr std::uint32_t kClockKhz = 1000000;
constexpr std::uint64_t kRecordBytes = MANA_HW_EXT_RECORD_BYTES;

/// True if a region of the driver can hold the rings and the record behind them.
bool holds(const gdma::DmaRegion& region, std::uint64_t ring_bytes) {
    return region.first_offset() % kRecordBytes == 0 && region.length() >= kRecordBytes &&
           ring_bytes <= region.length() - kRecordBytes;
}

/// Of an address: the id alone.
bool valid_vlan(std::uint16_t vlan) {
    return vlan < roce::kReservedVlan;
}

bool valid_stride(std::uint32_t stride) {
    return std::has_single_bit(stride) && stride >= 32 && stride <= MANA_HW_EXT_WQE_MAX_BYTES;
}

bool valid_receive_ring(std::uint32_t bytes, std::uint32_t stride) {
    return valid_stride(stride) && std::has_single_bit(bytes) && bytes >= kRecordBytes &&
           bytes >= stride && bytes / stride <= kExtMaxReceives;
}

}  // namespace

bool ext_rings_fit(const gdma::DmaRegion& region, const ExtRings& rings) {
    if (!std::has_single_bit(rings.sq_bytes) || rings.sq_bytes < MANA_HW_EXT_WQE_UNIT ||
        rings.sq_bytes > kExtMaxRingBytes)
        return false;
    if (rings.rq_bytes != 0 &&
        (rings.shared || !valid_receive_ring(rings.rq_bytes, rings.rq_stride)))
        return false;
    return holds(region, std::uint64_t{rings.sq_bytes} + rings.rq_bytes);
}

bool srq_fits(const gdma::DmaRegion& region, std::uint32_t ring_bytes, std::uint32_t stride) {
    return valid_receive_ring(ring_bytes, stride) && holds(region, ring_bytes);
}

std::uint32_t Adapter::ext_command(const HwcRequest& request, HwcReply& reply) {
    if (!extensions_wanted) return gdma::kHwcUnsupported;
    const std::uint32_t opcode = request.opcode();
    if (opcode == MANA_HW_EXT_QUERY_CAPS) {
        ext_query_caps(reply);
        return gdma::kHwcSuccess;
    }
    if (opcode > MANA_HW_EXT_SET_QP_STATE) return gdma::kHwcUnsupported;
    if (!created || request.get<std::uint64_t>(40) != kAdapterHandle) return gdma::kHwcNotFound;
    switch (opcode) {
        case MANA_HW_EXT_CREATE_CQ:
            return ext_create_cq(request, reply);
        case MANA_HW_EXT_RESIZE_CQ:
            return ext_resize_cq(request, reply);
        case MANA_HW_EXT_CREATE_QP:
            return ext_create_qp(request, reply);
        case MANA_HW_EXT_DESTROY_QP:
            return ext_destroy_qp(request);
        case MANA_HW_EXT_QUERY_QP:
            return ext_query_qp(request, reply);
        case MANA_HW_EXT_CREATE_SRQ:
            return ext_create_srq(request, reply);
        case MANA_HW_EXT_MODIFY_SRQ:
        case MANA_HW_EXT_QUERY_SRQ:
        case MANA_HW_EXT_DESTROY_SRQ:
            return ext_srq(request, reply);
        case MANA_HW_EXT_ATTACH_MULTICAST:
        case MANA_HW_EXT_DETACH_MULTICAST:
            return ext_multicast(request);
        case MANA_HW_EXT_MODIFY_MR:
            return ext_modify_mr(request);
        case MANA_HW_EXT_COPY_DM:
            return ext_copy_dm(request);
        case MANA_HW_EXT_GRANT_SOURCE:
            return ext_grant_source(request);
        case MANA_HW_EXT_REVOKE_SOURCE:
            return ext_revoke_source(request);
        case MANA_HW_EXT_CONFIG_ADDRESS:
            return ext_config_address(request);
        case MANA_HW_EXT_SET_QP_STATE:
            return ext_set_qp_state(request);
        default:
            return ext_query_qp_counters(request, reply);
    }
}

void Adapter::ext_query_caps(HwcReply& reply) const {
    mana_hw_ext_query_caps_resp caps{};
    caps.features = MANA_HW_EXT_RC | MANA_HW_EXT_UC | MANA_HW_EXT_UD | MANA_HW_EXT_SRQ |
                    MANA_HW_EXT_ATOMICS | MANA_HW_EXT_MEMORY_WINDOWS |
                    MANA_HW_EXT_FAST_REGISTRATION | MANA_HW_EXT_RESIZE | MANA_HW_EXT_TIMESTAMPS |
                    MANA_HW_EXT_MULTICAST | MANA_HW_EXT_QP_COUNTERS | MANA_HW_EXT_REREGISTRATION |
                    MANA_HW_EXT_PACKETS | MANA_HW_EXT_PACKET_SPREAD | MANA_HW_EXT_PACKET_CHECKSUMS |
                    MANA_HW_EXT_DM_COPIES | MANA_HW_EXT_SOURCES | MANA_HW_EXT_VLANS |
                    MANA_HW_EXT_MACS;
    caps.version = MANA_HW_EXT_VERSION;
    caps.max_srq = kMaxSrqs;
    caps.max_srq_wr = kExtMaxReceives;
    caps.max_srq_sge = kExtMaxSge;
    caps.max_send_wr = 16384;
    caps.max_recv_wr = kExtMaxReceives;
    caps.max_send_sge = kExtMaxSge;
    caps.max_recv_sge = kExtMaxSge;
    caps.max_inline_bytes = kExtMaxInline;
    caps.max_cqe = kMaxCqEntries;
    caps.max_fast_reg_pages = gdma::kMaxFastRegisterPages;
    caps.max_multicast_groups = Datagrams::kMaxGroups;
    caps.max_multicast_qps = Datagrams::kMaxGroupQps;
    caps.clock_khz = kClockKhz;
    write_message(reply, caps);
}

std::uint32_t Adapter::ext_create_cq(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_ext_create_cq_req>(request);
    const gdma::RegionHandle handle(message.region);
    const auto page = function.pages().find(gdma::DoorbellPage(message.doorbell_page));
    auto region = function.regions().claim(handle);
    const auto eq = function.eqs().find(gdma::Eqn(message.eq_id));
    if (!region || !eq) return gdma::kHwcNotFound;
    const std::uint64_t bytes = std::uint64_t{message.entries} * 64;
    if (!std::has_single_bit(message.entries) || message.entries > kMaxCqEntries ||
        !holds(**region, bytes) || !page)
        return gdma::kHwcInvalidParameter;
    const auto cq =
        function.cqs().create(std::move(*region), bytes, *eq, *page, {.with_record = true});
    if (!cq) return gdma::kHwcNoResources;
    const std::uint32_t id = (*cq)->id().value();
    if (id >= cqs.size()) cqs.resize(id + 1);
    OM_DEBUG("cq create: nic={} cqn={:#x} entries={}", datapath.nic, id, (*cq)->entries());
    cqs[id] = *cq;
    watch_overrun(**cq);
    mana_hw_rnic_create_cq_resp answer{};
    answer.cq = kCqHandle + id;
    answer.cq_id = id;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

void Adapter::watch_overrun(gdma::CompletionQueue& cq) {
    cq.on_overrun(
        [this, id = cq.id().value()] { datapath.tasks.post([this, id] { cq_overrun(id); }); });
}

/// The CQ lost a completion: its QPs are no use any more.
void Adapter::cq_overrun(std::uint32_t id) {
    // It may have gone meanwhile, and its id be another's.
    if (id >= cqs.size() || !cqs[id] || !cqs[id]->overrun() || cqs[id]->overrun_told()) return;
    OM_DEBUG("cq overrun: nic={} cqn={:#x}", datapath.nic, id);
    full_cqs.next.push_back(id);
    if (std::exchange(full_cqs.under_way, true)) return;
    full_cqs.round.swap(full_cqs.next);
    fail_users(0);
}

/// Goes on with a round from this place of the table. One QP fails in a task, since it flushes as
/// much as its queues hold.
void Adapter::fail_users(std::size_t place) {
    const auto lost = [](const gdma::CompletionQueue& cq) {
        return cq.overrun() && !cq.overrun_told();
    };
    Qp* failing = nullptr;
    for (; failing == nullptr && place < qps.places(); ++place) {
        Qp* const qp = qps.at(place);
        if (qp == nullptr || !(lost(*qp->send_cq) || lost(*qp->recv_cq))) continue;
        const std::uint32_t state = qp->state();
        if (state != MANA_HW_RNIC_QP_RESET && state != MANA_HW_RNIC_QP_ERR) failing = qp;
    }
    if (failing != nullptr) {
        failing->enter_error();
        failing->errors->fatal();
    } else {
        tell_of_full_cqs();
        if (full_cqs.round.empty()) {
            full_cqs.round.swap(full_cqs.next);
            place = 0;
        }
        full_cqs.under_way = !full_cqs.round.empty();
        if (!full_cqs.under_way) return;
    }
    datapath.tasks.post([this, place] { fail_users(place); });
}

/// When none of their QPs is left, so that who reads a state knows whether he has to go on. As many
/// as one task may.
void Adapter::tell_of_full_cqs() {
    const TaskWork work;
    while (!full_cqs.round.empty() && !work.done()) {
        const std::uint32_t id = full_cqs.round.back();
        full_cqs.round.pop_back();
        base::count_work(1);
        if (cqs[id]->overrun_told()) continue;
        cqs[id]->tell_overrun();
        datapath.counters.cq_overruns.add();
        datapath.events.extension(id, MANA_HW_EXT_EVENT_CQ_ERROR);
    }
}

std::uint32_t Adapter::ext_resize_cq(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_ext_resize_cq_req>(request);
    const gdma::RegionHandle handle(message.region);
    const auto cq = cq_of(message.cq);
    auto region = function.regions().claim(handle);
    if (!cq || !region) return gdma::kHwcNotFound;
    const std::uint64_t bytes = std::uint64_t{message.entries} * 64;
    if (!cq->has_record() || !std::has_single_bit(message.entries) ||
        message.entries > kMaxCqEntries || !holds(**region, bytes))
        return gdma::kHwcInvalidParameter;
    const auto consumer = function.cqs().resize(*cq, std::move(*region), bytes);
    if (!consumer) return gdma::kHwcBusy;
    mana_hw_ext_resize_cq_resp answer{};
    answer.consumer = *consumer;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

QpWith<ExtQueues>* Adapter::ext_qp(std::uint64_t handle) const {
    return qp_with<ExtQueues>(handle);
}

gdma::Handle<SharedReceiveQueue> Adapter::srq_of(std::uint64_t handle) const {
    const std::uint64_t id = handle - kSrqHandle;
    return id < srqs.size() ? srqs[id] : nullptr;
}

std::uint32_t Adapter::ext_create_qp(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_ext_create_qp_req>(request);
    auto srq = message.srq == 0 ? nullptr : srq_of(message.srq);
    auto region = function.regions().claim(gdma::RegionHandle(message.region));
    if (!region || (message.srq != 0 && !srq)) return gdma::kHwcNotFound;
    static constexpr QpType kTypes[] = {QpType::kGsi, QpType::kRc, QpType::kUc, QpType::kUd};
    if (message.type < MANA_HW_EXT_QP_GSI || message.type > MANA_HW_EXT_QP_UD ||
        (message.flags & ~MANA_HW_EXT_QP_PRIVILEGED) != 0)
        return gdma::kHwcInvalidParameter;
    const QpType type = kTypes[message.type - MANA_HW_EXT_QP_GSI];
    ExtQueues::Layout layout;
    layout.sq_bytes = message.sq_bytes;
    layout.rq_bytes = message.rq_bytes;
    layout.rq_stride = message.rq_stride;
    layout.srq = std::move(srq);
    layout.privileged = (message.flags & MANA_HW_EXT_QP_PRIVILEGED) != 0;
    if (!ext_rings_fit(**region,
                       {layout.sq_bytes, layout.rq_bytes, layout.rq_stride, bool(layout.srq)}))
        return gdma::kHwcInvalidParameter;
    auto uses = uses_of({message.pd, message.send_cq, message.recv_cq, message.doorbell_page},
                        {.count = 1, .align = 1, .gsi = type == QpType::kGsi});
    if (!uses) return gdma::status_of(uses.error());
    if (!uses->send_cq->has_record() || !uses->recv_cq->has_record())
        return gdma::kHwcInvalidParameter;
    layout.region = region->take();
    const Qp::Ids ids{uses->sqs.first(), uses->rqs.first(), gdma::Rqn{}};
    Qp& qp = qps.create<ExtQueues>(datapath, type, ids, std::move(*uses), std::move(layout));
    qp.attributes.max_read_out = datapath.config.max_reads;
    qp.attributes.max_read_in = datapath.config.max_reads;
    connect(qp);
    mana_hw_ext_create_qp_resp answer{};
    answer.qp = kQpHandle + qp.qpn().value();
    answer.sq_id = ids.sq.value();
    answer.rq_id = ids.rq.value();
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_destroy_qp(const HwcRequest& request) {
    QpWith<ExtQueues>* const qp = ext_qp(read_message<mana_hw_rnic_destroy_qp_req>(request).qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    qps.unlink(*qp);
    {
        const std::lock_guard lock(qp->responder.mutex);
        qp->format.receives.give_back();
    }
    function.key_changes().end_windows(qp->scope());
    free_qp(*qp);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_query_qp(const HwcRequest& request, HwcReply& reply) {
    Qp* const qp = ext_qp(read_message<mana_hw_rnic_destroy_qp_req>(request).qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    mana_hw_ext_query_qp_resp answer{};
    answer.state = qp->state();
    answer.sq_psn = qp->requester.next_psn().value();
    {
        const std::lock_guard lock(qp->responder.mutex);
        answer.rq_psn = qp->responder.expected().value();
    }
    answer.sq_draining = qp->state() == MANA_HW_RNIC_QP_SQD && !qp->requester.drained() ? 1 : 0;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_modify_mr(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_modify_mr_req>(request);
    constexpr std::uint32_t kKnown =
        MANA_HW_EXT_MODIFY_PD | MANA_HW_EXT_MODIFY_ACCESS | MANA_HW_EXT_MODIFY_MEMORY;
    if ((message.flags & ~kKnown) != 0) return gdma::kHwcInvalidParameter;
    gdma::KeyChanges::Change change;
    change.mr = message.mr;
    if ((message.flags & MANA_HW_EXT_MODIFY_PD) != 0) change.pd = gdma::PdHandle(message.pd);
    if ((message.flags & MANA_HW_EXT_MODIFY_ACCESS) != 0) change.access = message.access;
    if ((message.flags & MANA_HW_EXT_MODIFY_MEMORY) != 0) {
        change.region = gdma::RegionHandle(message.region);
        change.address = message.address;
    }
    const auto changed = function.key_changes().change(change);
    return changed ? gdma::kHwcSuccess : gdma::status_of(changed.error());
}

std::uint32_t Adapter::ext_copy_dm(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_copy_dm_req>(request);
    if (message.direction > MANA_HW_EXT_COPY_FROM_DM) return gdma::kHwcInvalidParameter;
    const auto copied =
        function.device_memory().copy({.dm = message.dm,
                                       .offset = message.offset,
                                       .address = base::GuestAddr(message.address),
                                       .length = message.length,
                                       .to_dm = message.direction == MANA_HW_EXT_COPY_TO_DM});
    return copied ? gdma::kHwcSuccess : gdma::status_of(copied.error());
}

std::uint32_t Adapter::ext_grant_source(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_grant_source_req>(request);
    if (!valid_vlan(message.vlan)) return gdma::kHwcInvalidParameter;
    gdma::SourceAddress address;
    std::copy(std::begin(message.gid), std::end(message.gid), address.ip.begin());
    address.vlan = message.vlan;
    const auto granted =
        function.pds().grant_source(gdma::PdHandle(message.pd), address, message.number);
    return granted ? gdma::kHwcSuccess : gdma::status_of(granted.error());
}

std::uint32_t Adapter::ext_revoke_source(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_revoke_source_req>(request);
    if (message.number >= MANA_HW_EXT_PD_SOURCES) return gdma::kHwcInvalidParameter;
    function.pds().revoke_source(message.number);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_config_address(const HwcRequest& request) {
    const auto whole = read_message<mana_hw_ext_config_mac_address_req>(request);
    const mana_hw_ext_config_address_req& message = whole.base;
    base::MacAddr mac{};
    std::copy(std::begin(whole.mac), std::end(whole.mac), mac.begin());
    if (!valid_vlan(message.vlan) || (mac[0] & 1) != 0) return gdma::kHwcInvalidParameter;
    if (mac == base::MacAddr{}) mac = datapath.config.mac;
    roce::Address address;
    std::copy(std::begin(message.gid), std::end(message.gid), address.gid.begin());
    address.vlan = message.vlan;
    if (message.operation == MANA_HW_RNIC_CONFIG_ADD) return datapath.addresses.add(address, mac);
    if (message.operation == MANA_HW_RNIC_CONFIG_REMOVE)
        return datapath.addresses.remove(address, mac);
    return gdma::kHwcInvalidParameter;
}

std::uint32_t Adapter::ext_set_qp_state(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_set_qp_state_req>(request);
    Qp* const qp = qp_of(message.base.qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    if (roce::vlan_of(message.vlan) == roce::kReservedVlan ||
        (message.vlan & roce::kDropEligible) != 0)
        return gdma::kHwcInvalidParameter;
    return modify_qp(*qp, message.base, true, message.vlan);
}

std::uint32_t Adapter::ext_create_srq(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_ext_create_srq_req>(request);
    const gdma::RegionHandle handle(message.region);
    const auto pd = function.pds().find(gdma::PdHandle(message.pd));
    auto region = function.regions().claim(handle);
    if (!pd || !region) return gdma::kHwcNotFound;
    if (!function.pages().find(gdma::DoorbellPage(message.doorbell_page)) ||
        !srq_fits(**region, message.ring_bytes, message.stride) ||
        message.limit > message.ring_bytes / message.stride)
        return gdma::kHwcInvalidParameter;
    auto charge = function.account().charge(SharedReceiveQueue::cost());
    if (!charge) return gdma::kHwcNoResources;
    if (!srq_ids) srq_ids.emplace(1, kMaxSrqs);
    const auto taken = srq_ids->take();
    if (!taken) return gdma::kHwcNoResources;
    const std::uint32_t id = *taken;
    if (id >= srqs.size()) srqs.resize(id + 1);
    const SharedReceiveQueue::Layout layout{.region = region->take(),
                                            .ring_bytes = message.ring_bytes,
                                            .stride = message.stride,
                                            .limit = message.limit};
    srqs[id] = gdma::make_handle<SharedReceiveQueue>(function.memory(), datapath.events,
                                                     datapath.counters.bad_records, id, *pd, layout,
                                                     std::move(*charge));
    mana_hw_ext_create_srq_resp answer{};
    answer.srq = kSrqHandle + id;
    answer.srq_id = id;
    write_message(reply, answer);
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_srq(const HwcRequest& request, HwcReply& reply) {
    const auto message = read_message<mana_hw_ext_srq_req>(request);
    const std::uint64_t id = message.srq - kSrqHandle;
    if (id >= srqs.size() || !srqs[id]) return gdma::kHwcNotFound;
    SharedReceiveQueue* const srq = srqs[id].get();
    if (request.opcode() == MANA_HW_EXT_MODIFY_SRQ) {
        if (message.limit > srq->entries()) return gdma::kHwcInvalidParameter;
        srq->set_limit(message.limit);
    } else if (request.opcode() == MANA_HW_EXT_QUERY_SRQ) {
        mana_hw_ext_query_srq_resp answer{};
        answer.limit = srq->limit();
        answer.posted = srq->posted();
        write_message(reply, answer);
    } else {
        if (srq->holders() > 1) return gdma::kHwcBusy;
        srqs[id] = nullptr;
        srq_ids->give_back(static_cast<std::uint32_t>(id));
    }
    return gdma::kHwcSuccess;
}

std::uint32_t Adapter::ext_multicast(const HwcRequest& request) {
    const auto message = read_message<mana_hw_ext_multicast_req>(request);
    const Qp* const qp = ext_qp(message.qp);
    if (qp == nullptr) return gdma::kHwcNotFound;
    roce::Gid gid{};
    std::copy(std::begin(message.gid), std::end(message.gid), gid.begin());
    if (qp->type != QpType::kUd || !roce::is_multicast(gid)) return gdma::kHwcInvalidParameter;
    Datagrams& datagrams = datapath.datagrams;
    return request.opcode() == MANA_HW_EXT_ATTACH_MULTICAST ? datagrams.join(gid, qp->qpn())
                                                            : datagrams.leave(gid, qp->qpn());
}

}  // namespace openmana::rnic
