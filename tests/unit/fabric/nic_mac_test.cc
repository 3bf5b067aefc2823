// SPDX-License-Identifier: Apache-2.0
// NICs whose guests have interfaces with MAC addresses of their own, such as macvlans.
#include <mana/ext.h>

#include "base/endian.h"
#include "support/ext_host.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

using ::openmana::test::ExtHost;
using ::openmana::test::ipv4_gid;

constexpr base::MacAddr kPodC{2, 0, 0, 0, 0, 0xc}, kPodD{2, 0, 0, 0, 0, 0xd};

/// C and D have the extension, and may have what nobody else has; an address of each is reached by
/// such a MAC address.
class MacTest : public NicTest {
protected:
    MacTest() {
        for (Machine* const one : {&c, &d}) policy(*one, any());
    }
    static Peer by(const Machine& machine, std::uint32_t psn, const base::MacAddr& mac) {
        Peer peer = machine.as_peer(psn);
        peer.mac = mac;
        return peer;
    }
    bool give(Machine& machine, const base::MacAddr& mac) {
        return ExtHost(machine.host).config_address(machine.host.gid(), mac, true) &&
               machine.host.config_address(machine.host.gid(), false);
    }
    /// The machine's own end of the connections that it makes from now on.
    static void set_end(Machine& machine, const roce::Gid& gid, const base::MacAddr& mac) {
        machine.host.tamper = [gid, mac](Request& request) {
            if (base::load_le<std::uint32_t>(request.bytes.data() + 4) != MANA_HW_RNIC_SET_QP_STATE)
                return;
            for (std::size_t i = 0; i < gid.size(); ++i)
                request.put<std::uint8_t>(kGid + i, gid[gid.size() - 1 - i]);
            for (std::size_t i = 0; i < mac.size(); ++i)
                request.put<std::uint8_t>(kMac + i, mac[mac.size() - 1 - i]);
        };
    }
    static constexpr std::size_t kGid = 104, kMac = 136;  // RNIC 2.10
    void connect_by(Machine& from, Machine& to, const base::MacAddr& from_mac,
                    const base::MacAddr& to_mac) {
        for (Machine* const one : {&from, &to}) ASSERT_TRUE(one->host.reset(*one->qp));
        set_end(from, from.host.gid(), from_mac);
        set_end(to, to.host.gid(), to_mac);
        ASSERT_TRUE(to.host.connect(*to.qp, 0x900, by(from, 0x100, from_mac), 1024));
        ASSERT_TRUE(from.host.connect(*from.qp, 0x100, by(to, 0x900, to_mac), 1024));
        world.run_until_idle();
    }
    bool crosses() {
        return write(5000, 1, &c, &d) && c.done[0].vendor == 0 &&
               std::ranges::equal(c.bytes(5000), d.bytes(5000));
    }
    std::uint64_t frames(Machine& machine) { return counter(machine, "fabric.port.tx_frames"); }
    static PolicyConfig any() {
        PolicyConfig config;
        config.any_mac = true;
        return config;
    }
    static PolicyConfig only(std::vector<base::MacAddr> macs) {
        PolicyConfig config;
        config.macs = std::move(macs);
        return config;
    }
    void no_policy(Machine& machine) { machine.nic.path().set_policy(std::nullopt, nullptr, {}); }
    static bool config_mac(Machine& machine, const base::MacAddr& mac) {
        Request request(MANA_HW_RNIC_CONFIG_MAC, 64, 32, MANA_HW_RNIC_DEVICE_TYPE);
        request.put<std::uint64_t>(40, machine.host.adapter)
            .put<std::uint32_t>(48, MANA_HW_RNIC_CONFIG_ADD);
        for (std::size_t i = 0; i < mac.size(); ++i)
            request.put<std::uint8_t>(52 + i, mac[mac.size() - 1 - i]);
        return machine.host.call(request.fit()).ok();
    }
    /// A frame of the guest's interface, to all.
    void announce(Machine& machine, const base::MacAddr& mac) {
        test::FrameMaker maker;
        maker.source_mac = mac;
        maker.destination_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
        network.forward(machine.nic, maker.udp(1, 2));
    }
    Machine c{world, network, 3, 0, true}, d{world, network, 4, 0, true};
};

