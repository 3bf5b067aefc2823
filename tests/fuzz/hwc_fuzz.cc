// SPDX-License-Identifier: Apache-2.0
// Messages of the hardware channel, after a handshake that went well: commands of the ABI whose
// fields are mostly of the right kind, so that they reach deep code, in any order, and bytes that
// mean nothing.
#include "fuzz.h"

using namespace openmana;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    test::SimWorld world;
    fuzz::Time time(world);
    fabric::Switch network(world);
    fuzz::FuzzNic nic(world, network, 1);
    test::HostileDriver driver(nic.nic.function(), nic.ram, nic.irq,
                               {test::test_mac(1), test::ipv4_gid(1), {}, 16, false});
    driver.on_answer = fuzz::on_answer;
    const std::uint8_t setup = choices.byte();
    if (!driver.bring_up((setup & 1) != 0)) fuzz::require(false, "bring-up without hostility");
    if ((setup & 2) != 0) fuzz::require(driver.make_pair(), "set-up without hostility");
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        switch (choices.below(8)) {
            case 0:
                driver.any_request(choices);
                break;
            case 1:
                driver.objects(choices);
                break;
            case 2:
                driver.work(choices);
                break;
            case 7:
                // No other target sends Ethernet frames.
                if ((setup & 0x10) != 0)
                    driver.ethernet_work(choices);
                else
                    driver.request(choices);
                break;
            default:
                driver.request(choices);
                break;
        }
        world.run_until_idle();
    }
    time.pass(std::chrono::seconds(1));
    // Whatever was asked for, the power-on state is reached again and works: with channel and
    // adapter each time, and all that can be made of them in a quarter of the inputs.
    nic.nic.function().reset();
    nic.ram.free_all();
    const bool all = (setup & 0x0c) == 0;
    fuzz::require(driver.bring_up(all) && (!all || driver.make_pair()), "bring-up after a reset");
    return 0;
}
