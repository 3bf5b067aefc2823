// SPDX-License-Identifier: Apache-2.0
// Two whole NICs on a switch, with drivers and an RC connection, and the stages of their ports.
#include "fabric/nic.h"

#include <gtest/gtest.h>
#include <mana/eth.h>
#include <mana/ext.h>
#include <mana/ext_eth.h>
#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/hold_meter.h"
#include "support/eth_guest.h"
#include "support/ext_host.h"
#include "support/rdma_host.h"
#include "unit/fabric/frames.h"
#include "unit/fabric/nic_fixture.h"
#include "unit/fabric/packet_queues.h"

namespace openmana::fabric::nic_test {
namespace {

TEST_F(NicTest, WhoBringsAFrameForAClosedNicGoesOn) {
    base::Frame frame(60, std::byte{0xff});
    std::copy_n(reinterpret_cast<const std::byte*>(a.nic.config().mac.data()), 6,
                frame.begin() + 6);
    {
        const base::Gate::Exclusion closed(b.nic.function().gate());
        std::thread other([&] { network.forward(a.nic, frame); });
        other.join();
        EXPECT_EQ(counter(b, "eth.rx.disabled"), 0U);
    }
    world.run_until_idle();
    EXPECT_EQ(counter(b, "eth.rx.disabled"), 1U) << "it waited for its turn";
}

/// The NIC waits for its gate meanwhile.
TEST_F(NicTest, WhoBringsAFrameIsAtThatOneInItsVisit) {
    const base::Frame frame(60, std::byte{0xff});
    std::thread other([&] {
        const std::uint64_t before = base::work_done;
        b.nic.deliver(frame);
        EXPECT_EQ(base::work_done - before, 1U);
    });
    other.join();
    EXPECT_EQ(counter(b, "eth.rx.disabled"), 1U);
}

TEST_F(NicTest, RdmaMakesFramesOnlyWhileAStageOfEitherEndNeedsThem) {
    connect(a, b);
    ASSERT_TRUE(wrote(100000));
    EXPECT_EQ(a.nic.counters().tx_frames.value(), 0u);
    for (Machine* const machine : {&a, &b}) {
        const auto tap = std::make_shared<CountingTap>();
        machine->nic.path().set_capture(tap);
        const auto before = a.nic.counters().tx_frames.value() + b.nic.counters().tx_frames.value();
        ASSERT_TRUE(wrote(100000));
        machine->nic.path().set_capture(nullptr);
        const auto after = a.nic.counters().tx_frames.value() + b.nic.counters().tx_frames.value();
        EXPECT_GE(after - before, 98u);
        EXPECT_EQ(tap->roce, after - before);
        ASSERT_TRUE(wrote(100000));
        EXPECT_EQ(a.nic.counters().tx_frames.value() + b.nic.counters().tx_frames.value(), after);
    }
}

/// The policies of both guests name their addresses, and more that does not concern them.
TEST_F(NicTest, RdmaUnderAPolicyOfAddressesMakesNoFrames) {
    PolicyConfig config;
    config.check_mac = true;
    config.acl = *Acl::parse("deny tcp from any port 25; deny rdma to 10.0.0.77");
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(a, config);
    config.addresses = {*Prefix::parse("10.0.0.2")};
    policy(b, config);
    connect(a, b);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(wrote(100000));
    EXPECT_EQ(a.nic.counters().tx_frames.value(), 0u);
    EXPECT_EQ(b.nic.counters().tx_frames.value(), 0u);
    EXPECT_STREQ(a.nic.rdma().qp_status().at(0).path, "local");
}

/// Whichever end's policy it is: the next request is a packet, and is stopped.
TEST_F(NicTest, APolicyThatChangesUnderWayTakesEffect) {
    for (Machine* const machine : {&a, &b}) {
        for (const bool by_address : {true, false}) {
            ASSERT_TRUE(a.host.reset(*a.qp));
            ASSERT_TRUE(b.host.reset(*b.qp));
            connect(a, b);
            ASSERT_TRUE(wrote(5000));
            EXPECT_STREQ(a.nic.rdma().qp_status().at(0).path, "local");
            PolicyConfig config;
            if (by_address)
                config.addresses = {*Prefix::parse("10.9.0.1")};
            else
                config.acl = *Acl::parse("deny rdma from 10.0.0.1");
            policy(*machine, config);
            ASSERT_TRUE(write(5000));
            EXPECT_EQ(a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
            EXPECT_GT(
                counter(*machine, by_address ? "fabric.policy.spoofed_ip" : "fabric.policy.denied"),
                0u);
            machine->nic.path().set_policy({}, nullptr, {});
        }
    }
}

TEST_F(NicTest, AnAddressThatIsTakenAwayIsNotReachedAnyMore) {
    connect(a, b);
    ASSERT_TRUE(wrote(5000));
    ASSERT_TRUE(b.host.config_address(b.host.gid(), false));
    ASSERT_TRUE(write(5000));
    EXPECT_EQ(a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
}

/// A guest with the address of A, and numbers that it has guessed: those of A's connection to B,
/// the PSN and the key among them.
class ImpostorTest : public NicTest {
protected:
    /// The impostor's queue pair says it is A's, to that of B. B gets none of what it writes.
    void expect_no_write(Machine& impostor) {
        const std::vector<std::byte> before(b.bytes(5000).begin(), b.bytes(5000).end());
        ASSERT_TRUE(impostor.host.reset(*impostor.qp));
        ASSERT_TRUE(impostor.host.connect(*impostor.qp, a.qp->next_psn, b.as_peer(0x900), 1024));
        ASSERT_TRUE(write(5000, 1, &impostor, &b));
        EXPECT_NE(impostor.done[0].vendor, 0u);
        EXPECT_TRUE(std::ranges::equal(b.bytes(5000), before));
    }
    /// And what it writes into a frame itself does not get there either.
    void expect_no_frame(Machine& impostor) {
        test::FrameMaker maker;
        maker.source = a.host.gid();
        maker.destination = b.host.gid();
        maker.source_mac = impostor.nic.config().mac;
        maker.destination_mac = b.nic.config().mac;
        roce::Packet packet;
        packet.opcode = roce::Opcode::kWriteOnly;
        packet.destination_qpn = roce::Qpn(b.qp->qpn());
        packet.psn = roce::Psn(a.qp->next_psn);
        packet.reth = {b.buffer.value(), roce::RKey(b.mr.rkey), 64};
        const auto before = b.nic.rdma().counters().rx_packets.value();
        impostor.nic.path().from_guest(maker.roce(packet, 64));
        world.run_until_idle();
        EXPECT_EQ(b.nic.rdma().counters().rx_packets.value(), before);
        EXPECT_GT(counter(impostor, "fabric.port.foreign_source"), 0u);
    }
    /// All of the buffer of `to`, by frames.
    static void read(Machine& from, Machine& to) {
        SendWr request;
        request.opcode = MANA_HW_RNIC_WQE_READ;
        request.sges = {{from.buffer.value(), gdma::Key(from.mr.lkey), kMr}};
        request.remote_address = to.buffer.value();
        request.rkey = to.mr.rkey;
        ASSERT_TRUE(from.host.post_send(*from.qp, request));
    }
    bool impostor_writes(Machine& impostor) {
        EXPECT_TRUE(impostor.host.reset(*impostor.qp));
        EXPECT_TRUE(b.host.reset(*b.qp));
        connect(impostor, b);
        return write(5000, 1, &impostor, &b) && impostor.done[0].vendor == 0 &&
               std::ranges::equal(impostor.bytes(5000), b.bytes(5000));
    }
};

TEST_F(ImpostorTest, TheFirstWhoHasAnAddressKeepsItOnBothPaths) {
    connect(a, b);
    ASSERT_TRUE(wrote(5000));
    Machine impostor(world, network, 3, 1);
    EXPECT_EQ(counter(impostor, "fabric.port.address_waits"), 1u);
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) b.nic.path().set_capture(std::make_shared<CountingTap>());
        expect_no_write(impostor);
        expect_no_frame(impostor);
        EXPECT_TRUE(wrote(5000)) << "the connection is what it was";
    }
}

TEST_F(ImpostorTest, AnAddressMovesWhenItsOwnerTakesItAway) {
    Machine other(world, network, 3, 1);
    ASSERT_TRUE(a.host.config_address(a.host.gid(), false));
    world.run_until_idle();
    EXPECT_TRUE(impostor_writes(other));
    EXPECT_STREQ(other.nic.rdma().qp_status().at(0).path, "local");
    ASSERT_TRUE(a.host.config_address(a.host.gid(), true));
    EXPECT_EQ(counter(a, "fabric.port.address_waits"), 1u) << "now it waits";
    EXPECT_TRUE(impostor_writes(other));
}

TEST_F(ImpostorTest, AnAddressMovesWhenItsOwnersLinkGoesDown) {
    Machine other(world, network, 3, 1);
    a.nic.set_link(false);
    world.run_until_idle();
    EXPECT_TRUE(impostor_writes(other));
    a.nic.set_link(true);
    world.run_until_idle();
    EXPECT_TRUE(impostor_writes(other));
}

TEST_F(ImpostorTest, AnAddressMovesWhenItsOwnerIsReset) {
    Machine other(world, network, 3, 1);
    {
        const base::Gate::Exclusion exclusion(a.nic.function().gate());
        a.nic.function().reset();
    }
    world.run_until_idle();
    EXPECT_TRUE(impostor_writes(other));
}

/// Who came first does not matter for an address that a policy names.
TEST_F(ImpostorTest, APolicyThatNamesAnAddressGivesItBack) {
    ASSERT_TRUE(a.host.config_address(a.host.gid(), false));
    Machine squatter(world, network, 3, 1);
    ASSERT_TRUE(a.host.config_address(a.host.gid(), true));
    connect(a, b);
    ASSERT_TRUE(write(5000));
    EXPECT_NE(a.done[0].vendor, 0u);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(a, config);
    world.run_until_idle();
    EXPECT_EQ(counter(squatter, "fabric.port.address_waits"), 1u);
    ASSERT_TRUE(a.host.reset(*a.qp));
    ASSERT_TRUE(b.host.reset(*b.qp));
    connect(a, b);
    EXPECT_TRUE(wrote(5000));
    expect_no_write(squatter);
}

/// Counts RoCE frames from a NIC, and those that it had no right to send; all pass here.
class FromTap final : public FrameTap {
public:
    explicit FromTap(Machine& machine) : machine_(machine) {}
    void frame(std::span<const std::byte> frame) override {
        const base::MacAddr& mac = machine_.nic.config().mac;
        const FrameHeaders headers = read_headers(frame);
        if (!headers.roce() || std::memcmp(frame.data() + 6, mac.data(), mac.size()) != 0) return;
        if (!machine_.nic.rdma().owns(headers.source)) ++foreign;
        // Not within its turn.
        if (++all == kMiddle) machine_.executor.post([this] { in_the_middle(); });
    }
    static constexpr std::size_t kMiddle = 100;
    std::function<void()> in_the_middle = [] {};
    std::size_t all = 0;
    std::size_t foreign = 0;

private:
    Machine& machine_;
};

/// Without a stage its own frames pass no guard.
TEST_F(ImpostorTest, AnswersThatWereOwedToOneGoToNobodyAsAnothers) {
    Machine impostor(world, network, 3);
    Machine friendly(world, network, 4);
    FromTap tap(impostor);
    network.set_tap(tap);
    connect(friendly, impostor, 4096);
    tap.in_the_middle = [&] {
        impostor.host.tamper = [&](Request& request) {
            std::ranges::reverse_copy(a.host.gid(),
                                      reinterpret_cast<std::uint8_t*>(request.bytes.data() + 104));
        };
        EXPECT_TRUE(impostor.host.set_path(*impostor.qp, b.as_peer(0x900), 0xc001));
    };
    read(friendly, impostor);
    world.run_until_idle();
    EXPECT_GE(tap.all, FromTap::kMiddle);
    EXPECT_LT(tap.all, kMr / 4096);
    EXPECT_EQ(tap.foreign, 0U);
}

TEST_F(ImpostorTest, AnswersEndWithTheRightToAnAddress) {
    ASSERT_TRUE(a.host.config_address(a.host.gid(), false));
    Machine squatter(world, network, 3, 1);
    Machine friendly(world, network, 4);
    FromTap tap(squatter);
    network.set_tap(tap);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(a, config);
    connect(friendly, squatter, 4096);  // two windows of answers are more than a turn sends
    tap.in_the_middle = [&] { EXPECT_TRUE(a.host.config_address(a.host.gid(), true)); };
    read(friendly, squatter);
    world.run_until_idle();
    EXPECT_FALSE(squatter.nic.rdma().owns(a.host.gid()));
    EXPECT_GE(tap.all, FromTap::kMiddle);
    EXPECT_LT(tap.all, kMr / 4096);
    EXPECT_EQ(tap.foreign, 0U);
    EXPECT_GT(counter(squatter, "rnic.drop.source") + counter(squatter, "rnic.drop.address"), 0U)
        << "answers that were owed, or what asked for more of them";
}

/// With ips= on the impostor's own NIC the frames are stopped, whoever has the address.
TEST_F(ImpostorTest, WhatThePolicyForbidsIsStoppedOnBothPaths) {
    ASSERT_TRUE(a.host.config_address(a.host.gid(), false));
    Machine impostor(world, network, 3, 1);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.3")};
    policy(impostor, config);
    ASSERT_TRUE(b.host.connect(*b.qp, 0x900, a.as_peer(a.qp->next_psn), 1024));
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) b.nic.path().set_capture(std::make_shared<CountingTap>());
        const auto before = counter(impostor, "fabric.policy.spoofed_ip");
        expect_no_write(impostor);
        EXPECT_GT(counter(impostor, "fabric.policy.spoofed_ip"), before);
    }
}

