// SPDX-License-Identifier: Apache-2.0
#include "eth/transmit_offload.h"

#include <mana/eth.h>
#include <mana/ext_eth.h>

#include <algorithm>
#include <cstring>

#include "base/endian.h"
#include "base/result.h"
#include "eth/checksum.h"
#include "eth/ip.h"

namespace openmana::eth {
namespace {

using base::load_be;
using base::load_le;
using base::store_be;
using base::store_le;

constexpr std::size_t kTcpSequence = 4;
constexpr std::size_t kTcpDataOffset = 12;
constexpr std::size_t kTcpFlags = 13;
constexpr std::size_t kTcpChecksum = 16;
constexpr std::size_t kUdpChecksum = 6;
constexpr std::uint8_t kTcpFin = 0x01;
constexpr std::uint8_t kTcpPush = 0x08;
constexpr std::uint8_t kTcpCwr = 0x80;

tl::unexpected<TxStatus> refuse(mana_hw_eth_cqe_type type) {
    return tl::unexpected<TxStatus>(static_cast<TxStatus>(type));
}

void write_tag(std::byte* at, std::uint16_t tci) {
    store_be<std::uint16_t>(at, kTypeVlan);
    store_be<std::uint16_t>(at + 2, tci);
}

/// Checks that the packet is of the family asked for, and gives the bytes of its IP header (IPv6:
/// the fixed one).
TxResult<std::size_t> ip_header_bytes(const TxOffload& offload, std::span<const std::byte> packet) {
    const auto type = load_be<std::uint16_t>(packet.data() + kMacsBytes);
    if (type != (offload.ipv4 ? kTypeIpv4 : kTypeIpv6)) return refuse(MANA_HW_ETH_CQE_TX_ETHERTYPE);
    const auto ip = packet.subspan(kEthernetBytes);
    if (!offload.ipv4) {
        if (ip.size() < kIpv6Bytes) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
        return kIpv6Bytes;
    }
    if (ip.size() < kIpv4Bytes) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    const std::size_t header = ipv4_header_bytes(ip.data());
    if (header < kIpv4Bytes || header > ip.size()) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    return header;
}

/// Where the IP packet ends: frames may carry padding behind it.
std::size_t packet_end(const TxOffload& offload, std::span<const std::byte> packet,
                       std::size_t transport) {
    const std::byte* ip = packet.data() + kEthernetBytes;
    const std::size_t end = offload.ipv4
                                ? kEthernetBytes + load_be<std::uint16_t>(ip + 2)
                                : kEthernetBytes + kIpv6Bytes + load_be<std::uint16_t>(ip + 4);
    return end > transport && end <= packet.size() ? end : packet.size();
}

/// The IP packet of a frame, as far as its transport checksum needs it.
struct IpPacket {
    std::span<std::byte> transport;  ///< to the end of the packet; empty: there is nothing to sum
    std::span<const std::byte> addresses;
    std::uint8_t protocol = 0;
};

/// Fills the header checksum in.
IpPacket finish_ipv4(std::span<std::byte> ip) {
    if (ip.size() < kIpv4Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x40}) return {};
    const std::size_t header = ipv4_header_bytes(ip.data());
    if (header < kIpv4Bytes || header > ip.size()) return {};
    store_le<std::uint16_t>(ip.data() + 10, 0);
    store_le<std::uint16_t>(ip.data() + 10, InternetSum().add(ip.first(header)).checksum());
    const std::size_t total = load_be<std::uint16_t>(ip.data() + 2);
    const bool fragment = (load_be<std::uint16_t>(ip.data() + 6) & 0x3fff) != 0;
    if (fragment || total < header || total > ip.size()) return {};
    return {ip.subspan(header, total - header), ip.subspan(12, 8),
            std::to_integer<std::uint8_t>(ip[9])};
}

IpPacket look_into_ipv6(std::span<std::byte> ip) {
    if (ip.size() < kIpv6Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x60}) return {};
    const std::size_t length = load_be<std::uint16_t>(ip.data() + 4);
    if (length > ip.size() - kIpv6Bytes) return {};
    return {ip.subspan(kIpv6Bytes, length), ip.subspan(8, 32),
            std::to_integer<std::uint8_t>(ip[6])};
}

