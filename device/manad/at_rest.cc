// SPDX-License-Identifier: Apache-2.0
#include "manad/at_rest.h"

#include <utility>

#include "base/activity.h"

namespace openmana::manad {

base::Result<std::unique_ptr<AtRest>> AtRest::create(
    const std::vector<LoopThreads::Shared>& threads, base::Duration patience, Step begin,
    Step end) {
    std::unique_ptr<AtRest> rest(new AtRest);
    for (const LoopThreads::Shared& thread : threads) {
        // It holds the thread, which may be asked to end meanwhile.
        thread->loop().post([shared = rest->shared_, thread, begin, end] {
            const base::Activity::Wait waiting("the end of a rest");
            begin(*thread);
            {
                std::unique_lock lock(shared->mutex);
                ++shared->resting;
                shared->changed.notify_all();
                shared->changed.wait(lock, [&] { return shared->over; });
            }
            end(*thread);
        });
    }
    std::unique_lock lock(rest->shared_->mutex);
    const bool all = rest->shared_->changed.wait_for(
        lock, patience, [&] { return rest->shared_->resting == threads.size(); });
    lock.unlock();
    if (!all) return base::fail(base::ErrorCode::kBusy, "a thread does not come to rest");
    return rest;
}

AtRest::~AtRest() {
    const std::lock_guard lock(shared_->mutex);
    shared_->over = true;
    shared_->changed.notify_all();
}

}  // namespace openmana::manad
