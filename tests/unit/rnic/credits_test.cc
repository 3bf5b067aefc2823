// SPDX-License-Identifier: Apache-2.0
// Peers that say for how many messages they have receives (ROCE 2.6, IBTA 9.7.7.2).
#include "rnic/credits.h"

#include "roce/aeth.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using rnic::Credits;
using roce::Opcode;
using roce::Psn;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

constexpr std::uint8_t kNone = 0, kTwo = 2, kSix = 5;

class CreditsOfAPeer : public ::testing::Test {
protected:
    /// Numbers as many messages, of which all up to `done` are finished.
    void messages(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) credits.next();
    }
    void ack(std::uint8_t code, std::uint32_t msn, std::uint32_t done) {
        credits.take({roce::ack_syndrome(code), msn}, Psn(done + 1));
    }
    /// Of the first message that must wait; one before it may ask.
    [[nodiscard]] std::uint32_t limit() const {
        Psn ssn = credits.newest() - 64;
        while (credits.allows(ssn + 1)) ++ssn;
        EXPECT_TRUE(credits.may_ask(ssn + 1));
        EXPECT_FALSE(credits.may_ask(ssn + 2));
        return ssn.value();
    }
    Credits credits;
};

TEST_F(CreditsOfAPeer, NoLimitUntilThePeerNamesOne) {
    messages(10);
    EXPECT_FALSE(credits.limited());
    ack(roce::kAckUnlimited, 1, 1);
    EXPECT_FALSE(credits.limited());
    EXPECT_TRUE(credits.allows(Psn(10)));
    ack(kTwo, 2, 2);
    EXPECT_TRUE(credits.limited());
    EXPECT_EQ(limit(), 4U);
    ack(roce::kAckUnlimited, 3, 3);
    EXPECT_FALSE(credits.limited());
    ack(kNone, 4, 4);
    EXPECT_EQ(limit(), 4U);
}

TEST_F(CreditsOfAPeer, LimitDoesNotGoBack) {
    messages(10);
    ack(kSix, 2, 2);
    EXPECT_EQ(limit(), 8U);
    ack(kTwo, 3, 3);
    EXPECT_EQ(limit(), 8U) << "what was said holds";
    ack(kSix, 3, 3);
    EXPECT_EQ(limit(), 9U);
}

TEST_F(CreditsOfAPeer, NumbersWrap) {
    messages(0xfffffe);
    ack(kTwo, 0xfffffd, 0xfffffd);
    EXPECT_EQ(limit(), 0xffffffU);
    messages(4);
    EXPECT_EQ(credits.newest(), Psn(2));
    ack(kSix, 0xffffff, 0xffffff);
    EXPECT_EQ(limit(), 5U);
    ack(30, 0, 0);
    EXPECT_TRUE(credits.allows(Psn(32768)));
    EXPECT_FALSE(credits.allows(Psn(32769)));
}

TEST_F(CreditsOfAPeer, PeerThatCountsFromElsewhereHasNoSay) {
    messages(10);
    ack(kNone, 4, 5);
    EXPECT_FALSE(credits.limited()) << "less than it has acknowledged";
    ack(kNone, 11, 5);
    EXPECT_FALSE(credits.limited()) << "more than there are";
    ack(kNone, 10, 5);
    EXPECT_TRUE(credits.limited()) << "the number may be ahead of the PSN";
    ack(kNone, 0x800000, 5);
    EXPECT_FALSE(credits.limited());
    ack(kNone, 10, 5);
    credits.start();
    EXPECT_FALSE(credits.limited());
}

class CreditsTest : public WireCase {
protected:
    /// B's own answers are lost; the test gives them.
    void mute() {
        open();
        lose([](const roce::Packet& p) { return p.info().response; }, 1000);
    }
    void ack(std::uint32_t psn, std::uint32_t msn, std::uint8_t code) {
        roce::Packet p = to(link->a, Opcode::kAcknowledge, psn);
        p.aeth = {roce::ack_syndrome(code), msn};
        inject(link->a, p);
    }
    /// Of A, since the last look.
    Words requests() {
        Words words;
        const Words all = story();
        for (; seen < all.size(); ++seen)
            if (!sent()[seen].info().response) words.push_back(all[seen]);
        return words;
    }
    /// Every ACK of B names this code.
    void give(std::function<std::uint8_t()> code) {
        link->network.edit = [code](roce::Packet& p) {
            if (p.info().has(roce::kHasAeth) &&
                roce::aeth_kind(p.aeth.syndrome) == roce::AethKind::kAck)
                p.aeth.syndrome = roce::ack_syndrome(code());
        };
    }
    void expect_no_retries() {
        EXPECT_EQ(at_a().timeouts.value(), 0U);
        EXPECT_EQ(at_a().retransmits.value(), 0U);
        EXPECT_EQ(at_a().rnr_naks.value(), 0U);
    }
    std::size_t seen = 0;
};

