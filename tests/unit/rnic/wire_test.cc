// SPDX-License-Identifier: Apache-2.0
// Loss, duplicates, reordering and corruption on the wire path (ROCE 10.3, 10.4).
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;

class WireTest : public ::testing::Test {
protected:
    void open(const Connection::Options& options = Connection::Options(),
              const rnic::RnicConfig& config = {}) {
        link = std::make_unique<Connection>(false, options, config);
        Connection::fill(link->a.at(0, 1 << 20), 1);
        Connection::fill(link->b.at(1 << 20, 1 << 20), 2);
    }
    /// Loses the first packet for which `match` holds.
    void lose(std::function<bool(const roce::Packet&)> match) {
        link->network.fate = [match, lost = false](const roce::Packet& packet) mutable {
            Fate fate;
            if (!lost && match(packet)) fate.lose = lost = true;
            return fate;
        };
    }
    void lose_psn(std::uint32_t psn, bool response = false) {
        lose([psn, response](const roce::Packet& p) {
            return p.psn == Psn(psn) && p.info().response == response;
        });
    }
    [[nodiscard]] bool same(std::uint64_t at_a, std::uint64_t at_b, std::uint64_t length) const {
        return std::ranges::equal(link->a.at(at_a, length), link->b.at(at_b, length));
    }
    [[nodiscard]] std::size_t naks() const {
        return static_cast<std::size_t>(
            std::count_if(link->network.sent.begin(), link->network.sent.end(), [](const auto& p) {
                return p.opcode == Opcode::kAcknowledge && p.aeth.syndrome == 0x60;
            }));
    }
    /// A WRITE of `packets` packets, and then a READ of as many.
    void write(std::uint32_t packets) {
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, packets * 1024, 0));
    }
    void read(std::uint32_t packets) {
        link->post(link->wr(MANA_HW_RNIC_WQE_READ, 2, 1 << 20, packets * 1024, 1 << 20));
    }
    const rnic::RnicCounters& at_a() { return link->a.node->rnic.counters(); }
    const rnic::RnicCounters& at_b() { return link->b.node->rnic.counters(); }
    std::unique_ptr<Connection> link;
};

// ROCE 10: 15
TEST_F(WireTest, SegmentsAtThePathMtu) {
    open();
    link->b.recv(1, 0, 4096);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 2049));
    ASSERT_TRUE(link->run(1, 1));
    ASSERT_GE(link->network.sent.size(), 4U);
    const auto& sent = link->network.sent;
    EXPECT_EQ(sent[0].opcode, Opcode::kSendFirst);
    EXPECT_EQ(sent[1].opcode, Opcode::kSendMiddle);
    EXPECT_EQ(sent[2].opcode, Opcode::kSendLast);
    EXPECT_FALSE(sent[0].ack_request);
    EXPECT_FALSE(sent[1].ack_request);
    EXPECT_TRUE(sent[2].ack_request);
    EXPECT_EQ(link->network.sent_bytes[0], 1024U);
    EXPECT_EQ(link->network.sent_bytes[2], 1U);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sent[i].psn, Psn(0x100 + i));
    EXPECT_EQ(sent[3].opcode, Opcode::kAcknowledge);
    EXPECT_EQ(sent[3].psn, Psn(0x102));
    EXPECT_EQ(sent[3].aeth.msn, 1U);
    EXPECT_EQ(sent[3].aeth.syndrome, 0x1f);
}

// ROCE 10: 17
TEST_F(WireTest, ReadConsumesPsns) {
    open();
    link->b.recv(1, 0, 16);
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 1, 1 << 20, 4000, 1 << 20), false);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 2, 0, 1));
    ASSERT_TRUE(link->run(2, 1));
    const auto& sent = link->network.sent;
    EXPECT_EQ(sent[0].opcode, Opcode::kReadRequest);
    EXPECT_EQ(sent[0].reth.length, 4000U);
    EXPECT_EQ(sent[1].opcode, Opcode::kSendOnly);
    EXPECT_EQ(sent[1].psn, Psn(0x104));
    EXPECT_EQ(sent[2].opcode, Opcode::kReadResponseFirst);
    EXPECT_EQ(sent[2].psn, Psn(0x100));
    EXPECT_EQ(sent[5].opcode, Opcode::kReadResponseLast);
    EXPECT_EQ(sent[6].opcode, Opcode::kAcknowledge) << "behind the responses of the READ before it";
    EXPECT_EQ(sent[6].aeth.msn, 2U);
}