TEST_F(ImpostorTest, TheLinkLocalAddressOfANicIsNobodyElses) {
    const roce::Gid own = own_link_local(a.nic.config().mac);
    Machine squatter(world, network, 3);
    ASSERT_TRUE(squatter.host.config_address(own, true));
    EXPECT_TRUE(squatter.nic.rdma().owns(own));
    ASSERT_TRUE(a.host.config_address(own, true));
    world.run_until_idle();
    EXPECT_TRUE(a.nic.rdma().owns(own));
    EXPECT_FALSE(squatter.nic.rdma().owns(own));
}

TEST_F(ImpostorTest, NorIsItByAPolicyThatNamesAll) {
    const roce::Gid own = own_link_local(a.nic.config().mac);
    Machine squatter(world, network, 3);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("fe80::/10")};
    policy(squatter, config);
    ASSERT_TRUE(squatter.host.config_address(own, true));
    ASSERT_TRUE(a.host.config_address(own, true));
    world.run_until_idle();
    EXPECT_TRUE(a.nic.rdma().owns(own));
    EXPECT_FALSE(squatter.nic.rdma().owns(own));
}

/// No packet is of both, so neither path carries what such a connection asks for.
TEST_F(NicTest, EndsOfTwoFamiliesReachNobody) {
    const roce::Gid other = ::openmana::test::ipv6_gid(2);
    ASSERT_TRUE(b.host.config_address(other, true));
    b.host.tamper = [&](Request& request) {
        if (request.bytes.size() < 120) return;
        std::ranges::reverse_copy(other,
                                  reinterpret_cast<std::uint8_t*>(request.bytes.data() + 104));
    };
    ASSERT_TRUE(b.host.connect(*b.qp, 0x900, a.as_peer(0x100), 1024));
    auto peer = b.as_peer(0x900);
    peer.gid = other;
    ASSERT_TRUE(a.host.connect(*a.qp, 0x100, peer, 1024));
    ASSERT_TRUE(write(5000));
    EXPECT_NE(a.done[0].vendor, 0U);
    EXPECT_STREQ(a.nic.rdma().qp_status().at(0).path, "wire");
    EXPECT_FALSE(std::ranges::equal(a.bytes(5000), b.bytes(5000)));
}

