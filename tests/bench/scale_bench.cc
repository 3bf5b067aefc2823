// SPDX-License-Identifier: Apache-2.0
// One manad with many NICs, as their number grows: how long it takes to start and to end, what it
// keeps of memory, what it does when nobody does anything, and what a WRITE and a frame between two
// of them cost beside the others. With --apart the same NICs in one process each, whose networks
// are joined by UDP uplinks. The clients are scripted, and drive the device as a guest would.
#include <mana/rnic_queue.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mac_text.h"
#include "hostile/process.h"
#include "support/eth_guest.h"
#include "support/loopback.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"
#include "support/temp_dir.h"

namespace openmana::test {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t kRam = 4U << 20;
constexpr std::uint32_t kMessage = 4096;
constexpr int kList = 16;  // work requests for each doorbell
constexpr std::size_t kFrame = 1500;

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + values.size() / 2);
    return values[values.size() / 2];
}

double now() {
    return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A guest with both halves of the device, one connection and one queue for frames.
struct Client {
    Client(const std::string& socket, std::uint8_t number, const base::MacAddr& mac)
        : nic(RemoteNic::attach(socket, kRam)) {
        OM_CHECK(nic != nullptr);
        host = std::make_unique<RdmaHost>(*nic, nic->ram(), nic->irq(), mac, ipv4_gid(number));
        OM_CHECK(host->bring_up());
        eth = std::make_unique<EthGuest>(host->hwc());
        OM_CHECK(eth->probe() && eth->up());
        send_cq = *host->create_cq();
        recv_cq = *host->create_cq();
        qp = host->create_rc(send_cq, recv_cq);
        OM_CHECK(qp != nullptr);
        buffer = nic->ram().alloc(kMessage);
        mr = *host->hwc().create_mr(host->pd, buffer, kMessage, 15);
        frame = nic->ram().alloc(kFrame);
    }
    /// What it sends to another one.
    void address_frame(const base::MacAddr& other) const {
        const auto bytes = nic->ram().bytes(frame, kFrame);
        std::ranges::copy(std::as_bytes(std::span(other)), bytes.begin());
        std::ranges::copy(std::as_bytes(std::span(host->mac())), bytes.begin() + 6);
        bytes[12] = std::byte{0x88};
        bytes[13] = std::byte{0xb5};  // for experiments
    }
    [[nodiscard]] Peer as_peer(std::uint32_t psn) const {
        return {host->gid(), host->mac(), qp->qpn(), psn};
    }
    [[nodiscard]] gdma::Sge all() const { return {buffer.value(), gdma::Key(mr.lkey), kMessage}; }

    std::unique_ptr<RemoteNic> nic;
    std::unique_ptr<RdmaHost> host;
    std::unique_ptr<EthGuest> eth;
    DriverCq send_cq, recv_cq;
    std::unique_ptr<HostQp> qp;
    base::GuestAddr buffer{};
    DriverMr mr;
    base::GuestAddr frame{};
};

/// NICs, each of which has a client, in one manad; or in one each, where the first two are joined
/// by an uplink.
class Host {
public:
    Host(const std::string& program, unsigned nics, bool apart = false) {
        std::vector<std::vector<std::string>> all(apart ? nics : 1);
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = {program, "--control", temp_.path() + "/control" + std::to_string(i), "--log",
                      "error"};
        for (unsigned i = 0; i < nics; ++i) {
            auto& words = all[apart ? i : 0];
            words.insert(words.end(), {"--nic", "id=n" + std::to_string(i) +
                                                    ",mac=" + base::to_string(mac_of(i)) +
                                                    ",socket=" + socket(i)});
        }
        if (apart && nics >= 2) {
            const auto [first, second] = free_udp_addresses();
            const auto uplink = [](const auto& local, const auto& remote) {
                return "udp=local=" + local.text() + ",remote=" + remote.text();
            };
            all[0].insert(all[0].end(), {"--uplink", uplink(first, second)});
            all[1].insert(all[1].end(), {"--uplink", uplink(second, first)});
        }
        const double begin = now();
        for (const auto& words : all) manads_.push_back(std::make_unique<Process>(words));
        for (const auto& manad : manads_) OM_CHECK(manad->says_ready());
        start_seconds = now() - begin;
        start_bytes = own_memory();
        for (unsigned i = 0; i < nics; ++i)
            clients_.push_back(
                std::make_unique<Client>(socket(i), static_cast<std::uint8_t>(i + 1), mac_of(i)));
        bytes = own_memory();
        if (nics < 2) return;
        Client& a = *clients_[0];
        Client& b = *clients_[1];
        a.address_frame(b.host->mac());
        OM_CHECK(b.host->connect(*b.qp, 0x900, a.as_peer(0x100), kMessage));
        OM_CHECK(a.host->connect(*a.qp, 0x100, b.as_peer(0x900), kMessage));
    }
    /// How long it takes to end.
    double end() {
        clients_.clear();
        const double begin = now();
        for (const auto& manad : manads_) ::kill(manad->pid(), SIGTERM);
        for (const auto& manad : manads_) {
            const auto status = manad->wait();
            OM_CHECK(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        }
        return now() - begin;
    }
    /// Of all its threads since it began.
    [[nodiscard]] double cpu() const {
        double all = 0;
        for (const auto& manad : manads_) {
            clockid_t clock{};
            timespec time{};
            OM_CHECK(::clock_getcpuclockid(manad->pid(), &clock) == 0 &&
                     ::clock_gettime(clock, &time) == 0);
            all += static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
        }
        return all;
    }
    /// How long one WRITE takes, when there is no other.
    [[nodiscard]] double write_time(int count) {
        const double before = now();
        for (int i = 0; i < count; ++i) write_list(1);
        return (now() - before) / count;
    }
    /// CPU time that each of some WRITEs of the first client to the second takes.
    [[nodiscard]] double write_cost(int lists) {
        const double before = cpu();
        for (int i = 0; i < lists; ++i) write_list(kList);
        return (cpu() - before) / (lists * kList);
    }
    /// The same of frames.
    [[nodiscard]] double frame_cost(int count) {
        const double before = cpu();
        for (int i = 0; i < count; ++i) send_frame();
        return (cpu() - before) / count;
    }

    double start_seconds = 0;
    std::uint64_t start_bytes = 0;
    std::uint64_t bytes = 0;

private:
    static base::MacAddr mac_of(unsigned i) {
        return {2, 0, 0, 0, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    }
    [[nodiscard]] std::string socket(unsigned i) const {
        return temp_.path() + "/n" + std::to_string(i);
    }
    /// Without what it has of guests' memory.
    [[nodiscard]] std::uint64_t own_memory() const {
        std::uint64_t all = 0;
        for (const auto& manad : manads_) {
            std::ifstream status("/proc/" + std::to_string(manad->pid()) + "/status");
            for (std::string line; std::getline(status, line);)
                if (line.starts_with("RssAnon:")) all += std::stoull(line.substr(8)) * 1024;
        }
        return all;
    }
    void write_list(int count) {
        Client& a = *clients_[0];
        const Client& b = *clients_[1];
        for (int i = 0; i < count; ++i)
            OM_CHECK(a.host->post_send(*a.qp,
                                       {.opcode = MANA_HW_RNIC_WQE_WRITE,
                                        .sges = {a.all()},
                                        .remote_address = b.buffer.value(),
                                        .rkey = b.mr.rkey,
                                        .signaled = i + 1 == count},
                                       i + 1 == count));
        HostQp* const qps[] = {a.qp.get()};
        std::vector<Completion> done;
        while (done.empty() || !done.back().signaled) a.host->poll(a.send_cq, qps, done);
        for (const Completion& one : done) OM_CHECK(one.vendor == 0);
        a.nic->collect_interrupts();
        (void)a.host->eq.drain();
    }
    void send_frame() {
        Client& a = *clients_[0];
        Client& b = *clients_[1];
        EthTx& tx = a.eth->tx[0];
        EthRx& rx = b.eth->rx[0];
        const gdma::Sge frame{a.frame.value(), gdma::Key(a.eth->key), kFrame};
        const std::array<std::uint32_t, 2> short_oob{tx.cq.id << 8, (tx.sq.id & 0x3fff) << 10};
        tx.sq.post(std::as_bytes(std::span(short_oob)), {&frame, 1});
        tx.sq.doorbell();
        while (!EthGuest::poll(tx)) {
        }
        // The buffer that it came into is posted again.
        const gdma::Sge buffer{rx.buffers.front().value(), gdma::Key(b.eth->key), rx.buffer_bytes};
        while (!b.eth->poll(rx)) {
        }
        const std::array<std::byte, 8> oob{};
        rx.rq.post(oob, {&buffer, 1});
        rx.rq.doorbell();
        rx.buffers.push_back(base::GuestAddr(buffer.address));
    }

    const TempDir temp_{"openmana-scale"};
    std::vector<std::unique_ptr<Process>> manads_;
    std::vector<std::unique_ptr<Client>> clients_;
};

void print_table(const std::string& program, const std::vector<unsigned>& sizes, double seconds,
                 bool apart) {
    std::printf("%6s %9s %9s %12s %12s %10s\n", "NICs", "start ms", "end ms", "MiB started",
                "MiB attached", "idle CPU %");
    for (const unsigned nics : sizes) {
        Host host(program, nics, apart);
        std::this_thread::sleep_for(Seconds(1));
        const double before = host.cpu();
        std::this_thread::sleep_for(Seconds(seconds));
        const double idle = (host.cpu() - before) / seconds * 100;
        const double end = host.end();
        std::printf("%6u %9.1f %9.1f %12.1f %12.1f %10.3f\n", nics, host.start_seconds * 1e3,
                    end * 1e3, static_cast<double>(host.start_bytes) / (1 << 20),
                    static_cast<double>(host.bytes) / (1 << 20), idle);
        std::fflush(stdout);
    }
}

int run(const std::string& program, const std::vector<unsigned>& sizes, int rounds, double seconds,
        bool apart) {
    print_table(program, sizes, seconds, false);
    if (apart) {
        std::printf("\nThe same with a process for each NIC:\n");
        print_table(program, sizes, seconds, true);
    }
    Host first(program, 2);
    Host second(program, apart ? 2 : sizes.back(), apart);
    const std::string other =
        apart ? "in a process each" : "beside " + std::to_string(sizes.back() - 2) + " others";
    std::printf(
        "\nBetween two busy NICs, alone in one process and %s, medians of %d rounds by "
        "turns:\n%22s %9s %9s %7s %s\n",
        other.c_str(), rounds, "", "alone us", "other us", "ratio", "of the rounds");
    const auto compare = [&](const char* name, auto cost) {
        std::vector<double> alone, beside, ratio;
        for (int i = 0; i < rounds; ++i) {
            alone.push_back(cost(first) * 1e6);
            beside.push_back(cost(second) * 1e6);
            ratio.push_back(beside.back() / alone.back());
        }
        const auto [least, most] = std::ranges::minmax(ratio);
        std::printf("%22s %9.2f %9.2f %7.2f %.2f to %.2f\n", name, median(alone), median(beside),
                    median(ratio), least, most);
    };
    compare("CPU time of a WRITE", [](Host& host) { return host.write_cost(500); });
    compare("CPU time of a frame", [](Host& host) { return host.frame_cost(2000); });
    compare("time of a WRITE alone", [](Host& host) { return host.write_time(2000); });
    (void)first.end();
    (void)second.end();
    return EXIT_SUCCESS;
}

}  // namespace
}  // namespace openmana::test

int main(int argc, char** argv) {
    CLI::App app{"One manad with many NICs: time, memory and CPU against their number.",
                 "scale_bench"};
    std::string program = OPENMANA_MANAD;
    std::vector<unsigned> sizes{1, 10, 50, 100, 200};
    int rounds = 7;
    double seconds = 5;
    bool apart = false;
    app.add_flag("--apart", apart, "beside all NICs in one process: each in its own");
    app.add_option("--manad", program, "the program")->capture_default_str();
    app.add_option("--nics", sizes, "how many NICs, 2 to 250 at the end")
        ->delimiter(',')
        ->check(CLI::Range(1, 250))
        ->capture_default_str();
    app.add_option("--rounds", rounds, "of each figure")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    app.add_option("--seconds", seconds, "that idle CPU time is counted for")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (sizes.back() < 2) {
        std::fputs("scale_bench: the last number of --nics has two busy ones, at least\n", stderr);
        return EXIT_FAILURE;
    }
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)::setrlimit(RLIMIT_NOFILE, &files);
    }
    ::signal(SIGPIPE, SIG_IGN);
    return openmana::test::run(program, sizes, rounds, seconds, apart);
}
