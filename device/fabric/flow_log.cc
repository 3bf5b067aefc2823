// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_log.h"

#include <arpa/inet.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <iterator>

#include "base/endian.h"
#include "base/log.h"
#include "fabric/output_file.h"
#include "roce/aeth.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kBthBytes = 12;
constexpr std::size_t kDethBytes = 8;
constexpr std::size_t kRethBytes = 16;
constexpr std::size_t kIcrcBytes = 4;
constexpr std::uint32_t kSmallestPathMtu = 256;
constexpr std::uint8_t kTcpFin = 0x01;
constexpr std::uint8_t kTcpRst = 0x04;
/// An answer may be this far from the last request that was seen: a READ takes a PSN for each
/// packet of its answer.
constexpr std::int32_t kPsnReach = 1 << 16;
constexpr unsigned kPairingAttempts = 16;
constexpr std::size_t kMaxCandidates = 256;

std::uint8_t byte_at(std::span<const std::byte> bytes, std::size_t offset) {
    return std::to_integer<std::uint8_t>(bytes[offset]);
}
std::uint32_t low24(std::span<const std::byte> bytes, std::size_t offset) {
    return base::load_be<std::uint32_t>(bytes.data() + offset) & 0xffffff;
}

std::string address_text(const roce::Gid& gid, bool ipv4) {
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(ipv4 ? AF_INET : AF_INET6, gid.data() + (ipv4 ? 12 : 0), text, sizeof text);
    return text;
}

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

bool is_notification(const FrameHeaders& headers, std::span<const std::byte> frame) {
    const std::size_t bth = headers.transport + kUdpBytes;
    return headers.roce() && headers.end >= bth + kBthBytes + kIcrcBytes &&
           roce::transport(static_cast<roce::Opcode>(byte_at(frame, bth))) == roce::Transport::kCnp;
}

std::size_t payload_bytes(const roce::OpcodeInfo& info, std::span<const std::byte> bth) {
    const std::size_t overhead = kBthBytes + info.extension_bytes + (byte_at(bth, 1) >> 4 & 3U);
    return info.payload && bth.size() > overhead ? bth.size() - overhead : 0;
}

}  // namespace

base::Result<std::unique_ptr<FlowFile>> FlowFile::create(const std::string& path) {
    TRY(auto fd, open_output(path, OutputMode::kAppend, 0640));
    return std::unique_ptr<FlowFile>(new FlowFile(path, std::move(fd)));
}

void FlowFile::line(std::string_view json) {
    std::string text(json);
    text += '\n';
    const std::lock_guard lock(mutex_);
    std::string_view left = text;
    if (!fd_) lost_.fetch_add(1, std::memory_order_relaxed);
    while (fd_ && !left.empty()) {
        const ssize_t n = ::write(fd_.get(), left.data(), left.size());
        if (n >= 0) {
            left.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            error_.store(errno, std::memory_order_relaxed);
            lost_.fetch_add(1, std::memory_order_relaxed);
            OM_WARN("flow log end: file={} reason={}", path_, std::strerror(errno));
            fd_.reset();
        }
    }
}

