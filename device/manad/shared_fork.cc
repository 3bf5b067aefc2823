// SPDX-License-Identifier: Apache-2.0
#include "manad/shared_fork.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace openmana::manad {

/// The C library does not know, so it is told the one thing that it keeps about itself: the number
/// of its thread.
pid_t fork_sharing_descriptors(int signal) {
    unsigned long flags = CLONE_FILES | static_cast<unsigned long>(signal);
    int* number = nullptr;
#ifdef __x86_64__
    if (::prctl(PR_GET_TID_ADDRESS, &number, 0, 0, 0) == 0 && number != nullptr)
        flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#endif
    return static_cast<pid_t>(::syscall(SYS_clone, flags, nullptr, nullptr, number, 0UL));
}

}  // namespace openmana::manad
