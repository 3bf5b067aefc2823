// SPDX-License-Identifier: Apache-2.0
#include "roce/packet.h"

#include <cstring>

#include "base/endian.h"
#include "roce/icrc.h"

namespace openmana::roce {
namespace {

using base::ErrorCode;
using base::load_be;
using base::load_le;
using base::store_be;
using base::store_le;

constexpr std::size_t kMacsSize = 12;
constexpr std::size_t kVlanSize = 4;
constexpr std::size_t kEtherTypeSize = 2;
constexpr std::size_t kIpv4Size = 20;
constexpr std::size_t kIpv6Size = 40;
constexpr std::size_t kUdpSize = 8;
constexpr std::size_t kBthSize = 12;
constexpr std::size_t kIcrcSize = 4;
constexpr std::size_t kCnpBodySize = 16;
constexpr std::uint16_t kTypeVlan = 0x8100;
constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86dd;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::uint8_t kDefaultHopLimit = 64;

constexpr std::uint8_t extension_size(std::uint16_t flags) {
    std::uint8_t size = 0;
    if (flags & kHasDeth) size += 8;
    if (flags & kHasFeth) size += 4;
    if (flags & kHasReth) size += 16;
    if (flags & kHasAeth) size += 4;
    if (flags & kHasAtomicAck) size += 8;
    if (flags & kHasAtomic) size += 28;
    if (flags & kHasImmediate) size += 4;
    if (flags & kHasInvalidate) size += 4;
    if (flags & kHasCnpBody) size += kCnpBodySize;
    return size;
}

constexpr OpcodeInfo info_of(Operation operation, Position position, int extensions, bool payload,
                             bool response = false) {
    const auto flags = static_cast<std::uint16_t>(extensions);
    return {operation, position, flags, extension_size(flags), response, payload};
}

constexpr std::array<OpcodeInfo, 256> make_table() {
    using enum Operation;
    using enum Position;
    std::array<OpcodeInfo, 256> table{};
    auto at = [&](Opcode opcode) -> OpcodeInfo& {
        return table[static_cast<std::uint8_t>(opcode)];
    };
    at(Opcode::kSendFirst) = info_of(kSend, kFirst, 0, true);
    at(Opcode::kSendMiddle) = info_of(kSend, kMiddle, 0, true);
    at(Opcode::kSendLast) = info_of(kSend, kLast, 0, true);
    at(Opcode::kSendLastImm) = info_of(kSend, kLast, kHasImmediate, true);
    at(Opcode::kSendOnly) = info_of(kSend, kOnly, 0, true);
    at(Opcode::kSendOnlyImm) = info_of(kSend, kOnly, kHasImmediate, true);
    at(Opcode::kWriteFirst) = info_of(kWrite, kFirst, kHasReth, true);
    at(Opcode::kWriteMiddle) = info_of(kWrite, kMiddle, 0, true);
    at(Opcode::kWriteLast) = info_of(kWrite, kLast, 0, true);
    at(Opcode::kWriteLastImm) = info_of(kWrite, kLast, kHasImmediate, true);
    at(Opcode::kWriteOnly) = info_of(kWrite, kOnly, kHasReth, true);
    at(Opcode::kWriteOnlyImm) = info_of(kWrite, kOnly, kHasReth | kHasImmediate, true);
    for (std::size_t i = 0; i <= 0x0b; ++i) table[0x20 + i] = table[i];  // UC
    at(Opcode::kReadRequest) = info_of(kReadRequest, kOnly, kHasReth, false);
    at(Opcode::kReadResponseFirst) = info_of(kReadResponse, kFirst, kHasAeth, true, true);
    at(Opcode::kReadResponseMiddle) = info_of(kReadResponse, kMiddle, 0, true, true);
    at(Opcode::kReadResponseLast) = info_of(kReadResponse, kLast, kHasAeth, true, true);
    at(Opcode::kReadResponseOnly) = info_of(kReadResponse, kOnly, kHasAeth, true, true);
    at(Opcode::kAcknowledge) = info_of(kAcknowledge, kOnly, kHasAeth, false, true);
    at(Opcode::kAtomicAcknowledge) =
        info_of(kAtomicAcknowledge, kOnly, kHasAeth | kHasAtomicAck, false, true);
    at(Opcode::kCompareSwap) = info_of(kCompareSwap, kOnly, kHasAtomic, false);
    at(Opcode::kFetchAdd) = info_of(kFetchAdd, kOnly, kHasAtomic, false);
    at(Opcode::kSendLastInvalidate) = info_of(kSend, kLast, kHasInvalidate, true);
    at(Opcode::kSendOnlyInvalidate) = info_of(kSend, kOnly, kHasInvalidate, true);
    at(Opcode::kFlush) = info_of(kFlush, kOnly, kHasFeth | kHasReth, false);
    at(Opcode::kAtomicWrite) = info_of(kAtomicWrite, kOnly, kHasReth, true);
    at(Opcode::kUdSendOnly) = info_of(kSend, kOnly, kHasDeth, true);
    at(Opcode::kUdSendOnlyImm) = info_of(kSend, kOnly, kHasDeth | kHasImmediate, true);
    at(Opcode::kCnp) = info_of(kCnp, kOnly, kHasCnpBody, false);
    return table;
}

constexpr std::array<OpcodeInfo, 256> kOpcodes = make_table();

/// Ones' complement sum of an IPv4 header, folded, not inverted.
std::uint16_t header_sum(const std::byte* header) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < kIpv4Size; i += 2) sum += load_be<std::uint16_t>(header + i);
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum + (sum >> 16));
}

