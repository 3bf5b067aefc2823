// SPDX-License-Identifier: Apache-2.0
#include "esp/channel.h"

#include <utility>

#include "base/log.h"

namespace openmana::esp {
namespace {

const char* reason_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kMalformed:
            return "cut, or no ESP: does the other end encrypt?";
        case Verdict::kForged:
            return "another key, or changed on the way: compare the key files";
        case Verdict::kReplayed:
            return "came already, or very late: a replay, or a network that doubles";
        case Verdict::kOld:
            return "of an SA that is over: a replay, or the other end's clock was set back";
        case Verdict::kUnknown:
            return "of an SA that did not begin now: compare the clocks if this goes on";
        case Verdict::kOpened:
            break;
    }
    return "";
}

/// The other end may have sent it, and would be heard with another SA: one whose start anew in the
/// same second met a key that was changed, or numbers that came already.
bool may_be_lost(Verdict verdict) {
    return verdict != Verdict::kOpened && verdict != Verdict::kMalformed;
}

}  // namespace

base::Result<std::unique_ptr<Channel>> Channel::create(const base::Clock& clock,
                                                       const base::Calendar& calendar,
                                                       std::shared_ptr<const KeyStore> keys,
                                                       Config config, EspCounters& counters) {
    TRY(auto receiver,
        Receiver::create(clock, calendar, keys, config.flow.reversed(), config.name));
    {
        SaKey key;
        Gcm gcm;
        TRY_VOID(derive(keys->ring()->key(0), Spi(kFirstSpi), config.flow, key));
        if (!gcm.set_key(key, Gcm::Use::kSeal))
            return base::fail(base::ErrorCode::kUnsupported, "OpenSSL has no AES-256-GCM");
    }
    return std::unique_ptr<Channel>(new Channel(clock, calendar, std::move(keys), std::move(config),
                                                counters, std::move(receiver)));
}

Channel::Channel(const base::Clock& clock, const base::Calendar& calendar,
                 std::shared_ptr<const KeyStore> keys, Config config, EspCounters& counters,
                 std::unique_ptr<Receiver> receiver)
    : clock_(clock),
      config_(std::move(config)),
      counters_(counters),
      sender_(clock, calendar, std::move(keys), config_.flow, config_.limits, config_.name,
              counters.rekeys),
      receiver_(std::move(receiver)) {}

std::optional<SealBatch> Channel::begin(std::uint32_t packets) {
    auto batch = sender_.begin(packets);
    if (!batch) counters_.refused.add(packets);
    return batch;
}

void Channel::drop_old_keys() {
    sender_.drop_old_keys();
    receiver_->drop_old_keys();
}

bool Channel::may_warn(Verdict verdict) {
    return lines_[static_cast<std::size_t>(verdict)].due(clock_.now());
}

void Channel::count(const Opened& result) {
    switch (result.verdict) {
        case Verdict::kOpened:
            return;
        case Verdict::kMalformed:
            counters_.malformed.add();
            break;
        case Verdict::kForged:
            counters_.forged.add();
            break;
        case Verdict::kReplayed:
            counters_.replayed.add();
            break;
        case Verdict::kOld:
            counters_.old.add();
            break;
        case Verdict::kUnknown:
            counters_.unknown.add();
            break;
    }
    if (!may_warn(result.verdict)) return;
    if (result.verdict == Verdict::kUnknown)
        OM_WARN("esp drop: uplink={} ahead_s={} reason=\"{}\"", config_.name, result.ahead,
                reason_of(result.verdict));
    else
        OM_WARN("esp drop: uplink={} reason=\"{}\"", config_.name, reason_of(result.verdict));
}

void Channel::open(std::span<const std::span<std::byte>> packets, std::span<Opened> results) {
    const bool began = receiver_->open(packets, results);
    bool lost = false;
    for (Opened& result : results.first(packets.size())) {
        if (result.verdict != Verdict::kOpened) count(result);
        lost = lost || may_be_lost(result.verdict);
        if (result.next_header == NextHeader::kNone) result.payload = {};
    }
    if (began) {
        counters_.peer_rekeys.add();
        OM_DEBUG("esp sa: uplink={} by=peer", config_.name);
    }
    if (!began && !lost) return;
    sender_.rekey(kNew);
    if (lost) notice_wanted_.store(true, std::memory_order_relaxed);
}

std::size_t Channel::notice(std::byte* out) {
    if (!notice_wanted_.load(std::memory_order_relaxed)) return 0;
    if (!notices_.due(clock_.now())) return 0;
    notice_wanted_.store(false, std::memory_order_relaxed);
    auto batch = begin(1);
    if (!batch) return 0;
    counters_.notices.add();
    return batch->seal({}, NextHeader::kNone, out);
}

void Channel::save(base::StateWriter& out) const {
    sender_.save(out);
    receiver_->save(out);
    out(notice_wanted_);
}

void Channel::load(base::StateReader& in) {
    sender_.load(in);
    receiver_->load(in);
    in(notice_wanted_);
}

}  // namespace openmana::esp
