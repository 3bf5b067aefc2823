// SPDX-License-Identifier: Apache-2.0
// Two hosts, and what can go wrong between them.
#include "esp/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "esp_fixture.h"

namespace openmana::esp {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

class ChannelTest : public testing::Test {
protected:
    /// Both have heard of each other, and their SAs are no longer new.
    void meet() {
        ASSERT_EQ(b.take(a.notice()), "");
        ASSERT_EQ(a.take(b.notice()), "");
        ASSERT_EQ(b.take(a.seal("hello")), "hello");
        ASSERT_EQ(a.take(b.seal("hello")), "hello");
        pass(minutes(2));
    }
    void pass(base::Duration time) { clock.time += time; }
    /// What has to be said is said, both ways, until there is no more.
    void settle() {
        for (int i = 0; i < 4; ++i) {
            if (const Packet notice = a.notice(); !notice.empty()) (void)b.take(notice);
            if (const Packet notice = b.notice(); !notice.empty()) (void)a.take(notice);
            pass(seconds(1));
        }
    }
    TestClock clock;
    Host a{clock, 1};
    Host b{clock, 2};
};

TEST_F(ChannelTest, APayloadOfAnyLengthComes) {
    for (std::size_t size = 0; size < 300; ++size) {
        const std::string text(size, 'x');
        ASSERT_EQ(b.take(a.seal(text)), text);
    }
    const std::string longest(largest_payload(kMaxPacket), 'y');
    EXPECT_EQ(b.take(a.seal(longest)), longest);
    EXPECT_TRUE(a.seal(longest + "zzzz").empty());
}

TEST_F(ChannelTest, TheNextHeaderIsWhatTheSenderSaid) {
    Packet packet = a.seal("datagram", NextHeader::kUdp);
    EXPECT_EQ(b.open(packet).next_header, NextHeader::kUdp);
    // Of a packet that is for nobody there is nothing to see.
    EXPECT_EQ(b.take(a.seal("to fill the wire", NextHeader::kNone)), "");
}

TEST_F(ChannelTest, NoPacketIsLikeAnother) {
    std::set<std::string> ivs;
    for (int i = 0; i < 1000; ++i) {
        const Packet packet = a.seal("the same");
        EXPECT_TRUE(
            ivs.insert({reinterpret_cast<const char*>(packet.data()), kHeaderBytes}).second);
    }
}

TEST_F(ChannelTest, AHundredRotationsLoseNothing) {
    meet();
    base::Random random(1);
    std::vector<std::pair<std::string, Packet>> under_way;
    std::set<std::uint32_t> spis;
    unsigned sent = 0;
    unsigned came = 0;
    for (int rotation = 0; rotation < 100; ++rotation) {
        a.channel->rekey();
        for (int i = 0; i < 50; ++i) {
            const std::string text = "frame " + std::to_string(sent++);
            under_way.emplace_back(text, a.seal(text));
            spis.insert(spi_of(under_way.back().second.data()).value());
            pass(milliseconds(20));
            // Some are overtaken by others, of the next SA too.
            while (under_way.size() > 30) {
                const std::size_t which = random.below(under_way.size());
                ASSERT_EQ(b.take(under_way[which].second), under_way[which].first);
                under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
                ++came;
            }
        }
    }
    for (const auto& [text, packet] : under_way) ASSERT_EQ(b.take(packet), text);
    EXPECT_EQ(came + under_way.size(), sent);
    EXPECT_GE(spis.size(), 100U);
    // And that of the greeting.
    EXPECT_EQ(b.counters->peer_rekeys.value(), spis.size() + 1);
}

TEST_F(ChannelTest, AnSaEndsByTimePacketsAndBytes) {
    Host sender(clock, 1, {.rekey = minutes(1), .packets = 10, .bytes = 1000});
    const auto spi = [&](const std::string& text) {
        pass(seconds(1));
        const Packet packet = sender.seal(text);
        EXPECT_EQ(b.take(packet), text);
        return spi_of(packet.data());
    };
    const Spi first = spi("x");
    for (int i = 1; i < 10; ++i) EXPECT_EQ(spi("x"), first);
    const Spi second = spi("x");
    EXPECT_GT(second, first);
    EXPECT_EQ(spi(std::string(1000, 'x')), second);
    const Spi third = spi("x");
    EXPECT_GT(third, second);
    pass(minutes(1));
    EXPECT_GT(spi("x"), third);
    EXPECT_EQ(sender.counters->rekeys.value(), 4U);
}

TEST_F(ChannelTest, RotationsInOneSecondWaitForTheNext) {
    Host sender(clock, 1, {.packets = 1});
    Packet packet = sender.seal("x");
    const Spi first = spi_of(packet.data());
    std::set<std::uint32_t> spis;
    for (int i = 0; i < 10; ++i) {
        packet = sender.seal("x");
        spis.insert(spi_of(packet.data()).value());
        EXPECT_EQ(b.take(packet), "x");
    }
    EXPECT_EQ(*spis.rbegin(), first.value() + Sender::kMaxAhead);
    EXPECT_EQ(spis.size(), Sender::kMaxAhead);
    pass(seconds(1));
    EXPECT_EQ(spi_of(sender.seal("x").data()).value(), first.value() + Sender::kMaxAhead + 1);
}

TEST_F(ChannelTest, ARotationThatIsAskedForAfterAnotherIsThatOne) {
    meet();
    a.set_keys(std::string(kKey2) + kKey1);
    b.set_keys(std::string(kKey2) + kKey1);
    const Packet under_way = a.seal("x");
    a.channel->rekey();
    // Overtakes the one before, whose SA is still to be heard of.
    EXPECT_EQ(b.take(a.seal("y")), "y");
    EXPECT_EQ(b.take(under_way), "x");
    pass(seconds(1));
    a.channel->rekey();
    EXPECT_GT(spi_of(a.seal("z").data()), spi_of(under_way.data()));
}

TEST_F(ChannelTest, WhoHasAnotherKeyIsNotUnderstood) {
    a.set_keys(kKey2);
    EXPECT_EQ(b.take(a.seal("x")), "(forged)");
    EXPECT_EQ(b.counters->forged.value(), 1U);
    // The second key of the file is tried too.
    b.set_keys(std::string(kKey1) + kKey2);
    EXPECT_EQ(b.take(a.seal("y")), "y");
}

TEST_F(ChannelTest, AKeyThatIsPutRightOpensTheSaThatItDidNot) {
    b.set_keys(kKey2);
    EXPECT_EQ(b.take(a.seal("x")), "(forged)");
    b.set_keys(kKey1);
    EXPECT_EQ(b.take(a.seal("y")), "y");
}

TEST_F(ChannelTest, KeysAreReplacedInThreeStepsWithoutLoss) {
    meet();
    const auto both = [&](const std::string& keys) {
        a.set_keys(keys);
        EXPECT_EQ(b.take(a.seal("a")), "a");
        EXPECT_EQ(a.take(b.seal("b")), "b");
        b.set_keys(keys);
        EXPECT_EQ(b.take(a.seal("a")), "a");
        EXPECT_EQ(a.take(b.seal("b")), "b");
        pass(minutes(1));
    };
    both(std::string(kKey1) + kKey2);
    both(std::string(kKey2) + kKey1);
    both(kKey2);
    EXPECT_EQ(a.counters->forged.value() + b.counters->forged.value(), 0U);
}

TEST_F(ChannelTest, AKeyThatIsTakenAwayIsOverAtOnce) {
    meet();
    b.set_keys(kKey2);
    EXPECT_EQ(b.take(a.seal("x")), "(old)");
    EXPECT_EQ(b.counters->old.value(), 1U);
    // Who sends does not go on with it either.
    EXPECT_EQ(a.take(b.seal("x")), "(forged)");
}

TEST_F(ChannelTest, AKeyThatIsTakenAwayIsForgottenWithoutAPacket) {
    meet();
    const std::weak_ptr<const KeyRing> ring = a.keys->ring();
    a.set_keys(kKey2);
    EXPECT_FALSE(ring.expired());
    a.channel->drop_old_keys();
    EXPECT_TRUE(ring.expired());
    EXPECT_FALSE(a.seal("x").empty());
}

TEST_F(ChannelTest, AKeyThatComesBackIsGoodAgain) {
    meet();
    b.set_keys(kKey2);
    EXPECT_EQ(b.take(a.seal("x")), "(old)");
    b.set_keys(kKey1);
    EXPECT_EQ(b.take(a.seal("x")), "(old)");
    settle();
    EXPECT_EQ(b.take(a.seal("x")), "x");
}

TEST_F(ChannelTest, AnSaIsOverAWhileAfterTheNext) {
    meet();
    const Packet early = a.seal("early");
    const Packet late = a.seal("late");
    a.channel->rekey();
    EXPECT_EQ(b.take(a.seal("next")), "next");
    pass(Receiver::kOverlap - seconds(1));
    EXPECT_EQ(b.take(early), "early");
    pass(seconds(1));
    EXPECT_EQ(b.take(late), "(old)");
    EXPECT_EQ(b.counters->old.value(), 1U);
}

TEST_F(ChannelTest, AnSaThatIsOverDoesNotBeginAgain) {
    // It is of this minute still, so it could be a new one.
    const Packet packet = a.seal("x");
    EXPECT_EQ(b.take(packet), "x");
    pass(seconds(1));
    a.channel->rekey();
    EXPECT_EQ(b.take(a.seal("y")), "y");
    pass(Receiver::kOverlap);
    EXPECT_EQ(b.take(packet), "(old)");
}

TEST_F(ChannelTest, NothingComesTwice) {
    const Packet packet = a.seal("x");
    const Packet other = a.seal("y");
    EXPECT_EQ(b.take(packet), "x");
    EXPECT_EQ(b.take(packet), "(replayed)");
    EXPECT_EQ(b.take(other), "y");
    EXPECT_EQ(b.take(packet), "(replayed)");
    // Nor in one batch.
    Packet first = a.seal("z");
    Packet second = first;
    const std::span<std::byte> batch[] = {first, second};
    Opened results[2];
    b.channel->open(batch, results);
    EXPECT_EQ(results[0].verdict, Verdict::kOpened);
    EXPECT_EQ(results[1].verdict, Verdict::kReplayed);
    EXPECT_TRUE(results[1].payload.empty());
    EXPECT_EQ(b.counters->replayed.value(), 3U);
}

TEST_F(ChannelTest, WhatGoesOutIsNotTakenBack) {
    EXPECT_EQ(a.take(a.seal("x")), "(forged)");
}

TEST_F(ChannelTest, ACutPacketIsDroppedAtEachLength) {
    ASSERT_EQ(b.take(a.seal("first")), "first");
    const Packet packet = a.seal("twenty-three characters");
    for (std::size_t size = 0; size < packet.size(); ++size) {
        const Packet cut(packet.begin(), packet.begin() + static_cast<std::ptrdiff_t>(size));
        const bool whole_words = size >= kSmallestPacket && size % kAlignment == 0;
        ASSERT_EQ(b.take(cut), whole_words ? "(forged)" : "(malformed)") << size;
    }
    Packet longer = packet;
    longer.resize(longer.size() + 4);
    EXPECT_EQ(b.take(longer), "(forged)");
    EXPECT_EQ(b.take(packet), "twenty-three characters");
}

TEST_F(ChannelTest, AChangedBitIsSeenWhereverItIs) {
    ASSERT_EQ(b.take(a.seal("first")), "first");
    const Packet packet = a.seal("a payload with some bytes");
    for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
        Packet changed = packet;
        changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        ASSERT_EQ(b.take(changed).front(), '(') << bit;
    }
    EXPECT_EQ(b.take(packet), "a payload with some bytes");
}

