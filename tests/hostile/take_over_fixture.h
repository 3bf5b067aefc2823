// SPDX-License-Identifier: Apache-2.0
// A manad process under two clients in traffic, and the ways of another one to its place.
#pragma once

#include <gtest/gtest.h>
#include <mana/rnic_queue.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/unix_socket.h"
#include "process.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"
#include "support/temp_dir.h"

namespace openmana::test {
using nlohmann::json;

constexpr std::uint32_t kMessage = 8192;
constexpr std::uint64_t kBuffer = 64U << 10;
constexpr std::uint32_t kSlots = kBuffer / kMessage;

/// A client of a NIC, with one queue pair.
struct Client {
    Client(const std::string& socket, std::uint8_t number) {
        nic = RemoteNic::attach(socket);
        OM_CHECK(nic != nullptr);
        host = std::make_unique<RdmaHost>(*nic, nic->ram(), nic->irq(), test_mac(number),
                                          ipv4_gid(number));
        OM_CHECK(host->bring_up());
        send_cq = *host->create_cq();
        recv_cq = *host->create_cq();
        qp = host->create_rc(send_cq, recv_cq);
        buffer = nic->ram().alloc(kBuffer);
        mr = *host->hwc().create_mr(host->pd, buffer, kBuffer, 15);
    }
    [[nodiscard]] Peer as_peer(std::uint32_t psn) const {
        return {host->gid(), host->mac(), qp->qpn(), psn};
    }
    [[nodiscard]] gdma::Sge slot(std::uint32_t i) const {
        return {buffer.value() + std::uint64_t{i} * kMessage, gdma::Key(mr.lkey), kMessage};
    }
    [[nodiscard]] std::span<std::byte> bytes(std::uint32_t i) const {
        return nic->ram().bytes(base::GuestAddr(slot(i).address), kMessage);
    }
    std::vector<Completion> poll(DriverCq& cq) {
        HostQp* const qps[] = {qp.get()};
        std::vector<Completion> done;
        host->poll(cq, qps, done);
        return done;
    }

