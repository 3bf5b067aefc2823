// SPDX-License-Identifier: Apache-2.0
// Requests of extended RC: atomics, rights, sequence numbers, counters; each case on the local path
// and on the wire.
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtRequestsTest : public ExtVerbsTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtRequestsTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ROCE 10: 32
TEST_P(ExtRequestsTest, FetchAndAddReturnsWhatWasThere) {
    open();
    link->b.word(0x80000) = 0xffffffffffffffff;
    ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000);
    wr.swap_add = 5;
    const auto cqe = done(wr);
    EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(cqe.opcode, MANA_HW_EXT_WQE_FETCH_ADD);
    EXPECT_EQ(link->a.word(0x90000), 0xffffffffffffffffULL);
    EXPECT_EQ(link->b.word(0x80000), 4U);
}

// ROCE 10: 33
TEST_P(ExtRequestsTest, CompareAndSwapChangesOnlyOnAMatch) {
    open();
    link->b.word(0x80000) = 100;
    ExtWr wr = link->wr(MANA_HW_EXT_WQE_CMP_SWAP, 0x90000, 8, 0x80000);
    wr.compare = 99;
    wr.swap_add = 7;
    EXPECT_EQ(done(wr).status, 0);
    EXPECT_EQ(link->b.word(0x80000), 100U);
    EXPECT_EQ(link->a.word(0x90000), 100U);
    wr.compare = 100;
    EXPECT_EQ(done(wr).status, 0);
    EXPECT_EQ(link->b.word(0x80000), 7U);
    EXPECT_EQ(link->a.word(0x90000), 100U);
}

TEST_P(ExtRequestsTest, ManyAtomicsKeepTheirOrder) {
    open();
    link->b.word(0x80000) = 0;
    for (std::uint32_t i = 0; i < 100; ++i) {
        ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000 + 8 * i, 8, 0x80000);
        wr.swap_add = 1;
        link->a.post(wr);
        if (i % 10 == 9) link->a.post(link->wr(MANA_HW_EXT_WQE_READ, 0, 3000, 0));
    }
    ASSERT_TRUE(link->run(110));
    for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(link->a.word(0x90000 + 8 * i), i);
    EXPECT_EQ(link->b.word(0x80000), 100U);
}

// ROCE 10: 34
TEST_P(ExtRequestsTest, AtomicsOfManyQueuePairsAreIndivisible) {
    constexpr std::uint32_t kQps = 8, kEach = 1000, kList = 25;
    open();
    base::Random random(34);
    link->network.fate = [&](const roce::Packet&) {
        Fate fate;
        fate.delay = std::chrono::microseconds(random.below(50));
        return fate;
    };
    link->b.word(0x80000) = 0;
    std::vector<ExtQp> qps{link->a.qp};
    while (qps.size() < kQps) qps.push_back(another().first);
    for (std::uint32_t first = 0; first < kEach; first += kList) {
        for (std::uint32_t i = 0; i < kList; ++i)
            for (std::uint32_t q = 0; q < kQps; ++q) {
                const std::uint64_t slot = 0x90000 + 8ULL * (q * kEach + first + i);
                ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, slot, 8, 0x80000);
                wr.swap_add = 1;
                wr.flags = i + 1 == kList ? MANA_HW_EXT_WQE_SIGNALED : 0;
                link->a.host->post(qps[q], wr);
            }
        ASSERT_TRUE(link->run((first / kList + 1) * kQps));
    }
    for (const auto& cqe : link->sent) ASSERT_EQ(cqe.status, 0);
    EXPECT_EQ(link->b.word(0x80000), kQps * kEach);
    std::vector<bool> seen(kQps * kEach);
    for (std::uint32_t i = 0; i < seen.size(); ++i) {
        const std::uint64_t value = link->a.word(0x90000 + 8ULL * i);
        ASSERT_LT(value, seen.size());
        ASSERT_FALSE(seen[value]) << value << " was returned twice";
        seen[value] = true;
    }
}

