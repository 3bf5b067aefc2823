// SPDX-License-Identifier: Apache-2.0
// Two manad processes joined by a UDP uplink. One of them dies by SIGKILL in full RDMA traffic and
// comes back, twenty times: the requests of the other's guest end with the right error, it keeps
// nothing of the connections, and the next peer is found.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <mana/rnic_queue.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/unix_socket.h"
#include "process.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::test {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;
constexpr auto kPatience = std::chrono::seconds(60);
constexpr std::uint32_t kBytes = 1U << 20;
constexpr std::uint32_t kMessage = 16384;
constexpr std::size_t kDepth = 16;
constexpr std::size_t kPairs = 4;
constexpr std::uint8_t kSurvivor = 1;
constexpr std::uint8_t kVictim = 2;

/// A UDP port of the loopback interface that was free a moment ago.
std::uint16_t free_port() {
    const base::UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
        return 0;
    return ntohs(address.sin_port);
}

/// A guest without VM: memory, a NIC of some manad, RDMA.
struct Guest {
    static std::unique_ptr<Guest> attach(const std::string& socket, std::uint8_t number) {
        auto guest = std::make_unique<Guest>();
        guest->nic = RemoteNic::attach(socket);
        if (!guest->nic) return nullptr;
        guest->host = std::make_unique<RdmaHost>(*guest->nic, guest->nic->ram(), guest->nic->irq(),
                                                 test_mac(number), ipv4_gid(number));
        if (!guest->host->bring_up()) return nullptr;
        guest->buffer = guest->host->ram().alloc(kBytes);
        const auto mr = guest->host->hwc().create_mr(guest->host->pd, guest->buffer, kBytes, 15);
        if (!mr) return nullptr;
        guest->mr = *mr;
        return guest;
    }
    std::unique_ptr<RemoteNic> nic;
    std::unique_ptr<RdmaHost> host;
    base::GuestAddr buffer{};
    DriverMr mr;
};

/// A queue pair, and what came of its requests.
struct Stream {
    std::optional<DriverCq> cq;
    std::unique_ptr<HostQp> qp;
    std::size_t done = 0;
    std::optional<std::uint32_t> error;
};

class PeerKillTest : public testing::Test {
protected:
    void SetUp() override {
        ::signal(SIGPIPE, SIG_IGN);
        char name[] = "/tmp/openmana-kill-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
        ports_ = {free_port(), free_port()};
        survivor_ = daemon(kSurvivor);
        ASSERT_NE(survivor_, nullptr);
        here_ = Guest::attach(folder_ + "/nic1", kSurvivor);
        ASSERT_NE(here_, nullptr);
    }
    void TearDown() override {
        here_.reset();
        if (survivor_ && survivor_->running()) {
            ::kill(survivor_->pid(), SIGTERM);
            const auto status = survivor_->wait();
            EXPECT_TRUE(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0)
                << "manad did not end well";
        }
        std::filesystem::remove_all(folder_);
    }

    /// A manad that is ready, or null.
    std::unique_ptr<Process> daemon(std::uint8_t number) const {
        const std::string id = std::to_string(number);
        const auto port = [this](std::uint8_t of) {
            return "127.0.0.1:" + std::to_string(ports_[of - 1U]);
        };
        auto process = std::make_unique<Process>(std::vector<std::string>{
            OPENMANA_MANAD, "--nic",
            "id=n" + id + ",mac=02:00:00:00:00:0" + id + ",socket=" + folder_ + "/nic" + id,
            "--uplink",
            "udp=local=" + port(number) +
                ",remote=" + port(number == kVictim ? kSurvivor : kVictim),
            "--control", folder_ + "/control" + id, "--log", "error"});
        if (!process->says_ready()) return nullptr;
        return process;
    }

    /// What the survivor's NIC has.
    json objects() const {
        const json answer = status();
        if (!answer.contains("nics")) return {};
        const json nic = answer["nics"][0];
        return {{"qps", nic["qps"]}, {"objects", nic["objects"]}};
    }

    /// What the survivor has allocated; 0 where that is not counted (sanitizers).
    std::int64_t heap_bytes() const { return status().value("heap_bytes", std::int64_t{-1}); }

    /// The survivor's answer to `status`, empty if it has none.
    json status() const {
        const auto socket = base::connect_unix(folder_ + "/control1");
        const std::string line = "{\"command\":\"status\"}\n";
        if (!socket || ::send(socket->get(), line.data(), line.size(), MSG_NOSIGNAL) !=
                           static_cast<ssize_t>(line.size()))
            return {};
        std::string answer;
        while (answer.empty() || answer.back() != '\n') {
            char part[4096];
            const ssize_t n = ::recv(socket->get(), part, sizeof part, 0);
            if (n <= 0) return {};
            answer.append(part, static_cast<std::size_t>(n));
        }
        return json::parse(answer);
    }

