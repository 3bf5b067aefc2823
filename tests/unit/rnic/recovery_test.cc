// SPDX-License-Identifier: Apache-2.0
// What is lost, late or there twice, and receivers that are not ready (ROCE 10.3, 10.4).
#include "rnic/adapter.h"
#include "roce/aeth.h"
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;

class RecoveryTest : public WireCase {};

/// 4.096 us * 2^14
constexpr base::Duration kTimeout14{4096ULL << 14};

// ROCE 10: 39
TEST_F(RecoveryTest, SendGoesOnFromTheLostPacket) {
    open();
    link->b.recv(1, 0, 8192);
    lose(request(0x102));
    send(1, 5 * 1024);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_EQ(naks(0x60), 1U);
    EXPECT_EQ(story(), (Words{"SF100", "SM101", "SM102", "SM103", "SL104", "N102", "SM102", "SM103",
                              "SL104", "A104"}));
    EXPECT_EQ(at_a().retransmits.value(), 1U);
    EXPECT_TRUE(same(0, 0, 5 * 1024));
}

// ROCE 10: 42
TEST_F(RecoveryTest, LostLastPacketTakesTheTimer) {
    open();
    lose(request(0x102));
    const auto start = link->world.now();
    write(1, 3 * 1024);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(naks(0x60), 0U);
    EXPECT_EQ(at_a().timeouts.value(), 1U);
    EXPECT_GE(link->world.now() - start, kTimeout14);
    EXPECT_LT(link->world.now() - start, kTimeout14 + milliseconds(1));
}

// ROCE 10: 45
TEST_F(RecoveryTest, LostReadRequestTakesTheTimer) {
    open();
    lose(request(0x100));
    read(1, 3000);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(story(), (Words{"RR100", "RR100", "RF100", "RM101", "RL102"}));
    EXPECT_TRUE(same(1 << 20, 1 << 20, 3000));
}

// ROCE 10: 51
TEST_F(RecoveryTest, RestOfAReadMayBeginInTheMiddle) {
    open();
    // Of four responses the third is lost; the answer to the new request is made here.
    link->network.fate = [](const roce::Packet& p) {
        Fate fate;
        fate.lose = p.info().response && p.psn >= Psn(0x102) && p.psn <= Psn(0x103);
        return fate;
    };
    read(1, 4 * 1024);
    link->idle(kTimeout14 + milliseconds(1));
    EXPECT_EQ(sent()[5].psn, Psn(0x102)) << "the request for the rest";
    for (const bool last : {false, true}) {
        roce::Packet p = to(link->a, last ? Opcode::kReadResponseLast : Opcode::kReadResponseMiddle,
                            last ? 0x103 : 0x102);
        inject(link->a, p, 1024);
    }
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 2048));
    EXPECT_TRUE(std::ranges::all_of(link->a.at((1 << 20) + 2048, 2048),
                                    [](std::byte b) { return b == std::byte{0x5a}; }));
}

// ROCE 10: 53
TEST_F(RecoveryTest, DuplicateReadOfSomethingElseIsDropped) {
    open();
    read(1, 4 * 1024);
    ASSERT_TRUE(link->run(1));
    const std::size_t frames = sent().size();
    roce::Packet p = to(link->b, Opcode::kReadRequest, 0x100);
    const std::uint64_t address = link->b.buffer.value() + (1 << 20);
    for (const auto& reth : {roce::Reth{address + 1, roce::RKey(link->b.mr.rkey), 4096},
                             roce::Reth{address, roce::RKey(link->b.mr.rkey + 1), 4096},
                             roce::Reth{address, roce::RKey(link->b.mr.rkey), 5000}}) {
        p.reth = reth;
        inject(link->b, p);
    }
    p.psn = Psn(0xf0);  // before the connection
    p.reth = {address, roce::RKey(link->b.mr.rkey), 4096};
    inject(link->b, p);
    EXPECT_EQ(sent().size(), frames);
    EXPECT_STREQ(link->b.state(), "RTS");
}

