// SPDX-License-Identifier: Apache-2.0
// What extended QPs have beyond RC with its own receives: UC, UD, shared receive queues, atomics,
// memory windows, fast registration; each case on the local path and on the wire.
#include <mana/gdma.h>

#include <atomic>
#include <thread>

#include "ext_fixture.h"

namespace openmana::test {
namespace {

class ExtVerbsTest : public ExtPathTest {
protected:
    /// Executes one request of A and gives its completion.
    mana_hw_ext_cqe done(const ExtWr& wr) {
        const std::size_t before = link->sent.size();
        link->a.post(wr);
        EXPECT_TRUE(link->run(before + 1));
        return link->sent.size() > before ? link->sent[before] : mana_hw_ext_cqe{};
    }
    ExtWr bind(const DriverMr& window, std::uint32_t new_key, std::uint64_t offset,
               std::uint64_t length, std::uint32_t access) {
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_BIND_MW;
        wr.bind.emplace();
        wr.bind->mw_key = window.rkey;
        wr.bind->new_key = new_key;
        wr.bind->mr_key = link->a.mr.lkey;
        wr.bind->access = access;
        wr.bind->address = link->a.buffer.value() + offset;
        wr.bind->length = length;
        return wr;
    }
    /// A WRITE of 16 bytes by B through a key of A, by the queue pair of the link or another; its
    /// status.
    std::uint8_t write_by_b(std::uint32_t key, std::uint64_t address, ExtQp* by = nullptr) {
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_WRITE;
        wr.sges = {link->b.sge(0, 16)};
        wr.rkey = key;
        wr.remote_address = address;
        link->b.host->post(by != nullptr ? *by : link->b.qp, wr);
        std::optional<mana_hw_ext_cqe> cqe;
        EXPECT_TRUE(link->world.run_until(
            [&] { return (cqe = link->b.send_cq.poll()).has_value(); }, std::chrono::seconds(60)));
        return cqe ? cqe->status : 0xff;
    }
    /// One more connection between the two; A's queue pair first.
    std::pair<ExtQp, ExtQp> another() {
        auto a = link->a.host->create_qp(link->a.send_cq, link->a.recv_cq);
        auto b = link->b.host->create_qp(link->b.send_cq, link->b.recv_cq);
        OM_CHECK(a && b);
        const auto peer = [&](const ExtLink::Side& side, const ExtQp& qp) {
            return Peer{side.node->host.gid(), side.node->host.mac(), qp.qpn, ExtLink::kPsn};
        };
        OM_CHECK(link->b.host->connect(*b, ExtLink::kPsn, peer(link->a, *a)));
        OM_CHECK(link->a.host->connect(*a, ExtLink::kPsn, peer(link->b, *b)));
        return {*a, *b};
    }
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtVerbsTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ---- atomics

// ROCE 10: 32
TEST_P(ExtVerbsTest, FetchAndAddReturnsWhatWasThere) {
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
TEST_P(ExtVerbsTest, CompareAndSwapChangesOnlyOnAMatch) {
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

TEST_P(ExtVerbsTest, ManyAtomicsKeepTheirOrder) {
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
TEST_P(ExtVerbsTest, AtomicsOfManyQueuePairsAreIndivisible) {
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
TEST_P(ExtVerbsTest, BadAtomicsAreRefused) {
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
TEST_P(ExtVerbsTest, RegionWithoutTheRightOfTheRequest) {
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

// ---- UC

TEST_P(ExtVerbsTest, UcDeliversWithoutAcknowledgement) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    open(options);
    link->b.recv(5, 0x80000, 8192);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000));
    ASSERT_TRUE(link->run(2, 1));
    link->idle();
    EXPECT_EQ(link->received[0].length, 5000U);
    EXPECT_TRUE(link->same(0, 0x80000, 5000));
    EXPECT_TRUE(link->same(0, 0x90000, 3000));
    EXPECT_EQ(link->frames(roce::Opcode::kAcknowledge), 0U);
    EXPECT_EQ(link->frames(roce::Opcode::kUcSendFirst), GetParam() ? 0U : 1U);
}

// ROCE 10: 123
TEST_P(ExtVerbsTest, UcLosesAMessageWithoutAReceive) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    open(options);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
    ASSERT_TRUE(link->run(1));
    link->idle();
    link->b.recv(5, 0x80000, 8192);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 100, 4000));
    ASSERT_TRUE(link->run(2, 1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->received[0].length, 4000U);
    EXPECT_TRUE(link->same(100, 0x80000, 4000));
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
}

// ROCE 10: 123
TEST_P(ExtVerbsTest, UcRefusalsAreSilent) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    open(options);
    ExtWr bad = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000);
    bad.rkey ^= 1;
    link->a.post(bad);
    link->b.recv(1, 0x80000, 10);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3, 1));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(link->received[0].length, 10U) << "the receive is used for the next message";
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_READ, 0, 10)).status, 2);
}

// ROCE 10: 121
TEST_F(ExtPathTest, UcDropsAMessageWithAGap) {
    for (const roce::Opcode opcode :
         {roce::Opcode::kUcSendFirst, roce::Opcode::kUcSendMiddle, roce::Opcode::kUcSendLast}) {
        SCOPED_TRACE(int{static_cast<std::uint8_t>(opcode)});
        ExtLink::Options options;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
        link = std::make_unique<ExtLink>(false, options);
        int lost = 0;
        link->network.fate = [&](const roce::Packet& packet) {
            Fate fate;
            fate.lose = packet.opcode == opcode && lost++ == 0;
            return fate;
        };
        link->b.recv(1, 0x80000, 8192);
        link->b.recv(2, 0x82000, 8192);
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 5000));
        ASSERT_TRUE(link->run(2, 1));
        link->idle();
        for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
        ASSERT_EQ(link->received.size(), 1U);
        EXPECT_EQ(link->received[0].cookie, 1U);
        EXPECT_TRUE(link->same(64, 0x80000, 5000));
    }
}