TEST_F(NicTest, NumbersAndKeysOfTwoNicsDiffer) {
    EXPECT_NE(a.qp->qpn(), b.qp->qpn());
    EXPECT_NE(a.mr.rkey, b.mr.rkey);
    Machine same(world, network, 3, 1);
    EXPECT_EQ(same.qp->qpn(), a.qp->qpn()) << "chance comes from the seed";
    EXPECT_EQ(same.mr.rkey, a.mr.rkey);
}

TEST_F(NicTest, TheTapOfTheSwitchSeesEachFrameOnce) {
    CountingTap tap;
    network.set_tap(tap);
    connect(a, b);
    ASSERT_TRUE(wrote(100000));
    EXPECT_EQ(tap.roce, a.nic.counters().tx_frames.value() + b.nic.counters().tx_frames.value());
}

TEST_F(NicTest, RdmaToItselfIsSeenOnceToo) {
    CountingTap tap;
    network.set_tap(tap);
    ASSERT_TRUE(a.host.connect(*a.qp, 0x100, a.as_peer(0x100), 1024));
    ASSERT_TRUE(write(50000, 1, &a, &a));
    EXPECT_EQ(a.done[0].vendor, 0u);
    EXPECT_TRUE(std::ranges::equal(a.bytes(50000), a.ram.bytes(a.buffer + kMr / 2, 50000)));
    EXPECT_EQ(tap.roce, a.nic.counters().tx_frames.value());
    EXPECT_EQ(tap.roce, a.nic.counters().rx_frames.value());
}