std::uint32_t load_be24(const std::byte* from) {
    return load_be<std::uint32_t>(from) & 0xffffff;
}
/// The byte before the 24 bits goes to the top.
void store_be8_24(std::byte* to, std::uint8_t first, std::uint32_t low) {
    store_be<std::uint32_t>(to, std::uint32_t{first} << 24 | (low & 0xffffff));
}

bool is_ipv4_packet(const Packet& packet) {
    return is_ipv4(packet.source) && is_ipv4(packet.destination);
}

/// `udp_bytes`: UDP header to ICRC.
void write_ipv4(const Packet& packet, std::size_t udp_bytes, std::byte* ip) {
    ip[0] = std::byte{0x45};
    ip[1] = static_cast<std::byte>(packet.dscp << 2 | (packet.ecn & 3));
    store_be<std::uint16_t>(ip + 2, static_cast<std::uint16_t>(kIpv4Size + udp_bytes));
    store_be<std::uint16_t>(ip + 4, packet.ipv4_id);
    store_be<std::uint16_t>(ip + 6, 0x4000);  // never fragmented
    ip[8] = static_cast<std::byte>(packet.hop_limit != 0 ? packet.hop_limit : kDefaultHopLimit);
    ip[9] = std::byte{kProtocolUdp};
    store_be<std::uint16_t>(ip + 10, 0);
    std::memcpy(ip + 12, packet.source.data() + 12, 4);
    std::memcpy(ip + 16, packet.destination.data() + 12, 4);
    store_be<std::uint16_t>(ip + 10, static_cast<std::uint16_t>(~header_sum(ip)));
}

void write_ipv6(const Packet& packet, std::size_t udp_bytes, std::byte* ip) {
    const std::uint32_t traffic_class = (packet.dscp << 2 | (packet.ecn & 3)) & 0xff;
    store_be<std::uint32_t>(ip, 6U << 28 | traffic_class << 20 | (packet.flow_label & 0xfffff));
    store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(udp_bytes));
    ip[6] = std::byte{kProtocolUdp};
    ip[7] = static_cast<std::byte>(packet.hop_limit != 0 ? packet.hop_limit : kDefaultHopLimit);
    std::memcpy(ip + 8, packet.source.data(), 16);
    std::memcpy(ip + 24, packet.destination.data(), 16);
}

