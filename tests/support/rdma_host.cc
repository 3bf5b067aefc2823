// SPDX-License-Identifier: Apache-2.0
#include "support/rdma_host.h"

#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <cstring>

namespace openmana::test {
namespace {

constexpr std::uint16_t kRnic = MANA_HW_RNIC_DEVICE_TYPE;
constexpr std::uint32_t kPsnMask = 0xffffff;
constexpr std::uint32_t kCheckSn = 1U << 30;

/// a >= b in the order of PSNs.
bool reached(std::uint32_t a, std::uint32_t b) {
    return ((a - b) & kPsnMask) < 0x800000;
}

template <typename T>
void put_reversed(Request& request, std::size_t offset, const T& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i)
        request.put<std::uint8_t>(offset + bytes.size() - 1 - i, bytes[i]);
}

std::uint32_t mtu_code(std::uint32_t mtu) {
    std::uint32_t code = 1;
    while (code < 5 && (128U << code) < mtu) ++code;
    return code;
}

std::uint32_t wqe_bytes(std::size_t oob, std::size_t sges) {
    return static_cast<std::uint32_t>((8 + oob + 16 * sges + 31) / 32 * 32);
}

}  // namespace

roce::Gid ipv4_gid(std::uint8_t host) {
    roce::Gid gid{};
    gid[10] = gid[11] = 0xff;
    gid[12] = 10;
    gid[15] = host;
    return gid;
}

roce::Gid ipv6_gid(std::uint8_t host) {
    roce::Gid gid{0xfd};
    gid[15] = host;
    return gid;
}

base::MacAddr test_mac(std::uint8_t host) {
    return {2, 0, 0, 0, 0, host};
}

RdmaHost::RdmaHost(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq,
                   const base::MacAddr& mac, const roce::Gid& gid)
    : hwc_(function, ram, irq), ram_(ram), mac_(mac), gid_(gid) {}

Response RdmaHost::call(Request& request) {
    if (tamper) tamper(request);
    return hwc_.call(request);
}

bool RdmaHost::bring_up() {
    if (!hwc_.bring_up()) return false;
    const auto registered = hwc_.register_device(kRnic);
    if (!registered) return false;
    device = *registered;
    auto fatal = hwc_.create_eq(kRnic, device, 0);
    auto completion = hwc_.create_eq(kRnic, device, 1);
    if (!fatal || !completion) return false;
    fatal_eq = std::move(*fatal);
    eq = std::move(*completion);
    Request create(MANA_HW_RNIC_CREATE_ADAPTER, 56, 40, kRnic, 2);
    create.put<std::uint32_t>(40, fatal_eq.id).put<std::uint64_t>(48, features).fit();
    const Response created = call(create);
    if (!created.ok()) return false;
    adapter = created.get<std::uint64_t>(32);
    Request address(MANA_HW_RNIC_CONFIG_MAC, 64, 32, kRnic);
    address.put<std::uint64_t>(40, adapter).put<std::uint32_t>(48, MANA_HW_RNIC_CONFIG_ADD);
    put_reversed(address, 52, mac_);
    if (!call(address.fit()).ok() || !config_address(gid_, true)) return false;
    const auto domain = hwc_.create_pd();
    if (!domain) return false;
    pd = *domain;
    return true;
}

bool RdmaHost::config_address(const roce::Gid& gid, bool add) {
    Request request(MANA_HW_RNIC_CONFIG_ADDRESS, 72, 32, kRnic);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint32_t>(48, add ? MANA_HW_RNIC_CONFIG_ADD : MANA_HW_RNIC_CONFIG_REMOVE)
        .put<std::uint32_t>(
            52, roce::is_ipv4(gid) ? MANA_HW_RNIC_ADDRESS_IPV4 : MANA_HW_RNIC_ADDRESS_IPV6);
    put_reversed(request, 56, gid);
    return call(request.fit()).ok();
}