TEST_F(CreditsTest, ANakNamesNoCreditsAndLetsTheNextAsk) {
    mute();
    for (std::uint64_t i = 0; i < 3; ++i) link->b.recv(i, 65536, 4096);
    for (std::uint64_t i = 1; i <= 3; ++i) send(i, 10);
    EXPECT_EQ(requests(), (Words{"SO100", "SO101", "SO102"}));
    ack(0x100, 1, kNone);
    roce::Packet nak = to(link->a, Opcode::kAcknowledge, 0x102);
    nak.aeth = {roce::nak_syndrome(roce::NakCode::kSequenceError), 2};
    inject(link->a, nak);
    EXPECT_EQ(requests(), Words{"SO102"}) << "two beyond what was allowed, and yet the oldest";
    ack(0x102, 3, kNone);
    EXPECT_EQ(link->a.node->rnic.qp_status().at(0).credit_waits, 0U);
}

TEST_F(CreditsTest, SendsKeepToThePeersReceives) {
    mute();
    for (std::uint64_t i = 0; i < 4; ++i) link->b.recv(i, 65536, 4096);
    write(1, 10);
    EXPECT_EQ(requests(), Words{"WO100"});
    ack(0x100, 1, kNone);
    for (std::uint64_t i = 2; i <= 8; ++i) send(i, 10);
    EXPECT_EQ(requests(), Words{"SO101"}) << "the one that asks";
    EXPECT_EQ(at_a().credit_waits.value(), 1U);
    EXPECT_EQ(link->a.node->rnic.qp_status().at(0).credit_waits, 1U);
    ack(0x101, 2, kTwo);
    EXPECT_EQ(requests(), (Words{"SO102", "SO103", "SO104"})) << "two, and one that asks";
    EXPECT_EQ(at_a().credit_waits.value(), 2U);
    ack(0x102, 3, kNone);
    EXPECT_EQ(requests(), Words{}) << "the limit is the same";
    ack(0x104, 5, roce::kAckUnlimited);
    EXPECT_EQ(requests(), (Words{"SO105", "SO106", "SO107"}));
    ack(0x107, 8, kNone);
    link->idle();
    EXPECT_EQ(link->a.done.size(), 8U);
    expect_no_retries();
}

TEST_F(CreditsTest, AckThatComesAgainBringsMore) {
    mute();
    write(1, 10);
    ack(0x100, 1, kNone);
    for (std::uint64_t i = 2; i <= 6; ++i) send(i, 10);
    EXPECT_EQ(requests(), (Words{"WO100", "SO101"}));
    ack(0x100, 1, kTwo);
    EXPECT_EQ(requests(), (Words{"SO102", "SO103"})) << "up to 3, and the fourth asks";
    ack(0xff, 0, kSix);
    EXPECT_EQ(requests(), Words{}) << "an older one says nothing";
    ack(0x100, 1, kSix);
    EXPECT_EQ(requests(), (Words{"SO104", "SO105"}));
    EXPECT_EQ(link->a.done.size(), 1U);
    expect_no_retries();
}

TEST_F(CreditsTest, CreditsMayComeBeforeAnyRequest) {
    mute();
    ack(0xff, 0, kTwo);
    for (std::uint64_t i = 1; i <= 6; ++i) send(i, 10);
    EXPECT_EQ(requests(), (Words{"SO100", "SO101", "SO102"}));
}

TEST_F(CreditsTest, LongSendAsksWithItsFirstPacket) {
    mute();
    link->b.recv(1, 65536, 8192);
    write(1, 10);
    ack(0x100, 1, kNone);
    EXPECT_EQ(requests(), Words{"WO100"});
    send(2, 4 * 1024);
    EXPECT_EQ(requests(), Words{"SF101"});
    EXPECT_TRUE(std::ranges::any_of(sent(), [](const roce::Packet& p) {
        return p.opcode == Opcode::kSendFirst && p.ack_request;
    }));
    link->idle();
    EXPECT_EQ(requests(), Words{});
    ack(0x101, 1, kNone);
    EXPECT_EQ(requests(), (Words{"SM102", "SM103", "SL104"})) << "it has its receive";
    ack(0x104, 2, kNone);
    EXPECT_EQ(link->a.done.size(), 2U);
    expect_no_retries();
}

TEST_F(CreditsTest, WhatTakesNoReceiveDoesNotWait) {
    mute();
    write(1, 10);
    ack(0x100, 1, kNone);
    write(2, 10);
    read(3, 10);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 4, 0, 2000));
    EXPECT_EQ(requests(), (Words{"WO100", "WO101", "RR102"}))
        << "the WRITE with immediate is two messages beyond the limit";
    ack(0x101, 2, kNone);
    EXPECT_EQ(requests(), Words{}) << "one";
    roce::Packet data = to(link->a, Opcode::kReadResponseOnly, 0x102);
    data.aeth = {roce::ack_syndrome(kNone), 3};
    inject(link->a, data, 10);
    EXPECT_EQ(requests(), (Words{"WF103", "WL104"})) << "whole: its last packet takes the receive";
    write(5, 10);
    EXPECT_EQ(requests(), Words{"WO105"});
    expect_no_retries();
}