/// The checksums that the packet has (MANA_HW_EXT_TX_CHECKSUMS).
void finish_checksums(std::span<std::byte> frame) {
    auto rest = frame.subspan(kMacsBytes);
    if (load_be<std::uint16_t>(rest.data()) == kTypeVlan && rest.size() >= kVlanBytes + kTypeBytes)
        rest = rest.subspan(kVlanBytes);
    const auto type = load_be<std::uint16_t>(rest.data());
    IpPacket packet;
    if (type == kTypeIpv4)
        packet = finish_ipv4(rest.subspan(kTypeBytes));
    else if (type == kTypeIpv6)
        packet = look_into_ipv6(rest.subspan(kTypeBytes));
    const bool tcp = packet.protocol == kProtocolTcp && packet.transport.size() >= kTcpBytes;
    const bool udp = packet.protocol == kProtocolUdp && packet.transport.size() >= kUdpBytes;
    if (!tcp && !udp) return;
    std::byte* const field = packet.transport.data() + (tcp ? kTcpChecksum : kUdpChecksum);
    store_le<std::uint16_t>(field, 0);
    std::uint16_t sum = InternetSum()
                            .add(packet.addresses)
                            .add_number(packet.protocol)
                            .add_number(static_cast<std::uint16_t>(packet.transport.size()))
                            .add(packet.transport)
                            .checksum();
    if (udp && sum == 0) sum = 0xffff;
    store_le<std::uint16_t>(field, sum);
}

TxResult<TxOffload> parse_oob(const gdma::Wqe& wqe, bool packets) {
    const auto oob = wqe.oob();
    const auto word = [&](std::size_t index) {
        return load_le<std::uint32_t>(oob.data() + index * 4);
    };
    const std::uint32_t flags = word(0);
    const std::uint32_t place = word(1);
    const std::uint32_t format = flags & MANA_HW_ETH_TX_FORMAT;
    if (format > MANA_HW_ETH_TX_FORMAT_LONG) return refuse(MANA_HW_ETH_CQE_TX_OOB);

    TxOffload offload;
    offload.checksums = packets && (flags & MANA_HW_EXT_TX_CHECKSUMS) == MANA_HW_EXT_TX_CHECKSUMS;
    if (!offload.checksums) {
        offload.ipv4 = (flags & MANA_HW_ETH_TX_IPV4) != 0;
        offload.ipv6 = (flags & MANA_HW_ETH_TX_IPV6) != 0;
        offload.ip_checksum = (flags & MANA_HW_ETH_TX_IP_CHECKSUM) != 0;
        offload.tcp_checksum = (flags & MANA_HW_ETH_TX_TCP_CHECKSUM) != 0;
        offload.udp_checksum = (flags & MANA_HW_ETH_TX_UDP_CHECKSUM) != 0;
    }
    offload.transport = place & MANA_HW_ETH_TX_TRANSPORT;
    offload.vport_offset = place >> MANA_HW_ETH_TX_VPORT_SHIFT;
    if (format == MANA_HW_ETH_TX_FORMAT_LONG) {
        if (oob.size() < sizeof(mana_hw_eth_tx_oob)) return refuse(MANA_HW_ETH_CQE_TX_OOB);
        const std::uint32_t vlan = word(2);
        if (vlan & MANA_HW_ETH_TX_ENCAPSULATED) return refuse(MANA_HW_ETH_CQE_TX_OOB);
        if (vlan & MANA_HW_ETH_TX_INSERT_VLAN)
            offload.vlan_tci =
                static_cast<std::uint16_t>((vlan >> MANA_HW_ETH_TX_PCP_SHIFT & 7) << 13 |
                                           ((vlan & MANA_HW_ETH_TX_DEI) != 0 ? 1U << 12 : 0U) |
                                           vlan >> MANA_HW_ETH_TX_VLAN_SHIFT);
        // The short field counts also here, unless it is too narrow.
        if (offload.vport_offset == 0)
            offload.vport_offset =
                (word(3) & MANA_HW_ETH_TX_LONG_VPORT) >> MANA_HW_ETH_TX_LONG_VPORT_SHIFT;
    }
    const bool any = offload.ip_checksum || offload.tcp_checksum || offload.udp_checksum;
    if (any && offload.ipv4 == offload.ipv6) return refuse(MANA_HW_ETH_CQE_TX_OOB);
    if (offload.tcp_checksum && offload.udp_checksum) return refuse(MANA_HW_ETH_CQE_TX_OOB);
    if (wqe.oob_in_sgl()) {
        offload.segment = true;
        offload.mss = wqe.client_data_unit();
        if (offload.mss == 0 || !offload.tcp_checksum || wqe.sges().size() < 2)
            return refuse(MANA_HW_ETH_CQE_TX_OOB);
    }
    return offload;
}

}  // namespace