// ROCE 10: 54
TEST_F(RecoveryTest, DuplicateReadReadsAnew) {
    open();
    read(1, 2 * 1024);
    ASSERT_TRUE(link->run(1));
    link->b.at(1 << 20, 1)[0] = std::byte{0x77};
    std::vector<std::byte> first_bytes;
    roce::Packet p = to(link->b, Opcode::kReadRequest, 0x100);
    p.reth = {link->b.buffer.value() + (1 << 20), roce::RKey(link->b.mr.rkey), 2048};
    link->network.fate = [&](const roce::Packet& packet) {
        if (packet.info().response) first_bytes.push_back(packet.payload[0]);
        return Fate{};
    };
    inject(link->b, p);
    ASSERT_EQ(first_bytes.size(), 2U);
    EXPECT_EQ(first_bytes[0], std::byte{0x77});
    EXPECT_EQ(sent().back().aeth.msn, 1U);
    write(2, 10);
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
}

// ROCE 10: 55
TEST_F(RecoveryTest, OldSendInTheMiddleOfAMessage) {
    open();
    link->b.recv(1, 0, 64);
    send(1, 10);
    ASSERT_TRUE(link->run(1, 1));
    lose([](const roce::Packet& p) { return p.psn == Psn(0x103) && !p.info().response; }, 1);
    link->network.fate = [](const roce::Packet& p) {
        Fate fate;  // the rest of the WRITE comes late
        if (!p.info().response && p.psn >= Psn(0x103)) fate.delay = microseconds(500);
        return fate;
    };
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 4 * 1024, 65536));
    link->idle(microseconds(10));
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    EXPECT_TRUE(is_ack(sent().back()));
    EXPECT_EQ(sent().back().psn, Psn(0x102)) << "the newest that is executed";
    ASSERT_TRUE(link->run(2, 1));
    link->idle();
    expect_ok(2, 1);
    EXPECT_TRUE(same(0, 65536, 4 * 1024));
}

// ROCE 10: 56
TEST_F(RecoveryTest, AckOfADuplicateWaitsBehindReadData) {
    open();
    link->b.recv(1, 0, 64);
    send(1, 10);
    ASSERT_TRUE(link->run(1, 1));
    link->network.sent.clear();
    // Both in one batch: the request for more data than one turn sends, and the duplicate.
    roce::Packet request = to(link->b, Opcode::kReadRequest, 0x101);
    request.reth = {link->b.buffer.value(), roce::RKey(link->b.mr.rkey), 3 << 20};
    base::Frame frame;
    roce::encode(request, frame);
    link->b.node->rnic.receive(frame);
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x100), 10);
    ASSERT_EQ(sent().size(), 3U * 1024 + 1);
    EXPECT_EQ(sent()[sent().size() - 2].opcode, Opcode::kReadResponseLast);
    EXPECT_TRUE(is_ack(sent().back()));
    EXPECT_EQ(link->b.done.size(), 1U);
}

// ROCE 10: 56
TEST_F(RecoveryTest, DuplicateReadDoesNotSwallowAnAck) {
    open();
    read(1, 100);
    ASSERT_TRUE(link->run(1));
    link->network.sent.clear();
    // In one batch: a WRITE that is owed its ACK, and then the READ before it once more.
    roce::Packet first = to(link->b, Opcode::kWriteOnly, 0x101);
    roce::Packet again = to(link->b, Opcode::kReadRequest, 0x100);
    again.reth = {link->b.buffer.value() + (1 << 20), roce::RKey(link->b.mr.rkey), 100};
    base::Frame frame;
    for (const roce::Packet& p : {first, again}) {
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
    }
    link->idle(microseconds(10));
    EXPECT_EQ(story(), (Words{"RO100", "A101"}));
    EXPECT_EQ(sent()[0].aeth.msn, 2U);
    EXPECT_EQ(sent()[1].aeth.msn, 2U);
}

