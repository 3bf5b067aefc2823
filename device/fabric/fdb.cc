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
    if (learns_) {
        learned_.reserve(kMaxLearned + 1);
        holders_.reserve(kMaxLearned + 1);
    }
    put(derive(control_, file_), nullptr);
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
        const auto [found, added] = derived.known.try_emplace(end.address, Known{end, false});
        if (!added && found->second.end != end) found->second.several = true;
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

std::vector<roce::Gid> Fdb::gone(const Derived& before, const Derived& after) {
    std::vector<roce::Gid> result;
    for (const auto& [address, known] : before.known) {
        const auto found = after.known.find(address);
        if (found == after.known.end() || found->second.end != known.end ||
            found->second.several != known.several)
            result.push_back(address);
    }
    return result;
}

/// The tables are what they are to be, but for that which follows from them, and for the file. With
/// change_ held, without mutex_.
void Fdb::put(Derived derived, FdbTable* file) {
    const std::vector<roce::Gid> gone_ends = gone(derived_, derived);
    const std::size_t share = std::max<std::size_t>(kMaxLearned / (derived.known.size() + 1), 1);
    const bool weighs = share != share_;
    {
        const std::lock_guard lock(mutex_);
        if (file != nullptr) std::swap(file_, *file);
        std::swap(derived_, derived);
        share_ = share;
    }
    // From now on nothing more is learned behind them.
    for (const roce::Gid& address : gone_ends) {
        for (bool more = true; more;) {
            const std::lock_guard lock(mutex_);
            base::count_work(1);
            more = false;
            for (std::size_t i = 0; i < kSlice; ++i) {
                const auto holder = holders_.find(address);
                if (holder == holders_.end()) break;
                base::count_work(1);
                counters_.end_gone.add();
                drop_locked(learned_.find(holder->second.order.back()));
                more = i + 1 == kSlice;
            }
        }
    }
    const std::size_t buckets = weighs ? holders_.bucket_count() : 0;
    for (std::size_t bucket = 0; bucket < buckets; bucket += kSlice) {
        const std::lock_guard lock(mutex_);
        const std::size_t end = std::min(bucket + kSlice, buckets);
        for (std::size_t i = bucket; i < end; ++i)
            for (auto at = holders_.begin(i); at != holders_.end(i); ++at) weigh_locked(at->second);
        base::count_work(1);
    }
}

std::optional<Fdb::Known> Fdb::Access::known(const roce::Gid& address) const {
    base::count_work(1);
    const auto found = fdb_.derived_.known.find(address);
    if (found == fdb_.derived_.known.end()) return std::nullopt;
    return found->second;
}

Fdb::Seen Fdb::Access::saw(const base::MacAddr& source, const Known& from) {
    base::count_work(1);
    if (!fdb_.learns_) return Seen::kKnown;
    if (const TunnelEnds* const written = fdb_.written_locked(source)) {
        const bool there = std::ranges::any_of(
            *written, [&](const TunnelEnd& end) { return end.address == from.end.address; });
        if (there) return Seen::kKnown;
        fdb_.counters_.refused.add();
        return Seen::kRefused;
    }
    if (from.several) {
        fdb_.counters_.shared_address.add();
        // Where it was before it is not now.
        (void)fdb_.forget_locked(source);
        return Seen::kKnown;
    }
    return fdb_.learn_locked(mac_word(source), from.end, now_, before_);
}

Fdb::Seen Fdb::learn_locked(std::uint64_t word, const TunnelEnd& from, base::TimePoint now,
                            TunnelEnd& before) {
    const auto found = learned_.find(word);
    if (found != learned_.end()) {
        Learned& entry = found->second;
        const bool aged = now - entry.seen > kAge;
        entry.seen = now;
        if (entry.end == from) {
            auto& order = entry.holder->order;
            order.splice(order.begin(), order, entry.place);
            return Seen::kKnown;
        }
        before = entry.end;
        drop_locked(found);
        (void)learn_locked(word, from, now, before);
        if (aged) return Seen::kNew;
        counters_.moved.add();
        return Seen::kMoved;
    }
    Holder& holder = holder_locked(from.address);
    if (learned_.size() >= kMaxLearned) make_room_locked(holder);
    holder.order.push_front(word);
    learned_.emplace(word, Learned{from, now, &holder, holder.order.begin()});
    weigh_locked(holder);
    counters_.learned.add();
    return Seen::kNew;
}

Fdb::Holder& Fdb::holder_locked(const roce::Gid& address) {
    const roce::Gid key = derived_.known.contains(address) ? address : roce::Gid{};
    Holder& holder = holders_[key];
    holder.address = key;
    return holder;
}

void Fdb::weigh_locked(Holder& holder) {
    const bool over = holder.order.size() > share_;
    if (over == holder.over) return;
    holder.over = over;
    if (over)
        holder.place = over_.insert(over_.end(), &holder);
    else
        over_.erase(holder.place);
}

/// For one address more of `holder`, whose first it may be.
void Fdb::make_room_locked(Holder& holder) {
    Holder* from = &holder;
    if (holder.order.size() < share_ || holder.order.empty()) {
        // Those that have too many take turns. There may be none while the shares change.
        if (!over_.empty()) {
            over_.splice(over_.end(), over_, over_.begin());
            from = over_.back();
        } else if (holder.order.empty()) {
            const auto other = std::ranges::find_if(
                holders_, [](const auto& one) { return !one.second.order.empty(); });
            from = &other->second;
        }
    }
    counters_.forgotten.add();
    if (from->order.size() >= share_) counters_.over_share.add();
    const auto entry = learned_.find(from->order.back());
    if (from != &holder) {
        drop_locked(entry);
        return;
    }
    // It stays, though it may be empty for a moment.
    holder.order.pop_back();
    learned_.erase(entry);
}

