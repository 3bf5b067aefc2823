// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/clock.h"
#include "esp/channel.h"

namespace openmana::esp {

inline Endpoint end4(std::uint8_t last, std::uint16_t port) {
    return {{192, 0, 2, last}, port, false};
}
inline Endpoint end6(std::uint8_t last, std::uint16_t port) {
    return {{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}, port, true};
}

/// Passes for all hosts alike.
struct TestClock final : base::Clock {
    base::TimePoint time{std::chrono::hours(5)};
    [[nodiscard]] base::TimePoint now() const override { return time; }
};

/// A host's idea of the date, which may be wrong.
struct TestDate final : base::Calendar {
    explicit TestDate(const TestClock& steady) : clock(steady) {}
    const TestClock& clock;
    base::Duration offset = std::chrono::seconds(1764000000);
    [[nodiscard]] base::Duration now() const override {
        return clock.now().time_since_epoch() + offset;
    }
};

constexpr const char* kKey1 = "1111111111111111111111111111111111111111111111111111111111111111\n";
constexpr const char* kKey2 = "2222222222222222222222222222222222222222222222222222222222222222\n";
constexpr const char* kKey3 = "3333333333333333333333333333333333333333333333333333333333333333\n";

inline std::shared_ptr<const KeyRing> ring_of(const std::string& text,
                                              const KeyRing* before = nullptr) {
    auto ring = KeyRing::parse(text, before);
    EXPECT_TRUE(ring) << ring.error().text;
    return *ring;
}

using Packet = std::vector<std::byte>;

/// One of two hosts with a channel to the other.
class Host {
public:
    Host(const TestClock& clock, std::uint8_t number, Sender::Limits limits = {})
        : date(clock),
          keys(std::make_shared<KeyStore>(ring_of(kKey1))),
          clock_(clock),
          flow_{end4(number, 4500), end4(static_cast<std::uint8_t>(3 - number), 4500)},
          limits_(limits) {
        start();
    }
    /// As if the process began anew.
    void start() {
        counters = std::make_unique<EspCounters>();
        auto made = Channel::create(clock_, date, keys, {"test", flow_, limits_}, *counters);
        ASSERT_TRUE(made) << made.error().text;
        channel = std::move(*made);
    }
    void set_keys(const std::string& text) {
        const auto before = keys->ring();
        keys->replace(ring_of(text, before.get()));
    }
    /// A packet with the text in it; empty if none can be sent.
    [[nodiscard]] Packet seal(const std::string& text,
                              NextHeader next_header = NextHeader::kEthernet) {
        const auto payload = std::as_bytes(std::span(text));
        Packet packet(sealed_size(payload.size()));
        auto batch = channel->begin(1);
        if (!batch) return {};
        const std::span<const std::byte> parts[] = {payload};
        packet.resize(batch->seal(parts, next_header, packet.data()));
        return packet;
    }
    [[nodiscard]] Packet notice() {
        Packet packet(kSmallestPacket);
        packet.resize(channel->notice(packet.data()));
        return packet;
    }
    Opened open(Packet& packet) {
        const std::span<std::byte> one[] = {packet};
        Opened result[1];
        channel->open(one, result);
        return result[0];
    }
    /// Of a copy: the text, or what the verdict is.
    std::string take(Packet packet) {
        static constexpr const char* kNames[] = {"opened",   "malformed", "forged",
                                                 "replayed", "old",       "unknown"};
        const Opened opened = open(packet);
        if (opened.verdict != Verdict::kOpened)
            return std::string("(") + kNames[static_cast<std::size_t>(opened.verdict)] + ")";
        return {reinterpret_cast<const char*>(opened.payload.data()), opened.payload.size()};
    }

    TestDate date;
    std::shared_ptr<KeyStore> keys;
    std::unique_ptr<EspCounters> counters;
    std::unique_ptr<Channel> channel;

private:
    const TestClock& clock_;
    const Flow flow_;
    const Sender::Limits limits_;
};

}  // namespace openmana::esp