TEST_F(NicTest, DataIsRightThroughABadLink) {
    FaultConfig faults{10000, 10000, 20000, 10000, 2us, 3us, 5};
    for (const Direction direction : {Direction::kTransmit, Direction::kReceive}) {
        a.nic.path().set_faults(direction, faults);
        b.nic.path().set_faults(direction, faults);
    }
    connect(a, b);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(wrote(300000)) << i;
    EXPECT_GT(counter(a, "fabric.fault.lost"), 0u);
    EXPECT_GT(counter(b, "fabric.fault.corrupted"), 0u);
}

// ROCE 10: 145
TEST_F(NicTest, TheRateLimitHoldsWithinFivePercent) {
    PolicyConfig config;
    config.shaper.classes[0].limit = 1000000000;
    policy(a, config);
    connect(a, b, 4096);
    const base::TimePoint begin = world.now();
    ASSERT_TRUE(write(1 << 20, 60));
    const double seconds = static_cast<double>((world.now() - begin).count()) / 1e9;
    EXPECT_NEAR(static_cast<double>(a.nic.counters().tx_bytes.value()) * 8 / seconds / 1e9, 1.0,
                0.05);
    EXPECT_NEAR(60.0 * (1 << 20) * 8 / seconds / 1e9, 1.0, 0.05)
        << "and no bandwidth goes into repetitions";
    EXPECT_EQ(counter(a, "fabric.shaper.dropped"), 0u);
}

