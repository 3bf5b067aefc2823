// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>

#include <utility>

#include "base/fd.h"
#include "base/result.h"
#include "base/socket_address.h"

namespace openmana::test {

/// Two UDP ports of the loopback that are free, by asking for any.
inline std::pair<base::SocketAddress, base::SocketAddress> free_udp_addresses() {
    base::SocketAddress result[2];
    base::UniqueFd sockets[2];  // until both are known
    for (int i = 0; i < 2; ++i) {
        sockets[i] = base::UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        result[i] = *base::SocketAddress::parse("127.0.0.1:1");
        reinterpret_cast<sockaddr_in*>(result[i].get())->sin_port = 0;
        OM_CHECK(::bind(sockets[i].get(), result[i].get(), result[i].length) == 0 &&
                 ::getsockname(sockets[i].get(), result[i].get(), &result[i].length) == 0);
    }
    return {result[0], result[1]};
}

}  // namespace openmana::test
