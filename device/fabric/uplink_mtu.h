// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "fabric/uplink.h"

namespace openmana::fabric {

/// The MTU of a path to the other end of a UDP uplink, or of the narrowest to those of a VXLAN
/// network, or of the interface of an XDP uplink, as routes and interfaces have it, and what it
/// leaves for interfaces: the largest of their MTUs with which each frame, a VLAN tag included,
/// goes through whole.
struct UplinkMtu {
    std::size_t path = 0;
    std::size_t inside = 0;
};
/// Nothing of uplinks of other kinds, and where the kernel knows no way to the other end.
[[nodiscard]] std::optional<UplinkMtu> find_mtu(const UplinkConfig& config);

}  // namespace openmana::fabric