/// That RDMA slows down where it is marked costs it nothing of its share.
TEST_F(NicTest, GuaranteesHoldBesideEthernetThatWantsEverything) {
    struct ByteTap final : FrameTap {
        void frame(std::span<const std::byte> frame) override {
            if (!read_headers(frame).roce()) ethernet += frame.size();
        }
        std::uint64_t ethernet = 0;
    };
    PolicyConfig config;
    config.shaper.limit = 100000000;
    config.shaper.classes[0].guarantee = 70000000;
    config.shaper.classes[1].guarantee = 20000000;
    policy(a, config);
    connect(a, b);
    const auto tap = std::make_shared<ByteTap>();
    a.nic.path().set_capture(tap);
    const base::Frame datagram = test::FrameMaker{}.udp(1, 2, 1472);
    base::Timer flood(a.executor, [&] {
        for (int i = 0; i < 8; ++i) a.nic.path().from_guest(datagram);
        flood.arm(1ms);
    });
    flood.arm(1ms);
    const base::TimePoint begin = world.now();
    const std::uint64_t before = a.nic.counters().tx_bytes.value();
    ASSERT_TRUE(write(1 << 16, 200));
    const double seconds = static_cast<double>((world.now() - begin).count()) / 1e9;
    const std::uint64_t total = a.nic.counters().tx_bytes.value() - before;
    a.nic.path().set_capture(nullptr);
    const auto rate = [&](std::uint64_t bytes) {
        return static_cast<double>(bytes) * 8 / seconds / 1e6;
    };
    EXPECT_GT(counter(a, "rnic.cnp.received"), 0U) << "it was told to slow down";
    EXPECT_NEAR(rate(total), 100.0, 0.05 * 100);
    EXPECT_NEAR(rate(tap->ethernet), 25.0, 0.05 * 25);
}

TEST_F(NicTest, ManyQueuePairsShareARateLimitWithoutLoss) {
    constexpr std::size_t kQps = 64;
    constexpr std::uint32_t kLength = 200000;
    PolicyConfig config;
    config.shaper.classes[0].limit = 1000000000;
    policy(a, config);
    std::vector<std::unique_ptr<HostQp>> qps, peers;
    std::vector<HostQp*> all;
    for (std::size_t i = 0; i < kQps; ++i) {
        auto from = a.host.create_rc(a.send_cq, a.recv_cq, 4096, 4096);
        auto to = b.host.create_rc(b.send_cq, b.recv_cq, 4096, 4096);
        ASSERT_TRUE(from && to);
        ASSERT_TRUE(b.host.connect(*to, 1, {a.host.gid(), a.host.mac(), from->qpn(), 1}, 4096));
        ASSERT_TRUE(a.host.connect(*from, 1, {b.host.gid(), b.host.mac(), to->qpn(), 1}, 4096));
        all.push_back(from.get());
        qps.push_back(std::move(from));
        peers.push_back(std::move(to));
    }
    SendWr request;
    request.opcode = MANA_HW_RNIC_WQE_WRITE;
    request.sges = {{a.buffer.value(), gdma::Key(a.mr.lkey), kLength}};
    request.remote_address = b.buffer.value();
    request.rkey = b.mr.rkey;
    const base::TimePoint begin = world.now();
    for (const auto& qp : qps)
        for (int i = 0; i < 4; ++i) ASSERT_TRUE(a.host.post_send(*qp, request));
    ASSERT_TRUE(world.run_until(
        [&] {
            a.host.poll(a.send_cq, all, a.done);
            return a.done.size() >= 4 * kQps;
        },
        60s));
    for (const Completion& done : a.done) ASSERT_EQ(done.vendor, 0U);
    EXPECT_EQ(counter(a, "fabric.shaper.dropped"), 0u);
    EXPECT_GT(counter(a, "rnic.qp.held_back"), 0u);
    const double seconds = static_cast<double>((world.now() - begin).count()) / 1e9;
    EXPECT_NEAR(static_cast<double>(a.nic.counters().tx_bytes.value()) * 8 / seconds / 1e9, 1.0,
                0.1);
}