// ROCE 10: 40, 63
TEST_F(WireTest, LostMiddlePacketCostsOneNak) {
    open();
    lose_psn(0x102);
    write(50);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(naks(), 1U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_TRUE(same(0, 0, 50 * 1024));
    const auto requests = static_cast<std::uint64_t>(
        std::count_if(link->network.sent.begin(), link->network.sent.end(),
                      [](const auto& p) { return !p.info().response; }));
    // One was lost, 50 were taken, and the rest came ahead.
    EXPECT_EQ(at_b().out_of_sequence.value(), requests - 1 - 50);
    EXPECT_EQ(at_b().duplicates.value(), 0U);
    const auto again =
        std::count_if(link->network.sent.begin(), link->network.sent.end(),
                      [](const auto& p) { return p.psn == Psn(0x102) && !p.info().response; });
    EXPECT_EQ(again, 2);
    for (const auto& p : link->network.sent)
        if (p.psn == Psn(0x102) && !p.info().response) {
            EXPECT_EQ(p.opcode, Opcode::kWriteMiddle);
        }
}

// ROCE 10: 41
TEST_F(WireTest, LostNakIsRepairedByTheTimer) {
    open();
    link->network.fate = [n = 0, nak = 0](const roce::Packet& p) mutable {
        Fate fate;
        fate.lose = (p.psn == Psn(0x102) && !p.info().response && n++ == 0) ||
                    (p.opcode == Opcode::kAcknowledge && p.aeth.syndrome == 0x60 && nak++ == 0);
        return fate;
    };
    write(5);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().timeouts.value(), 1U);
    EXPECT_TRUE(same(0, 0, 5 * 1024));
}

// ROCE 10: 43
TEST_F(WireTest, LostAckDoesNotConsumeASecondReceive) {
    open();
    link->b.recv(1, 0, 64);
    link->b.recv(2, 64, 64);
    lose([](const roce::Packet& p) { return p.opcode == Opcode::kAcknowledge; });
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 10));
    ASSERT_TRUE(link->run(1, 1));
    link->idle();
    EXPECT_EQ(link->b.done.size(), 1U);
    EXPECT_EQ(at_a().timeouts.value(), 1U);
    EXPECT_EQ(at_b().duplicates.value(), 1U);
}

// ROCE 10: 44
TEST_F(WireTest, LostAckIsCoveredByTheNext) {
    open();
    lose([](const roce::Packet& p) { return p.opcode == Opcode::kAcknowledge; });
    write(1);
    link->world.advance(std::chrono::microseconds(5));
    write(1);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(at_a().timeouts.value(), 0U);
}

// ROCE 10: 46
TEST_F(WireTest, LostReadRequestThenWrite) {
    open();
    lose([](const roce::Packet& p) { return p.opcode == Opcode::kReadRequest; });
    read(3);
    write(2);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(naks(), 1U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_EQ(link->a.done[0].id, 2U);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 3 * 1024));
    EXPECT_TRUE(same(0, 0, 2 * 1024));
}

