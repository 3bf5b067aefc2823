// SPDX-License-Identifier: Apache-2.0
#include "rnic/qp_tasks.h"

#include <utility>

#include "rnic/qp_table.h"

namespace openmana::rnic {

void QpTasks::post(std::function<void()> task) {
    executor_.post(
        [token = std::weak_ptr<int>(alive_), this, epoch = epoch_, task = std::move(task)] {
            if (!token.expired() && epoch == epoch_) task();
        });
}

void QpTasks::post(const Qp& qp, void (*task)(Qp& qp)) {
    post([this, qpn = qp.qpn(), life = qp.life, task] {
        Qp* const found = qps_.find(qpn);
        if (found != nullptr && found->life == life) task(*found);
    });
}

}  // namespace openmana::rnic
