// SPDX-License-Identifier: Apache-2.0
// What somebody on the path between two hosts can do with encrypted packets: change, cut, repeat,
// keep and make them up, also as one who has an old key, while the hosts rotate, start anew and
// have their key files changed. What comes must be what the other host sent, once.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "esp/channel.h"
#include "fuzz.h"

using namespace openmana;

namespace {

constexpr std::size_t kMaxKept = 64;

struct Steady final : base::Clock {
    base::TimePoint time{std::chrono::hours(5)};
    [[nodiscard]] base::TimePoint now() const override { return time; }
};
struct Date final : base::Calendar {
    explicit Date(const Steady& steady) : clock(steady) {}
    const Steady& clock;
    base::Duration offset = std::chrono::seconds(1764000000);
    [[nodiscard]] base::Duration now() const override {
        return clock.now().time_since_epoch() + offset;
    }
};

esp::Endpoint end(std::uint8_t number) {
    return {{192, 0, 2, number}, 4500, false};
}
esp::Flow flow_of(std::uint8_t sender) {
    return {end(sender), end(static_cast<std::uint8_t>(3 - sender))};
}
std::string key_text(char digit) {
    return std::string(2 * esp::kPskBytes, digit) + "\n";
}
/// The digits of keys that a host may have; that of the attacker is another.
constexpr char kDigits[] = {'1', '2', '3'};
constexpr char kAttacker = '9';

std::shared_ptr<const esp::KeyRing> ring_of(const std::string& text, const esp::KeyRing* before) {
    auto ring = esp::KeyRing::parse(text, before);
    fuzz::require(ring.has_value(), "keys");
    return *ring;
}

struct Host {
    Host(const Steady& steady, std::uint8_t which) : clock(steady), date(steady), number(which) {
        start();
    }
    void start() {
        counters = std::make_unique<esp::EspCounters>();
        auto made =
            esp::Channel::create(clock, date, keys, {"fuzz", flow_of(number), {}}, *counters);
        fuzz::require(made.has_value(), "channel");
        channel = std::move(*made);
    }
    const Steady& clock;
    Date date;
    const std::uint8_t number;
    std::shared_ptr<esp::KeyStore> keys =
        std::make_shared<esp::KeyStore>(ring_of(key_text(kDigits[0]), nullptr));
    std::unique_ptr<esp::EspCounters> counters;
    std::unique_ptr<esp::Channel> channel;
    std::uint32_t sent = 0;
    std::set<std::uint32_t> came;  // numbers of the other's messages
};

using Packet = std::vector<std::byte>;

class Path {
public:
    void send(test::Choices& choices, Host& from) {
        // Its number and who sent it, and some more.
        Packet message(8 + choices.below(100));
        base::store_be(message.data(), from.sent++);
        base::store_be(message.data() + 4, std::uint32_t{from.number});
        Packet packet(esp::sealed_size(message.size()));
        auto batch = from.channel->begin(1);
        if (!batch) return;
        const std::span<const std::byte> parts[] = {message};
        const std::size_t size = batch->seal(parts, esp::NextHeader::kEthernet, packet.data());
        fuzz::require(size == packet.size(), "size of a packet");
        keep(choices, std::move(packet));
    }
    void notice(test::Choices& choices, Host& from) {
        Packet packet(esp::kSmallestPacket);
        if (from.channel->notice(packet.data()) != 0) keep(choices, std::move(packet));
    }
    /// Up to four that were seen, as they are or not, in one batch.
    void deliver(test::Choices& choices, Host& to, const Host& other) {
        std::vector<Packet> packets;
        for (std::uint64_t n = 1 + choices.below(4); n > 0; --n) packets.push_back(any(choices));
        std::vector<std::span<std::byte>> spans(packets.begin(), packets.end());
        std::vector<esp::Opened> results(packets.size());
        to.channel->open(spans, results);
        for (std::size_t i = 0; i < results.size(); ++i) {
            const esp::Opened& opened = results[i];
            fuzz::require(opened.verdict == esp::Verdict::kOpened || opened.payload.empty(),
                          "payload of a packet that was refused");
            if (opened.payload.empty()) continue;
            fuzz::require(opened.payload.data() >= packets[i].data() &&
                              opened.payload.size() <= packets[i].size(),
                          "payload outside its packet");
            fuzz::require(opened.payload.size() >= 8, "a message that nobody sent");
            const auto number = base::load_be<std::uint32_t>(opened.payload.data());
            const auto sender = base::load_be<std::uint32_t>(opened.payload.data() + 4);
            fuzz::require(sender == other.number && number < other.sent,
                          "a message that the other end did not send");
            fuzz::require(to.came.insert(number).second, "a message that came twice");
        }
    }

private:
    void keep(test::Choices& choices, Packet packet) {
        if (seen_.size() < kMaxKept)
            seen_.push_back(std::move(packet));
        else
            choices.pick(seen_) = std::move(packet);
    }
    Packet any(test::Choices& choices) {
        if (seen_.empty() || choices.chance(16)) return choices.bytes(choices.below(100));
        Packet packet = seen_[seen_.size() - 1 - choices.below(seen_.size())];
        switch (choices.below(8)) {
            case 1:
                packet[choices.below(packet.size())] ^= static_cast<std::byte>(choices.byte());
                break;
            case 2:
                packet.resize(choices.below(packet.size() + 40));
                break;
            case 3:
                base::store_be(packet.data(), static_cast<std::uint32_t>(choices.number()));
                break;
            case 4:
                base::store_be(packet.data(),
                               base::load_be<std::uint32_t>(packet.data()) + choices.byte() - 128);
                break;
            case 5:
                base::store_be(packet.data() + 4, static_cast<std::uint32_t>(choices.number()));
                break;
            case 6:
                seal_as_attacker(choices, packet);
                break;
            default:
                break;
        }
        return packet;
    }
    /// With a key of his own, or one that is in no key file any more.
    static void seal_as_attacker(test::Choices& choices, Packet& packet) {
        esp::SaKey key;
        esp::Gcm gcm;
        const auto ring = ring_of(key_text(kAttacker), nullptr);
        const auto sender = static_cast<std::uint8_t>(1 + choices.below(2));
        fuzz::require(esp::derive(ring->key(0), esp::spi_of(packet.data()), flow_of(sender), key)
                              .has_value() &&
                          gcm.set_key(key, esp::Gcm::Use::kSeal),
                      "keys of the attacker");
        const Packet inside = choices.bytes(4 * (1 + choices.below(16)));
        packet.resize(esp::kHeaderBytes + inside.size() + esp::kIcvBytes);
        fuzz::require(gcm.seal({}, inside, packet.data()), "seal");
    }
    std::vector<Packet> seen_;
};

/// Any text as a key file: it is taken or it is not.
void read_keys(test::Choices& choices) {
    static constexpr char kText[] = "0123456789abcdefABCDEF \t\r\n\n\n#x";
    std::string text;
    for (std::uint64_t n = choices.below(700); n > 0; --n)
        text += choices.chance(8) ? static_cast<char>(choices.byte())
                                  : kText[choices.below(sizeof kText - 1)];
    const auto ring = esp::KeyRing::parse(text, nullptr);
    fuzz::require(!ring || ((*ring)->size() >= 1 && (*ring)->size() <= esp::KeyRing::kMaxKeys),
                  "number of keys");
}

void change_keys(test::Choices& choices, Host& host) {
    std::string text;
    const std::uint64_t first = choices.below(std::size(kDigits));
    for (std::uint64_t i = 0; i <= choices.below(std::size(kDigits)) && i < std::size(kDigits); ++i)
        text += key_text(kDigits[(first + i) % std::size(kDigits)]);
    const auto before = host.keys->ring();
    host.keys->replace(ring_of(text, before.get()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    test::InputChoices choices({data, size});
    Steady steady;
    Host hosts[] = {Host(steady, 1), Host(steady, 2)};
    Path path;
    for (unsigned step = 0; step < fuzz::kMaxSteps && choices.more(); ++step) {
        const std::uint64_t which = choices.below(2);
        Host& host = hosts[which];
        Host& other = hosts[1 - which];
        switch (choices.below(10)) {
            case 0:
            case 1:
                path.send(choices, host);
                break;
            case 2:
            case 3:
            case 4:
                path.deliver(choices, host, other);
                path.notice(choices, host);
                break;
            case 5:
                steady.time += std::chrono::milliseconds(choices.number() % 200000);
                break;
            case 6:
                host.channel->rekey();
                break;
            case 7:
                change_keys(choices, host);
                break;
            case 8:
                // What came before it started may come once more, if its SA is a new one still.
                if (choices.chance(64)) {
                    steady.time += std::chrono::seconds(2 * esp::Receiver::kSkew + 4);
                    host.start();
                }
                break;
            default:
                read_keys(choices);
                break;
        }
    }
    return 0;
}
