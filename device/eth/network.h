// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/frame.h"

namespace openmana::eth {

/// The network as the Ethernet device sees it; implemented by the fabric (and by tests).
class Network : public base::FrameSink {
public:
    /// Whether the guest may send from a MAC address that is not the vPort's, and gets frames for
    /// it. The network brings no frames for those that are not in use. Any thread.
    [[nodiscard]] virtual bool may_have(const base::MacAddr& mac) const {
        (void)mac;
        return false;
    }
};

}  // namespace openmana::eth
