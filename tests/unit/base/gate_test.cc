// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace openmana::base {
namespace {

TEST(Gate, VisitorsShareIt) {
    Gate gate;
    const Gate::Visit first(gate);
    const Gate::Visit second(gate);
}

TEST(Gate, StaysClosedUntilTheOutermostExclusionEnds) {
    Gate gate;
    std::atomic<bool> closed{true};
    std::atomic<bool> came_in_early{false};
    std::thread visitor;
    {
        const Gate::Exclusion outer(gate);
        visitor = std::thread([&] {
            const Gate::Visit visit(gate);
            came_in_early = closed.load();
        });
        { const Gate::Exclusion inner(gate); }
        closed = false;
    }
    visitor.join();
    EXPECT_FALSE(came_in_early);
}

TEST(Gate, WhoWaitsGoesInBeforeTheNextExclusion) {
    Gate gate;
    std::atomic<int> inside{0};
    std::vector<std::thread> visitors;
    {
        const Gate::Exclusion exclusion(gate);
        for (int i = 0; i < 3; ++i)
            visitors.emplace_back([&] {
                const Gate::Visit visit(gate);
                ++inside;
            });
        while (gate.waiting() < 3) std::this_thread::yield();
        EXPECT_EQ(inside, 0);
    }
    {
        const Gate::Exclusion next(gate);
        EXPECT_EQ(inside, 3);
    }
    for (auto& visitor : visitors) visitor.join();
    EXPECT_EQ(gate.waiting(), 0U);
}

TEST(Gate, ARecessLetsThoseInWhoWaitAndEndsWithoutThem) {
    Gate gate;
    std::atomic<bool> inside{false};
    std::thread visitor;
    const Gate::Exclusion outer(gate);
    const Gate::Exclusion inner(gate);
    visitor = std::thread([&] {
        const Gate::Visit visit(gate);
        inside = true;
    });
    while (gate.waiting() == 0) std::this_thread::yield();
    EXPECT_FALSE(inside);
    { const Gate::Recess recess(gate); }
    EXPECT_TRUE(inside);
    visitor.join();
    EXPECT_FALSE(Gate::TryVisit(gate)) << "closed again, as deep as before";
}

TEST(Gate, WhoTriesDoesNotWait) {
    Gate gate;
    EXPECT_TRUE(Gate::TryVisit(gate));
    const Gate::Exclusion exclusion(gate);
    EXPECT_FALSE(Gate::TryVisit(gate));
    const Gate::Recess recess(gate);
    EXPECT_TRUE(Gate::TryVisit(gate));
}

TEST(HoldMeter, TellsHowLongWhatIsHeldAndForWhat) {
    HoldMeter meter;
    Gate gate;
    SharedMutex mutex("lock");
    {
        const Gate::Exclusion exclusion(gate, {"command", 0x17});
        const Gate::Exclusion nested(gate, {"nested"});
        count_work(3);
        const Gate::Recess recess(gate);
        count_work(100);
        const Gate::Visit visit(gate);
        const std::lock_guard lock(mutex);
        count_work(2);
    }
    EXPECT_EQ(meter.holds(), 4U) << "the exclusion twice, the visit and the lock";
    EXPECT_EQ(meter.within(100000), 4U);
    EXPECT_EQ(meter.largest().work, 3U);
    EXPECT_STREQ(meter.largest().cause.what, "command");
    EXPECT_EQ(meter.largest().cause.detail, 0x17U);
    const std::string report = meter.report();
    EXPECT_NE(report.find("longest"), std::string::npos) << report;
    meter.clear();
    EXPECT_EQ(meter.holds(), 0U);
    { const Gate::Visit visit(gate); }
    EXPECT_EQ(meter.holds(), 1U);
}

TEST(HoldMeter, TellsCausesApart) {
    HoldMeter meter;
    Gate gate;
    const auto hold = [&](const HoldCause& cause, std::uint64_t work) {
        const Gate::Exclusion exclusion(gate, cause);
        count_work(work);
    };
    hold({"command", 1, true}, 5);
    hold({"command", 2, true}, 7);
    hold({"step", 1}, 3);
    hold({"step", 2}, 4);
    {
        const Gate::Visit visit(gate);
        count_work(100);
    }
    EXPECT_EQ(meter.largest().work, 100U);
    EXPECT_EQ(meter.largest(HoldKind::kExclusion).work, 7U);
    EXPECT_EQ(meter.largest(HoldKind::kLock).work, 0U);
    const auto causes = meter.causes();
    ASSERT_EQ(causes.size(), 4U) << meter.report();
    std::uint64_t steps = 0;
    for (std::size_t i = 0; i < causes.size(); ++i) {
        if (i > 0) {
            EXPECT_LE(causes[i].longest.nanoseconds, causes[i - 1].longest.nanoseconds);
        }
        EXPECT_LE(causes[i].slow, causes[i].holds);
        if (std::string(causes[i].largest.cause.what) != "step") continue;
        steps = causes[i].holds;
        EXPECT_EQ(causes[i].largest.work, 4U);
    }
    EXPECT_EQ(steps, 2U);
}

TEST(HoldMeter, SeesNothingOfAGateThatWasThereBefore) {
    Gate gate;
    HoldMeter meter;
    const Gate::Visit visit(gate);
    EXPECT_EQ(meter.holds(), 0U);
}

// A plain integer, written under exclusion and read in visits: any hole in the gate is a race for
// TSan and a torn pair for everybody else.
TEST(Gate, KeepsVisitorsOutWhileTheOwnerChangesThings) {
    Gate gate;
    struct {
        std::uint64_t a = 0;
        std::uint64_t b = 0;
    } pair;
    std::atomic<bool> stop{false};
    std::vector<std::thread> visitors;
    for (int i = 0; i < 2; ++i)
        visitors.emplace_back([&] {
            while (!stop) {
                const Gate::Visit visit(gate);
                ASSERT_EQ(pair.a, pair.b);
            }
        });
    for (std::uint64_t i = 1; i <= 2000; ++i) {
        const Gate::Exclusion exclusion(gate);
        pair.a = i;
        pair.b = i;
    }
    stop = true;
    for (auto& visitor : visitors) visitor.join();
    EXPECT_EQ(pair.a, 2000u);
}

}  // namespace
}  // namespace openmana::base
