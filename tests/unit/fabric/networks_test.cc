// SPDX-License-Identifier: Apache-2.0
// Two networks whose NICs have the same addresses, numbers and keys.
#include <cstring>

#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

/// An uplink that counts.
class CountingPort final : public Port {
public:
    explicit CountingPort(Switch& network) : network_(network) { network_.attach(*this, nullptr); }
    ~CountingPort() override { network_.detach(*this); }
    void deliver(base::FrameViews views) override { frames += views.size(); }
    std::uint64_t frames = 0;

private:
    Switch& network_;
};

/// A and B are in one network, C and D, which are the same but for that, in another.
class NetworksTest : public NicTest {
protected:
    static constexpr std::uint32_t kLength = 5000;
    void SetUp() override {
        ASSERT_EQ(a.host.mac(), c.host.mac());
        ASSERT_EQ(a.host.gid(), c.host.gid());
        ASSERT_EQ(b.qp->qpn(), d.qp->qpn()) << "chance comes from the seed";
        ASSERT_EQ(b.mr.rkey, d.mr.rkey);
        connect(a, b);
        connect(c, d);
    }
    /// What `from` writes is at `to`, and there is nothing new at `other`.
    void expect_write(Machine& from, Machine& to, Machine& other) {
        const std::vector<std::byte> before(other.bytes(kLength).begin(),
                                            other.bytes(kLength).end());
        ASSERT_TRUE(write(kLength, 1, &from, &to));
        EXPECT_EQ(from.done[0].vendor, 0U);
        EXPECT_TRUE(std::ranges::equal(from.bytes(kLength), to.bytes(kLength)));
        EXPECT_TRUE(std::ranges::equal(other.bytes(kLength), before));
    }
    static std::string path_of(Machine& machine) {
        return machine.nic.rdma().qp_status().at(0).path;
    }
    /// As a program of the guest can by a packet queue.
    void send(Machine& machine, const base::Frame& frame) {
        machine.nic.path().from_guest(frame);
        world.run_until_idle();
    }

    Switch other{world};
    Machine c{world, other, 1}, d{world, other, 2};
};

TEST_F(NetworksTest, TheSameAddressesWorkSideBySideOnBothPaths) {
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        CountingTap tap, other_tap;
        if (wire) {
            network.set_tap(tap);
            other.set_tap(other_tap);
        }
        expect_write(a, b, d);
        expect_write(c, d, b);
        EXPECT_EQ(path_of(a), wire ? "wire" : "local");
        EXPECT_EQ(path_of(c), wire ? "wire" : "local");
        EXPECT_EQ(tap.roce > 0, wire);
        EXPECT_EQ(other_tap.roce, tap.roce);
    }
    for (Machine* const one : {&a, &b, &c, &d})
        EXPECT_EQ(counter(*one, "fabric.port.address_waits"), 0U) << "nobody else has its address";
}

TEST_F(NetworksTest, OneThatIsCapturedLeavesTheOtherItsLocalPath) {
    CountingTap tap;
    network.set_tap(tap);
    expect_write(a, b, d);
    expect_write(c, d, b);
    EXPECT_EQ(path_of(a), "wire");
    EXPECT_EQ(path_of(c), "local");
}

TEST_F(NetworksTest, AnAddressOfTheOtherIsNobodys) {
    Machine far(world, other, 5);
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) far.nic.path().set_capture(std::make_shared<CountingTap>());
        ASSERT_TRUE(a.host.reset(*a.qp));
        ASSERT_TRUE(far.host.reset(*far.qp));
        ASSERT_TRUE(far.host.connect(*far.qp, 0x900, a.as_peer(0x100), 1024));
        ASSERT_TRUE(a.host.connect(*a.qp, 0x100, far.as_peer(0x900), 1024));
        ASSERT_TRUE(write(kLength, 1, &a, &far));
        EXPECT_NE(a.done[0].vendor, 0U);
        EXPECT_FALSE(std::ranges::equal(a.bytes(kLength), far.bytes(kLength)));
        EXPECT_EQ(far.nic.counters().rx_frames.value(), 0U);
    }
}

TEST_F(NetworksTest, ClaimsAndPoliciesOfOneCostTheOtherNothing) {
    // Names the addresses of the other: in this network they are free.
    Machine greedy(world, network, 5);
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.0/8")};
    config.macs = {::openmana::test::test_mac(6)};
    policy(greedy, config);
    Machine far(world, other, 6);
    ASSERT_TRUE(greedy.host.config_address(far.host.gid(), true));
    EXPECT_TRUE(greedy.nic.rdma().owns(far.host.gid()));
    EXPECT_TRUE(far.nic.rdma().owns(far.host.gid()));
    EXPECT_EQ(counter(far, "fabric.port.address_waits"), 0U);
    // A packet from an address that somebody serves in the other network is nobody's impostor.
    const auto before = counter(a, "fabric.port.foreign_source");
    test::FrameMaker maker;
    maker.source = far.host.gid();
    maker.source_mac = a.host.mac();
    maker.destination = b.host.gid();
    maker.destination_mac = b.host.mac();
    ASSERT_TRUE(greedy.host.config_address(far.host.gid(), false));
    send(a, maker.roce({}, 8));
    EXPECT_EQ(counter(a, "fabric.port.foreign_source"), before);
}