bool FlowFile::current() const {
    const std::lock_guard lock(mutex_);
    struct stat own {};
    struct stat named {};
    return fd_ && ::fstat(fd_.get(), &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

std::size_t FlowTable::KeyHash::operator()(const Key& key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key.kind) + 1;
    const auto mix = [&](std::uint64_t value) {
        hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 29;
    };
    for (const roce::Gid* gid : {&key.local_address, &key.remote_address}) {
        mix(base::load_le<std::uint64_t>(gid->data()));
        mix(base::load_le<std::uint64_t>(gid->data() + 8));
    }
    mix(std::uint64_t{key.local} << 32 | key.remote);
    return hash;
}

std::size_t FlowTable::FragmentKeyHash::operator()(const FragmentKey& key) const {
    Key all{Kind::kUdp, key.source, key.destination, key.id, key.protocol};
    if (key.direction == Direction::kReceive) all.kind = Kind::kTcp;
    return KeyHash()(all);
}

FlowTable::FlowTable(base::Executor& executor, std::string nic, base::Duration idle,
                     base::WallTime wall, FlowSink& sink, FlowCounters& counters)
    : executor_(executor),
      nic_(std::move(nic)),
      idle_(idle),
      wall_(wall),
      sink_(sink),
      counters_(counters),
      timer_(executor, [this] { expire(); }) {}

FlowTable::~FlowTable() {
    end_all("log closed");
}

std::optional<FlowTable::Key> FlowTable::key_of(Direction direction, const FrameHeaders& headers,
                                                std::span<const std::byte> frame) {
    if (!headers.has_ports()) return std::nullopt;
    Key key;
    std::uint32_t source = headers.source_port;
    std::uint32_t destination = headers.destination_port;
    key.kind = headers.protocol == kProtocolTcp ? Kind::kTcp : Kind::kUdp;
    const std::size_t bth = headers.transport + kUdpBytes;
    if (headers.roce() && headers.end >= bth + kBthBytes + kIcrcBytes) {
        const auto opcode = static_cast<roce::Opcode>(byte_at(frame, bth));
        switch (roce::transport(opcode)) {
            case roce::Transport::kRc:
            case roce::Transport::kCnp:
                key.kind = Kind::kRc;
                break;
            case roce::Transport::kUc:
                key.kind = Kind::kUc;
                break;
            case roce::Transport::kUd:
                key.kind = Kind::kUd;
                break;
            default:
                return std::nullopt;
        }
        destination = low24(frame, bth + 4);
        source = kUnknown;
        if (key.kind == Kind::kUd && headers.end >= bth + kBthBytes + kDethBytes + kIcrcBytes)
            source = low24(frame, bth + kBthBytes + 4);
    }
    const bool sent = direction == Direction::kTransmit;
    key.local_address = sent ? headers.source : headers.destination;
    key.remote_address = sent ? headers.destination : headers.source;
    key.local = sent ? source : destination;
    key.remote = sent ? destination : source;
    return key;
}

FlowTable::Place FlowTable::find(const Key& key, Direction direction, bool ipv4) {
    if (const auto found = index_.find(key); found != index_.end()) return found->second;
    if (flows_.size() + closing_.size() >= kMaxFlows) {
        counters_.evicted.add();
        end(closing_.empty() ? flows_.begin() : closing_.begin(), "no room");
    }
    counters_.started.add();
    Flow flow;
    flow.key = key;
    flow.ipv4 = ipv4;
    flow.start = flow.last = executor_.now();
    flow.opened = direction;
    const Place place = flows_.insert(flows_.end(), flow);
    index_[key] = place;
    if (key.kind != Kind::kTcp && key.kind != Kind::kUdp) remember(place);
    if (key.kind != Kind::kRc) write(*place, true, nullptr);
    arm();
    return place;
}

void FlowTable::touch(Place flow) {
    flow->last = executor_.now();
    if (!flow->closing) flows_.splice(flows_.end(), flows_, flow);
}

FlowTable::FragmentKey FlowTable::fragment_key(Direction direction, const FrameHeaders& headers) {
    return {direction, headers.ipv4() ? headers.protocol : std::uint8_t{0}, headers.fragment_id,
            headers.source, headers.destination};
}

void FlowTable::count_fragment(Fragmented& packet, const FrameHeaders& headers) {
    const std::size_t bytes = headers.end - headers.fragment_data;
    packet.bytes += bytes;
    if (!headers.more_fragments) packet.total = headers.fragment_offset + bytes;
}

void FlowTable::expect_fragments(Direction direction, const FrameHeaders& headers,
                                 const Key& flow) {
    const FragmentKey key = fragment_key(direction, headers);
    if (const auto known = fragment_index_.find(key); known != fragment_index_.end()) {
        fragmented_.erase(known->second);
        fragment_index_.erase(known);
    }
    if (fragmented_.size() == kMaxFragmented) {
        fragment_index_.erase(fragmented_.front().key);
        fragmented_.pop_front();
    }
    Fragmented packet{key, flow, executor_.now()};
    count_fragment(packet, headers);
    fragment_index_[key] = fragmented_.insert(fragmented_.end(), packet);
}

FlowTable::Fragmented* FlowTable::fragmented(Direction direction, const FrameHeaders& headers) {
    while (!fragmented_.empty() && fragmented_.front().start + kFragmentsWait <= executor_.now()) {
        fragment_index_.erase(fragmented_.front().key);
        fragmented_.pop_front();
    }
    const auto found = fragment_index_.find(fragment_key(direction, headers));
    return found == fragment_index_.end() ? nullptr : &*found->second;
}

void FlowTable::frame(Direction direction, const FrameHeaders& headers,
                      std::span<const std::byte> frame, bool denied) {
    std::optional<Key> key;
    std::optional<Place> known;
    if (headers.fragment) {
        Fragmented* const packet = fragmented(direction, headers);
        if (packet != nullptr && !packet->whole()) {
            count_fragment(*packet, headers);
            if (const auto flow = index_.find(packet->flow); flow != index_.end()) {
                key = packet->flow;
                known = flow->second;
            }
        }
    } else {
        key = key_of(direction, headers, frame);
    }
    if (!key) {
        counters_.untracked.add();
        return;
    }
    if (is_notification(headers, frame)) known = notified(*key, direction);
    const Place flow = known ? *known : find(*key, direction, headers.ipv4());
    if (headers.first_fragment) expect_fragments(direction, headers, *key);
    touch(flow);
    if (denied) {
        ++flow->denied;
        return;
    }
    const std::byte traffic =
        headers.ipv4() ? frame[headers.network + 1] : frame[headers.network + 1] >> 4;
    if ((traffic & std::byte{3}) == std::byte{3}) ++flow->marked;
    Half& half = flow->halves[index(direction)];
    ++half.frames;
    half.bytes += frame.size();
    if (headers.fragment) {
        half.payload += headers.end - headers.fragment_data;
        return;
    }
    switch (key->kind) {
        case Kind::kTcp:
            count_tcp(flow, direction, headers, frame);
            break;
        case Kind::kUdp:
            half.payload += headers.end - headers.transport - kUdpBytes;
            break;
        default:
            count_rdma(flow, direction, headers, frame);
    }
}

void FlowTable::dropped(Direction direction, const FrameHeaders& headers,
                        std::span<const std::byte> frame) {
    const Fragmented* const packet = headers.fragment ? fragmented(direction, headers) : nullptr;
    const auto key =
        packet != nullptr ? std::optional(packet->flow) : key_of(direction, headers, frame);
    if (!key) return;
    const auto found = index_.find(*key);
    if (found == index_.end()) return;
    Flow& flow = *found->second;
    Half& half = flow.halves[index(direction)];
    if (half.frames == 0 || half.bytes < frame.size()) return;
    ++flow.dropped;
    --half.frames;
    half.bytes -= frame.size();
    // A reliable queue pair sends the packet again, which is no news then; others are done with it.
    std::size_t payload = 0;
    const std::size_t length = headers.end - headers.transport;
    if (headers.fragment) {
        payload = headers.end - headers.fragment_data;
    } else if (key->kind == Kind::kTcp) {
        const std::size_t header = (byte_at(frame, headers.transport + 12) >> 4) * std::size_t{4};
        if (header <= length) payload = length - header;
    } else if (key->kind == Kind::kUdp) {
        payload = length - kUdpBytes;
    } else if (key->kind != Kind::kRc) {
        const std::size_t start = headers.transport + kUdpBytes;
        const auto bth = frame.subspan(start, headers.end - start - kIcrcBytes);
        const auto& info = roce::opcode_info(static_cast<roce::Opcode>(byte_at(bth, 0)));
        if (info.known()) payload = payload_bytes(info, bth);
    }
    half.payload -= std::min<std::uint64_t>(half.payload, payload);
}

void FlowTable::count_tcp(Place flow, Direction direction, const FrameHeaders& headers,
                          std::span<const std::byte> frame) {
    const std::size_t header = (byte_at(frame, headers.transport + 12) >> 4) * std::size_t{4};
    const std::size_t length = headers.end - headers.transport;
    if (header <= length) flow->halves[index(direction)].payload += length - header;
    const std::uint8_t flags = byte_at(frame, headers.transport + 13);
    if ((flags & kTcpRst) != 0) ++flow->errors;
    if ((flags & kTcpFin) != 0) flow->halves[index(direction)].finished = true;
    const bool over =
        (flags & kTcpRst) != 0 || (flow->halves[0].finished && flow->halves[1].finished);
    if (!over || flow->closing) return;
    flow->closing = true;
    closing_.splice(closing_.end(), flows_, flow);
    arm();
}

bool FlowTable::PsnRecord::add(roce::Psn psn, std::uint32_t count, bool certain) {
    if (!last_ || psn >= next_) {
        // Behind a READ of unknown size nothing is known to be missing.
        if (next_certain_ && psn != next_) {
            if (gaps_.size() == kMaxGaps) gaps_.erase(gaps_.begin());
            gaps_.push_back({next_, psn});
        }
        if (!first_) first_ = psn;
        last_ = psn;
        next_ = psn + count;
        next_certain_ = certain;
        return true;
    }
    if (psn < *first_ && *first_ - psn < kPsnReach && *last_ - *first_ >= 0 &&
        *last_ - *first_ < kPsnReach) {
        // The network lost the very first, and the numbers have not come round since.
        if (certain && psn + count < *first_ && gaps_.size() < kMaxGaps)
            gaps_.push_back({psn + count, *first_});
        first_ = psn;
        return true;
    }
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [psn](const Gap& candidate) {
        return psn >= candidate.begin && psn < candidate.end;
    });
    if (gap == gaps_.end()) return false;
    const Gap rest{psn + count, gap->end};
    gap->end = psn;
    const bool rest_left = rest.begin < rest.end;
    if (gap->begin == gap->end) {
        if (rest_left)
            *gap = rest;
        else
            gaps_.erase(gap);
    } else if (rest_left && gaps_.size() < kMaxGaps) {
        gaps_.insert(gap + 1, rest);
    }
    return true;
}