TEST_F(MacTest, WithoutAPolicyAGuestHasNoOtherThanItsOwn) {
    no_policy(c);
    ExtHost host(c.host);
    EXPECT_FALSE(host.config_address(ipv4_gid(77), kPodC, true));
    EXPECT_EQ(host.status, gdma::kHwcInvalidParameter);
    EXPECT_FALSE(config_mac(c, kPodC));
    EXPECT_TRUE(config_mac(c, c.nic.config().mac));
    EXPECT_TRUE(host.config_address(ipv4_gid(77), c.nic.config().mac, true));
    EXPECT_EQ(network.peers().find(kPodC), nullptr);
    policy(c, any());
    EXPECT_TRUE(config_mac(c, kPodC));
}

TEST_F(MacTest, MacAddressesOfGroupsAndZerosAreNone) {
    EXPECT_FALSE(config_mac(c, {1, 0, 0x5e, 0, 0, 1}));
    EXPECT_FALSE(config_mac(c, {}));
    EXPECT_EQ(network.peers().find({}), nullptr);
}

TEST_F(MacTest, NobodyClaimsWhatIsSeenBehindAnother) {
    announce(d, kPodC);
    EXPECT_FALSE(ExtHost(c.host).config_address(ipv4_gid(77), kPodC, true));
    no_policy(d);
    EXPECT_TRUE(ExtHost(c.host).config_address(ipv4_gid(77), kPodC, true))
        << "who must not have it keeps nobody from it";
}

TEST_F(MacTest, AStageThatComesOrGoesLeavesMacAddressesWhereTheyAre) {
    policy(c, only({kPodC}));
    policy(d, only({kPodC}));
    const auto* const holder = network.peers().find(c.nic.config().mac);
    ASSERT_EQ(network.peers().find(kPodC), holder);
    c.nic.path().set_capture(std::make_shared<CountingTap>());
    EXPECT_EQ(network.peers().find(kPodC), holder);
    policy(c, only({kPodD, kPodC}));
    EXPECT_EQ(network.peers().find(kPodC), holder);
    policy(c, any());
    EXPECT_EQ(network.peers().find(kPodC), network.peers().find(d.nic.config().mac));
}

/// With a driver that does not say by which MAC address: the adapter's own.
TEST_F(MacTest, RdmaComesByEachMacAddressThatTheGuestMayHave) {
    announce(c, kPodC);
    ASSERT_TRUE(c.host.connect(*c.qp, 0x900, a.as_peer(0x100), 1024));
    ASSERT_TRUE(a.host.connect(*a.qp, 0x100, by(c, 0x900, kPodC), 1024));
    world.run_until_idle();
    ASSERT_TRUE(write(5000, 1, &a, &c));
    EXPECT_EQ(a.done[0].vendor, 0U);
    EXPECT_GT(frames(a), 0U);
    EXPECT_EQ(counter(c, "rnic.drop.address"), 0U);
    policy(c, only({kPodD}));
    announce(c, kPodC);
    ASSERT_TRUE(write(5000, 1, &a, &c));
    EXPECT_NE(a.done[0].vendor, 0U) << "the policy forbids it now";
    EXPECT_GT(counter(c, "rnic.drop.address"), 0U);
}

TEST_F(MacTest, RdmaGoesTheShortWayByTheMacAddressesOfInterfaces) {
    ASSERT_TRUE(give(c, kPodC));
    ASSERT_TRUE(give(d, kPodD));
    connect_by(c, d, kPodC, kPodD);
    const std::uint64_t before = frames(c) + frames(d);
    EXPECT_TRUE(crosses());
    EXPECT_EQ(frames(c) + frames(d), before) << "frames were made";
}

TEST_F(MacTest, WhoClaimsAMacAddressFirstHasItUnlessAPolicyNamesIt) {
    ASSERT_TRUE(give(c, kPodC));
    EXPECT_FALSE(ExtHost(d.host).config_address(ipv4_gid(77), kPodC, true));
    EXPECT_FALSE(ExtHost(d.host).config_address(ipv4_gid(77), a.nic.config().mac, true));
    policy(d, only({kPodC}));
    EXPECT_TRUE(ExtHost(d.host).config_address(ipv4_gid(77), kPodC, true));
    policy(d, any());
    ASSERT_TRUE(ExtHost(d.host).config_address(ipv4_gid(77), kPodC, false));
    EXPECT_FALSE(ExtHost(d.host).config_address(ipv4_gid(77), kPodC, true));
    no_policy(c);
    EXPECT_TRUE(ExtHost(d.host).config_address(ipv4_gid(77), kPodC, true))
        << "who must not have it keeps nobody from it";
}

