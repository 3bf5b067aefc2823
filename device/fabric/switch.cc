// SPDX-License-Identifier: Apache-2.0
#include "fabric/switch.h"

#include <algorithm>

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
    if (fixed != nullptr) table_[key(fixed->data())] = Entry{&port, true, clock_.now()};
}

void Switch::detach(Port& port) {
    const std::lock_guard lock(mutex_);
    std::erase(ports_, &port);
    std::erase_if(table_, [&](const auto& item) {
        if (item.second.port != &port) return false;
        if (!item.second.fixed) --learned_;
        return true;
    });
}

Port* Switch::look_up(Port& from, std::span<const std::byte> frame, bool& flood) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data());
    const base::TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    Entry* source = nullptr;
    if (const auto found = table_.find(key(bytes + 6)); found != table_.end())
        source = &found->second;
    if (source == nullptr) {
        // Old entries go when the table is full, so that a flood of made-up addresses cannot pin it
        // for ever.
        if (learned_ >= kMaxLearned)
            learned_ -= std::erase_if(table_, [&](const auto& item) {
                return !item.second.fixed && now - item.second.seen > kAge;
            });
        if (learned_ < kMaxLearned) {
            table_[key(bytes + 6)] = Entry{&from, false, now};
            ++learned_;
            counters_.learned.add();
        } else {
            counters_.table_full.add();
        }
    } else if (!source->fixed) {
        source->port = &from;
        source->seen = now;
    }
    if (is_group(bytes)) {
        flood = true;
        return nullptr;
    }
    const auto target = table_.find(key(bytes));
    if (target == table_.end() || (!target->second.fixed && now - target->second.seen > kAge)) {
        flood = true;
        return nullptr;
    }
    return target->second.port;
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
