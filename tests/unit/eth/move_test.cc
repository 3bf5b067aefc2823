// SPDX-License-Identifier: Apache-2.0
// A vPort that goes on in another NIC: its state is written in mid-traffic and read into a fresh
// one, with the same guest before it.
#include <gtest/gtest.h>
#include <mana/eth.h>
#include <mana/ext_eth.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eth/receive_queue.h"
#include "eth/send_queue.h"
#include "fixture.h"
#include "support/current_function.h"
#include "support/hex.h"
#include "support/state_damage.h"

namespace openmana::eth::test {
namespace {

using base::StateReader;
using base::StateWriter;
using openmana::test::EthRx;
using openmana::test::for_each_damage;
using openmana::test::Request;
using openmana::test::Response;
using openmana::test::RxConfig;
using openmana::test::Written;

class EthMove : public testing::Test {
protected:
    /// A NIC before the guest's memory.
    struct Nic {
        Nic(EthMove& test, const EthernetConfig& config = {.mac = kOwnMac})
            : function(test.executor, memory, test.irq, {}), eth(function, config, sink) {
            OM_CHECK(memory.map_host(test.ram.start(),
                                     test.ram.bytes(test.ram.start(), test.ram.size())));
        }
        base::GuestMemory memory;
        gdma::Function function;
        Sink sink;
        EthernetDevice eth;
    };

    void SetUp() override {
        registers.function = &nic->function;
        driver = std::make_unique<openmana::test::HwcDriver>(registers, ram, irq);
        guest = std::make_unique<openmana::test::EthGuest>(*driver);
        ASSERT_TRUE(driver->bring_up());
        ASSERT_TRUE(guest->probe());
    }
    void up(std::uint32_t queues = 1, std::uint32_t buffers = 16) {
        ASSERT_TRUE(guest->up(queues, 1500, buffers));
    }
    [[nodiscard]] Written state() const {
        return openmana::test::written(world.now(),
                                       [&](StateWriter& out) { nic->function.save(out); });
    }
    /// The reason of a refusal, or "".
    std::string load(const std::vector<std::byte>& bytes, Nic& target) {
        const auto read = openmana::test::read_state(
            bytes, {}, world.now(), [&](StateReader& in) { (void)target.function.load(in); });
        return read ? "" : read.error().text;
    }
    /// The guest goes on with another NIC; this one is gone.
    void move() {
        const Written written = state();
        auto next = std::make_unique<Nic>(*this);
        ASSERT_EQ(load(written.bytes, *next), "");
        next->sink.frames = std::move(nic->sink.frames);
        nic = std::move(next);
        registers.function = &nic->function;
    }

