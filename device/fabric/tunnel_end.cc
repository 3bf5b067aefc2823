// SPDX-License-Identifier: Apache-2.0
#include "fabric/tunnel_end.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

namespace openmana::fabric {
namespace {

constexpr std::size_t kIpv4At = 12;  // in the mapped form

bool unspecified(const roce::Gid& address) {
    for (std::size_t i = roce::is_ipv4(address) ? kIpv4At : 0; i < address.size(); ++i)
        if (address[i] != 0) return false;
    return true;
}

bool broadcast(const roce::Gid& address) {
    return roce::is_ipv4(address) && address[12] == 0xff && address[13] == 0xff &&
           address[14] == 0xff && address[15] == 0xff;
}

bool link_local(const roce::Gid& address) {
    return !roce::is_ipv4(address) && address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

}  // namespace

std::optional<roce::Gid> parse_ip(std::string_view text) {
    const std::string copy(text);
    roce::Gid address{};
    if (copy.find('\0') != std::string::npos) return std::nullopt;
    if (::inet_pton(AF_INET, copy.c_str(), address.data() + kIpv4At) == 1) {
        address[10] = address[11] = 0xff;
        return address;
    }
    if (::inet_pton(AF_INET6, copy.c_str(), address.data()) == 1) return address;
    return std::nullopt;
}

std::string ip_text(const roce::Gid& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (roce::is_ipv4(address))
        (void)::inet_ntop(AF_INET, address.data() + kIpv4At, text, sizeof text);
    else
        (void)::inet_ntop(AF_INET6, address.data(), text, sizeof text);
    return text;
}

roce::Gid ip_of(const base::SocketAddress& address) {
    roce::Gid ip{};
    if (address.family() == AF_INET) {
        const auto* const in = reinterpret_cast<const sockaddr_in*>(&address.storage);
        ip[10] = ip[11] = 0xff;
        std::memcpy(ip.data() + kIpv4At, &in->sin_addr, sizeof in->sin_addr);
    } else {
        const auto* const in = reinterpret_cast<const sockaddr_in6*>(&address.storage);
        std::memcpy(ip.data(), &in->sin6_addr, sizeof in->sin6_addr);
    }
    return ip;
}

std::uint16_t port_of(const base::SocketAddress& address) {
    const auto* const storage = &address.storage;
    return ntohs(address.family() == AF_INET
                     ? reinterpret_cast<const sockaddr_in*>(storage)->sin_port
                     : reinterpret_cast<const sockaddr_in6*>(storage)->sin6_port);
}

base::SocketAddress socket_address_of(const TunnelEnd& end) {
    base::SocketAddress address;
    if (roce::is_ipv4(end.address)) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(end.port);
        std::memcpy(&in.sin_addr, end.address.data() + kIpv4At, sizeof in.sin_addr);
        std::memcpy(&address.storage, &in, sizeof in);
        address.length = sizeof in;
    } else {
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(end.port);
        std::memcpy(&in.sin6_addr, end.address.data(), sizeof in.sin6_addr);
        std::memcpy(&address.storage, &in, sizeof in);
        address.length = sizeof in;
    }
    return address;
}

std::string to_string(const TunnelEnd& end) {
    return roce::is_ipv4(end.address) ? fmt::format("{}:{}", ip_text(end.address), end.port)
                                      : fmt::format("[{}]:{}", ip_text(end.address), end.port);
}

const char* why_no_end(const TunnelEnd& end, const TunnelEnd& local) {
    if (roce::is_ipv4(end.address) != roce::is_ipv4(local.address))
        return "is not of the local address's IP version";
    if (unspecified(end.address)) return "is nobody's address";
    if (roce::is_multicast(end.address) || broadcast(end.address))
        return "is a group: name each end of the tunnel";
    if (link_local(end.address)) return "is good on one link only, and names none";
    if (end.address == local.address && end.port == local.port)
        return "is this end of the tunnel itself";
    return nullptr;
}

}  // namespace openmana::fabric
