// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/socket_address.h"

namespace openmana::base {

/// The MTU of the way from one address of this host to another host's, IP header included: what its
/// route says, or else its interface. Not what the kernel was told of the path by messages of ICMP,
/// which anybody can make up. 0 if there is no way.
[[nodiscard]] std::size_t route_mtu(const SocketAddress& local, const SocketAddress& remote);

}  // namespace openmana::base
