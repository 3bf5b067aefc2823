// SPDX-License-Identifier: Apache-2.0
#include "fabric/fdb.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/endian.h"
#include "base/mac_text.h"

namespace openmana::fabric {

Fdb::Fdb(const base::Clock& clock, FdbContext context, TunnelEnds remotes, bool learns)
    : clock_(clock), context_(std::move(context)), remotes_(std::move(remotes)), learns_(learns) {
    if (learns_) learned_.reserve(kMaxLearned);
    derived_ = derive(control_, file_);
}

std::size_t Fdb::GidHash::operator()(const roce::Gid& gid) const {
    const std::uint64_t words[] = {base::load_le<std::uint64_t>(gid.data()),
                                   base::load_le<std::uint64_t>(gid.data() + 8)};
    return base::KeyedHash::of(words);
}

const TunnelEnds* Fdb::written_locked(const base::MacAddr& mac) const {
    if (const TunnelEnds* const ends = control_.find(mac)) return ends;
    return file_.find(mac);
}

Fdb::Derived Fdb::derive(const FdbTable& control, const FdbTable& file) const {
    Derived derived;
    const auto take = [&](const base::MacAddr& mac, const TunnelEnd& end) {
        derived.known.try_emplace(end.address, end);
        if (mac == kFloodMac && std::ranges::find(derived.flood, end) == derived.flood.end())
            derived.flood.push_back(end);
    };
    for (const TunnelEnd& end : remotes_) take(kFloodMac, end);
    control.visit(take);
    file.visit(take);
    return derived;
}

Fdb::Access::Ends Fdb::Access::ends_of(const base::MacAddr& destination) {
    base::count_work(1);
    if (const TunnelEnds* const written = fdb_.written_locked(destination))
        return {*written, destination == kFloodMac};
    if ((destination[0] & 1) == 0) {
        const auto found = fdb_.learned_.find(mac_word(destination));
        if (found != fdb_.learned_.end() && now_ - found->second.seen <= kAge)
            return {std::span(&found->second.end, 1), false};
    }
    return {fdb_.derived_.flood, true};
}

std::optional<TunnelEnd> Fdb::Access::known(const roce::Gid& address) const {
    base::count_work(1);
    const auto found = fdb_.derived_.known.find(address);
    if (found == fdb_.derived_.known.end()) return std::nullopt;
    return found->second;
}

Fdb::Seen Fdb::Access::saw(const base::MacAddr& source, const TunnelEnd& from) {
    base::count_work(1);
    if (!fdb_.learns_) return Seen::kKnown;
    if (const TunnelEnds* const written = fdb_.written_locked(source)) {
        const bool there = std::ranges::any_of(
            *written, [&](const TunnelEnd& end) { return end.address == from.address; });
        if (there) return Seen::kKnown;
        fdb_.counters_.refused.add();
        return Seen::kRefused;
    }
    return fdb_.learn_locked(mac_word(source), from, now_, before_);
}

Fdb::Seen Fdb::learn_locked(std::uint64_t word, const TunnelEnd& from, base::TimePoint now,
                            TunnelEnd& before) {
    const auto found = learned_.find(word);
    if (found != learned_.end()) {
        Learned& entry = found->second;
        order_.splice(order_.begin(), order_, entry.place);
        const bool aged = now - entry.seen > kAge;
        entry.seen = now;
        if (entry.end == from) return Seen::kKnown;
        before = std::exchange(entry.end, from);
        counters_.learned.add();
        if (aged) return Seen::kNew;
        counters_.moved.add();
        return Seen::kMoved;
    }
    if (learned_.size() >= kMaxLearned) {
        learned_.erase(order_.back());
        order_.pop_back();
        counters_.forgotten.add();
    }
    order_.push_front(word);
    learned_.emplace(word, Learned{from, now, order_.begin()});
    counters_.learned.add();
    return Seen::kNew;
}

bool Fdb::forget_locked(const base::MacAddr& mac) {
    const auto found = learned_.find(mac_word(mac));
    if (found == learned_.end()) return false;
    order_.erase(found->second.place);
    learned_.erase(found);
    return true;
}

void Fdb::set_file(FdbTable table) {
    Derived derived = derive(control_, table);
    const std::lock_guard lock(mutex_);
    std::swap(file_, table);
    std::swap(derived_, derived);
}

tl::expected<void, std::string> Fdb::remove_locked(const FdbLine& line) {
    auto removed = control_.apply(line, context_);
    if (removed) return removed;
    const auto learned = learned_.find(mac_word(line.mac));
    if (learned != learned_.end() && learned->second.end.address == line.address) {
        (void)forget_locked(line.mac);
        return {};
    }
    const auto same = [&](const TunnelEnd& end) { return end.address == line.address; };
    const TunnelEnds* const in_file = file_.find(line.mac);
    if (in_file != nullptr && std::ranges::any_of(*in_file, same))
        removed.error() += " but in the file, which has to be changed";
    else if (line.mac == kFloodMac && std::ranges::any_of(remotes_, same))
        removed.error() += " but in the options (remote=)";
    return removed;
}

tl::expected<void, std::string> Fdb::command(const FdbLine& line) {
    if (line.action == FdbLine::Action::kListed)
        return tl::unexpected(std::string("one of add, append, replace and del is missing"));
    if (line.source_vni.value_or(context_.local.vni) != context_.local.vni)
        return tl::unexpected(fmt::format("the network's VNI is {}", context_.local.vni));
    const bool learns = line.dynamic && line.action != FdbLine::Action::kDelete;
    if (auto wrong = learns ? wrong_to_learn(line) : std::nullopt)
        return tl::unexpected(std::move(*wrong));
    {
        const std::lock_guard lock(mutex_);
        if (learns) {
            TunnelEnd before;
            (void)learn_locked(mac_word(line.mac), context_.end_of(line), clock_.now(), before);
            return {};
        }
        auto done = line.action == FdbLine::Action::kDelete ? remove_locked(line)
                                                            : control_.apply(line, context_);
        if (!done) return done;
        // What was learned would come back when the entry is deleted.
        if (line.action != FdbLine::Action::kDelete) (void)forget_locked(line.mac);
    }
    Derived derived = derive(control_, file_);
    const std::lock_guard lock(mutex_);
    std::swap(derived_, derived);
    return {};
}

/// Why it can be no entry that comes and goes.
std::optional<std::string> Fdb::wrong_to_learn(const FdbLine& line) const {
    if (!learns_) return "dynamic: this network learns nothing (learn=off), leave it away";
    if ((line.mac[0] & 1) != 0 || line.mac == kFloodMac)
        return "dynamic: only for the address of one station";
    FdbTable empty;
    if (auto good = empty.apply(line, context_); !good) return good.error();
    return std::nullopt;
}

std::vector<Fdb::Row> Fdb::rows() {
    std::vector<Row> rows;
    {
        for (const TunnelEnd& end : remotes_) rows.push_back({kFloodMac, end, Origin::kOption, {}});
        const auto take = [&](Origin origin) {
            return [&rows, origin](const base::MacAddr& mac, const TunnelEnd& end) {
                rows.push_back({mac, end, origin, {}});
            };
        };
        control_.visit(take(Origin::kControl));
        file_.visit(take(Origin::kFile));
        const std::lock_guard lock(mutex_);
        const base::TimePoint now = clock_.now();
        for (const auto& [word, entry] : learned_)
            if (now - entry.seen <= kAge)
                rows.push_back({mac_of_word(word), entry.end, Origin::kLearned, now - entry.seen});
    }
    std::ranges::stable_sort(rows, [](const Row& one, const Row& other) {
        return std::tie(one.mac, one.end.address, one.end.port, one.origin) <
               std::tie(other.mac, other.end.address, other.end.port, other.origin);
    });
    return rows;
}

}  // namespace openmana::fabric
