// SPDX-License-Identifier: Apache-2.0
// NICs that are in some VLANs of their network alone.
#include <mana/ext.h>

#include <map>
#include <optional>

#include "base/endian.h"
#include "support/ext_host.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

constexpr roce::Vlan kRed = 10, kBlue = 20;

NicConfig config_in(std::uint8_t number, const VlanConfig& vlans) {
    NicConfig config = nic_config(number);
    config.vlans = vlans;
    return config;
}

/// What passes the switch, or a link.
class VlanTap final : public FrameTap {
public:
    void frame(std::span<const std::byte> frame) override {
        const FrameHeaders headers = read_headers(frame);
        ++all[headers.outer_vlan];
        if (headers.roce()) ++roce[headers.vlan];
    }
    std::map<roce::Vlan, std::uint64_t> all, roce;
};

class VlanEdgeNicTest : public ::testing::Test {
protected:
    static constexpr std::uint32_t kLength = 5000;
    /// The guest of `machine` has its address in this VLAN, as a VLAN interface gives it.
    static void move(Machine& machine, roce::Vlan vlan) {
        ASSERT_TRUE(machine.host.config_address(machine.host.gid(), false));
        ASSERT_TRUE(::openmana::test::ExtHost(machine.host)
                        .config_address({machine.host.gid(), vlan}, true));
        machine.host.tamper = [vlan](Request& request) {
            constexpr std::uint32_t kPublic = MANA_HW_RNIC_SET_QP_STATE;
            if (base::load_le<std::uint32_t>(request.bytes.data() + 4) != kPublic) return;
            request.put<std::uint32_t>(4, MANA_HW_EXT_SET_QP_STATE)
                .put<std::uint32_t>(20, MANA_HW_EXT_SET_QP_STATE)
                .put<std::uint16_t>(184, static_cast<std::uint16_t>(3U << 13 | vlan))
                .put<std::uint32_t>(188, 0)
                .fit();
        };
    }
    void connect(Machine& from, Machine& to) {
        for (Machine* const one : {&from, &to}) ASSERT_TRUE(one->host.reset(*one->qp));
        ASSERT_TRUE(to.host.connect(*to.qp, 0x900, from.as_peer(0x100), 1024));
        ASSERT_TRUE(from.host.connect(*from.qp, 0x100, to.as_peer(0x900), 1024));
        world.run_until_idle();
    }
    /// Whether what `from` writes is at `to`.
    bool writes(Machine& from, Machine& to) {
        base::Random random(++fills);
        for (std::byte& byte : from.bytes(kLength)) byte = static_cast<std::byte>(random.next());
        from.done.clear();
        SendWr request;
        request.opcode = MANA_HW_RNIC_WQE_WRITE;
        request.sges = {{from.buffer.value(), gdma::Key(from.mr.lkey), kLength}};
        request.remote_address = to.buffer.value();
        request.rkey = to.mr.rkey;
        if (!from.host.post_send(*from.qp, request)) return false;
        const bool ended = world.run_until(
            [&] {
                from.poll();
                return !from.done.empty();
            },
            60s);
        return ended && from.done[0].vendor == 0 &&
               std::ranges::equal(from.bytes(kLength), to.bytes(kLength));
    }
    static std::string path_of(Machine& machine) {
        return machine.nic.rdma().qp_status().at(0).path;
    }
    /// Once on the local path, once by frames.
    void expect_reached(Machine& from, Machine& to) {
        connect(from, to);
        EXPECT_TRUE(writes(from, to));
        EXPECT_EQ(path_of(from), "local");
        const auto tap = std::make_shared<VlanTap>();
        to.nic.path().set_capture(tap);
        EXPECT_TRUE(writes(from, to));
        EXPECT_EQ(path_of(from), "wire");
        EXPECT_FALSE(tap->roce.empty());
        to.nic.path().set_capture(nullptr);
        EXPECT_TRUE(writes(from, to));
        EXPECT_EQ(path_of(from), "local");
    }
    void expect_unreached(Machine& from, Machine& to) {
        const std::vector<std::byte> before(to.bytes(kLength).begin(), to.bytes(kLength).end());
        for (const bool wire : {false, true}) {
            SCOPED_TRACE(wire);
            if (wire) to.nic.path().set_capture(std::make_shared<VlanTap>());
            connect(from, to);
            const std::uint64_t received = to.nic.counters().rx_frames.value();
            EXPECT_FALSE(writes(from, to));
            const bool gets_frames = to.nic.config().vlans.all;
            EXPECT_TRUE(gets_frames || to.nic.counters().rx_frames.value() == received);
            EXPECT_TRUE(std::ranges::equal(to.bytes(kLength), before));
        }
        to.nic.path().set_capture(nullptr);
    }
    /// As a program of the guest can by a packet queue.
    void send(Machine& machine, const base::Frame& frame) {
        machine.nic.path().from_guest(frame);
        world.run_until_idle();
    }
    static test::FrameMaker maker(const Machine& from, const base::MacAddr& to) {
        test::FrameMaker made;
        made.source = from.host.gid();
        made.source_mac = from.host.mac();
        made.destination_mac = to;
        return made;
    }
    static base::Frame tagged(base::Frame frame, std::uint16_t tci) {
        const std::byte tag[] = {std::byte{0x81}, std::byte{0}, static_cast<std::byte>(tci >> 8),
                                 static_cast<std::byte>(tci)};
        frame.insert(frame.begin() + 12, std::begin(tag), std::end(tag));
        return frame;
    }