// ROCE 10: 47, 48, 49
TEST_F(WireTest, LostReadResponses) {
    for (std::uint32_t k = 0; k < 4; ++k) {
        SCOPED_TRACE(k);
        open();
        lose_psn(0x100 + k, true);
        read(4);
        ASSERT_TRUE(link->run(1));
        EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
        EXPECT_EQ(at_a().timeouts.value(), k == 3 ? 1U : 0U);
        EXPECT_EQ(at_a().implicit_naks.value() > 0, k < 3);
        const auto request =
            std::find_if(link->network.sent.rbegin(), link->network.sent.rend(),
                         [](const auto& p) { return p.opcode == Opcode::kReadRequest; });
        EXPECT_EQ(request->psn, Psn(0x100 + k));
        EXPECT_EQ(request->reth.length, (4 - k) * 1024);
        EXPECT_EQ(request->reth.address, link->b.buffer.value() + (1 << 20) + k * 1024);
        const roce::Packet& answer = *(request.base());
        EXPECT_EQ(answer.opcode, k == 3 ? Opcode::kReadResponseOnly : Opcode::kReadResponseFirst);
    }
}

// ROCE 10: 50
TEST_F(WireTest, AckBehindALostReadResponseIsAnImpliedNak) {
    open();
    lose_psn(0x103, true);
    read(4);
    write(1);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(at_a().timeouts.value(), 0U);
    EXPECT_GE(at_a().implicit_naks.value(), 1U);
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

// ROCE 10: 60
TEST_F(WireTest, DuplicatedEverything) {
    open();
    link->network.fate = [](const roce::Packet&) { return Fate{false, 2}; };
    link->b.recv(1, 8192, 4096);
    read(4);
    write(5);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 3, 0, 3000));
    ASSERT_TRUE(link->run(3, 1));
    link->idle();
    EXPECT_EQ(link->a.done.size(), 3U);
    EXPECT_EQ(link->b.done.size(), 1U);
    EXPECT_TRUE(same(0, 0, 5 * 1024));
    EXPECT_TRUE(same(1 << 20, 1 << 20, 4 * 1024));
}

// ROCE 10: 61
TEST_F(WireTest, ReorderedPackets) {
    open();
    link->network.fate = [n = 0](const roce::Packet&) mutable {
        Fate fate;
        if (n++ % 5 == 2) fate.delay = std::chrono::microseconds(4);
        return fate;
    };
    read(20);
    write(20);
    ASSERT_TRUE(link->run(2));
    EXPECT_TRUE(same(0, 0, 20 * 1024));
    EXPECT_TRUE(same(1 << 20, 1 << 20, 20 * 1024));
}

// ROCE 10: 6
TEST_F(WireTest, BadIcrcHasNoEffect) {
    open();
    link->network.fate = [n = 0](const roce::Packet& p) mutable {
        Fate fate;
        fate.corrupt = p.psn == Psn(0x102) && n++ == 0;
        return fate;
    };
    write(5);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_b().drop_icrc.value(), 1U);
    EXPECT_EQ(naks(), 1U);
    EXPECT_EQ(at_a().timeouts.value(), 0U) << "repaired by the NAK";
    EXPECT_TRUE(same(0, 0, 5 * 1024));
}

// ROCE 10: 65
TEST_F(WireTest, LossAtEveryPosition) {
    const auto workload = [&] {
        link->b.recv(1, 100000, 4096);
        link->b.recv(2, 110000, 4096);
        write(3);
        read(3);
        link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 3, 0, 1500));
        link->post(link->wr(MANA_HW_RNIC_WQE_READ, 4, 1 << 20, 100, 1 << 20));
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 5, 0, 2000, 50000));
    };
    open();
    workload();
    ASSERT_TRUE(link->run(5, 2));
    const std::size_t frames = link->network.sent.size();
    for (std::size_t k = 0; k < frames; ++k) {
        for (std::size_t l = k; l < frames; l += 3) {
            SCOPED_TRACE(testing::Message() << "frames " << k << " and " << l);
            open();
            link->network.fate = [n = std::size_t{0}, k, l](const roce::Packet&) mutable {
                Fate fate;
                fate.lose = n == k || n == l;
                ++n;
                return fate;
            };
            workload();
            ASSERT_TRUE(link->run(5, 2));
            for (std::size_t i = 0; i < 5; ++i) {
                EXPECT_EQ(link->a.done[i].id, i + 1);
                EXPECT_EQ(link->a.done[i].vendor, 0U);
            }
            EXPECT_TRUE(same(0, 0, 3 * 1024));
            EXPECT_TRUE(same(1 << 20, 1 << 20, 3 * 1024));
            EXPECT_TRUE(same(0, 100000, 1500));
            EXPECT_TRUE(same(0, 50000, 2000));
            link->idle();
            EXPECT_EQ(link->b.done.size(), 2U);
        }
    }
}

