// SPDX-License-Identifier: Apache-2.0
#include "base/route_mtu.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "base/fd.h"

namespace openmana::base {
namespace {

std::span<const std::byte> ip_bytes(const SocketAddress& address) {
    const auto* const storage = &address.storage;
    if (address.family() == AF_INET)
        return std::as_bytes(
            std::span(&reinterpret_cast<const sockaddr_in*>(storage)->sin_addr, 1));
    return std::as_bytes(std::span(&reinterpret_cast<const sockaddr_in6*>(storage)->sin6_addr, 1));
}

/// A request for the route (rtnetlink(7)).
class RouteRequest {
public:
    RouteRequest(const SocketAddress& local, const SocketAddress& remote, unsigned flags) {
        auto* const header = reinterpret_cast<nlmsghdr*>(bytes_.data());
        header->nlmsg_type = RTM_GETROUTE;
        header->nlmsg_flags = NLM_F_REQUEST;
        size_ = NLMSG_LENGTH(sizeof(rtmsg));
        auto* const route = static_cast<rtmsg*>(NLMSG_DATA(header));
        route->rtm_family = static_cast<unsigned char>(remote.family());
        route->rtm_flags = flags;
        route->rtm_dst_len = add(RTA_DST, ip_bytes(remote));
        route->rtm_src_len = add(RTA_SRC, ip_bytes(local));
        header->nlmsg_len = static_cast<std::uint32_t>(size_);
    }
    [[nodiscard]] std::span<const std::byte> bytes() const {
        return std::span(bytes_).first(size_);
    }

private:
    /// Its bits.
    unsigned char add(unsigned short type, std::span<const std::byte> value) {
        rtattr attribute{static_cast<unsigned short>(RTA_LENGTH(value.size())), type};
        std::memcpy(bytes_.data() + size_, &attribute, sizeof attribute);
        std::memcpy(bytes_.data() + size_ + RTA_LENGTH(0), value.data(), value.size());
        size_ += RTA_SPACE(value.size());
        return static_cast<unsigned char>(value.size() * 8);
    }
    alignas(nlmsghdr) std::array<std::byte, 128> bytes_{};
    std::size_t size_ = 0;
};

struct Route {
    int interface = 0;
    std::uint32_t mtu = 0;  ///< 0: it says none
};

std::optional<Route> ask(const RouteRequest& request) {
    const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    const auto bytes = request.bytes();
    if (!fd || ::send(fd.get(), bytes.data(), bytes.size(), 0) < 0) return std::nullopt;
    alignas(nlmsghdr) std::array<std::byte, 8192> answer;
    const ssize_t n = ::recv(fd.get(), answer.data(), answer.size(), 0);
    if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(rtmsg)))) return std::nullopt;
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (header->nlmsg_type != RTM_NEWROUTE || header->nlmsg_len > static_cast<std::size_t>(n))
        return std::nullopt;
    Route route;
    const auto* const message = static_cast<const rtmsg*>(NLMSG_DATA(header));
    auto left = static_cast<int>(RTM_PAYLOAD(header));
    for (const rtattr* at = RTM_RTA(message); RTA_OK(at, left); at = RTA_NEXT(at, left)) {
        if (at->rta_type == RTA_OIF && RTA_PAYLOAD(at) >= sizeof route.interface)
            std::memcpy(&route.interface, RTA_DATA(at), sizeof route.interface);
        if (at->rta_type != RTA_METRICS) continue;
        auto metrics = static_cast<int>(RTA_PAYLOAD(at));
        for (const auto* one = static_cast<const rtattr*>(RTA_DATA(at)); RTA_OK(one, metrics);
             one = RTA_NEXT(one, metrics))
            if (one->rta_type == RTAX_MTU && RTA_PAYLOAD(one) >= sizeof route.mtu)
                std::memcpy(&route.mtu, RTA_DATA(one), sizeof route.mtu);
    }
    return route;
}

std::size_t interface_mtu(int index) {
    ifreq request{};
    const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::if_indextoname(static_cast<unsigned>(index), request.ifr_name) == nullptr ||
        ::ioctl(fd.get(), SIOCGIFMTU, &request) != 0)
        return 0;
    return static_cast<std::size_t>(std::max(request.ifr_mtu, 0));
}

}  // namespace

std::size_t route_mtu(const SocketAddress& local, const SocketAddress& remote) {
    const auto way = ask({local, remote, 0});
    if (!way || way->interface == 0) return 0;
    const std::size_t mtu = interface_mtu(way->interface);
    // The entry of the table, not what the kernel made of it for this end.
    const auto entry = ask({local, remote, RTM_F_FIB_MATCH});
    return entry && entry->mtu != 0 ? std::min<std::size_t>(mtu, entry->mtu) : mtu;
}

}  // namespace openmana::base
