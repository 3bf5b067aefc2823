// SPDX-License-Identifier: Apache-2.0
#include "fabric/vxlan.h"

#include "base/endian.h"

namespace openmana::fabric {
namespace {

/// The network's number is there.
constexpr std::byte kHasVni{0x08};
constexpr std::size_t kVniWord = 4;

}  // namespace

VxlanHeader encode_vxlan(std::uint32_t vni) {
    OM_CHECK(vni <= Vxlan::kMaxVni);
    VxlanHeader header{};
    header[0] = kHasVni;
    base::store_be<std::uint32_t>(header.data() + kVniWord, vni << 8);
    return header;
}

base::Result<Vxlan> decode_vxlan(std::span<const std::byte> datagram) {
    using base::ErrorCode;
    if (datagram.size() < Vxlan::kBytes + Vxlan::kInnerEthernet)
        return base::fail(ErrorCode::kProtocol, "too short for a frame", datagram.size());
    if ((datagram[0] & kHasVni) == std::byte{0})
        return base::fail(ErrorCode::kProtocol, "names no network");
    const auto word = base::load_be<std::uint32_t>(datagram.data() + kVniWord);
    return Vxlan{word >> 8, datagram.subspan(Vxlan::kBytes)};
}

}  // namespace openmana::fabric