/// What a message took from a shared queue is not kept for the next one of the same queue pair.
// ROCE 10: 121
TEST_F(ExtPathTest, UcEndsAReceiveOfASharedQueue) {
    for (const roce::Opcode opcode :
         {roce::Opcode::kUcSendFirst, roce::Opcode::kUcSendMiddle, roce::Opcode::kUcSendLast}) {
        SCOPED_TRACE(int{static_cast<std::uint8_t>(opcode)});
        ExtLink::Options options;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
        options.srq = true;
        link = std::make_unique<ExtLink>(false, options);
        int lost = 0;
        link->network.fate = [&](const roce::Packet& packet) {
            Fate fate;
            fate.lose = packet.opcode == opcode && lost++ == 0;
            return fate;
        };
        for (std::uint32_t i = 1; i <= 3; ++i) link->b.recv(i, 0x80000 + 0x2000 * i, 8192);
        const bool taken = opcode != roce::Opcode::kUcSendFirst;
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 5000));
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 5000));
        ASSERT_TRUE(link->run(2, taken ? 2 : 1));
        link->idle();
        ASSERT_EQ(link->received.size(), taken ? 2U : 1U);
        if (taken) {
            EXPECT_EQ(link->received[0].cookie, 1U);
            EXPECT_EQ(link->received[0].status, 16) << "aborted";
        }
        EXPECT_EQ(link->received.back().status, 0);
        EXPECT_EQ(link->received.back().cookie, taken ? 2U : 1U);
        EXPECT_TRUE(link->same(64, taken ? 0x84000 : 0x82000, 5000));
        EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
    }
}

/// Too long for it, and a WRITE with immediate and a bad key.
TEST_F(ExtPathTest, UcRefusalEndsAReceiveOfASharedQueue) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    for (std::uint32_t i = 1; i <= 3; ++i) link->b.recv(i, 0x80000, 100);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 200));
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE_IMM, 0, 10, 0x90000);
    write.rkey ^= 1;
    link->a.post(write);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 100));
    ASSERT_TRUE(link->run(3, 3));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(link->received[0].status, 16);
    EXPECT_EQ(link->received[1].status, 16);
    EXPECT_EQ(link->received[2].status, 0);
    EXPECT_EQ(link->received[2].cookie, 3U);
}

// ROCE 10: 122
TEST_F(ExtPathTest, UcGoesOnBehindALostMessageOfOnePacket) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    link = std::make_unique<ExtLink>(false, options);
    int sends = 0;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kUcSendOnly && ++sends == 2;
        return fate;
    };
    for (std::uint32_t i = 0; i < 3; ++i) link->b.recv(i, 0x80000 + 0x1000 * i, 4096);
    for (std::uint32_t i = 0; i < 3; ++i)
        link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64 * i, 100 + i));
    ASSERT_TRUE(link->run(3, 2));
    link->idle();
    ASSERT_EQ(link->received.size(), 2U);
    EXPECT_EQ(link->received[1].cookie, 1U);
    EXPECT_EQ(link->received[1].length, 102U) << "the third, whose PSN jumps";
    EXPECT_TRUE(link->same(128, 0x81000, 102));
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_RTS});
}

/// A depth of no READs at all: one that is posted is an error, not something that waits for ever.
TEST_P(ExtVerbsTest, ReadWithoutADepthIsAnError) {
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
TEST_P(ExtVerbsTest, WriteWithImmediateAndABadKeyIsToldOnce) {
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

// ---- UD

class ExtUdTest : public ExtVerbsTest {
protected:
    void open_ud(const ExtLink::Options& wish = ExtLink::Options()) {
        ExtLink::Options options = wish;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UD;
        options.connect = false;
        open(options);
        ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
        ASSERT_TRUE(link->b.host->start_datagrams(link->b.qp, 0x1234));
    }
    ExtWr datagram(std::uint64_t from, std::uint32_t length, std::uint32_t qkey = 0x1234) {
        ExtWr wr;
        if (length > 0) wr.sges = {link->a.sge(from, length)};
        wr.ud.emplace();
        const auto& source = link->a.node->host;
        const auto& target = link->b.node->host;
        std::ranges::copy(source.gid(), wr.ud->source_gid);
        std::ranges::copy(target.gid(), wr.ud->dest_gid);
        std::ranges::copy(target.mac(), wr.ud->dest_mac);
        wr.ud->udp_source_port = 0xc111;
        wr.ud->traffic_class = 0x68;
        wr.ud->dest_qpn = link->b.qp.qpn;
        wr.ud->qkey = qkey;
        return wr;
    }
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtUdTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtUdTest, DatagramComesWithItsGrhAndSender) {
    open_ud();
    link->b.recv(9, 0x80000, 4096);
    ExtWr wr = datagram(10, 1000);
    wr.opcode = MANA_HW_EXT_WQE_SEND_IMM;
    wr.value = 0x01020304;
    wr.flags |= MANA_HW_EXT_WQE_SOLICITED;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1, 1));
    const auto& cqe = link->received[0];
    EXPECT_EQ(cqe.length, 1040U);
    EXPECT_EQ(cqe.cookie, 9U);
    EXPECT_EQ(cqe.source_qpn, link->a.qp.qpn);
    EXPECT_EQ(cqe.value, 0x01020304U);
    EXPECT_EQ(cqe.flags, MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IMMEDIATE | MANA_HW_EXT_CQE_IPV4 |
                             MANA_HW_EXT_CQE_SOLICITED);
    EXPECT_TRUE(std::ranges::equal(cqe.source_mac, link->a.node->host.mac()));
    EXPECT_TRUE(link->same(10, 0x80000 + 40, 1000));
    EXPECT_EQ(link->b.at(0x80000 + 20, 1)[0], std::byte{0x45});
}