std::optional<DriverCq> RdmaHost::create_cq(std::uint32_t bytes) {
    const RingMemory ring = hwc_.alloc_ring(bytes);
    const auto region = hwc_.create_region(ring);
    if (!region) return std::nullopt;
    Request request(MANA_HW_RNIC_CREATE_CQ, 64, 48, kRnic);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint64_t>(48, *region)
        .put<std::uint32_t>(56, eq.id)
        .put<std::uint32_t>(60, device.page);
    const Response response = call(request.fit());
    if (!response.ok()) {
        (void)hwc_.destroy_region(*region);
        return std::nullopt;
    }
    DriverCq cq = hwc_.make_cq(ring, response.get<std::uint32_t>(40), device.page);
    cq.handle = response.get<std::uint64_t>(32);
    return cq;
}

bool RdmaHost::destroy_cq(const DriverCq& cq) {
    Request request(MANA_HW_RNIC_DESTROY_CQ, 56, 32, kRnic);
    return call(request.put<std::uint64_t>(40, adapter).put<std::uint64_t>(48, cq.handle).fit())
        .ok();
}

std::optional<std::uint64_t> RdmaHost::region_of(HostQp& qp, const RingMemory& ring) {
    const auto region = hwc_.create_region(ring);
    if (region) qp.memory.emplace_back(*region, ring);
    return region;
}

std::unique_ptr<HostQp> RdmaHost::create_rc(const DriverCq& send_cq, const DriverCq& recv_cq,
                                            std::uint32_t send_bytes, std::uint32_t recv_bytes,
                                            std::uint32_t read_bytes) {
    auto qp = std::make_unique<HostQp>();
    // Behind the requester SQ lies the rollback area (RNIC 3.7).
    RingMemory send = hwc_.alloc_ring(send_bytes + sizeof(mana_hw_rnic_rollback));
    const RingMemory responder = hwc_.alloc_ring(4096);
    const RingMemory read = hwc_.alloc_ring(read_bytes);
    const RingMemory recv = hwc_.alloc_ring(recv_bytes);
    const auto send_region = region_of(*qp, send);
    const auto responder_region = region_of(*qp, responder);
    const auto read_region = region_of(*qp, read);
    const auto recv_region = region_of(*qp, recv);
    const auto give_up = [&]() -> std::unique_ptr<HostQp> {
        for (const auto& [region, memory] : qp->memory) (void)hwc_.destroy_region(region);
        return nullptr;
    };
    if (!send_region || !responder_region || !read_region || !recv_region) return give_up();
    Request request(MANA_HW_RNIC_CREATE_RC_QP, 160, 64, kRnic);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint64_t>(48, pd.handle)
        .put<std::uint64_t>(56, send_cq.handle)
        .put<std::uint64_t>(64, recv_cq.handle)
        .put<std::uint64_t>(72, *send_region)
        .put<std::uint64_t>(80, *responder_region)
        .put<std::uint64_t>(88, 0)
        .put<std::uint64_t>(96, *read_region)
        .put<std::uint64_t>(104, *recv_region)
        .put<std::uint64_t>(128, MANA_HW_RNIC_RC_NO_FAST_REGISTER)
        .put<std::uint32_t>(136, device.page)
        .put<std::uint32_t>(140, 16)
        .put<std::uint32_t>(144, 16)
        .put<std::uint32_t>(148, 4)
        .put<std::uint32_t>(152, 4);
    const Response response = call(request.fit());
    if (!response.ok()) return give_up();
    qp->handle = response.get<std::uint64_t>(32);
    for (std::size_t i = 0; i < qp->ids.size(); ++i)
        qp->ids[i] = response.get<std::uint32_t>(40 + 4 * i);
    send.bytes = send_bytes;
    qp->send = hwc_.make_wq(send, qp->ids[0], device.page, true);
    qp->read = hwc_.make_wq(read, qp->ids[3], device.page, false);
    qp->recv = hwc_.make_wq(recv, qp->ids[4], device.page, false);
    return qp;
}

