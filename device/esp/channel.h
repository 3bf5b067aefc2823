// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/once_per.h"
#include "base/result.h"
#include "base/state.h"
#include "esp/counters.h"
#include "esp/derive.h"
#include "esp/key_ring.h"
#include "esp/receiver.h"
#include "esp/sender.h"

namespace openmana::esp {

/// What is encrypted between two hosts, both ways. There is no handshake; but a host that gets
/// packets it cannot take, because it was started anew, or the path was broken when their SA began,
/// or their sender started anew within a second, begins an SA of its own and says so, and whoever
/// hears of a new SA does the same unless his own is new. Any thread.
class Channel {
public:
    struct Config {
        std::string name;  ///< in log lines
        Flow flow;         ///< of what is sent
        Sender::Limits limits;
    };
    /// An SA that is younger is new enough, whoever asks.
    static constexpr base::Duration kNew = std::chrono::seconds(10);
    static constexpr base::Duration kJustBegun = std::chrono::seconds(1);
    static constexpr base::Duration kNoticeInterval = std::chrono::seconds(1);
    static constexpr base::Duration kQuiet = std::chrono::minutes(1);

    /// Clocks and counters outlive it. The first in a process makes OpenSSL ready, which takes
    /// files and system calls that it does not need later.
    static base::Result<std::unique_ptr<Channel>> create(const base::Clock& clock,
                                                         const base::Calendar& calendar,
                                                         std::shared_ptr<const KeyStore> keys,
                                                         Config config, EspCounters& counters);

    /// For so many packets; nothing, counted, if they cannot be sent.
    [[nodiscard]] std::optional<SealBatch> begin(std::uint32_t packets);
    /// Decrypts packets where they are. Those without a frame are not for the caller: their payload
    /// is empty.
    void open(std::span<const std::span<std::byte>> packets, std::span<Opened> results);
    /// If the other end has to learn of an SA, a packet that says so: its size, else 0. `out` has
    /// room for kSmallestPacket. To be asked at the start and after each `open`.
    std::size_t notice(std::byte* out);
    /// The next packet begins a new SA, unless the one there is has just begun: of two that follow
    /// each other at once the other end might hear of the second first.
    void rekey() { sender_.rekey(kJustBegun); }
    /// Forgets what is not in the key store any more; else the next packet each way has it so.
    void drop_old_keys();
    /// The SAs of both ways (Sender, Receiver).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    [[nodiscard]] const Receiver& receiver() const { return *receiver_; }

private:
    Channel(const base::Clock& clock, const base::Calendar& calendar,
            std::shared_ptr<const KeyStore> keys, Config config, EspCounters& counters,
            std::unique_ptr<Receiver> receiver);
    void count(const Opened& result);
    /// At most one line a minute for each kind.
    [[nodiscard]] bool may_warn(Verdict verdict);

    const base::Clock& clock_;
    const Config config_;
    EspCounters& counters_;
    Sender sender_;
    const std::unique_ptr<Receiver> receiver_;
    std::array<base::OncePer, 6> lines_{base::OncePer(kQuiet), base::OncePer(kQuiet),
                                        base::OncePer(kQuiet), base::OncePer(kQuiet),
                                        base::OncePer(kQuiet), base::OncePer(kQuiet)};
    base::OncePer notices_{kNoticeInterval};
    std::atomic<bool> notice_wanted_{true};  // tells of itself alone, so relaxed
};

}  // namespace openmana::esp