TEST_F(NicTest, DatagramsKeepToTheMtuOfThePort) {
    SimExecutor executor(world);
    base::GuestMemory memory;
    GuestRam ram(memory);
    FakeIrq irq;
    NicConfig config = nic_config(3);
    config.max_mtu = 1500;
    Nic nic(executor, memory, irq, network, config);
    RdmaHost host(nic.function(), ram, irq, config.mac, ::openmana::test::ipv4_gid(3));
    host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
    ASSERT_TRUE(host.bring_up());
    ::openmana::test::ExtHost ext(host);
    auto cq = *ext.create_cq();
    ::openmana::test::ExtQpOptions options;
    options.type = MANA_HW_EXT_QP_UD;
    auto qp = *ext.create_qp(cq, cq, options);
    ASSERT_TRUE(ext.start_datagrams(qp, 1));
    const auto buffer = ram.alloc(4096);
    const auto mr = *host.hwc().create_mr(host.pd, buffer, 4096, kAll);
    for (const std::uint32_t length : {1024U, 1025U}) {
        ::openmana::test::ExtWr datagram;
        datagram.sges = {{buffer.value(), gdma::Key(mr.lkey), length}};
        datagram.ud.emplace();
        std::ranges::copy(host.gid(), datagram.ud->source_gid);
        std::ranges::copy(a.host.gid(), datagram.ud->dest_gid);
        std::ranges::copy(a.host.mac(), datagram.ud->dest_mac);
        datagram.ud->dest_qpn = 7;
        ext.post(qp, datagram);
        std::optional<mana_hw_ext_cqe> cqe;
        ASSERT_TRUE(world.run_until([&] { return (cqe = cq.poll()).has_value(); }, 1s));
        EXPECT_EQ(cqe->status, length == 1024 ? 0 : 1) << length;
    }
}

TEST_F(NicTest, ARuleStopsWhatItNamesAndNothingElse) {
    connect(a, b);
    PolicyConfig config;
    config.acl = *Acl::parse("deny rdma to 10.0.0.77; deny tcp");
    policy(a, config);
    EXPECT_TRUE(wrote(5000));
    config.acl = *Acl::parse("deny tx rdma to 10.0.0.2");
    policy(a, config);
    ASSERT_TRUE(write(5000));
    EXPECT_NE(a.done[0].vendor, 0u);
    EXPECT_GT(counter(a, "fabric.policy.denied"), 0u);
}

TEST_F(NicTest, AForeignAddressStaysInside) {
    connect(a, b);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.9.0.1")};
    policy(a, config);
    ASSERT_TRUE(write(5000));
    EXPECT_NE(a.done[0].vendor, 0u);
    EXPECT_GT(counter(a, "fabric.policy.spoofed_ip"), 0u);
}

TEST_F(NicTest, TheFlowLogAccountsForEveryByte) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "file";
    policy(b, config, lines);
    connect(a, b);
    ASSERT_TRUE(write(123456, 7));
    const std::uint64_t received = b.nic.counters().rx_bytes.value();
    const std::uint64_t sent = b.nic.counters().tx_bytes.value();
    b.nic.path().set_policy({}, nullptr, {});
    ASSERT_EQ(lines->all.size(), 2u);
    const auto& end = lines->all[1];
    EXPECT_EQ(end["local_qpn"], b.qp->qpn());
    EXPECT_EQ(end["remote_qpn"], a.qp->qpn());
    EXPECT_EQ(end["rx_operations"], 7);
    EXPECT_EQ(end["rx_payload"], 7 * 123456);
    EXPECT_EQ(end["rx_bytes"], received);
    EXPECT_EQ(end["tx_bytes"], sent);
    EXPECT_EQ(end["errors"], 0);
}

