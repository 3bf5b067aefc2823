// SPDX-License-Identifier: Apache-2.0
#include "support/ext_host.h"

#include <mana/gdma.h>
#include <mana/queue.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace openmana::test {
namespace {

constexpr unsigned kSqProducer = 0;
constexpr unsigned kSqKick = 1;
constexpr unsigned kRqProducer = 2;
constexpr unsigned kRqKick = 3;

template <typename T>
void append(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

template <typename T>
T message_of(const Response& response) {
    T message{};
    std::memcpy(&message, response.bytes.data(), std::min(sizeof message, response.bytes.size()));
    return message;
}

std::vector<std::byte> receive_wqe(std::uint32_t cookie, std::span<const gdma::Sge> sges) {
    std::vector<std::byte> wqe;
    mana_hw_ext_receive header{};
    header.sge_count = static_cast<std::uint32_t>(sges.size());
    header.cookie = cookie;
    append(wqe, header);
    for (const gdma::Sge& sge : sges) {
        append(wqe, sge.address);
        append(wqe, sge.key.value());
        append(wqe, sge.length);
    }
    return wqe;
}

std::uint32_t mtu_code(std::uint32_t mtu) {
    std::uint32_t code = 1;
    while (code < 5 && (128U << code) < mtu) ++code;
    return code;
}

template <typename T>
void put_reversed(Request& request, std::size_t offset, const T& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        request.put<std::uint8_t>(offset + bytes.size() - 1 - i, bytes[i]);
}

}  // namespace

void ExtMemory::write(std::uint64_t start, std::uint64_t end, std::uint64_t offset,
                      std::span<const std::byte> bytes) const {
    // In steps that cross neither a page nor the end.
    while (!bytes.empty()) {
        const std::uint64_t at = start + offset % (end - start);
        const std::size_t n = std::min<std::uint64_t>(
            {bytes.size(), end - at, GuestRam::kPage - at % GuestRam::kPage});
        std::memcpy(ring.at(at), bytes.data(), n);
        bytes = bytes.subspan(n);
        offset += n;
    }
}

// ---- CQ

std::optional<Cqe> ExtCq::poll_frame() {
    const std::byte* const entry = memory.ring.at(std::uint64_t{consumer % entries} * 64);
    // Partner: the device stores the owner bits last.
    const std::uint32_t word =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(entry + 60), __ATOMIC_ACQUIRE);
    if (word >> MANA_HW_OWNER_SHIFT != (consumer / entries & MANA_HW_OWNER_MASK))
        return std::nullopt;
    Cqe cqe;
    std::memcpy(cqe.data.data(), entry, cqe.data.size());
    cqe.queue_id = word & MANA_HW_CQE_QUEUE_ID;
    cqe.is_sq = (word & MANA_HW_CQE_IS_SQ) != 0;
    memory.store(0, ++consumer);
    return cqe;
}

std::optional<mana_hw_ext_cqe> ExtCq::poll() {
    const auto frame = poll_frame();
    if (!frame) return std::nullopt;
    mana_hw_ext_cqe cqe;
    std::memcpy(&cqe, frame->data.data(), sizeof cqe);
    return cqe;
}

std::vector<mana_hw_ext_cqe> ExtCq::drain() {
    std::vector<mana_hw_ext_cqe> all;
    while (const auto cqe = poll()) all.push_back(*cqe);
    return all;
}