TEST_F(ChannelTest, AChangedFirstPacketBeginsNoSa) {
    const Packet packet = a.seal("first");
    for (std::size_t bit = 0; bit < packet.size() * 8; ++bit) {
        Packet changed = packet;
        changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
        ASSERT_EQ(b.take(changed).front(), '(') << bit;
    }
    EXPECT_EQ(b.counters->peer_rekeys.value(), 0U);
    EXPECT_EQ(b.take(packet), "first");
}

TEST_F(ChannelTest, AFloodOfSpisDerivesEachKeyOnce) {
    b.set_keys(std::string(kKey1) + kKey2);
    Packet packet = a.seal("x");
    const std::uint32_t now = spi_of(packet.data()).value();
    const Packet own = packet;
    base::Random random(1);
    for (unsigned i = 0; i < 20000; ++i) {
        base::store_be(packet.data(), static_cast<std::uint32_t>(now - 500 + random.below(1000)));
        base::store_be(packet.data() + kSequenceAt, static_cast<std::uint32_t>(random.next()));
        Packet copy = packet;
        ASSERT_NE(b.open(copy).verdict, Verdict::kOpened);
    }
    EXPECT_LE(b.channel->receiver().derivations(), 2U * (2 * Receiver::kSkew + 1));
    EXPECT_GT(b.counters->unknown.value(), 10000U);
    // It does not keep the real one out.
    EXPECT_EQ(b.take(own), "x");
}

