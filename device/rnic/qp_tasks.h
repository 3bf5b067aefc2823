// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/executor.h"

namespace openmana::rnic {

struct Qp;
class QpTable;

/// Work that a visitor leaves for the executor of the queue pairs.
class QpTasks {
public:
    QpTasks(base::Executor& executor, const QpTable& qps) : executor_(executor), qps_(qps) {}

    /// Runs `task(qp)` on the executor if the QP is then still in the same life. From any thread.
    void post(const Qp& qp, void (*task)(Qp& qp));
    /// Runs `task` on the executor, if all is not reset before. From any thread.
    void post(std::function<void()> task);
    /// The number of a QP's life, which begins with a RESET: never given twice.
    [[nodiscard]] std::uint64_t begin_life() { return next_life_++; }
    /// Forgets what is on its way.
    void clear() { ++epoch_; }

private:
    base::Executor& executor_;
    const QpTable& qps_;
    std::uint64_t next_life_ = 1;
    std::uint64_t epoch_ = 0;  // changes under an exclusion of the gate
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace openmana::rnic