    static constexpr base::MacAddr kAll{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    SimWorld world;
    Switch network{world};
    std::uint64_t fills = 0;
    Machine red1{world, network, config_in(1, VlanConfig::access(kRed)), 1};
    Machine red2{world, network, config_in(2, VlanConfig::access(kRed)), 2};
    Machine blue{world, network, config_in(3, VlanConfig::access(kBlue)), 3};
    Machine open{world, network, config_in(4, {}), 4, true};
};

TEST_F(VlanEdgeNicTest, TwoAccessNicsOfOneVlanReachEachOtherOnBothPaths) {
    expect_reached(red1, red2);
}

TEST_F(VlanEdgeNicTest, InTheNetworkTheirFramesHaveTheTag) {
    VlanTap tap;
    network.set_tap(tap);
    connect(red1, red2);
    EXPECT_TRUE(writes(red1, red2));
    EXPECT_EQ(tap.all.size(), 1U);
    EXPECT_GE(tap.roce[kRed], 6U);
}

TEST_F(VlanEdgeNicTest, TwoVlansNeverMeet) {
    expect_unreached(red1, blue);
    expect_unreached(blue, red1);
}

TEST_F(VlanEdgeNicTest, NorDoesWhoIsInNone) {
    expect_unreached(red1, open);
    expect_unreached(open, red1);
}

TEST_F(VlanEdgeNicTest, AVlanInterfaceReachesAnAccessNicOnBothPaths) {
    move(open, kRed);
    expect_reached(open, red1);
    expect_reached(red1, open);
    expect_unreached(open, blue);
}

VlanConfig trunk_of(std::initializer_list<roce::Vlan> vlans, roce::Vlan native = roce::kNoVlan) {
    VlanConfig config;
    config.all = false;
    config.native = native;
    for (const roce::Vlan vlan : vlans) config.tagged.set(vlan);
    return config;
}

TEST_F(VlanEdgeNicTest, ATrunkReachesAnAccessNicOfAVlanThatItHas) {
    Machine trunk(world, network, config_in(5, trunk_of({kRed})), 5, true);
    move(trunk, kRed);
    expect_reached(trunk, red1);
    expect_reached(red1, trunk);
}

TEST_F(VlanEdgeNicTest, ATrunkHasNoAddressInAVlanThatItHasNot) {
    Machine trunk(world, network, config_in(5, trunk_of({kRed})), 5, true);
    EXPECT_FALSE(trunk.nic.rdma().owns(trunk.host.gid())) << "it has no native one";
    move(trunk, kBlue);
    EXPECT_FALSE(trunk.nic.rdma().owns({trunk.host.gid(), kBlue}));
    EXPECT_EQ(trunk.nic.counters().address_vlan.value(), 2U);
    EXPECT_EQ(trunk.nic.counters().address_waits.value(), 0U);
    expect_unreached(trunk, blue);
    expect_unreached(trunk, red1);
}

TEST_F(VlanEdgeNicTest, TheNativeVlanOfATrunkIsThatOfItsUntaggedAddress) {
    Machine trunk(world, network, config_in(5, trunk_of({kBlue}, kRed)), 5, true);
    expect_reached(trunk, red1);
    expect_unreached(trunk, blue);
}

/// The address of each is its own in its VLAN, as it is for NICs in two VLANs of their guests.
TEST_F(VlanEdgeNicTest, ClaimsAreThoseOfTheNetworksVlan) {
    Machine same(world, network, config_in(6, VlanConfig::access(kBlue)), 6);
    ASSERT_TRUE(same.host.config_address(red1.host.gid(), true));
    EXPECT_TRUE(same.nic.rdma().owns(red1.host.gid())) << "nobody has it in that VLAN";
    ASSERT_TRUE(same.host.config_address(blue.host.gid(), true));
    EXPECT_FALSE(same.nic.rdma().owns(blue.host.gid()));
    EXPECT_EQ(same.nic.counters().address_waits.value(), 1U);
    ASSERT_TRUE(blue.host.config_address(blue.host.gid(), false));
    world.run_until_idle();
    EXPECT_TRUE(same.nic.rdma().owns(blue.host.gid())) << "it has waited for it";
    move(open, kRed);
    ASSERT_TRUE(::openmana::test::ExtHost(open.host).config_address({red1.host.gid(), kRed}, true));
    EXPECT_FALSE(open.nic.rdma().owns({red1.host.gid(), kRed})) << "by a tag or by a port";
}

TEST_F(VlanEdgeNicTest, NobodySpeaksForAnAddressOfHisVlan) {
    send(red2, maker(red1, blue.host.mac()).roce({}, 8));
    EXPECT_EQ(red2.nic.counters().foreign_source.value(), 1U) << "a MAC address, too";
    test::FrameMaker made = maker(red1, open.host.mac());
    made.source_mac = red2.host.mac();
    send(red2, made.roce({}, 8));
    EXPECT_EQ(red2.nic.counters().foreign_source.value(), 2U);
    made.source = blue.host.gid();
    send(red2, made.roce({}, 8));
    EXPECT_EQ(red2.nic.counters().foreign_source.value(), 2U) << "served in another VLAN";
}

TEST_F(VlanEdgeNicTest, AFloodStaysInItsVlan) {
    const auto received = [](Machine& one) { return one.nic.counters().rx_frames.value(); };
    send(red1, maker(red1, kAll).arp());
    EXPECT_EQ(received(red2), 1U);
    EXPECT_EQ(received(blue), 0U);
    EXPECT_EQ(received(open), 1U) << "with its tag";
    EXPECT_EQ(blue.nic.counters().rx_vlan.value(), 1U);
    send(open, maker(open, kAll).arp());
    EXPECT_EQ(received(red2) + received(blue), 1U);
    send(open, tagged(maker(open, kAll).arp(), kBlue));
    EXPECT_EQ(received(red2), 1U);
    EXPECT_EQ(received(blue), 1U);
}

TEST_F(VlanEdgeNicTest, UnicastOfAnotherVlanDoesNotReachItsMacAddress) {
    send(red1, maker(red1, blue.host.mac()).udp(1, 2));
    EXPECT_EQ(blue.nic.counters().rx_frames.value(), 0U);
    EXPECT_EQ(blue.nic.counters().rx_vlan.value(), 1U);
    // Nor long after it was seen.
    world.advance(Switch::kAge + 1s);
    send(red1, maker(red1, blue.host.mac()).udp(1, 2));
    EXPECT_EQ(blue.nic.counters().rx_frames.value(), 0U);
}

TEST_F(VlanEdgeNicTest, TagsOfAnAccessGuestAreDroppedAndPrioritiesKept) {
    VlanTap tap;
    network.set_tap(tap);
    for (const unsigned tci : {0x000aU, 0x0014U, 0xe00aU})
        send(red1, tagged(maker(red1, red2.host.mac()).udp(1, 2), static_cast<std::uint16_t>(tci)));
    EXPECT_TRUE(tap.all.empty());
    EXPECT_EQ(red1.nic.counters().tx_vlan.value(), 3U);
    struct Last final : FrameTap {
        void frame(std::span<const std::byte> frame) override {
            bytes.assign(frame.begin(), frame.end());
        }
        base::Frame bytes;
    } last;
    network.set_tap(last);
    const base::Frame frame = maker(red1, red2.host.mac()).udp(1, 2);
    send(red1, tagged(frame, 0xa000));
    EXPECT_EQ(last.bytes, tagged(frame, 0xa00a));
    EXPECT_EQ(red2.nic.counters().rx_frames.value(), 1U);
    EXPECT_EQ(red2.nic.counters().rx_bytes.value(), frame.size() + 4) << "as the switch has it";
    EXPECT_EQ(red1.nic.counters().tx_bytes.value(), frame.size() + 4);
}

TEST_F(VlanEdgeNicTest, AnAccessNicReachesItselfByFramesOfItsVlan) {
    VlanTap tap;
    network.set_tap(tap);
    ASSERT_TRUE(red1.host.reset(*red1.qp));
    ASSERT_TRUE(red1.host.connect(*red1.qp, 0x100, red1.as_peer(0x100), 1024));
    SendWr request;
    request.opcode = MANA_HW_RNIC_WQE_WRITE;
    request.sges = {{red1.buffer.value(), gdma::Key(red1.mr.lkey), kLength}};
    request.remote_address = red1.buffer.value() + kMr / 2;
    request.rkey = red1.mr.rkey;
    ASSERT_TRUE(red1.host.post_send(*red1.qp, request));
    ASSERT_TRUE(world.run_until(
        [&] {
            red1.poll();
            return !red1.done.empty();
        },
        60s));
    EXPECT_EQ(red1.done[0].vendor, 0U);
    EXPECT_EQ(tap.all.size(), 1U);
    EXPECT_GE(tap.roce[kRed], 6U);
}

/// Congestion notifications follow the connection.
TEST_F(VlanEdgeNicTest, AMarkSlowsTheSenderAcrossTheEdge) {
    move(open, kRed);
    PolicyConfig config;
    config.shaper.classes[0].limit = 1000000000;
    config.shaper.ecn_bytes = 1;
    open.nic.path().set_policy(config, nullptr, {});
    connect(open, red1);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(writes(open, red1));
    std::uint64_t received = 0;
    open.nic.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
        if (std::string_view(info.name) == "rnic.cnp.received") received = value;
    });
    EXPECT_GT(received, 0U);
}

