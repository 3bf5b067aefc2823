// SPDX-License-Identifier: Apache-2.0
#include "esp/receiver.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace openmana::esp {
namespace {

/// Seconds from the time until an SA begins.
std::int64_t ahead_of(Spi spi, base::Duration time) {
    return std::int64_t{spi.value()} -
           std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

bool well_formed(std::span<const std::byte> packet) {
    return packet.size() >= kSmallestPacket && packet.size() <= kMaxPacket &&
           (packet.size() - kSmallestPacket) % kAlignment == 0 &&
           spi_of(packet.data()).value() >= kFirstSpi;
}

/// What a packet that is authentic has inside.
Opened read_payload(std::span<std::byte> packet) {
    const auto inside = packet.subspan(kHeaderBytes, packet.size() - kHeaderBytes - kIcvBytes);
    const std::size_t end = inside.size() - kTrailerBytes;
    const auto padding = std::to_integer<std::size_t>(inside[end]);
    Opened result;
    if (padding > end) return result;
    for (std::size_t i = 0; i < padding; ++i)
        if (inside[end - padding + i] != static_cast<std::byte>(i + 1)) return result;
    result.verdict = Verdict::kOpened;
    result.next_header = static_cast<NextHeader>(inside[end + 1]);
    result.payload = inside.first(end - padding);
    return result;
}

}  // namespace

base::Result<std::unique_ptr<Receiver>> Receiver::create(const base::Clock& clock,
                                                         const base::Calendar& calendar,
                                                         std::shared_ptr<const KeyStore> keys,
                                                         const Flow& flow, std::string name) {
    TRY(auto candidates, Candidates::create());
    return std::unique_ptr<Receiver>(new Receiver(clock, calendar, std::move(keys), flow,
                                                  std::move(name), std::move(candidates)));
}

Receiver::Receiver(const base::Clock& clock, const base::Calendar& calendar,
                   std::shared_ptr<const KeyStore> keys, const Flow& flow, std::string name,
                   Candidates candidates)
    : clock_(clock),
      calendar_(calendar),
      keys_(std::move(keys)),
      flow_(flow),
      name_(std::move(name)),
      table_(std::make_shared<Table>()),
      candidates_(std::move(candidates)),
      scratch_(kMaxPacket) {}

std::uint64_t Receiver::derivations() const {
    const std::lock_guard lock(mutex_);
    return candidates_.derivations();
}

void Receiver::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out.begin("ESPR", 1);
    out(newest_);
    out.count(table_->size());
    for (const Entry& entry : *table_) {
        const std::lock_guard window(entry.sa->mutex);
        out(entry.sa->spi, mark_of(entry.sa->key, entry.sa->spi, flow_).value_or(SaMark{}),
            entry.until, entry.sa->window);
    }
    out.end();
}

/// One whose pre-shared key is not in the file any more is over.
void Receiver::load(base::StateReader& in) {
    const std::lock_guard lock(mutex_);
    in.begin("ESPR", 1);
    in(newest_);
    ring_ = keys_->ring();
    generation_ = keys_->generation();
    auto table = std::make_shared<Table>();
    std::size_t left = in.count();
    in.require(left <= kMaxSas, "too many SAs");
    for (; left > 0 && in.ok(); --left) {
        const auto spi = in.get<Spi>();
        const auto mark = in.get<SaMark>();
        const auto until = in.get<std::optional<base::TimePoint>>();
        SaKey key;
        const auto psk = in.ok() ? find_psk(*ring_, mark, spi, flow_, key) : std::nullopt;
        auto sa = std::make_shared<Sa>(spi, psk.value_or(PskId{}));
        in(sa->window);
        in.require(spi <= newest_, "no SA of a receiver");
        std::ranges::copy(key.bytes(), sa->key.bytes().begin());
        if (psk) table->push_back({std::move(sa), until});
    }
    if (in.ok()) table_ = std::move(table);
    in.end();
}

void Receiver::drop_over_locked(base::TimePoint now) {
    const auto over = [&](const Entry& entry) {
        return (entry.until && now >= *entry.until) || !ring_->has(entry.sa->psk);
    };
    if (std::ranges::none_of(*table_, over)) return;
    auto table = std::make_shared<Table>(*table_);
    std::erase_if(*table, over);
    table_ = std::move(table);
}

