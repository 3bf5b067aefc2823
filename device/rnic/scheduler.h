// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/counters.h"
#include "base/executor.h"
#include "rnic/network.h"

namespace openmana::rnic {

struct Qp;
class QpTable;

/// Whose turn it is. Executor only.
class Scheduler {
public:
    /// `held_back` counts queue pairs that have to wait for room in the network.
    Scheduler(base::Executor& executor, const Network& network, const QpTable& qps,
              base::Counter& held_back);

    /// Gives the QP a turn later, behind the others.
    void schedule(Qp& qp);
    /// True if the network has no room for frames of this QP; then it gets a turn when there is.
    [[nodiscard]] bool hold_back(Qp& qp);
    /// Gives the QP a turn when more of its work was posted, and at that time at last.
    void gather(Qp& qp, base::TimePoint end);
    /// The QP goes.
    void forget(const Qp& qp);
    /// Forgets who waits.
    void clear();

private:
    void pump_later();
    void pump();
    void serve(Qp& qp);
    void serve_held();
    void serve_gathering();

    base::Executor& executor_;
    const Network& network_;
    const QpTable& qps_;
    base::Counter& held_back_;
    std::deque<roce::Qpn> ready_;  // QPNs that wait for a turn
    bool pump_posted_ = false;
    std::deque<roce::Qpn> held_;  // QPNs that the network has no room for
    base::Timer held_timer_;
    std::deque<roce::Qpn> gathering_;  // QPNs that wait for more of their work
    base::Timer gather_timer_;
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::rnic
