// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#ifdef OPENMANA_COVERAGE
extern "C" void __gcov_dump();
#endif

namespace openmana::test {

/// Runs `f` in a process of its own and gives that one's wait status, as waitpid(2) has it. What
/// fails in there is printed, and makes the exit status 1.
template <typename F>
int in_child(F&& f) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        f();
        std::fflush(nullptr);
#ifdef OPENMANA_COVERAGE
        __gcov_dump();  // what _exit() leaves out
#endif
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
}

}  // namespace openmana::test