// ROCE 10: 66
TEST_F(WireTest, WindowIsNeverExceeded) {
    rnic::RnicConfig config;
    config.window_packets = 8;
    open(Connection::Options(), config);
    std::uint32_t acked = 0x100;
    std::uint32_t most = 0;
    link->network.fate = [&](const roce::Packet& p) {
        if (p.opcode == Opcode::kAcknowledge) acked = p.psn.value() + 1;
        if (!p.info().response) most = std::max(most, p.psn.value() - acked + 1);
        return Fate{};
    };
    write(200);
    ASSERT_TRUE(link->run(1));
    EXPECT_LE(most, 8U);
    EXPECT_EQ(at_a().timeouts.value(), 0U) << "the last packet of a full window asks for its ACK";
    EXPECT_TRUE(same(0, 0, 200 * 1024));
}

TEST_F(WireTest, TheWindowHalvesWithEachTimeout) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 7;
    open(options);
    link->network.fate = [](const roce::Packet&) { return Fate{true}; };
    write(300);
    ASSERT_TRUE(link->run(1));
    std::vector<unsigned> bursts;
    for (const auto& packet : link->network.sent) {
        if (packet.psn.value() == 0x100) bursts.push_back(0);
        ++bursts.back();
    }
    EXPECT_EQ(bursts, (std::vector<unsigned>{256, 128, 64, 32, 16, 16, 16, 16}));
}

TEST_F(WireTest, TheWindowOpensAgainAsAcknowledgementsCome) {
    Connection::Options options;
    options.timeout = 8;
    open(options);
    unsigned lost = 0;
    std::uint32_t acked = 0x100;
    std::uint32_t most = 0;
    link->network.fate = [&](const roce::Packet& p) {
        if (lost < 256 + 128 + 64) return ++lost, Fate{true};
        if (p.opcode == Opcode::kAcknowledge) acked = p.psn.value() + 1;
        if (!p.info().response) most = std::max(most, p.psn.value() - acked + 1);
        return Fate{};
    };
    write(3000);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(at_a().timeouts.value(), 3U);
    EXPECT_GT(most, 200U);
    EXPECT_LE(most, 256U);
    EXPECT_TRUE(same(0, 0, 3000 * 1024));
}

TEST_F(WireTest, ALostPacketHalvesTheWindow) {
    open();
    unsigned count = 0;
    std::uint32_t acked = 0x100;
    std::uint32_t most = 0;
    bool naked = false;
    link->network.fate = [&](const roce::Packet& p) {
        if (p.info().response) {
            naked = naked || p.aeth.syndrome >= 0x60;
            if (naked) acked = std::max(acked, p.psn.value());
            return Fate{};
        }
        if (naked && p.psn.value() < acked + 150) most = std::max(most, p.psn.value() - acked);
        return Fate{++count == 3};
    };
    write(256);
    ASSERT_TRUE(link->run(1));
    EXPECT_TRUE(naked);
    EXPECT_LE(most, 130U);
    EXPECT_TRUE(same(0, 0, 256 * 1024));
}

TEST_F(WireTest, AfterALossFewReadsAreAskedForAtOnce) {
    open();
    unsigned answers = 0;
    link->network.fate = [&](const roce::Packet& p) {
        return Fate{p.info().response && ++answers % 100 == 50};
    };
    for (int i = 0; i < 12; ++i) read(64);
    ASSERT_TRUE(link->run(12));
    EXPECT_LT(answers, 4U * 12 * 64) << "most answers behind a lost one are of no use";
}

