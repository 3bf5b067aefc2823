// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::fabric {

/// The XDP program of an uplink. It takes frames for one station whose address is in its table
/// (`XdpAddresses`), to the socket of the queue that they came by. All others, and those of queues
/// without a socket, go on to the host. Made instruction by instruction, since so few need no
/// compiler, and no loader that understands its files.
struct XdpProgram {
    base::UniqueFd table;    ///< an array that can be mapped
    base::UniqueFd sockets;  ///< by queue
    base::UniqueFd program;
    bool fragments = false;  ///< it sees frames that have several buffers

    /// `key` as of XdpAddresses. Takes CAP_BPF and CAP_NET_ADMIN.
    static base::Result<XdpProgram> load(std::uint64_t key);
    base::Result<void> set_socket(std::uint32_t queue, int socket) const;
    /// On the interface as long as the result lives; `generic`: not by its driver.
    [[nodiscard]] base::Result<base::UniqueFd> attach(int interface, bool generic) const;
};

}  // namespace openmana::fabric