/// An extended UD queue pair of a machine.
struct Datagrams {
    explicit Datagrams(Machine& of) : machine(of), ext(of.host), cq(*ext.create_cq()) {
        ::openmana::test::ExtQpOptions options;
        options.type = MANA_HW_EXT_QP_UD;
        qp = *ext.create_qp(cq, cq, options);
        OM_CHECK(ext.start_datagrams(qp, 1));
    }
    /// A datagram to the other in a VLAN of this guest.
    void send(const Datagrams& other, std::uint16_t tci) {
        ::openmana::test::ExtWr datagram;
        datagram.flags = 0;
        datagram.sges = {{machine.buffer.value(), gdma::Key(machine.mr.lkey), 100}};
        datagram.ud.emplace();
        std::ranges::copy(machine.host.gid(), datagram.ud->source_gid);
        std::ranges::copy(other.machine.host.gid(), datagram.ud->dest_gid);
        std::ranges::copy(other.machine.host.mac(), datagram.ud->dest_mac);
        datagram.ud->dest_qpn = other.qp.qpn;
        datagram.ud->qkey = 1;
        datagram.ud->vlan = tci;
        ext.post(qp, datagram);
    }
    void receive() {
        const gdma::Sge sge{machine.buffer.value(), gdma::Key(machine.mr.lkey), 4096};
        ext.recv(qp, 1, std::span(&sge, 1));
    }
    Machine& machine;
    ::openmana::test::ExtHost ext;
    ::openmana::test::ExtCq cq;
    ::openmana::test::ExtQp qp;
};

