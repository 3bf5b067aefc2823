// SPDX-License-Identifier: Apache-2.0
#include "base/short_slice.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

/// On a thread of its own, so that the slice ends with it.
template <typename Check>
void on_a_thread(Check check) {
    std::thread(check).join();
}

TEST(ShortSliceTest, AThreadHasTheSliceThatItAskedFor) {
    on_a_thread([] {
        ASSERT_TRUE(ask_for_slice(200us));
        const auto slice = asked_slice();
        ASSERT_TRUE(slice);
        if (*slice == 0ns) GTEST_SKIP() << "this kernel has no slices of threads (6.12 has)";
        EXPECT_EQ(*slice, 200us);
    });
}

TEST(ShortSliceTest, NiceValueAndPolicyStay) {
    on_a_thread([] {
        ASSERT_EQ(::setpriority(PRIO_PROCESS, 0, 7), 0);
        ASSERT_TRUE(ask_for_slice(kShortSlice));
        EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), 7);
        EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
    });
}

TEST(ShortSliceTest, AnotherPolicyIsLeftAlone) {
    on_a_thread([] {
        const sched_param none{};
        ASSERT_EQ(::sched_setscheduler(0, SCHED_BATCH, &none), 0);
        const auto before = asked_slice();
        ASSERT_TRUE(before);
        ASSERT_TRUE(ask_for_slice(kShortSlice));
        EXPECT_EQ(::sched_getscheduler(0), SCHED_BATCH);
        EXPECT_EQ(asked_slice().value(), *before);
    });
}

}  // namespace
}  // namespace openmana::base
