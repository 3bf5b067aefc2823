// SPDX-License-Identifier: Apache-2.0
// READs that are asked for in parts (ROCE 3.2), and long paths that lose packets.
#include <algorithm>
#include <array>
#include <optional>

#include "base/clock.h"
#include "roce/aeth.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

constexpr std::uint32_t kMtu = 1024;
constexpr std::uint32_t kPart = 128;  // packets

class LongReadTest : public WireCase {
protected:
    /// Two READs under way at most, so that a part is 128 packets.
    static Connection::Options shallow() {
        Connection::Options options;
        options.limits_a.reads_out = 2;
        return options;
    }
    /// Nothing that B sends arrives, and it owes nothing.
    void mute() {
        open(shallow());
        link->network.fate = [](const roce::Packet&) { return Fate{true}; };
    }
    /// What A has sent since the last call.
    Words requests() {
        Words words;
        for (std::string& word : story())
            if (word[0] != 'A' && word[0] != 'N' && word.substr(0, 2) != "RF" &&
                word.substr(0, 2) != "RM" && word.substr(0, 2) != "RL" && word.substr(0, 2) != "RO")
                words.push_back(std::move(word));
        link->network.sent.clear();
        return words;
    }
    /// The answers to one request of A's, packets [from, end) of its READ, as far as `until`.
    void answer(std::uint32_t from, std::uint32_t end, std::uint32_t msn = 1,
                std::uint32_t until = UINT32_MAX) {
        for (std::uint32_t i = from; i < std::min(end, until); ++i) {
            Opcode opcode = Opcode::kReadResponseMiddle;
            if (i == from) opcode = Opcode::kReadResponseFirst;
            if (i + 1 == end) opcode = Opcode::kReadResponseLast;
            roce::Packet packet = to(link->a, opcode, 0x100 + i);
            packet.aeth.msn = msn;
            inject(link->a, packet, kMtu);
        }
    }
    [[nodiscard]] std::vector<roce::Reth> reths() const {
        std::vector<roce::Reth> all;
        for (const roce::Packet& p : sent())
            if (p.opcode == Opcode::kReadRequest) all.push_back(p.reth);
        return all;
    }
    [[nodiscard]] std::size_t answers() const {
        return static_cast<std::size_t>(std::ranges::count_if(sent(), [](const roce::Packet& p) {
            return p.info().operation == roce::Operation::kReadResponse;
        }));
    }
};

// ROCE 10: 146
TEST_F(LongReadTest, EachPartIsARequestOfItsOwn) {
    open(shallow());
    read(1, 600 * kMtu + 5);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 600 * kMtu + 5));
    const std::uint64_t address = link->b.buffer.value() + (1 << 20);
    const std::vector<roce::Reth> parts = reths();
    ASSERT_EQ(parts.size(), 5U);
    for (std::uint32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(parts[i].address, address + i * kPart * kMtu);
        EXPECT_EQ(parts[i].length, i < 4 ? kPart * kMtu : 88 * kMtu + 5);
    }
    EXPECT_EQ(answers(), 601U);
    EXPECT_EQ(at_b().rx_reads.value(), 5U);
    for (const roce::Packet& p : sent()) {
        if (p.opcode == Opcode::kReadResponseLast) {
            EXPECT_TRUE((p.psn + 1 - Psn(0x100)) % static_cast<int>(kPart) == 0 ||
                        p.psn == Psn(0x100 + 600));
        }
        if (p.psn == Psn(0x100 + 600) && p.info().response) {
            EXPECT_EQ(p.aeth.msn, 5U);
        }
    }
}

// ROCE 10: 146
TEST_F(LongReadTest, OneThatEndsWithAPartHasNoMore) {
    open(shallow());
    read(1, 2 * kPart * kMtu);
    read(2, 0);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    EXPECT_EQ(requests(), (Words{"RR100", "RR180", "RR200"}));
}

