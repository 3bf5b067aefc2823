// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink_mtu.h"

#include "base/route_mtu.h"
#include "esp/format.h"
#include "fabric/vxlan.h"
#include "fabric/xdp_opener.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kTaggedEthernetBytes = 18;

/// What a datagram to another end may carry on a path of this MTU.
struct Path {
    std::size_t mtu = 0;
    std::size_t payload = 0;
};

std::optional<Path> find_path(const base::SocketAddress& local, const base::SocketAddress& remote) {
    const std::size_t mtu = base::route_mtu(local, remote);
    const std::size_t ip = local.family() == AF_INET ? kIpv4Bytes : kIpv6Bytes;
    if (mtu <= ip + kUdpBytes) return std::nullopt;
    return Path{mtu, mtu - ip - kUdpBytes};
}

/// The narrowest of those to the other ends that the options name.
std::optional<Path> find_tunnel(const UplinkConfig& config) {
    // With any port: which one it is makes no difference to the way.
    const base::SocketAddress local = socket_address_of({ip_of(config.local), 0, 0});
    std::optional<Path> least;
    for (const TunnelEnd& end : config.vxlan.remotes) {
        const auto path = find_path(local, socket_address_of(end));
        if (path && (!least || path->mtu < least->mtu)) least = path;
    }
    return least;
}

/// A frame of an interface is as long as one of ours with the same MTU.
std::optional<UplinkMtu> find_interface(const std::string& name) {
    const std::size_t mtu = interface_mtu(name);
    if (mtu == 0) return std::nullopt;
    constexpr std::size_t kOneChunk = XdpMemory::kLargestReceived - kTaggedEthernetBytes;
    if (mtu <= kOneChunk || kernel_has_xdp_fragments()) return UplinkMtu{mtu, mtu};
    return UplinkMtu{mtu, kOneChunk};
}

}  // namespace

std::optional<UplinkMtu> find_mtu(const UplinkConfig& config) {
    using Kind = UplinkConfig::Kind;
    if (config.kind == Kind::kXdp) return find_interface(config.interface);
    const bool vxlan = config.kind == Kind::kVxlan;
    if (!vxlan && config.kind != Kind::kUdp) return std::nullopt;
    const auto path = vxlan ? find_tunnel(config) : find_path(config.local, config.remote);
    if (!path) return std::nullopt;
    std::size_t payload = path->payload;
    if (!config.encryption.key_file.empty()) payload = esp::largest_payload(payload);
    const std::size_t around = kTaggedEthernetBytes + (vxlan ? Vxlan::kBytes : 0);
    if (payload <= around) return std::nullopt;
    return UplinkMtu{path->mtu, payload - around};
}

}  // namespace openmana::fabric
