// SPDX-License-Identifier: Apache-2.0
#include "fabric/vxlan_uplink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mac_at.h"
#include "base/mac_text.h"
#include "fabric/inner_packet.h"
#include "fabric/vxlan.h"

namespace openmana::fabric {
namespace {

FdbContext context_of(const UplinkConfig& config) {
    const TunnelEnd local{ip_of(config.local), port_of(config.local), config.vxlan.vni};
    return {local, config.vxlan.fdb_device};
}

/// One station's, and not nobody's.
bool can_be_source(const base::MacAddr& mac) {
    return (mac[0] & 1) == 0 && mac != base::MacAddr{};
}

}  // namespace

/// Datagrams on their way out, in memory that a thread uses again and again.
struct VxlanUplink::Outgoing {
    std::array<base::Datagram, kBurst> datagrams;
    std::array<std::uint8_t, kBurst> senders;
    std::array<TunnelEnd, kBurst> ends;  // of the next two
    std::array<base::SocketAddress, kBurst> addresses;
    std::array<VxlanHeader, kBurst> headers;
    std::array<base::Datagram, kBurst> together;
    std::size_t count = 0;
    std::size_t ends_used = 0;

    void clear() { count = ends_used = 0; }
    [[nodiscard]] bool full() const { return count == kBurst; }
    void add(std::size_t sender, const TunnelEnd& end, std::uint8_t tos, base::FrameView frame) {
        const std::size_t at = place_of(end);
        datagrams[count] = {headers[at], frame, &addresses[at], tos};
        senders[count++] = static_cast<std::uint8_t>(sender);
    }

private:
    /// Neighbours with one destination have one address, by which the socket knows them.
    std::size_t place_of(const TunnelEnd& end) {
        for (std::size_t i = ends_used; i-- > 0;)
            if (ends[i] == end) return i;
        ends[ends_used] = end;
        addresses[ends_used] = socket_address_of(end);
        headers[ends_used] = encode_vxlan(end.vni);
        return ends_used++;
    }
};

VxlanUplink::VxlanUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                         VxlanEndpoint& endpoint)
    : Uplink(loop, network, config.name, Port::Kind::kTunnel, endpoint.queues()),
      endpoint_(endpoint),
      vni_(config.vxlan.vni),
      dscp_(config.vxlan.dscp),
      strangers_(config.vxlan.learn == VxlanConfig::Learn::kAll),
      fdb_(loop.clock(), context_of(config), config.vxlan.remotes,
           config.vxlan.learn != VxlanConfig::Learn::kNothing),
      flood_limit_(config.vxlan.flood) {}

base::Result<std::unique_ptr<VxlanUplink>> VxlanUplink::create(base::EventLoop& loop,
                                                               Switch& network,
                                                               const UplinkConfig& config,
                                                               VxlanEndpoint& endpoint,
                                                               base::EventLoop& files) {
    std::unique_ptr<VxlanUplink> uplink(new VxlanUplink(loop, network, config, endpoint));
    TRY(auto state, open_inherited(config.inherited, loop.clock().now()));
    if (state) {
        state->begin("VXLN", 1);
        base::load_counters(*state, uplink->counters_);
        base::load_counters(*state, uplink->vxlan_);
        uplink->fdb_.load(*state);
        state->end();
        TRY_VOID(state->result());
    }
    // What it says now goes before what it said to the other process.
    if (!config.vxlan.fdb.empty()) {
        TRY(uplink->file_,
            FdbFile::create(files, uplink->fdb_, config.vxlan.fdb, "uplink=" + config.name));
    }
    if (!endpoint.add(uplink->vni_, *uplink))
        return base::fail(base::ErrorCode::kBusy, "another uplink has the address and the VNI");
    return uplink;
}

VxlanUplink::~VxlanUplink() {
    network_.detach(*this);
    endpoint_.remove(vni_, *this);
}

