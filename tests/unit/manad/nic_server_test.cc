// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bus_guard.h"
#include "base/clock.h"
#include "base/unix_socket.h"
#include "support/eventually.h"
#include "support/remote_nic.h"
#include "support/vfio_user_client.h"

namespace openmana::manad {
namespace {

class NicServerTest : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_EQ(::sigaction(SIGBUS, nullptr, &before_), 0);
        ASSERT_TRUE(base::BusGuard::install());
        std::string pattern = testing::TempDir() + "nic-server-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        folder = pattern;
        NicOptions options;
        options.socket = folder + "/a";
        options.nic.name = "a";
        options.nic.mac = {2, 0, 0, 0, 0, 1};
        auto created = NicServer::create(options, network);
        ASSERT_TRUE(created);
        server = std::move(*created);
        ASSERT_TRUE(server->start());
    }
    void TearDown() override {
        if (server) server->stop();
        server.reset();
        std::filesystem::remove_all(folder);
        ::sigaction(SIGBUS, &before_, nullptr);
    }
    [[nodiscard]] std::uint64_t counter(const std::string& name) {
        std::uint64_t found = 0;
        server->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) found = value;
        });
        return found;
    }

    std::string folder;
    base::SystemClock clock;
    fabric::Switch network{clock};
    std::unique_ptr<NicServer> server;

private:
    struct sigaction before_ {};
};

TEST_F(NicServerTest, NoTwoNicsHaveTheSameChance) {
    NicOptions options;
    options.socket = folder + "/b";
    options.nic.mac = {2, 0, 0, 0, 0, 2};
    const auto other = NicServer::create(options, network);
    ASSERT_TRUE(other);
    EXPECT_NE((*other)->nic().config().seed, server->nic().config().seed);
}

/// Threads of others are at work with what they find in the network, and cannot be told to forget.
TEST_F(NicServerTest, ANicThatComesLaterIsFoundOnceNothingOfItCanFail) {
    NicOptions options;
    options.socket = folder + "/b";
    options.nic.name = "b";
    options.nic.mac = {2, 0, 0, 0, 0, 2};
    options.nic.apart = true;
    const auto late = NicServer::create(options, network);
    ASSERT_TRUE(late);
    struct Sender final : fabric::Port {
        void deliver(base::FrameViews) override {}
    } sender;
    network.attach(sender, nullptr);
    const auto frames_for = [&](NicServer& nic) {
        base::Frame frame(60);
        std::fill_n(frame.begin(), sizeof(base::MacAddr), std::byte{0xff});
        network.forward(sender, frame);
        return nic.nic().counters().rx_frames.value();
    };
    EXPECT_EQ(frames_for(**late), 0U);
    EXPECT_GE(frames_for(*server), 1U) << "all hear what is sent";
    ASSERT_TRUE((*late)->start());
    EXPECT_TRUE(test::eventually([&] { return frames_for(**late) != 0; }));
    network.detach(sender);
    (*late)->stop();
}

/// All NICs begin on the main thread, one after the other.
TEST_F(NicServerTest, WhatAProcessHasLeftIsTakenUpByTheThreadOfItsNic) {
    NicOptions options;
    options.socket = folder + "/b";
    options.nic.name = "b";
    options.nic.mac = {2, 0, 0, 0, 0, 2};
    options.text = "socket=" + options.socket;
    const auto listener = base::UnixListener::create(options.socket);
    ASSERT_TRUE(listener);
    const auto client = test::VfioUserClient::connect(options.socket);
    ASSERT_TRUE(client);
    const auto ledger = Ledger::create(1).value();
    {
        NicLedgerClaim left = ledger->claim(options);
        left->server.listener.hold(::fcntl(listener->fd(), F_DUPFD_CLOEXEC, 0));
        left->server.client.hold(listener->accept().release());
        left.get_deleter().leaves = true;
    }
    const auto next =
        NicServer::create(options, network, LoopThread::kPatience, nullptr, ledger->claim(options));
    ASSERT_TRUE(next);
    EXPECT_FALSE((*next)->has_client());
    ASSERT_TRUE((*next)->start());
    EXPECT_TRUE((*client)->negotiate());
    EXPECT_TRUE((*next)->has_client());
    (*next)->stop();
}

TEST_F(NicServerTest, ANicAtItsLimitsHarmsNoOther) {
    NicOptions options;
    options.socket = folder + "/b";
    options.nic.name = "b";
    options.nic.mac = {2, 0, 0, 0, 0, 2};
    options.nic.memory = 16U << 20;
    options.dma.ranges = 3;
    const auto small = NicServer::create(options, network);
    ASSERT_TRUE(small);
    (*small)->start();
    const auto greedy = test::RemoteNic::attach((*small)->socket());
    const auto modest = test::RemoteNic::attach(server->socket());
    ASSERT_TRUE(greedy && modest);
    test::HwcDriver driver(*greedy, greedy->ram(), greedy->irq());
    test::HwcDriver other(*modest, modest->ram(), modest->irq());
    ASSERT_TRUE(driver.bring_up() && other.bring_up());

    const auto pages = greedy->ram().alloc_scattered(500);
    std::vector<std::uint64_t> regions;
    while (const auto region = driver.create_region(pages, 500 * 4096)) regions.push_back(*region);
    EXPECT_EQ(driver.last_status, gdma::kHwcNoResources);
    EXPECT_GT(regions.size(), 1000U);
    const auto& account = (*small)->nic().function().account();
    EXPECT_GT(account.used(), account.limit() - 20000);
    EXPECT_EQ(server->nic().function().account().limit(), 1U << 30);
    EXPECT_TRUE(other.create_region(modest->ram().alloc(4096), 4096));
    ASSERT_TRUE(driver.destroy_region(regions.back()));
    EXPECT_TRUE(driver.create_region(pages, 500 * 4096)) << "it goes on with what it gives back";

    // One range is the RAM that each has.
    const auto map = [](test::RemoteNic& nic, std::uint64_t number) {
        return nic.client().dma_map((1ULL << 40) + number * 4096, 4096, nic.memory_file().get());
    };
    EXPECT_TRUE(map(*greedy, 0) && map(*greedy, 1));
    EXPECT_FALSE(map(*greedy, 2));
    for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(map(*modest, i));
    EXPECT_EQ(counter("pci.dma.refused"), 0U);
    (*small)->stop();
}

TEST_F(NicServerTest, ClientWhoseMemoryGoesAwayIsDroppedAndTheNextIsServed) {
    {
        const auto guest = test::RemoteNic::attach(server->socket());
        ASSERT_NE(guest, nullptr);
        test::HwcDriver driver(*guest, guest->ram(), guest->irq());
        ASSERT_TRUE(driver.bring_up());
        driver.queue_request(test::Request(1, 40).fit());
        ASSERT_EQ(::ftruncate(guest->memory_file().get(), 0), 0);
        driver.hwc_sq.doorbell();  // the device finds neither the request nor the queue
        EXPECT_TRUE(guest->client().closed_by_server());
    }
    const auto next = test::RemoteNic::attach(server->socket());
    ASSERT_NE(next, nullptr);
    test::HwcDriver driver(*next, next->ram(), next->irq());
    EXPECT_TRUE(driver.bring_up());
    // Counted when the NIC has let go of the memory, which is after the client sees the end.
    EXPECT_GE(counter("pci.dma.lost"), 1U);
}

}  // namespace
}  // namespace openmana::manad
