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
    attached_.try_emplace(&port, fixed != nullptr ? kMaxBehindNic : kMaxLearned);
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

Port* Switch::look_up(Port& from, std::span<const std::byte> frame, bool& flood) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data());
    const std::uint64_t source = key(bytes + 6);
    const base::TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    base::count_work(1);
    const auto known = table_.find(source);
    if (known == table_.end()) {
        learn_locked(from, source, now);
    } else if (Entry& entry = known->second; !entry.fixed()) {
        std::list<std::uint64_t>& learned = entry.learned_by->learned;
        if (entry.port == &from) {
            entry.seen = now;
            if (entry.place != learned.begin())
                learned.splice(learned.begin(), learned, entry.place);
        } else {
            learned.erase(entry.place);
            table_.erase(known);
            learn_locked(from, source, now);
        }
    }
    if (is_group(bytes)) {
        flood = true;
        return nullptr;
    }
    base::count_work(1);
    const auto target = table_.find(key(bytes));
    if (target == table_.end() || (!target->second.fixed() && now - target->second.seen > kAge)) {
        flood = true;
        return nullptr;
    }
    return target->second.port;
}

std::size_t Switch::longest_bucket() const {
    const std::lock_guard lock(mutex_);
    std::size_t longest = 0;
    for (std::size_t i = 0; i < table_.bucket_count(); ++i)
        longest = std::max(longest, table_.bucket_size(i));
    return longest;
}

void Switch::forward(Port& from, std::span<const std::byte> frame) {
    if (frame.size() < kEthernetHeader ||
        is_group(reinterpret_cast<const std::uint8_t*>(frame.data()) + 6)) {
        counters_.malformed.add();
        return;
    }
    observe(frame);
    bool flood = false;
    Port* target = look_up(from, frame, flood);
    if (!flood) {
        if (target == &from) {
            counters_.hairpin.add();
            return;
        }
        counters_.forwarded.add();
        target->deliver(frame);
        return;
    }
    counters_.flooded.add();
    std::vector<Port*> targets;
    {
        const std::lock_guard lock(mutex_);
        targets = ports_;
    }
    for (Port* port : targets)
        if (port != &from) port->deliver(frame);
}

}  // namespace openmana::fabric