std::unique_ptr<HostQp> RdmaHost::create_uc(const DriverCq& send_cq, const DriverCq& recv_cq,
                                            std::uint32_t send_bytes, std::uint32_t recv_bytes) {
    auto qp = std::make_unique<HostQp>();
    const RingMemory send = hwc_.alloc_ring(send_bytes);
    const RingMemory recv = hwc_.alloc_ring(recv_bytes);
    const RingMemory memory = hwc_.alloc_ring(4096);
    Request request(MANA_HW_RNIC_CREATE_UC_QP, 128, 56, kRnic);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint64_t>(48, pd.handle)
        .put<std::uint64_t>(56, send_cq.handle)
        .put<std::uint64_t>(64, recv_cq.handle)
        .put<std::uint32_t>(104, device.page)
        .put<std::uint32_t>(108, 16)
        .put<std::uint32_t>(112, 16)
        .put<std::uint32_t>(116, 4)
        .put<std::uint32_t>(120, 4);
    const RingMemory* const rings[] = {&send, &recv, &memory};
    bool whole = true;
    for (std::size_t i = 0; i < std::size(rings); ++i) {
        const auto region = region_of(*qp, *rings[i]);
        whole = whole && region;
        request.put<std::uint64_t>(72 + 8 * i, region.value_or(0));
    }
    Response response;
    if (whole) response = call(request.fit());
    if (!whole || !response.ok()) {
        for (const auto& [region, ring] : qp->memory) (void)hwc_.destroy_region(region);
        return nullptr;
    }
    qp->unreliable = true;
    qp->handle = response.get<std::uint64_t>(32);
    qp->ids[0] = response.get<std::uint32_t>(40);
    qp->ids[4] = response.get<std::uint32_t>(44);
    qp->ids[2] = response.get<std::uint32_t>(48);
    qp->send = hwc_.make_wq(send, qp->ids[0], device.page, true);
    qp->recv = hwc_.make_wq(recv, qp->ids[4], device.page, false);
    qp->read = qp->recv;
    return qp;
}

bool RdmaHost::destroy_rc(HostQp& qp) {
    Request request(qp.datagrams ? MANA_HW_RNIC_DESTROY_UD_QP : MANA_HW_RNIC_DESTROY_RC_QP, 56, 32,
                    kRnic);
    if (!call(request.put<std::uint64_t>(40, adapter).put<std::uint64_t>(48, qp.handle).fit()).ok())
        return false;
    for (const auto& [region, ring] : qp.memory)
        for (const std::uint64_t page : ring.pages)
            ram_.free(base::GuestAddr(page), GuestRam::kPage);
    qp.memory.clear();
    return true;
}

std::unique_ptr<HostQp> RdmaHost::create_ud(const DriverCq& send_cq, const DriverCq& recv_cq,
                                            std::uint32_t qkey, bool gsi) {
    auto qp = std::make_unique<HostQp>();
    const RingMemory send = hwc_.alloc_ring(4096);
    const RingMemory recv = hwc_.alloc_ring(4096);
    const auto send_region = region_of(*qp, send);
    const auto recv_region = region_of(*qp, recv);
    const auto give_up = [&]() -> std::unique_ptr<HostQp> {
        for (const auto& [region, memory] : qp->memory) (void)hwc_.destroy_region(region);
        return nullptr;
    };
    if (!send_region || !recv_region) return give_up();
    Request request(MANA_HW_RNIC_CREATE_UD_QP, 112, 48, kRnic);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint64_t>(48, pd.handle)
        .put<std::uint64_t>(56, send_cq.handle)
        .put<std::uint64_t>(64, recv_cq.handle)
        .put<std::uint64_t>(72, *send_region)
        .put<std::uint64_t>(80, *recv_region)
        .put<std::uint32_t>(88, gsi ? MANA_HW_RNIC_UD_GSI : MANA_HW_RNIC_UD_USER)
        .put<std::uint32_t>(92, device.page)
        .put<std::uint32_t>(96, 16)
        .put<std::uint32_t>(100, 16)
        .put<std::uint32_t>(104, 4)
        .put<std::uint32_t>(108, 4);
    const Response response = call(request.fit());
    if (!response.ok()) return give_up();
    qp->datagrams = true;
    qp->handle = response.get<std::uint64_t>(32);
    qp->ids[0] = response.get<std::uint32_t>(40);
    qp->ids[4] = response.get<std::uint32_t>(44);
    qp->send = hwc_.make_wq(send, qp->ids[0], device.page, true);
    qp->recv = hwc_.make_wq(recv, qp->ids[4], device.page, false);
    qp->read = qp->recv;
    for (const std::uint32_t state :
         {MANA_HW_RNIC_QP_INIT, MANA_HW_RNIC_QP_RTR, MANA_HW_RNIC_QP_RTS}) {
        Request step =
            state_request(*qp, state == MANA_HW_RNIC_QP_INIT ? MANA_HW_RNIC_ATTR_QKEY : 0, state);
        step.put<std::uint32_t>(168, qkey);
        if (!call(step.fit()).ok()) return qp;
    }
    return qp;
}

