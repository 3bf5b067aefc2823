// SPDX-License-Identifier: Apache-2.0
// NICs whose guests have addresses in a VLAN.
#include <mana/ext.h>

#include <map>

#include "base/endian.h"
#include "support/ext_host.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

class VlanTap final : public FrameTap {
public:
    void frame(std::span<const std::byte> frame) override {
        const FrameHeaders headers = read_headers(frame);
        if (headers.roce()) ++roce[headers.vlan];
    }
    std::map<roce::Vlan, std::uint64_t> roce;
};

/// C and D have the addresses of A and B, in a VLAN.
class VlanTest : public NicTest {
protected:
    static constexpr roce::Vlan kVlan = 100;
    void SetUp() override {
        for (Machine* const one : {&c, &d}) {
            const bool waits = counter(*one, "fabric.port.address_waits") == 1;
            EXPECT_TRUE(waits) << "it has come with an address that another serves";
            ASSERT_TRUE(one->host.config_address(one->host.gid(), false));
            ASSERT_TRUE(::openmana::test::ExtHost(one->host).config_address(
                {one->host.gid(), kVlan}, true));
            EXPECT_TRUE(one->nic.rdma().owns({one->host.gid(), kVlan}));
            EXPECT_EQ(counter(*one, "fabric.port.address_waits"), 1u);
            one->host.tamper = [](Request& request) {
                constexpr std::uint32_t kPublic = MANA_HW_RNIC_SET_QP_STATE;
                if (base::load_le<std::uint32_t>(request.bytes.data() + 4) != kPublic) return;
                request.put<std::uint32_t>(4, MANA_HW_EXT_SET_QP_STATE)
                    .put<std::uint32_t>(20, MANA_HW_EXT_SET_QP_STATE)
                    .put<std::uint16_t>(184, 3 << 13 | kVlan)
                    .put<std::uint32_t>(188, 0)
                    .fit();
            };
        }
        connect(a, b);
        connect(c, d);
    }
    Machine c{world, network, 3, 1, true}, d{world, network, 4, 2, true};
};

TEST_F(VlanTest, TenantsWithTheSameAddressesGoOnSideBySide) {
    VlanTap tap;
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) network.set_tap(tap);
        EXPECT_TRUE(write(5000, 1, &c, &d));
        EXPECT_EQ(c.done[0].vendor, 0u);
        EXPECT_TRUE(std::ranges::equal(c.bytes(5000), d.bytes(5000)));
        EXPECT_TRUE(wrote(5000));
    }
    EXPECT_EQ(tap.roce.size(), 2u);
    EXPECT_GE(tap.roce[0], 6u);
    EXPECT_GE(tap.roce[kVlan], 6u);
}

TEST_F(VlanTest, TenantsOfTwoVlansNeverMeet) {
    const std::vector<std::byte> before(b.bytes(5000).begin(), b.bytes(5000).end());
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) b.nic.path().set_capture(std::make_shared<CountingTap>());
        // C says that it is A, as far as it can: the address is the same.
        ASSERT_TRUE(c.host.reset(*c.qp));
        ASSERT_TRUE(c.host.connect(*c.qp, a.qp->next_psn, b.as_peer(0x900), 1024));
        ASSERT_TRUE(write(5000, 1, &c, &b));
        EXPECT_NE(c.done[0].vendor, 0u);
        EXPECT_TRUE(std::ranges::equal(b.bytes(5000), before));
        EXPECT_TRUE(wrote(5000));
        std::ranges::copy(before, b.bytes(5000).begin());
    }
    EXPECT_GT(counter(b, "eth.rx.disabled"), 0u) << "to the Ethernet device, which is off";
}

TEST_F(VlanTest, AnAddressIsKeptFromOthersInItsVlanOnly) {
    Machine late(world, network, 5, 1, true);
    ASSERT_TRUE(::openmana::test::ExtHost(late.host).config_address({c.host.gid(), kVlan}, true));
    EXPECT_FALSE(late.nic.rdma().owns({c.host.gid(), kVlan}));
    ASSERT_TRUE(::openmana::test::ExtHost(late.host).config_address({c.host.gid(), 7}, true));
    EXPECT_TRUE(late.nic.rdma().owns({c.host.gid(), 7}));
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.1")};
    policy(late, config);
    world.run_until_idle();
    EXPECT_TRUE(late.nic.rdma().owns({c.host.gid(), kVlan})) << "its policy names the address";
    EXPECT_FALSE(c.nic.rdma().owns({c.host.gid(), kVlan}));
}

TEST_F(VlanTest, APolicyOfAddressesHoldsInAVlan) {
    PolicyConfig config;
    config.addresses = {*Prefix::parse("10.0.0.9")};
    policy(c, config);
    for (const bool wire : {false, true}) {
        SCOPED_TRACE(wire);
        if (wire) d.nic.path().set_capture(std::make_shared<CountingTap>());
        ASSERT_TRUE(c.host.reset(*c.qp));
        ASSERT_TRUE(d.host.reset(*d.qp));
        connect(c, d);
        ASSERT_TRUE(write(5000, 1, &c, &d));
        EXPECT_NE(c.done[0].vendor, 0u);
    }
    EXPECT_GT(counter(c, "fabric.policy.spoofed_ip"), 0u);
    EXPECT_TRUE(wrote(5000));
}

TEST_F(VlanTest, TheFlowLogTellsTwoVlansApart) {
    const auto lines = std::make_shared<Lines>();
    PolicyConfig config;
    config.flow_log = "unused";
    c.nic.path().set_policy(config, lines, {});
    EXPECT_TRUE(write(5000, 1, &c, &d));
    ASSERT_FALSE(lines->all.empty());
    EXPECT_EQ(lines->all[0]["vlan"], unsigned{kVlan});
    EXPECT_EQ(lines->all[0]["protocol"], "rdma-rc");
}

}  // namespace
}  // namespace openmana::fabric::nic_test
