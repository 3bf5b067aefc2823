// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/frame.h"

// Packets built byte by byte, with a checksum of the simplest kind: independent of the code under
// test.
namespace openmana::eth::test {

using Bytes = std::vector<std::byte>;

inline constexpr base::MacAddr kOwnMac = {0x02, 0x15, 0x5d, 0x01, 0x23, 0x45};
inline constexpr base::MacAddr kPeerMac = {0x02, 0x15, 0x5d, 0x99, 0x99, 0x99};

inline void put8(Bytes& b, unsigned v) {
    b.push_back(static_cast<std::byte>(v));
}
inline void put16(Bytes& b, unsigned v) {
    put8(b, v >> 8);
    put8(b, v);
}
inline void put32(Bytes& b, std::uint32_t v) {
    put16(b, v >> 16);
    put16(b, v & 0xffff);
}
inline void set16(Bytes& b, std::size_t at, unsigned v) {
    b[at] = static_cast<std::byte>(v >> 8);
    b[at + 1] = static_cast<std::byte>(v);
}
inline unsigned get16(const Bytes& b, std::size_t at) {
    return std::to_integer<unsigned>(b[at]) << 8 | std::to_integer<unsigned>(b[at + 1]);
}
inline std::uint32_t get32(const Bytes& b, std::size_t at) {
    return get16(b, at) << 16 | get16(b, at + 2);
}

/// Ones' complement sum of `[from, to)`, folded.
inline unsigned sum16(const Bytes& b, std::size_t from, std::size_t to, unsigned start = 0) {
    unsigned sum = start;
    for (std::size_t i = from; i < to; i += 2) {
        const unsigned low = i + 1 < to ? std::to_integer<unsigned>(b[i + 1]) : 0;
        sum += std::to_integer<unsigned>(b[i]) << 8 | low;
        if (sum > 0xffff) sum -= 0xffff;
    }
    return sum;
}

struct Flow {
    bool six = false;
    unsigned protocol = 6;
    std::array<std::uint8_t, 16> source{};  // first 4 bytes with IPv4
    std::array<std::uint8_t, 16> destination{};
    unsigned source_port = 1000;
    unsigned destination_port = 2000;
    base::MacAddr source_mac = kOwnMac;
    base::MacAddr destination_mac = kPeerMac;

    [[nodiscard]] std::size_t ip_bytes() const { return six ? 40 : 20; }
    [[nodiscard]] std::size_t transport() const { return 14 + ip_bytes(); }
};
inline Flow flow4(unsigned protocol = 6) {
    Flow f;
    f.protocol = protocol;
    f.source = {10, 0, 0, 1};
    f.destination = {10, 0, 0, 2};
    return f;
}
inline Flow flow6(unsigned protocol = 6) {
    Flow f;
    f.six = true;
    f.protocol = protocol;
    f.source = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    f.destination = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    return f;
}

/// Sum of the pseudo header, with `length` of the transport packet.
inline unsigned pseudo_sum(const Flow& f, std::size_t length) {
    Bytes b;
    for (std::size_t i = 0; i < (f.six ? 16U : 4U); ++i) put8(b, f.source[i]);
    for (std::size_t i = 0; i < (f.six ? 16U : 4U); ++i) put8(b, f.destination[i]);
    put32(b, static_cast<std::uint32_t>(length));
    put32(b, f.protocol);
    return sum16(b, 0, b.size());
}

/// Ethernet and IP headers for a transport packet of `length` bytes, complete.
inline Bytes ip_headers(const Flow& f, std::size_t length, unsigned id = 0x1234) {
    Bytes b;
    for (const auto c : f.destination_mac) put8(b, c);
    for (const auto c : f.source_mac) put8(b, c);
    put16(b, f.six ? 0x86dd : 0x0800);
    if (f.six) {
        put32(b, 0x60000000);
        put16(b, static_cast<unsigned>(length));
        put8(b, f.protocol);
        put8(b, 64);
        for (const auto c : f.source) put8(b, c);
        for (const auto c : f.destination) put8(b, c);
        return b;
    }
    put16(b, 0x4500);
    put16(b, static_cast<unsigned>(20 + length));
    put16(b, id);
    put16(b, 0x4000);
    put8(b, 64);
    put8(b, f.protocol);
    put16(b, 0);
    for (int i = 0; i < 4; ++i) put8(b, f.source[static_cast<std::size_t>(i)]);
    for (int i = 0; i < 4; ++i) put8(b, f.destination[static_cast<std::size_t>(i)]);
    set16(b, 24, 0xffff & ~sum16(b, 14, 34));
    return b;
}

inline Bytes pattern(std::size_t n, unsigned seed = 1) {
    Bytes b;
    for (std::size_t i = 0; i < n; ++i) put8(b, static_cast<unsigned>(i * 31 + seed + i / 251));
    return b;
}

/// The checksum of a packet whose field is zero, from scratch.
inline unsigned full_checksum(const Flow& f, const Bytes& packet, std::size_t vlan = 0) {
    const std::size_t at = f.transport() + vlan;
    return 0xffff & ~sum16(packet, at, packet.size(), pseudo_sum(f, packet.size() - at));
}

/// A whole TCP packet with right checksums. `options` bytes of NOP in the header.
inline Bytes tcp(const Flow& f, const Bytes& payload, std::uint32_t sequence = 0x01020304,
                 unsigned flags = 0x10, unsigned id = 0x1234, std::size_t options = 0) {
    Bytes b = ip_headers(f, 20 + options + payload.size(), id);
    put16(b, f.source_port);
    put16(b, f.destination_port);
    put32(b, sequence);
    put32(b, 0x0a0b0c0d);
    put8(b, static_cast<unsigned>((20 + options) / 4 << 4));
    put8(b, flags);
    put16(b, 0x2000);
    put16(b, 0);
    put16(b, 0);
    for (std::size_t i = 0; i < options; ++i) put8(b, 1);
    b.insert(b.end(), payload.begin(), payload.end());
    set16(b, f.transport() + 16, full_checksum(f, b));
    return b;
}
inline Bytes udp(const Flow& f, const Bytes& payload) {
    Bytes b = ip_headers(f, 8 + payload.size());
    put16(b, f.source_port);
    put16(b, f.destination_port);
    put16(b, static_cast<unsigned>(8 + payload.size()));
    put16(b, 0);
    b.insert(b.end(), payload.begin(), payload.end());
    unsigned sum = full_checksum(f, b);
    if (sum == 0) sum = 0xffff;
    set16(b, f.transport() + 6, sum);
    return b;
}

/// The packet as the stack hands it to a driver that offers checksum offload: field = sum of the
/// pseudo header.
inline Bytes partial(const Flow& f, Bytes packet) {
    const std::size_t field = f.transport() + (f.protocol == 6 ? 16 : 6);
    set16(packet, field, pseudo_sum(f, packet.size() - f.transport()));
    return packet;
}

inline Bytes with_tag(Bytes packet, unsigned tci) {
    const std::byte tag[4] = {std::byte{0x81}, std::byte{0}, static_cast<std::byte>(tci >> 8),
                              static_cast<std::byte>(tci)};
    packet.insert(packet.begin() + 12, tag, tag + 4);
    return packet;
}

}  // namespace openmana::eth::test