Request RdmaHost::state_request(const HostQp& qp, std::uint64_t mask, std::uint32_t state) const {
    Request request(MANA_HW_RNIC_SET_QP_STATE, 184, 32, kRnic, 3);
    request.put<std::uint64_t>(40, adapter)
        .put<std::uint64_t>(48, qp.handle)
        .put<std::uint64_t>(56, mask | MANA_HW_RNIC_ATTR_STATE)
        .put<std::uint32_t>(64, state);
    return request;
}

bool RdmaHost::to_state(const HostQp& qp, std::uint32_t state) {
    Request request = state_request(qp, 0, state);
    return call(request.fit()).ok();
}

void RdmaHost::put_path(Request& request, const Peer& peer, std::uint16_t udp_port) const {
    put_reversed(request, 104, gid_);
    put_reversed(request, 120, peer.gid);
    put_reversed(request, 136, mac_);
    put_reversed(request, 142, peer.mac);
    const std::uint8_t type =
        roce::is_ipv4(peer.gid) ? MANA_HW_RNIC_ADDRESS_IPV4 : MANA_HW_RNIC_ADDRESS_IPV6;
    request.put<std::uint8_t>(148, type)
        .put<std::uint8_t>(149, type)
        .put<std::uint8_t>(150, 64)
        .put<std::uint16_t>(152, udp_port)
        .put<std::uint16_t>(154, 4791);
}

bool RdmaHost::set_path(const HostQp& qp, const Peer& peer, std::uint16_t udp_port) {
    Request request = state_request(qp, MANA_HW_RNIC_ATTR_ADDRESS, MANA_HW_RNIC_QP_SQD);
    put_path(request, peer, udp_port);
    return call(request.fit()).ok();
}

bool RdmaHost::connect(HostQp& qp, std::uint32_t psn, const Peer& peer, std::uint32_t mtu,
                       std::uint8_t timeout, std::uint32_t retries, const QpLimits& limits) {
    Request init = state_request(qp, MANA_HW_RNIC_ATTR_ACCESS, MANA_HW_RNIC_QP_INIT);
    init.put<std::uint32_t>(172, limits.access);
    if (!call(init.fit()).ok()) return false;

    Request rtr = state_request(qp,
                                MANA_HW_RNIC_ATTR_ADDRESS | MANA_HW_RNIC_ATTR_PATH_MTU |
                                    MANA_HW_RNIC_ATTR_DEST_QPN | MANA_HW_RNIC_ATTR_RQ_PSN |
                                    MANA_HW_RNIC_ATTR_MAX_READ_IN | MANA_HW_RNIC_ATTR_MIN_RNR_TIMER,
                                MANA_HW_RNIC_QP_RTR);
    rtr.put<std::uint32_t>(68, mtu_code(mtu))
        .put<std::uint32_t>(72, peer.psn)
        .put<std::uint32_t>(80, peer.qpn)
        .put<std::uint32_t>(84, limits.reads_in)
        .put<std::uint32_t>(96, limits.rnr_timer);
    put_path(rtr, peer, 0xc123);
    if (!call(rtr.fit()).ok()) return false;

    Request rts = state_request(qp,
                                MANA_HW_RNIC_ATTR_TIMEOUT | MANA_HW_RNIC_ATTR_RETRY |
                                    MANA_HW_RNIC_ATTR_RNR_RETRY | MANA_HW_RNIC_ATTR_SQ_PSN |
                                    MANA_HW_RNIC_ATTR_MAX_READ_OUT,
                                MANA_HW_RNIC_QP_RTS);
    rts.put<std::uint32_t>(76, psn)
        .put<std::uint32_t>(88, retries)
        .put<std::uint32_t>(92, limits.rnr_retry)
        .put<std::uint8_t>(176, timeout)
        .put<std::uint8_t>(177, limits.reads_out);
    if (!call(rts.fit()).ok()) return false;
    qp.mtu = mtu;
    qp.next_psn = psn;
    qp.ssn = 0;
    if (!qp.unreliable) arm_send(qp, psn);
    return true;
}

