// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/endian.h"
#include "base/frame.h"
#include "fabric/acl.h"
#include "roce/packet.h"
#include "support/sim_executor.h"

namespace openmana::fabric::test {

inline constexpr base::MacAddr kMacA{0x02, 0, 0, 0, 0, 0x0a};
inline constexpr base::MacAddr kMacB{0x02, 0, 0, 0, 0, 0x0b};

inline roce::Gid gid(const std::string& text) {
    return Prefix::parse(text)->address;
}

inline void append(base::Frame& frame, std::initializer_list<int> octets) {
    for (const int octet : octets) frame.push_back(static_cast<std::byte>(octet));
}
inline void append16(base::Frame& frame, unsigned value) {
    append(frame, {static_cast<int>(value >> 8), static_cast<int>(value & 255)});
}
inline void append_gid(base::Frame& frame, const roce::Gid& gid, std::size_t from) {
    for (std::size_t i = from; i < gid.size(); ++i) frame.push_back(std::byte{gid[i]});
}

/// Builds frames from `source` to `destination` (IPv4 or IPv6), without checksums: the fabric looks
/// at none.
struct FrameMaker {
    roce::Gid source = gid("10.0.0.1");
    roce::Gid destination = gid("10.0.0.2");
    base::MacAddr source_mac = kMacA;
    base::MacAddr destination_mac = kMacB;
    int ecn = 0;
    unsigned fragment = 0;  // flags and offset, as IPv4 has them
    unsigned fragment_id = 0;

    [[nodiscard]] bool ipv4() const { return roce::is_ipv4(source); }
    [[nodiscard]] base::Frame ethernet(unsigned type) const {
        base::Frame frame;
        for (const auto octet : destination_mac) frame.push_back(std::byte{octet});
        for (const auto octet : source_mac) frame.push_back(std::byte{octet});
        append16(frame, type);
        return frame;
    }
    [[nodiscard]] base::Frame ip(int protocol, const base::Frame& payload) const {
        base::Frame frame = ethernet(ipv4() ? 0x0800 : 0x86dd);
        const auto size = static_cast<unsigned>(payload.size());
        if (ipv4()) {
            append(frame, {0x45, ecn});
            append16(frame, 20 + size);
            append16(frame, fragment_id);
            append16(frame, fragment);
            append(frame, {64, protocol, 0, 0});
            append_gid(frame, source, 12);
            append_gid(frame, destination, 12);
        } else {
            const bool whole = fragment == 0;
            append(frame, {0x60, ecn << 4, 0, 0});
            append16(frame, size + (whole ? 0 : 8));
            append(frame, {whole ? protocol : 44, 64});
            append_gid(frame, source, 0);
            append_gid(frame, destination, 0);
            if (!whole) {
                append(frame, {protocol, 0});
                append16(frame, (fragment & 0x1fff) << 3 | (fragment >> 13 & 1));
                append16(frame, fragment_id >> 16);
                append16(frame, fragment_id & 0xffff);
            }
        }
        frame.insert(frame.end(), payload.begin(), payload.end());
        return frame;
    }
    [[nodiscard]] base::Frame udp(unsigned from, unsigned to, std::size_t bytes = 32) const {
        base::Frame payload;
        append16(payload, from);
        append16(payload, to);
        append16(payload, static_cast<unsigned>(8 + bytes));
        append(payload, {0, 0});
        payload.resize(8 + bytes);
        return ip(17, payload);
    }
    [[nodiscard]] base::Frame tcp(unsigned from, unsigned to, int flags = 0x10,
                                  std::size_t bytes = 0) const {
        base::Frame payload;
        append16(payload, from);
        append16(payload, to);
        append(payload, {0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0});
        payload.resize(20 + bytes);
        return ip(6, payload);
    }
    [[nodiscard]] base::Frame arp(int operation = 1) const {
        base::Frame frame = ethernet(0x0806);
        append(frame, {0, 1, 8, 0, 6, 4, 0, operation});
        for (const auto octet : source_mac) frame.push_back(std::byte{octet});
        append_gid(frame, source, 12);
        for (const auto octet : destination_mac) frame.push_back(std::byte{octet});
        append_gid(frame, destination, 12);
        frame.resize(60);
        return frame;
    }
    /// A RoCEv2 packet; `packet` says what is not in the maker.
    [[nodiscard]] base::Frame roce(roce::Packet packet, std::size_t bytes = 0) const {
        if (packet.destination_qpn == roce::Qpn{}) packet.destination_qpn = roce::Qpn(17);
        packet.source = source;
        packet.destination = destination;
        packet.source_mac = source_mac;
        packet.destination_mac = destination_mac;
        packet.ecn = static_cast<std::uint8_t>(ecn);
        const base::Frame payload(bytes);
        packet.payload = payload;
        base::Frame frame;
        encode(packet, frame);
        return frame;
    }
    /// The same between the same hosts, the other way.
    [[nodiscard]] FrameMaker reversed() const {
        FrameMaker other = *this;
        std::swap(other.source, other.destination);
        std::swap(other.source_mac, other.destination_mac);
        return other;
    }
};

/// A short frame with a number in it.
inline base::Frame numbered(std::uint32_t number, std::size_t bytes = 60) {
    base::Frame frame = FrameMaker{}.udp(1000, 2000, bytes - 42);
    base::store_le(frame.data() + 42, number);
    return frame;
}
inline std::uint32_t number_of(std::span<const std::byte> frame) {
    return base::load_le<std::uint32_t>(frame.data() + 42);
}

}  // namespace openmana::fabric::test