/// As many as fill a window if so many READs may be under way, and no smaller than a quarter of it.
// ROCE 10: 147
TEST_F(LongReadTest, TheDepthSaysHowLongAPartIs) {
    struct Case {
        std::uint8_t depth;
        std::uint32_t packets;
        std::size_t under_way;
    };
    for (const Case c : {Case{1, 256, 1}, Case{2, 128, 2}, Case{3, 85, 3}, Case{4, 64, 4},
                         Case{16, 64, 8}, Case{32, 64, 8}}) {
        SCOPED_TRACE(unsigned{c.depth});
        Connection::Options options;
        options.limits_a.reads_out = c.depth;
        open(options);
        std::size_t under_way = 0, most = 0;
        link->network.on_send = [&](Node&, const base::Frame& frame) {
            const auto p = roce::parse(frame);
            under_way += p->opcode == Opcode::kReadRequest;
            most = std::max(most, under_way);
            under_way -= p->opcode == Opcode::kReadResponseLast;
        };
        read(1, 1000 * kMtu);
        ASSERT_TRUE(link->run(1));
        expect_ok(1);
        EXPECT_EQ(reths().size(), (1000 + c.packets - 1) / c.packets);
        EXPECT_EQ(reths().front().length, c.packets * kMtu);
        EXPECT_EQ(most, c.under_way) << "no more than two windows";
        EXPECT_TRUE(same(1 << 20, 1 << 20, 1000 * kMtu));
    }
}

/// The next one is asked for while the one before it still comes.
// ROCE 10: 148
TEST_F(LongReadTest, PartsCountAsReads) {
    mute();
    read(1, 4 * kPart * kMtu);
    EXPECT_EQ(requests(), (Words{"RR100", "RR180"}));
    answer(0, kPart, 1, kPart - 1);
    EXPECT_EQ(requests(), Words{});
    inject(link->a, to(link->a, Opcode::kReadResponseLast, 0x100 + kPart - 1), kMtu);
    EXPECT_EQ(requests(), Words{"RR200"});
    answer(kPart, 2 * kPart, 2);
    EXPECT_EQ(requests(), Words{"RR280"});
    answer(2 * kPart, 3 * kPart, 3);
    EXPECT_TRUE(link->a.done.empty());
    answer(3 * kPart, 4 * kPart, 4);
    expect_ok(1);
}

// ROCE 10: 149
TEST_F(LongReadTest, ALostAnswerCostsItsPartAndTheNext) {
    open(shallow());
    lose(response(0x100 + 100));
    read(1, 1000 * kMtu);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 1000 * kMtu));
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_EQ(at_a().retransmits.value(), 1U);
    EXPECT_LE(answers(), 1000U + 2 * kPart);
    const auto again = std::ranges::find_if(sent(), [](const roce::Packet& p) {
        return p.opcode == Opcode::kReadRequest && p.psn == Psn(0x100 + 100);
    });
    ASSERT_NE(again, sent().end());
    EXPECT_EQ(again->reth.length, (kPart - 100) * kMtu) << "to the end of the part";
}

// ROCE 10: 149
TEST_F(LongReadTest, ALostRequestOfAPartIsTold) {
    open(shallow());
    lose(request(0x180));
    read(1, 1000 * kMtu);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_EQ(naks(0x60), 1U);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 1000 * kMtu));
}

/// By an ACK of the part behind it, that is.
// ROCE 10: 150
TEST_F(LongReadTest, AnAckBehindAPartSaysThatItsDataWereLost) {
    mute();
    read(1, 2 * kPart * kMtu);
    answer(0, kPart, 1, 10);
    requests();
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x100 + kPart - 2));
    EXPECT_EQ(requests(), Words{}) << "within it: it says nothing";
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x100 + kPart - 1));
    EXPECT_EQ(requests(), (Words{"RR10a"}));
    EXPECT_EQ(at_a().implicit_naks.value(), 1U);
    EXPECT_TRUE(link->a.done.empty());
}

// ROCE 10: 150
TEST_F(LongReadTest, ANakInAPartGoesBackToWhatIsMissing) {
    mute();
    read(1, 2 * kPart * kMtu);
    answer(0, kPart, 1, 10);
    requests();
    roce::Packet nak = to(link->a, Opcode::kAcknowledge, 0x100 + 20);
    nak.aeth.syndrome = 0x60;
    inject(link->a, nak);
    EXPECT_EQ(requests(), (Words{"RR10a"}));
    answer(10, kPart);
    answer(kPart, 2 * kPart, 2);
    expect_ok(1);
}

/// Soft-RoCE does it (ROCE 11.1).
// ROCE 10: 150
TEST_F(LongReadTest, ANakOfAPartThatFailedHalfWayMayNameItsBeginning) {
    mute();
    read(1, 3 * kPart * kMtu);
    answer(0, kPart);
    answer(kPart, 2 * kPart, 2, kPart + 10);
    roce::Packet nak = to(link->a, Opcode::kAcknowledge, 0x100);
    nak.aeth.syndrome = 0x62;
    inject(link->a, nak);
    EXPECT_STREQ(link->a.state(), "RTS") << "the part before it is done";
    nak.psn = Psn(0x100 + kPart);
    inject(link->a, nak);
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
}