TEST_P(ExtUdTest, InlineDatagram) {
    open_ud();
    link->b.recv(9, 0x80000, 4096);
    ExtWr wr = datagram(0, 0);
    wr.flags |= MANA_HW_EXT_WQE_INLINE;
    wr.data.assign(100, std::byte{0x5a});
    link->a.post(wr);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_TRUE(std::ranges::equal(link->b.at(0x80000 + 40, 100), wr.data));
}

TEST_P(ExtUdTest, WrongKeyNoReceiveAndShortReceiveAreDropped) {
    open_ud();
    link->a.post(datagram(0, 100));
    ASSERT_TRUE(link->run(1));
    link->idle();
    link->b.recv(1, 0x80000, 100);
    link->a.post(datagram(0, 100));
    link->a.post(datagram(0, 10, 0x9999));
    link->a.post(datagram(0, 60));
    ASSERT_TRUE(link->run(4, 1));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].length, 100U);
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
}

TEST_P(ExtUdTest, ReceiveBeyondItsRegionServesWhatFits) {
    open_ud();
    link->b.recv(1, ExtLink::kMr - 140, 2048);
    link->b.recv(2, ExtLink::kMr - 140, 2048);
    link->a.post(datagram(0, 100));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].length, 140U);
    link->a.post(datagram(0, 101));
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(link->received[1].status, 4);
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
}

// ROCE 10: 107, 117
TEST_P(ExtUdTest, LocalErrorsStopTheSendQueue) {
    struct Case {
        std::function<void(ExtWr&)> spoil;
        std::uint8_t status;
    };
    const Case cases[] = {
        {[](ExtWr& wr) { wr.sges[0].length = 4097; }, 1},
        {[](ExtWr& wr) { wr.sges[0].key = gdma::Key(3); }, 4},
        {[](ExtWr& wr) { wr.opcode = MANA_HW_EXT_WQE_READ; }, 2},
    };
    for (const Case& test : cases) {
        open_ud();
        link->a.recv(3, 0x80000, 1000);
        link->b.recv(4, 0x80000, 1000);
        ExtWr wr = datagram(0, 100);
        test.spoil(wr);
        wr.flags = 0;
        link->a.post(wr);
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(2));
        EXPECT_EQ(link->sent[0].status, test.status);
        EXPECT_EQ(link->sent[1].status, 5);
        EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_SQE});
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(3));
        EXPECT_EQ(link->sent[2].status, 5) << "flushed as well";
        // What comes in is served as before.
        EXPECT_TRUE(link->a.recv_cq.drain().empty());
        ExtWr back = datagram(0, 0);
        back.sges = {link->b.sge(0, 50)};
        std::ranges::copy(link->b.node->host.gid(), back.ud->source_gid);
        std::ranges::copy(link->a.node->host.gid(), back.ud->dest_gid);
        std::ranges::copy(link->a.node->host.mac(), back.ud->dest_mac);
        back.ud->dest_qpn = link->a.qp.qpn;
        link->b.post(back);
        link->idle();
        ASSERT_EQ(link->a.recv_cq.drain().size(), 1U);
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(4, 1));
        EXPECT_EQ(link->sent[3].status, 0);
        EXPECT_EQ(link->received[0].length, 140U);
    }
}

TEST_P(ExtVerbsTest, LocalErrorStopsTheSendQueueOfUc) {
    ExtLink::Options options;
    options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
    open(options);
    link->a.recv(1, 0x80000, 4096);
    link->b.recv(2, 0x80000, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 0x90000));
    ExtWr bad = link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000);
    bad.sges[0].key = gdma::Key(3);
    link->a.post(bad);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->sent[1].status, 4);
    EXPECT_EQ(link->sent[2].status, 5);
    EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_SQE});
    ExtWr back;
    back.sges = {link->b.sge(0, 2000)};
    link->b.post(back);
    link->idle();
    EXPECT_EQ(link->a.recv_cq.drain().size(), 1U) << "it still receives";
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 64, 3000));
    ASSERT_TRUE(link->run(4, 1));
    EXPECT_EQ(link->sent[3].status, 0);
    EXPECT_TRUE(link->same(64, 0x80000, 3000));
    ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_ERR));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(5));
    EXPECT_EQ(link->sent[4].status, 5);
}

TEST_P(ExtUdTest, MulticastReachesMembersOnBothNics) {
    open_ud();
    roce::Gid group{};
    group[10] = group[11] = 0xff;
    group[12] = 239;
    group[15] = 7;
    ASSERT_TRUE(link->b.host->multicast(link->b.qp, group, true));
    ASSERT_TRUE(link->b.host->multicast(link->b.qp, group, true)) << "twice is once";
    ASSERT_TRUE(link->a.host->multicast(link->a.qp, group, true));
    EXPECT_FALSE(link->a.host->multicast(link->a.qp, link->a.node->host.gid(), true));
    link->a.recv(1, 0x80000, 1000);
    ExtWr wr = datagram(0, 100);
    std::ranges::copy(group, wr.ud->dest_gid);
    const std::uint8_t mac[] = {1, 0, 0x5e, 0, 0, 7};
    std::ranges::copy(mac, wr.ud->dest_mac);
    wr.ud->dest_qpn = 0xffffff;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1));
    const auto own = link->a.recv_cq.drain();
    ASSERT_EQ(own.size(), 1U) << "the sender is a member";
    EXPECT_EQ(own[0].source_qpn, link->a.qp.qpn);
    ASSERT_TRUE(link->a.host->multicast(link->a.qp, group, false));
    EXPECT_FALSE(link->a.host->multicast(link->a.qp, group, false));
}

// ---- shared receive queues

