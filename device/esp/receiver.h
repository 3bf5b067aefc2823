// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hold_meter.h"
#include "base/result.h"
#include "base/state.h"
#include "esp/candidates.h"
#include "esp/derive.h"
#include "esp/format.h"
#include "esp/key_ring.h"
#include "esp/lanes.h"
#include "esp/replay_window.h"

namespace openmana::esp {

/// What a receiver makes of a packet.
enum class Verdict : std::uint8_t {
    kOpened,
    kMalformed,  ///< too short, cut, or not what ESP is inside
    kForged,     ///< encrypted with another key, or changed on its way
    kReplayed,   ///< came already, or so late that nobody knows
    kOld,        ///< of an SA that is over
    kUnknown,    ///< of an SA that cannot have begun just now
};

struct Opened {
    Verdict verdict = Verdict::kMalformed;
    NextHeader next_header = NextHeader::kNone;
    std::span<std::byte> payload;  ///< in the packet; empty unless opened
    std::int64_t ahead = 0;  ///< seconds, of an unknown SA: when it began less what time it is
};

/// One direction of a tunnel at its receiver. Any thread.
///
/// An SA that it does not know it takes up if it begins about now by its clock, is newer than all
/// it knew, and a packet proves that the sender has a pre-shared key. The ones before are over a
/// while later. If the newest is one that could not begin yet the clock was set back: what comes
/// next need not be newer.
class Receiver {
public:
    /// Clocks of two hosts may differ by this, in seconds.
    static constexpr std::int64_t kSkew = 60;
    /// How long an SA is good once there is a newer one: what was under way comes.
    static constexpr base::Duration kOverlap = std::chrono::seconds(30);
    /// SAs at a time; older ones are over at once.
    static constexpr std::size_t kMaxSas = 8;
    /// A thread of the sender that is interrupted in the middle of a batch sends numbers that
    /// others have overtaken: for as long as it takes to send so many packets nothing is lost.
    using Window = ReplayWindow<65536>;

    /// `name` is for log lines.
    static base::Result<std::unique_ptr<Receiver>> create(const base::Clock& clock,
                                                          const base::Calendar& calendar,
                                                          std::shared_ptr<const KeyStore> keys,
                                                          const Flow& flow, std::string name);

    /// Decrypts packets where they are; of each packet whatever is not its payload is undefined
    /// then. True if one of them began an SA.
    bool open(std::span<const std::span<std::byte>> packets, std::span<Opened> results);
    void drop_old_keys() { (void)current(); }
    /// The SAs of the peer, and what came of them, for another process of this host.
    void save(base::StateWriter& out) const;
    /// Into one to which nothing has come.
    void load(base::StateReader& in);
    /// Keys that were derived to see whether somebody has them.
    [[nodiscard]] std::uint64_t derivations() const;

private:
    struct Sa {
        Sa(Spi which, PskId from) : spi(which), psk(from) {}
        const Spi spi;
        const PskId psk;
        SaKey key;
        Lanes<4> lanes;
        std::mutex mutex;  // of `window`, for `accept`
        Window window;
    };
    struct Entry {
        std::shared_ptr<Sa> sa;
        std::optional<base::TimePoint> until;
    };
    using Table = std::vector<Entry>;  // the newest first

    Receiver(const base::Clock& clock, const base::Calendar& calendar,
             std::shared_ptr<const KeyStore> keys, const Flow& flow, std::string name,
             Candidates candidates);
    [[nodiscard]] std::shared_ptr<const Table> current();
    void drop_over_locked(base::TimePoint now);
    void forgive_set_back();
    /// Nothing with a verdict in `refused`.
    std::shared_ptr<Sa> take_up(std::span<const std::byte> packet, Opened& refused);
    void adopt_locked(std::shared_ptr<Sa> sa);
    std::size_t open_run(Sa& sa, std::span<const std::span<std::byte>> packets,
                         std::span<Opened> results);

    const base::Clock& clock_;
    const base::Calendar& calendar_;
    const std::shared_ptr<const KeyStore> keys_;
    const Flow flow_;
    const std::string name_;
    mutable base::SharedMutex mutex_{"esp receiver"};  // protects all below
    std::shared_ptr<const Table> table_;
    std::shared_ptr<const KeyRing> ring_;
    std::uint64_t generation_ = 0;
    Spi newest_{};
    Candidates candidates_;
    Gcm trial_;
    std::vector<std::byte> scratch_;
};

}  // namespace openmana::esp