/// Everything that a scanner can think of, with numbers that are right: for the connection of C and
/// D they are those of A and B.
std::vector<base::Frame> scan(const Machine& self, const Machine& target) {
    std::vector<base::MacAddr> macs = {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                                       {0x01, 0x00, 0x5e, 0, 0, 1},
                                       {0x33, 0x33, 0, 0, 0, 1},
                                       {0x01, 0x80, 0xc2, 0, 0, 0}};
    for (std::uint8_t i = 0; i < 16; ++i) macs.push_back(::openmana::test::test_mac(i));
    std::vector<base::Frame> frames;
    for (const base::MacAddr& mac : macs)
        for (const bool ipv4 : {true, false})
            for (std::uint8_t host = 0; host < 8; ++host) {
                test::FrameMaker maker;
                maker.source_mac = self.host.mac();
                maker.source = ipv4 ? self.host.gid() : own_link_local(self.nic.config().mac);
                maker.destination_mac = mac;
                maker.destination = ipv4 ? ::openmana::test::ipv4_gid(host)
                                         : own_link_local(::openmana::test::test_mac(host));
                if (ipv4)
                    for (const int operation : {1, 2}) frames.push_back(maker.arp(operation));
                base::Frame neighbour(24);
                for (const int type : {135, 136}) {
                    neighbour[0] = static_cast<std::byte>(type);
                    if (!ipv4) frames.push_back(maker.ip(kProtocolIcmpv6, neighbour));
                }
                frames.push_back(maker.udp(1000, 2000));
                frames.push_back(maker.tcp(1000, 22, 2));
                roce::Packet packet;
                packet.destination_qpn = roce::Qpn(target.qp->qpn());
                packet.psn = roce::Psn(0x100);
                packet.reth = {target.buffer.value(), roce::RKey(target.mr.rkey), 8};
                for (const roce::Opcode opcode :
                     {roce::Opcode::kWriteOnly, roce::Opcode::kReadRequest, roce::Opcode::kSendOnly,
                      roce::Opcode::kAcknowledge, roce::Opcode::kCnp}) {
                    packet.opcode = opcode;
                    frames.push_back(maker.roce(packet, packet.info().payload ? 8 : 0));
                }
                packet.destination_qpn = roce::kGsiQpn;
                packet.opcode = roce::Opcode::kUdSendOnly;
                packet.deth = {roce::kGsiQKey, roce::kGsiQpn};
                frames.push_back(maker.roce(packet, 256));
            }
    return frames;
}

class AnyTap final : public FrameTap {
public:
    void frame(std::span<const std::byte>) override { ++frames; }
    std::uint64_t frames = 0;
};

TEST_F(NetworksTest, AScannerIsSeenByNobodyInTheOther) {
    // Its guest may have each MAC address that nobody has, those of the other network among them.
    Machine scanner(world, network, 7);
    PolicyConfig config;
    config.any_mac = true;
    policy(scanner, config);
    Machine far(world, other, 5);
    CountingPort uplink(network), other_uplink(other);
    AnyTap tap, other_tap;
    network.set_tap(tap);
    other.set_tap(other_tap);
    expect_write(c, d, b);
    const std::uint64_t frames = other_tap.frames;
    const auto received = [&] {
        std::vector<std::uint64_t> counts;
        for (Machine* const one : {&c, &d, &far}) {
            counts.push_back(one->nic.counters().rx_frames.value());
            counts.push_back(one->nic.counters().tx_frames.value());
        }
        other.counters().visit(
            [&](const base::CounterInfo&, std::uint64_t value) { counts.push_back(value); });
        return counts;
    };
    const auto before = received();
    const std::vector<std::byte> memory(d.bytes(kLength).begin(), d.bytes(kLength).end());

    for (const base::Frame& frame : scan(scanner, d)) send(scanner, frame);
    // And as one who says that he is C.
    for (const base::Frame& frame : scan(c, d)) send(scanner, frame);
    world.run_until_idle();

    EXPECT_GT(tap.frames, 1000U) << "it was no scan";
    EXPECT_GT(uplink.frames, 1000U);
    EXPECT_GT(b.nic.counters().rx_frames.value(), 100U);
    EXPECT_EQ(other_tap.frames, frames);
    EXPECT_EQ(other_uplink.frames, 0U);
    EXPECT_EQ(received(), before);
    EXPECT_TRUE(std::ranges::equal(d.bytes(kLength), memory));
    expect_write(c, d, b);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