void write_bth(const Packet& packet, std::size_t pad, std::byte* bth) {
    bth[0] = static_cast<std::byte>(packet.opcode);
    bth[1] = static_cast<std::byte>((packet.solicited ? 0x80 : 0) | (packet.migrated ? 0x40 : 0) |
                                    pad << 4);
    store_be<std::uint16_t>(bth + 2, packet.pkey);
    store_be8_24(bth + 4,
                 static_cast<std::uint8_t>((packet.fecn ? 0x80 : 0) | (packet.becn ? 0x40 : 0)),
                 packet.destination_qpn.value());
    store_be8_24(bth + 8, packet.ack_request ? 0x80 : 0, packet.psn.value());
}
void read_bth(const std::byte* bth, Packet& packet) {
    const auto flags = std::to_integer<std::uint8_t>(bth[1]);
    packet.opcode = static_cast<Opcode>(bth[0]);
    packet.solicited = (flags & 0x80) != 0;
    packet.migrated = (flags & 0x40) != 0;
    packet.pad = flags >> 4 & 3;
    packet.pkey = load_be<std::uint16_t>(bth + 2);
    packet.fecn = (bth[4] & std::byte{0x80}) != std::byte{};
    packet.becn = (bth[4] & std::byte{0x40}) != std::byte{};
    packet.destination_qpn = Qpn(load_be24(bth + 4));
    packet.ack_request = (bth[8] & std::byte{0x80}) != std::byte{};
    packet.psn = Psn(load_be24(bth + 8));
}

void write_extensions(const Packet& packet, const OpcodeInfo& info, std::byte* to) {
    if (info.has(kHasDeth)) {
        store_be<std::uint32_t>(to, packet.deth.qkey.value());
        store_be8_24(to + 4, 0, packet.deth.source.value());
        to += 8;
    }
    if (info.has(kHasFeth)) {
        store_be<std::uint32_t>(to, packet.feth);
        to += 4;
    }
    if (info.has(kHasReth)) {
        store_be<std::uint64_t>(to, packet.reth.address);
        store_be<std::uint32_t>(to + 8, packet.reth.rkey.value());
        store_be<std::uint32_t>(to + 12, packet.reth.length);
        to += 16;
    }
    if (info.has(kHasAeth)) {
        store_be8_24(to, packet.aeth.syndrome, packet.aeth.msn);
        to += 4;
    }
    if (info.has(kHasAtomicAck)) {
        store_be<std::uint64_t>(to, packet.atomic_original);
        to += 8;
    }
    if (info.has(kHasAtomic)) {
        store_be<std::uint64_t>(to, packet.atomic.address);
        store_be<std::uint32_t>(to + 8, packet.atomic.rkey.value());
        store_be<std::uint64_t>(to + 12, packet.atomic.swap_or_add);
        store_be<std::uint64_t>(to + 20, packet.atomic.compare);
        to += 28;
    }
    if (info.has(kHasImmediate)) {
        std::memcpy(to, packet.immediate.data(), 4);
        to += 4;
    }
    if (info.has(kHasInvalidate)) {
        store_be<std::uint32_t>(to, packet.invalidate_rkey.value());
        to += 4;
    }
    if (info.has(kHasCnpBody)) std::memset(to, 0, kCnpBodySize);
}
void read_extensions(const std::byte* from, const OpcodeInfo& info, Packet& packet) {
    if (info.has(kHasDeth)) {
        packet.deth = {QKey(load_be<std::uint32_t>(from)), Qpn(load_be24(from + 4))};
        from += 8;
    }
    if (info.has(kHasFeth)) {
        packet.feth = load_be<std::uint32_t>(from);
        from += 4;
    }
    if (info.has(kHasReth)) {
        packet.reth = {load_be<std::uint64_t>(from), RKey(load_be<std::uint32_t>(from + 8)),
                       load_be<std::uint32_t>(from + 12)};
        from += 16;
    }
    if (info.has(kHasAeth)) {
        packet.aeth = {std::to_integer<std::uint8_t>(from[0]), load_be24(from)};
        from += 4;
    }
    if (info.has(kHasAtomicAck)) {
        packet.atomic_original = load_be<std::uint64_t>(from);
        from += 8;
    }
    if (info.has(kHasAtomic)) {
        packet.atomic = {load_be<std::uint64_t>(from), RKey(load_be<std::uint32_t>(from + 8)),
                         load_be<std::uint64_t>(from + 12), load_be<std::uint64_t>(from + 20)};
        from += 28;
    }
    if (info.has(kHasImmediate)) {
        std::memcpy(packet.immediate.data(), from, 4);
        from += 4;
    }
    if (info.has(kHasInvalidate)) packet.invalidate_rkey = RKey(load_be<std::uint32_t>(from));
}

