// SPDX-License-Identifier: Apache-2.0
#include "support/heavy_attack.h"

#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/rnic.h>

#include <vector>

namespace openmana::test {

bool HeavyAttack::begin() {
    ram_.free_all();
    binding_.reset();
    host_.emplace(function_, ram_, irq_, mac_, gid_);
    host_->features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
    if (!host_->bring_up()) return false;
    ext_.emplace(*host_);
    page_ = ram_.alloc(GuestRam::kPage).value();
    return true;
}

/// A region for a CQ whose ring is one page again and again.
std::optional<std::uint64_t> HeavyAttack::ring_region(std::uint64_t record_page) {
    std::vector<std::uint64_t> pages(std::uint64_t{load_.entries} * 64 / GuestRam::kPage, page_);
    pages.push_back(record_page);
    return host_->hwc().create_region(pages, pages.size() * GuestRam::kPage);
}

bool HeavyAttack::resize_to(std::uint64_t cq, std::uint64_t record, std::uint32_t consumer) {
    const auto next = ring_region(record);
    ram_.write<std::uint32_t>(base::GuestAddr(record), consumer);
    mana_hw_ext_resize_cq_req resize{};
    resize.cq = cq;
    resize.region = next.value_or(0);
    resize.entries = load_.entries;
    return ext_->call(MANA_HW_EXT_RESIZE_CQ, resize).ok();
}

bool HeavyAttack::resize() {
    const std::uint64_t record = ram_.alloc(GuestRam::kPage).value();
    const auto region = ring_region(record);
    if (!region) return false;
    mana_hw_ext_create_cq_req create{};
    create.region = *region;
    create.entries = load_.entries;
    create.eq_id = host_->eq.id;
    create.doorbell_page = host_->device.page;
    const Response made = ext_->call(MANA_HW_EXT_CREATE_CQ, create);
    if (!made.ok()) return false;
    const auto cq = made.get<std::uint64_t>(32);
    // Nothing was taken, says the consumer: the first index of a new ring is its size.
    const bool resized = resize_to(cq, record, 0) && resize_to(cq, record, load_.entries);
    mana_hw_rnic_destroy_cq_req destroy{};
    destroy.cq = cq;
    const bool destroyed = ext_->call(MANA_HW_RNIC_DESTROY_CQ, destroy).ok();
    ram_.free(base::GuestAddr(record), GuestRam::kPage);
    return resized && destroyed;
}

bool HeavyAttack::regions() {
    std::vector<std::uint64_t> pages(load_.pages);
    for (std::size_t i = 0; i < pages.size(); ++i)
        pages[i] = page_ + (pages.size() - i) * GuestRam::kPage;
    const auto region = host_->hwc().create_region(pages, pages.size() * GuestRam::kPage);
    if (!region) return false;
    const auto mr = host_->hwc().create_mr_of(host_->pd, *region, 0, 3);
    return mr && host_->hwc().destroy_mr(*mr);
}

bool HeavyAttack::start_windows() {
    const auto cq = ext_->create_cq(64);
    if (!cq) return false;
    ExtQpOptions small;
    small.sq_bytes = small.rq_bytes = 1024;
    for (int i = 0; i < load_.neighbours; ++i)
        if (!ext_->create_qp(*cq, *cq, small)) return false;
    auto qp = ext_->create_qp(*cq, *cq);
    const auto mr = host_->hwc().create_mr(
        host_->pd, base::GuestAddr(page_), GuestRam::kPage,
        gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite | gdma::kBindWindow);
    // There is no such peer, but local operations need none.
    if (!qp || !mr || !ext_->connect(*qp, 0, {ipv4_gid(2), test_mac(2), 0x77, 0})) return false;
    binding_ = {.qp = *qp, .cq = *cq, .mr = *mr, .left = load_.windows};
    return true;
}

bool HeavyAttack::bind_more() {
    for (; binding_->under_way > 0; --binding_->under_way) {
        const auto cqe = binding_->cq.poll();
        if (!cqe) return true;
        if (cqe->status != 0) return false;
    }
    if (binding_->left == 0) {
        const bool destroyed = ext_->destroy_qp(binding_->qp);
        binding_.reset();
        return destroyed;
    }
    for (; binding_->under_way < kBatch; ++binding_->under_way)
        if (!bind()) return false;
    binding_->left -= kBatch;
    return true;
}

bool HeavyAttack::bind() {
    const auto window = ext_->create_key(MANA_HW_MR_WINDOW_TYPE2);
    if (!window) return false;
    ExtWr wr;
    wr.opcode = MANA_HW_EXT_WQE_BIND_MW;
    wr.bind.emplace();
    wr.bind->mw_key = wr.bind->new_key = window->rkey;
    wr.bind->mr_key = binding_->mr.lkey;
    wr.bind->access = gdma::kRemoteWrite;
    wr.bind->address = page_;
    wr.bind->length = GuestRam::kPage;
    ext_->post(binding_->qp, wr);
    return true;
}

}  // namespace openmana::test