TEST_F(NicTest, TheFlowOfAQueuePairEndsWithIt) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "file";
    policy(a, config, lines);
    connect(a, b);
    ASSERT_TRUE(write(50000, 3));
    const std::uint64_t sent = a.nic.counters().tx_bytes.value();
    const std::uint64_t received = a.nic.counters().rx_bytes.value();
    ASSERT_EQ(lines->all.size(), 1u);
    ASSERT_TRUE(a.host.destroy_rc(*a.qp));
    ASSERT_EQ(lines->all.size(), 2u);
    const auto& end = lines->all[1];
    EXPECT_EQ(end["event"], "end");
    EXPECT_EQ(end["reason"], "closed");
    EXPECT_EQ(end["local_qpn"], a.qp->qpn());
    EXPECT_EQ(end["remote_qpn"], b.qp->qpn());
    EXPECT_EQ(end["tx_bytes"], sent);
    EXPECT_EQ(end["rx_bytes"], received);
    EXPECT_EQ(end["tx_operations"], 3);
    a.nic.path().set_policy({}, nullptr, {});
    EXPECT_EQ(lines->all.size(), 2u) << "nothing is left";
}

TEST_F(NicTest, TheFlowLogSaysThatThePeerDied) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "file";
    policy(a, config, lines);
    connect(a, b);
    ASSERT_TRUE(write(50000));
    ASSERT_TRUE(b.host.destroy_rc(*b.qp));
    ASSERT_TRUE(write(50000));
    EXPECT_EQ(a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
    EXPECT_EQ(lines->all.size(), 1u) << "the queue pair is still there";
    ASSERT_TRUE(a.host.destroy_rc(*a.qp));
    ASSERT_EQ(lines->all.size(), 2u);
    EXPECT_EQ(lines->all[1]["reason"], "retries exceeded");
    EXPECT_EQ(lines->all[1]["errors"], 1);
    EXPECT_EQ(lines->all[1]["tx_frames"], a.nic.counters().tx_frames.value());
    EXPECT_EQ(lines->all[1]["tx_bytes"], a.nic.counters().tx_bytes.value());
}

TEST_F(NicTest, TheFlowOfAConnectionThatIsResetEndsAndTheNextIsAnother) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "file";
    policy(a, config, lines);
    for (int round = 0; round < 2; ++round) {
        connect(a, b);
        ASSERT_TRUE(write(50000));
        ASSERT_TRUE(a.host.reset(*a.qp));
        ASSERT_TRUE(b.host.reset(*b.qp));
    }
    ASSERT_EQ(lines->all.size(), 4u);
    EXPECT_EQ(lines->all[1]["tx_payload"], 50000);
    EXPECT_EQ(lines->all[3]["tx_payload"], 50000);
    std::uint64_t bytes = 0;
    for (const auto& line : lines->all)
        if (line["event"] == "end")
            bytes += line["tx_bytes"].get<std::uint64_t>() + line["rx_bytes"].get<std::uint64_t>();
    EXPECT_EQ(bytes, a.nic.counters().tx_bytes.value() + a.nic.counters().rx_bytes.value());
}

TEST_F(NicTest, TheFlowLogAccountsForEveryByteOfABadLink) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "file";
    policy(a, config, lines);
    const FaultConfig faults{10000, 10000, 20000, 10000, 2us, 3us, 5};
    b.nic.path().set_faults(Direction::kTransmit, faults);
    b.nic.path().set_faults(Direction::kReceive, faults);
    connect(a, b);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(wrote(300000));
    world.advance(10ms);
    a.nic.path().set_policy({}, nullptr, {});
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    for (const auto& line : lines->all) {
        if (line["event"] != "end") continue;
        sent += line["tx_bytes"].get<std::uint64_t>();
        received += line["rx_bytes"].get<std::uint64_t>();
    }
    EXPECT_EQ(sent, a.nic.counters().tx_bytes.value());
    const std::uint64_t lost = counter(a, "fabric.flow.untracked");
    EXPECT_LE(received, a.nic.counters().rx_bytes.value());
    EXPECT_TRUE(lost > 0 || received == a.nic.counters().rx_bytes.value())
        << "only what a fault has made unreadable belongs to no connection";
    EXPECT_GT(lines->all.back()["retransmits"], 0);
}

