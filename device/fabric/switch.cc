// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/mac_at.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kEthernetHeader = 14;

bool is_group(const std::uint8_t* mac) {
    return (mac[0] & 1) != 0;
}

}  // namespace

std::uint64_t Switch::key(const std::uint8_t* mac) {
    std::uint64_t value = 0;
    for (int i = 0; i < 6; ++i) value = value << 8 | mac[i];
    return value;
}

void Switch::attach(Port& port, const base::MacAddr* fixed) {
    const std::lock_guard lock(mutex_);
    ports_.push_back(&port);
    attached_.try_emplace(&port, fixed != nullptr);
    std::size_t most = ports_.size();
    for (const auto& [other, state] : attached_) most += state.most_learned;
    table_.reserve(most);
    if (fixed == nullptr) return;
    Entry& entry = table_[key(fixed->data())];
    // Somebody may have used it before.
    if (!entry.fixed()) entry.learned_by->learned.erase(entry.place);
    entry = Entry{&port, nullptr, clock_.now(), {}};
}

void Switch::detach(Port& port) {
    const std::lock_guard lock(mutex_);
    std::erase(ports_, &port);
    std::erase_if(table_, [&](const auto& item) { return item.second.port == &port; });
    attached_.erase(&port);
}

void Switch::forget_oldest_locked(Attached& port) {
    base::count_work(1);
    table_.erase(port.learned.back());
    port.learned.pop_back();
    counters_.forgotten.add();
}

/// An address that no entry has.
void Switch::learn_locked(Port& from, std::uint64_t source, base::TimePoint now) {
    const auto found = attached_.find(&from);
    if (found == attached_.end()) return;
    Attached& port = found->second;
    if (port.learned.size() >= port.most_learned) forget_oldest_locked(port);
    base::count_work(1);
    port.learned.push_front(source);
    table_.emplace(source, Entry{&from, &port, now, port.learned.begin()});
    counters_.learned.add();
}

void Switch::saw_locked(Port& from, const base::MacAddr& source, base::TimePoint now) {
    base::count_work(1);
    const auto known = table_.find(key(source.data()));
    if (known != table_.end()) {
        Entry& entry = known->second;
        if (entry.fixed()) return;
        std::list<std::uint64_t>& learned = entry.learned_by->learned;
        if (entry.port == &from) {
            entry.seen = now;
            if (entry.place != learned.begin())
                learned.splice(learned.begin(), learned, entry.place);
            return;
        }
    }
    // It would be new at this port.
    Peer* const owner = peers_.find(source);
    if (owner != nullptr && &owner->port() != &from) return;
    if (known != table_.end()) {
        known->second.learned_by->learned.erase(known->second.place);
        table_.erase(known);
    }
    learn_locked(from, key(source.data()), now);
}

bool Switch::elsewhere_locked(const Port& port, const base::MacAddr& mac) const {
    const auto known = table_.find(key(mac.data()));
    return known != table_.end() && known->second.port != &port &&
           (known->second.fixed() || clock_.now() - known->second.seen <= kAge);
}

void Switch::forget_locked(const Port& port, const base::MacAddr& mac) {
    const auto known = table_.find(key(mac.data()));
    if (known == table_.end() || known->second.fixed() || known->second.port != &port) return;
    known->second.learned_by->learned.erase(known->second.place);
    table_.erase(known);
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

bool Switch::give(Peer& peer, const base::MacAddr& mac, MacRight right) {
    const std::lock_guard lock(mutex_);
    if (right == MacRight::kClaimed && peers_.find(mac) != &peer &&
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

Switch::Targets Switch::look_up(Port& from, std::span<const std::byte> frame) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data());
    const auto at = [&from](Port* port) {
        return Targets{port == &from ? Targets::Kind::kSame : Targets::Kind::kOne, port};
    };
    const base::TimePoint now = clock_.now();
    Targets unknown{Targets::Kind::kUnknown, nullptr};
    {
        const std::lock_guard lock(mutex_);
        saw_locked(from, base::mac_at(frame, base::kSourceMac), now);
        if (is_group(bytes)) return {Targets::Kind::kAll, nullptr};
        base::count_work(1);
        if (const auto target = table_.find(key(bytes)); target != table_.end()) {
            unknown.one = target->second.port;
            if (target->second.fixed() || now - target->second.seen <= kAge) return at(unknown.one);
        }
    }
    // It may be a NIC's that has not sent from it for long.
    if (Peer* const owner = peers_.find(base::mac_at(frame, base::kDestinationMac)))
        return at(&owner->port());
    return unknown;
}

std::vector<Port*> Switch::flood_targets(const Port& from, const Targets& targets) const {
    const std::lock_guard lock(mutex_);
    std::vector<Port*> ports;
    for (Port* const port : ports_) {
        if (port == &from) continue;
        if (targets.kind == Targets::Kind::kUnknown && port != targets.one) {
            const auto state = attached_.find(port);
            if (state != attached_.end() && state->second.fixed) continue;
        }
        ports.push_back(port);
    }
    return ports;
}

std::size_t Switch::longest_bucket() const {
    const std::lock_guard lock(mutex_);
    std::size_t longest = 0;
    for (std::size_t i = 0; i < table_.bucket_count(); ++i)
        longest = std::max(longest, table_.bucket_size(i));
    return longest;
}

bool Switch::forward(Port& from, std::span<const std::byte> frame) {
    if (frame.size() < kEthernetHeader ||
        is_group(reinterpret_cast<const std::uint8_t*>(frame.data()) + 6)) {
        counters_.malformed.add();
        return true;
    }
    observe(frame);
    const Targets targets = look_up(from, frame);
    switch (targets.kind) {
        case Targets::Kind::kSame:
            counters_.hairpin.add();
            return false;
        case Targets::Kind::kOne:
            counters_.forwarded.add();
            targets.one->deliver(frame);
            return true;
        case Targets::Kind::kAll:
        case Targets::Kind::kUnknown:
            break;
    }
    counters_.flooded.add();
    for (Port* const port : flood_targets(from, targets)) port->deliver(frame);
    return targets.one != &from;
}

}  // namespace openmana::fabric
