// SPDX-License-Identifier: Apache-2.0
#include <mana/eth.h>

#include <algorithm>

#include "fixture.h"
#include "support/hex.h"

namespace openmana::eth::test {
namespace {

using openmana::test::Request;
using openmana::test::Response;
using openmana::test::RxConfig;

class EthCommands : public EthTest {
protected:
    Response call(std::uint32_t opcode, std::size_t size, std::uint32_t room,
                  std::uint16_t response_version = 1) {
        return driver.call(Request(opcode, size, room, 2, 1, response_version)
                               .put<std::uint64_t>(40, guest.vport));
    }
    std::uint64_t region(std::uint32_t bytes) {
        return *driver.create_region(driver.alloc_ring(bytes));
    }
};

TEST_F(EthCommands, DevConfigEchoesTheVersionUpTo3) {
    for (const std::uint16_t version : {1, 2, 3, 4}) {
        const auto reply =
            driver.call(Request(MANA_HW_ETH_QUERY_DEV_CONFIG, 88, 80, 2, 1, version));
        ASSERT_TRUE(reply.ok());
        EXPECT_EQ(reply.get<std::uint16_t>(8), std::min<std::uint16_t>(version, 3));
        EXPECT_EQ(reply.get<std::uint32_t>(12), 80U);
        EXPECT_EQ(reply.get<std::uint16_t>(0x40), 1);
        EXPECT_EQ(reply.get<std::uint8_t>(0x42), 0);
        EXPECT_EQ(reply.get<std::uint16_t>(0x48), 9014);
    }
}

TEST_F(EthCommands, VportConfig) {
    const auto reply = driver.call(Request(MANA_HW_ETH_QUERY_VPORT_CONFIG, 44, 64, 2));
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(openmana::test::to_hex(std::span(reply.bytes).subspan(0x20, 0x18)),
              "40000000400000004000000000000000"
              "02155d0123450000");
    EXPECT_NE(reply.get<std::uint64_t>(0x38), ~0ULL);
    EXPECT_FALSE(
        driver.call(Request(MANA_HW_ETH_QUERY_VPORT_CONFIG, 44, 64, 2).put<std::uint32_t>(40, 1))
            .ok());
}

TEST_F(EthCommands, UnknownAndPfOpcodesAreUnsupported) {
    for (const std::uint32_t opcode :
         {0x20000U, 0x20009U, 0x2000dU, 0x28000U, 0x28001U, 0x28003U, 0x28004U}) {
        const auto reply = call(opcode, 72, 40);
        EXPECT_EQ(reply.status, 0xffffffffU) << opcode;
    }
}

TEST_F(EthCommands, ShortRequestsFail) {
    for (const std::uint32_t opcode :
         {MANA_HW_ETH_QUERY_VPORT_CONFIG, MANA_HW_ETH_CONFIG_VPORT_TX, MANA_HW_ETH_CREATE_WQ_OBJ,
          MANA_HW_ETH_DESTROY_WQ_OBJ, MANA_HW_ETH_FENCE_RQ, MANA_HW_ETH_CONFIG_VPORT_RX,
          MANA_HW_ETH_QUERY_LINK_CONFIG, MANA_HW_ETH_SET_BW_CLAMP}) {
        EXPECT_FALSE(driver.call(Request(opcode, 40, 64, 2)).ok()) << opcode;
    }
}

TEST_F(EthCommands, VportTxNeedsPdPageAndVport) {
    const auto reply = guest.config_tx(guest.device.pd, guest.device.page);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.bytes.size(), 36U);
    EXPECT_EQ(reply.get<std::uint16_t>(0x20), 0);  // vPort offset
    EXPECT_EQ(reply.get<std::uint8_t>(0x22), 1);   // short form allowed
    EXPECT_FALSE(guest.config_tx(9999, guest.device.page).ok());
    EXPECT_FALSE(guest.config_tx(guest.device.pd, 1000000).ok());
    ++guest.vport;
    EXPECT_FALSE(guest.config_tx(guest.device.pd, guest.device.page).ok());
}

TEST_F(EthCommands, CreateBeforeVportTxFails) {
    EXPECT_FALSE(guest.create_tx());
}

TEST_F(EthCommands, FailedCreateLeavesBothRegions) {
    ASSERT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    const auto wq = region(8192);
    const auto cq = region(4096);
    const auto none = MANA_HW_ETH_NO_EQ;
    EXPECT_FALSE(guest.create_wq(3, wq, cq, 8192, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, wq, 8192, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 16384, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 8192, 8192, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 0, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 8192, 0, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 8191, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 8192, 4095, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, 0x123456, 8192, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, 0x123456, cq, 8192, 4096, none).ok());
    EXPECT_FALSE(guest.create_wq(1, wq, cq, 8192, 4096, 999).ok());
    ASSERT_TRUE(guest.create_wq(1, wq, cq, 8192, 4096, none).ok());
    EXPECT_FALSE(driver.destroy_region(wq));
    EXPECT_FALSE(driver.destroy_region(cq));
}

TEST_F(EthCommands, CreateGivesIdsAndHandle) {
    ASSERT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    const auto a = guest.create_wq(1, region(4096), region(4096), 4096, 4096, MANA_HW_ETH_NO_EQ);
    const auto b = guest.create_wq(1, region(4096), region(4096), 4096, 4096, MANA_HW_ETH_NO_EQ);
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a.bytes.size(), 48U);
    EXPECT_NE(a.get<std::uint32_t>(32), b.get<std::uint32_t>(32));
    EXPECT_NE(a.get<std::uint32_t>(36), b.get<std::uint32_t>(36));
    EXPECT_NE(a.get<std::uint64_t>(40), b.get<std::uint64_t>(40));
    EXPECT_NE(a.get<std::uint64_t>(40), ~0ULL);
}