void FlowTable::PsnRecord::settle(std::uint32_t count) {
    if (!last_) return;
    next_ = *last_ + count;
    next_certain_ = true;
}

void FlowTable::count_request(Flow& flow, Half& half, std::span<const std::byte> bth) {
    const roce::OpcodeInfo& info = roce::opcode_info(static_cast<roce::Opcode>(byte_at(bth, 0)));
    const roce::Psn psn(low24(bth, 8));
    const std::size_t payload = payload_bytes(info, bth);
    learn_path_mtu(flow, info, payload);
    // A READ takes the PSNs of its answer, and is asked for again from the middle of them.
    std::uint32_t read_length = 0;
    if (info.operation == roce::Operation::kReadRequest && bth.size() >= kBthBytes + kRethBytes)
        read_length = base::load_be<std::uint32_t>(bth.data() + kBthBytes + 12);
    if (half.unsettled_read != 0 && flow.path_mtu != 0) {
        half.requests.settle(packets_of(half.unsettled_read, flow.path_mtu));
        half.unsettled_read = 0;
    }
    const bool certain = flow.path_mtu != 0 || read_length <= kSmallestPathMtu;
    const std::uint32_t psns = flow.path_mtu != 0 ? packets_of(read_length, flow.path_mtu) : 1;
    if (!half.requests.add(psn, psns, certain) && flow.key.kind == Kind::kRc) {
        ++flow.retransmits;
        return;
    }
    half.unsettled_read = certain ? 0 : read_length;
    if (info.position == roce::Position::kLast || info.position == roce::Position::kOnly)
        ++half.operations;
    half.payload += payload;
}