TEST_F(ChannelTest, ClocksMayDifferByAMinute) {
    for (const int ahead : {-61, -60, 60, 61}) {
        Host sender(clock, 1);
        Host receiver(clock, 2);
        sender.date.offset += seconds(ahead);
        Packet packet = sender.seal("x");
        const Opened opened = receiver.open(packet);
        EXPECT_EQ(opened.verdict, std::abs(ahead) <= 60 ? Verdict::kOpened : Verdict::kUnknown);
        EXPECT_EQ(opened.ahead, std::abs(ahead) > 60 ? ahead : 0);
    }
}

TEST_F(ChannelTest, AHostThatStartsAnewIsHeardAtOnceAndHears) {
    meet();
    b.start();
    // It knows nothing of the SA, which is too old for it.
    EXPECT_EQ(b.take(a.seal("x")), "(unknown)");
    const Packet notice = b.notice();
    ASSERT_EQ(notice.size(), kSmallestPacket);
    EXPECT_EQ(a.take(notice), "");
    EXPECT_EQ(b.take(a.seal("y")), "y");
    EXPECT_EQ(a.take(b.seal("z")), "z");
}

TEST_F(ChannelTest, ANoticeThatIsLostIsSaidAgain) {
    meet();
    b.start();
    EXPECT_FALSE(b.notice().empty());
    EXPECT_TRUE(b.notice().empty());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(b.take(a.seal("x")), "(unknown)");
        EXPECT_TRUE(b.notice().empty());
        pass(seconds(1));
        const Packet notice = b.notice();
        ASSERT_FALSE(notice.empty());
        if (i == 2) {
            EXPECT_EQ(a.take(notice), "");
        }
    }
    EXPECT_EQ(b.take(a.seal("x")), "x");
}

