// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"

namespace openmana::manad {

/// What happens when this process makes a system call that manad never needs: the process is
/// killed (SIGSYS), or the kernel logs it and goes on, or nobody looks.
enum class Seccomp : std::uint8_t { kKill, kLog, kOff };

/// False in builds whose sanitizers or counters of lines make system calls of their own.
[[nodiscard]] bool can_be_sandboxed();

/// From now on this process, with the threads that it has and those to come, makes only the system
/// calls of serving: no program is started, no code is mapped, no socket but a Unix one to go to a
/// stream's other end is opened. What is listened on, watched and signalled exists already. Needs
/// no_new_privs (`start_as`).
base::Result<void> enter_sandbox(Seccomp action);

}  // namespace openmana::manad
