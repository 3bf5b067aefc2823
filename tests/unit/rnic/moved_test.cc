// SPDX-License-Identifier: Apache-2.0
// What a NIC writes of itself is taken by the one that goes on (docs/state.md), whatever its guest
// and its peers have brought its queue pairs to: else one of them could keep all from an upgrade.
#include <mana/ext.h>

#include "ext_fixture.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

TEST(MovedExtQpTest, ThatFailedInTheMiddleOfAMessage) {
    ExtLink link(false);
    link.b.recv(1, 0x80000, 1500);
    link.a.post(link.wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    ASSERT_TRUE(link.run(1, 1));
    EXPECT_NE(link.received[0].status, MANA_HW_WC_SUCCESS) << "the second packet was too much";
    EXPECT_EQ(link.b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_EQ(link.b.node->move(), "");
    EXPECT_EQ(link.b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
}

class MovedQpTest : public WireCase {};

/// The first one is sent again, and its memory has gone by then.
TEST_F(MovedQpTest, WhoseRequestFailedWithOthersBehindIt) {
    open();
    link->network.fate = [](const roce::Packet&) { return Fate{true}; };
    write(1, 100);
    write(2, 100);
    link->idle();
    ASSERT_TRUE(link->a.node->host.hwc().destroy_mr(link->a.mr));
    link->idle(std::chrono::seconds(1));
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_TX_DATA_KEY});
    EXPECT_STREQ(link->a.state(), "ERR");
    EXPECT_EQ(link->a.node->move(), "");
    EXPECT_STREQ(link->a.state(), "ERR");
}

/// Of two parts, and ten packets of the first one are here.
TEST_F(MovedQpTest, WithALongReadUnderWay) {
    Connection::Options options;
    options.limits_a.reads_out = 2;
    open(options);
    link->network.fate = [](const roce::Packet& p) {
        Fate fate;
        fate.lose = p.info().response && p.psn >= roce::Psn(0x10a);
        return fate;
    };
    read(1, 600 * 1024);
    link->idle();
    EXPECT_EQ(link->frames(roce::Opcode::kReadRequest), 2U);
    EXPECT_EQ(link->a.node->move(), "");
    link->network.fate = {};
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 600 * 1024));
}

/// B has sent 64 packets of a READ of 256 when the network has no room; then its host wants larger
/// ones, of which the READ has 16.
TEST_F(MovedQpTest, ThatOwedDataWhenItsMtuChanged) {
    Connection::Options options;
    options.mtu = 256;
    options.limits_a.reads_out = 1;
    open(options);
    Node& b = *link->b.node;
    link->network.on_send = [&b](Node& from, const base::Frame&) {
        if (&from == &b) b.room = 0;
    };
    read(1, 256 * 256);
    link->idle();
    ASSERT_EQ(link->frames(roce::Opcode::kReadResponseMiddle), 63U);
    Request request(MANA_HW_RNIC_SET_QP_STATE, 184, 32, MANA_HW_RNIC_DEVICE_TYPE, 3);
    request.put<std::uint64_t>(40, b.host.adapter)
        .put<std::uint64_t>(48, link->b.qp->handle)
        .put<std::uint64_t>(56, MANA_HW_RNIC_ATTR_PATH_MTU)
        .put<std::uint32_t>(68, 5);  // 4096
    ASSERT_TRUE(b.host.call(request.fit()).ok());
    EXPECT_EQ(b.move(), "");
}

}  // namespace
}  // namespace openmana::test