void VxlanUplink::save(base::StateWriter& out) const {
    out.begin("VXLN", 1);
    base::save_counters(out, counters_);
    base::save_counters(out, vxlan_);
    fdb_.save(out);
    out.end();
}

void VxlanUplink::visit_counters(const CounterVisitor& visitor) const {
    Uplink::visit_counters(visitor);
    vxlan_.visit(visitor);
    fdb_.counters().visit(visitor);
    endpoint_.counters().visit(visitor);
}

void VxlanUplink::deliver(base::FrameViews frames) {
    thread_local Outgoing outgoing;
    outgoing.clear();
    std::size_t at = 0;
    std::size_t copy = 0;  // of the frame there: how many ends have one
    std::size_t limited = 0;
    while (at < frames.size()) {
        {
            Fdb::Access access(fdb_);
            for (; at < frames.size() && !outgoing.full(); ++at, copy = 0) {
                const base::FrameView frame = frames[at];
                if (frame.size() < Vxlan::kInnerEthernet) continue;
                const auto [ends, flood] =
                    access.ends_of(base::mac_at(frame, base::kDestinationMac));
                if (ends.empty()) vxlan_.no_end.add();
                if (ends.empty() || copy >= ends.size()) continue;
                if (copy == 0 && ends.size() > 1 && !flood_limit_.take(ends.size(), access.now())) {
                    ++limited;
                    continue;
                }
                if (flood && copy == 0) vxlan_.flooded.add();
                const InnerPacket inner = InnerPacket::of(frame);
                const std::uint8_t tos = outer_tos(inner, dscp_);
                const std::size_t sender =
                    flow_hash(frame, inner, endpoint_.key()) % VxlanEndpoint::kSenders;
                while (copy < ends.size() && !outgoing.full())
                    outgoing.add(sender, ends[copy++], tos, frame);
                if (copy < ends.size()) break;
            }
        }
        send(outgoing);
    }
    if (limited == 0) return;
    vxlan_.flood_limited.add(limited);
    if (flood_line_.due(loop_.clock().now()))
        OM_WARN("vxlan flood: uplink={} reason=\"too many copies for several ends (flood=)\"",
                name_);
}

namespace {

/// Which of some datagrams were not sent.
class Missing final : public base::DatagramSocket::Failures {
public:
    explicit Missing(std::span<const base::Datagram> all) : all_(all) {}
    void failed(const base::Datagram& datagram, int error) override {
        error_ = error;
        which_ |= std::uint64_t{1} << (&datagram - all_.data());
    }
    [[nodiscard]] std::uint64_t which() const { return which_; }
    [[nodiscard]] int error() const { return error_; }

private:
    static_assert(VxlanUplink::kBurst <= 64);
    const std::span<const base::Datagram> all_;
    std::uint64_t which_ = 0;
    int error_ = 0;
};

}  // namespace

/// What each sender has, together: so the frames of a flow keep their order.
void VxlanUplink::send(Outgoing& outgoing) {
    for (std::size_t i = 0; i < outgoing.count; ++i) {
        const std::uint8_t sender = outgoing.senders[i];
        if (sender == VxlanEndpoint::kSenders) continue;
        std::size_t together = 0;
        for (std::size_t j = i; j < outgoing.count; ++j) {
            if (outgoing.senders[j] != sender) continue;
            outgoing.together[together++] = outgoing.datagrams[j];
            outgoing.senders[j] = VxlanEndpoint::kSenders;  // done
        }
        const auto datagrams = std::span(outgoing.together).first(together);
        Missing missing(datagrams);
        note(endpoint_.send(sender, datagrams, &missing));
        if (missing.which() != 0 || any_failing_.load(std::memory_order_relaxed))
            note_ends(datagrams, missing.which(), missing.error());
    }
    outgoing.clear();
}