/// A WRITE behind a SEND that waits goes when its turn comes.
TEST_F(CreditsTest, OrderStays) {
    mute();
    write(1, 10);
    ack(0x100, 1, kNone);
    send(2, 10);
    send(3, 10);
    write(4, 10);
    EXPECT_EQ(requests(), (Words{"WO100", "SO101"}));
    ack(0x101, 2, kNone);
    EXPECT_EQ(requests(), (Words{"SO102", "WO103"}));
}

/// The receiver never says that it has a receive: each SEND asks, and nobody waits for ever.
TEST_F(CreditsTest, PeerThatNeverGivesAnyIsServedOneByOne) {
    Connection::Options options;
    options.psn_a = 0xfffffd;
    open(options);
    give([] { return kNone; });
    for (std::uint64_t i = 0; i < 20; ++i) link->b.recv(i, 8192 * i, 8192);
    write(100, 3000, 1 << 19);
    ASSERT_TRUE(link->run(1));
    for (std::uint64_t i = 0; i < 20; ++i)
        send(i, i % 3 == 0 ? 5000 : 100 * static_cast<std::uint32_t>(i), i == 19);
    ASSERT_TRUE(link->run(21, 20));
    expect_ok(21, 20);
    EXPECT_TRUE(same(0, 0, 5000));
    EXPECT_GE(at_a().credit_waits.value(), 19U);
    expect_no_retries();
    write(101, 10);
    ASSERT_TRUE(link->run(22, 20));
}

/// Few receives, and a peer that tells the truth about them: no RNR NAK but those that were asked
/// for.
TEST_F(CreditsTest, ReceiverThatCountsIsNeverOverrun) {
    open({}, impatient());
    std::uint32_t posted = 0;
    for (; posted < 4; ++posted) link->b.recv(posted, 0, 64);
    give([&] {
        std::uint8_t code = 30;
        const auto left = posted - at_b().rx_sends.value();
        while (roce::credits(code) > left) --code;
        return code;
    });
    write(100, 10);
    ASSERT_TRUE(link->run(1));
    for (std::uint64_t i = 0; i < 12; ++i) send(i, 10, i == 11);
    link->idle();
    EXPECT_EQ(link->b.done.size(), 4U);
    EXPECT_EQ(at_b().rnr_naks_sent.value(), 1U) << "the fifth asked";
    for (; posted < 12; ++posted) link->b.recv(posted, 0, 64);
    ASSERT_TRUE(link->run(13, 12));
    expect_ok(13, 12);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
}

/// Why we name no limit ourselves: with one receive at a time, as ping-pong programs have it, the
/// ACK leaves before the next receive is posted, and each longer message asks first.
TEST_F(CreditsTest, TrueCreditsOfAReceiverWithOneReceiveCostARoundTrip) {
    const auto duration = [&](std::uint8_t code) {
        open();
        give([code] { return code; });
        const auto start = link->world.now();
        for (std::uint64_t i = 0; i < 100; ++i) {
            link->b.recv(i, 65536, 16384);
            send(i, 16384);
            EXPECT_TRUE(link->run(i + 1, i + 1));
        }
        expect_ok(100, 100);
        return link->world.now() - start;
    };
    const auto without = duration(roce::kAckUnlimited);
    const auto with = duration(kNone);
    RecordProperty("nanoseconds_without", static_cast<int>(without.count()));
    RecordProperty("nanoseconds_with", static_cast<int>(with.count()));
    EXPECT_GT(with.count(), without.count() * 3 / 2);
}

/// What asks is lost: the timer repeats it, at the price of one retry as always.
TEST_F(CreditsTest, LostQuestionIsRepeated) {
    open();
    give([] { return kNone; });
    for (std::uint64_t i = 0; i < 3; ++i) link->b.recv(i, 0, 8192);
    write(100, 10);
    ASSERT_TRUE(link->run(1));
    lose(request(0x101));
    for (std::uint64_t i = 0; i < 3; ++i) send(i, 3000, i == 2);
    ASSERT_TRUE(link->run(4, 3));
    expect_ok(4, 3);
    EXPECT_EQ(at_a().timeouts.value(), 1U);
}

/// One side alone was reset: the other's numbers mean nothing.
TEST_F(CreditsTest, NumbersOfAnotherLifeDoNotLimit) {
    open();
    give([] { return kNone; });
    for (std::uint64_t i = 0; i < 20; ++i) link->b.recv(i, 0, 64);
    for (std::uint64_t i = 0; i < 5; ++i) write(i, 10);
    ASSERT_TRUE(link->run(5));
    ASSERT_TRUE(link->a.node->host.reset(*link->a.qp));
    const Peer to_b{link->b.node->host.gid(), link->b.node->host.mac(), link->b.qp->qpn(),
                    Connection::kPsnB};
    ASSERT_TRUE(link->a.node->host.connect(*link->a.qp, 0x105, to_b));
    link->a.done.clear();
    write(6, 10);
    ASSERT_TRUE(link->run(1));
    const auto waits = at_a().credit_waits.value();
    for (std::uint64_t i = 10; i < 20; ++i) send(i, 10, i == 19);
    ASSERT_TRUE(link->run(11, 10));
    expect_ok(11, 10);
    EXPECT_EQ(at_a().credit_waits.value(), waits);
}

}  // namespace
}  // namespace openmana::test