void Fdb::drop_locked(LearnedMap::iterator entry) {
    Holder& holder = *entry->second.holder;
    holder.order.erase(entry->second.place);
    learned_.erase(entry);
    weigh_locked(holder);
    if (holder.order.empty()) holders_.erase(holder.address);
}

bool Fdb::forget_locked(const base::MacAddr& mac) {
    const auto found = learned_.find(mac_word(mac));
    if (found == learned_.end()) return false;
    drop_locked(found);
    return true;
}

void Fdb::set_file(FdbTable table) {
    const std::lock_guard change(change_);
    put(derive(control_, table), &table);
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

/// Frames pass while the table of control clients grows. With change_ held, without mutex_.
void Fdb::make_room_to_add() {
    if (control_.has_room()) return;
    FdbTable larger = control_.larger();
    const std::lock_guard lock(mutex_);
    std::swap(control_, larger);
}

tl::expected<void, std::string> Fdb::command(const FdbLine& line) {
    if (line.action == FdbLine::Action::kListed)
        return tl::unexpected(std::string("one of add, append, replace and del is missing"));
    if (line.source_vni.value_or(context_.local.vni) != context_.local.vni)
        return tl::unexpected(fmt::format("the network's VNI is {}", context_.local.vni));
    const bool learns = line.dynamic && line.action != FdbLine::Action::kDelete;
    if (auto wrong = learns ? wrong_to_learn(line) : std::nullopt)
        return tl::unexpected(std::move(*wrong));
    const std::lock_guard change(change_);
    if (!learns && line.action != FdbLine::Action::kDelete) make_room_to_add();
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
    put(derive(control_, file_), nullptr);
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

void Fdb::save(base::StateWriter& out) const {
    out.begin("FDB ", 1);
    const std::lock_guard change(change_);
    const std::lock_guard lock(mutex_);
    file_.save(out);
    control_.save(out);
    // Those seen longest ago first: so who reads puts them into their order.
    std::vector<std::pair<std::uint64_t, const Learned*>> learned;
    learned.reserve(learned_.size());
    for (const auto& [word, entry] : learned_) learned.emplace_back(word, &entry);
    std::ranges::sort(learned, [](const auto& one, const auto& other) {
        return one.second->seen < other.second->seen;
    });
    out.count(learned.size());
    for (const auto& [word, entry] : learned) out(word, entry->end, entry->seen);
    base::save_counters(out, counters_);
    out.end();
}

void Fdb::load(base::StateReader& in) {
    in.begin("FDB ", 1);
    FdbTable file, control;
    file.load(in, context_);
    control.load(in, context_);
    if (in.ok()) {
        const std::lock_guard change(change_);
        control_ = std::move(control);
        put(derive(control_, file), &file);
    }
    const std::lock_guard lock(mutex_);
    std::size_t left = in.count();
    in.require(left <= kMaxLearned, "more learned addresses than there may be");
    for (; left > 0 && in.ok(); --left) {
        const auto word = in.get<std::uint64_t>();
        const auto end = in.get<TunnelEnd>();
        const auto seen = in.get<base::TimePoint>();
        const base::MacAddr mac = mac_of_word(word);
        in.require(mac_word(mac) == word && (mac[0] & 1) == 0 && mac != kFloodMac &&
                       why_no_end(end, context_.local) == nullptr,
                   "no learned address");
        TunnelEnd before;
        if (in.ok() && learns_ && written_locked(mac) == nullptr)
            (void)learn_locked(word, end, seen, before);
    }
    // Last, for nothing of that was learned here.
    base::load_counters(in, counters_);
    in.end();
}

std::size_t Fdb::known_ends() {
    const std::lock_guard lock(mutex_);
    return derived_.known.size();
}

std::vector<Fdb::Row> Fdb::rows() {
    std::vector<Row> rows;
    {
        const std::lock_guard change(change_);
        for (const TunnelEnd& end : remotes_) rows.push_back({kFloodMac, end, Origin::kOption, {}});
        const auto take = [&](Origin origin) {
            return [&rows, origin](const base::MacAddr& mac, const TunnelEnd& end) {
                rows.push_back({mac, end, origin, {}});
            };
        };
        control_.visit(take(Origin::kControl));
        file_.visit(take(Origin::kFile));
    }
    // No memory is asked for under the lock: there are no more than these.
    rows.reserve(rows.size() + kMaxLearned);
    const std::size_t buckets = learned_.bucket_count();
    for (std::size_t bucket = 0; bucket < buckets; bucket += kSlice) {
        const std::lock_guard lock(mutex_);
        const base::TimePoint now = clock_.now();
        for (std::size_t i = bucket; i < std::min(bucket + kSlice, buckets); ++i) {
            for (auto at = learned_.begin(i); at != learned_.end(i); ++at) {
                base::count_work(1);
                const auto& [word, entry] = *at;
                if (now - entry.seen <= kAge && rows.size() < rows.capacity())
                    rows.push_back(
                        {mac_of_word(word), entry.end, Origin::kLearned, now - entry.seen});
            }
        }
    }
    std::ranges::stable_sort(rows, [](const Row& one, const Row& other) {
        return std::tie(one.mac, one.end.address, one.end.port, one.origin) <
               std::tie(other.mac, other.end.address, other.end.port, other.origin);
    });
    return rows;
}

}  // namespace openmana::fabric
