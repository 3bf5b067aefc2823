// SPDX-License-Identifier: Apache-2.0
#include "esp/sender.h"

#include <algorithm>
#include <array>

#include "base/endian.h"
#include "base/log.h"
#include "base/random_seed.h"

namespace openmana::esp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// RFC 4303 2.4: padding counts up from 1.
constexpr std::array<std::byte, 3> kPadding = {std::byte{1}, std::byte{2}, std::byte{3}};

}  // namespace

std::size_t SealBatch::seal(std::span<const std::span<const std::byte>> parts,
                            NextHeader next_header, std::byte* out) {
    if (left_ == 0) return 0;
    std::size_t payload = 0;
    for (const auto part : parts) payload += part.size();
    const std::size_t size = sealed_size(payload);
    if (size > kMaxPacket) return 0;
    --left_;
    const std::uint32_t number = next_++;
    base::store_be(out + kSpiAt, sa_->spi().value());
    base::store_be(out + kSequenceAt, number);
    base::store_be(out + kIvAt, sa_->iv_high_);
    base::store_be(out + kIvAt + 4, number);
    std::array<std::byte, kPadding.size() + kTrailerBytes> trailer;
    const std::size_t padding = padding_of(payload);
    std::copy_n(kPadding.begin(), padding, trailer.begin());
    trailer[padding] = static_cast<std::byte>(padding);
    trailer[padding + 1] = static_cast<std::byte>(next_header);
    if (!hold_.gcm().seal(parts, std::span(trailer).first(padding + kTrailerBytes), out)) return 0;
    sa_->bytes_.fetch_add(size, std::memory_order_relaxed);
    return size;
}

bool Sender::due_locked(base::TimePoint now, std::uint32_t packets) const {
    return sa_ == nullptr || asked_ || now - sa_->since_ >= limits_.rekey ||
           sa_->packets_ + packets > limits_.packets ||
           sa_->bytes_.load(std::memory_order_relaxed) >= limits_.bytes ||
           sa_->psk() != ring_->id(0);
}

/// Where another cannot begin yet, the one there is goes on if its key is still known and it has
/// numbers.
bool Sender::usable_locked(std::uint32_t packets) const {
    return sa_ != nullptr && ring_->has(sa_->psk()) && sa_->packets_ + packets <= kMaxPackets;
}

void Sender::start_sa_locked(base::TimePoint now) {
    const base::Duration time = calendar_.now();
    const std::int64_t second = std::chrono::duration_cast<seconds>(time).count();
    if (second < kFirstSpi || second > UINT32_MAX - kMaxAhead) return;
    // Of SPIs that are this far ahead a peer whose clock is right took none.
    const bool set_back = last_.value() > second + kSetBack;
    const Spi spi(std::max(static_cast<std::uint32_t>(second), set_back ? 0 : last_.value() + 1));
    if (spi.value() > second + kMaxAhead) return;
    const auto seed = base::random_seed();
    if (!seed) return;
    const base::Duration age = time - seconds(spi.value()) + seconds(kMaxAhead);
    const auto first = static_cast<std::uint32_t>(
        1 + std::chrono::duration_cast<milliseconds>(age).count() * kNumbersPerMillisecond);
    auto sa =
        std::make_shared<OutboundSa>(spi, ring_->id(0), first, static_cast<std::uint32_t>(*seed));
    if (!derive(ring_->key(0), spi, flow_, sa->key())) return;
    sa->since_ = now;
    sa_ = std::move(sa);
    last_ = spi;
    asked_ = false;
    rekeys_.add();
}

std::shared_ptr<const KeyRing> Sender::take_ring_locked() {
    const auto generation = keys_->generation();
    if (ring_ && generation == generation_) return nullptr;
    generation_ = generation;
    return std::exchange(ring_, keys_->ring());
}

void Sender::drop_old_keys() {
    std::shared_ptr<const KeyRing> ring_before;  // the ends of these are outside the lock
    std::shared_ptr<OutboundSa> before;
    const std::lock_guard lock(mutex_);
    ring_before = take_ring_locked();
    if (sa_ != nullptr && !ring_->has(sa_->psk())) before = std::exchange(sa_, nullptr);
}

std::optional<SealBatch> Sender::begin(std::uint32_t packets) {
    std::shared_ptr<OutboundSa> sa;
    std::shared_ptr<const KeyRing> ring_before;  // the ends of these are outside the lock
    std::shared_ptr<OutboundSa> before;
    std::uint32_t first = 0;
    std::int64_t set_back = 0;
    {
        const std::lock_guard lock(mutex_);
        ring_before = take_ring_locked();
        const base::TimePoint now = clock_.now();
        if (due_locked(now, packets)) {
            before = sa_;
            const std::int64_t last = last_.value();
            start_sa_locked(now);
            set_back = last - last_.value();
        }
        if (!usable_locked(packets)) return std::nullopt;
        sa = sa_;
        first = sa->first_ + static_cast<std::uint32_t>(sa->packets_);
        sa->packets_ += packets;
    }
    if (set_back > 0)
        OM_WARN("esp clock: uplink={} set_back_s={} reason=\"SAs begin again from this time\"",
                name_, set_back);
    auto hold = sa->lanes_.take(sa->key(), Gcm::Use::kSeal);
    if (!hold) return std::nullopt;
    return SealBatch(std::move(sa), std::move(hold), first, packets);
}

void Sender::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out.begin("ESPS", 1);
    out(last_, asked_);
    std::optional<SaMark> mark;
    if (sa_ != nullptr)
        if (const auto known = mark_of(sa_->key_, sa_->spi(), flow_)) mark = *known;
    out(mark.has_value());
    // Its age may be more than what times of a state can be.
    if (mark)
        out(sa_->spi(), *mark, sa_->first_,
            static_cast<std::int64_t>((clock_.now() - sa_->since_).count()), sa_->packets_,
            sa_->bytes_);
    out.end();
}

void Sender::load(base::StateReader& in) {
    const std::lock_guard lock(mutex_);
    in.begin("ESPS", 1);
    in(last_, asked_);
    if (in.get<bool>()) {
        const auto spi = in.get<Spi>();
        const auto mark = in.get<SaMark>();
        const auto first = in.get<std::uint32_t>();
        const auto age = in.get<std::int64_t>();
        const auto packets = in.get<std::uint64_t>();
        const auto bytes = in.get<std::uint64_t>();
        in.require(spi <= last_ && age >= 0 && first != 0 && packets <= kMaxPackets &&
                       first + packets <= UINT32_MAX,
                   "no SA of a sender");
        (void)take_ring_locked();
        const auto seed = base::random_seed();
        SaKey key;
        const auto psk = in.ok() && seed ? find_psk(*ring_, mark, spi, flow_, key) : std::nullopt;
        // Without it the next packet begins an SA.
        if (psk) {
            sa_ = std::make_shared<OutboundSa>(spi, *psk, first, static_cast<std::uint32_t>(*seed));
            std::ranges::copy(key.bytes(), sa_->key_.bytes().begin());
            sa_->since_ = clock_.now() - base::Duration(age);
            sa_->packets_ = packets;
            sa_->bytes_.store(bytes, std::memory_order_relaxed);
        }
    }
    in.end();
}

void Sender::rekey(base::Duration older_than) {
    const std::lock_guard lock(mutex_);
    asked_ = asked_ || (sa_ != nullptr && clock_.now() - sa_->since_ >= older_than);
}

}  // namespace openmana::esp