TEST_F(NicTest, TaggedAndForeignRoceGoesToTheEthernetDevice) {
    const auto rdma = [&] { return counter(b, "rnic.rx.frames"); };
    test::FrameMaker maker;
    maker.destination = b.host.gid();
    maker.destination_mac = b.host.mac();
    b.nic.deliver(maker.roce({}, 64));
    world.run_until_idle();
    EXPECT_EQ(rdma(), 1u);
    base::Frame tagged = maker.roce({}, 64);
    const base::Frame tag{std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{5}};
    tagged.insert(tagged.begin() + 12, tag.begin(), tag.end());
    b.nic.deliver(tagged);
    maker.destination = test::gid("10.0.0.77");
    b.nic.deliver(maker.roce({}, 64));
    maker.destination = test::gid("239.0.0.1");
    b.nic.deliver(maker.roce({}, 64));
    world.run_until_idle();
    EXPECT_EQ(rdma(), 1u);
    const auto qp = b.host.create_ud(b.send_cq, b.recv_cq, 0x11);
    ASSERT_TRUE(qp);
    b.nic.deliver(maker.roce({}, 64));
    world.run_until_idle();
    EXPECT_EQ(rdma(), 2u) << "a group has members once there is a datagram queue pair";
}

constexpr base::MacAddr kGroup = {0x01, 0x50, 0x56, 0x19, 0x20, 0xa7};
constexpr base::MacAddr kForeign = {0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8};

TEST_F(NicTest, WhatAPacketQueueSendsToAGroupGoesOutAndComesBack) {
    PacketQueues ours(a);
    PacketQueues theirs(b);
    const auto frame = PacketQueues::frame(kGroup, kForeign);
    ours.guest.send(ours.tx, frame);
    world.run_until_idle();
    EXPECT_EQ(ours.guest.poll(ours.tx)->type, MANA_HW_ETH_CQE_TX_OK);
    for (PacketQueues* queues : {&ours, &theirs}) {
        const auto done = queues->guest.poll(queues->rx);
        ASSERT_TRUE(done);
        EXPECT_EQ(done->frame, frame);
        EXPECT_FALSE(queues->guest.poll(queues->rx));
    }
    EXPECT_EQ(counter(a, "eth.rx.own"), 1u);
    EXPECT_EQ(counter(b, "eth.rx.own"), 0u);
}

TEST_F(NicTest, WhatAPacketQueueSendsToItsOwnPortStaysThere) {
    PacketQueues ours(a);
    PacketQueues theirs(b);
    const auto frame = PacketQueues::frame(a.nic.config().mac, kForeign);
    ours.guest.send(ours.tx, frame);
    ours.guest.send(ours.tx, PacketQueues::frame(b.nic.config().mac, a.nic.config().mac));
    world.run_until_idle();
    const auto own = ours.guest.poll(ours.rx);
    ASSERT_TRUE(own);
    EXPECT_EQ(own->frame, frame);
    EXPECT_FALSE(ours.guest.poll(ours.rx));
    EXPECT_TRUE(theirs.guest.poll(theirs.rx));
    EXPECT_FALSE(theirs.guest.poll(theirs.rx));
}

TEST_F(NicTest, TheMacCheckStopsPacketsOfAForeignSourceForTheirSenderToo) {
    PacketQueues ours(a);
    PacketQueues theirs(b);
    PolicyConfig config;
    config.check_mac = true;
    policy(a, config);
    ours.guest.send(ours.tx, PacketQueues::frame(kGroup, kForeign));
    ours.guest.send(ours.tx, PacketQueues::frame(a.nic.config().mac, kForeign));
    world.run_until_idle();
    EXPECT_EQ(counter(a, "fabric.policy.spoofed_mac"), 2u);
    EXPECT_FALSE(ours.guest.poll(ours.rx));
    EXPECT_FALSE(theirs.guest.poll(theirs.rx));
    ours.guest.send(ours.tx, PacketQueues::frame(kGroup, a.nic.config().mac));
    world.run_until_idle();
    EXPECT_TRUE(ours.guest.poll(ours.rx));
    EXPECT_TRUE(theirs.guest.poll(theirs.rx));
}

TEST_F(NicTest, AFlappingLinkComesBack) {
    connect(a, b);
    a.nic.set_flaps(FlapConfig{5ms, 1ms});
    world.advance(4ms);
    EXPECT_TRUE(a.nic.link());
    world.advance(1500us);
    EXPECT_FALSE(a.nic.link());
    world.advance(1ms);
    EXPECT_TRUE(a.nic.link());
    a.nic.set_link(false);
    world.advance(6ms);
    EXPECT_FALSE(a.nic.link()) << "set_link has the last word";
    a.nic.set_link(true);
    EXPECT_TRUE(wrote(100000));
    a.nic.set_flaps({});
    EXPECT_TRUE(a.nic.link());
    EXPECT_GE(counter(a, "fabric.fault.flaps"), 2u);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
