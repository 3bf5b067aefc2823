// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_log.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/hold_meter.h"
#include "fabric/flow_packet.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

/// Why the NIC gave a connection up, by the number that a state has for it.
constexpr const char* kFailures[] = {nullptr, "retries exceeded", "rnr retries exceeded"};

std::uint8_t number_of(const char* failure) {
    for (std::uint8_t i = 1; failure != nullptr && i < std::size(kFailures); ++i)
        if (std::string_view(kFailures[i]) == failure) return i;
    return 0;
}

constexpr unsigned kPairingAttempts = 16;
constexpr std::size_t kMaxCandidates = 256;

/// Whether the flow has sent requests that an answer with this PSN may be for.
bool may_have_asked(const FlowRecord::Half& half, roce::Psn psn) {
    const auto first = half.requests.first();
    return first && psn >= *first - 1 && psn - *half.requests.last() < kPsnReach;
}

}  // namespace

FlowLog::FlowLog(base::Executor& executor, std::string nic, base::Duration idle,
                 base::WallTime wall, FlowSink& sink, FlowCounters& counters)
    : executor_(executor),
      nic_(std::move(nic)),
      idle_(idle),
      wall_(wall),
      sink_(sink),
      counters_(counters),
      timer_(executor, [this] { expire(); }) {}

FlowLog::~FlowLog() {
    end_all("log closed");
}

FlowLog::Place FlowLog::find(const FlowKey& key, Direction direction, bool ipv4) {
    if (const auto found = index_.find(key); found != index_.end()) return found->second;
    if (flows_.size() + closing_.size() >= kMaxFlows) {
        counters_.evicted.add();
        end(closing_.empty() ? flows_.begin() : closing_.begin(), "no room");
    }
    counters_.started.add();
    FlowRecord flow;
    flow.key = key;
    flow.order = next_order_++;
    flow.ipv4 = ipv4;
    flow.start = flow.last = executor_.now();
    flow.opened = direction;
    const Place place = flows_.insert(flows_.end(), flow);
    index_[key] = place;
    if (key.rdma()) remember(place);
    if (key.kind != FlowKind::kRc) sink_.line(place->line(nic_, wall_, nullptr));
    arm();
    return place;
}

void FlowLog::touch(Place flow) {
    flow->last = executor_.now();
    if (!flow->closing) flows_.splice(flows_.end(), flows_, flow);
}

void FlowLog::frame(Direction direction, const FrameHeaders& headers,
                    std::span<const std::byte> frame, bool denied) {
    std::optional<FlowKey> key;
    std::optional<Place> known;
    if (headers.fragment) {
        auto* const packet = fragments_.find(direction, headers, executor_.now());
        if (packet != nullptr && !packet->whole()) {
            packet->count(headers);
            if (const auto flow = index_.find(packet->flow()); flow != index_.end()) {
                key = packet->flow();
                known = flow->second;
            }
        }
    } else {
        key = FlowKey::of(direction, headers, frame);
    }
    if (!key) {
        counters_.untracked.add();
        return;
    }
    if (is_notification(headers, frame)) known = notified(*key, direction);
    const Place flow = known ? *known : find(*key, direction, headers.ipv4());
    if (headers.first_fragment) fragments_.expect(direction, headers, *key, executor_.now());
    touch(flow);
    if (denied) {
        ++flow->denied;
        return;
    }
    flow->count_frame(direction, headers, frame);
    if (headers.fragment) return;
    if (key->kind == FlowKind::kTcp) {
        flow->count_tcp(direction, headers, frame);
        if (flow->over()) close(flow);
    } else if (key->rdma()) {
        count_rdma(flow, direction, bth_of(headers, frame));
    }
}

void FlowLog::dropped(Direction direction, const FrameHeaders& headers,
                      std::span<const std::byte> frame) {
    const auto* const packet =
        headers.fragment ? fragments_.find(direction, headers, executor_.now()) : nullptr;
    const auto key =
        packet != nullptr ? std::optional(packet->flow()) : FlowKey::of(direction, headers, frame);
    if (!key) return;
    if (const auto found = index_.find(*key); found != index_.end())
        found->second->count_drop(direction, headers, frame);
}

void FlowLog::close(Place flow) {
    if (flow->closing) return;
    flow->closing = true;
    closing_.splice(closing_.end(), flows_, flow);
    arm();
}

void FlowLog::count_rdma(Place flow, Direction direction, std::span<const std::byte> bth) {
    if (bth.empty()) return;
    const roce::OpcodeInfo& info =
        roce::opcode_info(static_cast<roce::Opcode>(flow_packet::byte_at(bth, 0)));
    if (!info.known() || info.operation == roce::Operation::kCnp) return;
    if (!info.response) {
        flow->count_request(direction, bth);
        return;
    }
    pair(flow, direction, roce::Psn(flow_packet::low24(bth, 8)))->count_response(direction, bth);
}

