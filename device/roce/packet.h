// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/frame.h"
#include "base/result.h"
#include "base/strong.h"
#include "roce/address.h"
#include "roce/psn.h"

namespace openmana::roce {

using Qpn = base::Strong<struct QpnTag, std::uint32_t>;  ///< 24 bits, as in the BTH
using QKey = base::Strong<struct QKeyTag, std::uint32_t>;
using RKey = base::Strong<struct RKeyTag, std::uint32_t>;  ///< of memory or a window, by its owner

constexpr std::uint16_t kUdpPort = 4791;
constexpr std::uint16_t kDefaultPkey = 0xffff;
constexpr Qpn kGsiQpn{1};
constexpr QKey kGsiQKey{0x80010000};
constexpr Qpn kMulticastQpn{0xffffff};

/// A work request that names such a Q_Key sends that of its QP instead (IBTA 10.2.5).
[[nodiscard]] constexpr bool is_controlled(QKey qkey) {
    return (qkey.value() & 0x80000000U) != 0;
}

/// Bits 7:5 of the opcode.
enum class Transport : std::uint8_t { kRc = 0, kUc = 1, kRd = 2, kUd = 3, kCnp = 4, kXrc = 5 };

/// BTH opcodes (ROCE 2.1, 2.2). UC uses the RC values up to kWriteOnlyImm plus 0x20.
enum class Opcode : std::uint8_t {
    kSendFirst = 0x00,
    kSendMiddle = 0x01,
    kSendLast = 0x02,
    kSendLastImm = 0x03,
    kSendOnly = 0x04,
    kSendOnlyImm = 0x05,
    kWriteFirst = 0x06,
    kWriteMiddle = 0x07,
    kWriteLast = 0x08,
    kWriteLastImm = 0x09,
    kWriteOnly = 0x0a,
    kWriteOnlyImm = 0x0b,
    kReadRequest = 0x0c,
    kReadResponseFirst = 0x0d,
    kReadResponseMiddle = 0x0e,
    kReadResponseLast = 0x0f,
    kReadResponseOnly = 0x10,
    kAcknowledge = 0x11,
    kAtomicAcknowledge = 0x12,
    kCompareSwap = 0x13,
    kFetchAdd = 0x14,
    kSendLastInvalidate = 0x16,
    kSendOnlyInvalidate = 0x17,
    kFlush = 0x1c,
    kAtomicWrite = 0x1d,
    kUcSendFirst = 0x20,
    kUcSendMiddle = 0x21,
    kUcSendLast = 0x22,
    kUcSendLastImm = 0x23,
    kUcSendOnly = 0x24,
    kUcSendOnlyImm = 0x25,
    kUcWriteFirst = 0x26,
    kUcWriteMiddle = 0x27,
    kUcWriteLast = 0x28,
    kUcWriteLastImm = 0x29,
    kUcWriteOnly = 0x2a,
    kUcWriteOnlyImm = 0x2b,
    kUdSendOnly = 0x64,
    kUdSendOnlyImm = 0x65,
    kCnp = 0x81,
};

[[nodiscard]] constexpr Transport transport(Opcode opcode) {
    return static_cast<Transport>(static_cast<std::uint8_t>(opcode) >> 5);
}

/// Place of a packet in its message.
enum class Position : std::uint8_t { kFirst, kMiddle, kLast, kOnly };
/// Family of an opcode.
enum class Operation : std::uint8_t {
    kReserved,
    kSend,
    kWrite,
    kReadRequest,
    kReadResponse,
    kAcknowledge,
    kAtomicAcknowledge,
    kCompareSwap,
    kFetchAdd,
    kFlush,
    kAtomicWrite,
    kCnp,
};

/// Extension headers, in wire order.
enum ExtensionFlag : std::uint16_t {
    kHasDeth = 1U << 0,
    kHasFeth = 1U << 1,
    kHasReth = 1U << 2,
    kHasAeth = 1U << 3,
    kHasAtomicAck = 1U << 4,
    kHasAtomic = 1U << 5,
    kHasImmediate = 1U << 6,
    kHasInvalidate = 1U << 7,
    kHasCnpBody = 1U << 8,  ///< 16 reserved bytes
};

/// What follows from an opcode alone.
struct OpcodeInfo {
    Operation operation = Operation::kReserved;
    Position position = Position::kOnly;
    std::uint16_t extensions = 0;      ///< ExtensionFlag bits
    std::uint8_t extension_bytes = 0;  ///< size of all of them
    bool response = false;
    bool payload = false;  ///< may carry payload

    [[nodiscard]] constexpr bool known() const { return operation != Operation::kReserved; }
    [[nodiscard]] constexpr bool has(ExtensionFlag flag) const { return (extensions & flag) != 0; }
};
[[nodiscard]] const OpcodeInfo& opcode_info(Opcode opcode);

struct Reth {
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint32_t length = 0;
    friend bool operator==(const Reth&, const Reth&) = default;
};
struct Aeth {
    std::uint8_t syndrome = 0;  ///< see roce/aeth.h
    std::uint32_t msn = 0;      ///< 24 bits
    friend bool operator==(const Aeth&, const Aeth&) = default;
};
struct AtomicEth {
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint64_t swap_or_add = 0;
    std::uint64_t compare = 0;
    friend bool operator==(const AtomicEth&, const AtomicEth&) = default;
};
struct Deth {
    QKey qkey{};
    Qpn source{};
    friend bool operator==(const Deth&, const Deth&) = default;
};

constexpr std::uint8_t kEcnNone = 0;
constexpr std::uint8_t kEcnCapable1 = 1;
constexpr std::uint8_t kEcnCapable0 = 2;
constexpr std::uint8_t kEcnMarked = 3;

/// One RoCEv2 packet. Numbers are in host order, except those of which only the application knows
/// the meaning. Extension headers count only if the opcode has them. The packet is IPv4 exactly if
/// both GIDs are IPv4-mapped (ROCE 7.2).
struct Packet {
    base::MacAddr destination_mac{};
    base::MacAddr source_mac{};
    std::optional<std::uint16_t> vlan_tci;  ///< PCP 15:13, DEI 12, VID 11:0
    Gid source{};
    Gid destination{};
    std::uint8_t dscp = 0;  ///< 6 bits
    std::uint8_t ecn = kEcnNone;
    std::uint8_t hop_limit = 64;
    std::uint32_t flow_label = 0;  ///< IPv6: 20 bits
    std::uint16_t ipv4_id = 0;
    std::uint16_t udp_source_port = 0xc000;

