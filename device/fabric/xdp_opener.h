// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/frame.h"
#include "base/result.h"
#include "fabric/xdp_config.h"

namespace openmana::fabric {

/// The memory of a queue's socket: chunks of which those of the first half are for what comes in,
/// the rest for what goes out. There are as many as a ring has entries, so no ring can be full
/// while there is a chunk to put into it.
struct XdpMemory {
    static constexpr std::size_t kChunkBytes = 4096;
    static constexpr std::uint32_t kChunks = 2048;  ///< of each half
    static constexpr std::size_t kBytes = 2 * kChunks * kChunkBytes;
    /// Of a frame that came in, in one chunk: the kernel keeps 256 bytes in front of it.
    static constexpr std::size_t kLargestReceived = kChunkBytes - 256;
};

struct XdpRequest {
    std::string interface;
    XdpConfig::Mode mode = XdpConfig::Mode::kAuto;
    unsigned queues = 0;    ///< 0: all that it has
    std::uint64_t key = 1;  ///< of XdpAddresses
};

/// An interface that is open. All ends with its descriptors: the program, what the interface
/// listens to, the sockets.
struct XdpHandles {
    struct Facts {
        int index = 0;
        unsigned mtu = 0;
        base::MacAddr mac{};
        bool up = false;
        unsigned queues = 0;   ///< sockets, one a queue
        unsigned has = 0;      ///< queues of the interface that frames come by
        unsigned senders = 0;  ///< of the sockets, the first so many can send
        bool zero_copy = false;
        bool generic = false;    ///< the program is not run by the driver
        bool fragments = false;  ///< frames may have several chunks
    } facts;
    base::UniqueFd memory;  ///< XdpMemory of each queue, one after the other
    base::UniqueFd table;   ///< that the program reads (XdpAddresses)
    base::UniqueFd link;    ///< the program is on the interface as long as it is open
    base::UniqueFd groups;  ///< for GroupSocket
    std::vector<base::UniqueFd> queues;
};

/// Opens interfaces: what takes CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. What comes of it takes none
/// to be used.
class XdpOpener {
public:
    virtual ~XdpOpener() = default;
    /// May take seconds, since drivers set their queues up anew. Any thread.
    virtual base::Result<XdpHandles> open(const XdpRequest& request) = 0;
};

/// With the rights of the caller. A chunk of memory larger than a page must be allowed to be locked
/// (RLIMIT_MEMLOCK).
[[nodiscard]] base::Result<XdpHandles> open_xdp(const XdpRequest& request);

/// MTU of an interface; 0 if there is none of that name.
[[nodiscard]] unsigned interface_mtu(const std::string& interface);
/// Whether the kernel knows frames of several chunks (Linux 6.6). Takes CAP_NET_RAW to find out:
/// without it, no.
[[nodiscard]] bool kernel_has_xdp_fragments();

}  // namespace openmana::fabric