/// Its data acknowledge the WRITE before it, whose own ACK would come behind them and name less.
TEST_F(RecoveryTest, ReadSpeaksForTheWriteOfItsBatch) {
    open();
    const roce::Packet first = to(link->b, Opcode::kWriteOnly, 0x100);
    roce::Packet then = to(link->b, Opcode::kReadRequest, 0x101);
    then.reth = {link->b.buffer.value() + (1 << 20), roce::RKey(link->b.mr.rkey), 100};
    base::Frame frame;
    for (const roce::Packet& p : {first, then}) {
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
    }
    link->idle(microseconds(10));
    EXPECT_EQ(story(), (Words{"RO101"}));
    EXPECT_EQ(sent()[0].aeth.msn, 2U);
}

// ROCE 10: 59
TEST_F(RecoveryTest, AckInsideAReadCompletesNothing) {
    open();
    lose([](const roce::Packet& p) { return p.info().response && p.psn >= Psn(0x102); }, 2);
    read(1, 4 * 1024);
    link->idle();
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x103));
    EXPECT_TRUE(link->a.done.empty());
    EXPECT_STREQ(link->a.state(), "RTS");
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

/// An ACK that names a response in the middle, as a peer makes it that answers an old duplicate:
/// the responses up to there are not here for it, and are asked for.
// ROCE 10: 59
TEST_F(RecoveryTest, AckInTheMiddleOfAReadMovesNothing) {
    open();
    lose([](const roce::Packet& p) { return p.info().response && p.psn >= Psn(0x101); }, 3);
    read(1, 4 * 1024);
    link->idle();
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x102));
    EXPECT_TRUE(link->a.done.empty());
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(story(), (Words{"RR100", "RF100", "RM101", "RM102", "RL103", "RR101", "RF101",
                              "RM102", "RL103"}));
    EXPECT_EQ(sent()[5].reth.length, 3U * 1024);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

// ROCE 10: 62
TEST_F(RecoveryTest, LateAckEndsTheRetransmission) {
    Connection::Options options;
    options.timeout = 8;
    open(options);
    link->b.recv(1, 0, 8192);
    link->b.recv(2, 16384, 64);
    link->network.fate = [n = 0](const roce::Packet& p) mutable {
        Fate fate;  // just after the timer
        if (is_ack(p) && n++ == 0) fate.delay = base::Duration(4096 * 256) + microseconds(1);
        return fate;
    };
    send(1, 5 * 1024);
    ASSERT_TRUE(link->run(1, 1));
    link->idle(milliseconds(5));
    expect_ok(1, 1);
    EXPECT_EQ(at_a().timeouts.value(), 1U);
    send(2, 10);
    ASSERT_TRUE(link->run(2, 2));
    expect_ok(2, 2);
}

// ROCE 10: 67, 68
TEST_F(RecoveryTest, EachRnrTimerCodeIsWaitedFor) {
    for (std::uint32_t code = 0; code < 32; ++code) {
        SCOPED_TRACE(code);
        Connection::Options options;
        options.limits_b.rnr_timer = code;
        open(options, impatient());
        std::vector<base::TimePoint> tries;
        link->network.fate = [&](const roce::Packet& p) {
            if (p.opcode == Opcode::kSendOnly) tries.push_back(link->world.now());
            return Fate{};
        };
        send(1, 10);
        link->idle(microseconds(8));
        EXPECT_EQ(naks(roce::rnr_syndrome(static_cast<std::uint8_t>(code))), 1U);
        link->b.recv(1, 0, 64);
        ASSERT_TRUE(link->run(1, 1));
        expect_ok(1, 1);
        ASSERT_EQ(tries.size(), 2U);
        const base::Duration wait = roce::rnr_delay(static_cast<std::uint8_t>(code));
        EXPECT_GE(tries[1] - tries[0], wait);
        EXPECT_LT(tries[1] - tries[0], 2 * wait);
        EXPECT_TRUE(same(0, 0, 10));
    }
}