void VxlanUplink::note(const base::DatagramSocket::Sent& sent) {
    if (sent.datagrams > 0) count_sent(sent.datagrams, sent.bytes - sent.datagrams * Vxlan::kBytes);
    if (sent.too_large > 0) vxlan_.too_large.add(sent.too_large);
    if (sent.dropped > 0) counters_.tx_dropped.add(sent.dropped);
}

void VxlanUplink::note_ends(std::span<const base::Datagram> datagrams, std::uint64_t failed,
                            int error) {
    // The host is slow, which is no failure.
    if (error == ENOBUFS) failed = 0;
    const base::TimePoint now = loop_.clock().now();
    const std::lock_guard lock(failing_mutex_);
    for (std::size_t i = 0; i < datagrams.size(); ++i) {
        const bool is_failing = (failed >> i & 1) != 0;
        const roce::Gid address = ip_of(*datagrams[i].to);
        const auto found = failing_.find(address);
        if (is_failing && found != failing_.end()) {
            found->second.error = error;
            found->second.tried = now;
        } else if (is_failing && failing_.size() < kMaxFailing) {
            failing_[address] = {datagrams[i].to->text(), error, now};
            if (failure_line_.due(now))
                OM_WARN("vxlan send: uplink={} peer={} reason=\"{}\"", name_, ip_text(address),
                        std::strerror(error));
        } else if (!is_failing && found != failing_.end()) {
            failing_.erase(found);
            if (end_line_.due(now))
                OM_INFO("vxlan send: uplink={} peer={} again=yes", name_, ip_text(address));
        }
    }
    if (forgetting_.due(now)) forget_failing_locked();
    any_failing_.store(!failing_.empty(), std::memory_order_relaxed);
}

void VxlanUplink::forget_failing_locked() const {
    const base::TimePoint now = loop_.clock().now();
    std::erase_if(failing_, [&](const auto& one) { return now - one.second.tried > kRest; });
    any_failing_.store(!failing_.empty(), std::memory_order_relaxed);
}

std::vector<Uplink::FailingEnd> VxlanUplink::failing_ends() const {
    std::vector<FailingEnd> ends;
    const std::lock_guard lock(failing_mutex_);
    forget_failing_locked();
    for (const auto& [address, failing] : failing_) ends.push_back({failing.end, failing.error});
    return ends;
}

/// While it is not known that all ends fail.
bool VxlanUplink::connected() const {
    if (!any_failing_.load(std::memory_order_relaxed)) return true;
    const std::size_t known = fdb_.known_ends();
    const std::lock_guard lock(failing_mutex_);
    forget_failing_locked();
    if (known == 0) return failing_.empty();
    Fdb::Access access(fdb_);
    const auto failing = std::ranges::count_if(
        failing_, [&](const auto& one) { return access.known(one.first).has_value(); });
    return static_cast<std::size_t>(failing) < known;
}

bool VxlanUplink::from_here(const base::MacAddr& source, const Tunnelled& packet) {
    if (network_.peers().find(source) == nullptr) return false;
    vxlan_.own_source.add();
    if (loop_line_.due(loop_.clock().now()))
        OM_WARN("vxlan loop: uplink={} peer={} mac={} reason=\"it is the address of a NIC here\"",
                name_, ip_text(packet.from), base::to_string(source));
    return true;
}

/// The end of the tunnel, for congestion.
bool VxlanUplink::leaves(const Tunnelled& packet) {
    switch (leave_tunnel(packet.frame, InnerPacket::of(packet.frame), packet.tos)) {
        case EcnResult::kMarked:
            vxlan_.ecn_marked.add();
            break;
        case EcnResult::kSuspicious:
            vxlan_.ecn_suspicious.add();
            break;
        case EcnResult::kDropped:
            vxlan_.ecn_dropped.add();
            return false;
        case EcnResult::kKept:
        case EcnResult::kChanged:
            break;
    }
    return true;
}

