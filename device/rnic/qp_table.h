// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "rnic/qp.h"

namespace openmana::rnic {

/// The queue pairs of an adapter, by number, and their memory. Changes on the executor under an
/// exclusion of the gate; visitors look.
class QpTable {
public:
    /// `qp_bytes`: size of the largest.
    explicit QpTable(std::size_t qp_bytes) : memory_(qp_bytes) {}
    ~QpTable() { clear(); }
    QpTable(const QpTable&) = delete;
    QpTable& operator=(const QpTable&) = delete;

    /// Null if there is none.
    [[nodiscard]] Qp* find(Qpn qpn) const {
        return qpn.value() < qps_.size() ? qps_[qpn.value()] : nullptr;
    }
    /// A QP whose queues are of this format. Its number is free.
    template <typename Format, typename Layout>
    QpWith<Format>& create(Datapath& datapath, QpType type, const QpIds& ids, QpUses uses,
                           Layout layout) {
        const std::uint32_t qpn = ids.rq.value();
        if (qpn >= qps_.size()) qps_.resize(qpn + 1);
        auto* const qp = new (memory_.take())
            QpWith<Format>(datapath, type, ids, std::move(uses), std::move(layout));
        qps_[qpn] = qp;
        ++count_;
        generation_ = next_generation();
        return *qp;
    }
    void erase(Qpn qpn) {
        Qp* const qp = std::exchange(qps_[qpn.value()], nullptr);
        qp->~Qp();
        memory_.give_back(qp);
        --count_;
        generation_ = next_generation();
    }
    /// All that are left go, and the memory of the table.
    void clear() {
        for_each([this](Qp& qp) { erase(qp.qpn()); });
        qps_.clear();
        generation_ = next_generation();
    }
    [[nodiscard]] std::uint32_t count() const { return count_; }
    /// Changes whenever a QP comes or goes, and is never that of another adapter: who found one
    /// finds the same one as long as this is the same.
    [[nodiscard]] std::uint64_t generation() const { return generation_; }
    /// Calls `visit` with each, which may erase it.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        for (Qp* const qp : qps_)
            if (qp != nullptr) visit(*qp);
    }

private:
    static std::uint64_t next_generation() {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
    }
    base::BlockPool memory_;
    std::vector<Qp*> qps_;
    std::uint64_t generation_ = next_generation();
    std::uint32_t count_ = 0;
};

}  // namespace openmana::rnic