tl::unexpected<base::Error> drop(DropReason reason, const char* text) {
    return base::fail(ErrorCode::kProtocol, text, static_cast<std::uint64_t>(reason));
}

/// Where the IP header starts; 0 if the frame holds none.
struct Link {
    std::size_t ip_offset = 0;
    std::uint16_t type = 0;
    std::optional<std::uint16_t> vlan_tci;
};
Link parse_link(std::span<const std::byte> frame) {
    Link link;
    std::size_t at = kMacsSize;
    if (frame.size() < at + kEtherTypeSize) return {};
    link.type = load_be<std::uint16_t>(frame.data() + at);
    if (link.type == kTypeVlan) {
        if (frame.size() < at + kVlanSize + kEtherTypeSize) return {};
        link.vlan_tci = load_be<std::uint16_t>(frame.data() + at + 2);
        at += kVlanSize;
        link.type = load_be<std::uint16_t>(frame.data() + at);
    }
    if (link.type != kTypeIpv4 && link.type != kTypeIpv6) return {};
    link.ip_offset = at + kEtherTypeSize;
    return link;
}

void map_ipv4(const std::byte* address, Gid& gid) {
    gid.fill(0);
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, address, 4);
}

struct IpHeader {
    std::span<const std::byte> header;
    std::span<const std::byte> body;  ///< by the length field, not by the frame
};
base::Result<IpHeader> parse_ipv4(std::span<const std::byte> data, Packet& packet) {
    if (data.size() < kIpv4Size) return drop(DropReason::kMalformed, "short IPv4 header");
    const std::byte* ip = data.data();
    if (ip[0] != std::byte{0x45})
        return drop(DropReason::kMalformed, "IPv4 version or header length");
    if (ip[9] != std::byte{kProtocolUdp}) return drop(DropReason::kNotRoce, "not UDP");
    // More fragments, or not the first one.
    if ((load_be<std::uint16_t>(ip + 6) & 0x3fff) != 0)
        return drop(DropReason::kMalformed, "fragment");
    const std::size_t total = load_be<std::uint16_t>(ip + 2);
    if (total < kIpv4Size || total > data.size())
        return drop(DropReason::kMalformed, "IPv4 length");
    if (header_sum(ip) != 0xffff) return drop(DropReason::kMalformed, "IPv4 checksum");
    const auto tos = std::to_integer<std::uint8_t>(ip[1]);
    packet.dscp = tos >> 2;
    packet.ecn = tos & 3;
    packet.ipv4_id = load_be<std::uint16_t>(ip + 4);
    packet.hop_limit = std::to_integer<std::uint8_t>(ip[8]);
    map_ipv4(ip + 12, packet.source);
    map_ipv4(ip + 16, packet.destination);
    return IpHeader{data.first(kIpv4Size), data.subspan(kIpv4Size, total - kIpv4Size)};
}
base::Result<IpHeader> parse_ipv6(std::span<const std::byte> data, Packet& packet) {
    if (data.size() < kIpv6Size) return drop(DropReason::kMalformed, "short IPv6 header");
    const std::byte* ip = data.data();
    const auto word = load_be<std::uint32_t>(ip);
    if (word >> 28 != 6) return drop(DropReason::kMalformed, "IPv6 version");
    if (ip[6] != std::byte{kProtocolUdp}) return drop(DropReason::kNotRoce, "not UDP");
    const std::size_t length = load_be<std::uint16_t>(ip + 4);
    if (length > data.size() - kIpv6Size) return drop(DropReason::kMalformed, "IPv6 length");
    packet.dscp = static_cast<std::uint8_t>(word >> 22 & 0x3f);
    packet.ecn = static_cast<std::uint8_t>(word >> 20 & 3);
    packet.flow_label = word & 0xfffff;
    packet.hop_limit = std::to_integer<std::uint8_t>(ip[7]);
    std::memcpy(packet.source.data(), ip + 8, 16);
    std::memcpy(packet.destination.data(), ip + 24, 16);
    // A mapped address in an IPv6 header would be sent back as IPv4.
    if (is_ipv4(packet.source) || is_ipv4(packet.destination))
        return drop(DropReason::kMalformed, "IPv4-mapped address in an IPv6 header");
    return IpHeader{data.first(kIpv6Size), data.subspan(kIpv6Size, length)};
}

}  // namespace

