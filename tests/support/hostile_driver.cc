// SPDX-License-Identifier: Apache-2.0
#include "support/hostile_driver.h"

#include <mana/eth.h>
#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/queue.h>
#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <cstring>

namespace openmana::test {
namespace {

constexpr std::uint16_t kEth = MANA_HW_ETH_DEVICE_TYPE;
constexpr std::size_t kPoolSize = 24;

}  // namespace

HostileDriver::HostileDriver(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq,
                             Config config)
    : function_(function), ram_(ram), irq_(irq), config_(std::move(config)) {}

HostileDriver::~HostileDriver() = default;

void HostileDriver::note(const RingMemory& ring) {
    if (!on_page) return;
    for (const std::uint64_t page : ring.pages) on_page(page);
}

void HostileDriver::remember(Kind kind, std::uint64_t value) {
    auto& pool = pools_[kind];
    if (pool.size() == kPoolSize) pool.erase(pool.begin());
    pool.push_back(value);
}

bool HostileDriver::bring_up(bool ethernet) {
    host_ = std::make_unique<RdmaHost>(function_, ram_, irq_, config_.mac, config_.gid);
    host_->tamper = [this](Request& request) {
        if (spoiler_ == nullptr || !spoiler_->chance(config_.spoil_commands)) return;
        const std::size_t offset = spoiler_->below(request.bytes.size());
        request.bytes[offset] = static_cast<std::byte>(spoiler_->byte());
    };
    // The extension changes nothing for those who do not use it.
    host_->features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
    for (auto& pool : pools_) pool.clear();
    qps_.clear();
    mrs_.clear();
    cqs_.clear();
    ext_.reset();
    ext_cqs_.clear();
    ext_qps_.clear();
    ext_types_.clear();
    ext_srq_.reset();
    ext_keys_.clear();
    ethernet_ = false;
    data_ = ram_.alloc(kDataBytes);
    canary_ = ram_.alloc(kCanaryBytes);
    std::memset(ram_.bytes(canary_, kCanaryBytes).data(), std::to_integer<int>(kCanary),
                kCanaryBytes);
    if (on_page)
        for (std::uint64_t at = 0; at < kDataBytes; at += GuestRam::kPage)
            on_page(data_.value() + at);
    if (!host_->bring_up()) return false;
    remember(kAdapter, host_->adapter);
    remember(kPd, host_->pd.handle);
    remember(kPdId, host_->pd.id);
    remember(kPdId, host_->device.pd);
    remember(kPage, host_->device.page);
    remember(kEq, host_->eq.id);
    remember(kEq, host_->fatal_eq.id);
    return !ethernet || eth_up();
}

bool HostileDriver::canary_alive() const {
    const auto bytes = ram_.bytes(canary_, kCanaryBytes);
    // All the same: the first as it was, and each like the one before it.
    return bytes[0] == kCanary &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

/// Interface up, as the driver does it (GDMA 7): one queue each way.
bool HostileDriver::eth_up() {
    HwcDriver& hwc = host_->hwc();
    const auto device = hwc.register_device(kEth);
    if (!device) return false;
    eth_key_ = device->gpa_key;
    remember(kPage, device->page);
    remember(kPdId, device->pd);
    Request query(MANA_HW_ETH_QUERY_VPORT_CONFIG, 44, 64, kEth);
    const Response config = hwc.call(query);
    if (!config.ok()) return false;
    const auto vport = config.get<std::uint64_t>(56);
    remember(kVport, vport);
    const auto eq = hwc.create_eq(kEth, *device, 2);
    if (!eq) return false;
    remember(kEq, eq->id);
    Request tx(MANA_HW_ETH_CONFIG_VPORT_TX, 56, 36, kEth);
    tx.put<std::uint64_t>(40, vport)
        .put<std::uint32_t>(48, device->pd)
        .put<std::uint32_t>(52, device->page);
    if (!hwc.call(tx).ok()) return false;
    std::uint64_t rq_object = 0;
    for (const std::uint32_t type : {MANA_HW_ETH_SQ, MANA_HW_ETH_RQ}) {
        const RingMemory ring = hwc.alloc_ring(4096);
        const RingMemory completions = hwc.alloc_ring(4096);
        const auto wq_region = hwc.create_region(ring);
        const auto cq_region = hwc.create_region(completions);
        if (!wq_region || !cq_region) return false;
        Request create(MANA_HW_ETH_CREATE_WQ_OBJ, 88, 48, kEth);
        create.put<std::uint64_t>(40, vport)
            .put<std::uint32_t>(48, type)
            .put<std::uint64_t>(56, *wq_region)
            .put<std::uint64_t>(64, *cq_region)
            .put<std::uint32_t>(72, 4096)
            .put<std::uint32_t>(76, 4096)
            .put<std::uint32_t>(84, eq->id);
        const Response created = hwc.call(create);
        if (!created.ok()) return false;
        const bool is_sq = type == MANA_HW_ETH_SQ;
        (is_sq ? eth_sq_ : eth_rq_) =
            hwc.make_wq(ring, created.get<std::uint32_t>(32), device->page, is_sq);
        remember(kWq, created.get<std::uint64_t>(40));
        if (!is_sq) rq_object = created.get<std::uint64_t>(40);
        note(ring);
        note(completions);
    }
    Request rx(MANA_HW_ETH_CONFIG_VPORT_RX, 120 + 8 * 4, 40, kEth, 2, 2);
    rx.put<std::uint64_t>(40, vport)
        .put<std::uint16_t>(48, 4)
        .put<std::uint16_t>(50, 120)
        .put<std::uint32_t>(52, 1)
        .put<std::uint8_t>(60, 1)
        .put<std::uint64_t>(64, rq_object);
    if (!hwc.call(rx).ok()) return false;
    const std::array<std::byte, 8> oob{};
    for (unsigned i = 0; i < 32; ++i) {
        const gdma::Sge sge{data_.value() + (i % 16) * 2048, gdma::Key(eth_key_), 2048};
        eth_rq_.post(oob, std::span(&sge, 1));
        eth_rq_.doorbell(1);
    }
    ethernet_ = true;
    return true;
}

bool HostileDriver::make_pair() {
    for (int i = 0; i < 2; ++i) {
        auto cq = host_->create_cq();
        if (!cq) return false;
        remember(kCq, cq->handle);
        cqs_.push_back(std::move(*cq));
    }
    const std::uint32_t all =
        gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;
    const auto mr = host_->hwc().create_mr(host_->pd, data_, kDataBytes, all);
    const auto read_only = host_->hwc().create_mr(host_->pd, data_, 4096, gdma::kLocalRead);
    if (!mr || !read_only) return false;
    mrs_.push_back(*mr);
    mrs_.push_back(*read_only);
    remember(kMr, mr->handle);
    for (int i = 0; i < 2; ++i) {
        auto qp = host_->create_rc(cqs_[0], cqs_[1]);
        if (!qp) return false;
        adopt(std::move(qp));
    }
    HostQp& a = *qps_[qps_.size() - 2];
    HostQp& b = *qps_.back();
    if (!host_->connect(a, 100, {config_.gid, config_.mac, b.qpn(), 200}) ||
        !host_->connect(b, 200, {config_.gid, config_.mac, a.qpn(), 100}))
        return false;
    auto datagrams = host_->create_ud(cqs_[0], cqs_[1], kQkey);
    if (!datagrams) return false;
    adopt(std::move(datagrams));
    return make_ext_pair();
}

void HostileDriver::adopt(std::unique_ptr<HostQp> qp) {
    remember(kQp, qp->handle);
    for (const auto& [region, ring] : qp->memory) note(ring);
    qps_.push_back(std::move(qp));
}

// ---- values

std::uint64_t HostileDriver::any_address(Choices& choices) {
    const std::uint8_t kind = choices.byte();
    if (kind < 208) return data_.value() + choices.below(kDataBytes / 256) * 256;
    if (kind < 224) return ram_.start().value() + choices.below(ram_.size());
    if (kind < 240) return ram_.start().value() + ram_.size() - choices.below(64);
    return choices.number();
}

gdma::Sge HostileDriver::any_sge(Choices& choices) {
    gdma::Sge sge;
    // Nearly always right, so that QPs live long enough to get somewhere.
    if (!choices.chance(20) && !mrs_.empty()) {
        sge.address = data_.value() + choices.below(56) * 4096 + choices.below(3);
        sge.key = gdma::Key(mrs_.front().lkey);
        sge.length = static_cast<std::uint32_t>(choices.below(8192));
        return sge;
    }
    sge.address = any_address(choices);
    const std::uint8_t kind = choices.byte();
    if (kind < 128 && !mrs_.empty())
        sge.key = gdma::Key(mrs_[kind % mrs_.size()].lkey);
    else if (kind < 192)
        sge.key = gdma::Key(host_->device.gpa_key);
    else
        sge.key = gdma::Key(static_cast<std::uint32_t>(choices.number()));
    sge.length = choices.chance(64) ? static_cast<std::uint32_t>(choices.number())
                                    : static_cast<std::uint32_t>(choices.below(8192));
    return sge;
}

std::uint64_t HostileDriver::value_of(const Field& field, Choices& choices) {
    const std::uint8_t how = choices.byte();
    if (how >= 240) return choices.number();
    if (field.kind < kPools) {
        const auto& pool = pools_[field.kind];
        return pool.empty() ? how : pool[pool.size() - 1 - how % pool.size()];
    }
    switch (field.kind) {
        case kSmall:
            return how < 200 ? field.plain : choices.number();
        case kNumber:
            return choices.number();
        case kAddress:
            return how < 200 ? data_.value() + how % 64 * 4096 : any_address(choices);
        case kAccess:
            return how < 128 ? 15 : how;
        case kOnes:
            return how < 200 ? UINT64_MAX : choices.number();
        case kIpType:
            return how < 128 ? 1 : how % 4;
        default:
            return 0;
    }
}

/// A GID or MAC: one that is in use, zero, or any bytes.
std::vector<std::uint8_t> HostileDriver::address_of(const Field& field, Choices& choices) const {
    const std::uint8_t how = choices.byte();
    std::vector<std::uint8_t> bytes(field.bytes);
    if (how >= 192) {
        for (auto& byte : bytes) byte = choices.byte();
        return bytes;
    }
    if (how >= 128) return bytes;
    // Commands of the RDMA device have them the other way round.
    if (field.kind == kGid)
        std::reverse_copy(config_.gid.begin(), config_.gid.end(), bytes.begin());
    if (field.kind == kMac)
        std::reverse_copy(config_.mac.begin(), config_.mac.end(), bytes.begin());
    if (field.kind == kWireMac) std::ranges::copy(config_.mac, bytes.begin());
    if (field.kind == kGroup) {
        bytes.front() = 0xff;
        bytes[1] = 0x0e;
        bytes.back() = how % 4;
    }
    return bytes;
}

void HostileDriver::take_results(const Command& command, const Response& response) {
    if (response.arrived && on_answer) on_answer(command.opcode, response.status);
    if (!response.arrived ||
        (response.status != 0 && response.status != MANA_HW_STATUS_MORE_ENTRIES))
        return;
    for (const Field& result : command.results)
        remember(result.kind, result.bytes == 8 ? response.get<std::uint64_t>(result.offset)
                                                : response.get<std::uint32_t>(result.offset));
}

// ---- steps

void HostileDriver::step(Choices& choices) {
    switch (choices.below(20)) {
        case 0:
        case 1:
        case 2:
            return work(choices);
        case 3:
        case 4:
        case 5:
            return request(choices);
        case 6:
        case 7:
            return objects(choices);
        case 8:
        case 9:
            return raw_work(choices);
        case 16:
        case 17:
            return ext_work(choices);
        case 18:
            return ext_objects(choices);
        case 19:
            return ext_raw_work(choices);
        case 10:
        case 11:
            return ethernet_work(choices);
        case 12:
        case 13:
            return doorbell(choices);
        case 14:
            return any_request(choices);
        default:
            return bar(choices);
    }
}

void HostileDriver::request(Choices& choices) {
    const Command& command = choices.pick(commands());
    // What ends most other work is seldom sent.
    const bool ends_all = command.opcode == MANA_HW_DEREGISTER_DEVICE ||
                          command.opcode == MANA_HW_DISABLE_QUEUE ||
                          command.opcode == MANA_HW_RNIC_DESTROY_ADAPTER;
    if (ends_all && !choices.chance(16)) return;
    Request request(command.opcode, command.size, command.room, command.device, command.version,
                    command.version);
    for (const Field& field : command.fields) {
        if (field.kind == kGid || field.kind == kMac || field.kind == kWireMac ||
            field.kind == kGroup) {
            const std::vector<std::uint8_t> bytes = address_of(field, choices);
            request.put_bytes(field.offset, std::as_bytes(std::span(bytes)));
            continue;
        }
        const std::uint64_t value = value_of(field, choices);
        request.put_bytes(field.offset, std::as_bytes(std::span(&value, 1)).first(field.bytes));
    }
    // A field of the header, now and then.
    if (choices.chance(24))
        request.bytes[choices.below(40)] = static_cast<std::byte>(choices.byte());
    if (choices.chance(8))
        request.bytes.resize(choices.below(std::min<std::size_t>(4096, request.bytes.size() + 64)));
    if (request.bytes.size() < 40) request.bytes.resize(40);
    if (choices.chance(24)) {
        // From memory that others rewrite meanwhile.
        HwcDriver& hwc = host_->hwc();
        const std::uint64_t at = data_.value() + choices.below(32) * 4096;
        std::ranges::copy(request.bytes,
                          ram_.bytes(base::GuestAddr(at), request.bytes.size()).begin());
        std::array<std::byte, 24> oob{};
        base::store_le(oob.data() + 16, hwc.hwc_cq.id);
        base::store_le(oob.data() + 20, hwc.hwc_sq.id);
        const gdma::Sge sge{at, gdma::Key(hwc.init_data[MANA_HW_INIT_GPA_KEY]),
                            static_cast<std::uint32_t>(request.bytes.size())};
        hwc.hwc_sq.post(oob, std::span(&sge, 1));
        hwc.ring_requests();
        if (const auto response = hwc.take_response()) {
            hwc.post_receive();
            take_results(command, *response);
        }
        return;
    }
    take_results(command, host_->hwc().call(request));
}

void HostileDriver::any_request(Choices& choices) {
    Request request(static_cast<std::uint32_t>(choices.number()), 40 + choices.below(256),
                    static_cast<std::uint32_t>(choices.number()),
                    static_cast<std::uint16_t>(choices.below(5)));
    for (std::size_t i = 40; i + 8 <= request.bytes.size() && choices.more(); i += 8)
        request.put<std::uint64_t>(i, choices.number());
    (void)host_->hwc().call(request);
}

void HostileDriver::restart(Choices& choices) {
    if (!config_.resets) return;
    if (on_restart) on_restart();
    if (choices.chance(128)) function_.reset();
    // Back to work from the start: what was is gone, and a driver forgets it too.
    spoiler_ = nullptr;
    ram_.free_all();
    if (bring_up(choices.chance(128))) (void)make_pair();
}

void HostileDriver::objects(Choices& choices) {
    spoiler_ = &choices;
    const std::uint8_t what = choices.byte() % 24;
    RdmaHost& host = *host_;
    if (what >= 16) {
        renew(choices);
    } else if (what < 3 && !cqs_.empty() && qps_.size() < kMaxQps) {
        const DriverCq& send_cq = choices.pick(cqs_);
        const DriverCq& recv_cq = choices.pick(cqs_);
        auto qp = choices.chance(48) ? host.create_ud(send_cq, recv_cq, kQkey, choices.chance(96))
                                     : host.create_rc(send_cq, recv_cq);
        if (qp) adopt(std::move(qp));
    } else if (what < 6 && !qps_.empty()) {
        HostQp& qp = *choices.pick(qps_);
        (void)host.reset(qp);
        const auto psn = static_cast<std::uint32_t>(choices.below(1 << 24));
        const Peer peer = !config_.victims.empty() && choices.chance(128)
                              ? choices.pick(config_.victims)
                              : Peer{config_.gid, config_.mac, choices.pick(qps_)->qpn(), psn};
        (void)host.connect(qp, psn, peer, 256U << choices.below(5),
                           static_cast<std::uint8_t>(8 + choices.below(8)),
                           static_cast<std::uint32_t>(choices.below(8)));
    } else if (what < 7 && !qps_.empty()) {
        (void)host.to_state(*choices.pick(qps_), static_cast<std::uint32_t>(choices.below(8)));
    } else if (what < 9 && qps_.size() > 2) {
        const std::size_t index = choices.below(qps_.size());
        (void)host.destroy_rc(*qps_[index]);
        qps_.erase(qps_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (what < 10 && cqs_.size() < kMaxCqs) {
        if (auto cq = host.create_cq(4096U << choices.below(2))) {
            remember(kCq, cq->handle);
            cqs_.push_back(std::move(*cq));
        }
    } else if (what < 11 && cqs_.size() > 2) {
        const std::size_t index = choices.below(cqs_.size());
        if (host.destroy_cq(cqs_[index]))
            cqs_.erase(cqs_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (what < 13 && mrs_.size() < kMaxMrs) {
        const std::uint64_t offset = choices.below(kDataBytes);
        const std::uint64_t length = 1 + choices.below(kDataBytes - offset);
        if (const auto mr =
                host.hwc().create_mr(host.pd, data_ + offset, length,
                                     static_cast<std::uint32_t>(1 + choices.below(64)))) {
            remember(kMr, mr->handle);
            mrs_.push_back(*mr);
        }
    } else if (what < 14 && mrs_.size() > 1) {
        const std::size_t index = 1 + choices.below(mrs_.size() - 1);
        if (host.hwc().destroy_mr(mrs_[index]))
            mrs_.erase(mrs_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (what < 15) {
        // A fresh region, so that commands which take one over find it.
        if (const auto region = host.hwc().create_region(data_ + choices.below(32) * 4096, 4096))
            remember(kRegion, *region);
    } else if (choices.chance(96)) {
        restart(choices);
    }
    spoiler_ = nullptr;
}

/// Two QPs anew, with each other: nearly all work ends in an error some time.
void HostileDriver::renew(Choices& choices) {
    if (qps_.empty()) return;
    RdmaHost& host = *host_;
    HostQp& a = *choices.pick(qps_);
    HostQp& b = *choices.pick(qps_);
    if (a.datagrams || b.datagrams) {
        HostQp& qp = a.datagrams ? a : b;
        (void)host.reset(qp);
        for (std::uint32_t state = MANA_HW_RNIC_QP_INIT; state <= MANA_HW_RNIC_QP_RTS; ++state)
            (void)host.to_state(qp, state);
        return;
    }
    const auto psn = static_cast<std::uint32_t>(choices.below(1 << 24));
    const std::uint32_t mtu = 256U << choices.below(5);
    (void)host.reset(a);
    (void)host.reset(b);
    (void)host.connect(a, psn, {config_.gid, config_.mac, b.qpn(), psn}, mtu);
    (void)host.connect(b, psn, {config_.gid, config_.mac, a.qpn(), psn}, mtu);
}

/// The address vector is in front (RNIC 3.5); it names a QP of ours, or anything.
void HostileDriver::datagram(HostQp& qp, Choices& choices) {
    mana_hw_rnic_av av{};
    if (roce::is_ipv4(config_.gid)) {
        av.dest[10] = av.dest[11] = 0xff;
        for (std::size_t i = 0; i < 4; ++i)
            av.dest[12 + i] = av.source[12 + i] = config_.gid[15 - i];
    } else {
        std::reverse_copy(config_.gid.begin(), config_.gid.end(), av.dest);
        std::reverse_copy(config_.gid.begin(), config_.gid.end(), av.source);
        av.path = MANA_HW_RNIC_AV_IPV6;
    }
    std::reverse_copy(config_.mac.begin(), config_.mac.end(), av.dest_mac);
    av.udp_source_port = 0xc001;
    av.path |= 64;
    const auto bytes = std::as_writable_bytes(std::span(&av, 1));
    if (choices.chance(48))
        bytes[choices.below(bytes.size())] = static_cast<std::byte>(choices.byte());
    const base::GuestAddr at = data_ + 60 * 4096 + choices.below(64) * 64;
    std::ranges::copy(bytes, ram_.bytes(at, bytes.size()).begin());
    std::vector<gdma::Sge> sges{
        {at.value(), gdma::Key(mrs_.empty() ? 0 : mrs_.front().lkey),
         static_cast<std::uint32_t>(choices.chance(16) ? choices.number() : sizeof av)}};
    for (std::uint64_t n = choices.below(3); n > 0; --n) {
        sges.push_back(any_sge(choices));
        if (!choices.chance(32)) sges.back().length %= 1024;
    }
    mana_hw_rnic_send_oob oob{};
    oob.flags_psn = MANA_HW_RNIC_OOB_SIGNALED |
                    (choices.chance(16) ? choices.byte() & 0x1fU
                                        : static_cast<std::uint32_t>(choices.below(2)));
    oob.ssn = choices.chance(32) ? static_cast<std::uint32_t>(choices.number())
                                 : choices.pick(qps_)->qpn();
    oob.u.ud.qkey = choices.chance(32) ? choices.value<std::uint32_t>() : kQkey;
    qp.send.post(std::as_bytes(std::span(&oob, 1)), sges, 0, MANA_HW_WQE_OOB_IN_SGL | 4096U << 16);
    qp.send.doorbell();
}

void HostileDriver::work(Choices& choices) {
    if (qps_.empty()) return;
    HostQp& qp = *choices.pick(qps_);
    RdmaHost& host = *host_;
    std::vector<gdma::Sge> sges(choices.below(4));
    for (auto& sge : sges) sge = any_sge(choices);
    if (choices.chance(112)) {
        if (sges.empty()) sges.push_back(any_sge(choices));
        if (!choices.chance(64)) sges.back().length = 16384;
        (void)host.post_recv(qp, 1, sges, !choices.chance(32));
    } else if (qp.datagrams) {
        datagram(qp, choices);
    } else {
        SendWr wr;
        wr.opcode = static_cast<std::uint32_t>(2 + choices.below(6));
        wr.sges = std::move(sges);
        wr.remote_address =
            choices.chance(24) ? any_address(choices) : data_.value() + choices.below(56) * 4096;
        if (!mrs_.empty())
            wr.rkey = choices.chance(24) ? choices.pick(mrs_).rkey : mrs_.front().rkey;
        if (choices.chance(8)) wr.rkey = static_cast<std::uint32_t>(choices.number());
        wr.immediate = 0x01020304;
        wr.fence = choices.chance(32);
        (void)host.post_send(qp, wr, !choices.chance(32));
    }
    if (choices.chance(64) && !cqs_.empty()) {
        std::vector<HostQp*> all;
        for (const auto& each : qps_) all.push_back(each.get());
        std::vector<Completion> completions;
        host.poll(choices.pick(cqs_), all, completions);
    }
}

void HostileDriver::raw_work(Choices& choices) {
    if (qps_.empty()) return;
    HostQp& qp = *choices.pick(qps_);
    DriverWq& wq = choices.below(3) == 0 ? qp.send : choices.below(2) == 0 ? qp.recv : qp.read;
    // Header and OOB from the ABI, the rest as it comes; the PSN is often the one expected.
    std::vector<std::byte> wqe(32 + 16 * choices.below(8));
    const std::uint32_t code = choices.chance(32) ? choices.byte() & 7
                               : wq.is_sq         ? 6 + (choices.byte() & 1)
                                                  : 2;
    base::store_le<std::uint32_t>(wqe.data(),
                                  choices.chance(32) ? choices.value<std::uint32_t>() : 0);
    base::store_le<std::uint32_t>(
        wqe.data() + 4,
        static_cast<std::uint32_t>(choices.chance(32) ? choices.byte() : (wqe.size() - 32) / 16) |
            code << 8 |
            (choices.chance(64) ? choices.value<std::uint32_t>() & 0x3fff0000 : qp.mtu << 16));
    const std::uint32_t psn = choices.chance(64) ? choices.value<std::uint32_t>() : qp.next_psn;
    base::store_le<std::uint32_t>(wqe.data() + 8,
                                  wq.is_sq ? (psn << 8 | choices.byte()) : psn & 0xffffff);
    base::store_le<std::uint32_t>(wqe.data() + 12, choices.byte());
    for (std::size_t at = 16; at + 4 <= 32; at += 4)
        base::store_le<std::uint32_t>(wqe.data() + at,
                                      choices.chance(128) ? choices.value<std::uint32_t>() : 0);
    for (std::size_t at = 32; at + 16 <= wqe.size(); at += 16) {
        const gdma::Sge sge = any_sge(choices);
        base::store_le(wqe.data() + at, sge.address);
        base::store_le(wqe.data() + at + 8, sge.key.value());
        base::store_le(wqe.data() + at + 12, sge.length);
    }
    wq.post_raw(wqe);
    HwcDriver& hwc = host_->hwc();
    const std::uint32_t position =
        choices.chance(24) ? wq.head() + static_cast<std::uint32_t>(choices.number()) : wq.head();
    if (wq.is_sq)
        hwc.ring_sq(wq.page, wq.id, position);
    else
        hwc.ring_rq(wq.page, wq.id, position, choices.byte());
}

void HostileDriver::ethernet_work(Choices& choices) {
    if (!ethernet_) return doorbell(choices);
    if (choices.chance(64)) {
        const std::array<std::byte, 8> oob{};
        const gdma::Sge sge{
            data_.value() + choices.below(64) * 2048, gdma::Key(eth_key_),
            static_cast<std::uint32_t>(choices.chance(16) ? choices.number() : 2048)};
        eth_rq_.post(oob, std::span(&sge, 1));
        eth_rq_.doorbell(1);
        return;
    }
    // A frame of ours, with any offload flags.
    const std::uint64_t at = data_.value() + choices.below(16) * 4096;
    const std::size_t length = choices.chance(24) ? choices.below(9100) : 14 + choices.below(1500);
    const auto frame = ram_.bytes(base::GuestAddr(at), std::max<std::size_t>(length, 64));
    choices.fill(frame.first(64));
    std::transform(config_.mac.begin(), config_.mac.end(), frame.begin() + 6,
                   [](std::uint8_t b) { return static_cast<std::byte>(b); });
    if (!choices.chance(64)) {
        // Broadcast IPv4 or IPv6, TCP or UDP, but never to the RoCE port: that would be forgery,
        // not a bad driver.
        const bool v6 = choices.chance(96);
        std::fill_n(frame.begin(), 6, std::byte{0xff});
        base::store_be<std::uint16_t>(frame.data() + 12, v6 ? 0x86dd : 0x0800);
        frame[14] = v6 ? std::byte{0x60} : std::byte{0x45};
        base::store_be<std::uint16_t>(frame.data() + (v6 ? 18 : 16),
                                      static_cast<std::uint16_t>(length - (v6 ? 54 : 14)));
        frame[v6 ? 20 : 23] = choices.chance(128) ? std::byte{17} : std::byte{6};
        base::store_be<std::uint16_t>(frame.data() + (v6 ? 56 : 36), 80);
    }
    mana_hw_eth_tx_oob oob{};
    const bool small = choices.chance(64);
    static constexpr std::uint32_t kOffloads[] = {0x00, 0x04, 0x14, 0x24, 0x44,
                                                  0x34, 0x54, 0x08, 0x28, 0x48};
    oob.flags = choices.pick(kOffloads) | (small ? 0U : 1U);
    oob.place = choices.chance(16) ? choices.value<std::uint32_t>() : 34;
    oob.vlan = choices.chance(32) ? choices.value<std::uint32_t>() & ~1U : 0;
    std::uint32_t header0 = 0;
    std::uint32_t header1 = 0;
    std::size_t head = 14 + choices.below(200);
    if (choices.chance(64)) {
        // Segmentation: the headers are the first SGE.
        frame[14] = std::byte{0x45};
        frame[23] = std::byte{6};
        frame[46] = choices.chance(32) ? static_cast<std::byte>(choices.byte()) : std::byte{0x50};
        oob.flags = 0x24 | (small ? 0U : 1U);
        head = choices.chance(32) ? head : 54;
        header1 = MANA_HW_WQE_OOB_IN_SGL | static_cast<std::uint32_t>(choices.below(3000)) << 16;
    }
    if (choices.chance(16)) oob.flags = choices.value<std::uint32_t>();
    if (choices.chance(16)) header0 = static_cast<std::uint32_t>(choices.byte()) << 24;
    std::vector<gdma::Sge> sges;
    std::size_t done = 0;
    const std::size_t pieces = (header1 != 0 ? 2 : 1) + choices.below(3);
    for (std::size_t i = 0; i < pieces && done < length; ++i) {
        const std::size_t n = i + 1 == pieces ? length - done : std::min(length - done, head);
        sges.push_back({at + done, gdma::Key(eth_key_), static_cast<std::uint32_t>(n)});
        done += n;
        head = 14 + choices.below(200);
    }
    if (choices.chance(12)) sges.push_back(any_sge(choices));
    eth_sq_.post(std::as_bytes(std::span(&oob, 1)).first(small ? 8 : 24), sges, header0, header1);
    eth_sq_.doorbell();
}

void HostileDriver::doorbell(Choices& choices) {
    HwcDriver& hwc = host_->hwc();
    static constexpr std::uint64_t kPlaces[] = {0x000, 0x400, 0x408, 0x800, 0xff8,
                                                0x010, 0x410, 0x810, 0xff0};
    const std::uint32_t page =
        choices.chance(64) ? static_cast<std::uint32_t>(choices.below(1100)) : host_->device.page;
    const std::uint64_t place = hwc.doorbell_offset(page) +
                                (choices.chance(16) ? choices.below(4096) : choices.pick(kPlaces));
    std::uint64_t id = choices.byte();
    if (!qps_.empty() && choices.chance(160)) id = choices.pick(choices.pick(qps_)->ids);
    if (!cqs_.empty() && choices.chance(64)) id = choices.pick(cqs_).id;
    const std::uint64_t value =
        id | choices.number() << 32 | (choices.chance(32) ? choices.value<std::uint64_t>() : 0);
    if (place + 8 > function_.bar0_size()) return;
    if (choices.chance(32))
        hwc.write32(place, static_cast<std::uint32_t>(value));
    else
        hwc.write64(place, value);
}

void HostileDriver::bar(Choices& choices) {
    const std::uint64_t size = function_.bar0_size();
    std::uint64_t offset = choices.chance(64) ? choices.below(size) : choices.below(0x3000);
    const std::size_t length = std::min<std::uint64_t>(1 + choices.below(64), size - offset);
    // The mailbox is for those that may reset.
    const bool mailbox = offset < 0x2020 && offset + length > 0x2000;
    std::vector<std::byte> data(length);
    if (choices.chance(128) || (mailbox && !config_.resets)) {
        function_.bar0_read(offset, data);
        return;
    }
    if (mailbox) return restart(choices);
    choices.fill(data);
    function_.bar0_write(offset, data);
}

}  // namespace openmana::test
