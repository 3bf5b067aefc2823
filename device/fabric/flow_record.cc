// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/endian.h"
#include "fabric/acl.h"
#include "fabric/flow_packet.h"
#include "roce/aeth.h"

namespace openmana::fabric {

using namespace flow_packet;

namespace {

constexpr std::uint32_t kSmallestPathMtu = 256;
constexpr std::uint8_t kTcpFin = 0x01;
constexpr std::uint8_t kTcpRst = 0x04;

std::string time_text(base::Duration since_1970) {
    const auto nanoseconds = since_1970.count();
    const std::time_t seconds = nanoseconds / 1000000000;
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", parts, nanoseconds % 1000000000 / 1000);
}

/// Packets that so many bytes need; at least one.
std::uint32_t packets_of(std::uint32_t bytes, std::uint32_t path_mtu) {
    return bytes == 0 ? 1 : (bytes - 1) / path_mtu + 1;
}

std::size_t payload_bytes(const roce::OpcodeInfo& info, std::span<const std::byte> bth) {
    const std::size_t overhead = kBthBytes + info.extension_bytes + (byte_at(bth, 1) >> 4 & 3U);
    return info.payload && bth.size() > overhead ? bth.size() - overhead : 0;
}

std::size_t tcp_payload(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const std::size_t header = (byte_at(frame, headers.transport + 12) >> 4) * std::size_t{4};
    const std::size_t length = headers.end - headers.transport;
    return header <= length ? length - header : 0;
}

const roce::OpcodeInfo& info_of(std::span<const std::byte> bth) {
    return roce::opcode_info(static_cast<roce::Opcode>(byte_at(bth, 0)));
}

}  // namespace

std::span<const std::byte> bth_of(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const std::size_t start = headers.transport + kUdpBytes;
    if (headers.end < start + kBthBytes + kIcrcBytes) return {};
    return frame.subspan(start, headers.end - start - kIcrcBytes);
}

void FlowRecord::count_frame(Direction direction, const FrameHeaders& headers,
                             std::span<const std::byte> frame) {
    const std::byte traffic =
        headers.ipv4() ? frame[headers.network + 1] : frame[headers.network + 1] >> 4;
    if ((traffic & std::byte{3}) == std::byte{3}) ++marked;
    Half& sums = half(direction);
    ++sums.frames;
    sums.bytes += frame.size();
    if (headers.fragment)
        sums.payload += headers.end - headers.fragment_data;
    else if (key.kind == FlowKind::kUdp)
        sums.payload += headers.end - headers.transport - kUdpBytes;
}

void FlowRecord::count_tcp(Direction direction, const FrameHeaders& headers,
                           std::span<const std::byte> frame) {
    half(direction).payload += tcp_payload(headers, frame);
    const std::uint8_t flags = byte_at(frame, headers.transport + 13);
    reset_ = (flags & kTcpRst) != 0;
    if (reset_) ++errors;
    if ((flags & kTcpFin) != 0) half(direction).finished = true;
}

void FlowRecord::count_request(Direction direction, std::span<const std::byte> bth) {
    Half& asked = half(direction);
    const roce::OpcodeInfo& info = roce::opcode_info(static_cast<roce::Opcode>(byte_at(bth, 0)));
    const roce::Psn psn(low24(bth, 8));
    const std::size_t payload = payload_bytes(info, bth);
    learn_path_mtu(info, payload);
    // A READ takes the PSNs of its answer, and is asked for again from the middle of them.
    std::uint32_t read_length = 0;
    if (info.operation == roce::Operation::kReadRequest && bth.size() >= kBthBytes + kRethBytes)
        read_length = base::load_be<std::uint32_t>(bth.data() + kBthBytes + 12);
    if (asked.unsettled_read != 0 && path_mtu != 0) {
        asked.requests.settle(packets_of(asked.unsettled_read, path_mtu));
        asked.unsettled_read = 0;
    }
    const bool certain = path_mtu != 0 || read_length <= kSmallestPathMtu;
    const std::uint32_t psns = path_mtu != 0 ? packets_of(read_length, path_mtu) : 1;
    if (!asked.requests.add(psn, psns, certain) && key.kind == FlowKind::kRc) {
        ++retransmits;
        return;
    }
    asked.unsettled_read = certain ? 0 : read_length;
    if (info.position == roce::Position::kLast || info.position == roce::Position::kOnly)
        ++asked.operations;
    asked.payload += payload;
}

void FlowRecord::count_response(Direction direction, std::span<const std::byte> bth) {
    const roce::OpcodeInfo& info = info_of(bth);
    if (info.has(roce::kHasAeth) && bth.size() >= kBthBytes + 4) {
        const std::uint8_t syndrome = byte_at(bth, kBthBytes);
        if (roce::aeth_kind(syndrome) == roce::AethKind::kRnrNak) ++rnr;
        if (roce::aeth_kind(syndrome) == roce::AethKind::kNak &&
            roce::nak_code(syndrome) != roce::NakCode::kSequenceError)
            ++errors;
    }
    if (!info.payload) return;
    const std::size_t payload = payload_bytes(info, bth);
    learn_path_mtu(info, payload);
    Half& answered = half(direction);
    if (answered.responses.add(roce::Psn(low24(bth, 8))))
        answered.payload += payload;
    else
        ++retransmits;
}

/// The first packets of a message are as long as they can be (ROCE 1.8).
void FlowRecord::learn_path_mtu(const roce::OpcodeInfo& info, std::size_t payload) {
    if (payload != 0 &&
        (info.position == roce::Position::kFirst || info.position == roce::Position::kMiddle))
        path_mtu = static_cast<std::uint32_t>(payload);
}

void FlowRecord::count_drop(Direction direction, const FrameHeaders& headers,
                            std::span<const std::byte> frame) {
    Half& sums = half(direction);
    if (sums.frames == 0 || sums.bytes < frame.size()) return;
    ++dropped;
    --sums.frames;
    sums.bytes -= frame.size();
    // A reliable queue pair sends the packet again, which is no news then; others are done with it.
    std::size_t payload = 0;
    if (headers.fragment) {
        payload = headers.end - headers.fragment_data;
    } else if (key.kind == FlowKind::kTcp) {
        payload = tcp_payload(headers, frame);
    } else if (key.kind == FlowKind::kUdp) {
        payload = headers.end - headers.transport - kUdpBytes;
    } else if (key.kind != FlowKind::kRc) {
        const auto bth = bth_of(headers, frame);
        if (!bth.empty() && info_of(bth).known()) payload = payload_bytes(info_of(bth), bth);
    }
    sums.payload -= std::min<std::uint64_t>(sums.payload, payload);
}

void FlowRecord::join(const FlowRecord& other) {
    if (other.start < start) {
        start = other.start;
        opened = other.opened;
    }
    if (key.local == FlowKey::kUnknown) key.local = other.key.local;
    if (key.remote == FlowKey::kUnknown) key.remote = other.key.remote;
    for (std::size_t i = 0; i < kDirections; ++i)
        if (other.halves[i].frames != 0) halves[i] = other.halves[i];
    path_mtu = std::max(path_mtu, other.path_mtu);
    errors += other.errors;
    if (failure == nullptr) failure = other.failure;
    rnr += other.rnr;
    retransmits += other.retransmits;
    marked += other.marked;
    denied += other.denied;
    dropped += other.dropped;
}

std::string FlowRecord::line(const std::string& nic, const base::WallTime& wall,
                             const char* reason) const {
    constexpr const char* kNames[] = {"tcp", "udp", "rdma-rc", "rdma-uc", "rdma-ud"};
    const bool rdma = key.rdma();
    const auto number = [](std::uint32_t value) {
        return value == FlowKey::kUnknown ? std::string("null") : fmt::format("{}", value);
    };
    std::string text;
    const auto out = std::back_inserter(text);
    fmt::format_to(out,
                   R"({{"event":"{}","nic":"{}","start":"{}","protocol":"{}","opened_by":"{}",)"
                   R"("local":"{}","local_{}":{},"remote":"{}","remote_{}":{})",
                   reason == nullptr ? "start" : "end", nic, time_text(wall.at(start)),
                   kNames[static_cast<std::size_t>(key.kind)],
                   opened == Direction::kTransmit ? "guest" : "network",
                   address_text(key.local_address, ipv4), rdma ? "qpn" : "port", number(key.local),
                   address_text(key.remote_address, ipv4), rdma ? "qpn" : "port",
                   number(key.remote));
    if (key.vlan != roce::kNoVlan) fmt::format_to(out, R"(,"vlan":{})", key.vlan);
    if (reason != nullptr) {
        fmt::format_to(out, R"(,"end":"{}","reason":"{}")", time_text(wall.at(last)), reason);
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive}) {
            const Half& sums = halves[index(direction)];
            const char* const name = direction == Direction::kTransmit ? "tx" : "rx";
            fmt::format_to(out, R"(,"{0}_frames":{1},"{0}_bytes":{2},"{0}_payload":{3})", name,
                           sums.frames, sums.bytes, sums.payload);
            if (rdma) fmt::format_to(out, R"(,"{}_operations":{})", name, sums.operations);
        }
        fmt::format_to(out, R"(,"errors":{},"denied":{},"dropped":{},"marked":{})", errors, denied,
                       dropped, marked);
        if (rdma) fmt::format_to(out, R"(,"rnr":{},"retransmits":{})", rnr, retransmits);
    }
    text += '}';
    return text;
}

}  // namespace openmana::fabric
