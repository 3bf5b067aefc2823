// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "rnic/qp.h"

namespace openmana::rnic {

/// The queue pairs of an adapter, by number. Changes on the executor under an exclusion of the
/// gate; visitors look.
class QpTable {
public:
    /// Null if there is none.
    [[nodiscard]] Qp* find(std::uint64_t qpn) const {
        return qpn < qps_.size() ? qps_[qpn].get() : nullptr;
    }
    void insert(QpPtr qp) {
        const std::uint32_t qpn = qp->qpn();
        if (qpn >= qps_.size()) qps_.resize(qpn + 1);
        qps_[qpn] = std::move(qp);
        ++count_;
        generation_ = next_generation();
    }
    void erase(std::uint32_t qpn) {
        qps_[qpn].reset();
        --count_;
        generation_ = next_generation();
    }
    /// Of no queue pair any more: gives the memory back.
    void clear() {
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
        for (const QpPtr& qp : qps_)
            if (qp) visit(*qp);
    }

private:
    static std::uint64_t next_generation() {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
    }
    std::vector<QpPtr> qps_;
    std::uint64_t generation_ = next_generation();
    std::uint32_t count_ = 0;
};

}  // namespace openmana::rnic
