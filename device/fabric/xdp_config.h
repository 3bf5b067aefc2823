// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/frame.h"

namespace openmana::fabric {

class XdpOpener;

/// Of an uplink that is an interface of the host, by AF_XDP.
struct XdpConfig {
    enum class Mode : std::uint8_t {
        kAuto,      ///< without copies where the driver can
        kZeroCopy,  ///< that or nothing
        kCopy,      ///< the kernel copies
        kGeneric,   ///< copies, and no XDP of the driver's
    };
    /// An uplink has no more, whatever the interface has.
    static constexpr unsigned kMaxQueues = 64;
    Mode mode = Mode::kAuto;
    unsigned queues = 0;  ///< the first so many of the interface; 0: all
    /// Frames for these are taken from the start; for others once something was sent from them.
    std::vector<base::MacAddr> addresses;
    std::shared_ptr<XdpOpener> opener;  ///< who has the rights; null: the uplink itself
};

}  // namespace openmana::fabric
