// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink_mtu.h"

#include "base/datagram_socket.h"
#include "esp/format.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kTaggedEthernetBytes = 18;

}  // namespace

std::optional<UplinkMtu> find_mtu(const UplinkConfig& config) {
    if (config.kind != UplinkConfig::Kind::kUdp) return std::nullopt;
    base::DatagramSocket::Options options;
    options.remote = config.remote;
    const auto socket = base::DatagramSocket::open(config.local, options);
    if (!socket) return std::nullopt;
    const std::size_t path = socket->path_mtu();
    const std::size_t ip = config.local.family() == AF_INET ? kIpv4Bytes : kIpv6Bytes;
    if (path <= ip + kUdpBytes) return std::nullopt;
    std::size_t payload = path - ip - kUdpBytes;
    if (!config.encryption.key_file.empty()) payload = esp::largest_payload(payload);
    if (payload <= kTaggedEthernetBytes) return std::nullopt;
    return UplinkMtu{path, payload - kTaggedEthernetBytes};
}

}  // namespace openmana::fabric
