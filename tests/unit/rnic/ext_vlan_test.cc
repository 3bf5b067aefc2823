// SPDX-License-Identifier: Apache-2.0
// Addresses in VLANs, and what queue pairs send from them (docs/extensions.md, "VLANs").
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

constexpr roce::Vlan kRed = 100;
constexpr roce::Vlan kBlue = 200;
constexpr std::uint16_t kRedTag = 5 << 13 | kRed;

class ExtVlanTest : public ExtVerbsTest {
protected:
    /// Both adapters have their address in this VLAN alone.
    void open_in(roce::Vlan vlan, ExtLink::Options options = ExtLink::Options()) {
        options.connect = false;
        open(options);
        for (ExtLink::Side* const side : {&link->a, &link->b}) {
            ASSERT_TRUE(side->node->host.config_address(side->node->host.gid(), false));
            ASSERT_TRUE(side->host->config_address({side->node->host.gid(), vlan}, true));
        }
    }
    /// Each end has its own idea of the tag.
    void connect(std::uint16_t tag_a, std::uint16_t tag_b) {
        ExtPath path;
        path.timeout = 8;
        path.retries = 1;
        path.tci = tag_b;
        ASSERT_TRUE(link->b.host->connect(link->b.qp, ExtLink::kPsn, ExtLink::peer(link->a), path));
        path.tci = tag_a;
        ASSERT_TRUE(link->a.host->connect(link->a.qp, ExtLink::kPsn, ExtLink::peer(link->b), path));
        link->world.run_until_idle();
        link->network.sent.clear();
    }
    std::uint8_t write() { return done(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x80000)).status; }
    void open_datagrams(roce::Vlan vlan) {
        ExtLink::Options options;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UD;
        open_in(vlan, options);
        ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
        ASSERT_TRUE(link->b.host->start_datagrams(link->b.qp, 0x1234));
    }
    ExtWr datagram(std::uint16_t tag) {
        ExtWr wr = ExtVerbsTest::datagram(0, 100, 0x1234);
        wr.ud->vlan = tag;
        return wr;
    }
    ExtWr to_group(const roce::Gid& group, std::uint16_t tag) {
        ExtWr wr = datagram(tag);
        std::ranges::copy(group, wr.ud->dest_gid);
        const std::uint8_t mac[] = {1, 0, 0x5e, 0, 0, 7};
        std::ranges::copy(mac, wr.ud->dest_mac);
        wr.ud->dest_qpn = 0xffffff;
        return wr;
    }
    /// Whether it arrives at B.
    bool arrives(const ExtWr& wr) {
        link->b.recv(1, 0x80000, 1000);
        const std::size_t sent = link->sent.size(), received = link->received.size();
        link->a.post(wr);
        EXPECT_TRUE(link->run(sent + 1));
        link->idle();
        return link->received.size() > received;
    }
    /// All that was sent, both ways, had this tag.
    void expect_tags(std::optional<std::uint16_t> tag) {
        EXPECT_EQ(link->network.sent.empty(), GetParam()) << "the local path has no frames";
        for (const roce::Packet& packet : link->network.sent) EXPECT_EQ(packet.vlan_tci, tag);
    }
    [[nodiscard]] std::uint64_t foreign_at_b() const {
        return link->b.node->rnic.counters().drop_address.value();
    }
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtVlanTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtVlanTest, AConnectionHasTheTagOfItsEnds) {
    open_in(kRed);
    connect(kRedTag, kRedTag);
    EXPECT_EQ(write(), 0);
    EXPECT_TRUE(link->same(0, 0x80000, 3000));
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_READ, 0x40000, 3000, 0x80000)).status, 0);
    expect_tags(kRedTag);
}

TEST_P(ExtVlanTest, EachEndHasItsOwnPriority) {
    open_in(kRed);
    connect(kRedTag, 2 << 13 | kRed);
    EXPECT_EQ(write(), 0);
    for (const roce::Packet& packet : link->network.sent)
        EXPECT_EQ(packet.vlan_tci, packet.info().response ? 2 << 13 | kRed : kRedTag);
}