void FlowTable::count_rdma(Place flow, Direction direction, const FrameHeaders& headers,
                           std::span<const std::byte> frame) {
    const std::size_t start = headers.transport + kUdpBytes;
    if (headers.end < start + kBthBytes + kIcrcBytes) return;
    const auto bth = frame.subspan(start, headers.end - start - kIcrcBytes);
    const roce::OpcodeInfo& info = roce::opcode_info(static_cast<roce::Opcode>(byte_at(bth, 0)));
    if (!info.known() || info.operation == roce::Operation::kCnp) return;
    if (!info.response) {
        count_request(*flow, flow->halves[index(direction)], bth);
        return;
    }
    const roce::Psn psn(low24(bth, 8));
    flow = pair(flow, direction, psn);
    Half& half = flow->halves[index(direction)];
    if (info.has(roce::kHasAeth) && bth.size() >= kBthBytes + 4) {
        const std::uint8_t syndrome = byte_at(bth, kBthBytes);
        if (roce::aeth_kind(syndrome) == roce::AethKind::kRnrNak) ++flow->rnr;
        if (roce::aeth_kind(syndrome) == roce::AethKind::kNak &&
            roce::nak_code(syndrome) != roce::NakCode::kSequenceError)
            ++flow->errors;
    }
    if (!info.payload) return;
    const std::size_t payload = payload_bytes(info, bth);
    learn_path_mtu(*flow, info, payload);
    if (half.responses.add(psn))
        half.payload += payload;
    else
        ++flow->retransmits;
}

