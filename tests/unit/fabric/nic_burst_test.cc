// SPDX-License-Identifier: Apache-2.0
// Frames that a NIC's devices send in one turn leave together: what that may not change.
#include <mana/ext.h>

#include "base/endian.h"
#include "support/ext_host.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

using ::openmana::test::ExtHost;
using ::openmana::test::ipv4_gid;

class NicBurstTest : public NicTest {
protected:
    NicBurstTest() {
        network.set_tap(tap);  // all RDMA is frames
        PolicyConfig any;
        any.any_mac = true;
        policy(c, any);
        policy(d, any);
    }
    bool post(Machine& from, HostQp& qp, Machine& to, bool ring = true) {
        SendWr request;
        request.opcode = MANA_HW_RNIC_WQE_WRITE;
        request.id = ++posted;
        request.sges = {{from.buffer.value(), gdma::Key(from.mr.lkey), 8}};
        request.remote_address = to.buffer.value();
        request.rkey = to.mr.rkey;
        return from.host.post_send(qp, request, ring);
    }
    std::uint64_t sent(Machine& machine) { return counter(machine, "fabric.port.tx_frames"); }
    /// What C sends stays under way from now on.
    void mute() {
        d.nic.set_link(false);
        world.run_until_idle();
        before = sent(c);
    }
    std::uint64_t sent_by_c() { return sent(c) - before; }

    CountingTap tap;
    Machine c{world, network, 3, 0, true};
    Machine d{world, network, 4, 0, true};
    std::uint64_t posted = 0;
    std::uint64_t before = 0;
};

/// Else the switch would learn the address where it is no more, and keep its next owner from it.
TEST_F(NicBurstTest, LeavesBeforeTheRightToItsMacAddressEnds) {
    static constexpr base::MacAddr kPod{2, 0, 0, 0, 0, 0xc};
    for (Machine* const one : {&c, &d}) ASSERT_TRUE(one->host.reset(*one->qp));
    ASSERT_TRUE(ExtHost(c.host).config_address(c.host.gid(), kPod, true));
    ASSERT_TRUE(c.host.config_address(c.host.gid(), false));
    c.host.tamper = [this](Request& request) {
        constexpr std::size_t kCode = 4, kGid = 104, kSourceMac = 136;  // of SET_QP_STATE
        if (base::load_le<std::uint32_t>(request.bytes.data() + kCode) != MANA_HW_RNIC_SET_QP_STATE)
            return;
        const auto gid = c.host.gid();
        for (std::size_t i = 0; i < gid.size(); ++i)
            request.put<std::uint8_t>(kGid + i, gid[gid.size() - 1 - i]);
        for (std::size_t i = 0; i < kPod.size(); ++i)
            request.put<std::uint8_t>(kSourceMac + i, kPod[kPod.size() - 1 - i]);
    };
    Peer by = c.as_peer(0x100);
    by.mac = kPod;
    ASSERT_TRUE(d.host.connect(*d.qp, 0x900, by, 1024));
    ASSERT_TRUE(c.host.connect(*c.qp, 0x100, d.as_peer(0x900), 1024));
    world.run_until_idle();
    const std::uint64_t begin = sent(c);
    ASSERT_TRUE(post(c, *c.qp, d));
    c.executor.post([&] { c.nic.path().set_policy(std::nullopt, nullptr, {}); });
    world.run_until_idle();
    EXPECT_GT(sent(c), begin);
    EXPECT_TRUE(network.learned_at(c.nic).empty());
    EXPECT_TRUE(ExtHost(d.host).config_address(ipv4_gid(77), kPod, true));
}

TEST_F(NicBurstTest, TakesWhatAllQueuePairsHaveGatheredByThen) {
    connect(c, d);
    const auto from = c.host.create_rc(c.send_cq, c.recv_cq, 16384, 4096);
    const auto to = d.host.create_rc(d.send_cq, d.recv_cq, 16384, 4096);
    ASSERT_TRUE(d.host.connect(*to, 0x900, {c.host.gid(), c.host.mac(), from->qpn(), 0x100}, 1024));
    ASSERT_TRUE(c.host.connect(*from, 0x100, {d.host.gid(), d.host.mac(), to->qpn(), 0x900}, 1024));
    world.run_until_idle();
    mute();
    ASSERT_TRUE(post(c, *c.qp, d));
    world.advance(10us);
    ASSERT_TRUE(post(c, *from, d));
    world.advance(2us);
    EXPECT_EQ(sent_by_c(), 2U);
    ASSERT_TRUE(post(c, *c.qp, d));
    ASSERT_TRUE(post(c, *from, d));
    world.advance(7us);
    EXPECT_EQ(sent_by_c(), 2U);
    world.advance(1us);
    EXPECT_EQ(sent_by_c(), 4U) << "20 us after the first burst, though not after the second";
}

TEST_F(NicBurstTest, WhatATurnIsTooShortForWaitsForNoMore) {
    connect(c, d);
    mute();
    ASSERT_TRUE(post(c, *c.qp, d));
    world.run_until_idle();
    EXPECT_EQ(sent_by_c(), 1U);
    constexpr unsigned kPosted = 70;
    for (unsigned i = 1; i <= kPosted; ++i) ASSERT_TRUE(post(c, *c.qp, d, i == kPosted));
    world.run_until_idle();
    EXPECT_EQ(sent_by_c(), 1 + kPosted);
}

}  // namespace
}  // namespace openmana::fabric::nic_test
