// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/socket_address.h"
#include "roce/address.h"

namespace openmana::fabric {

/// "10.0.0.1" or "fd00::1", an IPv4 address as IPv6 has it mapped.
[[nodiscard]] std::optional<roce::Gid> parse_ip(std::string_view text);
[[nodiscard]] std::string ip_text(const roce::Gid& address);

/// Where frames of a VXLAN network are sent to.
struct TunnelEnd {
    roce::Gid address{};
    std::uint16_t port = 0;
    std::uint32_t vni = 0;  ///< by which the network is known there
    friend bool operator==(const TunnelEnd&, const TunnelEnd&) = default;
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.address, self.port, self.vni);
    }
};

[[nodiscard]] roce::Gid ip_of(const base::SocketAddress& address);
[[nodiscard]] std::uint16_t port_of(const base::SocketAddress& address);
[[nodiscard]] base::SocketAddress socket_address_of(const TunnelEnd& end);

/// "10.0.0.1:4789" or "[fd00::1]:4789".
[[nodiscard]] std::string to_string(const TunnelEnd& end);

/// Why no frames can be sent to an address by such a tunnel, whose own end is `local`; null if they
/// can.
[[nodiscard]] const char* why_no_end(const TunnelEnd& end, const TunnelEnd& local);

}  // namespace openmana::fabric