    Opcode opcode = Opcode::kSendOnly;
    bool solicited = false;
    bool migrated = true;  ///< the normal state of a QP without path migration
    bool fecn = false;
    bool becn = false;
    bool ack_request = false;
    std::uint16_t pkey = kDefaultPkey;
    Qpn destination_qpn{};
    Psn psn{};

    Reth reth{};
    Aeth aeth{};
    AtomicEth atomic{};
    std::uint64_t atomic_original = 0;     ///< AtomicAckETH
    std::array<std::byte, 4> immediate{};  ///< the application's bytes
    RKey invalidate_rkey{};                ///< IETH
    Deth deth{};
    std::uint32_t feth = 0;

    /// Without pad. parse(): points into the frame.
    std::span<const std::byte> payload{};
    /// parse(): pad count as received, always below 4; encode() computes it.
    std::uint8_t pad = 0;

    [[nodiscard]] const OpcodeInfo& info() const { return opcode_info(opcode); }
    [[nodiscard]] Vlan vlan() const { return vlan_tci ? vlan_of(*vlan_tci) : kNoVlan; }
    /// A tag exactly if there is a VLAN, and never one that may be dropped before others.
    void set_tag(std::uint16_t tci) {
        if (vlan_of(tci) != kNoVlan) vlan_tci = tci & static_cast<std::uint16_t>(~kDropEligible);
    }
};

/// Why a frame is not a packet for us. parse() puts it into Error::detail; each has a counter in
/// the RNIC.
enum class DropReason : std::uint8_t {
    kNotRoce,    ///< another protocol, or UDP port
    kMalformed,  ///< IP or UDP header, lengths, fragment, checksum
    kIcrc,
    kVersion,  ///< TVer
    kOpcode,   ///< transport or opcode that we do not know; reserved opcodes of RC are left to the
               ///< responder
    kQpn,      ///< destination QPN 0
};
[[nodiscard]] inline DropReason drop_reason(const base::Error& error) {
    return static_cast<DropReason>(error.detail);
}

/// Checks 2, 4 and 5 of ROCE 1.11, bounded by the frame; bytes behind the IP packet (Ethernet
/// padding) are ignored. A reserved RC opcode gives a packet with info().known() == false, no
/// extension headers, and everything as payload. A frame that lacks its ICRC is not asked for it.
[[nodiscard]] base::Result<Packet> parse(base::FrameView frame);

/// Pieces of payload, in order; a gdma::SpanList converts to it.
using PayloadSpans = std::span<const std::span<std::byte>>;

/// Serialises with checksum, pad and ICRC, without Ethernet padding and FCS. `out` is overwritten;
/// its capacity is used. An unknown opcode, or a payload that no UDP length can express, is our own
/// bug. `packet.payload` is ignored.
void encode(const Packet& packet, PayloadSpans payload, base::Frame& out);
/// The same with `packet.payload`.
void encode(const Packet& packet, base::Frame& out);
/// As the first, but the frame lacks its ICRC.
void encode_without_icrc(const Packet& packet, PayloadSpans payload, base::Frame& out);
/// Puts the ICRC into a frame that lacks it; others stay as they are. The memory of a view is that
/// of a Frame, so it can be written to; only the thread that sends it has it now.
void put_icrc(base::Frame& frame);
void put_icrc(base::FrameView& frame);

/// The 40 bytes that a UD receiver finds before the payload (ROCE 5.4) when a packet with
/// `payload_bytes` arrives: the IPv6 header, or 20 zero bytes and the IPv4 header. The caller has
/// checked the payload against the MTU of its port.
void write_grh(const Packet& packet, std::size_t payload_bytes, std::span<std::byte, 40> out);

/// P_Key match of ROCE 1.11 rule 9.
[[nodiscard]] constexpr bool pkeys_match(std::uint16_t a, std::uint16_t b) {
    return (a & 0x7fff) == (b & 0x7fff) && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

/// UDP source port for a flow label, and the flow label of a connection that has none (ROCE 7.4).
[[nodiscard]] constexpr std::uint16_t udp_source_port(std::uint32_t flow_label) {
    flow_label &= 0xfffff;
    return static_cast<std::uint16_t>(0xc000 | ((flow_label & 0x3fff) ^ (flow_label >> 14)));
}
[[nodiscard]] constexpr std::uint32_t flow_label_of(Qpn local, Qpn remote) {
    std::uint64_t v = std::uint64_t{local.value()} * remote.value();
    v ^= v >> 20;
    v ^= v >> 40;
    return static_cast<std::uint32_t>(v & 0xfffff);
}

}  // namespace openmana::roce