// ROCE 10: 27
TEST_F(WireTest, FenceWaitsForTheReads) {
    open();
    link->b.recv(1, 0, 64);
    read(4);
    SendWr send = link->wr(MANA_HW_RNIC_WQE_SEND, 3, 0, 10);
    send.fence = true;
    link->post(send);
    ASSERT_TRUE(link->run(2, 1));
    const auto& sent = link->network.sent;
    const auto position = [&](Opcode opcode) {
        return std::find_if(sent.begin(), sent.end(),
                            [&](const auto& p) { return p.opcode == opcode; }) -
               sent.begin();
    };
    EXPECT_GT(position(Opcode::kSendOnly), position(Opcode::kReadResponseLast));
}

// ROCE 10: 72
TEST_F(WireTest, RnrInTheMiddleOfAStream) {
    open({}, impatient());
    for (std::uint64_t i = 0; i < 5; ++i) link->b.recv(i, 64 * i, 64);
    for (std::uint64_t i = 0; i < 10; ++i)
        link->post(link->wr(MANA_HW_RNIC_WQE_SEND, i, 64 * i, 64), i == 9);
    ASSERT_TRUE(link->run(5, 5));
    EXPECT_EQ(naks(), 0U) << "no sequence NAK follows the RNR NAK";
    EXPECT_EQ(link->b.node->rnic.counters().rnr_naks_sent.value(), 1U) << "nor another";
    link->idle(std::chrono::microseconds(100));
    EXPECT_EQ(link->b.node->rnic.counters().rnr_naks_sent.value(), 1U);
    for (std::uint64_t i = 5; i < 10; ++i) link->b.recv(i, 64 * i, 64);
    ASSERT_TRUE(link->run(10, 10));
    EXPECT_TRUE(same(0, 0, 640));
}

// ROCE 10: 77
TEST_F(WireTest, RetriesAreCounted) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 7;
    open(options);
    link->network.fate = [](const roce::Packet&) { return Fate{true}; };
    write(1);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
    EXPECT_EQ(link->network.sent.size(), 8U) << "seven is seven";
}

// ROCE 10: 80
TEST_F(WireTest, RetryCountRefills) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 1;
    options.ring = 65536;
    open(options);
    link->network.fate = [n = 0](const roce::Packet&) mutable {
        Fate fate;
        fate.lose = ++n % 10 == 0;
        return fate;
    };
    for (std::uint64_t i = 0; i < 100; ++i) {
        write(1);
        ASSERT_TRUE(link->run(i + 1));
        ASSERT_EQ(link->a.error(false), 0U);
    }
}

// ROCE 10: 57, 58, 99
TEST_F(WireTest, StrangeAnswersAreIgnored) {
    open();
    const auto inject = [&](std::uint8_t syndrome, std::uint32_t psn) {
        roce::Packet p;
        p.destination_mac = link->a.node->host.mac();
        p.source_mac = link->b.node->host.mac();
        p.source = link->b.node->host.gid();
        p.destination = link->a.node->host.gid();
        p.opcode = Opcode::kAcknowledge;
        p.destination_qpn = roce::Qpn(link->a.qp->qpn());
        p.psn = Psn(psn);
        p.aeth = {syndrome, 1};
        base::Frame frame;
        roce::encode(p, frame);
        link->a.node->rnic.receive(frame);
        link->idle();
    };
    lose([](const roce::Packet& p) { return p.opcode == Opcode::kAcknowledge; });
    write(3);
    link->idle();
    for (const std::uint8_t reserved : {0x40, 0x64, 0x65, 0x80, 0xff}) inject(reserved, 0x102);
    inject(0x1f, 0x0ff);  // a ghost
    inject(0x1f, 0x107);  // never sent
    inject(0x62, 0x200);
    EXPECT_TRUE(link->a.done.empty());
    EXPECT_STREQ(link->a.state(), "RTS");
    inject(0x1f, 0x102);
    EXPECT_EQ(link->a.done.size(), 1U);
}

