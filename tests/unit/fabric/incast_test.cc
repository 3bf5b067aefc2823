// SPDX-License-Identifier: Apache-2.0
// Several NICs that write to one whose link is slower, on virtual time: what congestion control is
// for (ROCE 10.7, case 144).
#include <gtest/gtest.h>
#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fabric/nic.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using ::openmana::test::Completion;
using ::openmana::test::DriverCq;
using ::openmana::test::DriverMr;
using ::openmana::test::FakeIrq;
using ::openmana::test::GuestRam;
using ::openmana::test::HostQp;
using ::openmana::test::RdmaHost;
using ::openmana::test::SendWr;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;

constexpr std::uint64_t kGigabit = 1'000'000'000;
constexpr std::uint64_t kLimit = 10 * kGigabit;
constexpr std::uint32_t kMessage = 256 << 10;
constexpr std::uint32_t kAll =
    gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;

NicConfig nic_config(std::uint8_t number, bool congestion) {
    NicConfig config;
    config.name = std::to_string(number);
    config.mac = ::openmana::test::test_mac(number);
    config.link_speed_mbps = 40000;
    config.congestion = congestion;
    return config;
}

struct Machine {
    Machine(SimWorld& world, Switch& network, std::uint8_t number, bool congestion)
        : executor(world),
          ram(memory),
          nic(executor, memory, irq, network, nic_config(number, congestion)),
          host(nic.function(), ram, irq, nic.config().mac, ::openmana::test::ipv4_gid(number)) {
        OM_CHECK(host.bring_up());
        cq = *host.create_cq(16384);
        buffer = ram.alloc(kMessage);
        mr = *host.hwc().create_mr(host.pd, buffer, kMessage, kAll);
    }
    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    Nic nic;
    RdmaHost host;
    DriverCq cq;
    base::GuestAddr buffer{};
    DriverMr mr;
};

/// One sender with its QP, always with work posted.
struct Sender {
    Sender(SimWorld& world, Switch& network, std::uint8_t number, Machine& to, bool congestion)
        : machine(world, network, number, congestion), target(to) {
        qp = machine.host.create_rc(machine.cq, machine.cq, 4096, 4096);
        peer = to.host.create_rc(to.cq, to.cq, 4096, 4096);
        OM_CHECK(qp && peer);
        OM_CHECK(to.host.connect(*peer, 1, {machine.host.gid(), machine.host.mac(), qp->qpn(), 1},
                                 4096));
        OM_CHECK(
            machine.host.connect(*qp, 1, {to.host.gid(), to.host.mac(), peer->qpn(), 1}, 4096));
        // The network is not in one place: a delay each way.
        FaultConfig delay;
        delay.delay = 5us;
        machine.nic.path().set_faults(Direction::kTransmit, delay);
    }
    void work() {
        HostQp* const qps[] = {qp.get()};
        done.clear();
        machine.host.poll(machine.cq, qps, done);
        for (const Completion& completion : done) {
            ++(completion.vendor == 0 ? messages : errors);
            --posted;
        }
        while (posted < 8) {
            SendWr wr;
            wr.opcode = MANA_HW_RNIC_WQE_WRITE;
            wr.sges = {gdma::Sge{machine.buffer.value(), gdma::Key(machine.mr.lkey), kMessage}};
            wr.remote_address = target.buffer.value();
            wr.rkey = target.mr.rkey;
            if (!machine.host.post_send(*qp, wr)) return;
            ++posted;
        }
    }
    Machine machine;
    Machine& target;
    std::unique_ptr<HostQp> qp, peer;
    std::vector<Completion> done;
    std::uint64_t messages = 0, errors = 0;
    unsigned posted = 0;
};

struct Outcome {
    double throughput = 0;  ///< of the limit
    double fairness = 0;    ///< Jain's index
    std::uint64_t dropped = 0, retransmits = 0, cnps = 0, marked = 0, errors = 0;
    std::uint64_t deepest = 0;  ///< bytes in the queue of the receiver's link
};

std::uint64_t counter(Nic& nic, const std::string& name) {
    std::uint64_t result = 0;
    nic.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
        if (name == info.name) result = value;
    });
    return result;
}