/// The completion tells of the VLAN as the receiver has it.
TEST_F(VlanEdgeNicTest, ADatagramComesInTheVlanOfItsReceiverOnBothPaths) {
    Machine plain(world, network, config_in(7, VlanConfig::access(kRed)), 7, true);
    move(open, kRed);
    Datagrams tagged(open), untagged(plain), other(open);
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) open.nic.path().set_capture(std::make_shared<VlanTap>());
        std::optional<mana_hw_ext_cqe> cqe;
        const auto arrives = [&](Datagrams& at) {
            return world.run_until([&] { return (cqe = at.cq.poll()).has_value(); }, 1s);
        };
        untagged.receive();
        tagged.send(untagged, 3U << 13 | kRed);
        ASSERT_TRUE(arrives(untagged));
        EXPECT_EQ(cqe->vlan, 0U);
        tagged.receive();
        untagged.send(tagged, 0);
        ASSERT_TRUE(arrives(tagged));
        EXPECT_EQ(cqe->vlan, kRed);
        other.receive();
        tagged.send(other, 3U << 13 | kRed);
        ASSERT_TRUE(arrives(other));
        EXPECT_EQ(cqe->vlan, 3U << 13 | kRed) << "its priority stays";
    }
}

}  // namespace
}  // namespace openmana::fabric::nic_test