/// The first packets of a message are as long as they can be (ROCE 1.8).
void FlowTable::learn_path_mtu(Flow& flow, const roce::OpcodeInfo& info, std::size_t payload) {
    if (payload != 0 &&
        (info.position == roce::Position::kFirst || info.position == roce::Position::kMiddle))
        flow.path_mtu = static_cast<std::uint32_t>(payload);
}

FlowTable::Place FlowTable::pair(Place flow, Direction direction, roce::Psn psn) {
    const std::size_t other_side = 1 - index(direction);
    const auto reach = [&](const Flow& candidate) {
        const Half& half = candidate.halves[other_side];
        const auto first = half.requests.first();
        return first && psn >= *first - 1 && psn - *half.requests.last() < kPsnReach;
    };
    if (flow->paired()) {
        const auto asked = flow->halves[other_side].requests.last();
        // Far off the requests: the number now belongs to another connection.
        if (!asked || std::abs(psn - *asked) < kPsnReach) return flow;
    }
    if (flow->pairing_attempts >= kPairingAttempts && !flow->paired()) return flow;
    ++flow->pairing_attempts;
    const auto candidates = candidates_.find(addresses_of(flow->key));
    if (candidates == candidates_.end()) return flow;
    std::optional<Place> partner;
    std::size_t examined = 0;
    for (const Place candidate : candidates->second) {
        if (++examined > kMaxCandidates) break;
        const bool opposite = direction == Direction::kReceive ? candidate->key.local == kUnknown
                                                               : candidate->key.remote == kUnknown;
        if (candidate == flow || !opposite || !reach(*candidate)) continue;
        if (partner) return flow;  // two could be meant; a later answer may tell
        partner = candidate;
    }
    if (!partner) return flow;
    if (flow->paired()) {
        Key half = flow->key;
        (direction == Direction::kReceive ? half.remote : half.local) = kUnknown;
        end(flow, "number in use again");
        flow = find(half, direction, (*partner)->ipv4);
    }
    return join(flow, *partner);
}