// ROCE 10: 92, 94, 96
TEST_F(WireTest, RequestsThatBreakTheRules) {
    struct Case {
        Opcode opcode;
        std::uint32_t bytes;
        std::uint32_t reth;
        bool nak;
    };
    for (const Case& c :
         {Case{Opcode::kSendMiddle, 1024, 0, true}, Case{Opcode::kWriteLast, 10, 0, true},
          Case{Opcode::kWriteFirst, 1000, 5000, true}, Case{Opcode::kWriteFirst, 1024, 1024, true},
          Case{Opcode::kWriteOnly, 10, 11, true}, Case{Opcode::kWriteOnly, 1028, 1028, true},
          Case{Opcode::kReadRequest, 0, 0x80000001, true}, Case{Opcode::kCompareSwap, 0, 0, true},
          Case{Opcode::kWriteFirst, 1024, 0x80000001, true},
          Case{Opcode::kWriteOnly, 10, 10, false}}) {
        SCOPED_TRACE(testing::Message() << unsigned(c.opcode) << " " << c.bytes << " " << c.reth);
        open();
        roce::Packet p;
        p.destination_mac = link->b.node->host.mac();
        p.source_mac = link->a.node->host.mac();
        p.source = link->a.node->host.gid();
        p.destination = link->b.node->host.gid();
        p.opcode = c.opcode;
        p.destination_qpn = roce::Qpn(link->b.qp->qpn());
        p.psn = Psn(0x100);
        p.ack_request = true;
        p.reth = {link->b.buffer.value(), roce::RKey(link->b.mr.rkey), c.reth};
        std::vector<std::byte> payload(c.bytes, std::byte{0x5a});
        p.payload = payload;
        base::Frame frame;
        roce::encode(p, frame);
        link->b.node->rnic.receive(frame);
        link->idle();
        ASSERT_EQ(link->network.sent.size(), 1U);
        EXPECT_EQ(link->network.sent[0].aeth.syndrome, c.nak ? 0x61 : 0x1f);
        EXPECT_STREQ(link->b.state(), c.nak ? "ERR" : "RTS");
    }
}

// ROCE 10: 13, 14
TEST_F(WireTest, OtherSourcesAreDropped) {
    open();
    roce::Packet p;
    p.destination_mac = link->b.node->host.mac();
    p.source = test_gid(9);
    p.destination = link->b.node->host.gid();
    p.opcode = Opcode::kWriteOnly;
    p.destination_qpn = roce::Qpn(link->b.qp->qpn());
    p.psn = Psn(0x100);
    base::Frame frame;
    roce::encode(p, frame);
    link->b.node->rnic.receive(frame);
    p.source = link->a.node->host.gid();
    p.pkey = 0x1234;
    roce::encode(p, frame);
    link->b.node->rnic.receive(frame);
    p.pkey = 0xffff;
    p.destination_qpn = roce::Qpn(0x777);
    roce::encode(p, frame);
    link->b.node->rnic.receive(frame);
    frame.resize(30);
    link->b.node->rnic.receive(frame);
    link->idle();
    EXPECT_EQ(at_b().drop_address.value(), 1U);
    EXPECT_EQ(at_b().drop_pkey.value(), 1U);
    EXPECT_EQ(at_b().drop_qpn.value(), 1U);
    EXPECT_TRUE(link->network.sent.empty());
    write(1);
    EXPECT_TRUE(link->run(1));
}

TEST_F(WireTest, PathsMayChangeBetweenMessages) {
    open();
    for (int i = 0; i < 20; ++i) {
        link->network.local = i % 2 == 0;
        write(7);
        read(5);
        if (i % 3 == 0) {
            ASSERT_TRUE(link->run(2 * static_cast<std::size_t>(i) + 2));
        }
    }
    ASSERT_TRUE(link->run(40));
    EXPECT_EQ(link->a.error(false), 0U);
    EXPECT_TRUE(same(0, 0, 7 * 1024));
    EXPECT_GT(at_a().local_visits.value(), 0U);
    EXPECT_GT(at_a().tx_frames.value(), 0U);
    EXPECT_EQ(at_a().timeouts.value(), 0U);
}

}  // namespace
}  // namespace openmana::test