// ROCE 10: 119
TEST_P(ExtVerbsTest, SrqServesAndTellsOfItsLimit) {
    ExtLink::Options options;
    options.srq = true;
    open(options);
    for (std::uint32_t i = 0; i < 4; ++i) link->b.recv(100 + i, 0x80000 + 0x1000 * i, 4096);
    ASSERT_TRUE(link->b.host->modify_srq(*link->b.srq, 3));
    auto state = link->b.host->query_srq(*link->b.srq);
    EXPECT_EQ(state->limit, 3U);
    EXPECT_EQ(state->posted, 4U);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 2000));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].cookie, 100U);
    EXPECT_TRUE(link->same(0, 0x80000, 2000));
    EXPECT_FALSE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(3, 3));
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    state = link->b.host->query_srq(*link->b.srq);
    EXPECT_EQ(state->limit, 0U);
    EXPECT_EQ(state->posted, 1U);
    link->b.seen.clear();
    link->b.recv(104, 0x84000, 4096);
    ASSERT_TRUE(link->b.host->modify_srq(*link->b.srq, 2));
    EXPECT_FALSE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT));
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10));
    ASSERT_TRUE(link->run(4, 4));
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_LIMIT)) << "armed again";
}

// ROCE 10: 118
TEST_P(ExtVerbsTest, QpInErrorLeavesTheSrqAlone) {
    ExtLink::Options options;
    options.srq = true;
    open(options);
    link->b.recv(1, 0x80000, 4096);
    ASSERT_TRUE(link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_ERR));
    EXPECT_TRUE(link->b.had_event(link->b.qp.qpn, MANA_HW_EXT_EVENT_LAST_WQE_REACHED));
    EXPECT_TRUE(link->b.recv_cq.drain().empty());
    EXPECT_EQ(link->b.host->query_srq(*link->b.srq)->posted, 1U);
    EXPECT_FALSE(link->b.host->destroy_srq(*link->b.srq));
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    EXPECT_TRUE(link->b.host->destroy_srq(*link->b.srq));
}

// ROCE 10: 118
TEST_F(ExtPathTest, QpInErrorGivesUpWhatItTookFromTheSrq) {
    ExtLink::Options options;
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    ExtLink::Side& b = link->b;
    ExtQpOptions wish;
    wish.srq = &*b.srq;
    auto from = *link->a.host->create_qp(link->a.send_cq, link->a.recv_cq);
    auto to = *b.host->create_qp(b.send_cq, b.recv_cq, wish);
    const auto peer = [](const ExtLink::Side& side, const ExtQp& qp) {
        return Peer{side.node->host.gid(), side.node->host.mac(), qp.qpn, ExtLink::kPsn};
    };
    ASSERT_TRUE(b.host->connect(to, ExtLink::kPsn, peer(link->a, from)));
    ASSERT_TRUE(link->a.host->connect(from, ExtLink::kPsn, peer(b, to)));
    link->network.fate = [](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kSendLast;
        return fate;
    };
    for (std::uint32_t i = 0; i < 3; ++i) b.recv(50 + i, 0x80000 + 0x1000 * i, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));  // half of it arrives
    link->idle();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(b.host->to_state(b.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].cookie, 50U);
    EXPECT_EQ(link->received[0].status, 5);
    EXPECT_TRUE(b.had_event(b.qp.qpn, MANA_HW_EXT_EVENT_LAST_WQE_REACHED)) << "once";
    for (int i = 0; i < 2; ++i) link->a.host->post(from, link->wr(MANA_HW_EXT_WQE_SEND, 64, 100));
    ASSERT_TRUE(link->run(2, 3));
    EXPECT_EQ(link->received[2].cookie, 52U) << "the other queue pair has the rest";
    EXPECT_TRUE(link->same(64, 0x82000, 100));
}

TEST_P(ExtUdTest, SrqReceiveKeptByAnEndingQpComesBack) {
    for (const bool destroyed : {true, false}) {
        ExtLink::Options options;
        options.srq = true;
        open_ud(options);
        link->b.recv(42, 0x80000, 100);
        link->a.post(datagram(0, 200));
        ASSERT_TRUE(link->run(1));
        link->idle();
        EXPECT_EQ(link->b.host->query_srq(*link->b.srq)->posted, 0U) << "taken, kept";
        ASSERT_TRUE(destroyed ? link->b.host->destroy_qp(link->b.qp)
                              : link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_RESET));
        link->idle();
        ASSERT_EQ(link->received.size(), 1U);
        EXPECT_EQ(link->received[0].cookie, 42U);
        EXPECT_EQ(link->received[0].status, 5);
    }
}

TEST_F(ExtPathTest, SrqReceiveOfHalfAMessageComesBack) {
    ExtLink::Options options;
    options.srq = true;
    link = std::make_unique<ExtLink>(false, options);
    link->network.fate = [](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kSendLast;
        return fate;
    };
    link->b.recv(43, 0x80000, 4096);
    link->a.post(link->wr(MANA_HW_EXT_WQE_SEND, 0, 3000));
    link->idle();
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].cookie, 43U);
    EXPECT_EQ(link->received[0].status, 5);
}

TEST_P(ExtVerbsTest, ImpossibleSrqProducerIsAnSrqError) {
    ExtLink::Options options;
    options.srq = true;
    options.path.rnr_retries = 1;
    open(options);
    link->b.srq->memory.store(0, 1000000);
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_SEND, 0, 10)).status, 13);
    EXPECT_TRUE(link->b.had_event(link->b.srq->id, MANA_HW_EXT_EVENT_SRQ_ERROR));
}

// ---- memory windows

TEST_P(ExtVerbsTest, WindowShowsAPartOfItsRegion) {
    for (const std::uint32_t type : {MANA_HW_MR_WINDOW_TYPE1, MANA_HW_MR_WINDOW_TYPE2}) {
        open();
        const auto window = link->a.host->create_key(type);
        ASSERT_TRUE(window);
        const std::uint32_t key = window->rkey ^ 0x55;
        ASSERT_EQ(done(bind(*window, key, 0x90000, 32, gdma::kRemoteWrite)).status, 0);
        const std::uint64_t base = link->a.buffer.value() + 0x90000;
        EXPECT_EQ(write_by_b(key, base + 16), 0);
        EXPECT_TRUE(link->same(0x90000 + 16, 0, 16));
        EXPECT_FALSE(link->a.node->host.hwc().destroy_mr(link->a.mr)) << "a window shows it";
        EXPECT_EQ(write_by_b(key, base + 17), 10);
        ASSERT_TRUE(link->a.node->host.hwc().destroy_mr(*window));
        EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(link->a.mr));
    }
}