/// As the driver of 7.3 sends it (GDMA 6.6).
TEST_F(EthCommands, CreateOfVersion3ModeratesTheCq) {
    ASSERT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    const auto create = [&](std::uint16_t version, std::uint8_t wanted, std::uint16_t completions,
                            std::uint16_t usec) {
        return driver.call(Request(MANA_HW_ETH_CREATE_WQ_OBJ, 96, 56, 2, version, 2)
                               .put<std::uint64_t>(40, guest.vport)
                               .put<std::uint32_t>(48, 1)
                               .put<std::uint64_t>(56, region(4096))
                               .put<std::uint64_t>(64, region(4096))
                               .put<std::uint32_t>(72, 4096)
                               .put<std::uint32_t>(76, 4096)
                               .put<std::uint32_t>(84, MANA_HW_ETH_NO_EQ)
                               .put<std::uint8_t>(89, wanted)
                               .put<std::uint16_t>(90, completions)
                               .put<std::uint16_t>(92, usec));
    };
    const auto moderation = [&](const Response& response) {
        return function.cqs().find(gdma::Cqn(response.get<std::uint32_t>(36)))->moderation();
    };
    const auto made = create(3, 1, 32, 64);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made.bytes.size(), 56U);
    EXPECT_EQ(made.get<std::uint16_t>(48), 32);
    EXPECT_EQ(made.get<std::uint16_t>(50), 64);
    EXPECT_EQ(made.get<std::uint8_t>(52), 1);
    EXPECT_EQ(moderation(made).usec, 64);
    EXPECT_EQ(moderation(made).completions, 32);
    // What the doorbell could not carry is the most that it can.
    EXPECT_EQ(moderation(create(3, 1, 999, 9999)).usec, 1023);
    EXPECT_EQ(moderation(create(3, 1, 999, 9999)).completions, 255);
    EXPECT_EQ(moderation(create(3, 0, 32, 64)).usec, 0);
    EXPECT_EQ(moderation(create(2, 1, 32, 64)).usec, 0) << "no field of version 2";
}

TEST_F(EthCommands, QueuesAreLimited) {
    ASSERT_TRUE(guest.config_tx(guest.device.pd, guest.device.page).ok());
    for (int i = 0; i < 64; ++i) {
        ASSERT_TRUE(guest.create_tx(4096, 4096)) << i;
        ASSERT_TRUE(guest.create_rx(1514, 4096, 4096)) << i;
    }
    EXPECT_FALSE(guest.create_tx(4096, 4096));
    EXPECT_FALSE(guest.create_rx(1514, 4096, 4096));
}