FlowTable::Place FlowTable::join(Place flow, Place other) {
    forget(flow);
    forget(other);
    if (other->start < flow->start) {
        flow->start = other->start;
        flow->opened = other->opened;
    }
    if (flow->key.local == kUnknown) flow->key.local = other->key.local;
    if (flow->key.remote == kUnknown) flow->key.remote = other->key.remote;
    for (std::size_t i = 0; i < kDirections; ++i)
        if (other->halves[i].frames != 0) flow->halves[i] = other->halves[i];
    flow->path_mtu = std::max(flow->path_mtu, other->path_mtu);
    flow->errors += other->errors;
    if (flow->failure == nullptr) flow->failure = other->failure;
    flow->rnr += other->rnr;
    flow->retransmits += other->retransmits;
    flow->marked += other->marked;
    flow->denied += other->denied;
    flow->dropped += other->dropped;
    index_[other->key] = flow;
    flows_.erase(other);
    write(*flow, true, nullptr);
    return flow;
}

FlowTable::Key FlowTable::addresses_of(const Key& key) {
    Key addresses = key;
    addresses.local = addresses.remote = kUnknown;
    return addresses;
}

void FlowTable::remember(Place flow) {
    auto& list = candidates_[addresses_of(flow->key)];
    if (flow->key.kind == Kind::kRc || list.size() < kMaxCandidates) list.push_back(flow);
}

void FlowTable::forget(Place flow) {
    const auto found = candidates_.find(addresses_of(flow->key));
    if (found == candidates_.end()) return;
    std::erase(found->second, flow);
    if (found->second.empty()) candidates_.erase(found);
}

/// A CNP names one queue pair, and neither the other nor the transport.
std::optional<FlowTable::Place> FlowTable::notified(Key& key, Direction direction) const {
    const bool received = direction == Direction::kReceive;
    for (const Kind kind : {Kind::kRc, Kind::kUc}) {
        key.kind = kind;
        if (const auto found = index_.find(key); found != index_.end()) return found->second;
    }
    const auto candidates = [&](Kind kind) -> std::span<const Place> {
        key.kind = kind;
        const auto found = candidates_.find(addresses_of(key));
        return found == candidates_.end() ? std::span<const Place>() : found->second;
    };
    for (const Place place : candidates(Kind::kUd))
        if (received ? place->key.local == key.local : place->key.remote == key.remote)
            return place;
    // Who sends to the other side, by a queue pair whose number nothing has told yet.
    std::optional<Place> sender;
    std::size_t senders = 0;
    const auto sends = [&](Place place) {
        return (received ? place->key.local : place->key.remote) == kUnknown;
    };
    for (const Place place : candidates(Kind::kUc)) {
        if (!sends(place)) continue;
        sender = place;
        ++senders;
    }
    const auto reliable = candidates(Kind::kRc);
    if (senders == 0 || std::any_of(reliable.begin(), reliable.end(), sends)) return std::nullopt;
    key.kind = Kind::kUc;
    return senders == 1 ? sender : std::nullopt;
}

void FlowTable::end(Place flow, const char* reason) {
    counters_.ended.add();
    if (flow->key.kind == Kind::kRc) {
        if (!flow->paired()) forget(flow);
        Key half = flow->key;
        half.remote = kUnknown;
        if (half.local != kUnknown) index_.erase(half);
        half = flow->key;
        half.local = kUnknown;
        if (half.remote != kUnknown) index_.erase(half);
    } else {
        if (flow->key.kind != Kind::kTcp && flow->key.kind != Kind::kUdp) forget(flow);
        index_.erase(flow->key);
    }
    write(*flow, false, reason);
    (flow->closing ? closing_ : flows_).erase(flow);
}

std::optional<FlowTable::Place> FlowTable::flow_of(const rnic::Connection& connection) {
    Key key{Kind::kRc, connection.local_address, connection.remote_address, connection.local_qpn,
            kUnknown};
    const auto received = index_.find(key);
    key.local = kUnknown;
    key.remote = connection.remote_qpn;
    const auto sent = index_.find(key);
    const bool has_received = received != index_.end();
    // The same number at the peer may be taken for the partner of another of our QPs.
    const bool has_sent = sent != index_.end() && (sent->second->key.local == kUnknown ||
                                                   sent->second->key.local == connection.local_qpn);
    if (!has_received) return has_sent ? std::optional(sent->second) : std::nullopt;
    const Place flow = received->second;
    if (has_sent && flow != sent->second && !flow->paired() && !sent->second->paired())
        return join(flow, sent->second);
    return flow;
}