// ROCE 10: 69
TEST_F(RecoveryTest, RnrRetriesRunOut) {
    for (const std::uint32_t retries : {0U, 2U}) {
        Connection::Options options;
        options.limits_a.rnr_retry = retries;
        open(options, impatient());
        send(1, 10, false);
        send(2, 10);
        ASSERT_TRUE(link->run(1));
        link->idle(milliseconds(200));
        EXPECT_EQ(link->a.done[0].id, 1U);
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RNR_RETRY});
        EXPECT_EQ(at_b().rnr_naks_sent.value(), retries + 1);
        EXPECT_STREQ(link->a.state(), "ERR");
        EXPECT_STREQ(link->b.state(), "RTS");
        EXPECT_TRUE(link->b.done.empty());
        EXPECT_TRUE(link->b.node->host.fatal_eq.drain().empty());
    }
}

// ROCE 10: 70
TEST_F(RecoveryTest, SevenRnrRetriesAreEndless) {
    Connection::Options options;
    options.limits_b.rnr_timer = 24;
    open(options, impatient());
    send(1, 10);
    link->idle(std::chrono::seconds(60));
    EXPECT_TRUE(link->a.done.empty());
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
}

// ROCE 10: 71
TEST_F(RecoveryTest, RnrRetriesRefill) {
    Connection::Options options;
    options.limits_a.rnr_retry = 1;
    options.limits_b.rnr_timer = 14;
    open(options, impatient());
    for (std::uint64_t i = 0; i < 10; ++i) {
        send(i, 10);
        link->idle(microseconds(100));
        link->b.recv(i, 0, 64);
        ASSERT_TRUE(link->run(i + 1, i + 1));
    }
    expect_ok(10, 10);
    EXPECT_EQ(at_a().rnr_naks.value(), 10U);
}

// ROCE 10: 60
TEST_F(RecoveryTest, CopyOfAnRnrNakCostsNoRetry) {
    Connection::Options options;
    options.limits_a.rnr_retry = 1;
    options.limits_b.rnr_timer = 14;
    open(options, impatient());
    link->network.fate = [](const roce::Packet& p) {
        Fate fate;
        if (p.opcode == Opcode::kAcknowledge && (p.aeth.syndrome & 0x60) == 0x20) fate.copies = 3;
        return fate;
    };
    send(1, 10);
    link->idle(microseconds(100));
    EXPECT_EQ(at_a().rnr_naks.value(), 3U);
    link->b.recv(1, 0, 64);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
}

// ROCE 10: 73
TEST_F(RecoveryTest, OnlyTheLastPacketOfAWriteWaitsForTheReceive) {
    open({}, impatient());
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 1, 0, 3 * 1024));
    link->idle(microseconds(100));
    link->b.recv(1, 65536, 16);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_EQ(story(), (Words{"WF100", "WM101", "WL102", "RNR102", "WL102", "A102"}));
    EXPECT_TRUE(same(0, 0, 3 * 1024));
}

// ROCE 10: 74
TEST_F(RecoveryTest, ReadToldToWaitIsRepeated) {
    open();
    lose(response(0x100));
    read(1, 100);
    link->idle(microseconds(10));
    roce::Packet rnr = to(link->a, Opcode::kAcknowledge, 0x100);
    rnr.aeth.syndrome = roce::rnr_syndrome(14);
    inject(link->a, rnr);
    link->idle(microseconds(1000));
    EXPECT_EQ(sent().size(), 2U) << "the time is not over";
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 100));
}

TEST_F(RecoveryTest, WaitOfTheWireEndsAStallOfTheLocalPath) {
    open();
    link->network.local = true;
    auto& host = link->b.node->host;
    ASSERT_TRUE(host.to_state(*link->b.qp, MANA_HW_RNIC_QP_INIT));
    write(1, 10);
    link->idle(microseconds(10));
    roce::Packet rnr = to(link->a, Opcode::kAcknowledge, 0x100);
    rnr.aeth.syndrome = roce::rnr_syndrome(14);
    inject(link->a, rnr);
    ASSERT_TRUE(host.to_state(*link->b.qp, MANA_HW_RNIC_QP_RTS));
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
}

