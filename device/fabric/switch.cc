// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>
#include <mutex>
#include <utility>

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

void Switch::saw_locked(Port& from, std::uint64_t source, base::TimePoint now) {
    base::count_work(1);
    const auto known = table_.find(source);
    if (known == table_.end()) {
        learn_locked(from, source, now);
        return;
    }
    Entry& entry = known->second;
    if (entry.fixed()) return;
    std::list<std::uint64_t>& learned = entry.learned_by->learned;
    if (entry.port == &from) {
        entry.seen = now;
        if (entry.place != learned.begin()) learned.splice(learned.begin(), learned, entry.place);
    } else {
        learned.erase(entry.place);
        table_.erase(known);
        learn_locked(from, source, now);
    }
}

void Switch::learn(Port& port, const base::MacAddr& mac) {
    const std::lock_guard lock(mutex_);
    saw_locked(port, key(mac.data()), clock_.now());
}

Switch::Targets Switch::look_up(Port& from, std::span<const std::byte> frame) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data());
    const base::TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    saw_locked(from, key(bytes + 6), now);
    if (is_group(bytes)) return {Targets::Kind::kAll, nullptr};
    base::count_work(1);
    const auto target = table_.find(key(bytes));
    if (target == table_.end()) return {Targets::Kind::kUnknown, nullptr};
    Port* const port = target->second.port;
    if (!target->second.fixed() && now - target->second.seen > kAge)
        return {Targets::Kind::kUnknown, port};
    return {port == &from ? Targets::Kind::kSame : Targets::Kind::kOne, port};
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
