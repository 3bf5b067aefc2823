// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/counters.h"
#include "base/executor.h"

namespace openmana::rnic {

class ExtSends;

/// The doorbell records that are looked at, so that busy hosts need not ring. Executor only.
class RecordWatch final : public base::Poller {
public:
    /// `posts` counts what was found without a doorbell.
    RecordWatch(base::Executor& executor, base::Counter& posts);
    ~RecordWatch() override;
    RecordWatch(const RecordWatch&) = delete;
    RecordWatch& operator=(const RecordWatch&) = delete;

    /// From now on the producer of its sends is looked at, for some time, if not too many are.
    void watch(ExtSends& sends);
    void unwatch(ExtSends& sends);
    State poll() override;

private:
    base::Executor& executor_;
    base::Counter& posts_;
    std::vector<ExtSends*> watched_;
};

}  // namespace openmana::rnic