    EthRx packet_rx(std::uint32_t buffers = 4) {
        guest->packets = true;
        auto rx = guest->create_rx(1600);
        guest->packets = false;
        OM_CHECK(rx);
        for (std::uint32_t i = 0; i < buffers; ++i) guest->post_buffer(*rx);
        return std::move(*rx);
    }
    /// Frames to a UDP port go to a packet queue or a spread.
    Response add_flow(std::uint64_t target, unsigned port, std::uint32_t priority = 0) {
        mana_hw_ext_flow_fields value{};
        mana_hw_ext_flow_fields mask{};
        value.dest_port[0] = static_cast<std::uint8_t>(port >> 8);
        value.dest_port[1] = static_cast<std::uint8_t>(port);
        std::fill_n(mask.dest_port, 2, std::uint8_t{0xff});
        return driver->call(Request(MANA_HW_EXT_ADD_FLOW, 168, 40, 2)
                                .put<std::uint64_t>(40, target)
                                .put<std::uint32_t>(48, priority)
                                .put(56, value)
                                .put(112, mask));
    }
    Response remove_flow(std::uint64_t flow) {
        return driver->call(
            Request(MANA_HW_EXT_REMOVE_FLOW, 48, 32, 2).put<std::uint64_t>(40, flow));
    }
    Response create_spread(const std::vector<std::uint64_t>& queues) {
        Request request(MANA_HW_EXT_CREATE_SPREAD, 600, 40, 2);
        request
            .put<std::uint32_t>(
                40, MANA_HW_EXT_SPREAD_SOURCE_PORT_UDP | MANA_HW_EXT_SPREAD_DEST_PORT_UDP)
            .put<std::uint32_t>(44, static_cast<std::uint32_t>(queues.size()));
        for (std::size_t i = 0; i < 40; ++i)
            request.put<std::uint8_t>(48 + i, static_cast<std::uint8_t>(3 * i + 1));
        for (std::size_t i = 0; i < queues.size(); ++i)
            request.put<std::uint64_t>(88 + 8 * i, queues[i]);
        return driver->call(request);
    }
    [[nodiscard]] static Bytes from_network(unsigned port, unsigned source_port = 1000) {
        Flow flow = flow4(17);
        flow.source_mac = kPeerMac;
        flow.destination_mac = kOwnMac;
        flow.source_port = source_port;
        flow.destination_port = port;
        return udp(flow, pattern(20));
    }
    [[nodiscard]] static Bytes to_network(unsigned number) {
        Flow flow = flow4(17);
        flow.source_port = number;
        return udp(flow, pattern(20));
    }
    /// Which of the queues gets the frame, or -1.
    int taker(std::vector<EthRx*> queues, const Bytes& frame) {
        nic->eth.receive(frame);
        int found = -1;
        for (std::size_t i = 0; i < queues.size(); ++i) {
            const auto done = guest->poll(*queues[i]);
            if (!done) continue;
            EXPECT_EQ(found, -1) << "two got it";
            EXPECT_EQ(done->frame, frame);
            found = static_cast<int>(i);
        }
        return found;
    }
    std::vector<EthRx*> interface_queues() {
        std::vector<EthRx*> all;
        for (EthRx& rx : guest->rx) all.push_back(&rx);
        return all;
    }