TEST_F(RecoveryTest, CountOfMessagesNeverGoesBack) {
    open();
    // Two READs wait, and the first is asked for again: it says more than the second did.
    std::vector<roce::Packet> packets;
    for (const std::uint32_t i : {0U, 1U, 0U}) {
        packets.push_back(to(link->b, Opcode::kReadRequest, 0x100 + i));
        packets.back().reth.length = 100;
    }
    packets.insert(packets.end() - 1, to(link->b, Opcode::kWriteOnly, 0x102));
    base::Frame frame;
    for (const roce::Packet& p : packets) {
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
    }
    link->idle(microseconds(10));
    std::uint32_t msn = 0;
    for (const roce::Packet& p : sent()) {
        EXPECT_GE(p.aeth.msn, msn);
        msn = p.aeth.msn;
    }
    EXPECT_EQ(msn, 3U);
}

// ROCE 10: 75
TEST_F(RecoveryTest, NothingCutsTheWaitShort) {
    Connection::Options options;
    options.limits_b.rnr_timer = 14;
    open(options, impatient());
    link->b.recv(1, 0, 64);
    send(1, 10, false);
    send(2, 10);
    ASSERT_TRUE(link->run(1, 1));
    link->idle(microseconds(10));
    const std::size_t frames = sent().size();
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x100));
    roce::Packet cnp = to(link->a, Opcode::kCnp, 0);
    cnp.becn = true;
    inject(link->a, cnp);
    write(3, 10);
    link->idle(microseconds(1200));
    EXPECT_EQ(sent().size(), frames);
    link->b.recv(2, 64, 64);
    ASSERT_TRUE(link->run(3, 2));
    expect_ok(3, 2);
}

// ROCE 10: 76
TEST_F(RecoveryTest, FourTriesThenBothQueuesAreFlushed) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 3;
    open(options);
    link->a.recv(1, 0, 64);
    lose([](const roce::Packet&) { return true; }, 1000);
    const auto start = link->world.now();
    write(1, 10, 0, false);
    write(2, 10);
    ASSERT_TRUE(link->run(1));
    const base::Duration t{4096 * 256};
    EXPECT_GE(link->world.now() - start, 4 * t);
    EXPECT_LE(link->world.now() - start, 16 * t);
    EXPECT_EQ(sent().size(), 8U);
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_RETRY});
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

/// When the packets of one WRITE that nobody answers go out, after the first of them.
class BackOffTest : public RecoveryTest {
protected:
    std::vector<base::Duration> tries(std::uint8_t timeout, std::uint32_t retries) {
        Connection::Options options;
        options.timeout = timeout;
        options.retries = retries;
        open(options);
        std::vector<base::Duration> all;
        const auto start = link->world.now();
        link->network.fate = [&](const roce::Packet&) {
            all.push_back(link->world.now() - start);
            return Fate{true};
        };
        write(1, 10);
        EXPECT_TRUE(link->world.run_until(
            [&] {
                link->a.poll();
                return !link->a.done.empty();
            },
            std::chrono::seconds(60)));
        EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_RETRY});
        all.push_back(link->world.now() - start);
        return all;
    }
    /// As many waits of so many times `unit` one after the other, to a few microseconds.
    static void expect_waits(const std::vector<base::Duration>& tries, base::Duration unit,
                             const std::vector<int>& times) {
        ASSERT_EQ(tries.size(), times.size() + 1);
        for (std::size_t i = 0; i < times.size(); ++i) {
            SCOPED_TRACE(i);
            EXPECT_GE(tries[i + 1] - tries[i], unit * times[i]);
            EXPECT_LT(tries[i + 1] - tries[i], unit * times[i] + microseconds(100));
        }
    }
};