TEST_F(MacTest, APolicyRefusesMacAddressesThatItDoesNotName) {
    policy(c, only({kPodD}));
    EXPECT_FALSE(ExtHost(c.host).config_address(ipv4_gid(77), kPodC, true));
    EXPECT_TRUE(ExtHost(c.host).config_address(ipv4_gid(77), kPodD, true));
    EXPECT_EQ(network.peers().find(kPodD), network.peers().find(c.nic.config().mac));
}

TEST_F(MacTest, APolicyThatComesLaterStopsWhatWasBegun) {
    ASSERT_TRUE(give(c, kPodC));
    ASSERT_TRUE(give(d, kPodD));
    connect_by(c, d, kPodC, kPodD);
    ASSERT_TRUE(crosses());
    policy(d, only({kPodD}));
    EXPECT_TRUE(crosses());
    no_policy(c);
    ASSERT_TRUE(write(5000, 1, &c, &d));
    EXPECT_NE(c.done[0].vendor, 0U);
    EXPECT_GT(counter(c, "fabric.port.foreign_source"), 0U);
}

/// The queue pairs of C: by its own MAC address and by that of its interface.
TEST_F(MacTest, TwoInterfacesOfOneGuestReachEachOther) {
    ASSERT_TRUE(ExtHost(c.host).config_address(ipv4_gid(33), kPodC, true));
    const auto second = c.host.create_rc(c.send_cq, c.recv_cq, 16384, 4096);
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) c.nic.path().set_capture(std::make_shared<CountingTap>());
        ASSERT_TRUE(c.host.reset(*c.qp));
        ASSERT_TRUE(c.host.reset(*second));
        set_end(c, ipv4_gid(33), kPodC);
        ASSERT_TRUE(c.host.connect(*second, 0x900, c.as_peer(0x100), 1024));
        set_end(c, c.host.gid(), c.nic.config().mac);
        ASSERT_TRUE(
            c.host.connect(*c.qp, 0x100, {ipv4_gid(33), kPodC, second->qpn(), 0x900}, 1024));
        EXPECT_TRUE(write(5000, 1, &c, &c));
        ASSERT_EQ(c.done.size(), 1U);
        EXPECT_EQ(c.done[0].vendor, 0U);
    }
}

/// Who has a better right to an address.
class Rival final : public Claims::Claimant {
public:
    [[nodiscard]] const std::string& claimant_name() const override { return name_; }
    [[nodiscard]] Standing standing(const roce::Gid&) const override { return Standing::kGranted; }
    void claim_changed(const roce::Address&) override {}

private:
    const std::string name_ = "rival";
};

TEST_F(NicTest, AClaimThatChangesOftenWhileANicStandsStillIsLookedAtOnce) {
    Rival rival;
    const roce::Address address(a.host.gid());
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(network.claims().claim(rival, address));
        network.claims().release(rival, address);
    }
    EXPECT_EQ(network.claims().holder_name(address), "a");
    const std::uint64_t before = base::work_done;
    a.executor.run_once();
    EXPECT_LE(base::work_done - before, 10U);
    EXPECT_TRUE(network.claims().claim(rival, address));
    a.executor.run_once();
    EXPECT_FALSE(a.nic.rdma().owns(address)) << "the next change is seen again";
    network.claims().release(rival, address);
}

/// A client may have one state after the other read meanwhile, each with other addresses.
TEST_F(NicTest, OfAnAddressThatANicGaveUpWhileItStoodStillNoChangeIsLeft) {
    Rival rival;
    for (std::uint8_t i = 100; i < 200; ++i) {
        const roce::Address address(ipv4_gid(i));
        EXPECT_TRUE(network.claims().claim(rival, address));
        ASSERT_TRUE(a.host.config_address(address.gid, true));
        network.claims().release(rival, address);
        EXPECT_EQ(network.claims().holder_name(address), "a");
        ASSERT_TRUE(a.host.config_address(address.gid, false));
    }
    const std::uint64_t before = base::work_done;
    a.executor.run_once();
    EXPECT_LE(base::work_done - before, 10U);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
