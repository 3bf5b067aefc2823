// SPDX-License-Identifier: Apache-2.0
// Two clients in traffic at a manad that has a monitor, and what their drivers do when it was
// killed.
#pragma once

#include "monitored_manad.h"
#include "take_over_fixture.h"

namespace openmana::test {

class MonitorTest : public TakeOverTest {
protected:
    MonitorTest() { more_ = {"--monitor", "on"}; }
    void start_monitored() {
        monitored_ = std::make_unique<MonitoredManad>(words());
        ASSERT_TRUE(monitored_->says_ready());
    }
    void TearDown() override {
        a_.reset();
        b_.reset();
        if (monitored_) {
            ::kill(monitored_->process().pid(), SIGTERM);
            const auto status = monitored_->process().wait();
            EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
            EXPECT_FALSE(std::filesystem::exists(folder_ + "/a")) << "a socket is left";
        }
        TakeOverTest::TearDown();
    }
    /// The driver is told, as 7.2 wants to be.
    static bool hears_of_reset(Client& client) {
        for (int i = 0; i < 10000; ++i) {
            while (const auto eqe = client.host->hwc().hwc_eq.poll())
                if (eqe->type == 135) return true;
            ::usleep(1000);
        }
        return false;
    }
    /// A driver that begins anew on its NIC, which still has its memory and its interrupts.
    static void begin_anew(Client& client, std::uint8_t number) {
        ASSERT_TRUE(client.host->hwc().shut_down());
        client.host = std::make_unique<RdmaHost>(*client.nic, client.nic->ram(), client.nic->irq(),
                                                 test_mac(number), ipv4_gid(number));
        ASSERT_TRUE(client.host->bring_up());
        client.send_cq = *client.host->create_cq();
        client.recv_cq = *client.host->create_cq();
        client.qp = client.host->create_rc(client.send_cq, client.recv_cq);
        ASSERT_TRUE(client.qp);
        client.mr = *client.host->hwc().create_mr(client.host->pd, client.buffer, kBuffer, 15);
    }
    void connect() {
        ASSERT_TRUE(b_->host->connect(*b_->qp, 0x900, a_->as_peer(0x100), 1024));
        ASSERT_TRUE(a_->host->connect(*a_->qp, 0x100, b_->as_peer(0x900), 1024));
    }
    void recover() {
        ASSERT_TRUE(hears_of_reset(*a_) && hears_of_reset(*b_)) << "no reset request";
        ASSERT_NO_FATAL_FAILURE(begin_anew(*a_, 1));
        ASSERT_NO_FATAL_FAILURE(begin_anew(*b_, 2));
        ASSERT_NO_FATAL_FAILURE(connect());
        for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    }

    std::unique_ptr<MonitoredManad> monitored_;
};

}  // namespace openmana::test