const OpcodeInfo& opcode_info(Opcode opcode) {
    return kOpcodes[static_cast<std::uint8_t>(opcode)];
}

base::Result<Packet> parse(base::FrameView frame) {
    Packet packet;
    const Link link = parse_link(frame);
    if (link.ip_offset == 0) return drop(DropReason::kNotRoce, "not IP");
    std::memcpy(packet.destination_mac.data(), frame.data(), 6);
    std::memcpy(packet.source_mac.data(), frame.data() + 6, 6);
    packet.vlan_tci = link.vlan_tci;

    const auto data = frame.subspan(link.ip_offset);
    TRY(const IpHeader ip,
        link.type == kTypeIpv4 ? parse_ipv4(data, packet) : parse_ipv6(data, packet));
    if (ip.body.size() < kUdpSize) return drop(DropReason::kMalformed, "short UDP header");
    const std::byte* udp = ip.body.data();
    if (load_be<std::uint16_t>(udp + 2) != kUdpPort)
        return drop(DropReason::kNotRoce, "not our UDP port");
    packet.udp_source_port = load_be<std::uint16_t>(udp);
    const std::size_t udp_size = load_be<std::uint16_t>(udp + 4);
    if (udp_size < kUdpSize + kBthSize + kIcrcSize || udp_size > ip.body.size())
        return drop(DropReason::kMalformed, "UDP length");

    const auto covered = ip.body.first(udp_size - kIcrcSize);
    if (!frame.lacks_icrc() &&
        load_le<std::uint32_t>(covered.data() + covered.size()) != icrc(ip.header, covered))
        return drop(DropReason::kIcrc, "ICRC");

    const std::byte* bth = udp + kUdpSize;
    if ((bth[1] & std::byte{0x0f}) != std::byte{})
        return drop(DropReason::kVersion, "transport version");
    read_bth(bth, packet);
    const OpcodeInfo& info = packet.info();
    if (!info.known() && transport(packet.opcode) != Transport::kRc)
        return drop(DropReason::kOpcode, "unknown opcode");
    if (packet.destination_qpn == Qpn(0)) return drop(DropReason::kQpn, "destination QPN 0");

    auto rest = covered.subspan(kUdpSize + kBthSize);
    if (rest.size() < std::size_t{info.extension_bytes} + packet.pad)
        return drop(DropReason::kMalformed, "no room for the headers of the opcode");
    read_extensions(rest.data(), info, packet);
    rest = rest.subspan(info.extension_bytes);
    packet.payload = rest.first(rest.size() - packet.pad);
    return packet;
}

