// SPDX-License-Identifier: Apache-2.0
#include "fabric/pcap.h"

#include "base/endian.h"

namespace openmana::fabric {
namespace {

constexpr std::uint32_t kNanoseconds = 0xa1b23c4d;
constexpr std::uint16_t kMajor = 2, kMinor = 4;
constexpr std::uint32_t kEthernet = 1;  // LINKTYPE_ETHERNET
constexpr std::uint64_t kSecond = 1'000'000'000;

}  // namespace

std::vector<std::byte> pcap_header(std::uint32_t snap_length) {
    std::vector<std::byte> head(24);
    base::store_le(head.data(), kNanoseconds);
    base::store_le(head.data() + 4, kMajor);
    base::store_le(head.data() + 6, kMinor);
    // Eight bytes of zero: nobody's time zone, and how exact times are.
    base::store_le(head.data() + 16, snap_length);
    base::store_le(head.data() + 20, kEthernet);
    return head;
}

PcapPacket::PcapPacket(std::uint64_t nanoseconds, std::uint32_t kept, std::uint32_t length) {
    base::store_le(head.data(), static_cast<std::uint32_t>(nanoseconds / kSecond));
    base::store_le(head.data() + 4, static_cast<std::uint32_t>(nanoseconds % kSecond));
    base::store_le(head.data() + 8, kept);
    base::store_le(head.data() + 12, length);
}

}  // namespace openmana::fabric