TEST_F(EthCommands, DestroyChecksTypeAndHandle) {
    up();
    EXPECT_FALSE(guest.destroy(MANA_HW_ETH_RQ, guest.tx[0].object).ok());
    EXPECT_FALSE(guest.destroy(MANA_HW_ETH_SQ, guest.rx[0].object).ok());
    EXPECT_FALSE(guest.destroy(3, guest.tx[0].object).ok());
    EXPECT_TRUE(guest.destroy(MANA_HW_ETH_SQ, guest.tx[0].object).ok());
    EXPECT_FALSE(guest.destroy(MANA_HW_ETH_SQ, guest.tx[0].object).ok());
}

TEST_F(EthCommands, NothingTouchesTheRingsAfterDestroy) {
    up();
    const auto tx = guest.tx[0];
    auto rx = guest.rx[0];
    ASSERT_TRUE(guest.down());
    (void)rx.cq.drain();  // fences
    driver.ring_sq(guest.device.page, tx.sq.id, 32);
    driver.ring_rq(guest.device.page, rx.rq.id, 4096);
    eth.receive(tcp({.destination_mac = kOwnMac}, {}));
    world.run_until_idle();
    EXPECT_TRUE(rx.cq.drain().empty());
    EXPECT_TRUE(sink.frames.empty());
}

TEST_F(EthCommands, UpAndDownAgain) {
    for (int i = 0; i < 3; ++i) {
        up(4);
        ASSERT_TRUE(guest.down());
    }
    EXPECT_TRUE(driver.deregister_device(2));
}

TEST_F(EthCommands, VportRxReplyHasTheSizeAskedFor) {
    up();
    RxConfig config;
    config.default_rq = guest.rx[0].object;
    config.room = 32;
    auto reply = guest.config_rx(config);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.bytes.size(), 32U);
    EXPECT_EQ(reply.get<std::uint16_t>(8), 1);
    config.room = 40;
    reply = guest.config_rx(config);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.bytes.size(), 40U);
    EXPECT_EQ(reply.get<std::uint16_t>(8), 2);
}

TEST_F(EthCommands, VportRxChecksBeforeItChanges) {
    up();
    RxConfig config;
    config.default_rq = 0xdead;
    config.enable = false;
    EXPECT_FALSE(guest.config_rx(config).ok());
    config.default_rq = guest.rx[0].object;
    config.table = std::vector<std::uint64_t>(64, guest.rx[0].object);
    config.table->back() = guest.tx[0].object;
    EXPECT_FALSE(guest.config_rx(config).ok());
    config.table->back() = guest.rx[0].object;
    config.table_entries = 48;
    config.table->resize(48);
    EXPECT_FALSE(guest.config_rx(config).ok());
    // A table beyond the message.
    Request request(MANA_HW_ETH_CONFIG_VPORT_RX, 120 + 8, 40, 2, 2, 2);
    request.put<std::uint64_t>(40, guest.vport)
        .put<std::uint16_t>(48, 64)
        .put<std::uint16_t>(50, 120);
    request.put<std::uint8_t>(62, 1);
    EXPECT_FALSE(driver.call(request).ok());
    // And one that begins in the headers.
    Request inside(MANA_HW_ETH_CONFIG_VPORT_RX, 120 + 8, 40, 2, 2, 2);
    inside.put<std::uint64_t>(40, guest.vport).put<std::uint16_t>(48, 1).put<std::uint16_t>(50, 64);
    inside.put<std::uint64_t>(64, guest.rx[0].object).put<std::uint8_t>(62, 1);
    EXPECT_FALSE(driver.call(inside).ok());
    // Still enabled.
    EXPECT_TRUE(receive(tcp({.destination_mac = kOwnMac}, {})));
}