/// Who was looked up last; in one burst, so that the table is the same.
struct VxlanUplink::Sender {
    roce::Gid address{};
    Fdb::Known end;
};

bool VxlanUplink::known(Fdb::Access& access, const Tunnelled& packet, Sender& sender) {
    // The unspecified address is nobody's (RFC 4291 2.5.2), and here means that no sender is known.
    if (packet.from == roce::Gid{}) {
        vxlan_.unknown_sender.add();
        return false;
    }
    if (packet.from == sender.address) return true;
    const auto end = access.known(packet.from);
    if (!end && !strangers_) {
        vxlan_.unknown_sender.add();
        return false;
    }
    const TunnelEnd& local = fdb_.context().local;
    sender.end = end.value_or(Fdb::Known{{packet.from, local.port, local.vni}});
    sender.address = packet.from;
    return true;
}

/// What is worth a line, for when the table is free again: of several the last.
struct VxlanUplink::Remarks {
    const Tunnelled* stranger = nullptr;
    const Tunnelled* refused = nullptr;
    const Tunnelled* moved = nullptr;
    TunnelEnd before, now;
};

bool VxlanUplink::passes(Fdb::Access& access, const Tunnelled& packet, Sender& sender,
                         Remarks& remarks) {
    if (!known(access, packet, sender)) {
        remarks.stranger = &packet;
        return false;
    }
    const Fdb::Seen seen = access.saw(base::mac_at(packet.frame, base::kSourceMac), sender.end);
    if (seen == Fdb::Seen::kRefused) remarks.refused = &packet;
    if (seen == Fdb::Seen::kMoved) {
        remarks.moved = &packet;
        remarks.before = access.before();
        remarks.now = sender.end.end;
    }
    return seen != Fdb::Seen::kRefused;
}

void VxlanUplink::log(const Remarks& remarks) {
    const base::TimePoint now = loop_.clock().now();
    const auto mac = [](const Tunnelled& packet) {
        return base::to_string(base::mac_at(packet.frame, base::kSourceMac));
    };
    if (remarks.stranger != nullptr && stranger_line_.due(now))
        OM_WARN("vxlan stranger: uplink={} peer={} reason=\"no entry names it\"", name_,
                ip_text(remarks.stranger->from));
    if (remarks.refused != nullptr && refusal_line_.due(now))
        OM_WARN("vxlan lie: uplink={} mac={} peer={} reason=\"the table has it elsewhere\"", name_,
                mac(*remarks.refused), ip_text(remarks.refused->from));
    if (remarks.moved != nullptr && move_line_.due(now))
        OM_INFO("vxlan move: uplink={} mac={} from={} to={}", name_, mac(*remarks.moved),
                to_string(remarks.before), to_string(remarks.now));
}

void VxlanUplink::take(std::size_t queue, std::span<const Tunnelled> burst) {
    OM_CHECK(burst.size() <= kBurst);
    std::array<const Tunnelled*, kBurst> good;
    std::size_t count = 0;
    for (const Tunnelled& packet : burst) {
        const base::MacAddr source = base::mac_at(packet.frame, base::kSourceMac);
        if (!can_be_source(source))
            endpoint_.count_malformed();
        else if (!from_here(source, packet))
            good[count++] = &packet;
    }
    Remarks remarks;
    {
        Fdb::Access access(fdb_);
        Sender sender;
        const auto passed = std::remove_if(
            good.begin(), good.begin() + static_cast<std::ptrdiff_t>(count),
            [&](const Tunnelled* packet) { return !passes(access, *packet, sender, remarks); });
        count = static_cast<std::size_t>(passed - good.begin());
    }
    log(remarks);
    std::array<base::FrameView, kBurst> frames;
    std::size_t left = 0;
    for (std::size_t i = 0; i < count; ++i)
        if (leaves(*good[i])) frames[left++] = good[i]->frame;
    receive(queue, base::FrameViews(frames).first(left));
}

}  // namespace openmana::fabric