TEST_F(BackOffTest, EachTimeoutInARowWaitsTwiceAsLongUpToFourTimes) {
    expect_waits(tries(10, 7), roce::ack_timeout(10), {1, 2, 4, 4, 4, 4, 4, 4});
}

TEST_F(BackOffTest, NoneWaitsLongerThanAQuarterOfASecondThatWouldNotHave) {
    expect_waits(tries(15, 3), roce::ack_timeout(15), {1, 2, 2, 2});
    expect_waits(tries(16, 2), roce::ack_timeout(16), {1, 1, 1});
    expect_waits(tries(18, 2), roce::ack_timeout(18), {1, 1, 1});
}

TEST_F(BackOffTest, ProgressBringsTheFirstWaitBack) {
    Connection::Options options;
    options.timeout = 10;
    open(options);
    link->network.fate = [](const roce::Packet& p) { return Fate{p.info().response}; };
    write(1, 4 * 1024);
    const auto timeouts = [&] { return at_a().timeouts.value(); };
    ASSERT_TRUE(link->world.run_until([&] { return timeouts() == 3; }, std::chrono::seconds(1)));
    inject(link->a, to(link->a, Opcode::kAcknowledge, 0x101));
    const auto start = link->world.now();
    ASSERT_TRUE(link->world.run_until([&] { return timeouts() == 4; }, std::chrono::seconds(1)));
    EXPECT_LT(link->world.now() - start, roce::ack_timeout(10) + microseconds(100));
}

/// Answers take six times as long as the timeout.
TEST_F(BackOffTest, APathLongerThanTheTimeoutDoesNotUseTheRetriesUp) {
    Connection::Options options;
    options.timeout = 10;
    options.retries = 3;
    open(options);
    link->network.fate = [](const roce::Packet&) {
        Fate fate;
        fate.delay = 3 * roce::ack_timeout(10);
        return fate;
    };
    for (std::uint64_t i = 1; i <= 20; ++i) write(i, 3 * 1024);
    ASSERT_TRUE(link->run(20, 0, std::chrono::seconds(60)));
    expect_ok(20);
    EXPECT_EQ(at_a().retries_exceeded.value(), 0U);
}

/// Two retries, in a network that loses all answers until it is mended. After the first timeout
/// `progress` brings one of them after all: one retry is left then, and two are needed.
class RefillTest : public RecoveryTest {
protected:
    void two_retries_more_after(const std::function<void()>& work,
                                const std::function<void()>& progress,
                                std::uint64_t costs_of_progress, std::size_t works) {
        Connection::Options options;
        options.timeout = 8;
        options.retries = 2;
        open(options);
        link->network.fate = [](const roce::Packet& p) { return Fate{p.info().response}; };
        work();
        ASSERT_TRUE(timeouts_reach(1));
        progress();
        ASSERT_TRUE(timeouts_reach(2 - costs_of_progress));
        link->idle(microseconds(100));  // what was sent again is lost as well
        EXPECT_EQ(at_a().retries_exceeded.value(), 0U);
        link->network.fate = nullptr;
        ASSERT_TRUE(link->run(works));
        expect_ok(works);
    }
    bool timeouts_reach(std::uint64_t count) {
        return link->world.run_until([&] { return at_a().timeouts.value() >= count; },
                                     std::chrono::seconds(1));
    }
};

// ROCE 10: 80
TEST_F(RefillTest, AnAckInTheMiddleOfAMessageGivesAllRetriesBack) {
    two_retries_more_after([&] { write(1, 4 * 1024); },
                           [&] { inject(link->a, to(link->a, Opcode::kAcknowledge, 0x101)); }, 0,
                           1);
    EXPECT_TRUE(same(2048, 2048, 2048));
}

// ROCE 10: 80
TEST_F(RefillTest, AnAckOfOneOfTwoMessagesGivesAllRetriesBack) {
    two_retries_more_after(
        [&] {
            write(1, 10);
            write(2, 10, 4096);
        },
        [&] { inject(link->a, to(link->a, Opcode::kAcknowledge, 0x100)); }, 0, 2);
}

