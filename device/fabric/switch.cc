// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/mac_at.h"
#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kEthernetHeader = 14;
/// Addresses that are forgotten while others may wait for the lock.
constexpr std::size_t kForgetStep = 64;

bool is_group(const base::MacAddr& mac) {
    return (mac[0] & 1) != 0;
}

}  // namespace

/// Where an address is. Who has found it once asks it again instead of the table.
struct KnownAddress {
    KnownAddress(std::uint64_t its_mac, Port& its_port, Switch::Attached* learned,
                 base::TimePoint now)
        : mac(its_mac), port(its_port), learned_by(learned), seen(now) {}
    const std::uint64_t mac;
    Port& port;
    Switch::Attached* const learned_by;  ///< null: fixed; used under the lock
    /// Under the lock, once: it was forgotten, or is somewhere else. Who reads true may be late by
    /// the moment that a frame takes.
    std::atomic<bool> good{true};
    std::atomic<base::TimePoint> seen;           ///< under the lock, as the next
    std::atomic<std::uint64_t> seen_when{0};     ///< learned_by->ever_learned then
    std::list<std::uint64_t>::iterator place{};  ///< in learned_by->learned
    [[nodiscard]] bool fixed() const { return learned_by == nullptr; }
    /// Whether it is there still, as far as one can know.
    [[nodiscard]] bool young(base::TimePoint now, base::Duration age) const {
        return fixed() || now - seen.load(std::memory_order_relaxed) <= age;
    }
    /// Whether its place among those that its port has learned is far from the end still. For who
    /// sends frames in from there.
    [[nodiscard]] bool lately(base::TimePoint now) const {
        return fixed() || (young(now, Switch::kSeenAgain) &&
                           learned_by->ever_learned.load(std::memory_order_relaxed) -
                                   seen_when.load(std::memory_order_relaxed) <
                               learned_by->most_learned / 2);
    }
    void see(base::TimePoint now) {
        seen.store(now, std::memory_order_relaxed);
        seen_when.store(learned_by->ever_learned.load(std::memory_order_relaxed),
                        std::memory_order_relaxed);
    }
    [[nodiscard]] bool is(std::uint64_t asked) const {
        return mac == asked && good.load(std::memory_order_acquire);
    }
};

std::uint64_t Switch::key(const base::MacAddr& mac) {
    std::uint64_t value = 0;
    for (const std::uint8_t octet : mac) value = value << 8 | octet;
    return value;
}

/// A port that comes back finds the room that it had.
void Switch::reserve_locked() {
    std::size_t most = attached_.size();
    for (const auto& [port, state] : attached_) most += state.most_learned;
    if (most <= reserved_) return;
    base::count_work(1 + table_.size());
    table_.reserve(most);
    reserved_ = most;
}

void Switch::attach(Port& port, const base::MacAddr* fixed) {
    const std::lock_guard lock(mutex_);
    const auto own = fixed != nullptr ? std::optional(key(*fixed)) : std::nullopt;
    attached_.try_emplace(&port, own);
    auto ports = std::make_shared<FloodPorts>(*ports_);
    ports->push_back({&port, fixed != nullptr});
    ports_ = std::move(ports);
    reserve_locked();
    if (!own) return;
    // Somebody may have used it before.
    if (const auto known = table_.find(*own); known != table_.end()) forget_locked(known);
    table_.emplace(*own, std::make_shared<KnownAddress>(*own, port, nullptr, clock_.now()));
}

void Switch::detach(Port& port) {
    while (forget_step(port)) {
    }
    {
        const std::lock_guard lock(mutex_);
        const auto found = attached_.find(&port);
        if (found == attached_.end()) return;
        if (const auto own = found->second.fixed) {
            const auto known = table_.find(*own);
            if (known != table_.end() && &known->second->port == &port) forget_locked(known);
        }
        attached_.erase(found);
        auto ports = std::make_shared<FloodPorts>(*ports_);
        std::erase_if(*ports, [&](const FloodPort& entry) { return entry.port == &port; });
        ports_ = std::move(ports);
    }
    port.door_.sources_.clear();
    port.door_.destinations_.clear();
}

/// Frames of others go on in between. True if the port has learned more.
bool Switch::forget_step(Port& port) {
    const std::lock_guard lock(mutex_);
    const auto found = attached_.find(&port);
    if (found == attached_.end()) return false;
    const auto& learned = found->second.learned;
    for (std::size_t i = 0; i < kForgetStep && !learned.empty(); ++i) {
        base::count_work(1);
        forget_locked(table_.find(learned.back()));
    }
    return !learned.empty();
}

