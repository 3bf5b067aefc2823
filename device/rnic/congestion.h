// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/executor.h"
#include "base/state.h"
#include "rnic/dcqcn.h"

namespace openmana::rnic {

struct Qp;

/// The rate limit of a QP that was told of congestion; it exists from the first CNP until the QP is
/// back at line rate. Wire path only. Owner's executor.
class Limiter {
public:
    explicit Limiter(Qp& qp);

    void on_cnp();
    /// True if a packet may go now; else the QP gets a turn when it may.
    bool open();
    void charge(std::size_t bytes);
    /// True if the limit has nothing left to do; else it looks again after a while.
    bool recovered();
    [[nodiscard]] std::uint32_t rate_mbps() const;
    /// Into a new one (adapter_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    void note();
    void wake(base::TimePoint when);

    Qp& qp_;
    Dcqcn dcqcn_;
    base::Timer timer_;
};

}  // namespace openmana::rnic