TEST_P(ExtVerbsTest, RegionThatWindowsShowIsNotModified) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    const std::uint64_t base = link->a.buffer.value();
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    mana_hw_ext_modify_mr_req message{};
    message.mr = link->a.mr.handle;
    message.access = gdma::kLocalRead | gdma::kRemoteRead;
    message.flags = MANA_HW_EXT_MODIFY_ACCESS;
    link->a.host->call(MANA_HW_EXT_MODIFY_MR, message);
    EXPECT_EQ(link->a.host->status, std::uint32_t{gdma::kHwcBusy});
    EXPECT_EQ(write_by_b(window->rkey, base), 0);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 0, 0)).status, 0);
    link->a.host->call(MANA_HW_EXT_MODIFY_MR, message);
    EXPECT_EQ(link->a.host->status, std::uint32_t{gdma::kHwcSuccess});
    EXPECT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteRead)).status, 6)
        << "no right to bind any more";
}

TEST_P(ExtVerbsTest, ModifiedRegionHasOtherMemoryAndRightsUnderItsKey) {
    open();
    const std::uint64_t base = link->a.buffer.value();
    EXPECT_EQ(write_by_b(link->a.mr.rkey, base + 0x90000), 0);
    mana_hw_ext_modify_mr_req message{};
    message.mr = link->a.mr.handle;
    const auto behind = link->a.node->ram.alloc(4096);
    message.region = *link->a.node->host.hwc().create_region(behind, 4096);
    message.address = base;
    message.flags = MANA_HW_EXT_MODIFY_MEMORY;
    ASSERT_TRUE(link->a.host->call(MANA_HW_EXT_MODIFY_MR, message).ok());
    EXPECT_EQ(write_by_b(link->a.mr.rkey, base + 32), 0);
    EXPECT_TRUE(std::ranges::equal(link->a.node->ram.bytes(behind + 32, 16), link->b.at(0, 16)));
    message.access = gdma::kLocalRead | gdma::kRemoteRead;
    message.flags = MANA_HW_EXT_MODIFY_ACCESS;
    ASSERT_TRUE(link->a.host->call(MANA_HW_EXT_MODIFY_MR, message).ok());
    EXPECT_EQ(write_by_b(link->a.mr.rkey, base + 32), 10);
}

// ROCE 10: 131
TEST_P(ExtVerbsTest, UnboundAndOldKeysOfAWindowAreRefused) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    const std::uint64_t base = link->a.buffer.value();
    ASSERT_EQ(done(bind(*window, window->rkey + 1, 0, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(window->rkey, base), 10);
}

// ROCE 10: 131
TEST_P(ExtVerbsTest, WindowOfType1IsBoundAgainAndItsOldKeyEnds) {
    open();
    auto window = *link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    const std::uint64_t base = link->a.buffer.value();
    const std::uint32_t old = window.rkey + 1;
    ASSERT_EQ(done(bind(window, old, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(old, base + 0x90000), 0);
    window.rkey = old;
    ASSERT_EQ(done(bind(window, old + 1, 0x91000, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(old + 1, base + 0x91000), 0);
    EXPECT_TRUE(link->same(0x91000, 0, 16));
    EXPECT_EQ(write_by_b(old, base + 0x91000), 10);
}

TEST_P(ExtVerbsTest, WindowOfLengthZeroShowsNothing) {
    open();
    auto window = *link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    const std::uint64_t base = link->a.buffer.value();
    ASSERT_EQ(done(bind(window, window.rkey + 1, 0, 64, gdma::kRemoteWrite)).status, 0);
    ++window.rkey;
    EXPECT_EQ(write_by_b(window.rkey, base), 0);
    ASSERT_EQ(done(bind(window, window.rkey, 0, 0, 0)).status, 0);
    EXPECT_EQ(write_by_b(window.rkey, base), 10);
}

// ROCE 10: 138
TEST_P(ExtVerbsTest, ZeroBasedWindow) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0x90000, 64,
                        gdma::kRemoteWrite | MANA_HW_EXT_ACCESS_ZERO_BASED))
                  .status,
              0);
    EXPECT_EQ(write_by_b(window->rkey, 48), 0);
    EXPECT_TRUE(link->same(0x90000 + 48, 0, 16));
}

TEST_P(ExtVerbsTest, WindowWithoutTheRightRefusesIt) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteRead)).status, 0);
    EXPECT_EQ(write_by_b(window->rkey, link->a.buffer.value()), 10);
}

