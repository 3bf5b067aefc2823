// SPDX-License-Identifier: Apache-2.0
// RoCE packets from one NIC of a process to another have no ICRC. Whatever else gets to see one
// does not know that.
#include <functional>

#include "unit/fabric/nic_fixture.h"
#include "unit/fabric/packet_queues.h"

namespace openmana::fabric::nic_test {
namespace {

using ::openmana::test::ipv4_gid;
using ::openmana::test::test_mac;

bool has_icrc(std::span<const std::byte> frame) {
    return roce::parse(base::FrameView(frame)).has_value();
}

/// Somebody at a port of the switch, of this process or not.
class Listener final : public Port {
public:
    explicit Listener(bool is_inside) : inside_(is_inside) {}
    void deliver(base::FrameViews frames) override {
        for (const base::FrameView frame : frames) seen.emplace_back(frame);
    }
    [[nodiscard]] bool inside() const override { return inside_; }
    [[nodiscard]] bool all_have_icrc() const {
        return !seen.empty() && std::ranges::all_of(seen, [](const base::Frame& frame) {
            return !frame.lacks_icrc() && has_icrc(std::span(frame));
        });
    }
    [[nodiscard]] bool none_has_icrc() const {
        return !seen.empty() && std::ranges::all_of(seen, [](const base::Frame& frame) {
            return frame.lacks_icrc() && !has_icrc(std::span(frame)) && roce::parse(frame);
        });
    }
    std::vector<base::Frame> seen;

private:
    const bool inside_;
};

class CheckingTap final : public FrameTap {
public:
    void frame(std::span<const std::byte> frame) override {
        if (!read_headers(frame).roce()) return;
        ++all;
        if (has_icrc(frame)) ++good;
    }
    std::uint64_t all = 0;
    std::uint64_t good = 0;
};

/// Rules that have to look at each frame, and let all pass.
PolicyConfig rules() {
    PolicyConfig config;
    config.acl = *Acl::parse("deny rdma from any port 9");
    return config;
}

class NicIcrcTest : public NicTest {
protected:
    static constexpr std::uint8_t kElsewhere = 9;
    static constexpr std::uint32_t kLength = 3000;

    /// A writes to a queue pair that nobody has, of the NIC and address with these numbers.
    void write_to(std::uint8_t nic, std::uint8_t address) {
        ASSERT_TRUE(a.host.reset(*a.qp));
        ASSERT_TRUE(
            a.host.connect(*a.qp, 0x100, {ipv4_gid(address), test_mac(nic), 0x77, 0x900}, 1024));
        post(a, kLength);
        world.advance(1ms);
    }
    void post(Machine& from, std::uint32_t length) {
        SendWr request;
        request.opcode = MANA_HW_RNIC_WQE_WRITE;
        request.sges = {{from.buffer.value(), gdma::Key(from.mr.lkey), length}};
        request.remote_address = from.buffer.value() + kMr / 2;
        request.rkey = from.mr.rkey;
        ASSERT_TRUE(from.host.post_send(*from.qp, request));
    }
    /// A writes to B.
    void expect_writes() {
        connect(a, b);
        EXPECT_TRUE(wrote(100000));
        EXPECT_STREQ(a.nic.rdma().qp_status().at(0).path, "wire");
    }
    std::uint64_t refused() { return counter(a, "rnic.drop.icrc") + counter(b, "rnic.drop.icrc"); }