TEST_F(ChannelTest, AHostThatStartsAnewInTheSameSecondGoesOn) {
    EXPECT_EQ(b.take(a.seal("x")), "x");
    const Packet before = a.seal("y");
    pass(milliseconds(5));
    a.start();
    const Packet after = a.seal("z");
    ASSERT_EQ(spi_of(after.data()), spi_of(before.data()));
    EXPECT_GT(sequence_of(after.data()), sequence_of(before.data()));
    EXPECT_EQ(b.take(after), "z");
}

TEST_F(ChannelTest, AHostThatStartsAnewInTheSameSecondWithAnotherKeyIsHeardAgain) {
    // The SA that the other end knows is of the key that was the first before.
    EXPECT_FALSE(b.notice().empty());
    b.set_keys(std::string(kKey1) + kKey2);
    EXPECT_EQ(b.take(a.seal("x")), "x");
    pass(milliseconds(5));
    a.set_keys(kKey2);
    a.start();
    b.set_keys(std::string(kKey2) + kKey1);
    EXPECT_EQ(b.take(a.notice()), "(forged)");
    pass(seconds(20));
    EXPECT_EQ(b.take(a.seal("y")), "(forged)");
    settle();
    EXPECT_EQ(b.take(a.seal("z")), "z");
}

TEST_F(ChannelTest, AHostThatStartsAnewEarlierInTheSameSecondIsHeardAgain) {
    EXPECT_FALSE(b.notice().empty());
    pass(milliseconds(500));
    EXPECT_EQ(b.take(a.seal("x")), "x");
    // Its clock is set back a little, and its numbers are behind the window.
    a.date.offset -= milliseconds(400);
    a.start();
    EXPECT_EQ(b.take(a.notice()), "(replayed)");
    pass(seconds(20));
    EXPECT_EQ(b.take(a.seal("y")), "(replayed)");
    settle();
    EXPECT_EQ(b.take(a.seal("z")), "z");
}