// ROCE 10: 97
TEST_P(ExtRequestsTest, BadAtomicsAreRefused) {
    struct Case {
        const char* name;
        std::function<void(ExtWr&)> spoil;
        std::uint8_t status;
    };
    const Case cases[] = {
        {"misaligned", [](ExtWr& wr) { wr.remote_address += 4; }, 9},
        {"key", [](ExtWr& wr) { wr.rkey ^= 1; }, 10},
        {"range", [](ExtWr& wr) { wr.remote_address += ExtLink::kMr; }, 10},
        {"length", [](ExtWr& wr) { wr.sges[0].length = 4; }, 1},
    };
    for (const Case& test : cases) {
        SCOPED_TRACE(test.name);
        open();
        ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000);
        test.spoil(wr);
        EXPECT_EQ(done(wr).status, test.status);
    }
    ExtLink::Options options;
    options.path.access = MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE;
    open(options);
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000)).status, 9);
}

// ROCE 10: 52
TEST_F(ExtPathTest, LostAnswerOfAnAtomicIsGivenAgain) {
    link = std::make_unique<ExtLink>(false);
    link->b.word(0x80000) = 10;
    int lost = 0;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kAtomicAcknowledge && lost++ == 0;
        return fate;
    };
    ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000);
    wr.swap_add = 1;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->a.word(0x90000), 10U);
    EXPECT_EQ(link->b.word(0x80000), 11U) << "executed once";
    EXPECT_EQ(link->frames(roce::Opcode::kFetchAdd), 2U);
}

// ROCE 10: 53
TEST_F(ExtPathTest, AtomicThatIsNoLongerRememberedIsDropped) {
    link = std::make_unique<ExtLink>(false);
    link->b.word(0x80000) = 10;
    base::Frame first;
    link->network.fate = [&](const roce::Packet& packet) {
        if (packet.opcode == roce::Opcode::kFetchAdd && first.empty()) encode(packet, first);
        return Fate{};
    };
    ExtWr wr = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000);
    wr.swap_add = 1;
    const auto replay = [&] {
        const std::size_t answers = link->frames(roce::Opcode::kAtomicAcknowledge);
        link->b.node->rnic.receive(first);
        link->world.run_until_idle();
        return link->frames(roce::Opcode::kAtomicAcknowledge) - answers;
    };
    constexpr std::size_t kRemembered = 128;
    for (std::size_t i = 1; i <= kRemembered; ++i) {
        link->a.post(wr);
        ASSERT_TRUE(link->run(i));
    }
    EXPECT_EQ(replay(), 1U);
    link->a.post(wr);
    ASSERT_TRUE(link->run(kRemembered + 1));
    EXPECT_EQ(replay(), 0U);
    EXPECT_EQ(link->b.word(0x80000), 10 + kRemembered + 1) << "never executed again";
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
}

// ROCE 10: 22
TEST_F(ExtPathTest, EachRequestCountsOnceInTheMsn) {
    link = std::make_unique<ExtLink>(false);
    link->b.recv(1, 0x80000, 100);
    std::size_t done = 0;
    for (const auto& [opcode, length] :
         {std::pair{MANA_HW_EXT_WQE_SEND, 10U}, std::pair{MANA_HW_EXT_WQE_WRITE, 3000U},
          std::pair{MANA_HW_EXT_WQE_READ, 100U}, std::pair{MANA_HW_EXT_WQE_FETCH_ADD, 8U}}) {
        link->a.post(link->wr(static_cast<std::uint8_t>(opcode), 0x90000, length, 0x88000));
        ASSERT_TRUE(link->run(++done));
    }
    std::vector<std::uint32_t> msns;
    for (const roce::Packet& packet : link->network.sent)
        if (packet.info().has(roce::kHasAeth)) msns.push_back(packet.aeth.msn);
    EXPECT_EQ(msns, (std::vector<std::uint32_t>{1, 2, 3, 4}));
}