TEST_P(ExtVlanTest, EndsInTwoVlansNeverMeet) {
    const std::pair<std::uint16_t, std::uint16_t> pairs[] = {
        {kRed, kBlue}, {kBlue, kRed}, {kRed, 0}, {0, kRed}};
    for (const auto& [vlan_a, vlan_b] : pairs) {
        SCOPED_TRACE(vlan_a);
        open_in(vlan_b);
        ASSERT_TRUE(link->a.host->config_address({link->a.node->host.gid(), vlan_a}, true));
        connect(vlan_a, vlan_b);
        EXPECT_EQ(write(), 12) << "retries exceeded";
        // Without a peer on the local path they are frames.
        EXPECT_GT(foreign_at_b(), 0U);
        ASSERT_FALSE(link->network.sent.empty());
        EXPECT_EQ(link->network.sent[0].vlan_tci,
                  vlan_a == 0 ? std::nullopt : std::optional(vlan_a));
    }
}

/// Both adapters are in both VLANs, so only the queue pair can tell.
TEST_P(ExtVlanTest, AConnectionTakesNothingFromAnotherVlan) {
    open_in(kRed);
    for (ExtLink::Side* const side : {&link->a, &link->b})
        ASSERT_TRUE(side->host->config_address({side->node->host.gid(), kBlue}, true));
    connect(kRed, kBlue);
    EXPECT_EQ(write(), 12);
}

TEST_P(ExtVlanTest, TheSameAddressIsServedInTheVlansItIsIn) {
    open_in(kRed);
    const roce::Gid gid = link->b.node->host.gid();
    const rnic::Rnic& rnic = link->b.node->rnic;
    EXPECT_TRUE(rnic.owns({gid, kRed}));
    EXPECT_FALSE(rnic.owns({gid, kBlue}));
    EXPECT_FALSE(rnic.owns(gid));
    ASSERT_TRUE(link->b.host->config_address({gid, kBlue}, true));
    ASSERT_TRUE(link->b.host->config_address({gid, kRed}, false));
    EXPECT_FALSE(rnic.owns({gid, kRed}));
    EXPECT_TRUE(rnic.owns({gid, kBlue}));
}

TEST_P(ExtVlanTest, WithoutAVlanTheExtensionSaysWhatThePublicCommandsSay) {
    open_in(0);
    connect(7 << 13, 0);
    EXPECT_EQ(write(), 0);
    expect_tags(std::nullopt);
}

TEST_P(ExtVlanTest, IdsThatDoNotExistAreRefused) {
    open_in(kRed);
    const roce::Gid gid = link->a.node->host.gid();
    for (const std::uint16_t vlan : {0xfff, 0x1064, 0xffff}) {
        EXPECT_FALSE(link->a.host->config_address({gid, vlan}, true)) << vlan;
        EXPECT_EQ(link->a.host->status, gdma::kHwcInvalidParameter);
        ExtPath path;
        path.tci = vlan;
        EXPECT_FALSE(
            link->a.host->connect(link->a.qp, ExtLink::kPsn, ExtLink::peer(link->b), path));
    }
    EXPECT_FALSE(link->a.host->config_address({gid, kBlue}, false));
    EXPECT_EQ(link->a.host->status, gdma::kHwcNotFound);
    mana_hw_ext_config_address_req odd{};
    odd.operation = 3;
    EXPECT_EQ(link->a.host->call(MANA_HW_EXT_CONFIG_ADDRESS, odd).status,
              gdma::kHwcInvalidParameter);
    Request nobody(MANA_HW_EXT_SET_QP_STATE, sizeof(mana_hw_ext_set_qp_state_req), 32,
                   MANA_HW_RNIC_DEVICE_TYPE, 3);
    nobody.put<std::uint64_t>(40, link->a.node->host.adapter).put<std::uint64_t>(48, 1);
    EXPECT_EQ(link->a.node->host.call(nobody.fit()).status, gdma::kHwcNotFound);
}