TEST_F(EthCommands, LinkConfigAndClamp) {
    auto reply = call(MANA_HW_ETH_QUERY_LINK_CONFIG, 48, 48, 2);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.get<std::uint32_t>(0x20), 100000U);
    EXPECT_EQ(reply.get<std::uint8_t>(0x24), 0);
    EXPECT_EQ(reply.get<std::uint32_t>(0x28), 100000U);
    const auto clamp = [&](std::uint32_t set, std::uint32_t speed) {
        return driver.call(Request(MANA_HW_ETH_SET_BW_CLAMP, 56, 40, 2)
                               .put<std::uint64_t>(40, guest.vport)
                               .put<std::uint32_t>(48, set)
                               .put<std::uint32_t>(52, speed));
    };
    EXPECT_TRUE(clamp(1, 2500).ok());
    EXPECT_EQ(call(MANA_HW_ETH_QUERY_LINK_CONFIG, 48, 48, 2).get<std::uint32_t>(0x28), 2500U);
    EXPECT_FALSE(clamp(1, 0).ok());
    EXPECT_FALSE(clamp(1, 200000).ok());
    EXPECT_TRUE(clamp(0, 0).ok());
    EXPECT_EQ(call(MANA_HW_ETH_QUERY_LINK_CONFIG, 48, 48, 2).get<std::uint32_t>(0x28), 100000U);
}

TEST_F(EthCommands, StatisticsAreWhereTheDriverLooks) {
    up();
    Flow in = flow4();
    in.destination_mac = kOwnMac;
    const Bytes unicast = tcp(in, pattern(100));
    in.destination_mac = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const Bytes broadcast =
        udp({.protocol = 17, .destination_mac = in.destination_mac}, pattern(30));
    in.destination_mac = {0x33, 0x33, 0, 0, 0, 1};
    const Bytes multicast =
        udp({.protocol = 17, .destination_mac = in.destination_mac}, pattern(40));
    ASSERT_TRUE(receive(unicast) && receive(broadcast) && receive(multicast) && receive(multicast));
    guest.send(guest.tx[0], tcp(flow4(), pattern(5)));
    guest.send(guest.tx[0], tcp({.source_mac = kPeerMac}, {}));

    const auto reply = call(MANA_HW_ETH_QUERY_GF_STAT, 48, 256, 2);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.bytes.size(), 256U);
    const auto at = [&](std::size_t offset) { return reply.get<std::uint64_t>(offset); };
    const std::uint64_t total = unicast.size() + broadcast.size() + 2 * multicast.size();
    EXPECT_EQ(at(0x38), total);
    EXPECT_EQ(at(0x40), 1U);
    EXPECT_EQ(at(0x48), unicast.size());
    EXPECT_EQ(at(0x50), 1U);
    EXPECT_EQ(at(0x58), broadcast.size());
    EXPECT_EQ(at(0x60), 2U);
    EXPECT_EQ(at(0x68), 2 * multicast.size());
    EXPECT_EQ(at(0x98), 1U);  // source address
    EXPECT_EQ(at(0xc0), 59U);
    EXPECT_EQ(at(0xc8), 1U);
    EXPECT_EQ(at(0xd0), 59U);

    const auto phy = call(MANA_HW_ETH_QUERY_PHY_STAT, 48, 440);
    ASSERT_TRUE(phy.ok());
    EXPECT_EQ(phy.bytes.size(), 440U);
    EXPECT_EQ(phy.get<std::uint64_t>(0x38), 4U);
    EXPECT_EQ(phy.get<std::uint64_t>(0x40), 1U);
    EXPECT_EQ(phy.get<std::uint64_t>(0xb8), total);
    EXPECT_EQ(phy.get<std::uint64_t>(0xc0), 59U);
}

TEST_F(EthCommands, ResetDropsEverything) {
    up(2);
    function.reset();
    eth.receive(tcp({.destination_mac = kOwnMac}, {}));
    EXPECT_EQ(eth.counters().rx_disabled.value(), 1U);
    openmana::test::HwcDriver again(function, ram, irq);
    ASSERT_TRUE(again.bring_up());
    openmana::test::EthGuest second(again);
    ASSERT_TRUE(second.probe());
    EXPECT_FALSE(second.create_tx());  // the binding is gone too
    ASSERT_TRUE(second.up(2));
}

TEST_F(EthCommands, LinkChangeIsReported) {
    EXPECT_TRUE(eth.link());
    eth.set_link(false);
    eth.set_link(false);
    (void)driver.call(Request(MANA_HW_ETH_QUERY_VPORT_CONFIG, 44, 64, 2));
    ASSERT_EQ(driver.events.size(), 1U);
    EXPECT_EQ(driver.events[0].type, 133);
    EXPECT_EQ(driver.events[0].data[0], 3U << 24);
    eth.set_link(true);
    EXPECT_TRUE(eth.link());
}

}  // namespace
}  // namespace openmana::eth::test
