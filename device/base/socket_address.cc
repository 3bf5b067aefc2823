// SPDX-License-Identifier: Apache-2.0
#include "base/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <charconv>
#include <cstdint>
#include <cstring>

namespace openmana::base {
namespace {

const sockaddr_in& as_ipv4(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_ipv6(const SocketAddress& address) {
    return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos)
        return fail(ErrorCode::kInvalidArgument, "not ADDRESS:PORT");
    std::uint16_t port = 0;
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc{} || end != digits.data() + digits.size() || port == 0)
        return fail(ErrorCode::kInvalidArgument, "not a port from 1 to 65535");
    std::string host(text.substr(0, colon));
    SocketAddress result;
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = ::htons(port);
        std::memcpy(&result.storage, &v4, sizeof v4);
        result.length = sizeof v4;
        return result;
    }
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
        if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
            v6.sin6_family = AF_INET6;
            v6.sin6_port = ::htons(port);
            std::memcpy(&result.storage, &v6, sizeof v6);
            result.length = sizeof v6;
            return result;
        }
    }
    return fail(ErrorCode::kInvalidArgument, "not an IPv4 address, or an IPv6 address in brackets");
}

std::string SocketAddress::text() const {
    char host[INET6_ADDRSTRLEN] = "?";
    if (family() == AF_INET) {
        ::inet_ntop(AF_INET, &as_ipv4(*this).sin_addr, host, sizeof host);
        return fmt::format("{}:{}", host, ::ntohs(as_ipv4(*this).sin_port));
    }
    ::inet_ntop(AF_INET6, &as_ipv6(*this).sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ::ntohs(as_ipv6(*this).sin6_port));
}

bool operator==(const SocketAddress& a, const SocketAddress& b) {
    if (a.family() != b.family()) return false;
    if (a.family() == AF_INET)
        return as_ipv4(a).sin_port == as_ipv4(b).sin_port &&
               as_ipv4(a).sin_addr.s_addr == as_ipv4(b).sin_addr.s_addr;
    return as_ipv6(a).sin6_port == as_ipv6(b).sin6_port &&
           std::memcmp(&as_ipv6(a).sin6_addr, &as_ipv6(b).sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace openmana::base
