// SPDX-License-Identifier: Apache-2.0
// A plain UDP sender and receiver with the sockets that uplinks have: what the way between two
// hosts can carry without NICs, switches and RDMA. Datagrams of one size, as fast as they go.
//
//   udp_bench receive LOCAL REMOTE            prints what came as JSON, a second after the last
//   udp_bench send LOCAL REMOTE BYTES SECONDS
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/datagram_socket.h"

using namespace openmana::base;
using Steady = std::chrono::steady_clock;

namespace {

constexpr std::size_t kBurstBytes = 64U << 10;
constexpr int kQuiet = 1000;       // ms after which nothing more comes
constexpr int kPatience = 30'000;  // ms for the first

int usage() {
    std::fprintf(stderr,
                 "usage: udp_bench receive LOCAL REMOTE\n"
                 "       udp_bench send LOCAL REMOTE BYTES SECONDS\n");
    return 2;
}

double seconds_between(Steady::time_point begin, Steady::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

int receive(DatagramSocket& socket) {
    std::uint64_t bytes = 0;
    std::uint64_t datagrams = 0;
    Steady::time_point first{};
    Steady::time_point last{};
    for (;;) {
        pollfd ready{socket.fd(), POLLIN, 0};
        if (::poll(&ready, 1, datagrams == 0 ? kPatience : kQuiet) == 0) break;
        bool more = true;
        while (more) {
            const auto got = socket.receive(more);
            if (got.empty()) continue;
            last = Steady::now();
            if (datagrams == 0) first = last;
            datagrams += got.size();
            for (const ReceivedDatagram& datagram : got) bytes += datagram.bytes.size();
        }
    }
    const double seconds = seconds_between(first, last);
    std::printf("{\"datagrams\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"gbps\": %.3f}\n",
                static_cast<unsigned long long>(datagrams), static_cast<unsigned long long>(bytes),
                seconds, seconds > 0 ? static_cast<double>(bytes) * 8e-9 / seconds : 0);
    return EXIT_SUCCESS;
}

int send(DatagramSocket& socket, std::size_t bytes, double seconds) {
    const std::vector<std::byte> payload(bytes);
    const std::vector<Datagram> burst(std::max<std::size_t>(1, kBurstBytes / bytes),
                                      {{}, payload, nullptr, 0});
    std::uint64_t sent = 0;
    std::uint64_t lost = 0;
    const auto begin = Steady::now();
    while (seconds_between(begin, Steady::now()) < seconds) {
        const auto result = socket.send(burst);
        sent += result.bytes;
        lost += result.dropped;
        if (result.too_large > 0) {
            std::fprintf(stderr, "udp_bench: datagrams of %zu bytes are too large for the path\n",
                         bytes);
            return EXIT_FAILURE;
        }
    }
    const double took = seconds_between(begin, Steady::now());
    std::printf("{\"bytes\": %llu, \"dropped\": %llu, \"seconds\": %.6f, \"gbps\": %.3f}\n",
                static_cast<unsigned long long>(sent), static_cast<unsigned long long>(lost), took,
                static_cast<double>(sent) * 8e-9 / took);
    return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc > 1 ? argv[1] : "";
    const bool sends = what == "send" && argc == 6;
    if (!sends && (what != "receive" || argc != 4)) return usage();
    const auto local = SocketAddress::parse(argv[2]);
    const auto remote = SocketAddress::parse(argv[3]);
    const long bytes = sends ? std::strtol(argv[4], nullptr, 10) : 1;
    const double seconds = sends ? std::strtod(argv[5], nullptr) : 1;
    if (!local || !remote || bytes < 1 || bytes > static_cast<long>(DatagramSocket::kMaxDatagram) ||
        seconds <= 0)
        return usage();
    DatagramSocket::Options options;
    options.remote = *remote;
    auto socket = DatagramSocket::open(*local, options);
    if (!socket) {
        std::fprintf(stderr, "udp_bench: %s: %s\n", socket.error().text,
                     std::strerror(static_cast<int>(socket.error().detail)));
        return EXIT_FAILURE;
    }
    return sends ? send(*socket, static_cast<std::size_t>(bytes), seconds) : receive(*socket);
}