/// `count` senders at 40 Gb/s each into one link of 10 Gb/s; measured after they had time to
/// settle.
Outcome incast(std::uint8_t count, bool congestion, std::uint64_t queue_bytes,
               base::Duration settle = 50ms, base::Duration measure = 100ms) {
    SimWorld world;
    Switch network(world);
    Machine receiver(world, network, 1, congestion);
    PolicyConfig policy;
    policy.shaper.limit = kLimit;
    policy.shaper.queue_bytes = queue_bytes;
    policy.shape[index(Direction::kTransmit)] = false;
    policy.shape[index(Direction::kReceive)] = true;
    receiver.nic.path().set_policy(policy, nullptr, base::WallTime());
    std::vector<std::unique_ptr<Sender>> senders;
    for (std::uint8_t i = 0; i < count; ++i)
        senders.push_back(std::make_unique<Sender>(world, network, static_cast<std::uint8_t>(2 + i),
                                                   receiver, congestion));
    Outcome outcome;
    const auto run = [&](base::Duration time) {
        const base::TimePoint end = world.now() + time;
        while (world.now() < end) {
            for (auto& sender : senders) sender->work();
            world.advance(20us);
            outcome.deepest =
                std::max(outcome.deepest, receiver.nic.path().queued_bytes(Direction::kReceive));
        }
    };
    run(settle);
    outcome.deepest = 0;
    std::vector<double> before;
    for (auto& sender : senders) {
        before.push_back(static_cast<double>(sender->messages));
        sender->errors = 0;
    }
    const std::uint64_t dropped = counter(receiver.nic, "fabric.shaper.dropped");
    run(measure);
    outcome.dropped = counter(receiver.nic, "fabric.shaper.dropped") - dropped;
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < senders.size(); ++i) {
        const double share = static_cast<double>(senders[i]->messages) - before[i];
        sum += share;
        squares += share * share;
        outcome.retransmits += counter(senders[i]->machine.nic, "rnic.requester.retransmits");
        outcome.cnps += counter(senders[i]->machine.nic, "rnic.cnp.received");
        outcome.errors += senders[i]->errors;
    }
    outcome.marked = counter(receiver.nic, "fabric.shaper.marked");
    outcome.fairness = sum * sum / (static_cast<double>(count) * squares);
    outcome.throughput = sum * kMessage * 8 * 1e9 / static_cast<double>(measure.count()) / kLimit;
    return outcome;
}

std::ostream& operator<<(std::ostream& out, const Outcome& o) {
    return out << "throughput " << o.throughput << " fairness " << o.fairness << " dropped "
               << o.dropped << " retransmits " << o.retransmits << " CNPs " << o.cnps << " marked "
               << o.marked << " deepest " << o.deepest;
}

class IncastTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Senders, IncastTest, ::testing::Values(2, 4, 8));

// ROCE 10: 144
TEST_P(IncastTest, IsFairFastAndLosesNothing) {
    constexpr std::uint64_t kQueue = 4 << 20;
    const Outcome outcome = incast(static_cast<std::uint8_t>(GetParam()), true, kQueue);
    SCOPED_TRACE(outcome);
    EXPECT_GT(outcome.fairness, 0.9);
    EXPECT_GT(outcome.throughput, 0.85);
    EXPECT_EQ(outcome.dropped, 0u);
    EXPECT_EQ(outcome.errors, 0u);
    EXPECT_LT(outcome.deepest, kQueue * 3 / 4);
    EXPECT_GT(outcome.cnps, 0u);
}

TEST(IncastOfManyTest, NeedsTheDefaultQueueAtItsStart) {
    const Outcome outcome = incast(16, true, 0);
    SCOPED_TRACE(outcome);
    EXPECT_GT(outcome.fairness, 0.9);
    EXPECT_GT(outcome.throughput, 0.85);
    EXPECT_EQ(outcome.dropped, 0u);
    EXPECT_EQ(outcome.errors, 0u);
}

TEST(IncastWithoutControlTest, DropsAndIsUnfair) {
    const Outcome outcome = incast(8, false, 4 << 20);
    SCOPED_TRACE(outcome);
    EXPECT_GT(outcome.dropped, 500u);
    EXPECT_LT(outcome.fairness, 0.9);
    EXPECT_EQ(outcome.cnps + outcome.marked, 0u);
}

}  // namespace
}  // namespace openmana::fabric