void FlowTable::connection_failed(const rnic::Connection& connection, rnic::Failure failure) {
    const auto flow = flow_of(connection);
    if (!flow) return;
    ++(*flow)->errors;
    (*flow)->failure =
        failure == rnic::Failure::kRetries ? "retries exceeded" : "rnr retries exceeded";
}

void FlowTable::connection_ended(const rnic::Connection& connection) {
    if (const auto flow = flow_of(connection))
        end(*flow, (*flow)->failure != nullptr ? (*flow)->failure : "closed");
}

void FlowTable::end_all(const char* reason) {
    while (!closing_.empty()) end(closing_.begin(), "closed");
    while (!flows_.empty()) end(flows_.begin(), reason);
    timer_.cancel();
}

void FlowTable::expire() {
    const base::TimePoint now = executor_.now();
    while (!closing_.empty() && closing_.front().last + kLinger <= now)
        end(closing_.begin(), "closed");
    while (!flows_.empty() && flows_.front().last + idle_ <= now) end(flows_.begin(), "idle");
    arm();
}

void FlowTable::arm() {
    base::TimePoint first = base::TimePoint::max();
    if (!flows_.empty()) first = flows_.front().last + idle_;
    if (!closing_.empty()) first = std::min(first, closing_.front().last + kLinger);
    if (first != base::TimePoint::max()) timer_.arm_at(first);
}

void FlowTable::write(const Flow& flow, bool start, const char* reason) {
    constexpr const char* kNames[] = {"tcp", "udp", "rdma-rc", "rdma-uc", "rdma-ud"};
    const bool rdma = flow.key.kind != Kind::kTcp && flow.key.kind != Kind::kUdp;
    const auto number = [](std::uint32_t value) {
        return value == kUnknown ? std::string("null") : fmt::format("{}", value);
    };
    std::string text;
    const auto out = std::back_inserter(text);
    fmt::format_to(out,
                   R"({{"event":"{}","nic":"{}","start":"{}","protocol":"{}","opened_by":"{}",)"
                   R"("local":"{}","local_{}":{},"remote":"{}","remote_{}":{})",
                   start ? "start" : "end", nic_, time_text(wall_.at(flow.start)),
                   kNames[static_cast<std::size_t>(flow.key.kind)],
                   flow.opened == Direction::kTransmit ? "guest" : "network",
                   address_text(flow.key.local_address, flow.ipv4), rdma ? "qpn" : "port",
                   number(flow.key.local), address_text(flow.key.remote_address, flow.ipv4),
                   rdma ? "qpn" : "port", number(flow.key.remote));
    if (!start) {
        fmt::format_to(out, R"(,"end":"{}","reason":"{}")", time_text(wall_.at(flow.last)), reason);
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive}) {
            const Half& half = flow.halves[index(direction)];
            const char* const name = direction == Direction::kTransmit ? "tx" : "rx";
            fmt::format_to(out, R"(,"{0}_frames":{1},"{0}_bytes":{2},"{0}_payload":{3})", name,
                           half.frames, half.bytes, half.payload);
            if (rdma) fmt::format_to(out, R"(,"{}_operations":{})", name, half.operations);
        }
        fmt::format_to(out, R"(,"errors":{},"denied":{},"dropped":{},"marked":{})", flow.errors,
                       flow.denied, flow.dropped, flow.marked);
        if (rdma) fmt::format_to(out, R"(,"rnr":{},"retransmits":{})", flow.rnr, flow.retransmits);
    }
    text += '}';
    sink_.line(text);
}

}  // namespace openmana::fabric
