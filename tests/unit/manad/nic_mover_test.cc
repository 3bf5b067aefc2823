// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_mover.h"

#include <gtest/gtest.h>

#include "base/pausable_executor.h"
#include "fabric/nic.h"
#include "fabric/switch.h"
#include "pci/endpoint.h"
#include "support/sim_executor.h"

namespace openmana::manad {
namespace {

/// A NIC whose client moves it, on virtual time.
class NicMoverTest : public testing::Test {
protected:
    NicMoverTest() { endpoint.attach(nic.function(), nic.function().gate()); }
    static fabric::NicConfig config() {
        fabric::NicConfig config;
        config.name = "a";
        config.mac = {2, 0, 0, 0, 0, 1};
        return config;
    }

    test::SimWorld world;
    test::SimExecutor thread{world};
    fabric::Switch network{world};
    base::GuestMemory memory;
    pci::Endpoint endpoint{memory, {.name = "a"}};
    base::PausableExecutor executor{thread};
    fabric::Nic nic{executor, memory, endpoint, network, config()};
    NicMover mover{executor, memory, endpoint, nic};
};

/// What a state leaves to be done waits until the NIC runs.
TEST_F(NicMoverTest, StatesAreReadAgainAndAgainUnlessTooMuchWaits) {
    mover.stop();
    const auto state = mover.save();
    ASSERT_TRUE(state) << state.error().text;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(mover.load(*state));
    while (executor.waiting() < NicMover::kMostWaiting) executor.post([] {});
    const auto refused = mover.load(*state);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kExhausted);
    mover.start();
    world.run_until_idle();
    mover.stop();
    EXPECT_TRUE(mover.load(*state)) << "it has run";
}

}  // namespace
}  // namespace openmana::manad