// ROCE 10: 84
TEST_P(ExtRequestsTest, RegionWithoutTheRightOfTheRequest) {
    struct Case {
        std::uint8_t opcode;
        std::uint32_t right;
    };
    for (const Case& test : {Case{MANA_HW_EXT_WQE_WRITE, gdma::kRemoteWrite},
                             Case{MANA_HW_EXT_WQE_READ, gdma::kRemoteRead},
                             Case{MANA_HW_EXT_WQE_FETCH_ADD, gdma::kRemoteAtomic},
                             Case{MANA_HW_EXT_WQE_CMP_SWAP, gdma::kRemoteAtomic}}) {
        SCOPED_TRACE(int{test.opcode});
        open();
        auto& host = link->b.node->host;
        const auto weak = host.hwc().create_mr(host.pd, link->b.buffer, ExtLink::kMr,
                                               ExtLink::kAll & ~test.right);
        ASSERT_TRUE(weak);
        link->b.word(0x80000) = 0x1234;
        link->a.word(0x90000) = 0x5678;
        ExtWr wr = link->wr(test.opcode, 0x90000, 8, 0x80000);
        wr.rkey = weak->rkey;
        EXPECT_EQ(done(wr).status, 10);
        EXPECT_EQ(link->b.word(0x80000), 0x1234U);
        EXPECT_EQ(link->a.word(0x90000), 0x5678U);
        EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    }
}

/// A depth of no READs at all: one that is posted is an error, not something that waits for ever.
TEST_P(ExtRequestsTest, ReadWithoutADepthIsAnError) {
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_READ, MANA_HW_EXT_WQE_FETCH_ADD}) {
        ExtLink::Options options;
        options.path.reads_out = 0;
        open(options);
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x80000));
        link->a.post(link->wr(opcode, 0, 8, 0x90000));
        link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 8, 0x90000));
        ASSERT_TRUE(link->run(3));
        EXPECT_EQ(link->sent[0].status, 0);
        EXPECT_EQ(link->sent[1].status, 2) << "local QP operation";
        EXPECT_EQ(link->sent[2].status, 5);
        EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    }
}

/// One that takes its receive is told by that receive, one that does not by the event.
// ROCE 10: 86
TEST_P(ExtRequestsTest, WriteWithImmediateAndABadKeyIsToldOnce) {
    for (const std::uint32_t length : {10U, 3000U})
        for (const bool late : {false, true}) {
            open();
            if (!late) link->b.recv(1, 0x80000, 64);
            ExtWr wr = link->wr(MANA_HW_EXT_WQE_WRITE_IMM, 0, length, 0x90000);
            wr.rkey ^= 1;
            link->a.post(wr);
            link->idle();
            if (late) link->b.recv(1, 0x80000, 64);
            ASSERT_TRUE(link->run(1, 1));
            link->idle(std::chrono::milliseconds(200));
            EXPECT_EQ(link->sent[0].status, 10);
            ASSERT_EQ(link->received.size(), 1U);
            // Of several packets the first is refused, before the last takes a receive; the local
            // path has no packets.
            const bool taken = length == 10 || GetParam();
            EXPECT_EQ(link->received[0].status, taken ? 8 : 5);
            EXPECT_EQ(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_QP_ACCESS_ERROR), !taken);
        }
}

TEST_P(ExtRequestsTest, CountersOfOneQp) {
    open();
    link->b.recv(1, 0x80000, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 200));
    link->a.post(link->wr(MANA_HW_EXT_WQE_READ, 0, 300));
    ASSERT_TRUE(link->run(3, 1));
    const auto a = link->a.host->query_counters(link->a.qp);
    const auto b = link->b.host->query_counters(link->b.qp);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->tx_bytes, 300U);
    EXPECT_EQ(a->rx_bytes, 300U);
    EXPECT_EQ(b->rx_bytes, 300U);
    EXPECT_EQ(b->tx_bytes, 300U);
    EXPECT_EQ(b->rx_sends, 1U);
    EXPECT_EQ(b->rx_writes, 1U);
    EXPECT_EQ(b->rx_reads, 1U);
}

}  // namespace
}  // namespace openmana::test