bool wants_no_completion(const gdma::Wqe& wqe) {
    return (load_le<std::uint32_t>(wqe.oob().data()) & MANA_HW_ETH_TX_NO_COMPLETION) != 0;
}

TxResult<TxOffload> parse_tx_oob(const gdma::Wqe& wqe) {
    return parse_oob(wqe, false);
}

TxResult<TxOffload> parse_packet_oob(const gdma::Wqe& wqe) {
    return parse_oob(wqe, true);
}

TxResult<void> finish_packet(const TxOffload& offload, base::Frame& frame) {
    if (offload.ip_checksum || offload.tcp_checksum || offload.udp_checksum) {
        const auto ip_bytes = ip_header_bytes(offload, frame);
        if (!ip_bytes) return tl::unexpected(ip_bytes.error());
        std::byte* const ip = frame.data() + kEthernetBytes;
        if (offload.ip_checksum && offload.ipv4) {
            store_le<std::uint16_t>(ip + 10, 0);
            store_le<std::uint16_t>(ip + 10, InternetSum().add({ip, *ip_bytes}).checksum());
        }
        if (offload.tcp_checksum || offload.udp_checksum) {
            std::size_t transport = kEthernetBytes + *ip_bytes;
            if (offload.transport != 0) {
                // IPv6 may have more headers in between, IPv4 may not have fewer bytes.
                if (offload.transport < transport) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
                transport = offload.transport;
            } else {
                const auto protocol = std::to_integer<std::uint8_t>(offload.ipv4 ? ip[9] : ip[6]);
                if (protocol != (offload.tcp_checksum ? kProtocolTcp : kProtocolUdp))
                    return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
            }
            const std::size_t header = offload.tcp_checksum ? kTcpBytes : kUdpBytes;
            const std::size_t field =
                transport + (offload.tcp_checksum ? kTcpChecksum : kUdpChecksum);
            const std::size_t end = packet_end(offload, frame, transport);
            if (header > end || transport > end - header) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
            // The field holds the sum of the pseudo header, which is thereby summed too.
            std::uint16_t sum =
                InternetSum().add({frame.data() + transport, end - transport}).checksum();
            if (offload.udp_checksum && sum == 0) sum = 0xffff;
            store_le<std::uint16_t>(frame.data() + field, sum);
        }
    }
    if (offload.checksums) finish_checksums(frame);
    if (offload.vlan_tci) {
        std::byte tag[kVlanBytes];
        write_tag(tag, *offload.vlan_tci);
        frame.insert(frame.begin() + kMacsBytes, tag, tag + kVlanBytes);
    }
    return {};
}

void SpanReader::read(std::span<std::byte> target) {
    while (!target.empty()) {
        // SendQueue takes lengths and memory from one copy of the WQE, so that they agree.
        OM_CHECK(index_ < spans_.size());
        const auto from = spans_[index_].subspan(offset_);
        const std::size_t n = std::min(from.size(), target.size());
        if (n != 0) std::memcpy(target.data(), from.data(), n);
        target = target.subspan(n);
        offset_ += n;
        if (offset_ == spans_[index_].size()) {
            ++index_;
            offset_ = 0;
        }
    }
}

