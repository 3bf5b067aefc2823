// SPDX-License-Identifier: Apache-2.0
#include "base/short_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace openmana::base {
namespace {

/// What sched_setattr(2) takes. glibc of Debian 12 has no wrapper for the call, and the kernel's
/// <linux/sched/types.h> excludes glibc's <sched.h>, which every C++ header for threads has.
struct Attributes {
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;  ///< ns; of SCHED_OTHER the slice
    std::uint64_t deadline;
    std::uint64_t period;
};
static_assert(sizeof(Attributes) == 48);

Result<Attributes> attributes() {
    Attributes attr{};
    if (::syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0)
        return fail(ErrorCode::kIo, "the scheduler does not tell about this thread",
                    static_cast<std::uint64_t>(errno));
    return attr;
}

}  // namespace

Result<void> ask_for_slice(std::chrono::nanoseconds slice) {
    TRY(auto attr, attributes());
    if (attr.policy != SCHED_OTHER) return {};
    attr.runtime = static_cast<std::uint64_t>(slice.count());
    if (::syscall(SYS_sched_setattr, 0, &attr, 0) != 0)
        return fail(ErrorCode::kIo, "the scheduler refuses a slice",
                    static_cast<std::uint64_t>(errno));
    return {};
}

Result<std::chrono::nanoseconds> asked_slice() {
    TRY(const auto attr, attributes());
    return std::chrono::nanoseconds(attr.runtime);
}

}  // namespace openmana::base