// ROCE 10: 133
TEST_P(ExtVerbsTest, BadBindsAreRefused) {
    struct Case {
        const char* name;
        std::function<void(ExtLink&, mana_hw_ext_bind&)> spoil;
    };
    const Case cases[] = {
        {"window", [](ExtLink&, auto& b) { b.mw_key = b.new_key += 0x1000; }},
        {"a region for a window", [](ExtLink& l, auto& b) { b.mw_key = b.new_key = l.a.mr.rkey; }},
        {"another index", [](ExtLink&, auto& b) { b.new_key += 0x100; }},
        {"region", [](ExtLink&, auto& b) { b.mr_key ^= 1; }},
        {"a window for a region", [](ExtLink&, auto& b) { b.mr_key = b.mw_key; }},
        {"range", [](ExtLink&, auto& b) { b.length = ExtLink::kMr + 1; }},
        {"before", [](ExtLink&, auto& b) { --b.address; }},
        {"wraps", [](ExtLink&, auto& b) { b.length = ~0ULL; }},
        {"of another PD",
         [](ExtLink& l, auto& b) {
             auto& hwc = l.a.node->host.hwc();
             b.mr_key = hwc.create_mr(*hwc.create_pd(), l.a.buffer, 4096, ExtLink::kAll)->lkey;
         }},
        {"zero based, type 1",
         [](ExtLink&, auto& b) { b.access |= MANA_HW_EXT_ACCESS_ZERO_BASED; }},
        {"local right", [](ExtLink&, auto& b) { b.access = gdma::kLocalWrite; }},
        {"unknown right", [](ExtLink&, auto& b) { b.access = 1U << 9; }},
        {"write to what is not writable",
         [](ExtLink& l, auto& b) {
             b.mr_key = l.a.node->host.hwc()
                            .create_mr(l.a.node->host.pd, l.a.buffer, 4096,
                                       gdma::kLocalRead | gdma::kBindWindow)
                            ->lkey;
         }},
        {"region without the right to bind",
         [](ExtLink& l, auto& b) {
             b.mr_key = l.a.node->host.hwc()
                            .create_mr(l.a.node->host.pd, l.a.buffer, 4096, Connection::kAll)
                            ->lkey;
         }},
    };
    for (const Case& test : cases) {
        SCOPED_TRACE(test.name);
        open();
        const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
        ExtWr wr = bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite);
        test.spoil(*link, *wr.bind);
        wr.flags = 0;
        const auto cqe = done(wr);
        EXPECT_EQ(cqe.status, 6);
        EXPECT_EQ(cqe.vendor_error, MANA_HW_EXT_VE_MEMORY_OPERATION);
        EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_ERR});
    }
}

TEST_P(ExtVerbsTest, WindowOfType2IsBoundOnceAndInvalidated) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = window->rkey;
    ASSERT_EQ(done(invalidate).status, 0);
    ASSERT_EQ(done(bind(*window, window->rkey + 1, 0, 64, gdma::kRemoteWrite)).status, 0);
    const DriverMr renamed{0, 0, window->rkey + 1};
    EXPECT_EQ(done(bind(renamed, window->rkey + 2, 0, 64, gdma::kRemoteWrite)).status, 6)
        << "bound already";
}

// ROCE 10: 133
TEST_P(ExtVerbsTest, WindowOfType2IsNotUnboundByABind) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(done(bind(*window, window->rkey, 0, 0, 0)).status, 6);
}

TEST_P(ExtVerbsTest, BindGoesByTheIndexOfTheWindow) {
    open();
    auto window = *link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    // A bind that was flushed: the host believes in a tag that the device never saw.
    window.rkey ^= 0x21;
    const std::uint32_t key = window.rkey ^ 0x42;
    ASSERT_EQ(done(bind(window, key, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(key, link->a.buffer.value() + 0x90000), 0);
}

TEST_P(ExtVerbsTest, WindowOfType2EndsWithItsQp) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    const auto& keys = link->a.node->function.keys();
    const gdma::MemoryRegion* const region = keys.find(gdma::Key(window->rkey));
    ASSERT_NE(region, nullptr);
    EXPECT_TRUE(region->valid);
    ASSERT_TRUE(link->b.host->destroy_qp(link->b.qp));
    EXPECT_TRUE(region->valid);
    ASSERT_TRUE(link->a.host->destroy_qp(link->a.qp));
    EXPECT_FALSE(region->valid);
    EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(link->a.mr)) << "no window shows it";
    EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(*window));
}

// ROCE 10: 132
TEST_P(ExtVerbsTest, WindowOfType2KnowsOneQueuePairOnly) {
    for (const std::uint32_t type : {MANA_HW_MR_WINDOW_TYPE1, MANA_HW_MR_WINDOW_TYPE2}) {
        open();
        auto other = another();
        const auto window = link->a.host->create_key(type);
        ASSERT_EQ(done(bind(*window, window->rkey, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
        const std::uint64_t at = link->a.buffer.value() + 0x90000;
        EXPECT_EQ(write_by_b(window->rkey, at), 0);
        const bool type2 = type == MANA_HW_MR_WINDOW_TYPE2;
        EXPECT_EQ(write_by_b(window->rkey, at, &other.second), type2 ? 10 : 0);
        EXPECT_EQ(write_by_b(window->rkey, at), 0) << "the other's error is its own";
    }
}

// ROCE 10: 134
TEST_P(ExtVerbsTest, RegionWithWindowsStays) {
    open();
    auto& hwc = link->a.node->host.hwc();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_FALSE(hwc.destroy_mr(link->a.mr));
    EXPECT_EQ(hwc.last_status, gdma::kHwcBusy);
    EXPECT_EQ(write_by_b(window->rkey, link->a.buffer.value() + 0x90000), 0) << "both still work";
    EXPECT_TRUE(link->same(0x90000, 0, 16));
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = window->rkey;
    ASSERT_EQ(done(invalidate).status, 0);
    EXPECT_TRUE(hwc.destroy_mr(link->a.mr));
}

TEST_P(ExtVerbsTest, LocalInvalidateWaitsForVisitors) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    std::atomic<bool> inside{false}, done_first{false}, left{false};
    std::thread visitor([&] {
        const base::Gate::Visit visit(link->a.node->function.gate());
        inside = true;
        // What is not waited for is done long before so many turns are over.
        for (int i = 0; i < 2000 && !done_first; ++i) std::this_thread::yield();
        left = true;
    });
    while (!inside) std::this_thread::yield();
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = window->rkey;
    EXPECT_EQ(done(invalidate).status, 0);
    EXPECT_TRUE(left);
    done_first = true;
    visitor.join();
}

TEST_P(ExtVerbsTest, LocalInvalidateOfAnythingElseIsRefused) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = window->rkey;
    EXPECT_EQ(done(invalidate).status, 6);
    open();
    invalidate.value = link->a.mr.rkey;
    EXPECT_EQ(done(invalidate).status, 6);
}

// ROCE 10: 104
TEST_P(ExtVerbsTest, SendWithInvalidateEndsAWindow) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    link->a.recv(4, 0x90000, 100);
    ExtWr send;
    send.opcode = MANA_HW_EXT_WQE_SEND_INV;
    send.sges = {link->b.sge(0, 10)};
    send.value = window->rkey;
    link->b.post(send);
    std::optional<mana_hw_ext_cqe> cqe;
    ASSERT_TRUE(link->world.run_until([&] { return (cqe = link->a.recv_cq.poll()).has_value(); },
                                      std::chrono::seconds(1)));
    EXPECT_EQ(cqe->flags, MANA_HW_EXT_CQE_INVALIDATED);
    EXPECT_EQ(cqe->value, window->rkey);
    link->idle();
    EXPECT_EQ(link->b.send_cq.drain().size(), 1U);
    EXPECT_EQ(write_by_b(window->rkey, link->a.buffer.value()), 10);
}