    Stream stream(Guest& guest) {
        Stream result;
        result.cq = guest.host->create_cq();
        if (result.cq) result.qp = guest.host->create_rc(*result.cq, *result.cq);
        return result;
    }

    /// Keeps the requests of `from` coming, and notes what became of them.
    void pump(Guest& from, Stream& stream, const Guest& to, std::uint32_t place) const {
        HostQp* const list = stream.qp.get();
        while (!stream.error && list->sends.size() < kDepth) {
            const SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                               .sges = {{from.buffer.value() + place * kMessage,
                                         gdma::Key(from.mr.lkey), kMessage}},
                               .remote_address = to.buffer.value() + (kPairs + place) * kMessage,
                               .rkey = to.mr.rkey,
                               .id = 1};
            if (!from.host->post_send(*list, write)) break;
        }
        std::vector<Completion> completions;
        from.host->poll(*stream.cq, std::span(&list, 1), completions);
        for (const Completion& completion : completions) {
            if (completion.vendor == 0)
                ++stream.done;
            else if (!stream.error)
                stream.error = completion.vendor;
        }
    }

    std::string folder_;
    std::array<std::uint16_t, 2> ports_{};
    std::unique_ptr<Process> survivor_;
    std::unique_ptr<Guest> here_;
};

TEST_F(PeerKillTest, TheOtherGoesOnAfterEachOfTwentyDeaths) {
    const json before = objects();
    ASSERT_TRUE(before.contains("objects"));
    std::int64_t heap_before = 0;
    unsigned grown = 0;  // rounds in which the heap did
    for (std::uint32_t round = 0; round < 20; ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        auto victim = daemon(kVictim);
        ASSERT_NE(victim, nullptr);
        auto there = Guest::attach(folder_ + "/nic2", kVictim);
        ASSERT_NE(there, nullptr);
        std::array<Stream, kPairs> out;
        std::array<Stream, kPairs> back;
        for (std::uint32_t i = 0; i < kPairs; ++i) {
            out[i] = stream(*here_);
            back[i] = stream(*there);
            ASSERT_TRUE(out[i].qp && back[i].qp);
            ASSERT_TRUE(here_->host->connect(
                *out[i].qp, 7 + i, {ipv4_gid(kVictim), test_mac(kVictim), back[i].qp->qpn(), 9 + i},
                1024, 13, 6));
            ASSERT_TRUE(there->host->connect(
                *back[i].qp, 9 + i,
                {ipv4_gid(kSurvivor), test_mac(kSurvivor), out[i].qp->qpn(), 7 + i}, 1024, 13, 6));
            std::fill_n(here_->host->ram().at(here_->buffer + i * kMessage), kMessage,
                        static_cast<std::byte>(round * 16 + i + 1));
        }
        // Both ways, until each queue pair has moved some, a different amount in each round.
        const std::size_t enough = 20 + round * 3;
        const auto end = Clock::now() + kPatience;
        const auto all = [&](const auto& streams, const auto& condition) {
            return std::all_of(streams.begin(), streams.end(), condition);
        };
        while (!all(out, [&](const Stream& one) { return one.done >= enough; }) ||
               !all(back, [&](const Stream& one) { return one.done >= enough; })) {
            ASSERT_LT(Clock::now(), end);
            for (std::uint32_t i = 0; i < kPairs; ++i) {
                pump(*here_, out[i], *there, i);
                pump(*there, back[i], *here_, i);
                ASSERT_FALSE(out[i].error || back[i].error) << "before the death";
            }
        }
        for (std::uint32_t i = 0; i < kPairs; ++i)
            EXPECT_EQ(*there->host->ram().at(there->buffer + ((kPairs + i + 1) * kMessage - 1)),
                      static_cast<std::byte>(round * 16 + i + 1));
        ::kill(victim->pid(), SIGKILL);
        while (!all(out, [](const Stream& one) { return one.error.has_value(); })) {
            ASSERT_LT(Clock::now(), end) << "requests to the dead do not end";
            for (std::uint32_t i = 0; i < kPairs; ++i) pump(*here_, out[i], *there, i);
            std::this_thread::yield();
        }
        for (Stream& one : out) {
            EXPECT_EQ(*one.error, static_cast<std::uint32_t>(MANA_HW_RNIC_VE_RETRY));
            EXPECT_TRUE(here_->host->destroy_rc(*one.qp));
            EXPECT_TRUE(here_->host->destroy_cq(*one.cq));
        }
        ASSERT_TRUE(survivor_->running());
        EXPECT_TRUE(here_->nic->alive());
        EXPECT_EQ(objects(), before) << "left behind";
        const std::int64_t heap = heap_bytes();
        if (round >= 10 && heap - heap_before >= 8 << 10) ++grown;
        heap_before = heap;
    }
    // What a death left behind would be there in each round, the four queue pairs alone with 16
    // KiB. Now and then a round has more frames on their way than any before, which are kept for
    // later.
    EXPECT_LE(grown, 5U) << "of ten rounds";
}

}  // namespace
}  // namespace openmana::test