FlowLog::Place FlowLog::pair(Place flow, Direction direction, roce::Psn psn) {
    if (flow->paired()) {
        const auto asked = flow->halves[1 - index(direction)].requests.last();
        // Far off the requests: the number now belongs to another connection.
        if (!asked || std::abs(psn - *asked) < kPsnReach) return flow;
    }
    if (flow->pairing_attempts >= kPairingAttempts && !flow->paired()) return flow;
    ++flow->pairing_attempts;
    const auto other = partner(flow, direction, psn);
    if (!other) return flow;
    if (flow->paired()) {
        FlowKey half = flow->key;
        (direction == Direction::kReceive ? half.remote : half.local) = FlowKey::kUnknown;
        end(flow, "number in use again");
        flow = find(half, direction, (*other)->ipv4);
    }
    return join(flow, *other);
}

std::optional<FlowLog::Place> FlowLog::partner(Place flow, Direction direction,
                                               roce::Psn psn) const {
    FlowKey opposite = flow->key.numberless();
    const bool received = direction == Direction::kReceive;
    opposite.local = received ? FlowKey::kUnknown : 0;
    opposite.remote = received ? 0 : FlowKey::kUnknown;
    std::optional<Place> found;
    std::size_t examined = 0;
    for (const auto& [order, candidate] : candidates(opposite)) {
        if (++examined > kMaxCandidates) break;
        if (candidate == flow || !may_have_asked(candidate->halves[1 - index(direction)], psn))
            continue;
        if (found) return std::nullopt;  // two could be meant; a later answer may tell
        found = candidate;
    }
    return found;
}

FlowLog::Place FlowLog::join(Place flow, Place other) {
    forget(flow);
    forget(other);
    flow->join(*other);
    index_[other->key] = flow;
    flows_.erase(other);
    sink_.line(flow->line(nic_, wall_, nullptr));
    return flow;
}

auto FlowLog::candidates(const FlowKey& numberless) const -> const Candidates& {
    static const Candidates none;
    const auto found = candidates_.find(numberless);
    return found == candidates_.end() ? none : found->second;
}

void FlowLog::remember(Place flow) {
    Candidates& all = candidates_[flow->key.numberless()];
    if (flow->key.kind == FlowKind::kRc || all.size() < kMaxCandidates)
        all.emplace(flow->order, flow);
}

void FlowLog::forget(Place flow) {
    const auto found = candidates_.find(flow->key.numberless());
    if (found == candidates_.end()) return;
    base::count_work(1);
    found->second.erase(flow->order);
    if (found->second.empty()) candidates_.erase(found);
}

/// A CNP names one queue pair, and neither the other nor the transport.
std::optional<FlowLog::Place> FlowLog::notified(FlowKey& key, Direction direction) const {
    const bool received = direction == Direction::kReceive;
    for (const FlowKind kind : {FlowKind::kRc, FlowKind::kUc}) {
        key.kind = kind;
        if (const auto found = index_.find(key); found != index_.end()) return found->second;
    }
    key.kind = FlowKind::kUd;
    FlowKey wanted = key;
    wanted.local = wanted.remote = 0;
    for (const auto& [order, place] : candidates(wanted))
        if (received ? place->key.local == key.local : place->key.remote == key.remote)
            return place;
    // Who sends to the other side, by a queue pair whose number nothing has told yet.
    (received ? wanted.local : wanted.remote) = FlowKey::kUnknown;
    key.kind = wanted.kind = FlowKind::kRc;
    const bool reliable = !candidates(wanted).empty();
    wanted.kind = FlowKind::kUc;
    const Candidates& senders = candidates(wanted);
    if (senders.empty() || reliable) return std::nullopt;
    key.kind = FlowKind::kUc;
    return senders.size() == 1 ? std::optional(senders.begin()->second) : std::nullopt;
}

void FlowLog::end(Place flow, const char* reason) {
    counters_.ended.add();
    if (flow->key.kind == FlowKind::kRc) {
        if (!flow->paired()) forget(flow);
        FlowKey half = flow->key;
        half.remote = FlowKey::kUnknown;
        if (half.local != FlowKey::kUnknown) index_.erase(half);
        half = flow->key;
        half.local = FlowKey::kUnknown;
        if (half.remote != FlowKey::kUnknown) index_.erase(half);
    } else {
        if (flow->key.rdma()) forget(flow);
        index_.erase(flow->key);
    }
    sink_.line(flow->line(nic_, wall_, reason));
    (flow->closing ? closing_ : flows_).erase(flow);
}