void Switch::forget_locked(Table::iterator entry) {
    KnownAddress& known = *entry->second;
    known.good.store(false, std::memory_order_release);
    if (!known.fixed()) known.learned_by->learned.erase(known.place);
    table_.erase(entry);
}

void Switch::forget_oldest_locked(Attached& port) {
    base::count_work(1);
    forget_locked(table_.find(port.learned.back()));
    counters_.forgotten.add();
}

/// An address that no entry has.
Switch::Known Switch::learn_locked(Port& from, std::uint64_t source, base::TimePoint now) {
    const auto found = attached_.find(&from);
    if (found == attached_.end()) return nullptr;
    Attached& port = found->second;
    if (port.learned.size() >= port.most_learned) forget_oldest_locked(port);
    base::count_work(1);
    port.learned.push_front(source);
    auto known = std::make_shared<KnownAddress>(source, from, &port, now);
    known->place = port.learned.begin();
    port.ever_learned.fetch_add(1, std::memory_order_relaxed);
    known->see(now);
    table_.emplace(source, known);
    counters_.learned.add();
    return known;
}

/// What is known of the address now, if that is at `from`.
Switch::Known Switch::saw_locked(Port& from, const base::MacAddr& source, base::TimePoint now) {
    base::count_work(1);
    const auto known = table_.find(key(source));
    if (known != table_.end()) {
        KnownAddress& entry = *known->second;
        if (entry.fixed()) return known->second;
        if (&entry.port == &from) {
            entry.see(now);
            std::list<std::uint64_t>& learned = entry.learned_by->learned;
            learned.splice(learned.begin(), learned, entry.place);
            return known->second;
        }
    }
    // It would be new at this port.
    Peer* const owner = peers_.find(source);
    if (owner != nullptr && &owner->port() != &from) return nullptr;
    if (known != table_.end()) forget_locked(known);
    return learn_locked(from, key(source), now);
}

bool Switch::elsewhere_locked(const Port& port, const base::MacAddr& mac) const {
    const auto known = table_.find(key(mac));
    return known != table_.end() && &known->second->port != &port &&
           known->second->young(clock_.now(), kAge);
}

void Switch::forget_locked(const Port& port, const base::MacAddr& mac) {
    const auto known = table_.find(key(mac));
    if (known == table_.end() || known->second->fixed() || &known->second->port != &port) return;
    forget_locked(known);
}

std::vector<base::MacAddr> Switch::learned_at(Port& port) const {
    const std::lock_guard lock(mutex_);
    std::vector<base::MacAddr> macs;
    const auto found = attached_.find(&port);
    if (found == attached_.end()) return macs;
    base::count_work(1 + found->second.learned.size() / base::kSmallSteps);
    for (std::uint64_t value : found->second.learned) {
        base::MacAddr& mac = macs.emplace_back();
        for (std::size_t i = mac.size(); i-- > 0; value >>= 8)
            mac[i] = static_cast<std::uint8_t>(value);
    }
    return macs;
}

void Switch::forget(const Port& port, const base::MacAddr& mac) {
    const std::lock_guard lock(mutex_);
    forget_locked(port, mac);
}

bool Switch::give(Peer& peer, const base::MacAddr& mac, MacRight right, bool moved) {
    const std::lock_guard lock(mutex_);
    if (right == MacRight::kClaimed && !moved && peers_.find(mac) != &peer &&
        elsewhere_locked(peer.port(), mac))
        return false;
    if (!peers_.add(mac, peer, right)) return false;
    saw_locked(peer.port(), mac, clock_.now());
    return true;
}

void Switch::take_away(Peer& peer, const base::MacAddr& mac, MacRight right) {
    const std::lock_guard lock(mutex_);
    peers_.remove(mac, peer, right);
    if (peers_.find(mac) != &peer) forget_locked(peer.port(), mac);
}

void Switch::saw(Port& from, Port::Door& door, const base::MacAddr& source, base::TimePoint now) {
    const std::uint64_t mac = key(source);
    const Known& kept = door.sources_.at(mac);
    if (kept && kept->is(mac) && (kept->fixed() || &kept->port == &from) && kept->lately(now))
        return;
    Known known;
    {
        const std::lock_guard lock(mutex_);
        known = saw_locked(from, source, now);
    }
    if (known) door.sources_.keep(mac, std::move(known));
}