TxResult<Segmenter> Segmenter::create(const TxOffload& offload, std::span<const std::byte> headers,
                                      std::uint64_t payload_bytes, std::size_t max_frame) {
    if (headers.size() < kEthernetBytes || headers.size() > kMaxHeaders)
        return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    const auto ip_bytes = ip_header_bytes(offload, headers);
    if (!ip_bytes) return tl::unexpected(ip_bytes.error());
    const std::size_t tcp = offload.transport != 0 ? offload.transport : kEthernetBytes + *ip_bytes;
    if (tcp < kEthernetBytes + *ip_bytes || tcp > headers.size() ||
        headers.size() - tcp < kTcpBytes)
        return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    const std::size_t tcp_bytes =
        std::to_integer<std::size_t>(headers[tcp + kTcpDataOffset] >> 4) * 4;
    if (tcp_bytes < kTcpBytes || tcp + tcp_bytes != headers.size())
        return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    if (payload_bytes == 0) return refuse(MANA_HW_ETH_CQE_TX_OOB);
    if (payload_bytes > kMaxPayload ||
        headers.size() + std::min<std::uint64_t>(offload.mss, payload_bytes) > max_frame)
        return refuse(MANA_HW_ETH_CQE_TX_MTU);

    Segmenter out;
    out.mss_ = offload.mss;
    out.left_ = payload_bytes;
    out.segments_ = (payload_bytes + offload.mss - 1) / offload.mss;
    if (out.segments_ > kMaxSegments) return refuse(MANA_HW_ETH_CQE_TX_HEADERS);
    const std::size_t tag = offload.vlan_tci ? kVlanBytes : 0;
    std::memcpy(out.headers_.data(), headers.data(), kMacsBytes);
    if (offload.vlan_tci) write_tag(out.headers_.data() + kMacsBytes, *offload.vlan_tci);
    std::memcpy(out.headers_.data() + kMacsBytes + tag, headers.data() + kMacsBytes,
                headers.size() - kMacsBytes);
    out.header_bytes_ = headers.size() + tag;
    out.ip_ = kEthernetBytes + tag;
    out.tcp_ = tcp + tag;
    out.ipv4_ = offload.ipv4;
    if (out.ipv4_) out.id_ = load_be<std::uint16_t>(headers.data() + kEthernetBytes + 4);
    out.sequence_ = load_be<std::uint32_t>(headers.data() + tcp + kTcpSequence);
    out.flags_ = std::to_integer<std::uint8_t>(headers[tcp + kTcpFlags]);
    return out;
}

base::Frame Segmenter::next(SpanReader& payload) {
    OM_CHECK(!done());
    const std::size_t n = std::min<std::uint64_t>(mss_, left_);
    base::Frame frame(header_bytes_ + n);
    std::memcpy(frame.data(), headers_.data(), header_bytes_);
    payload.read(std::span(frame).subspan(header_bytes_));

    std::byte* const ip = frame.data() + ip_;
    std::byte* const tcp = frame.data() + tcp_;
    const std::size_t transport_bytes = frame.size() - tcp_;
    if (ipv4_) {
        store_be<std::uint16_t>(ip + 2, static_cast<std::uint16_t>(frame.size() - ip_));
        store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(id_ + next_));
        store_be<std::uint16_t>(ip + 10, 0);
        store_le<std::uint16_t>(ip + 10, InternetSum().add({ip, ipv4_header_bytes(ip)}).checksum());
    } else {
        store_be<std::uint16_t>(ip + 4,
                                static_cast<std::uint16_t>(frame.size() - ip_ - kIpv6Bytes));
    }
    std::uint8_t flags = flags_;
    if (next_ != 0) flags &= static_cast<std::uint8_t>(~kTcpCwr);
    if (next_ + 1 != segments_) flags &= static_cast<std::uint8_t>(~(kTcpFin | kTcpPush));
    tcp[kTcpFlags] = static_cast<std::byte>(flags);
    store_be<std::uint32_t>(tcp + kTcpSequence,
                            static_cast<std::uint32_t>(sequence_ + next_ * mss_));
    // The template's checksum field holds the sum of the pseudo header without the length.
    store_le<std::uint16_t>(tcp + kTcpChecksum,
                            InternetSum()
                                .add_number(static_cast<std::uint16_t>(transport_bytes))
                                .add({tcp, transport_bytes})
                                .checksum());
    left_ -= n;
    ++next_;
    return frame;
}

}  // namespace openmana::eth