TEST_P(ExtVlanTest, ADatagramSaysInWhichVlanItCame) {
    open_datagrams(kRed);
    EXPECT_TRUE(arrives(datagram(kRedTag)));
    EXPECT_EQ(link->received.back().vlan, kRedTag);
    expect_tags(kRedTag);
    EXPECT_FALSE(arrives(datagram(0))) << "from an address that A has not";
    EXPECT_FALSE(arrives(datagram(kBlue)));
    EXPECT_EQ(link->a.node->rnic.counters().drop_source.value(), 2U);
    ASSERT_TRUE(link->a.node->host.config_address(link->a.node->host.gid(), true));
    ASSERT_TRUE(link->a.host->config_address({link->a.node->host.gid(), kBlue}, true));
    EXPECT_FALSE(arrives(datagram(0))) << "to an address that B has not";
    EXPECT_FALSE(arrives(datagram(kBlue)));
    ASSERT_TRUE(link->b.node->host.config_address(link->b.node->host.gid(), true));
    EXPECT_TRUE(arrives(datagram(0)));
    EXPECT_EQ(link->received.back().vlan, 0);
    EXPECT_TRUE(arrives(datagram(kRedTag))) << "both at once";
}

TEST_P(ExtVlanTest, NothingIsMarkedAsTheFirstToBeDropped) {
    open_datagrams(kRed);
    EXPECT_TRUE(arrives(datagram(kRedTag | 1U << 12)));
    EXPECT_EQ(link->received.back().vlan, kRedTag);
    expect_tags(kRedTag);
}

/// A tag that has a priority alone says nothing of a VLAN (802.1Q).
TEST_P(ExtVlanTest, APriorityTagIsNoVlan) {
    open_datagrams(0);
    if (GetParam()) return;  // nobody of ours sends one
    link->network.edit = [](roce::Packet& packet) { packet.vlan_tci = 6 << 13; };
    EXPECT_TRUE(arrives(datagram(0)));
    EXPECT_EQ(link->received.back().vlan, 0);
}

TEST_P(ExtVlanTest, AGrantIsForOneVlan) {
    open_datagrams(kRed);
    RdmaHost& host = link->a.node->host;
    const auto pd = host.hwc().create_pd(false, MANA_HW_EXT_PD_GRANTED_SOURCES);
    ASSERT_TRUE(pd.has_value());
    host.pd = *pd;
    ExtQpOptions options;
    options.type = MANA_HW_EXT_QP_UD;
    link->a.qp = *link->a.host->create_qp(link->a.send_cq, link->a.recv_cq, options);
    link->a.mr = *host.hwc().create_mr(*pd, link->a.buffer, ExtLink::kMr, ExtLink::kAll);
    ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
    for (ExtLink::Side* const side : {&link->a, &link->b})
        ASSERT_TRUE(side->host->config_address({side->node->host.gid(), kBlue}, true));
    ASSERT_TRUE(link->a.host->grant_source(*pd, {host.gid(), kBlue}, 3));
    EXPECT_FALSE(arrives(datagram(kRed)));
    EXPECT_EQ(link->a.node->rnic.counters().drop_foreign_source.value(), 1U);
    EXPECT_TRUE(arrives(datagram(kBlue)));
    EXPECT_FALSE(link->a.host->grant_source(*pd, {host.gid(), 0xfff}, 3));
    EXPECT_EQ(link->a.host->status, gdma::kHwcInvalidParameter);
}

TEST_P(ExtVlanTest, AGroupIsHeardInTheVlansOfTheAdapter) {
    open_datagrams(kRed);
    roce::Gid group{};
    group[10] = group[11] = 0xff;
    group[12] = 239;
    group[15] = 7;
    if (over_ipv6()) {
        group = {};
        group[0] = 0xff;
        group[15] = 7;
    }
    ASSERT_TRUE(link->b.host->multicast(link->b.qp, group, true));
    EXPECT_TRUE(arrives(to_group(group, kRedTag)));
    EXPECT_EQ(link->received.back().vlan, kRedTag);
    ASSERT_TRUE(link->a.host->config_address({link->a.node->host.gid(), kBlue}, true));
    EXPECT_FALSE(arrives(to_group(group, kBlue)));
    EXPECT_EQ(foreign_at_b(), 1U);
    ASSERT_TRUE(link->b.host->config_address({link->b.node->host.gid(), kBlue}, true));
    EXPECT_TRUE(arrives(to_group(group, kBlue)));
}

}  // namespace
}  // namespace openmana::test
