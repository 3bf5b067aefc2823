// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/hold_meter.h"
#include "base/state.h"
#include "esp/derive.h"
#include "esp/format.h"
#include "esp/key_ring.h"
#include "esp/lanes.h"

namespace openmana::esp {

/// An SA of what this host sends: a key, and the sequence numbers that went out with it.
class OutboundSa {
public:
    OutboundSa(Spi spi, PskId psk, std::uint32_t first, std::uint32_t iv_high)
        : spi_(spi), psk_(psk), first_(first), iv_high_(iv_high) {}
    [[nodiscard]] SaKey& key() { return key_; }
    [[nodiscard]] Spi spi() const { return spi_; }
    [[nodiscard]] PskId psk() const { return psk_; }

private:
    friend class Sender;
    friend class SealBatch;
    const Spi spi_;
    const PskId psk_;
    SaKey key_;
    const std::uint32_t first_;
    const std::uint32_t iv_high_;
    base::TimePoint since_{};
    std::uint64_t packets_ = 0;            // under the sender's lock
    std::atomic<std::uint64_t> bytes_{0};  // only counted: relaxed
    Lanes<16> lanes_;
};

/// Sequence numbers of an SA and a cipher, for the packets that one thread sends now.
class SealBatch {
public:
    /// Makes a packet of the parts in `out`, which has room for sealed_size(their bytes). Its size;
    /// 0 if it could not be made, or as many as were asked for are made.
    std::size_t seal(std::span<const std::span<const std::byte>> parts, NextHeader next_header,
                     std::byte* out);
    [[nodiscard]] Spi spi() const { return sa_->spi(); }

private:
    friend class Sender;
    SealBatch(std::shared_ptr<OutboundSa> sa, Lanes<16>::Hold hold, std::uint32_t first,
              std::uint32_t count)
        : sa_(std::move(sa)), hold_(std::move(hold)), next_(first), left_(count) {}
    std::shared_ptr<OutboundSa> sa_;  // before the hold, which is of it
    Lanes<16>::Hold hold_;
    std::uint32_t next_;
    std::uint32_t left_;
};

/// One direction of a tunnel at its sender. Any thread.
///
/// SAs follow each other: each has the second from which it is used as its SPI, or the next higher
/// one if that one is taken, and keys that follow from it. So a sender that starts anew has another
/// SA without a word to its peer. One that starts anew within the same second goes on with the same
/// keys: the first sequence number grows by the millisecond, so that none comes twice, and the IV
/// is the sequence number behind 32 bits of chance, so that no IV does, even if the clock was set
/// back. So it is, too, where a sender whose clock was set back begins with an SPI that it had.
class Sender {
public:
    struct Limits {
        base::Duration rekey = std::chrono::hours(1);
        /// Packets and bytes of an SA. With these GCM's bounds are some way off (an attacker's
        /// advantage of 2^-50), and sequence numbers do not wrap.
        std::uint64_t packets = std::uint64_t{1} << 30;
        std::uint64_t bytes = std::uint64_t{1} << 42;
    };
    /// SPIs are at most this much later than the time: who asks for more SAs waits.
    static constexpr std::uint32_t kMaxAhead = 2;
    /// A last SPI that is more than this later than the time, in seconds, is of a clock that was
    /// ahead and has been set right: SPIs begin again from the time.
    static constexpr std::int64_t kSetBack = 60;
    /// Numbers that a sender may have used before it started anew, in a millisecond.
    static constexpr std::uint32_t kNumbersPerMillisecond = 1U << 17;
    /// No SA has more packets, whatever happens.
    static constexpr std::uint64_t kMaxPackets = std::uint64_t{1} << 31;

    /// `name` is for log lines, `rekeys` counts SAs. All that is referred to outlives it.
    Sender(const base::Clock& clock, const base::Calendar& calendar,
           std::shared_ptr<const KeyStore> keys, const Flow& flow, const Limits& limits,
           std::string name, base::Counter& rekeys)
        : clock_(clock),
          calendar_(calendar),
          keys_(std::move(keys)),
          flow_(flow),
          limits_(limits),
          name_(std::move(name)),
          rekeys_(rekeys) {}

    /// For so many packets. Nothing if there can be no SA: the clock is not set, or was set back by
    /// less than kSetBack and the SA there is may no longer be used.
    [[nodiscard]] std::optional<SealBatch> begin(std::uint32_t packets);
    /// The next packet begins another SA, if the one there is was begun that long ago.
    void rekey(base::Duration older_than);
    void drop_old_keys();
    /// The SA that there is, so that another process of this host goes on with its numbers: none
    /// may be sent here any more then. Not its key, which follows from the key file.
    void save(base::StateWriter& out) const;
    /// Into one that has sent nothing. Its IVs are others, behind other bits of chance: so none
    /// comes twice, even if the other process went on after all.
    void load(base::StateReader& in);

private:
    /// The ring that it replaces, whose end is outside the lock.
    std::shared_ptr<const KeyRing> take_ring_locked();
    void start_sa_locked(base::TimePoint now);
    [[nodiscard]] bool due_locked(base::TimePoint now, std::uint32_t packets) const;
    [[nodiscard]] bool usable_locked(std::uint32_t packets) const;

    const base::Clock& clock_;
    const base::Calendar& calendar_;
    const std::shared_ptr<const KeyStore> keys_;
    const Flow flow_;
    const Limits limits_;
    const std::string name_;
    base::Counter& rekeys_;
    mutable base::SharedMutex mutex_{"esp sender"};  // protects all below
    std::shared_ptr<const KeyRing> ring_;
    std::uint64_t generation_ = 0;
    std::shared_ptr<OutboundSa> sa_;
    Spi last_{};
    bool asked_ = false;
};

}  // namespace openmana::esp