TEST_F(ChannelTest, APathThatWasBrokenForLongWorksAgain) {
    meet();
    for (int i = 0; i < 5; ++i) {
        // Both begin SAs of which the other does not hear in time.
        a.channel->rekey();
        b.channel->rekey();
        EXPECT_FALSE(a.seal("lost").empty());
        EXPECT_FALSE(b.seal("lost").empty());
        pass(minutes(2));
    }
    (void)b.take(a.seal("x"));
    (void)a.take(b.seal("x"));
    settle();
    EXPECT_EQ(b.take(a.seal("y")), "y");
    EXPECT_EQ(a.take(b.seal("y")), "y");
}

TEST_F(ChannelTest, NewSasDoNotCallForEachOther) {
    meet();
    a.channel->rekey();
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(b.take(a.seal("x")), "x");
        EXPECT_EQ(a.take(b.seal("x")), "x");
        settle();
    }
    EXPECT_LE(a.counters->rekeys.value() + b.counters->rekeys.value(), 4U);
}

TEST_F(ChannelTest, AForgerCanHaveAHostRotateNowAndThenAndNoMore) {
    meet();
    const auto before = b.counters->rekeys.value();
    Packet packet = a.seal("x");
    base::store_be(packet.data(), std::uint32_t{1'000'000'000});
    for (int i = 0; i < 600; ++i) {
        EXPECT_EQ(b.take(packet), "(old)");
        if (const Packet notice = b.notice(); !notice.empty()) (void)a.take(notice);
        pass(milliseconds(100));
    }
    EXPECT_LE(b.counters->rekeys.value() - before, 60U / 10U + 1U);
    EXPECT_LE(b.counters->notices.value(), 61U + 1U);
    EXPECT_EQ(b.take(a.seal("y")), "y");
}

TEST_F(ChannelTest, AClockThatIsSetBackKeepsTheSaThatThereIs) {
    meet();
    const Spi spi = spi_of(a.seal("x").data());
    a.date.offset -= seconds(150);
    a.channel->rekey();
    const Packet packet = a.seal("y");
    EXPECT_EQ(spi_of(packet.data()), spi);
    EXPECT_EQ(b.take(packet), "y");
    // But not with a key that is gone.
    a.set_keys(kKey2);
    EXPECT_TRUE(a.seal("z").empty());
    EXPECT_EQ(a.counters->refused.value(), 1U);
    pass(seconds(50));
    EXPECT_FALSE(a.seal("z").empty());
}

TEST_F(ChannelTest, AClockThatWasAheadAndIsSetRightIsHeardAtOnce) {
    a.date.offset += minutes(60);
    EXPECT_EQ(b.take(a.seal("x")), "(unknown)");
    pass(minutes(2));
    a.date.offset -= minutes(60);
    EXPECT_EQ(a.take(b.seal("y")), "y");
    EXPECT_EQ(b.take(a.seal("z")), "z");
}

TEST_F(ChannelTest, AClockThatWasAheadForAMomentCostsTheSaThatBeganThen) {
    meet();
    a.date.offset += minutes(60);
    a.channel->rekey();
    EXPECT_EQ(b.take(a.seal("x")), "(unknown)");
    a.date.offset -= minutes(60);
    pass(minutes(1));
    // Whoever does not understand says so.
    EXPECT_EQ(a.take(b.notice()), "");
    EXPECT_EQ(b.take(a.seal("y")), "y");
}

TEST_F(ChannelTest, ClocksThatWereAheadTogetherAndAreSetRightKeepNobodyOut) {
    for (Host* host : {&a, &b}) host->date.offset += minutes(60);
    meet();
    for (Host* host : {&a, &b}) host->date.offset -= minutes(60);
    a.start();
    EXPECT_EQ(b.take(a.notice()), "");
    EXPECT_EQ(b.take(a.seal("x")), "x");
    EXPECT_EQ(a.take(b.seal("y")), "y");
    // A step within what clocks may differ by opens nothing.
    const Packet early = a.seal("early");
    pass(seconds(5));
    a.channel->rekey();
    EXPECT_EQ(b.take(a.seal("z")), "z");
    pass(Receiver::kOverlap);
    b.date.offset -= seconds(50);
    EXPECT_EQ(b.take(early), "(old)");
}

TEST_F(ChannelTest, AnSpiThatComesTwiceHasOtherIvs) {
    const Packet before = a.seal("x");
    pass(seconds(1));
    a.date.offset += minutes(60);
    a.channel->rekey();
    EXPECT_NE(spi_of(a.seal("x").data()), spi_of(before.data()));
    pass(seconds(1));
    a.date.offset -= minutes(60) + seconds(2);
    a.channel->rekey();
    const Packet after = a.seal("x");
    ASSERT_EQ(spi_of(after.data()), spi_of(before.data()));
    ASSERT_EQ(sequence_of(after.data()), sequence_of(before.data()));
    EXPECT_FALSE(
        std::equal(before.begin() + kIvAt, before.begin() + kHeaderBytes, after.begin() + kIvAt));
}

TEST_F(ChannelTest, AClockThatIsNotSetSendsNothing) {
    a.date.offset = -clock.now().time_since_epoch() + seconds(100);
    EXPECT_TRUE(a.seal("x").empty());
    EXPECT_TRUE(a.notice().empty());
}

TEST_F(ChannelTest, WhatIsAuthenticButNoEspInsideIsDropped) {
    // Made with the key of the SA; the padding is wrong.
    const Packet known = a.seal("x");
    ASSERT_EQ(b.take(known), "x");
    SaKey key;
    Gcm gcm;
    ASSERT_TRUE(
        derive(a.keys->ring()->key(0), spi_of(known.data()), {end4(1, 4500), end4(2, 4500)}, key));
    ASSERT_TRUE(gcm.set_key(key, Gcm::Use::kSeal));
    std::uint32_t number = sequence_of(known.data());
    const auto open = [&](std::span<const std::byte> inside) {
        Packet packet(known.begin(), known.begin() + kHeaderBytes);
        packet.resize(kHeaderBytes + inside.size() + kIcvBytes);
        base::store_be(packet.data() + kSequenceAt, ++number);
        base::store_be(packet.data() + kIvAt + 4, number);
        EXPECT_TRUE(gcm.seal({}, inside, packet.data()));
        const Opened opened = b.open(packet);
        return std::pair(opened.verdict, opened.payload.size());
    };
    constexpr std::pair<Verdict, std::size_t> kRefused(Verdict::kMalformed, 0);
    std::array<std::byte, 12> inside{};
    inside[11] = std::byte{143};
    for (unsigned padding = 0; padding < 256; ++padding) {
        for (unsigned i = 0; i < padding && i < 10; ++i)
            inside[9 - i] = static_cast<std::byte>(padding - i);
        inside[10] = static_cast<std::byte>(padding);
        EXPECT_EQ(open(inside), padding <= 10
                                    ? std::pair(Verdict::kOpened, std::size_t{10 - padding})
                                    : kRefused);
    }
    // Padding counts up from 1.
    inside[10] = std::byte{1};
    for (unsigned first = 0; first < 256; ++first) {
        inside[9] = static_cast<std::byte>(first);
        EXPECT_EQ(open(inside),
                  first == 1 ? std::pair(Verdict::kOpened, std::size_t{9}) : kRefused);
    }
}

TEST_F(ChannelTest, KeysAreReadAnewWhileThreadsSendAndReceive) {
    constexpr unsigned kThreads = 3;
    constexpr unsigned kPackets = 4000;
    const std::string rings[] = {std::string(kKey1) + kKey2, std::string(kKey2) + kKey1};
    a.set_keys(rings[0]);
    b.set_keys(rings[0]);
    std::atomic<unsigned> came{0};
    std::atomic<unsigned> left{kThreads};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (unsigned i = 0; i < kPackets; ++i) {
                const std::string text = std::to_string(t) + " " + std::to_string(i);
                if (b.take(a.seal(text)) == text) ++came;
                if (i % 64 == 0) a.channel->rekey();
            }
            --left;
        });
    for (unsigned i = 0; left != 0; ++i) {
        b.set_keys(rings[i % 2]);
        a.set_keys(rings[i % 2]);
        std::this_thread::yield();
    }
    for (auto& thread : threads) thread.join();
    // A thread that stood still between the two may find that eight SAs have come since.
    EXPECT_EQ(came + b.counters->old.value(), kThreads * kPackets);
    EXPECT_GT(came, kThreads * kPackets / 2);
}