bool RdmaHost::reset(HostQp& qp) {
    if (!to_state(qp, MANA_HW_RNIC_QP_RESET)) return false;
    qp.send = hwc_.make_wq(qp.send.ring, qp.send.id, qp.send.page, true);
    qp.read = hwc_.make_wq(qp.read.ring, qp.read.id, qp.read.page, false);
    qp.recv = hwc_.make_wq(qp.recv.ring, qp.recv.id, qp.recv.page, false);
    qp.sends.clear();
    qp.receives.clear();
    qp.send_used = qp.recv_used = 0;
    return true;
}

bool RdmaHost::post_send(HostQp& qp, const SendWr& wr, bool ring) {
    const bool rdma = wr.opcode >= MANA_HW_RNIC_WQE_WRITE && wr.opcode <= MANA_HW_RNIC_WQE_READ;
    const bool read = wr.opcode == MANA_HW_RNIC_WQE_READ;
    const bool large = wr.opcode == MANA_HW_RNIC_WQE_WRITE_IMM;
    const gdma::Sge dummy{MANA_HW_RNIC_DUMMY_SGE_ADDRESS, gdma::Key(0), 0};
    std::span<const gdma::Sge> sges = wr.sges;
    if (sges.empty() || read) sges = std::span(&dummy, 1);
    const std::size_t oob_bytes =
        large ? sizeof(mana_hw_rnic_send_oob_large) : sizeof(mana_hw_rnic_send_oob);
    const std::uint32_t bytes = wqe_bytes(oob_bytes, sges.size());
    if (bytes > qp.send.ring.bytes - qp.send_used) return false;
    std::uint64_t length = 0;
    for (const gdma::Sge& sge : wr.sges) length += sge.length;
    const auto packets =
        static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (length + qp.mtu - 1) / qp.mtu));

    if (read && !qp.unreliable) {
        // As many as fit a page of single-SGE entries; a provider has no better rule (RNIC 3.6).
        if (qp.sends.size() >= 30) return false;
        const std::array<std::uint32_t, 2> read_oob{qp.next_psn, 0};
        qp.read.post(std::as_bytes(std::span(read_oob)), wr.sges, 0, kCheckSn);
        qp.read.doorbell(1);
    }
    mana_hw_rnic_send_oob_large oob{};
    qp.ssn = (qp.ssn + 1) & kPsnMask;
    oob.oob.flags_psn = wr.opcode | (wr.fence ? MANA_HW_RNIC_OOB_FENCE : 0) |
                        (wr.signaled ? MANA_HW_RNIC_OOB_SIGNALED : 0) |
                        (wr.solicited ? MANA_HW_RNIC_OOB_SOLICITED : 0) |
                        qp.next_psn << MANA_HW_RNIC_OOB_PSN_SHIFT;
    oob.oob.ssn = qp.ssn;
    if (rdma) {
        oob.oob.u.rdma.address_high = static_cast<std::uint32_t>(wr.remote_address >> 32);
        oob.oob.u.rdma.address_low = static_cast<std::uint32_t>(wr.remote_address);
        oob.oob.u.rdma.rkey = wr.rkey;
        oob.oob.u.rdma.length = static_cast<std::uint32_t>(length);
        oob.immediate = wr.immediate;
    } else {
        oob.oob.u.words[0] = wr.opcode == MANA_HW_RNIC_WQE_SEND_INV ? wr.rkey : wr.immediate;
    }
    const bool takes_receive = !rdma || large;
    qp.send.post(std::as_bytes(std::span(&oob, 1)).first(oob_bytes), sges, 0,
                 qp.mtu << 16 | (takes_receive ? kCheckSn : 0));
    qp.sends.push_back({wr.id, (qp.next_psn + packets - 1) & kPsnMask, bytes, wr.signaled});
    qp.send_used += bytes;
    qp.next_psn = (qp.next_psn + packets) & kPsnMask;
    if (ring) qp.send.doorbell();
    return true;
}

