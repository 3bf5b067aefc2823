// SPDX-License-Identifier: Apache-2.0
// Work requests of QPs that are connected, in one NIC and between two, over the local path and over
// the wire: valid ones, nearly valid ones, bytes; doorbells anywhere. What no MR covers must stay
// as it was.
#include "fuzz.h"

#include <optional>

using namespace openmana;

namespace {

bool join(test::HostileDriver& a, test::HostileDriver& b) {
    test::RdmaHost& left = a.host();
    test::RdmaHost& right = b.host();
    auto qp_a = left.create_rc(a.cqs()[0], a.cqs()[1]);
    auto qp_b = right.create_rc(b.cqs()[0], b.cqs()[1]);
    if (!qp_a || !qp_b) return false;
    const bool done =
        left.connect(*qp_a, 1000, {right.gid(), right.mac(), qp_b->qpn(), 0xfffffe}) &&
        right.connect(*qp_b, 0xfffffe, {left.gid(), left.mac(), qp_a->qpn(), 1000});
    a.qps().push_back(std::move(qp_a));
    b.qps().push_back(std::move(qp_b));
    return done;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    test::SimWorld world;
    fuzz::Time time(world);
    fabric::Switch network(world);
    fabric::Switch far_network(world);
    const bool wire = choices.chance(128);
    std::optional<fuzz::Cable> cable;
    if (wire) cable.emplace(network, far_network);
    fuzz::FuzzNic near(world, network, 1);
    fuzz::FuzzNic far(world, wire ? far_network : network, 2);
    test::HostileDriver a(near.nic.function(), near.ram, near.irq,
                          {test::test_mac(1), test::ipv4_gid(1), {}, 0, false});
    test::HostileDriver b(far.nic.function(), far.ram, far.irq,
                          {test::test_mac(2), test::ipv4_gid(2), {}, 0, false});
    fuzz::require(a.bring_up(false) && a.make_pair() && b.bring_up(false) && b.make_pair(),
                  "bring-up");
    fuzz::require(join(a, b) && join(a, b), "connection");
    bool mapped = true;
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        test::HostileDriver& driver = choices.chance(96) ? b : a;
        switch (choices.below(20)) {
            case 16:
            case 17:
                driver.ext_work(choices);
                break;
            case 18:
                driver.ext_raw_work(choices);
                break;
            case 19:
                driver.ext_objects(choices);
                break;
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
            case 5:
                driver.work(choices);
                break;
            case 6:
            case 7:
            case 8:
                driver.raw_work(choices);
                break;
            case 9:
                driver.doorbell(choices);
                break;
            case 10:
                if (choices.chance(128))
                    driver.renew(choices);
                else
                    (void)driver.host().to_state(*choices.pick(driver.qps()),
                                                 static_cast<std::uint32_t>(choices.below(8)));
                break;
            case 11:
                // A peer that vanishes, or memory that does.
                if (choices.chance(64)) far.nic.set_link(choices.chance(128));
                if (choices.chance(32)) {
                    if (mapped) {
                        mapped = !far.memory.unmap(far.ram.start(), far.ram.size()).has_value();
                    } else {
                        mapped = far.memory
                                     .map_host(far.ram.start(),
                                               {far.ram.at(far.ram.start()), far.ram.size()})
                                     .has_value();
                    }
                }
                break;
            default:
                break;
        }
        if (!choices.chance(64)) world.run_until_idle();
        if (choices.chance(32)) time.pass(std::chrono::milliseconds(choices.byte()));
    }
    time.pass(std::chrono::seconds(2));
    fuzz::require(a.canary_alive() && b.canary_alive(), "memory outside all MRs was written");
    if (!mapped)
        (void)far.memory.map_host(far.ram.start(), {far.ram.at(far.ram.start()), far.ram.size()});
    return 0;
}