std::optional<FlowLog::Place> FlowLog::flow_of(const rnic::Connection& connection) {
    FlowKey key{FlowKind::kRc,
                connection.local_address,
                connection.remote_address,
                connection.local_qpn.value(),
                FlowKey::kUnknown,
                connection.vlan};
    const auto received = index_.find(key);
    key.local = FlowKey::kUnknown;
    key.remote = connection.remote_qpn.value();
    const auto sent = index_.find(key);
    const bool has_received = received != index_.end();
    // The same number at the peer may be taken for the partner of another of our QPs.
    const bool has_sent =
        sent != index_.end() && (sent->second->key.local == FlowKey::kUnknown ||
                                 sent->second->key.local == connection.local_qpn.value());
    if (!has_received) return has_sent ? std::optional(sent->second) : std::nullopt;
    const Place flow = received->second;
    if (has_sent && flow != sent->second && !flow->paired() && !sent->second->paired())
        return join(flow, sent->second);
    return flow;
}

void FlowLog::connection_failed(const rnic::Connection& connection, rnic::Failure failure) {
    const auto flow = flow_of(connection);
    if (!flow) return;
    ++(*flow)->errors;
    (*flow)->failure = kFailures[failure == rnic::Failure::kRetries ? 1 : 2];
}

void FlowLog::connection_ended(const rnic::Connection& connection) {
    if (const auto flow = flow_of(connection))
        end(*flow, (*flow)->failure != nullptr ? (*flow)->failure : "closed");
}

/// The line of an end has the time of the start as that line had it: by the calendar.
void FlowLog::save(base::StateWriter& out) const {
    out.begin("FLWS", 1);
    out.count(flows_.size() + closing_.size());
    const base::TimePoint now = executor_.now();
    for (const List* const list : {&flows_, &closing_})
        for (const FlowRecord& flow : *list)
            out(flow, static_cast<std::int64_t>(wall_.at(flow.start).count()),
                static_cast<std::int64_t>((now - flow.last).count()), number_of(flow.failure));
    fragments_.save(out);
    out.end();
}

void FlowLog::load(base::StateReader& in) {
    in.begin("FLWS", 1);
    std::size_t left = in.count();
    in.require(left <= kMaxFlows, "more connections than a flow log has");
    for (; left > 0 && in.ok(); --left) load_flow(in);
    fragments_.load(in);
    in.end();
    arm();
}

void FlowLog::load_flow(base::StateReader& in) {
    FlowRecord flow;
    in(flow);
    const auto start = in.get<std::int64_t>();
    const auto age = in.get<std::int64_t>();
    const auto failure = in.get<std::uint8_t>();
    const FlowKey& key = flow.key;
    const bool rc = key.kind == FlowKind::kRc;
    in.require(failure < std::size(kFailures) && age >= 0 &&
                   (!rc || key.local != FlowKey::kUnknown || key.remote != FlowKey::kUnknown),
               "no connection");
    if (!in.ok()) return;
    flow.order = next_order_++;
    flow.start = wall_.clock_at(base::Duration(start));
    flow.last = executor_.now() - base::Duration(age);
    flow.failure = kFailures[failure];
    std::vector<FlowKey> names{key};
    if (rc) {
        names.clear();
        if (key.local != FlowKey::kUnknown) (names.emplace_back(key)).remote = FlowKey::kUnknown;
        if (key.remote != FlowKey::kUnknown) (names.emplace_back(key)).local = FlowKey::kUnknown;
    }
    List& list = flow.closing ? closing_ : flows_;
    const Place place = list.insert(list.end(), flow);
    // A peer's number may be that of two; the one that has it is the one that was found by it.
    for (const FlowKey& name : names) index_.try_emplace(name, place);
    if (key.rdma() && !(rc && flow.paired())) remember(place);
}

void FlowLog::end_all(const char* reason) {
    while (!closing_.empty()) end(closing_.begin(), "closed");
    while (!flows_.empty()) end(flows_.begin(), reason);
    timer_.cancel();
}

bool FlowLog::end_some(const char* reason) {
    for (std::size_t left = kEndsATurn; left > 0; --left) {
        if (!closing_.empty())
            end(closing_.begin(), "closed");
        else if (!flows_.empty())
            end(flows_.begin(), reason);
    }
    return !flows_.empty() || !closing_.empty();
}

/// The rest has its turn when the executor has looked after everything else.
void FlowLog::expire() {
    const base::TimePoint now = executor_.now();
    for (std::size_t left = kEndsATurn; left > 0; --left) {
        if (!closing_.empty() && closing_.front().last + kLinger <= now)
            end(closing_.begin(), "closed");
        else if (!flows_.empty() && flows_.front().last + idle_ <= now)
            end(flows_.begin(), "idle");
        else
            break;
    }
    arm(executor_.now() + base::Duration(1));
}

void FlowLog::arm(base::TimePoint earliest) {
    base::TimePoint first = base::TimePoint::max();
    if (!flows_.empty()) first = flows_.front().last + idle_;
    if (!closing_.empty()) first = std::min(first, closing_.front().last + kLinger);
    if (first != base::TimePoint::max()) timer_.arm_at(std::max(first, earliest));
}

}  // namespace openmana::fabric
