// SPDX-License-Identifier: Apache-2.0
// Clients of a manad process that die by SIGKILL, in the handshake and in full traffic. The NIC's
// next client is served each time, the peer's requests to the dead one end with the right error,
// the daemon loses nothing.
#include <gtest/gtest.h>
#include <mana/rnic_queue.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "kill_protocol.h"
#include "process.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(60);

class KillTest : public testing::Test {
protected:
    void SetUp() override {
        ::signal(SIGPIPE, SIG_IGN);
        char name[] = "/tmp/openmana-kill-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
        manad_.emplace(std::vector<std::string>{
            OPENMANA_MANAD, "--nic", "id=a,mac=02:00:00:00:00:01,socket=" + folder_ + "/a", "--nic",
            "id=b,mac=02:00:00:00:00:02,socket=" + folder_ + "/b", "--log", "error"});
        ASSERT_TRUE(manad_->says_ready());
        nic_ = RemoteNic::attach(folder_ + "/b");
        ASSERT_NE(nic_, nullptr);
        host_ = std::make_unique<RdmaHost>(*nic_, nic_->ram(), nic_->irq(), test_mac(kTestHost),
                                           ipv4_gid(kTestHost));
        ASSERT_TRUE(host_->bring_up());
        buffer_ = host_->ram().alloc(kBufferBytes);
        const auto mr = host_->hwc().create_mr(host_->pd, buffer_, kBufferBytes, 15);
        ASSERT_TRUE(mr.has_value());
        mr_ = *mr;
    }
    void TearDown() override {
        if (manad_ && manad_->running()) {
            ::kill(manad_->pid(), SIGTERM);
            const auto status = manad_->wait();
            EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0)
                << "manad did not end well";
        }
        std::filesystem::remove_all(folder_);
    }
    [[nodiscard]] std::size_t open_files() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry :
             std::filesystem::directory_iterator("/proc/" + std::to_string(manad_->pid()) + "/fd"))
            ++count;
        return count;
    }
    /// True once manad has as many files open as then: it notices a death a moment later.
    [[nodiscard]] bool files_back_to(std::size_t count) const {
        for (const auto end = Clock::now() + kPatience; Clock::now() < end;
             std::this_thread::yield())
            if (open_files() == count) return true;
        return false;
    }
    /// Serves one client that dies at its n-th access, as its RDMA peer. Gives its wait status, and
    /// the vendor error that our own request to it ended with after its death.
    struct Outcome {
        std::optional<int> status;
        std::optional<std::uint32_t> vendor;
    };
    Outcome serve(std::uint64_t n) {
        Outcome outcome;
        Process client({OPENMANA_DYING_CLIENT, folder_ + "/a", std::to_string(n)});
        QpCard card;
        if (!client.read(&card, sizeof card)) {
            outcome.status = client.wait();
            return outcome;
        }
        auto cq = host_->create_cq();
        auto qp = cq ? host_->create_rc(*cq, *cq) : nullptr;
        EXPECT_TRUE(qp != nullptr);
        if (!qp) return outcome;
        EXPECT_TRUE(host_->connect(
            *qp, kTestPsn, {ipv4_gid(kClientHost), test_mac(kClientHost), card.qpn, kClientPsn},
            4096, 10, 2));
        const QpCard mine{qp->qpn(), mr_.rkey, buffer_.value()};
        EXPECT_EQ(::write(client.in().get(), &mine, sizeof mine),
                  static_cast<ssize_t>(sizeof mine));
        outcome.status = client.wait();
        if (outcome.status && WIFSIGNALED(*outcome.status)) {
            HostQp* const list = qp.get();
            const SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                               .sges = {{buffer_.value() + 32768, gdma::Key(mr_.lkey), 4096}},
                               .remote_address = card.address,
                               .rkey = card.rkey,
                               .id = 1};
            // Until manad has noticed the death a WRITE may still go well.
            for (const auto end = Clock::now() + kPatience;
                 !outcome.vendor && Clock::now() < end;) {
                EXPECT_TRUE(host_->post_send(*qp, write));
                std::vector<Completion> completions;
                while (completions.empty() && Clock::now() < end) {
                    host_->poll(*cq, std::span(&list, 1), completions);
                    std::this_thread::yield();
                }
                for (const Completion& completion : completions)
                    if (completion.vendor != 0) outcome.vendor = completion.vendor;
            }
        }
        EXPECT_TRUE(host_->destroy_rc(*qp));
        EXPECT_TRUE(host_->destroy_cq(*cq));
        return outcome;
    }

    std::string folder_;
    std::optional<Process> manad_;
    std::unique_ptr<RemoteNic> nic_;
    std::unique_ptr<RdmaHost> host_;
    base::GuestAddr buffer_{};
    DriverMr mr_;
};

TEST_F(KillTest, NextClientIsServedAfterEachOfTwentyDeaths) {
    const std::size_t files = open_files();
    const auto first = serve(0);
    ASSERT_TRUE(first.status && WIFEXITED(*first.status) && WEXITSTATUS(*first.status) == 0);
    base::Random random(20);
    unsigned in_traffic = 0;
    for (int round = 0; round < 20; ++round) {
        // Half of them early: the set-up takes some hundred accesses, a message three.
        const std::uint64_t n = round % 2 == 0 ? 1 + random.below(250) : 400 + random.below(600);
        SCOPED_TRACE("death at access " + std::to_string(n));
        const auto outcome = serve(n);
        ASSERT_TRUE(outcome.status.has_value());
        ASSERT_TRUE(WIFSIGNALED(*outcome.status))
            << "the client ended with status " << *outcome.status;
        EXPECT_EQ(WTERMSIG(*outcome.status), SIGKILL);
        if (outcome.vendor) {
            ++in_traffic;
            EXPECT_EQ(*outcome.vendor, static_cast<std::uint32_t>(MANA_HW_RNIC_VE_RETRY));
        }
        ASSERT_TRUE(manad_->running());
    }
    EXPECT_GE(in_traffic, 8U) << "too few died in traffic";
    const auto last = serve(0);
    EXPECT_TRUE(last.status && WIFEXITED(*last.status) && WEXITSTATUS(*last.status) == 0);
    EXPECT_TRUE(files_back_to(files)) << open_files() << " files open, " << files << " before";
    EXPECT_TRUE(nic_->alive());
}

TEST_F(KillTest, AClientThatShrinksItsMemoryFileHarmsNobodyElse) {
    {
        const auto client = RemoteNic::attach(folder_ + "/a");
        ASSERT_NE(client, nullptr);
        ASSERT_EQ(::ftruncate(client->memory_file().get(), 0), 0);
        // The SHM words of GDMA appendix B, with queues in the lost memory: the device writes there
        // at once.
        const std::array<std::uint32_t, 8> words{0x00100000, 0x00010000, 0x00000010, 0x00100002,
                                                 0x00030000, 0x00000010, 0,          1};
        for (std::size_t i = 0; i < words.size(); ++i)
            client->bar0_write(0x2000 + 4 * i, std::as_bytes(std::span(&words[i], 1)));
        EXPECT_TRUE(client->alive());
    }
    EXPECT_TRUE(manad_->running());
    const auto next = RemoteNic::attach(folder_ + "/a");
    ASSERT_NE(next, nullptr) << "the next client is served";
    RdmaHost host(*next, next->ram(), next->irq(), test_mac(1), ipv4_gid(1));
    EXPECT_TRUE(host.bring_up());
    EXPECT_TRUE(host_->hwc().create_mr(host_->pd, buffer_, kBufferBytes, 15).has_value())
        << "the other NIC goes on";
}

}  // namespace
}  // namespace openmana::test