// ROCE 10: 151
TEST_F(LongReadTest, APartBeginsWithFirstAndEndsWithLast) {
    mute();
    read(1, 2 * kPart * kMtu);
    answer(0, kPart - 1);
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_READ_LENGTH});
    mute();
    read(1, 2 * kPart * kMtu);
    answer(0, kPart);
    inject(link->a, to(link->a, Opcode::kReadResponseMiddle, 0x100 + kPart), kMtu);
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_BAD_RESPONSE});
}

/// The peer counts a message for each part, and so do we: the SEND is the fourth.
// ROCE 10: 152
TEST_F(LongReadTest, EachPartIsAMessageOfItsOwn) {
    constexpr std::uint8_t kNone = 0;  // credits
    mute();
    read(1, 3 * kPart * kMtu);
    answer(0, kPart, 1);
    requests();
    roce::Packet data = to(link->a, Opcode::kReadResponseFirst, 0x100 + kPart);
    data.aeth = {roce::ack_syndrome(kNone), 3};
    inject(link->a, data, kMtu);
    send(2, 4 * kMtu);
    EXPECT_EQ(requests(), Words{"SF280"}) << "one beyond the limit: it asks with its first packet";
}

/// On the local path too, so that one can follow on the other.
TEST_F(LongReadTest, ThePathMayChangeInTheMiddle) {
    Connection::Options options;
    options.limits_a.reads_out = 1;
    open(options);
    link->network.generation = 1;
    unsigned seen = 0;
    link->network.on_send = [&](Node&, const base::Frame& frame) {
        const auto p = roce::parse(frame);
        if (p->opcode == Opcode::kReadResponseMiddle && ++seen == 300) {
            link->network.local = true;
            ++link->network.generation;
        }
    };
    read(1, 1000 * kMtu);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 1000 * kMtu));
    EXPECT_EQ(at_b().rx_reads.value(), 4U) << "256 packets each";
    link->network.on_send = nullptr;
    link->network.local = false;
    ++link->network.generation;
    read(2, 300 * kMtu);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
}

/// A path of 10 ms that loses 1 % of what goes over it and lets 1 % come 2 ms later, as fast as a
/// slow link: a packet each 10 us.
class FarTest : public LongReadTest {
protected:
    void open_far(const Connection::Options& options = Connection::Options()) {
        open(options);
        Connection::fill(link->a.at(0, 3 << 20), 1);
        Connection::fill(link->b.at(1 << 20, 3 << 20), 2);
        link->network.fate = [this](const roce::Packet& p) {
            base::TimePoint& free = free_[p.info().response ? 1 : 0];
            free = std::max(free, link->world.now()) + microseconds(10);
            Fate fate;
            fate.lose = random_.below(100) == 0;
            fate.delay = free - link->world.now() + milliseconds(10);
            if (random_.below(100) == 0) fate.delay += milliseconds(2);
            return fate;
        };
    }
    /// Payload bytes that went over the path for each that was asked for.
    [[nodiscard]] double cost(std::uint64_t wanted) const {
        std::uint64_t bytes = 0;
        for (const std::size_t n : link->network.sent_bytes) bytes += n;
        return static_cast<double>(bytes) / static_cast<double>(wanted);
    }

private:
    base::Random random_{7};
    std::array<base::TimePoint, 2> free_{};
};

// ROCE 10: 153
TEST_F(FarTest, AReadCostsAFewTimesItsSize) {
    open_far();
    read(1, 3 << 20);
    ASSERT_TRUE(link->run(1, 0, std::chrono::minutes(10)));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 3 << 20));
    RecordProperty("cost", std::to_string(cost(3 << 20)));
    EXPECT_LT(cost(3 << 20), 5.0);
}

// ROCE 10: 153
TEST_F(FarTest, AWriteCostsAFewTimesItsSize) {
    open_far();
    write(1, 3 << 20);
    ASSERT_TRUE(link->run(1, 0, std::chrono::minutes(10)));
    expect_ok(1);
    EXPECT_TRUE(same(0, 0, 3 << 20));
    RecordProperty("cost", std::to_string(cost(3 << 20)));
    EXPECT_LT(cost(3 << 20), 5.0);
}

}  // namespace
}  // namespace openmana::test
