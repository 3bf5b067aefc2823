// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "base/gate.h"
#include "base/hold_meter.h"
#include "base/memory_account.h"
#include "gdma/id_pool.h"
#include "rnic/qp.h"

namespace openmana::rnic {

/// The queue pairs of an adapter, by number, and their memory. Changes on the executor; visitors
/// look. The gate is closed just for what they look at, which is where each is; that it is open
/// while one is made and destroyed is for who calls.
class QpTable {
public:
    /// `qp_bytes`: size of the largest. `account` pays, and outlives it.
    QpTable(base::Gate& gate, base::MemoryAccount& account, std::size_t qp_bytes)
        : gate_(gate), account_(account), memory_(qp_bytes, account) {}
    ~QpTable() {
        for (Qp* const qp : unlink_all())
            if (qp != nullptr) destroy(*qp);
    }
    QpTable(const QpTable&) = delete;
    QpTable& operator=(const QpTable&) = delete;

    /// No number is less than `first`, but for that of the GSI QP. While the table is empty, under
    /// an exclusion.
    void begin(Qpn first) { first_ = first.value(); }
    /// Null if there is none.
    [[nodiscard]] Qp* find(Qpn qpn) const {
        const std::size_t place = place_of(qpn);
        return place < qps_.size() ? qps_[place] : nullptr;
    }
    /// For who looks at all of them in several steps: each QP has a place below `places()`, and
    /// keeps it. Null if there is none at this one.
    [[nodiscard]] Qp* at(std::size_t place) const { return qps_[place]; }
    [[nodiscard]] std::size_t places() const { return qps_.size(); }
    /// Makes sure that the next QP can be created, and linked by this number.
    [[nodiscard]] base::Result<void> prepare(Qpn qpn) {
        const std::size_t places = place_of(qpn) + 1;
        if (places > qps_.capacity()) {
            std::vector<Qp*> more;
            base::MemoryAccount::Charge charge;
            TRY_VOID(base::reserve(more, std::max(places, 2 * qps_.capacity()), account_, charge));
            more = qps_;
            const base::Gate::Exclusion exclusion(gate_, {"growth of the QP table"});
            qps_.swap(more);
            qps_charge_ = std::move(charge);
        }
        return memory_.prepare();
    }
    /// A QP whose queues are of this format, which nobody finds before it is linked.
    template <typename Format, typename Layout>
    QpWith<Format>& create(Datapath& datapath, QpType type, const QpIds& ids, QpUses uses,
                           Layout layout) {
        ++count_;
        return *new (memory_.take())
            QpWith<Format>(datapath, type, ids, std::move(uses), std::move(layout));
    }
    /// Its number is free.
    void link(Qp& qp) {
        const std::size_t place = place_of(qp.qpn());
        const base::Gate::Exclusion exclusion(gate_, {"link of a QP"});
        if (place >= qps_.size()) qps_.resize(place + 1);
        qps_[place] = &qp;
        generation_ = next_generation();
    }
    /// Nobody finds it any more, and nobody is at it.
    void unlink(Qp& qp) {
        const base::Gate::Exclusion exclusion(gate_, {"unlink of a QP"});
        qps_[place_of(qp.qpn())] = nullptr;
        generation_ = next_generation();
    }
    /// The table as it was, with null where there is none: the QPs have not gone yet. It is long.
    [[nodiscard]] std::vector<Qp*> unlink_all() {
        std::vector<Qp*> all;
        const base::Gate::Exclusion exclusion(gate_, {"unlink of all QPs"});
        all.swap(qps_);
        qps_charge_ = {};
        generation_ = next_generation();
        return all;
    }
    /// Of one that nobody finds.
    void destroy(Qp& qp) {
        base::count_work(1);
        qp.~Qp();
        memory_.give_back(&qp);
        --count_;
    }
    [[nodiscard]] std::uint32_t count() const { return count_; }
    /// Changes whenever a QP comes or goes, and is never that of another adapter: who found one
    /// finds the same one as long as this is the same.
    [[nodiscard]] std::uint64_t generation() const { return generation_; }
    /// Calls `visit` with each.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (Qp* const qp : qps_)
            if (qp != nullptr) visit(*qp);
    }
    /// The same, from the last place on.
    template <typename Visit>
    void for_each_backwards(Visit&& visit) const {
        for (auto qp = qps_.rbegin(); qp != qps_.rend(); ++qp)
            if (*qp != nullptr) visit(**qp);
    }

private:
    static std::uint64_t next_generation() {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
    }
    /// Small numbers first, then those from `first_` on. What is between them is beyond all: the
    /// difference has 32 bits, the sum has more.
    [[nodiscard]] std::size_t place_of(Qpn qpn) const {
        constexpr std::uint32_t kSmall = gdma::QueueIdPool::kBlock;
        return qpn.value() < kSmall ? qpn.value() : std::size_t{qpn.value() - first_} + kSmall;
    }
    base::Gate& gate_;
    base::MemoryAccount& account_;
    base::BlockPool memory_;
    std::uint32_t first_ = gdma::QueueIdPool::kBlock;
    base::MemoryAccount::Charge qps_charge_;
    std::vector<Qp*> qps_;  // by place
    std::uint64_t generation_ = next_generation();
    std::uint32_t count_ = 0;
};

}  // namespace openmana::rnic