std::shared_ptr<const Receiver::Table> Receiver::current() {
    std::shared_ptr<const KeyRing> before;  // its end is outside the lock
    const std::lock_guard lock(mutex_);
    if (const auto generation = keys_->generation(); !ring_ || generation != generation_) {
        before = std::exchange(ring_, keys_->ring());
        generation_ = generation;
        candidates_.clear();
    }
    drop_over_locked(clock_.now());
    return table_;
}

void Receiver::adopt_locked(std::shared_ptr<Sa> sa) {
    newest_ = sa->spi;
    auto table = std::make_shared<Table>();
    table->push_back({std::move(sa), std::nullopt});
    const base::TimePoint until = clock_.now() + kOverlap;
    for (const Entry& entry : *table_)
        if (table->size() < kMaxSas)
            table->push_back({entry.sa, std::min(entry.until.value_or(until), until)});
    table_ = std::move(table);
}

void Receiver::forgive_set_back() {
    std::int64_t ahead = 0;
    {
        const std::lock_guard lock(mutex_);
        ahead = ahead_of(newest_, calendar_.now());
        if (ahead <= kSkew) return;
        newest_ = {};
    }
    OM_WARN(
        "esp clock: uplink={} newest_ahead_s={} reason=\"the clock was set back: SAs are taken "
        "from this time on\"",
        name_, ahead);
}

std::shared_ptr<Receiver::Sa> Receiver::take_up(std::span<const std::byte> packet,
                                                Opened& refused) {
    const Spi spi = spi_of(packet.data());
    const std::lock_guard lock(mutex_);
    // Another thread may have been faster.
    for (const Entry& entry : *table_)
        if (entry.sa->spi == spi) return entry.sa;
    if (spi <= newest_) {
        refused.verdict = Verdict::kOld;
        return nullptr;
    }
    refused.ahead = ahead_of(spi, calendar_.now());
    if (refused.ahead > kSkew || refused.ahead < -kSkew) {
        refused.verdict = Verdict::kUnknown;
        return nullptr;
    }
    refused.verdict = Verdict::kForged;
    for (std::size_t i = 0; i < ring_->size(); ++i) {
        SaKey key;
        // Not where it is: the next key needs it as it came.
        if (!candidates_.get(*ring_, i, spi, flow_, key) || !trial_.set_key(key, Gcm::Use::kOpen) ||
            !trial_.open(packet, scratch_.data()))
            continue;
        auto sa = std::make_shared<Sa>(spi, ring_->id(i));
        std::ranges::copy(key.bytes(), sa->key.bytes().begin());
        adopt_locked(sa);
        return sa;
    }
    return nullptr;
}

/// All packets of the SA that come behind each other: how many.
std::size_t Receiver::open_run(Sa& sa, std::span<const std::span<std::byte>> packets,
                               std::span<Opened> results) {
    auto hold = sa.lanes.take(sa.key, Gcm::Use::kOpen);
    std::size_t count = 0;
    for (; count < packets.size(); ++count) {
        const auto packet = packets[count];
        if (!well_formed(packet) || spi_of(packet.data()) != sa.spi) break;
        Opened& result = results[count];
        result = {};
        if (!sa.window.may_accept(sequence_of(packet.data())))
            result.verdict = Verdict::kReplayed;
        else if (!hold || !hold.gcm().open(packet, packet.data() + kHeaderBytes))
            result.verdict = Verdict::kForged;
        else
            result = read_payload(packet);
    }
    const std::lock_guard lock(sa.mutex);
    for (std::size_t i = 0; i < count; ++i)
        if (results[i].verdict == Verdict::kOpened &&
            !sa.window.accept(sequence_of(packets[i].data()))) {
            results[i] = {};
            results[i].verdict = Verdict::kReplayed;
        }
    return count;
}

bool Receiver::open(std::span<const std::span<std::byte>> packets, std::span<Opened> results) {
    bool began = false;
    std::shared_ptr<const Table> table = current();
    for (std::size_t at = 0; at < packets.size();) {
        results[at] = {};
        if (!well_formed(packets[at])) {
            ++at;
            continue;
        }
        const Spi spi = spi_of(packets[at].data());
        const auto found =
            std::ranges::find_if(*table, [&](const Entry& entry) { return entry.sa->spi == spi; });
        std::shared_ptr<Sa> sa;
        if (found != table->end()) {
            sa = found->sa;
        } else {
            forgive_set_back();
            sa = take_up(packets[at], results[at]);
            if (sa == nullptr) {
                ++at;
                continue;
            }
            began = true;
            table = current();
        }
        at += open_run(*sa, packets.subspan(at), results.subspan(at));
    }
    return began;
}

}  // namespace openmana::esp
