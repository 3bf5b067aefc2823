// SPDX-License-Identifier: Apache-2.0
// What a frame costs between two switches joined by UDP uplinks over the loopback, beside the same
// datagrams sent and received by nobody but the sockets, and by XDP uplinks at the ends of a veth
// pair. Each side has a thread; the rate that is
// shown is of its CPU time, so that a machine with other work does not blur it.
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/datagram_socket.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "fabric/switch.h"
#include "fabric/udp_uplink.h"
#include "support/loopback.h"
#include "support/network_namespace.h"

namespace openmana::fabric {
namespace {

/// A RoCEv2 packet over IPv4 has so much around its payload.
constexpr std::size_t kHeaders = 14 + 20 + 8 + 12 + 4;
constexpr std::size_t kBurstFrames = 16;
/// What may be on the way, so that nothing is lost.
constexpr std::uint64_t kWindow = 2U << 20;
constexpr std::uint64_t kBytes = 64U << 20;  // of one iteration

double cpu_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Counts what arrives.
class Sink final : public Port {
public:
    void deliver(base::FrameViews frames) override {
        std::uint64_t sum = 0;
        for (const base::FrameView frame : frames) sum += frame.size();
        bytes.fetch_add(sum, std::memory_order_release);
    }
    std::atomic<std::uint64_t> bytes{0};
};

/// The receiving side, on a thread of its own.
struct Receiver {
    explicit Receiver(const UplinkConfig& config) : loop(std::move(*base::EventLoop::create())) {
        const base::MacAddr mac{2, 0, 0, 0, 0, 2};
        network.attach(sink, &mac);
        auto made = Uplink::create(*loop, network, config);
        if (!made) throw std::runtime_error(made.error().text);
        uplink = std::move(*made);
        thread = std::thread([this] {
            loop->run();
            cpu = cpu_seconds();
        });
    }
    ~Receiver() { stop(); }
    void stop() {
        if (!thread.joinable()) return;
        loop->stop();
        thread.join();
    }
    base::SystemClock clock;
    Switch network{clock};
    Sink sink;
    std::unique_ptr<base::EventLoop> loop;
    std::unique_ptr<Uplink> uplink;
    std::thread thread;
    double cpu = 0;
};

std::vector<base::Frame> frames_of(std::size_t payload, std::size_t count) {
    std::vector<base::Frame> frames(count, base::Frame(payload + kHeaders));
    for (base::Frame& frame : frames) {
        const base::MacAddr to{2, 0, 0, 0, 0, 2}, from{2, 0, 0, 0, 0, 1};
        std::memcpy(frame.data(), to.data(), to.size());
        std::memcpy(frame.data() + 6, from.data(), from.size());
        frame[12] = std::byte{0x88};  // no IP, so no guard looks further
        frame[13] = std::byte{0xb5};
    }
    return frames;
}

void report(benchmark::State& state, std::uint64_t bytes, double sender, double receiver) {
    const double bits = static_cast<double>(bytes) * 8e-9;
    state.counters["sender_Gbps"] = bits / sender;
    state.counters["receiver_Gbps"] = bits / receiver;
}

/// A key file of this process.
class KeyFile {
public:
    KeyFile() {
        const int fd = ::mkstemp(path_.data());  // mode 0600
        const std::string key(64, '1');
        const bool written =
            ::write(fd, key.data(), key.size()) == static_cast<ssize_t>(key.size());
        ::close(fd);
        if (!written) throw std::runtime_error("no key file");
    }
    ~KeyFile() { ::unlink(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_ = "/tmp/wire_bench-XXXXXX";
};

void join(benchmark::State& state, const UplinkConfig& near_config,
          const UplinkConfig& far_config) {
    const auto payload = static_cast<std::size_t>(state.range(0));
    const auto together = static_cast<std::size_t>(state.range(1));
    Receiver far(far_config);
    const auto loop = std::move(*base::EventLoop::create());
    base::SystemClock clock;
    Switch network(clock);
    Sink source;
    const base::MacAddr mac{2, 0, 0, 0, 0, 1};
    network.attach(source, &mac);
    auto near = Uplink::create(*loop, network, near_config);
    if (!near) {
        state.SkipWithError(near.error().text);
        return;
    }
    // A frame from there tells where that address is.
    base::Frame hello = frames_of(64, 1).front();
    std::swap_ranges(hello.begin(), hello.begin() + 6, hello.begin() + 6);
    network.forward(**near, hello);
    const auto frames = frames_of(payload, together);
    const std::vector<base::FrameView> views(frames.begin(), frames.end());
    const std::uint64_t burst = together * frames[0].size();
    std::uint64_t sent = 0;
    double cpu = 0;
    for (auto _ : state) {
        for (const std::uint64_t end = sent + kBytes; sent < end; sent += burst) {
            while (sent + burst > far.sink.bytes.load(std::memory_order_acquire) + kWindow)
                std::this_thread::yield();
            const double before = cpu_seconds();
            network.forward(source, views);
            cpu += cpu_seconds() - before;
        }
        while (far.sink.bytes.load(std::memory_order_acquire) < sent) std::this_thread::yield();
    }
    far.stop();
    if ((*near)->counters().tx_dropped.value() > 0) state.SkipWithError("frames were dropped");
    report(state, sent, cpu, far.cpu);
    network.detach(source);
}

void join_uplinks(benchmark::State& state, const std::string& key_file) {
    UplinkConfig near, far;
    std::tie(near.local, near.remote) = test::free_udp_addresses();
    std::tie(far.remote, far.local) = std::tie(near.local, near.remote);
    near.encryption.key_file = far.encryption.key_file = key_file;
    join(state, near, far);
}

void xdp_to_xdp(benchmark::State& state) {
    base::set_log_level(base::LogLevel::kWarn);
    const test::NetworkNamespace space;
    if (!space.made() || !space.ip("link add near mtu 9000 type veth peer name far mtu 9000") ||
        !space.ip("link set near up") || !space.ip("link set far up")) {
        state.SkipWithError("no veth pair: only root can have one");
        return;
    }
    UplinkConfig near, far;
    near.kind = far.kind = UplinkConfig::Kind::kXdp;
    near.interface = "near";
    far.interface = "far";
    near.xdp.addresses = {{2, 0, 0, 0, 0, 1}};
    far.xdp.addresses = {{2, 0, 0, 0, 0, 2}};
    join(state, near, far);
}

void uplink_to_uplink(benchmark::State& state) {
    join_uplinks(state, "");
}

void encrypted_uplinks(benchmark::State& state) {
    const KeyFile key_file;
    join_uplinks(state, key_file.path());
}

void sockets_alone(benchmark::State& state) {
    const auto payload = static_cast<std::size_t>(state.range(0));
    const auto together = static_cast<std::size_t>(state.range(1));
    const auto [near_address, far_address] = test::free_udp_addresses();
    base::DatagramSocket::Options options;
    options.remote = far_address;
    auto near = base::DatagramSocket::open(near_address, options);
    options.remote = near_address;
    auto far = base::DatagramSocket::open(far_address, options);
    if (!near || !far) {
        state.SkipWithError("no sockets");
        return;
    }
    std::atomic<std::uint64_t> received{0};
    std::atomic<bool> stop{false};
    double receiver = 0;
    std::thread thread([&] {
        while (!stop.load(std::memory_order_relaxed)) {
            bool more = true;
            std::uint64_t bytes = 0;
            const double before = cpu_seconds();
            for (const base::ReceivedDatagram& datagram : far->receive(more))
                bytes += datagram.bytes.size();
            if (bytes == 0) {
                std::this_thread::yield();
                continue;
            }
            receiver += cpu_seconds() - before;
            received.fetch_add(bytes, std::memory_order_release);
        }
    });
    const auto frames = frames_of(payload, together);
    std::vector<base::Datagram> datagrams;
    for (const base::Frame& frame : frames) datagrams.push_back({{}, frame, nullptr, 0});
    const std::uint64_t burst = together * frames[0].size();
    std::uint64_t sent = 0;
    double cpu = 0;
    for (auto _ : state) {
        for (const std::uint64_t end = sent + kBytes; sent < end; sent += burst) {
            while (sent + burst > received.load(std::memory_order_acquire) + kWindow)
                std::this_thread::yield();
            const double before = cpu_seconds();
            (void)near->send(datagrams);
            cpu += cpu_seconds() - before;
        }
        while (received.load(std::memory_order_acquire) < sent) std::this_thread::yield();
    }
    stop = true;
    thread.join();
    report(state, sent, cpu, receiver);
}

constexpr auto kCases = [](benchmark::internal::Benchmark* bench) {
    bench->ArgNames({"payload", "together"})->UseRealTime()->Unit(benchmark::kMillisecond);
    for (const int payload : {1024, 4096})
        for (const int together : {1, static_cast<int>(kBurstFrames) * 4096 / payload})
            bench->Args({payload, together});
};
BENCHMARK(uplink_to_uplink)->Apply(kCases);
BENCHMARK(encrypted_uplinks)->Apply(kCases);
BENCHMARK(xdp_to_xdp)->Apply(kCases);
BENCHMARK(sockets_alone)->Apply(kCases);

}  // namespace
}  // namespace openmana::fabric

BENCHMARK_MAIN();