/// The next process of `from`'s host, which goes on with its SAs.
void go_on(Host& from, const TestClock& clock) {
    base::StateWriter out(clock.now());
    from.channel->save(out);
    const auto bytes = std::move(out).finish();
    from.start();
    auto in = base::StateReader::open(bytes, clock.now());
    ASSERT_TRUE(in.has_value());
    from.channel->load(*in);
    ASSERT_TRUE(in->result().has_value());
}

TEST_F(ChannelTest, AnotherProcessGoesOnWithTheSaAndItsNumbers) {
    meet();
    pass(minutes(5));
    const Packet before = a.seal("before");
    ASSERT_EQ(b.take(before), "before");
    const auto rekeys = b.counters->peer_rekeys.value();
    go_on(a, clock);
    const Packet after = a.seal("after");
    EXPECT_EQ(spi_of(after.data()), spi_of(before.data()));
    EXPECT_EQ(sequence_of(after.data()), sequence_of(before.data()) + 1);
    EXPECT_EQ(b.take(after), "after");
    EXPECT_EQ(b.counters->peer_rekeys.value(), rekeys);
    EXPECT_TRUE(a.notice().empty()) << "nothing is new that the other end has to learn";
}

TEST_F(ChannelTest, NoIvComesTwiceIfBothProcessesGoOn) {
    meet();
    base::StateWriter out(clock.now());
    a.channel->save(out);
    const auto bytes = std::move(out).finish();
    const Packet first = a.seal("the old one");
    auto in = base::StateReader::open(bytes, clock.now());
    a.start();
    a.channel->load(*in);
    const Packet second = a.seal("the new one");
    ASSERT_EQ(sequence_of(first.data()), sequence_of(second.data()));
    EXPECT_FALSE(std::equal(first.begin() + kIvAt, first.begin() + kIvAt + kIvBytes,
                            second.begin() + kIvAt));
}

TEST_F(ChannelTest, AnotherProcessTakesWhatIsUnderWayAndNoReplay) {
    meet();
    // The peer's SA began so long ago that nobody would take it up.
    pass(minutes(30));
    const Packet taken = a.seal("taken");
    const Packet under_way = a.seal("under way");
    ASSERT_EQ(b.take(taken), "taken");
    go_on(b, clock);
    EXPECT_EQ(b.take(under_way), "under way");
    EXPECT_EQ(b.take(taken), "(replayed)");
    EXPECT_EQ(b.take(under_way), "(replayed)");
}

TEST_F(ChannelTest, AnotherProcessWithoutTheKeyBeginsAnew) {
    meet();
    const Packet before = a.seal("before");
    a.set_keys(kKey2);
    go_on(a, clock);
    b.set_keys(std::string(kKey1) + kKey2);
    const Packet after = a.seal("after");
    EXPECT_GT(spi_of(after.data()), spi_of(before.data()));
    EXPECT_EQ(b.take(after), "after");
    go_on(b, clock);
    EXPECT_EQ(b.take(a.seal("again")), "again");
}

}  // namespace
}  // namespace openmana::esp
