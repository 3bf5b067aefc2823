// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/socket_address.h"
#include "support/network_namespace.h"

namespace openmana::test {

/// Runs `f` on a thread with a network namespace of its own that has a loopback; what it does to
/// the host's routes ends with it. False if this user may not.
inline bool in_net_namespace(const std::function<void()>& f) {
    bool may = false;
    std::thread([&] {
        const NetworkNamespace own;
        may = own.made();
        if (!may) return;
        ASSERT_TRUE(NetworkNamespace::ip("link set lo up"));
        f();
    }).join();
    return may;
}

/// Somebody who makes messages of ICMP up, as if a router had no way for datagrams so large.
class Forger {
public:
    Forger() : fd_(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)) {}
    [[nodiscard]] bool may() const { return static_cast<bool>(fd_); }
    /// About a datagram from `from` to `to`.
    void needs_fragments(const base::SocketAddress& from, const base::SocketAddress& to,
                         std::uint16_t mtu) {
        const auto* const source = reinterpret_cast<const sockaddr_in*>(from.get());
        const auto* const target = reinterpret_cast<const sockaddr_in*>(to.get());
        std::array<std::uint8_t, 8 + 20 + 8> packet{};
        packet[0] = ICMP_DEST_UNREACH;
        packet[1] = ICMP_FRAG_NEEDED;
        packet[6] = static_cast<std::uint8_t>(mtu >> 8);
        packet[7] = static_cast<std::uint8_t>(mtu);
        std::uint8_t* const ip = packet.data() + 8;
        ip[0] = 0x45;
        ip[2] = 0x10;  // 4,096 bytes
        ip[6] = 0x40;  // DF
        ip[8] = 64;
        ip[9] = IPPROTO_UDP;
        std::memcpy(ip + 12, &source->sin_addr, 4);
        std::memcpy(ip + 16, &target->sin_addr, 4);
        std::memcpy(ip + 20, &source->sin_port, 2);
        std::memcpy(ip + 22, &target->sin_port, 2);
        std::uint32_t sum = 0;
        for (std::size_t i = 0; i < packet.size(); i += 2)
            sum += static_cast<std::uint32_t>(packet[i] << 8 | packet[i + 1]);
        sum = ~((sum & 0xffff) + (sum >> 16));
        packet[2] = static_cast<std::uint8_t>(sum >> 8);
        packet[3] = static_cast<std::uint8_t>(sum);
        EXPECT_EQ(::sendto(fd_.get(), packet.data(), packet.size(), 0, from.get(), from.length),
                  static_cast<ssize_t>(packet.size()));
    }

private:
    base::UniqueFd fd_;
};

/// A figure of the namespace's IP: "FragCreates".
inline long ip_figure(const std::string& name) {
    std::FILE* const file = std::fopen("/proc/thread-self/net/snmp", "re");
    char names[1024] = "";
    char values[1024] = "";
    const bool read = file != nullptr && std::fgets(names, sizeof names, file) != nullptr &&
                      std::fgets(values, sizeof values, file) != nullptr;
    if (file != nullptr) std::fclose(file);
    if (!read) return -1;
    char* name_at = nullptr;
    char* value_at = nullptr;
    const char* one = ::strtok_r(names, " \n", &name_at);
    const char* value = ::strtok_r(values, " \n", &value_at);
    for (; one != nullptr && value != nullptr;
         one = ::strtok_r(nullptr, " \n", &name_at), value = ::strtok_r(nullptr, " \n", &value_at))
        if (name == one) return std::strtol(value, nullptr, 10);
    return -1;
}

}  // namespace openmana::test
