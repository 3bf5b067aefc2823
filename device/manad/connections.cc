// SPDX-License-Identifier: Apache-2.0
#include "manad/connections.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/unix_socket.h"
#include "manad/ledger.h"

namespace openmana::manad {

std::vector<int> connections_but(std::span<const int> others) {
    std::vector<int> all = open_descriptors();
    std::erase_if(all, [others](int number) {
        return base::socket_option(number, SO_TYPE) != SOCK_STREAM ||
               base::socket_option(number, SO_ACCEPTCONN) != 0 ||
               std::ranges::find(others, number) != others.end();
    });
    return all;
}

void end_connections(std::span<const int> others) {
    for (const int number : connections_but(others)) ::shutdown(number, SHUT_RDWR);
}

}  // namespace openmana::manad
