// SPDX-License-Identifier: Apache-2.0
// How long guests are not served while one manad goes on in the place of another
// (docs/benchmarks.md): processes of it, and clients of the NICs with open queue pairs, each of
// which reads a register again and again. From the last answer of the one to the first of the
// other.
//
//     take_over_bench [--nics N] [--qps N] [--rounds N] [--limit MS] [--manad PROGRAM]
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mac_text.h"
#include "hostile/process.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::test {
namespace {

using std::chrono::duration;
using std::chrono::steady_clock;
using Milliseconds = duration<double, std::milli>;

struct Settings {
    unsigned nics = 16;
    unsigned qps = 1000;
    unsigned rounds = 10;
    unsigned limit = 0;  // ms; 0: none
    std::string manad = OPENMANA_MANAD;
};

/// What a NIC's guest has, and its thread that looks whether the NIC answers.
class Client {
public:
    /// For the rings of so many queue pairs.
    static constexpr std::uint64_t kBytesOfQp = 64U << 10;
    static constexpr auto kBetweenReads = std::chrono::microseconds(200);

    Client(const std::string& socket, std::uint8_t number, unsigned qps)
        : nic_(RemoteNic::attach(socket, RemoteNic::kRamBytes + qps * kBytesOfQp)) {
        OM_CHECK(nic_ != nullptr);
        host_ = std::make_unique<RdmaHost>(*nic_, nic_->ram(), nic_->irq(), test_mac(number),
                                           ipv4_gid(number));
        OM_CHECK(host_->bring_up());
        const auto cq = host_->create_cq();
        OM_CHECK(cq.has_value());
        for (unsigned i = 0; i < qps; ++i) {
            qps_.push_back(host_->create_rc(*cq, *cq));
            OM_CHECK(qps_.back() != nullptr);
        }
    }
    ~Client() { stop(); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Each queue pair with that of the other one.
    void connect(const Client& other) {
        for (std::size_t i = 0; i < qps_.size(); ++i)
            OM_CHECK(host_->connect(
                *qps_[i], 0x100,
                {other.host_->gid(), other.host_->mac(), other.qps_[i]->qpn(), 0x100}));
    }
    void start() {
        thread_ = std::thread([this] {
            while (!stop_.load(std::memory_order_relaxed)) {
                std::byte word[4];
                nic_->bar0_read(0, word);
                OM_CHECK(nic_->alive());
                const auto now = steady_clock::now();
                {
                    const std::lock_guard lock(mutex_);
                    longest_ = std::max<steady_clock::duration>(longest_, now - last_);
                }
                last_ = now;
                std::this_thread::sleep_for(kBetweenReads);
            }
        });
    }
    void stop() {
        stop_.store(true, std::memory_order_relaxed);
        if (thread_.joinable()) thread_.join();
    }
    /// The longest time without an answer since this was asked last.
    Milliseconds longest() {
        const std::lock_guard lock(mutex_);
        return std::exchange(longest_, {});
    }

private:
    std::unique_ptr<RemoteNic> nic_;
    std::unique_ptr<RdmaHost> host_;
    std::vector<std::unique_ptr<HostQp>> qps_;
    std::thread thread_;
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // protects longest_
    steady_clock::duration longest_{};
    steady_clock::time_point last_ = steady_clock::now();
};

/// What the command line says; nothing, and `status`, if it is wrong or asks for help.
std::optional<Settings> parse(int argc, char** argv, int& status) {
    Settings settings;
    CLI::App app{"How long nobody serves clients while one manad takes another's place.",
                 "take_over_bench"};
    app.add_option("--nics", settings.nics, "NICs")
        ->check(CLI::Range(2, 250))
        ->capture_default_str();
    app.add_option("--qps", settings.qps, "queue pairs of each")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    app.add_option("--rounds", settings.rounds, "take-overs")
        ->check(CLI::Range(1, 10000))
        ->capture_default_str();
    app.add_option("--limit", settings.limit, "ms that none may last longer than; 0: any");
    app.add_option("--manad", settings.manad, "the program")->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        status = app.exit(error);
        return std::nullopt;
    }
    return settings;
}

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

int run(const Settings& settings) {
    std::string folder = "/tmp/take-over-XXXXXX";
    OM_CHECK(::mkdtemp(folder.data()) != nullptr);
    std::vector<std::string> words{settings.manad, "--log", "error", "--control",
                                   folder + "/control"};
    for (unsigned i = 0; i < settings.nics; ++i)
        words.insert(words.end(),
                     {"--nic", "id=n" + std::to_string(i) + ",mac=" +
                                   base::to_string(test_mac(static_cast<std::uint8_t>(i + 1))) +
                                   ",socket=" + folder + "/n" + std::to_string(i)});
    auto manad = std::make_unique<Process>(words);
    OM_CHECK(manad->says_ready());
    std::vector<std::unique_ptr<Client>> clients;
    for (unsigned i = 0; i < settings.nics; ++i)
        clients.push_back(std::make_unique<Client>(folder + "/n" + std::to_string(i),
                                                   static_cast<std::uint8_t>(i + 1), settings.qps));
    for (unsigned i = 0; i < settings.nics; ++i)
        clients[i]->connect(*clients[(i ^ 1) % settings.nics]);
    for (const auto& client : clients) client->start();
    words.insert(words.end(), {"--take-over", folder + "/control"});
    std::vector<double> all;
    for (unsigned round = 0; round < settings.rounds; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        for (const auto& client : clients) (void)client->longest();
        auto next = std::make_unique<Process>(words);
        OM_CHECK(next->says_ready());
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        std::vector<double> blackouts;
        for (const auto& client : clients) blackouts.push_back(client->longest().count());
        const auto status = manad->wait();
        OM_CHECK(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        manad = std::move(next);
        std::printf("round %u: median %.1f ms, max %.1f ms\n", round + 1, median(blackouts),
                    *std::ranges::max_element(blackouts));
        all.insert(all.end(), blackouts.begin(), blackouts.end());
    }
    for (const auto& client : clients) client->stop();
    const double worst = *std::ranges::max_element(all);
    std::printf("%u NICs, %u QPs each, %u take-overs: median %.1f ms, max %.1f ms\n", settings.nics,
                settings.qps, settings.rounds, median(all), worst);
    clients.clear();
    ::kill(manad->pid(), SIGTERM);
    (void)manad->wait();
    (void)::rmdir(folder.c_str());
    return settings.limit != 0 && worst > settings.limit ? 1 : 0;
}

}  // namespace
}  // namespace openmana::test

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    int status = 0;
    const auto settings = openmana::test::parse(argc, argv, status);
    return settings ? openmana::test::run(*settings) : status;
}
