// SPDX-License-Identifier: Apache-2.0
#include "roce/icrc.h"

#include <isa-l/crc.h>

#include <array>
#include <cstring>

#include "base/result.h"

namespace openmana::roce {
namespace {

constexpr std::size_t kIpv4Size = 20;
constexpr std::size_t kIpv6Size = 40;
constexpr std::size_t kUdpSize = 8;
constexpr std::size_t kBthSize = 12;
constexpr std::byte kOnes{0xff};

/// The CRC, as gzip has it, after the eight bytes of ones that stand for the LRH.
constexpr std::uint32_t kAfterDummyLrh = 0x2144df1c;

}  // namespace

std::uint32_t icrc(std::span<const std::byte> ip_header, std::span<const std::byte> rest) {
    OM_CHECK(ip_header.size() == kIpv4Size || ip_header.size() == kIpv6Size);
    OM_CHECK(rest.size() >= kUdpSize + kBthSize);

    // Only the headers are copied, to mask them; the payload is read in place.
    std::array<std::byte, kIpv6Size + kUdpSize + kBthSize> masked;
    const std::size_t ip_size = ip_header.size();
    std::memcpy(masked.data(), ip_header.data(), ip_size);
    std::memcpy(masked.data() + ip_size, rest.data(), kUdpSize + kBthSize);
    if (ip_size == kIpv4Size) {
        masked[1] = kOnes;                // type of service
        masked[8] = kOnes;                // time to live
        masked[10] = masked[11] = kOnes;  // header checksum
    } else {
        masked[0] |= std::byte{0x0f};  // traffic class and flow label
        masked[1] = masked[2] = masked[3] = kOnes;
        masked[7] = kOnes;  // hop limit
    }
    masked[ip_size + 6] = masked[ip_size + 7] = kOnes;  // UDP checksum
    masked[ip_size + kUdpSize + 4] = kOnes;             // FECN, BECN, reserved

    const auto add = [](std::uint32_t crc, std::span<const std::byte> bytes) {
        return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()),
                               bytes.size());
    };
    const std::uint32_t crc =
        add(kAfterDummyLrh, std::span(masked).first(ip_size + kUdpSize + kBthSize));
    return add(crc, rest.subspan(kUdpSize + kBthSize));
}

}  // namespace openmana::roce