Switch::Target Switch::look_up(Port& from, Port::Door& door, const base::MacAddr& destination,
                               base::TimePoint now) {
    const auto at = [&from](Port& port) {
        return Target{&port == &from ? Target::Kind::kSame : Target::Kind::kOne, &port};
    };
    const std::uint64_t mac = key(destination);
    const Known& kept = door.destinations_.at(mac);
    if (kept && kept->is(mac) && kept->young(now, kAge)) return at(kept->port);
    Known known;
    {
        const std::lock_guard lock(mutex_);
        base::count_work(1);
        if (const auto found = table_.find(mac); found != table_.end()) known = found->second;
    }
    Port* const last = known ? &known->port : nullptr;
    if (known && known->young(now, kAge)) {
        door.destinations_.keep(mac, std::move(known));
        return at(*last);
    }
    // It may be a NIC's that has not sent from it for long.
    if (Peer* const owner = peers_.find(destination)) return at(owner->port());
    return {Target::Kind::kUnknown, last};
}

void Switch::flood(const Port& from, const Target& target, base::FrameView frame) {
    std::shared_ptr<const FloodPorts> ports;
    {
        const std::lock_guard lock(mutex_);
        ports = ports_;
    }
    counters_.flooded.add();
    for (const FloodPort& to : *ports) {
        if (to.port == &from) continue;
        if (!from.may_send_to(*to.port)) continue;
        if (target.kind == Target::Kind::kUnknown && to.port != target.one && to.fixed) continue;
        if (!to.port->inside()) roce::put_icrc(frame);
        to.port->deliver(frame);
    }
}

std::size_t Switch::longest_bucket() const {
    const std::lock_guard lock(mutex_);
    std::size_t longest = 0;
    for (std::size_t i = 0; i < table_.bucket_count(); ++i)
        longest = std::max(longest, table_.bucket_size(i));
    return longest;
}

Switch::Target Switch::target_of(Port& from, Port::Door& door, base::FrameView frame,
                                 base::TimePoint now) {
    const bool whole = frame.size() >= kEthernetHeader;
    const base::MacAddr source = whole ? base::mac_at(frame, base::kSourceMac) : base::MacAddr{};
    if (!whole || is_group(source)) {
        counters_.malformed.add();
        return {};
    }
    observe(frame);
    saw(from, door, source, now);
    const base::MacAddr destination = base::mac_at(frame, base::kDestinationMac);
    if (is_group(destination)) return {Target::Kind::kAll, nullptr};
    return look_up(from, door, destination, now);
}

void Switch::forward(Port& from, Port::Door& door, base::FrameViews frames) {
    const base::TimePoint now = clock_.now();
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kBurst));
        forward_burst(from, door, burst, now);
        frames = frames.subspan(burst.size());
    }
}

void Switch::forward_burst(Port& from, Port::Door& door, base::FrameViews frames,
                           base::TimePoint now) {
    std::array<Target, kBurst> targets;
    for (std::size_t i = 0; i < frames.size(); ++i)
        targets[i] = target_of(from, door, frames[i], now);
    std::array<base::FrameView, kBurst> together;
    for (std::size_t i = 0; i < frames.size(); ++i) {
        const Target target = targets[i];
        if (target.floods()) {
            flood(from, target, frames[i]);
            if (target.one == &from) from.returned(frames[i]);
        } else if (target.kind == Target::Kind::kSame) {
            counters_.hairpin.add();
            from.returned(frames[i]);
        }
        if (target.kind != Target::Kind::kOne) continue;
        // None goes past what everybody gets.
        std::size_t count = 0;
        for (std::size_t j = i; j < frames.size() && !targets[j].floods(); ++j) {
            if (targets[j] != target) continue;
            together[count++] = frames[j];
            targets[j] = {};
        }
        if (!from.may_send_to(*target.one)) {
            counters_.split_horizon.add(count);
            continue;
        }
        counters_.forwarded.add(count);
        if (!target.one->inside())
            for (base::FrameView& leaving : std::span(together).first(count))
                roce::put_icrc(leaving);
        target.one->deliver(base::FrameViews(together).first(count));
    }
}

}  // namespace openmana::fabric
