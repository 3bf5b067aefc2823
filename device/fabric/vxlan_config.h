// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/tunnel_end.h"

namespace openmana::fabric {

/// Of an uplink that is a VXLAN network.
struct VxlanConfig {
    enum class Learn : std::uint8_t {
        kNothing,  ///< the table says all
        kPeers,    ///< addresses behind the ends that the table names; others are not listened to
        kAll,      ///< behind whoever sends
    };
    static constexpr std::uint32_t kFlood = 65536;
    std::uint32_t vni = 0;
    std::vector<TunnelEnd> remotes;  ///< the flood list begins with these
    Learn learn = Learn::kPeers;
    std::string fdb;         ///< file of a table; empty: none
    std::string fdb_device;  ///< the `dev` whose lines of it count; empty: all
    int dscp = 0;            ///< of the outer header; -1: that of the inner one
    int ttl = 0;             ///< 0: the host's
    /// Copies a second of frames that go to several ends; 0: no limit.
    std::uint32_t flood = kFlood;
};

}  // namespace openmana::fabric
