// SPDX-License-Identifier: Apache-2.0
// Work requests of QPs that are connected, in one NIC and between two, over the local path and over
// the wire: valid ones, nearly valid ones, bytes; doorbells anywhere. What no MR covers must stay
// as it was.
#include "fuzz.h"

#include <chrono>
#include <memory>

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

/// Two NICs with two connected pairs of queue pairs.
class Pair {
public:
    Pair(test::Choices& choices, bool wire)
        : choices_(choices),
          time_(world_),
          network_(world_),
          far_network_(world_),
          cable_(wire ? std::make_unique<fuzz::Cable>(network_, far_network_) : nullptr),
          near_(world_, network_, 1),
          far_(world_, wire ? far_network_ : network_, 2),
          a_(near_.nic.function(), near_.ram, near_.irq,
             {test::test_mac(1), test::ipv4_gid(1), {}, 0, false}),
          b_(far_.nic.function(), far_.ram, far_.irq,
             {test::test_mac(2), test::ipv4_gid(2), {}, 0, false}) {
        fuzz::require(a_.bring_up(false) && a_.make_pair() && b_.bring_up(false) && b_.make_pair(),
                      "bring-up");
        fuzz::require(join(a_, b_) && join(a_, b_), "connection");
    }

    void step() {
        test::HostileDriver& driver = choices_.chance(96) ? b_ : a_;
        const std::uint64_t kind = choices_.below(20);
        if (kind < 6)
            driver.work(choices_);
        else if (kind < 9)
            driver.raw_work(choices_);
        else if (kind == 9)
            driver.doorbell(choices_);
        else if (kind == 10)
            change_queue_pair(driver);
        else if (kind == 11)
            disturb();
        else if (kind == 16 || kind == 17)
            driver.ext_work(choices_);
        else if (kind == 18)
            driver.ext_raw_work(choices_);
        else if (kind == 19)
            driver.ext_objects(choices_);
        if (!choices_.chance(64)) world_.run_until_idle();
        if (choices_.chance(32)) time_.pass(std::chrono::milliseconds(choices_.byte()));
    }

    void end() {
        time_.pass(std::chrono::seconds(2));
        fuzz::require(a_.canary_alive() && b_.canary_alive(), "memory outside all MRs was written");
        if (!mapped_) map();
    }

private:
    void change_queue_pair(test::HostileDriver& driver) {
        if (choices_.chance(128))
            driver.renew(choices_);
        else
            (void)driver.host().to_state(*choices_.pick(driver.qps()),
                                         static_cast<std::uint32_t>(choices_.below(8)));
    }
    /// A peer that vanishes, or memory that does.
    void disturb() {
        if (choices_.chance(64)) far_.nic.set_link(choices_.chance(128));
        if (!choices_.chance(32)) return;
        if (mapped_)
            mapped_ = !far_.memory.unmap(far_.ram.start(), far_.ram.size()).has_value();
        else
            map();
    }
    void map() {
        mapped_ =
            far_.memory.map_host(far_.ram.start(), {far_.ram.at(far_.ram.start()), far_.ram.size()})
                .has_value();
    }

    test::Choices& choices_;
    test::SimWorld world_;
    fuzz::Time time_;
    fabric::Switch network_;
    fabric::Switch far_network_;
    std::unique_ptr<fuzz::Cable> cable_;
    fuzz::FuzzNic near_;
    fuzz::FuzzNic far_;
    test::HostileDriver a_;
    test::HostileDriver b_;
    bool mapped_ = true;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    const bool wire = choices.chance(128);
    Pair pair(choices, wire);
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) pair.step();
    pair.end();
    return 0;
}
