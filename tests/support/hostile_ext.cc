// SPDX-License-Identifier: Apache-2.0
// What the hostile driver does with the extension (docs/extensions.md).
#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/rnic.h>

#include <algorithm>

#include "support/hostile_driver.h"

namespace openmana::test {
namespace {

constexpr std::size_t kMaxExtQps = 16;
constexpr std::uint32_t kTypes[] = {MANA_HW_EXT_QP_RC, MANA_HW_EXT_QP_UC, MANA_HW_EXT_QP_UD,
                                    MANA_HW_EXT_QP_GSI};

}  // namespace

bool HostileDriver::make_ext_pair() {
    ext_ = std::make_unique<ExtHost>(*host_);
    // Without the extension there is nothing to be hostile with.
    if (!ext_->query_caps()) return true;
    for (int i = 0; i < 2; ++i) {
        auto cq = ext_->create_cq(64);
        if (!cq) return false;
        note(cq->memory.ring);
        remember(kCq, cq->handle);
        ext_cqs_.push_back(std::move(*cq));
    }
    ext_srq_ = ext_->create_srq(2048, 64);
    if (!ext_srq_) return false;
    note(ext_srq_->memory.ring);
    remember(kSrq, ext_srq_->handle);
    for (const std::uint32_t type : {MANA_HW_EXT_QP_RC, MANA_HW_EXT_QP_RC, MANA_HW_EXT_QP_UD}) {
        ExtQpOptions options;
        options.type = type;
        auto qp = ext_->create_qp(ext_cqs_[0], ext_cqs_[1], options);
        if (!qp) return false;
        note(qp->memory.ring);
        remember(kQp, qp->handle);
        ext_qps_.push_back(std::move(*qp));
        ext_types_.push_back(type);
    }
    for (const std::uint32_t type : {MANA_HW_MR_WINDOW_TYPE1, MANA_HW_MR_WINDOW_TYPE2}) {
        const auto key = ext_->create_key(type);
        if (!key) return false;
        ext_keys_.push_back(*key);
    }
    const auto all = host_->hwc().create_mr(host_->pd, data_, kDataBytes, 0x3f);
    if (!all) return false;
    mrs_.push_back(*all);
    const auto peer = [&](const ExtQp& qp) { return Peer{config_.gid, config_.mac, qp.qpn, 100}; };
    return ext_->connect(ext_qps_[0], 100, peer(ext_qps_[1])) &&
           ext_->connect(ext_qps_[1], 100, peer(ext_qps_[0])) &&
           ext_->start_datagrams(ext_qps_[2], kQkey);
}

void HostileDriver::ext_connect(ExtQp& a, ExtQp& b, Choices& choices) {
    const auto psn = static_cast<std::uint32_t>(choices.below(1 << 24));
    ExtPath path;
    path.mtu = 256U << choices.below(5);
    path.retries = static_cast<std::uint32_t>(choices.below(8));
    for (ExtQp* qp : {&a, &b}) {
        (void)ext_->to_state(*qp, MANA_HW_RNIC_QP_RESET);
        // A driver that forgets to has a QP that fails.
        if (choices.chance(8)) continue;
        qp->sq_producer = qp->rq_producer = 0;
        qp->memory.store(0, 0);
        qp->memory.store(2, 0);
    }
    (void)ext_->connect(a, psn, {config_.gid, config_.mac, b.qpn, psn}, path);
    (void)ext_->connect(b, psn, {config_.gid, config_.mac, a.qpn, psn}, path);
}

void HostileDriver::ext_objects(Choices& choices) {
    if (ext_cqs_.empty()) return;
    spoiler_ = &choices;
    const std::uint8_t what = choices.byte() % 16;
    if (what < 6 && !ext_qps_.empty()) {
        const std::size_t a = choices.below(ext_qps_.size());
        const std::size_t b = choices.below(ext_qps_.size());
        if (ext_types_[a] == MANA_HW_EXT_QP_UD)
            (void)ext_->start_datagrams(ext_qps_[a], kQkey);
        else
            ext_connect(ext_qps_[a], ext_qps_[b], choices);
    } else if (what < 8 && ext_qps_.size() < kMaxExtQps) {
        ExtQpOptions options;
        options.type = choices.pick(kTypes);
        if (choices.chance(96) && ext_srq_) options.srq = &*ext_srq_;
        if (auto qp = ext_->create_qp(choices.pick(ext_cqs_), choices.pick(ext_cqs_), options)) {
            note(qp->memory.ring);
            remember(kQp, qp->handle);
            ext_qps_.push_back(std::move(*qp));
            ext_types_.push_back(options.type);
        }
    } else if (what < 9 && ext_qps_.size() > 2) {
        const std::size_t index = choices.below(ext_qps_.size());
        (void)ext_->destroy_qp(ext_qps_[index]);
        ext_qps_.erase(ext_qps_.begin() + static_cast<std::ptrdiff_t>(index));
        ext_types_.erase(ext_types_.begin() + static_cast<std::ptrdiff_t>(index));
    } else if (what < 10 && !ext_qps_.empty()) {
        (void)ext_->to_state(choices.pick(ext_qps_), static_cast<std::uint32_t>(choices.below(8)));
    } else if (what < 12) {
        ExtCq& cq = choices.pick(ext_cqs_);
        if (ext_->resize_cq(cq, 16U << choices.below(4))) note(cq.memory.ring);
    } else if (what < 13 && ext_srq_) {
        (void)ext_->modify_srq(*ext_srq_, static_cast<std::uint32_t>(choices.below(40)));
        (void)ext_->query_srq(*ext_srq_);
    } else if (what < 14 && ext_keys_.size() < 8) {
        static constexpr std::uint32_t kKinds[] = {MANA_HW_MR_WINDOW_TYPE1, MANA_HW_MR_WINDOW_TYPE2,
                                                   MANA_HW_EXT_MR_FAST_REGISTER};
        if (const auto key = ext_->create_key(choices.pick(kKinds), 1 + choices.below(8)))
            ext_keys_.push_back(*key);
    } else if (what < 15 && ext_keys_.size() > 2) {
        (void)host_->hwc().destroy_mr(ext_keys_.back());
        ext_keys_.pop_back();
    } else if (!ext_qps_.empty()) {
        roce::Gid group{0xff, 0x0e};
        group[15] = static_cast<std::uint8_t>(choices.below(4));
        (void)ext_->multicast(choices.pick(ext_qps_), group, choices.chance(160));
    }
    spoiler_ = nullptr;
}

ExtWr HostileDriver::ext_request(const ExtQp& qp, Choices& choices) {
    ExtWr wr;
    wr.opcode = static_cast<std::uint8_t>(choices.chance(8) ? choices.byte() : choices.below(11));
    wr.flags = static_cast<std::uint8_t>(choices.chance(64) ? choices.byte() & 7 : 1);
    for (std::uint64_t n = choices.below(4); n > 0; --n) wr.sges.push_back(any_sge(choices));
    wr.remote_address =
        choices.chance(24) ? any_address(choices) : data_.value() + choices.below(56) * 4096;
    if (!mrs_.empty()) wr.rkey = choices.chance(24) ? choices.pick(mrs_).rkey : mrs_.back().rkey;
    if (choices.chance(48) && !ext_keys_.empty()) wr.rkey = choices.pick(ext_keys_).rkey;
    wr.value = choices.chance(64) ? static_cast<std::uint32_t>(choices.number()) : wr.rkey;
    wr.swap_add = choices.byte();
    wr.compare = choices.byte();
    const bool atomic =
        wr.opcode == MANA_HW_EXT_WQE_CMP_SWAP || wr.opcode == MANA_HW_EXT_WQE_FETCH_ADD;
    if (atomic && !choices.chance(32)) wr.sges = {{data_.value(), gdma::Key(mrs_.back().lkey), 8}};
    if (wr.opcode >= MANA_HW_EXT_WQE_LOCAL_INV) wr.sges.clear();
    if (wr.opcode < MANA_HW_EXT_WQE_READ && choices.chance(64)) {
        wr.sges.clear();
        wr.flags |= MANA_HW_EXT_WQE_INLINE;
        wr.data = choices.bytes(choices.below(200));
    }
    if (wr.opcode == MANA_HW_EXT_WQE_BIND_MW) {
        wr.bind.emplace();
        DriverMr& window = choices.pick(ext_keys_);
        wr.bind->mw_key = window.rkey;
        wr.bind->new_key = window.rkey = (window.rkey & ~MANA_HW_EXT_KEY_TAG) | choices.byte();
        wr.bind->mr_key = choices.chance(32) ? choices.pick(mrs_).lkey : mrs_.back().lkey;
        wr.bind->access = choices.chance(32) ? choices.byte() : std::uint32_t{gdma::kRemoteRead};
        wr.bind->address = any_address(choices);
        wr.bind->length = choices.chance(32) ? choices.number() : choices.below(4096);
    }
    if (wr.opcode == MANA_HW_EXT_WQE_FAST_REGISTER) {
        wr.reg.emplace();
        wr.reg->key = choices.pick(ext_keys_).rkey;
        wr.reg->page_list = any_address(choices);
        wr.reg->pages = static_cast<std::uint32_t>(choices.below(8));
        wr.reg->page_shift = 12;
        wr.reg->length = choices.number();
    }
    const auto at = static_cast<std::size_t>(&qp - ext_qps_.data());
    if (ext_types_[at] == MANA_HW_EXT_QP_UD || ext_types_[at] == MANA_HW_EXT_QP_GSI) {
        if (!choices.chance(16)) wr.opcode &= 1;
        wr.ud.emplace();
        std::ranges::copy(config_.gid, wr.ud->source_gid);
        std::ranges::copy(config_.gid, wr.ud->dest_gid);
        std::ranges::copy(config_.mac, wr.ud->dest_mac);
        if (choices.chance(24)) {
            std::fill_n(wr.ud->dest_gid, 16, std::uint8_t{0});
            wr.ud->dest_gid[0] = 0xff;
            wr.ud->dest_gid[1] = 0x0e;
        }
        wr.ud->dest_qpn = choices.chance(24) ? static_cast<std::uint32_t>(choices.number())
                                             : choices.pick(ext_qps_).qpn;
        wr.ud->qkey = choices.chance(24) ? static_cast<std::uint32_t>(choices.number()) : kQkey;
        for (auto& sge : wr.sges) sge.length %= 1200;
    }
    return wr;
}

void HostileDriver::ext_work(Choices& choices) {
    if (ext_qps_.empty() || mrs_.empty()) return;
    ExtQp& qp = choices.pick(ext_qps_);
    if (choices.chance(96)) {
        std::vector<gdma::Sge> sges(choices.below(4));
        for (auto& sge : sges) sge = any_sge(choices);
        if (qp.rq_bytes == 0) {
            if (ext_srq_) ext_srq_->post(choices.byte(), sges);
        } else {
            ext_->recv(qp, choices.byte(), sges);
        }
    } else {
        ext_->post(qp, ext_request(qp, choices));
    }
    if (choices.chance(128)) {
        ExtCq& cq = choices.pick(ext_cqs_);
        (void)cq.drain();
        cq.arm(choices.chance(64));
    }
}

void HostileDriver::ext_raw_work(Choices& choices) {
    if (ext_qps_.empty()) return;
    ExtQp& qp = choices.pick(ext_qps_);
    const std::uint8_t what = choices.byte() % 8;
    if (what < 3) {
        // A WQE with spoiled bytes.
        auto wqe = ext_request(qp, choices).wqe();
        for (std::uint64_t n = 1 + choices.below(4); n > 0; --n)
            wqe[choices.below(std::min<std::size_t>(wqe.size(), 64))] =
                static_cast<std::byte>(choices.byte());
        ext_->post_raw(qp, wqe);
    } else if (what < 5) {
        // Bytes anywhere in the rings, posted ones among them.
        *qp.memory.ring.at(choices.below(qp.memory.rings)) = static_cast<std::byte>(choices.byte());
    } else if (what < 6) {
        qp.memory.store(static_cast<unsigned>(choices.below(4)),
                        static_cast<std::uint32_t>(choices.number()));
        ext_->ring_send(qp);
        ext_->ring_recv(qp);
    } else if (what < 7 && ext_srq_) {
        ext_srq_->memory.store(0, static_cast<std::uint32_t>(
                                      choices.chance(128) ? choices.number() : ext_srq_->producer));
    } else if (!ext_cqs_.empty()) {
        ExtCq& cq = choices.pick(ext_cqs_);
        cq.memory.store(static_cast<unsigned>(choices.below(2)),
                        static_cast<std::uint32_t>(choices.number()));
        if (choices.chance(128)) cq.memory.store(0, cq.consumer);
    }
}

}  // namespace openmana::test
