// SPDX-License-Identifier: Apache-2.0
#include "fabric/fdb_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hold_meter.h"
#include "base/mac_text.h"

namespace openmana::fabric {
namespace {

using Action = FdbLine::Action;

/// Of a group or of all others: it may have several ends.
bool has_many(const base::MacAddr& mac) {
    return (mac[0] & 1) != 0 || mac == kFloodMac;
}

template <typename... Args>
auto wrong(fmt::format_string<Args...> format, Args&&... arguments) {
    return tl::unexpected(fmt::format(format, std::forward<Args>(arguments)...));
}

}  // namespace

std::uint64_t mac_word(const base::MacAddr& mac) {
    std::uint64_t word = 0;
    for (const std::uint8_t octet : mac) word = word << 8 | octet;
    return word;
}

base::MacAddr mac_of_word(std::uint64_t word) {
    base::MacAddr mac{};
    for (std::size_t i = mac.size(); i-- > 0; word >>= 8) mac[i] = static_cast<std::uint8_t>(word);
    return mac;
}

tl::expected<void, std::string> FdbTable::add(const FdbLine& line, const TunnelEnd& end) {
    const std::string mac = base::to_string(line.mac);
    const auto found = entries_.find(mac_word(line.mac));
    if (found == entries_.end()) {
        if (entries_.size() >= kMaxAddresses)
            return wrong("there are {} addresses, and more cannot be", kMaxAddresses);
        if (!has_room()) base::count_work(entries_.size());
        entries_.emplace(mac_word(line.mac), TunnelEnds{end});
        return {};
    }
    TunnelEnds& ends = found->second;
    const bool there = std::ranges::find(ends, end) != ends.end();
    if (line.action == Action::kListed && there) return {};
    if (line.action == Action::kReplace) {
        if (has_many(line.mac)) return wrong("{} can have several ends: del and append", mac);
        ends = {end};
        return {};
    }
    if (line.action == Action::kAdd || there)
        return wrong("{} dst {} is there already", mac, to_string(there ? end : ends.front()));
    if (!has_many(line.mac))
        return wrong("{} has dst {}, and one station can have no other", mac,
                     to_string(ends.front()));
    if (ends.size() >= kMaxEnds) return wrong("{} has {} ends, and more cannot be", mac, kMaxEnds);
    ends.push_back(end);
    return {};
}

/// With neither port nor VNI: whichever that end has.
tl::expected<void, std::string> FdbTable::remove(const FdbLine& line, const FdbContext& context) {
    const auto found = entries_.find(mac_word(line.mac));
    const auto matches = [&](const TunnelEnd& end) {
        const TunnelEnd named = context.end_of(line);
        return end.address == named.address && (!line.port || end.port == named.port) &&
               (!line.vni || end.vni == named.vni);
    };
    if (found == entries_.end() || std::erase_if(found->second, matches) == 0)
        return wrong("{} dst {} is not there", base::to_string(line.mac), ip_text(line.address));
    if (found->second.empty()) entries_.erase(found);
    return {};
}

tl::expected<void, std::string> FdbTable::apply(const FdbLine& line, const FdbContext& context) {
    if (line.action == Action::kDelete) return remove(line, context);
    const TunnelEnd end = context.end_of(line);
    if (const char* const why = why_no_end(end, context.local))
        return wrong("dst {} {}", ip_text(end.address), why);
    return add(line, end);
}

tl::expected<FdbTable, std::string> FdbTable::read(std::string_view text,
                                                   const FdbContext& context) {
    if (text.size() > kMaxText) return wrong("more than {} bytes", kMaxText);
    FdbTable table;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const auto line = parse_fdb_line(text.substr(0, end));
        if (!line) return wrong("line {}: {}", number, line.error());
        if (*line && context.concerns(**line)) {
            if (const auto done = table.apply(**line, context); !done)
                return wrong("line {}: {}", number, done.error());
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return table;
}

FdbTable FdbTable::larger() const {
    FdbTable table(*this);
    table.entries_.reserve(2 * (entries_.size() + 1));
    return table;
}

void FdbTable::save(base::StateWriter& out) const {
    out.count(entries_.size());
    for (const auto& [word, ends] : entries_) out(word, ends);
}

void FdbTable::load(base::StateReader& in, const FdbContext& context) {
    entries_.clear();
    std::size_t left = in.count();
    in.require(left <= kMaxAddresses, "more addresses than a table may have");
    for (; left > 0 && in.ok(); --left) {
        const auto word = in.get<std::uint64_t>();
        auto ends = in.get<TunnelEnds>();
        const base::MacAddr mac = mac_of_word(word);
        in.require(mac_word(mac) == word && !ends.empty() &&
                       ends.size() <= (has_many(mac) ? kMaxEnds : 1) &&
                       std::ranges::all_of(ends,
                                           [&](const TunnelEnd& end) {
                                               return why_no_end(end, context.local) == nullptr;
                                           }),
                   "no entry of a table");
        if (in.ok()) entries_[word] = std::move(ends);
    }
}

}  // namespace openmana::fabric