    std::unique_ptr<RemoteNic> nic;
    std::unique_ptr<RdmaHost> host;
    DriverCq send_cq, recv_cq;
    std::unique_ptr<HostQp> qp;
    base::GuestAddr buffer{};
    DriverMr mr;
};

class TakeOverTest : public testing::Test {
protected:
    void SetUp() override { ::signal(SIGPIPE, SIG_IGN); }
    void TearDown() override {
        a_.reset();
        b_.reset();
        if (manad_ && manad_->running()) {
            ::kill(manad_->pid(), SIGTERM);
            const auto status = manad_->wait();
            EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        }
        manad_.reset();
        EXPECT_TRUE(killed_ || !std::filesystem::exists(folder_ + "/a")) << "a socket is left";
    }
    [[nodiscard]] std::vector<std::string> words() const {
        std::vector<std::string> all{
            first_word_,
            "--nic",
            "id=a,mac=02:00:00:00:00:01,socket=" + folder_ + "/a" + more_of_a_,
            "--nic",
            "id=b,mac=02:00:00:00:00:02,socket=" + folder_ + "/b",
            "--control",
            folder_ + "/control",
            "--metrics",
            folder_ + "/metrics",
            "--log",
            log_level_};
        all.insert(all.end(), more_.begin(), more_.end());
        return all;
    }
    void start() {
        manad_ = std::make_unique<Process>(words());
        ASSERT_TRUE(manad_->says_ready());
    }
    void attach() {
        a_ = std::make_unique<Client>(folder_ + "/a", 1);
        b_ = std::make_unique<Client>(folder_ + "/b", 2);
        ASSERT_TRUE(b_->host->connect(*b_->qp, 0x900, a_->as_peer(0x100), 1024));
        ASSERT_TRUE(a_->host->connect(*a_->qp, 0x100, b_->as_peer(0x900), 1024));
    }
    /// SENDs of A to B and WRITEs of B to A, a slot each, checked byte for byte.
    void exchange() {
        const std::uint32_t slot = round_ % (kSlots / 2);
        const std::uint32_t back = slot + kSlots / 2;
        for (std::uint32_t i = 0; i < kMessage; ++i) {
            a_->bytes(slot)[i] = static_cast<std::byte>(round_ + i);
            b_->bytes(back)[i] = static_cast<std::byte>(round_ * 7 + i);
        }
        const gdma::Sge into = b_->slot(slot);
        ASSERT_TRUE(b_->host->post_recv(*b_->qp, round_, std::span(&into, 1)));
        ASSERT_TRUE(a_->host->post_send(
            *a_->qp, {.opcode = MANA_HW_RNIC_WQE_SEND, .sges = {a_->slot(slot)}, .id = round_}));
        ASSERT_TRUE(b_->host->post_send(*b_->qp, {.opcode = MANA_HW_RNIC_WQE_WRITE,
                                                  .sges = {b_->slot(back)},
                                                  .remote_address = a_->slot(back).address,
                                                  .rkey = a_->mr.rkey,
                                                  .id = round_}));
        ASSERT_NO_FATAL_FAILURE(complete(*a_, a_->send_cq));
        ASSERT_NO_FATAL_FAILURE(complete(*b_, b_->recv_cq));
        ASSERT_NO_FATAL_FAILURE(complete(*b_, b_->send_cq));
        ASSERT_TRUE(std::ranges::equal(a_->bytes(slot), b_->bytes(slot))) << round_;
        ASSERT_TRUE(std::ranges::equal(a_->bytes(back), b_->bytes(back))) << round_;
        ++round_;
    }
    /// The one completion that is due, and no other.
    void complete(Client& client, DriverCq& cq) {
        std::vector<Completion> done;
        for (std::uint64_t tries = 0; done.empty() && tries < 2'000'000; ++tries) {
            done = client.poll(cq);
            if (done.empty()) ::usleep(10);
        }
        ASSERT_EQ(done.size(), 1) << "round " << round_;
        ASSERT_EQ(done[0].vendor, 0) << "round " << round_;
        ASSERT_EQ(done[0].id, round_);
    }
    /// The next manad, while the clients go on. Its predecessor ends well.
    void take_over() {
        auto all = words();
        all.insert(all.end(), {"--take-over", folder_ + "/control"});
        auto next = std::make_unique<Process>(all);
        while (manad_->running() && next->running()) ASSERT_NO_FATAL_FAILURE(exchange());
        ASSERT_TRUE(next->running()) << "the next manad has ended";
        const auto status = manad_->wait();
        EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        manad_ = std::move(next);
        ASSERT_TRUE(manad_->says_ready());
    }
    /// One that fails, after which the first one goes on.
    void fail(std::vector<std::string> all) {
        Process next(std::move(all));
        while (next.running()) ASSERT_NO_FATAL_FAILURE(exchange());
        const auto status = next.wait();
        ASSERT_TRUE(status && WIFEXITED(*status));
        EXPECT_EQ(WEXITSTATUS(*status), 1);
        ASSERT_TRUE(manad_->running());
        for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    }
    /// Sets one of NIC a, and gives all that there are then; null if it is refused.
    json limit_a() const {
        const json set =
            ask({{"command", "policy"}, {"action", "set"}, {"nic", "a"}, {"options", "limit=1G"}});
        return set.is_object() && set["ok"] == true ? policies() : json();
    }
    json policies() const { return ask({{"command", "policy"}, {"action", "show"}}); }
    json ask(const json& request) const {
        auto socket = base::connect_unix(folder_ + "/control");
        if (!socket) return nullptr;
        const std::string line = request.dump() + "\n";
        if (::write(socket->get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
            return nullptr;
        std::string answer;
        char byte = 0;
        while (::read(socket->get(), &byte, 1) == 1 && byte != '\n') answer += byte;
        return json::parse(answer, nullptr, false);
    }
    /// Words of a manad that takes this one's place, by way of `control`, if that is another.
    [[nodiscard]] std::vector<std::string> next_words(const std::string& control = {}) const {
        auto all = words();
        all.insert(all.end(), {"--take-over", control.empty() ? folder_ + "/control" : control});
        return all;
    }
    [[nodiscard]] std::size_t open_files() const {
        std::size_t count = 0;
        for ([[maybe_unused]] const auto& entry :
             std::filesystem::directory_iterator("/proc/" + std::to_string(manad_->pid()) + "/fd"))
            ++count;
        return count;
    }

    const TempDir temp_{"openmana-take"};
    const std::string& folder_ = temp_.path();
    bool killed_ = false;  // the one that served: it has left its sockets
    std::string first_word_ = OPENMANA_MANAD;
    std::vector<std::string> more_;
    std::string more_of_a_;  // more keys of that NIC
    std::string log_level_ = "error";
    std::unique_ptr<Process> manad_;
    std::unique_ptr<Client> a_, b_;
    std::uint64_t round_ = 1;
};

}  // namespace openmana::test