bool RdmaHost::post_recv(HostQp& qp, std::uint64_t id, std::span<const gdma::Sge> sges, bool ring) {
    const std::uint32_t bytes = wqe_bytes(8, sges.size());
    if (bytes > qp.recv.ring.bytes - qp.recv_used) return false;
    const std::array<std::byte, 8> oob{};
    const std::uint32_t position = qp.recv.post(oob, sges);
    qp.receives.push_back({id, position, bytes});
    qp.recv_used += bytes;
    if (ring) qp.recv.doorbell(1);
    return true;
}

void RdmaHost::arm_send(HostQp& qp, std::uint32_t psn) {
    hwc_.ring_rq_client(device.page, qp.ids[3], psn & kPsnMask);
}

void RdmaHost::retire(HostQp& qp, std::uint32_t psn, std::vector<Completion>& out) {
    while (!qp.sends.empty() && reached(psn, qp.sends.front().last_psn)) {
        Completion done;
        done.id = qp.sends.front().id;
        done.type = MANA_HW_RNIC_CQE_ARMED;
        done.signaled = qp.sends.front().signaled;
        out.push_back(done);
        qp.send_used -= qp.sends.front().bytes;
        qp.sends.pop_front();
    }
}

void RdmaHost::poll(DriverCq& cq, std::span<HostQp* const> qps, std::vector<Completion>& out) {
    while (const auto cqe = cq.poll()) {
        const auto word = cqe->get<std::uint32_t>(0);
        const std::uint32_t type = word & MANA_HW_RNIC_CQE_TYPE;
        const std::size_t queue = cqe->is_sq ? 0 : (cqe->queue_id & 3) == 1 ? 3 : 4;
        HostQp* qp = nullptr;
        for (HostQp* candidate : qps)
            if (candidate->ids[queue] == cqe->queue_id) qp = candidate;
        if (qp == nullptr) continue;
        Completion done;
        done.type = type;
        if (type == MANA_HW_RNIC_CQE_ARMED) {
            const std::uint32_t psn = cqe->get<std::uint32_t>(8) & kPsnMask;
            retire(*qp, psn, out);
            const auto next = std::find_if(qp->sends.begin(), qp->sends.end(),
                                           [](const auto& send) { return send.signaled; });
            arm_send(*qp, next == qp->sends.end() ? psn + 1 : next->last_psn);
        } else if (type == MANA_HW_RNIC_CQE_ERROR) {
            done.vendor = word >> MANA_HW_RNIC_CQE_VENDOR_SHIFT & MANA_HW_RNIC_CQE_VENDOR;
            done.receive = queue == 4;
            if (!done.receive && qp->unreliable)
                retire(*qp, (cqe->get<std::uint32_t>(8) - 1) & kPsnMask, out);
            if (done.receive && !qp->receives.empty()) done.id = qp->receives.front().id;
            if (!done.receive && !qp->sends.empty()) done.id = qp->sends.front().id;
            out.push_back(done);
        } else if (qp->unreliable && cqe->is_sq) {
            // The oldest signaled request, and those before it.
            while (!qp->sends.empty()) {
                done.id = qp->sends.front().id;
                done.signaled = qp->sends.front().signaled;
                out.push_back(done);
                qp->send_used -= qp->sends.front().bytes;
                qp->sends.pop_front();
                if (done.signaled) break;
            }
        } else {
            done.receive = true;
            done.length = cqe->get<std::uint32_t>(4);
            done.immediate = cqe->get<std::uint32_t>(12);
            // A CQE that does not name the oldest receive is dropped by the provider (RNIC 3.11);
            // here it shows.
            if (qp->receives.empty() ||
                qp->receives.front().position != cqe->get<std::uint32_t>(16)) {
                done.vendor = 0xfff;
            } else {
                done.id = qp->receives.front().id;
                qp->recv_used -= qp->receives.front().bytes;
                qp->receives.pop_front();
            }
            out.push_back(done);
        }
    }
}

}  // namespace openmana::test
