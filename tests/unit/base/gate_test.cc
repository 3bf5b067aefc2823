// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <gtest/gtest.h>

#include <atomic>
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
