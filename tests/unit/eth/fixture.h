// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/guest_memory.h"
#include "eth/ethernet_device.h"
#include "gdma/function.h"
#include "packets.h"
#include "support/eth_guest.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/sim_executor.h"

namespace openmana::eth::test {

class Sink final : public Network {
public:
    void transmit(base::Frame frame) override { frames.push_back(std::move(frame)); }
    [[nodiscard]] bool may_have(const base::MacAddr& mac) const override {
        return std::ranges::find(allowed, mac) != allowed.end();
    }
    std::vector<base::Frame> frames;
    std::vector<base::MacAddr> allowed;
};

/// One function with an Ethernet device, and a driver stand-in that was brought up and has probed.
class EthTest : public testing::Test {
protected:
    EthTest() : EthTest(EthernetConfig{.mac = kOwnMac}) {}
    explicit EthTest(EthernetConfig config) : eth(function, config, sink) {}
    void SetUp() override {
        ASSERT_TRUE(driver.bring_up());
        ASSERT_TRUE(guest.probe());
    }
    void up(std::uint32_t queues = 1, std::uint32_t mtu = 1500, std::uint32_t buffers = 16) {
        ASSERT_TRUE(guest.up(queues, mtu, buffers));
    }
    /// What the guest sees of a frame from the network.
    std::optional<openmana::test::RxDone> receive(const Bytes& frame, std::size_t queue = 0) {
        eth.receive(frame);
        return guest.poll(guest.rx[queue]);
    }
    std::uint32_t tx_type() {
        const auto done = guest.poll(guest.tx[0]);
        return done ? done->type : 0;
    }

    openmana::test::SimWorld world;
    openmana::test::SimExecutor executor{world};
    base::GuestMemory memory;
    openmana::test::GuestRam ram{memory};
    openmana::test::FakeIrq irq;
    gdma::Function function{executor, memory, irq, {}};
    Sink sink;
    EthernetDevice eth;
    openmana::test::HwcDriver driver{function, ram, irq};
    openmana::test::EthGuest guest{driver};
};

}  // namespace openmana::eth::test