// ROCE 10: 80
TEST_F(RefillTest, AReadResponseGivesAllRetriesBack) {
    two_retries_more_after(
        [&] { read(1, 4 * 1024); },
        [&] { inject(link->a, to(link->a, Opcode::kReadResponseFirst, 0x100), 1024); }, 0, 1);
    EXPECT_TRUE(same((1 << 20) + 1024, (1 << 20) + 1024, 3 * 1024));
}

/// The WRITE is done by it, and the loss that it shows of the READ's first response costs one of
/// the retries that this gave back.
// ROCE 10: 80
TEST_F(RefillTest, AReadResponseThatAcknowledgesTheWorkBeforeGivesAllRetriesBack) {
    two_retries_more_after(
        [&] {
            write(1, 10);
            read(2, 4 * 1024);
        },
        [&] { inject(link->a, to(link->a, Opcode::kReadResponseMiddle, 0x102), 1024); }, 1, 2);
    EXPECT_EQ(at_a().implicit_naks.value(), 1U);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

// ROCE 10: 78
TEST_F(RecoveryTest, WithoutRetriesASequenceErrorIsFatal) {
    Connection::Options options;
    options.retries = 0;
    open(options);
    lose(request(0x100));
    write(1, 10, 0, false);
    write(2, 10, 4096);
    ASSERT_TRUE(link->run(1, 0, milliseconds(1)));
    EXPECT_EQ(link->a.done[0].id, 1U);
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
    EXPECT_EQ(sent().size(), 3U);
}

// ROCE 10: 81
TEST_F(RecoveryTest, PeerThatIsGoneLeavesWhatWasDone) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 1;
    open(options);
    write(1, 10);
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(link->b.node->host.destroy_rc(*link->b.qp));
    for (std::uint64_t i = 2; i < 12; ++i) write(i, 10, 0, i == 11);
    ASSERT_TRUE(link->world.run_until(
        [&] {
            link->a.poll();
            return link->a.done.size() >= 2;
        },
        std::chrono::seconds(1)));
    EXPECT_EQ(link->a.done[0].vendor, 0U);
    EXPECT_EQ(link->a.done[1].id, 2U) << "the oldest; the provider flushes the others";
    EXPECT_EQ(link->a.done[1].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
}

// ROCE 10: 141
TEST_F(RecoveryTest, CongestionNotificationsTakeNoPsn) {
    open();
    const roce::Packet to_b = to(link->b, Opcode::kCnp, 0);
    const roce::Packet to_a = to(link->a, Opcode::kCnp, 0);
    for (int i = 0; i < 5; ++i) {
        write(static_cast<std::uint64_t>(i), 3000);
        inject(link->b, to_b);
        inject(link->a, to_a);
    }
    ASSERT_TRUE(link->run(5));
    expect_ok(5);
    EXPECT_EQ(naks(0x60), 0U);
    EXPECT_EQ(at_a().retransmits.value(), 0U);
}

/// A peer that is gone for the local path, and whose frames still come.
TEST_F(RecoveryTest, AFrameAnswersAReadThatTheLocalPathWaitsFor) {
    open();
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_ERR));
    link->network.local = true;
    read(1, 3 * 1024);
    inject(link->a, to(link->a, Opcode::kReadResponseFirst, 0x100), 1024);
    const rnic::Qp* const qp = link->a.node->rnic.adapter().qps.find(roce::Qpn(link->a.qp->qpn()));
    const rnic::RequesterView view = qp->requester.view();
    EXPECT_EQ(view.una, Psn(0x101));
    EXPECT_EQ(view.reads_out, 0U);
    EXPECT_EQ(view.read_psns, 0U);
    EXPECT_TRUE(view.stalled) << "the rest is asked for by the local path again";
    EXPECT_EQ(link->frames(Opcode::kReadRequest), 0U);
}

}  // namespace
}  // namespace openmana::test