// ROCE 10: 104
TEST_P(ExtVerbsTest, SendWithInvalidateOfAPlainKeyFailsTheReceiver) {
    open();
    link->b.recv(4, 0x90000, 100);
    ExtWr send = link->wr(MANA_HW_EXT_WQE_SEND_INV, 0, 10);
    send.value = link->b.mr.rkey;
    link->a.post(send);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].status, 9);
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
}

// ROCE 10: 104
TEST_P(ExtVerbsTest, SendWithInvalidateOfWhatIsNotItsOwnFailsTheReceiver) {
    for (const char* which : {"unknown", "type 1", "type 2 of another queue pair"}) {
        SCOPED_TRACE(which);
        open();
        auto other = another();
        const bool type1 = std::string_view(which) == "type 1";
        const auto window =
            link->a.host->create_key(type1 ? MANA_HW_MR_WINDOW_TYPE1 : MANA_HW_MR_WINDOW_TYPE2);
        ASSERT_EQ(done(bind(*window, window->rkey, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
        ExtQp& to = type1 ? link->a.qp : other.first;
        const gdma::Sge place = link->a.sge(0xa0000, 100);
        link->a.host->recv(to, 4, std::span(&place, 1));
        ExtWr send;
        send.opcode = MANA_HW_EXT_WQE_SEND_INV;
        send.sges = {link->b.sge(0, 10)};
        send.value = std::string_view(which) == "unknown" ? 0x770000 : window->rkey;
        link->b.host->post(type1 ? link->b.qp : other.second, send);
        std::optional<mana_hw_ext_cqe> cqe;
        ASSERT_TRUE(link->world.run_until(
            [&] { return (cqe = link->a.recv_cq.poll()).has_value(); }, std::chrono::seconds(1)));
        EXPECT_EQ(cqe->status, 9);
        EXPECT_EQ(link->a.host->query_qp(to)->state, unsigned{MANA_HW_RNIC_QP_ERR});
        if (!type1) {
            EXPECT_EQ(write_by_b(window->rkey, link->a.buffer.value() + 0x90000), 0) << "it stays";
        }
    }
}

// ---- fast registration

class ExtFastRegisterTest : public ExtVerbsTest {
protected:
    void open_privileged() {
        ExtLink::Options options;
        options.a.flags = MANA_HW_EXT_QP_PRIVILEGED;
        open(options);
        key = link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
        ASSERT_TRUE(key);
    }
    ExtWr registration(std::uint32_t new_key) {
        // Three pages, last one first, and the list of them.
        const std::uint64_t list = link->a.buffer.value() + 0xf000;
        for (std::uint64_t i = 0; i < 3; ++i)
            link->a.word(0xf000 + 8 * i) = link->a.buffer.value() + 0x90000 + 4096 * (2 - i);
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
        wr.reg.emplace();
        wr.reg->key = new_key;
        wr.reg->access = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite;
        wr.reg->iova = kIova;
        wr.reg->length = 8192;
        wr.reg->page_list = list;
        wr.reg->pages = 3;
        wr.reg->page_shift = 12;
        return wr;
    }
    static constexpr std::uint64_t kIova = 0x7000'0000'0100;
    std::optional<DriverMr> key;
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtFastRegisterTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

// ROCE 10: 135
TEST_P(ExtFastRegisterTest, PagesBecomeARegion) {
    open_privileged();
    const std::uint32_t fresh = key->rkey + 1;
    ASSERT_EQ(done(registration(fresh)).status, 0);
    EXPECT_EQ(write_by_b(fresh, kIova), 0);
    EXPECT_TRUE(link->same(0x90000 + 2 * 4096 + 0x100, 0, 16));
    // Locally too: a send from it, in the same post list as its registration.
    ExtWr send = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0xa0000);
    send.sges = {{kIova, gdma::Key(fresh), 8192}};
    EXPECT_EQ(done(send).status, 0);
    EXPECT_EQ(write_by_b(fresh, kIova + 8192 - 15), 10);
    EXPECT_TRUE(link->a.node->host.hwc().destroy_mr(*key)) << "by its first name";
}

// ROCE 10: 135
TEST_P(ExtFastRegisterTest, RegistrationAndUseInOneList) {
    open_privileged();
    ExtWr reg = registration(key->rkey);
    reg.flags = 0;
    ExtWr use = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 0xa0000);
    use.sges = {{kIova, gdma::Key(key->rkey), 100}};
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = key->rkey;
    for (int i = 0; i < 5; ++i) {
        link->a.post(reg);
        link->a.post(use);
        link->a.post(invalidate);
    }
    ASSERT_TRUE(link->run(10));
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
    EXPECT_EQ(write_by_b(key->rkey, kIova), 10) << "invalid again";
}

// ROCE 10: 136
TEST_P(ExtFastRegisterTest, BadRegistrationsAreRefused) {
    struct Case {
        const char* name;
        std::function<void(ExtLink&, mana_hw_ext_register&)> spoil;
    };
    const Case cases[] = {
        {"index", [](ExtLink&, auto& r) { r.key += 0x100; }},
        {"a region's key", [](ExtLink& l, auto& r) { r.key = l.a.mr.rkey; }},
        {"pages", [](ExtLink&, auto& r) { r.pages = 5; }},
        {"no pages", [](ExtLink&, auto& r) { r.pages = 0; }},
        {"shift", [](ExtLink&, auto& r) { r.page_shift = 11; }},
        {"big shift", [](ExtLink&, auto& r) { r.page_shift = 32; }},
        {"length", [](ExtLink&, auto& r) { r.length = 3 * 4096; }},
        {"no length", [](ExtLink&, auto& r) { r.length = 0; }},
        {"wraps", [](ExtLink&, auto& r) { r.iova = ~0xfffULL; }},
        {"access", [](ExtLink&, auto& r) { r.access = 1U << 10; }},
        {"remote write alone", [](ExtLink&, auto& r) { r.access = gdma::kRemoteWrite; }},
        {"list", [](ExtLink&, auto& r) { r.page_list = 8; }},
        {"page", [](ExtLink& l, auto&) { l.a.word(0xf000) |= 8; }},
    };
    for (const Case& test : cases) {
        SCOPED_TRACE(test.name);
        open_privileged();
        ExtWr wr = registration(key->rkey);
        test.spoil(*link, *wr.reg);
        EXPECT_EQ(done(wr).status, 6);
    }
    open_privileged();
    ASSERT_EQ(done(registration(key->rkey)).status, 0);
    EXPECT_EQ(done(registration(key->rkey + 1)).status, 6) << "valid already";
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_FAST_REGISTER, MANA_HW_EXT_WQE_LOCAL_INV}) {
        open_privileged();
        auto& host = link->a.node->host;
        const DriverPd own = host.pd;
        host.pd = *host.hwc().create_pd();
        const auto foreign = link->a.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
        host.pd = own;
        ASSERT_TRUE(foreign);
        ExtWr wr = registration(foreign->rkey);
        wr.opcode = opcode;
        wr.value = foreign->rkey;
        EXPECT_EQ(done(wr).status, 6) << "of another PD";
    }
    open_privileged();
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = link->a.mr.rkey;
    EXPECT_EQ(done(invalidate).status, 6) << "a normal region";
}