void encode_without_icrc(const Packet& packet, PayloadSpans payload, base::Frame& out) {
    const OpcodeInfo& info = packet.info();
    // No outside byte gets here: opcodes are the sender's own choice, and it cuts at the path MTU.
    OM_CHECK(info.known());
    std::size_t payload_size = 0;
    for (const auto& span : payload) payload_size += span.size();
    const std::size_t pad = (0 - payload_size) & 3;
    const bool ipv4 = is_ipv4_packet(packet);
    const std::size_t link_size = kMacsSize + (packet.vlan_tci ? kVlanSize : 0) + kEtherTypeSize;
    const std::size_t ip_size = ipv4 ? kIpv4Size : kIpv6Size;
    const std::size_t udp_size =
        kUdpSize + kBthSize + info.extension_bytes + payload_size + pad + kIcrcSize;
    OM_CHECK(udp_size <= 0xffff - kIpv4Size);

    out.resize(link_size + ip_size + udp_size);
    std::byte* at = out.data();
    std::memcpy(at, packet.destination_mac.data(), 6);
    std::memcpy(at + 6, packet.source_mac.data(), 6);
    at += kMacsSize;
    if (packet.vlan_tci) {
        store_be<std::uint16_t>(at, kTypeVlan);
        store_be<std::uint16_t>(at + 2, *packet.vlan_tci);
        at += kVlanSize;
    }
    store_be<std::uint16_t>(at, ipv4 ? kTypeIpv4 : kTypeIpv6);
    std::byte* const ip = at + kEtherTypeSize;
    if (ipv4)
        write_ipv4(packet, udp_size, ip);
    else
        write_ipv6(packet, udp_size, ip);

    std::byte* const udp = ip + ip_size;
    store_be<std::uint16_t>(udp, packet.udp_source_port);
    store_be<std::uint16_t>(udp + 2, kUdpPort);
    store_be<std::uint16_t>(udp + 4, static_cast<std::uint16_t>(udp_size));
    store_be<std::uint16_t>(udp + 6, 0);  // the ICRC protects
    write_bth(packet, pad, udp + kUdpSize);
    at = udp + kUdpSize + kBthSize;
    write_extensions(packet, info, at);
    at += info.extension_bytes;
    for (const auto& span : payload) {
        if (span.empty()) continue;
        std::memcpy(at, span.data(), span.size());
        at += span.size();
    }
    std::memset(at, 0, pad);
    at += pad;
    store_le<std::uint32_t>(at, 0);
    out.set_lacks_icrc(true);
}

void encode(const Packet& packet, PayloadSpans payload, base::Frame& out) {
    encode_without_icrc(packet, payload, out);
    put_icrc(out);
}

void encode(const Packet& packet, base::Frame& out) {
    // The list form takes what guest memory is made of, mutable bytes; it only reads them.
    std::span<std::byte> whole(const_cast<std::byte*>(packet.payload.data()),
                               packet.payload.size());
    encode(packet, PayloadSpans(&whole, 1), out);
}

void put_icrc(base::FrameView& frame) {
    if (!frame.lacks_icrc()) return;
    // It is encode_without_icrc()'s, with or without a tag.
    const Link link = parse_link(frame);
    const std::size_t ip_size = link.type == kTypeIpv4 ? kIpv4Size : kIpv6Size;
    const std::size_t udp = link.ip_offset + ip_size;
    OM_CHECK(link.ip_offset != 0 && frame.size() >= udp + kUdpSize + kBthSize + kIcrcSize);
    const auto covered = frame.subspan(udp, frame.size() - udp - kIcrcSize);
    store_le<std::uint32_t>(const_cast<std::byte*>(covered.data()) + covered.size(),
                            icrc(frame.subspan(link.ip_offset, ip_size), covered));
    frame.set_lacks_icrc(false);
}

void put_icrc(base::Frame& frame) {
    base::FrameView view = frame;
    put_icrc(view);
    frame.set_lacks_icrc(false);
}

void write_grh(const Packet& packet, std::size_t payload_bytes, std::span<std::byte, 40> out) {
    const std::size_t udp_size = kUdpSize + kBthSize + packet.info().extension_bytes +
                                 payload_bytes + ((0 - payload_bytes) & 3) + kIcrcSize;
    // Receivers drop what is longer than their port's MTU.
    OM_CHECK(udp_size <= 0xffff - kIpv4Size);
    if (is_ipv4_packet(packet)) {
        std::memset(out.data(), 0, kIpv6Size - kIpv4Size);
        write_ipv4(packet, udp_size, out.data() + (kIpv6Size - kIpv4Size));
    } else {
        write_ipv6(packet, udp_size, out.data());
    }
}

}  // namespace openmana::roce
