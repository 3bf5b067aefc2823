// SPDX-License-Identifier: Apache-2.0
// Addresses of interfaces with MAC addresses of their own (docs/extensions.md, "MAC addresses").
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

constexpr base::MacAddr kPod{2, 0, 0, 0, 1, 0xa};

class ExtMacTest : public ExtVerbsTest {
protected:
    /// A's address is reached by the MAC address of an interface of its guest.
    void open_by(const base::MacAddr& mac, ExtLink::Options options = ExtLink::Options()) {
        options.connect = false;
        open(options);
        const roce::Gid gid = link->a.node->host.gid();
        ASSERT_TRUE(link->a.node->host.config_address(gid, false));
        ASSERT_TRUE(link->a.host->config_address(gid, mac, true));
    }
    void expect_source(const base::MacAddr& mac) {
        ASSERT_FALSE(link->network.sent.empty());
        for (const roce::Packet& packet : link->network.sent) {
            if (packet.source == link->a.node->host.gid()) {
                EXPECT_EQ(packet.source_mac, mac);
            }
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtMacTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

TEST_P(ExtMacTest, ADatagramLeavesByTheMacAddressOfItsSource) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UD;
    open_by(kPod, options);
    ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
    ASSERT_TRUE(link->b.host->start_datagrams(link->b.qp, 0x1234));
    link->network.sent.clear();
    const ExtWr wr = datagram(0, 100, 0x1234);
    link->b.recv(1, 0x80000, 1000);
    link->a.post(wr);
    EXPECT_TRUE(link->run(1));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    expect_source(kPod);
}

TEST_P(ExtMacTest, MacAddressesOfGroupsAreRefused) {
    open_by(kPod);
    const roce::Gid gid = link->a.node->host.gid();
    EXPECT_FALSE(link->a.host->config_address(gid, {1, 0, 0x5e, 0, 0, 1}, true));
    EXPECT_EQ(link->a.host->status, gdma::kHwcInvalidParameter);
    EXPECT_FALSE(link->a.host->config_address(gid, {2, 0, 0, 0, 1, 0xb}, false));
    EXPECT_EQ(link->a.host->status, gdma::kHwcNotFound) << "it is not reached by that one";
    EXPECT_TRUE(link->a.host->config_address(gid, {}, true)) << "zeros are the adapter's own";
    EXPECT_TRUE(link->a.node->host.config_address(gid, false));
    EXPECT_TRUE(link->a.host->config_address(gid, kPod, false));
    EXPECT_FALSE(link->a.node->rnic.owns(gid));
}

}  // namespace
}  // namespace openmana::test
