// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_follower.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace openmana::base {
namespace {

using namespace std::chrono_literals;

cpu_set_t only(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

/// A process that keeps one CPU busy, and this thread on another.
class CpuFollowerTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
        if (cpus.size() < 2) GTEST_SKIP() << "there is one CPU only";
    }
    void TearDown() override {
        (void)::sched_setaffinity(0, sizeof allowed, &allowed);
        if (leader <= 0) return;
        ::kill(leader, SIGKILL);
        ::waitpid(leader, nullptr, 0);
    }
    /// On `cpu`, running or asleep.
    void start_leader(int cpu, bool runs) {
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        leader = ::fork();
        ASSERT_GE(leader, 0);
        if (leader == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::prctl(PR_SET_NAME, ") R 1 (x");  // a name that looks like fields
            const cpu_set_t set = only(cpu);
            if (::sched_setaffinity(0, sizeof set, &set) != 0) ::_exit(1);
            if (::write(ready[1], "", 1) != 1) ::_exit(1);
            while (runs) __builtin_ia32_pause();
            for (;;) ::pause();
        }
        char byte = 0;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1);
        ::close(ready[0]);
        ::close(ready[1]);
    }

    cpu_set_t allowed{};
    std::vector<int> cpus;
    pid_t leader = 0;
};

TEST_F(CpuFollowerTest, KnowsWhereTheLeaderRuns) {
    start_leader(cpus[1], true);
    EXPECT_EQ(CpuFollower(leader).leader_cpu(), cpus[1]);
}

TEST_F(CpuFollowerTest, ALeaderThatSleepsIsNowhere) {
    start_leader(cpus[1], false);
    const CpuFollower follower(leader);
    for (int i = 0; i < 1000 && follower.leader_cpu(); ++i) ::usleep(1000);
    EXPECT_EQ(follower.leader_cpu(), std::nullopt);
}

TEST_F(CpuFollowerTest, ALeaderThatIsGoneIsNowhere) {
    start_leader(cpus[1], true);
    ::kill(leader, SIGKILL);
    ::waitpid(leader, nullptr, 0);
    EXPECT_EQ(CpuFollower(leader).leader_cpu(), std::nullopt);
    leader = 0;
}

TEST_F(CpuFollowerTest, AMoveLeavesTheThreadItsOtherCpus) {
    for (const int cpu : cpus) EXPECT_TRUE(CpuFollower::move_to(cpu));
    cpu_set_t after{};
    ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&after, &allowed));
}

TEST_F(CpuFollowerTest, AThreadStaysWhereItMayRun) {
    const cpu_set_t set = only(cpus[0]);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_FALSE(CpuFollower::move_to(cpus[1]));
    EXPECT_FALSE(CpuFollower::move_to(-1));
    EXPECT_FALSE(CpuFollower::move_to(CPU_SETSIZE));
    EXPECT_EQ(::sched_getcpu(), cpus[0]);
}

/// A thread that wakes often is beside its leader in the end. (Where it was moved to it may be
/// moved away from by others, so each time is one chance.)
TEST_F(CpuFollowerTest, FollowsWhenItSleepsOften) {
    start_leader(cpus[1], true);
    SystemClock clock;
    CpuFollower follower(leader);
    bool beside = false;
    for (std::uint64_t sleeps = 64; !beside && sleeps < 64 * 100; sleeps += 64) {
        ASSERT_TRUE(CpuFollower::move_to(cpus[0]));
        follower.served(sleeps, clock);
        beside = ::sched_getcpu() == cpus[1];
        ::usleep(10000);
    }
    EXPECT_TRUE(beside);
}

/// A thread that is pinned elsewhere asks ever more seldom where its leader is.
TEST_F(CpuFollowerTest, WhoMayNotFollowLooksSeldom) {
    struct : Clock {
        [[nodiscard]] TimePoint now() const override { return time; }
        TimePoint time{1s};
    } clock;
    start_leader(cpus[1], true);
    const cpu_set_t set = only(cpus[0]);
    ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
    CpuFollower follower(leader);
    int looks = 0;
    for (std::uint64_t sleeps = 64; clock.time < TimePoint(11s); sleeps += 64) {
        looks += follower.served(sleeps, clock);
        clock.time += 1ms;
    }
    EXPECT_GE(looks, 10);
    EXPECT_LE(looks, 20);
}

TEST(CpuFollower, AThreadThatSleepsSeldomLooksAtNothing) {
    struct : Clock {
        [[nodiscard]] TimePoint now() const override {
            ++looks;
            return {};
        }
        mutable int looks = 0;
    } clock;
    CpuFollower follower(::getpid());
    follower.served(63, clock);
    EXPECT_EQ(clock.looks, 0);
    follower.served(64, clock);
    EXPECT_EQ(clock.looks, 1);
}

}  // namespace
}  // namespace openmana::base