// ROCE 10: 137
TEST_P(ExtFastRegisterTest, LocalInvalidateWaitsForTheReadsBeforeIt) {
    open_privileged();
    ASSERT_EQ(done(registration(key->rkey)).status, 0);
    ExtWr read = link->wr(MANA_HW_EXT_WQE_READ, 0, 0, 0x1000);
    read.sges = {{kIova, gdma::Key(key->rkey), 8192}};
    ExtWr invalidate;
    invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
    invalidate.value = key->rkey;
    link->a.post(read);
    link->a.post(invalidate);
    ASSERT_TRUE(link->run(3));
    EXPECT_EQ(link->sent[1].opcode, MANA_HW_EXT_WQE_READ);
    EXPECT_EQ(link->sent[1].status, 0);
    EXPECT_EQ(link->sent[2].opcode, MANA_HW_EXT_WQE_LOCAL_INV);
    EXPECT_EQ(link->sent[2].status, 0);
    // The region's first page is the last of the three.
    EXPECT_TRUE(link->same(0x90000 + 2 * 4096 + 0x100, 0x1000, 4096 - 0x100));
    EXPECT_TRUE(link->same(0x90000 + 4096, 0x1000 + 4096 - 0x100, 4096));
    EXPECT_EQ(write_by_b(key->rkey, kIova), 10) << "invalid by then";
}

// ROCE 10: 105
TEST_F(ExtPathTest, DuplicateSendDoesNotInvalidateAgain) {
    ExtLink::Options options;
    options.b.flags = MANA_HW_EXT_QP_PRIVILEGED;
    link = std::make_unique<ExtLink>(false, options);
    const auto key = link->b.host->create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4);
    ASSERT_TRUE(key);
    ExtWr reg;
    reg.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
    reg.reg.emplace();
    reg.reg->key = key->rkey;
    reg.reg->access = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteWrite;
    reg.reg->iova = 0x1000;
    reg.reg->length = 4096;
    reg.reg->page_list = link->b.buffer.value() + 0xf000;
    reg.reg->pages = 1;
    reg.reg->page_shift = 12;
    link->b.word(0xf000) = link->b.buffer.value() + 0x90000;
    const auto registered = [&] {
        link->b.post(reg);
        std::optional<mana_hw_ext_cqe> cqe;
        return link->world.run_until([&] { return (cqe = link->b.send_cq.poll()).has_value(); },
                                     std::chrono::microseconds(100)) &&
               cqe->status == 0;
    };
    ASSERT_TRUE(registered());
    int acknowledgements = 0;
    link->network.fate = [&](const roce::Packet& packet) {
        Fate fate;
        fate.lose = packet.opcode == roce::Opcode::kAcknowledge && acknowledgements++ == 0;
        return fate;
    };
    link->b.recv(1, 0x80000, 100);
    ExtWr send = link->wr(MANA_HW_EXT_WQE_SEND_INV, 0, 10);
    send.value = key->rkey;
    link->a.post(send);
    ASSERT_TRUE(link->run(0, 1, std::chrono::milliseconds(1)));
    EXPECT_EQ(link->received[0].flags, MANA_HW_EXT_CQE_INVALIDATED);
    ASSERT_TRUE(registered()) << "it was invalid";
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent[0].status, 0);
    EXPECT_EQ(link->frames(roce::Opcode::kSendOnlyInvalidate), 2U);
    ExtWr write = link->wr(MANA_HW_EXT_WQE_WRITE, 0, 100);
    write.rkey = key->rkey;
    write.remote_address = 0x1000;
    link->a.post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->sent[1].status, 0) << "the new registration is untouched";
    EXPECT_TRUE(link->same(0, 0x90000, 100));
}

TEST_P(ExtFastRegisterTest, UnregisteredKeyIsRefused) {
    open_privileged();
    EXPECT_EQ(write_by_b(key->rkey, 0), 10);
}

// ---- counters

TEST_P(ExtVerbsTest, CountersOfOneQp) {
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
