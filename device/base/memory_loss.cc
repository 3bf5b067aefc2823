// SPDX-License-Identifier: Apache-2.0
#include "base/memory_loss.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace openmana::base {

Result<std::unique_ptr<MemoryLoss>> MemoryLoss::create() {
    UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!eventfd)
        return fail(ErrorCode::kIo, "cannot create an eventfd", static_cast<unsigned>(errno));
    return std::unique_ptr<MemoryLoss>(new MemoryLoss(std::move(eventfd)));
}

void MemoryLoss::note() {
    if (count_.fetch_add(1, std::memory_order_relaxed) != 0) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(eventfd_.get(), &one, sizeof one);
}

void MemoryLoss::acknowledge() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(eventfd_.get(), &count, sizeof count);
}

}  // namespace openmana::base
