// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include <mana/ext.h>

#include "rnic/datapath.h"
#include "rnic/ext_queues.h"
#include "rnic/qp.h"
#include "rnic/stock_queues.h"

// The state of the queues of both formats: what they lie in, and how far they were taken.

namespace openmana::rnic {

// ---- stock

template <typename Archive, typename Self>
void StockSends::fields(Archive& a, Self& self) {
    a(self.producer_, self.consumer_, self.completions_, self.read_producer_, self.read_consumer_);
}

void StockSends::save(base::StateWriter& out) const {
    fields(out, *this);
}

void StockSends::load(base::StateReader& in) {
    fields(in, *this);
    peeked_ = consumer_;
    const bool reads = read_ring_ ? read_producer_ - read_consumer_ <= read_ring_->bytes()
                                  : read_producer_ == 0 && read_consumer_ == 0;
    in.require(producer_ - consumer_ <= ring_.bytes() && reads, "position that no SQ has");
    if (!in.ok()) reset();
}

void StockReceives::save(base::StateWriter& out) const {
    out(producer_, consumer_);
}

void StockReceives::load(base::StateReader& in) {
    in(producer_, consumer_);
    in.require(producer_.load() - consumer_.load() <= ring_.bytes(), "position that no RQ has");
    if (!in.ok()) reset();
}

void StockErrors::save(base::StateWriter& out) const {
    out(send_error_reported_, receive_error_reported_, hold_timer_.left());
}

void StockErrors::load(base::StateReader& in) {
    std::optional<base::TimePoint> hold;
    in(send_error_reported_, receive_error_reported_, hold);
    if (in.ok() && hold) hold_timer_.arm_at(*hold);
}

void StockQueues::save_layout(base::StateWriter& out) const {
    sends.ring().region().save(out);
    receives.ring().region().save(out);
    out(sends.read_ring() != nullptr);
    if (sends.read_ring() != nullptr) sends.read_ring()->region().save(out);
    out.count(held_.size());
    for (const auto& region : held_) region->save(out);
}

StockQueues::Regions StockQueues::load_layout(base::StateReader& in, base::MemoryAccount& account) {
    constexpr std::size_t kMostHeld = 2;
    Regions regions;
    regions.send = gdma::DmaRegion::load(in, account);
    regions.receive = gdma::DmaRegion::load(in, account);
    if (in.get<bool>()) regions.read_scatter = gdma::DmaRegion::load(in, account);
    const std::size_t held = in.count();
    in.require(held <= kMostHeld, "more queues than there are");
    for (std::size_t i = 0; i < held && in.ok(); ++i)
        regions.held.push_back(gdma::DmaRegion::load(in, account));
    return regions;
}

void StockQueues::save(base::StateWriter& out) const {
    sends.save(out);
    receives.save(out);
    errors.save(out);
}

void StockQueues::load(base::StateReader& in) {
    sends.load(in);
    receives.load(in);
    errors.load(in);
}

// ---- extended

void ReceiveRing::load(base::StateReader& in) {
    in(consumer_);
}

template <typename Archive, typename Self>
void ExtSends::fields(Archive& a, Self& self) {
    a(self.drained_reported_, self.bad_record_, self.producer_, self.consumer_, self.datagram_psn_);
}

void ExtSends::save(base::StateWriter& out) const {
    fields(out, *this);
}

void ExtSends::load(base::StateReader& in) {
    fields(in, *this);
    peeked_ = consumer_;
    in.require(producer_ - consumer_ <= ring_.bytes() / MANA_HW_EXT_WQE_UNIT,
               "position that no SQ has");
    if (!in.ok()) reset();
}

void ExtReceives::save(base::StateWriter& out) const {
    out(last_reported_);
    if (ring_) ring_->save(out);
}

void ExtReceives::load(base::StateReader& in) {
    in(last_reported_);
    if (ring_) ring_->load(in);
}

void ExtQueues::save_layout(base::StateWriter& out) const {
    layout.region->save(out);
    out(layout.sq_bytes, layout.rq_bytes, layout.rq_stride, layout.privileged,
        layout.srq ? layout.srq->id() : 0);
}

void ExtQueues::save(base::StateWriter& out) const {
    sends.save(out);
    receives.save(out);
}

void ExtQueues::load(base::StateReader& in) {
    sends.load(in);
    receives.load(in);
}

void SharedReceiveQueue::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    receives_.save(out);
    out(limit_, failed_);
}

void SharedReceiveQueue::load(base::StateReader& in) {
    const std::lock_guard lock(mutex_);
    receives_.load(in);
    in(limit_, failed_);
    in.require(limit_ <= receives_.entries(), "limit that no SRQ has");
}

}  // namespace openmana::rnic