    const base::MacAddr elsewhere = test_mac(kElsewhere);
};

TEST_F(NicIcrcTest, ANicOfTheProcessGetsNone) {
    Listener nic(true);
    network.attach(nic, &elsewhere);
    write_to(kElsewhere, kElsewhere);
    EXPECT_TRUE(nic.none_has_icrc());
    network.detach(nic);
}

TEST_F(NicIcrcTest, AnUplinkGetsItWhateverTheFramesHavePassed) {
    PolicyConfig limit;
    limit.shaper.limit = 1000000000;
    PolicyConfig flows;
    flows.flow_log = "file";
    FaultConfig twice;
    twice.duplicate_ppm = 1000000;
    const std::function<void()> stages[] = {
        [] {},
        [&] { policy(a, rules()); },
        [&] { policy(a, limit); },
        [&] { policy(a, flows, std::make_shared<Lines>()); },
        [&] { a.nic.path().set_faults(Direction::kTransmit, twice); },
    };
    for (const auto& set : stages) {
        for (const bool inside : {false, true}) {
            Listener port(inside);
            network.attach(port, &elsewhere);
            set();
            write_to(kElsewhere, kElsewhere);
            EXPECT_TRUE(inside ? port.none_has_icrc() : port.all_have_icrc());
            network.detach(port);
            policy(a, {});
            a.nic.path().set_faults(Direction::kTransmit, std::nullopt);
        }
    }
}

TEST_F(NicIcrcTest, AFloodHasItForThoseOutside) {
    Listener nic(true);
    Listener uplink(false);
    Listener other(true);
    network.attach(nic, &elsewhere);
    network.attach(uplink, nullptr);
    const base::MacAddr last = test_mac(10);
    network.attach(other, &last);
    roce::Packet packet;
    packet.opcode = roce::Opcode::kUdSendOnly;
    packet.destination_mac = {0x33, 0x33, 0, 0, 0, 1};
    packet.source_mac = a.host.mac();
    packet.source = a.host.gid();
    packet.destination = test::gid("239.0.0.1");
    packet.destination_qpn = roce::kMulticastQpn;
    base::Frame frame;
    roce::encode_without_icrc(packet, {}, frame);
    network.forward(a.nic, frame);
    EXPECT_TRUE(uplink.all_have_icrc());
    EXPECT_EQ(nic.seen.size() + other.seen.size(), 2U);
    for (Port* port : std::initializer_list<Port*>{&nic, &uplink, &other}) network.detach(*port);
}

TEST_F(NicIcrcTest, ACaptureOfTheSwitchShowsIt) {
    CheckingTap tap;
    network.set_tap(tap);
    expect_writes();
    EXPECT_GE(tap.all, 100U);
    EXPECT_EQ(tap.good, tap.all);
    EXPECT_EQ(refused(), 0U);
}

TEST_F(NicIcrcTest, ACaptureOfEitherNicShowsIt) {
    for (Machine* const machine : {&a, &b}) {
        const auto tap = std::make_shared<CheckingTap>();
        machine->nic.path().set_capture(tap);
        for (Machine* const one : {&a, &b}) ASSERT_TRUE(one->host.reset(*one->qp));
        expect_writes();
        EXPECT_GE(tap->all, 100U);
        EXPECT_EQ(tap->good, tap->all);
        machine->nic.path().set_capture(nullptr);
    }
    EXPECT_EQ(refused(), 0U);
}

TEST_F(NicIcrcTest, StagesOfBothNicsDoWithout) {
    PolicyConfig all = rules();
    all.flow_log = "file";
    all.shaper.limit = 1000000000;
    all.shape[1] = true;
    for (Machine* const machine : {&a, &b}) policy(*machine, all, std::make_shared<Lines>());
    expect_writes();
    EXPECT_EQ(refused(), 0U);
}

/// The data would be wrong otherwise.
TEST_F(NicIcrcTest, WhatAFaultHasCorruptedIsFound) {
    FaultConfig corrupting;
    corrupting.corrupt_ppm = 200000;
    corrupting.duplicate_ppm = 200000;
    for (const Direction direction : {Direction::kTransmit, Direction::kReceive}) {
        Machine& machine = direction == Direction::kTransmit ? a : b;
        machine.nic.path().set_faults(direction, corrupting);
        const std::uint64_t before = refused();
        for (Machine* const one : {&a, &b}) ASSERT_TRUE(one->host.reset(*one->qp));
        connect(a, b);
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(wrote(50000));
        EXPECT_GT(refused(), before);
        machine.nic.path().set_faults(direction, std::nullopt);
    }
}

TEST_F(NicIcrcTest, AGuestThatGetsThePacketAsAFrameGetsIt) {
    constexpr std::uint8_t kNobodys = 77;
    PacketQueues theirs(b);
    write_to(2, kNobodys);
    PacketQueues own(a);
    write_to(1, kNobodys);
    for (PacketQueues* const queues : {&theirs, &own}) {
        const auto done = queues->guest.poll(queues->rx);
        ASSERT_TRUE(done);
        EXPECT_TRUE(read_headers(done->frame).roce());
        EXPECT_TRUE(has_icrc(std::span(done->frame)));
    }
}

TEST_F(NicIcrcTest, ATagThatComesOrGoesOnTheWayChangesNothing) {
    NicConfig in_vlan = nic_config(3);
    in_vlan.vlans = VlanConfig::access(10);
    Machine c(world, network, in_vlan, 3);
    in_vlan.mac = nic_config(4).mac;
    Machine d(world, network, in_vlan, 4);
    policy(c, rules());
    connect(c, d);
    ASSERT_TRUE(write(100000, 1, &c, &d));
    EXPECT_EQ(c.done[0].vendor, 0U);
    EXPECT_TRUE(std::ranges::equal(c.bytes(100000), d.bytes(100000)));
    EXPECT_STREQ(c.nic.rdma().qp_status().at(0).path, "wire");
    EXPECT_EQ(counter(c, "rnic.drop.icrc") + counter(d, "rnic.drop.icrc"), 0U);
    Listener uplink(false);
    network.attach(uplink, &elsewhere);
    ASSERT_TRUE(c.host.reset(*c.qp));
    ASSERT_TRUE(c.host.connect(*c.qp, 0x100, {ipv4_gid(kElsewhere), elsewhere, 0x77, 0x900}, 1024));
    post(c, kLength);
    world.advance(1ms);
    EXPECT_TRUE(uplink.all_have_icrc());
    EXPECT_EQ(roce::parse(uplink.seen.at(0))->vlan(), 10);
    network.detach(uplink);
}

TEST_F(NicIcrcTest, ANicDoesWithoutOnItsWayToItself) {
    policy(a, rules());
    ASSERT_TRUE(a.host.connect(*a.qp, 0x100, a.as_peer(0x100), 1024));
    ASSERT_TRUE(write(kLength, 1, &a, &a));
    EXPECT_EQ(a.done[0].vendor, 0U);
    EXPECT_STREQ(a.nic.rdma().qp_status().at(0).path, "wire");
    EXPECT_EQ(refused(), 0U);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