void ExtCq::arm(bool solicited) {
    ++sequence;
    memory.store(1, sequence << MANA_HW_EXT_ARM_SEQUENCE_SHIFT |
                        (solicited ? MANA_HW_EXT_ARM_SOLICITED : 0));
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ExtSrq::post(std::uint32_t cookie, std::span<const gdma::Sge> sges) {
    memory.write(0, bytes, std::uint64_t{producer} * stride, receive_wqe(cookie, sges));
    memory.store(0, ++producer);
}

// ---- WQEs

std::vector<std::byte> ExtWr::wqe() const {
    std::vector<std::byte> bytes;
    mana_hw_ext_control control{};
    control.opcode = opcode;
    control.flags = flags;
    control.value = value;
    control.inline_bytes = static_cast<std::uint32_t>(data.size());
    append(bytes, control);
    if (ud) append(bytes, *ud);
    if (opcode >= MANA_HW_EXT_WQE_WRITE && opcode <= MANA_HW_EXT_WQE_FETCH_ADD) {
        mana_hw_ext_remote remote{};
        remote.address = remote_address;
        remote.rkey = rkey;
        append(bytes, remote);
    }
    if (opcode == MANA_HW_EXT_WQE_CMP_SWAP || opcode == MANA_HW_EXT_WQE_FETCH_ADD)
        append(bytes, mana_hw_ext_atomic{swap_add, compare});
    if (bind) append(bytes, *bind);
    if (reg) append(bytes, *reg);
    for (const gdma::Sge& sge : sges) {
        append(bytes, sge.address);
        append(bytes, sge.key.value());
        append(bytes, sge.length);
    }
    bytes.insert(bytes.end(), data.begin(), data.end());
    bytes.resize((bytes.size() + 15) / 16 * 16);
    const auto size = static_cast<std::uint16_t>(bytes.size() / 16);
    std::memcpy(bytes.data() + offsetof(mana_hw_ext_control, size), &size, sizeof size);
    return bytes;
}

void ExtHost::post_raw(ExtQp& qp, std::span<const std::byte> wqe) {
    qp.memory.write(0, qp.sq_bytes, std::uint64_t{qp.sq_producer} * MANA_HW_EXT_WQE_UNIT, wqe);
    qp.sq_producer +=
        static_cast<std::uint32_t>((wqe.size() + MANA_HW_EXT_WQE_UNIT - 1) / MANA_HW_EXT_WQE_UNIT);
    qp.memory.store(kSqProducer, qp.sq_producer);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (qp.memory.load(kSqKick) == 0) return;
    ++qp.doorbells;
    ring_send(qp);
}

void ExtHost::post(ExtQp& qp, const ExtWr& wr) {
    post_raw(qp, wr.wqe());
}

void ExtHost::recv(ExtQp& qp, std::uint32_t cookie, std::span<const gdma::Sge> sges) {
    qp.memory.write(qp.sq_bytes, qp.sq_bytes + qp.rq_bytes,
                    std::uint64_t{qp.rq_producer} * qp.stride, receive_wqe(cookie, sges));
    qp.memory.store(kRqProducer, ++qp.rq_producer);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (qp.memory.load(kRqKick) != 0) ring_recv(qp);
}

void ExtHost::ring_send(const ExtQp& qp) {
    host_.hwc().ring_sq(qp.page, qp.sq_id, qp.sq_producer);
}

void ExtHost::ring_recv(const ExtQp& qp) {
    host_.hwc().ring_rq(qp.page, qp.qpn, qp.rq_producer);
}

// ---- commands

std::optional<ExtMemory> ExtHost::alloc(std::uint64_t rings) {
    ExtMemory memory;
    memory.rings = rings;
    memory.ring = host_.hwc().alloc_ring(rings + MANA_HW_EXT_RECORD_BYTES);
    const auto region = host_.hwc().create_region(memory.ring);
    if (!region) return std::nullopt;
    memory.region = *region;
    return memory;
}

std::optional<mana_hw_ext_query_caps_resp> ExtHost::query_caps() {
    Request request(MANA_HW_EXT_QUERY_CAPS, 40, sizeof(mana_hw_ext_query_caps_resp),
                    MANA_HW_RNIC_DEVICE_TYPE);
    const Response response = host_.call(request.fit());
    status = response.status;
    if (!response.ok()) return std::nullopt;
    return message_of<mana_hw_ext_query_caps_resp>(response);
}

std::optional<ExtCq> ExtHost::create_cq(std::uint32_t entries) {
    auto memory = alloc(std::uint64_t{entries} * 64);
    if (!memory) return std::nullopt;
    mana_hw_ext_create_cq_req message{};
    message.region = memory->region;
    message.entries = entries;
    message.eq_id = host_.eq.id;
    message.doorbell_page = host_.device.page;
    const Response response = call(MANA_HW_EXT_CREATE_CQ, message);
    if (!response.ok()) {
        (void)host_.hwc().destroy_region(memory->region);
        return std::nullopt;
    }
    const auto answer = message_of<mana_hw_rnic_create_cq_resp>(response);
    ExtCq cq;
    cq.handle = answer.cq;
    cq.id = answer.cq_id;
    cq.entries = cq.consumer = entries;
    cq.memory = std::move(*memory);
    return cq;
}

bool ExtHost::resize_cq(ExtCq& cq, std::uint32_t entries) {
    auto memory = alloc(std::uint64_t{entries} * 64);
    if (!memory) return false;
    mana_hw_ext_resize_cq_req message{};
    message.cq = cq.handle;
    message.region = memory->region;
    message.entries = entries;
    const Response response = call(MANA_HW_EXT_RESIZE_CQ, message);
    if (!response.ok()) {
        (void)host_.hwc().destroy_region(memory->region);
        return false;
    }
    cq.memory = std::move(*memory);
    cq.entries = entries;
    cq.consumer = message_of<mana_hw_ext_resize_cq_resp>(response).consumer;
    return true;
}

bool ExtHost::destroy_cq(const ExtCq& cq) {
    mana_hw_rnic_destroy_cq_req message{};
    message.cq = cq.handle;
    return call(MANA_HW_RNIC_DESTROY_CQ, message).ok();
}

std::optional<ExtQp> ExtHost::create_qp(const ExtCq& send_cq, const ExtCq& recv_cq,
                                        const ExtQpOptions& options) {
    const std::uint32_t rq_bytes = options.srq != nullptr ? 0 : options.rq_bytes;
    auto memory = alloc(std::uint64_t{options.sq_bytes} + rq_bytes);
    if (!memory) return std::nullopt;
    mana_hw_ext_create_qp_req message{};
    message.pd = host_.pd.handle;
    message.send_cq = send_cq.handle;
    message.recv_cq = recv_cq.handle;
    message.srq = options.srq != nullptr ? options.srq->handle : 0;
    message.region = memory->region;
    message.type = options.type;
    message.flags = options.flags;
    message.doorbell_page = host_.device.page;
    message.sq_bytes = options.sq_bytes;
    message.rq_bytes = rq_bytes;
    message.rq_stride = options.stride;
    const Response response = call(MANA_HW_EXT_CREATE_QP, message);
    if (!response.ok()) {
        (void)host_.hwc().destroy_region(memory->region);
        return std::nullopt;
    }
    const auto answer = message_of<mana_hw_ext_create_qp_resp>(response);
    ExtQp qp;
    qp.handle = answer.qp;
    qp.sq_id = answer.sq_id;
    qp.qpn = answer.rq_id;
    qp.sq_bytes = options.sq_bytes;
    qp.rq_bytes = rq_bytes;
    qp.stride = options.stride;
    qp.page = host_.device.page;
    qp.memory = std::move(*memory);
    return qp;
}

bool ExtHost::destroy_qp(const ExtQp& qp) {
    mana_hw_rnic_destroy_qp_req message{};
    message.qp = qp.handle;
    return call(MANA_HW_EXT_DESTROY_QP, message).ok();
}

std::optional<mana_hw_ext_query_qp_resp> ExtHost::query_qp(const ExtQp& qp) {
    mana_hw_rnic_destroy_qp_req message{};
    message.qp = qp.handle;
    const Response response = call(MANA_HW_EXT_QUERY_QP, message);
    if (!response.ok()) return std::nullopt;
    return message_of<mana_hw_ext_query_qp_resp>(response);
}

std::optional<mana_hw_rnic_vf_counters_resp> ExtHost::query_counters(const ExtQp& qp) {
    mana_hw_rnic_destroy_qp_req message{};
    message.qp = qp.handle;
    const Response response =
        call(MANA_HW_EXT_QUERY_QP_COUNTERS, message, sizeof(mana_hw_rnic_vf_counters_resp));
    if (!response.ok()) return std::nullopt;
    return message_of<mana_hw_rnic_vf_counters_resp>(response);
}

std::optional<ExtSrq> ExtHost::create_srq(std::uint32_t bytes, std::uint32_t stride,
                                          std::uint32_t limit) {
    auto memory = alloc(bytes);
    if (!memory) return std::nullopt;
    mana_hw_ext_create_srq_req message{};
    message.pd = host_.pd.handle;
    message.region = memory->region;
    message.ring_bytes = bytes;
    message.stride = stride;
    message.doorbell_page = host_.device.page;
    message.limit = limit;
    const Response response = call(MANA_HW_EXT_CREATE_SRQ, message);
    if (!response.ok()) {
        (void)host_.hwc().destroy_region(memory->region);
        return std::nullopt;
    }
    const auto answer = message_of<mana_hw_ext_create_srq_resp>(response);
    ExtSrq srq;
    srq.handle = answer.srq;
    srq.id = answer.srq_id;
    srq.bytes = bytes;
    srq.stride = stride;
    srq.memory = std::move(*memory);
    return srq;
}

bool ExtHost::modify_srq(const ExtSrq& srq, std::uint32_t limit) {
    mana_hw_ext_srq_req message{};
    message.srq = srq.handle;
    message.limit = limit;
    return call(MANA_HW_EXT_MODIFY_SRQ, message).ok();
}

std::optional<mana_hw_ext_query_srq_resp> ExtHost::query_srq(const ExtSrq& srq) {
    mana_hw_ext_srq_req message{};
    message.srq = srq.handle;
    const Response response = call(MANA_HW_EXT_QUERY_SRQ, message);
    if (!response.ok()) return std::nullopt;
    return message_of<mana_hw_ext_query_srq_resp>(response);
}

bool ExtHost::destroy_srq(const ExtSrq& srq) {
    mana_hw_ext_srq_req message{};
    message.srq = srq.handle;
    return call(MANA_HW_EXT_DESTROY_SRQ, message).ok();
}

bool ExtHost::multicast(const ExtQp& qp, const roce::Gid& gid, bool attach) {
    mana_hw_ext_multicast_req message{};
    message.qp = qp.handle;
    std::copy(gid.begin(), gid.end(), message.gid);
    return call(attach ? MANA_HW_EXT_ATTACH_MULTICAST : MANA_HW_EXT_DETACH_MULTICAST, message).ok();
}

bool ExtHost::config_address(const roce::Address& address, bool add) {
    mana_hw_ext_config_address_req message{};
    std::copy(address.gid.begin(), address.gid.end(), message.gid);
    message.vlan = address.vlan;
    message.operation = add ? MANA_HW_RNIC_CONFIG_ADD : MANA_HW_RNIC_CONFIG_REMOVE;
    return call(MANA_HW_EXT_CONFIG_ADDRESS, message).ok();
}

bool ExtHost::config_address(const roce::Address& address, const base::MacAddr& mac, bool add) {
    mana_hw_ext_config_mac_address_req message{};
    std::copy(address.gid.begin(), address.gid.end(), message.base.gid);
    std::copy(mac.begin(), mac.end(), message.mac);
    message.base.vlan = address.vlan;
    message.base.operation = add ? MANA_HW_RNIC_CONFIG_ADD : MANA_HW_RNIC_CONFIG_REMOVE;
    return call(MANA_HW_EXT_CONFIG_ADDRESS, message).ok();
}

bool ExtHost::grant_source(const DriverPd& pd, const roce::Address& address, std::uint32_t number) {
    mana_hw_ext_grant_source_req message{};
    message.pd = pd.handle;
    std::copy(address.gid.begin(), address.gid.end(), message.gid);
    message.vlan = address.vlan;
    message.number = number;
    return call(MANA_HW_EXT_GRANT_SOURCE, message).ok();
}

bool ExtHost::revoke_source(std::uint32_t number) {
    mana_hw_ext_revoke_source_req message{};
    message.number = number;
    return call(MANA_HW_EXT_REVOKE_SOURCE, message).ok();
}

std::optional<DriverMr> ExtHost::create_key(std::uint32_t type, std::uint64_t pages) {
    Request request(MANA_HW_CREATE_MR, 80, 48);
    request.put<std::uint64_t>(40, host_.pd.handle)
        .put<std::uint32_t>(48, type)
        .put<std::uint64_t>(56, pages);
    const Response response = host_.call(request.fit());
    status = response.status;
    if (!response.ok()) return std::nullopt;
    return DriverMr{response.get<std::uint64_t>(32), response.get<std::uint32_t>(40),
                    response.get<std::uint32_t>(44)};
}

Request ExtHost::state_request(std::uint64_t handle, std::uint64_t mask, std::uint32_t state,
                               std::optional<std::uint16_t> tci) const {
    std::uint32_t opcode = MANA_HW_RNIC_SET_QP_STATE;
    if (tci) opcode = MANA_HW_EXT_SET_QP_STATE;
    Request request(opcode, tci ? sizeof(mana_hw_ext_set_qp_state_req) : 184, 32,
                    MANA_HW_RNIC_DEVICE_TYPE, 3);
    if (tci) request.put<std::uint16_t>(184, *tci);
    request.put<std::uint64_t>(40, host_.adapter)
        .put<std::uint64_t>(48, handle)
        .put<std::uint64_t>(56, mask | MANA_HW_RNIC_ATTR_STATE)
        .put<std::uint32_t>(64, state);
    return request;
}

bool ExtHost::to_state(const ExtQp& qp, std::uint32_t state) {
    return host_.call(state_request(qp.handle, 0, state).fit()).ok();
}

bool ExtHost::connect(const ExtQp& qp, std::uint32_t psn, const Peer& peer, const ExtPath& path) {
    Request init = state_request(qp.handle, MANA_HW_RNIC_ATTR_ACCESS, MANA_HW_RNIC_QP_INIT);
    init.put<std::uint32_t>(172, path.access);
    if (!host_.call(init.fit()).ok()) return false;
    Request rtr = state_request(qp.handle,
                                MANA_HW_RNIC_ATTR_ADDRESS | MANA_HW_RNIC_ATTR_PATH_MTU |
                                    MANA_HW_RNIC_ATTR_DEST_QPN | MANA_HW_RNIC_ATTR_RQ_PSN |
                                    MANA_HW_RNIC_ATTR_MAX_READ_IN | MANA_HW_RNIC_ATTR_MIN_RNR_TIMER,
                                MANA_HW_RNIC_QP_RTR, path.tci);
    rtr.put<std::uint32_t>(68, mtu_code(path.mtu))
        .put<std::uint32_t>(72, peer.psn)
        .put<std::uint32_t>(80, peer.qpn)
        .put<std::uint32_t>(84, 16)
        .put<std::uint32_t>(96, 16);
    put_reversed(rtr, 104, host_.gid());
    put_reversed(rtr, 120, peer.gid);
    put_reversed(rtr, 136, host_.mac());
    put_reversed(rtr, 142, peer.mac);
    const std::uint8_t type =
        roce::is_ipv4(peer.gid) ? MANA_HW_RNIC_ADDRESS_IPV4 : MANA_HW_RNIC_ADDRESS_IPV6;
    rtr.put<std::uint8_t>(148, type)
        .put<std::uint8_t>(149, type)
        .put<std::uint8_t>(150, 64)
        .put<std::uint16_t>(152, 0xc123)
        .put<std::uint16_t>(154, 4791);
    if (!host_.call(rtr.fit()).ok()) return false;
    Request rts = state_request(qp.handle,
                                MANA_HW_RNIC_ATTR_TIMEOUT | MANA_HW_RNIC_ATTR_RETRY |
                                    MANA_HW_RNIC_ATTR_RNR_RETRY | MANA_HW_RNIC_ATTR_SQ_PSN |
                                    MANA_HW_RNIC_ATTR_MAX_READ_OUT,
                                MANA_HW_RNIC_QP_RTS);
    rts.put<std::uint32_t>(76, psn)
        .put<std::uint32_t>(88, path.retries)
        .put<std::uint32_t>(92, path.rnr_retries)
        .put<std::uint8_t>(176, path.timeout)
        .put<std::uint8_t>(177, path.reads_out);
    return host_.call(rts.fit()).ok();
}

bool ExtHost::start_datagrams(const ExtQp& qp, std::uint32_t qkey) {
    Request init = state_request(qp.handle, MANA_HW_RNIC_ATTR_QKEY, MANA_HW_RNIC_QP_INIT);
    init.put<std::uint32_t>(168, qkey);
    return host_.call(init.fit()).ok() && to_state(qp, MANA_HW_RNIC_QP_RTR) &&
           to_state(qp, MANA_HW_RNIC_QP_RTS);
}

std::vector<std::pair<std::uint32_t, std::uint32_t>> ExtHost::events() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> all;
    for (const Eqe& eqe : host_.fatal_eq.drain())
        if ((eqe.data[1] & MANA_HW_EXT_EVENT_MARK) != 0)
            all.emplace_back(eqe.data[0], eqe.data[1] & ~MANA_HW_EXT_EVENT_MARK);
    return all;
}

}  // namespace openmana::test