    openmana::test::SimWorld world;
    openmana::test::SimExecutor executor{world};
    base::GuestMemory of_driver;
    openmana::test::GuestRam ram{of_driver};
    openmana::test::FakeIrq irq;
    openmana::test::CurrentFunction registers;
    std::unique_ptr<Nic> nic = std::make_unique<Nic>(*this);
    std::unique_ptr<openmana::test::HwcDriver> driver;
    std::unique_ptr<openmana::test::EthGuest> guest;
};

TEST_F(EthMove, TheInterfaceSendsAndReceivesOn) {
    up(2);
    for (int round = 0; round < 3; ++round) {
        guest->send(guest->tx[1], to_network(5));
        ASSERT_EQ(nic->sink.frames.size(), 1U) << round;
        EXPECT_EQ(nic->sink.frames[0], to_network(5));
        nic->sink.frames.clear();
        const auto sent = guest->poll(guest->tx[1]);
        ASSERT_TRUE(sent) << round;
        EXPECT_EQ(sent->type, static_cast<std::uint32_t>(MANA_HW_ETH_CQE_TX_OK));
        EXPECT_EQ(sent->queue_id, guest->tx[1].sq.id);
        EXPECT_GE(taker(interface_queues(), from_network(7)), 0) << round;
        move();
    }
}

TEST_F(EthMove, AStateThatWasReadIsWrittenAlike) {
    up(2);
    nic->eth.receive(from_network(7));
    const auto first = state().bytes;
    EXPECT_EQ(state().bytes, first) << "writing changes nothing";
    move();
    EXPECT_EQ(state().bytes, first);
}

TEST_F(EthMove, FramesGoToTheQueuesThatTheyWentTo) {
    up(4, 64);
    std::vector<int> before;
    for (unsigned port = 0; port < 40; ++port)
        before.push_back(taker(interface_queues(), from_network(7, port)));
    EXPECT_NE(*std::ranges::min_element(before), *std::ranges::max_element(before));
    move();
    for (unsigned port = 0; port < 40; ++port)
        EXPECT_EQ(taker(interface_queues(), from_network(7, port)), before[port]) << port;
}

TEST_F(EthMove, ASendQueueGoesOnInTheMiddleOfItsRing) {
    up();
    // More than a queue sends in a turn: the rest has a turn of its own, which moves, too.
    constexpr unsigned kFrames = 3 * SendQueue::kWqesPerTurn;
    for (unsigned i = 0; i < kFrames; ++i) guest->post(guest->tx[0], to_network(i));
    guest->tx[0].sq.doorbell();
    EXPECT_EQ(nic->sink.frames.size(), SendQueue::kWqesPerTurn);
    move();
    world.run_until_idle();
    ASSERT_EQ(nic->sink.frames.size(), kFrames);
    for (unsigned i = 0; i < kFrames; ++i) EXPECT_EQ(nic->sink.frames[i], to_network(i)) << i;
    for (unsigned i = 0; i < kFrames; ++i) ASSERT_TRUE(guest->poll(guest->tx[0])) << i;
    EXPECT_FALSE(guest->poll(guest->tx[0]));
}

TEST_F(EthMove, AQueueThatHasFailedStaysSo) {
    up();
    guest->tx[0].sq.post_raw(std::vector<std::byte>(32, std::byte{0xff}));
    guest->tx[0].sq.doorbell();
    ASSERT_TRUE(guest->poll(guest->tx[0]));
    move();
    const auto ignored = nic->eth.counters().doorbell_ignored.value();
    guest->send(guest->tx[0], to_network(1));
    EXPECT_EQ(nic->eth.counters().doorbell_ignored.value(), ignored + 1);
    EXPECT_TRUE(nic->sink.frames.empty());
}

TEST_F(EthMove, PacketsOfOneCompletionAreToldTogether) {
    up();
    RxConfig config;
    config.default_rq = guest->rx[0].object;
    config.packets_per_cqe = 4;
    config.version = 5;
    ASSERT_TRUE(guest->config_rx(config).ok());
    nic->eth.receive(from_network(1));
    nic->eth.receive(from_network(1));
    EXPECT_FALSE(guest->poll_together(guest->rx[0]));
    move();
    nic->eth.receive(from_network(1));
    nic->eth.receive(from_network(1));
    const auto four = guest->poll_together(guest->rx[0]);
    ASSERT_TRUE(four);
    EXPECT_EQ(four->packets.size(), 4U);
}

TEST_F(EthMove, PacketsThatWaitForOthersDoNotWaitForEver) {
    up();
    RxConfig config;
    config.default_rq = guest->rx[0].object;
    config.packets_per_cqe = 4;
    config.version = 5;
    ASSERT_TRUE(guest->config_rx(config).ok());
    nic->eth.receive(from_network(1));
    nic->eth.receive(from_network(1));
    move();
    world.advance(ReceiveQueue::kTogether);
    const auto two = guest->poll_together(guest->rx[0]);
    ASSERT_TRUE(two);
    EXPECT_EQ(two->packets.size(), 2U);
}

TEST_F(EthMove, AFenceWaitsForItsBufferThere) {
    up(1, 0);  // its own fence waits already
    ASSERT_TRUE(guest->fence(guest->rx[0].object).ok());
    move();
    guest->post_buffer(guest->rx[0]);
    for (int i = 0; i < 2; ++i) {
        if (i == 1) guest->post_buffer(guest->rx[0]);
        const auto done = guest->poll(guest->rx[0]);
        ASSERT_TRUE(done) << i;
        EXPECT_EQ(done->type, static_cast<std::uint32_t>(MANA_HW_ETH_CQE_RX_FENCE));
    }
    EXPECT_FALSE(guest->poll(guest->rx[0]));
}

TEST_F(EthMove, NumbersAndHandlesAreTheGuests) {
    up();
    const auto tx_object = guest->tx[0].object;
    move();
    const auto next = guest->create_tx();
    ASSERT_TRUE(next) << "the vPort's setting is there";
    EXPECT_GT(next->object, guest->rx[0].object) << "no handle comes twice";
    EXPECT_NE(next->sq.id, guest->tx[0].sq.id);
    EXPECT_NE(next->cq.id, guest->tx[0].cq.id);
    EXPECT_TRUE(guest->destroy(MANA_HW_ETH_SQ, tx_object).ok());
    EXPECT_FALSE(guest->destroy(MANA_HW_ETH_SQ, tx_object).ok());
    EXPECT_TRUE(guest->destroy(MANA_HW_ETH_SQ, next->object).ok());
    guest->tx.clear();
    EXPECT_TRUE(guest->down());
    EXPECT_TRUE(driver->deregister_device(2)) << "nobody holds what has moved";
    EXPECT_TRUE(driver->shut_down());
}

TEST_F(EthMove, ShortDoorbellsCountOnFromTheLastOne) {
    up();
    guest->send(guest->tx[0], to_network(1));
    const gdma::Sqn sqn(guest->tx[0].sq.id);
    const gdma::Rqn rqn(guest->rx[0].rq.id);
    const auto sent = nic->function.sqs().position(sqn);
    const auto posted = nic->function.rqs().position(rqn);
    EXPECT_NE(sent, 0U);
    EXPECT_NE(posted, 0U);
    move();
    EXPECT_EQ(nic->function.sqs().position(sqn), sent);
    EXPECT_EQ(nic->function.rqs().position(rqn), posted);
}

TEST_F(EthMove, AQueueHoldsItsPdAndItsPageThere) {
    const auto pd = driver->create_pd();
    const auto page = driver->allocate_page();
    ASSERT_TRUE(guest->config_tx(pd->id, page).ok());
    ASSERT_TRUE(guest->create_tx(8192, 16384, page));
    move();
    EXPECT_FALSE(driver->destroy_pd(*pd));
    EXPECT_EQ(driver->last_status, gdma::kHwcBusy);
    EXPECT_FALSE(driver->free_page(page));
    EXPECT_EQ(driver->last_status, gdma::kHwcBusy);
}

TEST_F(EthMove, ASettingOfAPdThatEndedIsNone) {
    const auto pd = driver->create_pd();
    ASSERT_TRUE(guest->config_tx(pd->id, guest->device.page).ok());
    ASSERT_TRUE(driver->destroy_pd(*pd));
    move();
    EXPECT_FALSE(guest->create_tx());
    ASSERT_TRUE(guest->config_tx(guest->device.pd, guest->device.page).ok());
    EXPECT_TRUE(guest->create_tx());
}

TEST_F(EthMove, FlowRulesAndSpreadsMove) {
    up(1, 64);
    nic->eth.allow_packets(true);
    EthRx first = packet_rx(32);
    EthRx second = packet_rx(32);
    EthRx last = packet_rx(32);
    const auto spread = create_spread({first.object, second.object}).get<std::uint64_t>(32);
    const auto late = add_flow(last.object, 80, 9).get<std::uint64_t>(32);
    const auto soon = add_flow(spread, 80, 1).get<std::uint64_t>(32);
    ASSERT_TRUE(add_flow(last.object, 81).ok());
    const std::vector<EthRx*> queues = {&first, &second, &last, guest->rx.data()};
    std::vector<int> before;
    for (unsigned port = 0; port < 16; ++port)
        before.push_back(taker(queues, from_network(80, port)));
    EXPECT_EQ(std::ranges::count(before, 0) + std::ranges::count(before, 1), 16);
    EXPECT_NE(std::ranges::count(before, 0), 0);
    EXPECT_NE(std::ranges::count(before, 1), 0);
    move();
    for (unsigned port = 0; port < 16; ++port)
        EXPECT_EQ(taker(queues, from_network(80, port)), before[port]) << port;
    EXPECT_EQ(taker(queues, from_network(81)), 2);
    EXPECT_EQ(taker(queues, from_network(82)), 3) << "the interface's";
    ASSERT_TRUE(remove_flow(soon).ok());
    EXPECT_EQ(taker(queues, from_network(80)), 2) << "the later rule counts";
    ASSERT_TRUE(remove_flow(late).ok());
    EXPECT_EQ(taker(queues, from_network(80)), 3);
    EXPECT_GT(add_flow(spread, 83).get<std::uint64_t>(32), soon) << "no handle comes twice";
    EXPECT_GT(create_spread({first.object}).get<std::uint64_t>(32), spread);
}

TEST_F(EthMove, PlacesOfAQueueThatEndedStayEmpty) {
    up(1, 64);
    nic->eth.allow_packets(true);
    EthRx first = packet_rx(32);
    EthRx second = packet_rx(32);
    const auto spread = create_spread({first.object, second.object}).get<std::uint64_t>(32);
    ASSERT_TRUE(add_flow(spread, 80).ok());
    ASSERT_TRUE(guest->destroy(MANA_HW_ETH_RQ, second.object).ok());
    move();
    std::vector<int> takers;
    for (unsigned port = 0; port < 16; ++port)
        takers.push_back(taker({&first, guest->rx.data()}, from_network(80, port)));
    EXPECT_NE(std::ranges::count(takers, 0), 0);
    EXPECT_NE(std::ranges::count(takers, -1), 0) << "dropped";
    EXPECT_EQ(std::ranges::count(takers, 1), 0);
}

TEST_F(EthMove, WithoutTheExtensionThereIsNoneThere) {
    up();
    move();
    EXPECT_FALSE(nic->eth.packets_allowed());
    nic->eth.allow_packets(true);
    move();
    EXPECT_TRUE(nic->eth.packets_allowed());
    nic->function.reset();
    EXPECT_FALSE(nic->eth.packets_allowed());
}

TEST_F(EthMove, CountsGoOn) {
    up();
    guest->send(guest->tx[0], to_network(1));
    nic->eth.receive(from_network(1));
    const auto sent = nic->eth.counters().tx_bytes.value();
    const auto received = nic->eth.counters().rx_unicast_packets.value();
    EXPECT_NE(sent, 0U);
    EXPECT_NE(received, 0U);
    move();
    EXPECT_EQ(nic->eth.counters().tx_bytes.value(), sent);
    EXPECT_EQ(nic->eth.counters().rx_unicast_packets.value(), received);
}

TEST_F(EthMove, TheVportOfAnotherNicIsRefused) {
    up();
    const auto bytes = state().bytes;
    Nic other_mac(*this, {.mac = kPeerMac});
    EXPECT_EQ(load(bytes, other_mac), "vPort of another NIC");
    Nic shorter(*this, {.mac = kOwnMac, .max_mtu = 1500});
    EXPECT_EQ(load(bytes, shorter), "vPort of another NIC");
    Nic smaller(*this, {.mac = kOwnMac, .max_queues = 0});
    EXPECT_EQ(load(bytes, smaller), "more SQs than there may be");
    Nic longer(*this, {.mac = kOwnMac, .max_mtu = 9100});
    EXPECT_EQ(load(bytes, longer), "");
}

TEST_F(EthMove, DamageIsRefusedOrGivesAVportThatCanBeUsed) {
    up(1, 4);
    nic->eth.allow_packets(true);
    EthRx first = packet_rx();
    const auto spread = create_spread({first.object}).get<std::uint64_t>(32);
    ASSERT_TRUE(add_flow(spread, 80).ok());
    const auto bytes = state().bytes;
    // The rest of the function's is the function's test.
    const std::string tag = "ETH ";
    const auto begins = std::search(bytes.begin(), bytes.end(), tag.begin(), tag.end(),
                                    [](std::byte a, char b) { return a == std::byte(b); });
    ASSERT_NE(begins, bytes.end());
    const auto empty = [&] {
        Nic fresh(*this);
        fresh.function.reset();
        return fresh.function.account().used();
    }();
    unsigned taken = 0;
    for_each_damage(
        bytes,
        [&](const std::vector<std::byte>& damaged, const std::string&) {
            Nic target(*this);
            if (load(damaged, target).empty()) ++taken;
            target.eth.receive(from_network(80));
            target.eth.receive(from_network(81));
            (void)target.eth.receive_own(from_network(80));
            world.run_until_idle();
            target.function.reset();
            EXPECT_EQ(target.function.account().used(), empty);
        },
        static_cast<std::size_t>(begins - bytes.begin()));
    EXPECT_GT(taken, 0U);
}

}  // namespace
}  // namespace openmana::eth::test
