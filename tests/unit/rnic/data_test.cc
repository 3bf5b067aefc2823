// SPDX-License-Identifier: Apache-2.0
// Data and errors of an RC connection; each case on the local path and on the wire.
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;

class RcTest : public ::testing::TestWithParam<bool> {
protected:
    void open(const Connection::Options& options = Connection::Options(),
              const rnic::RnicConfig& config = {}) {
        link = std::make_unique<Connection>(GetParam(), options, config);
        Connection::fill(link->a.at(0, 1 << 20), 1);
    }
    [[nodiscard]] bool same(std::uint64_t at_a, std::uint64_t at_b, std::uint64_t length) const {
        return std::ranges::equal(link->a.at(at_a, length), link->b.at(at_b, length));
    }
    [[nodiscard]] bool zero_at_b(std::uint64_t at, std::uint64_t length) const {
        return std::ranges::all_of(link->b.at(at, length),
                                   [](std::byte b) { return b == std::byte{0}; });
    }
    std::unique_ptr<Connection> link;
};

INSTANTIATE_TEST_SUITE_P(Paths, RcTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(RcTest, WritesOfEveryLength) {
    for (const std::uint32_t length :
         {0U, 1U, 8U, 1023U, 1024U, 1025U, 2048U, 2049U, 65536U, 300000U, 1048576U}) {
        SCOPED_TRACE(length);
        open();
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 7, 0, length, 64));
        ASSERT_TRUE(link->run(1));
        ASSERT_EQ(link->a.done.size(), 1U);
        EXPECT_EQ(link->a.done[0].id, 7U);
        EXPECT_EQ(link->a.done[0].vendor, 0U);
        EXPECT_TRUE(same(0, 64, length));
        EXPECT_TRUE(zero_at_b(0, 64));
        EXPECT_TRUE(zero_at_b(64 + length, 64));
    }
}

TEST_P(RcTest, ReadsOfEveryLength) {
    for (const std::uint32_t length :
         {0U, 1U, 8U, 1023U, 1024U, 1025U, 2048U, 65536U, 300000U, 1048576U}) {
        SCOPED_TRACE(length);
        open();
        Connection::fill(link->b.at(0, 1 << 20), 2);
        std::ranges::fill(link->a.at(0, 1 << 20), std::byte{0});
        link->post(link->wr(MANA_HW_RNIC_WQE_READ, 9, 128, length, 0));
        ASSERT_TRUE(link->run(1));
        EXPECT_EQ(link->a.done[0].id, 9U);
        EXPECT_EQ(link->a.done[0].vendor, 0U);
        EXPECT_TRUE(same(128, 0, length));
        EXPECT_EQ(link->a.at(127, 1)[0], std::byte{0});
        EXPECT_EQ(link->a.at(128 + length, 1)[0], std::byte{0});
    }
}

TEST_P(RcTest, SendsOfEveryLength) {
    for (const std::uint32_t length : {0U, 1U, 1023U, 1024U, 1025U, 2049U, 300000U}) {
        SCOPED_TRACE(length);
        open();
        link->b.recv(21, 0, 1 << 20);
        link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 8, 0, length));
        ASSERT_TRUE(link->run(1, 1));
        EXPECT_EQ(link->a.done[0].vendor, 0U);
        EXPECT_EQ(link->b.done[0].id, 21U);
        EXPECT_EQ(link->b.done[0].type, unsigned{MANA_HW_RNIC_CQE_SEND});
        EXPECT_EQ(link->b.done[0].length, length);
        EXPECT_TRUE(same(0, 0, length));
        EXPECT_TRUE(zero_at_b(length, 64));
    }
}

TEST_P(RcTest, BytesAreCountedWhereTheyLeaveAndArrive) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 5000));
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 2, 8192, 3000));
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.node->rnic.counters().tx_bytes.value(), 5000U);
    EXPECT_EQ(link->b.node->rnic.counters().rx_bytes.value(), 5000U);
    EXPECT_EQ(link->b.node->rnic.counters().tx_bytes.value(), 3000U);
    EXPECT_EQ(link->a.node->rnic.counters().rx_bytes.value(), 3000U);
}

// ROCE 10: 30
TEST_P(RcTest, ImmediateIsDelivered) {
    open();
    link->b.recv(1, 0, 4096);
    link->b.recv(2, 8192, 64);
    SendWr send = link->wr(MANA_HW_RNIC_WQE_SEND_IMM, 1, 0, 100);
    send.immediate = 0xaabbccdd;
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 2, 0, 3000, 65536);
    write.immediate = 0x01020304;
    link->post(send);
    link->post(write);
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(link->b.done[0].type, unsigned{MANA_HW_RNIC_CQE_SEND_IMM});
    EXPECT_EQ(link->b.done[0].immediate, 0xaabbccddU);
    EXPECT_EQ(link->b.done[1].type, unsigned{MANA_HW_RNIC_CQE_WRITE_IMM});
    EXPECT_EQ(link->b.done[1].immediate, 0x01020304U);
    EXPECT_EQ(link->b.done[1].length, 3000U);
    EXPECT_TRUE(same(0, 65536, 3000));
    EXPECT_TRUE(zero_at_b(8192, 64)) << "a WRITE with immediate does not touch the receive's SGEs";
}

// ROCE 10: 35
TEST_P(RcTest, ScatterAndGatherInOrder) {
    open();
    const gdma::Sge targets[] = {link->b.sge(0, 10), link->b.sge(5000, 2000),
                                 link->b.sge(9000, 4000)};
    ASSERT_TRUE(link->b.node->host.post_recv(*link->b.qp, 5, targets));
    SendWr send = link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 0);
    send.sges = {link->a.sge(100, 3), link->a.sge(2000, 1500), link->a.sge(7000, 1)};
    link->post(send);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->b.done[0].length, 1504U);
    std::vector<std::byte> expected;
    for (const auto& sge : send.sges) {
        const auto part = link->a.at(sge.address - link->a.buffer.value(), sge.length);
        expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(std::ranges::equal(link->b.at(0, 10), std::span(expected).first(10)));
    EXPECT_TRUE(std::ranges::equal(link->b.at(5000, 1494), std::span(expected).subspan(10)));
}

TEST_P(RcTest, ManyRequestsWrapTheRings) {
    open();
    std::size_t posted = 0;
    std::size_t received = 0;
    for (int round = 0; round < 40; ++round) {
        for (int i = 0; i < 10; ++i) {
            const std::uint32_t length = 1 + static_cast<std::uint32_t>(posted * 37 % 3000);
            if (i % 3 == 0) {
                link->b.recv(received++, (posted % 64) * 4096, 4096);
                link->post(link->wr(MANA_HW_RNIC_WQE_SEND, posted, 5 * posted, length), i == 9);
            } else {
                const std::uint64_t place = 524288 + 4096 * (posted % 64);
                link->post(link->wr(i % 3 == 1 ? MANA_HW_RNIC_WQE_WRITE : MANA_HW_RNIC_WQE_READ,
                                    posted, place, length, place),
                           i == 9);
            }
            ++posted;
        }
        ASSERT_TRUE(link->run(posted, received)) << round;
    }
    for (std::size_t i = 0; i < posted; ++i) {
        EXPECT_EQ(link->a.done[i].id, i);
        EXPECT_EQ(link->a.done[i].vendor, 0U);
    }
    for (std::size_t i = 0; i < received; ++i) {
        EXPECT_EQ(link->b.done[i].id, i);
        EXPECT_EQ(link->b.done[i].vendor, 0U);
    }
    EXPECT_EQ(link->a.node->rnic.counters().timeouts.value(), 0U);
}

// ROCE 10: 29
TEST_P(RcTest, UnsignaledWorkFreesItsSlots) {
    Connection::Options options;
    options.ring = 1024;  // 16 WQEs
    open(options);
    constexpr std::uint64_t kCount = 1000;
    std::uint64_t posted = 0;
    std::size_t full = 0;
    while (posted < kCount) {
        SendWr wr = link->wr(MANA_HW_RNIC_WQE_WRITE, posted, 8 * posted, 8, 8 * posted);
        wr.signaled = posted + 1 == kCount;
        if (link->a.node->host.post_send(*link->a.qp, wr)) {
            ++posted;
        } else {
            ++full;
            ASSERT_TRUE(link->run(link->a.done.size() + 1)) << posted << " posted";
        }
    }
    ASSERT_TRUE(link->run(kCount));
    link->idle();
    EXPECT_GE(full, 60U) << "the ring never was as short as it should be";
    ASSERT_EQ(link->a.done.size(), kCount);
    for (std::uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(link->a.done[i].id, i);
        EXPECT_EQ(link->a.done[i].vendor, 0U);
        EXPECT_EQ(link->a.done[i].signaled, i + 1 == kCount) << "the application hears of the last";
    }
    EXPECT_EQ(link->a.node->rnic.counters().timeouts.value(), 0U);
    EXPECT_TRUE(same(0, 0, 8 * kCount));
}

// ROCE 10: 20, 21
TEST_P(RcTest, PsnWrapsInsideAMessage) {
    Connection::Options options;
    options.psn_a = 0xfffffe;
    open(options);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 5000, 0));
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 2, 8192, 4000, 0));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 3, 0, 100, 8192));
    ASSERT_TRUE(link->run(3));
    EXPECT_TRUE(same(0, 0, 5000));
    EXPECT_TRUE(same(8192, 0, 4000));
    EXPECT_TRUE(same(0, 8192, 100));
}

TEST_P(RcTest, LongPostListsAreServedInTurns) {
    Connection::Options options;
    options.ring = 65536;
    open(options);
    for (std::uint32_t i = 0; i < 500; ++i)
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, i, i, 64, 64 * i), i == 499);
    ASSERT_TRUE(link->run(500));
    for (std::uint32_t i = 0; i < 500; ++i) EXPECT_TRUE(same(i, 64 * i, 64));
}

// ROCE 10: 67
TEST_P(RcTest, NoReceiveIsRetriedUntilOneComes) {
    open({}, impatient());
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 2000));
    link->idle(std::chrono::milliseconds(5));
    EXPECT_TRUE(link->a.done.empty());
    EXPECT_GE(link->b.node->rnic.counters().rnr_naks_sent.value(), 2U);
    link->b.recv(3, 0, 4096);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_TRUE(same(0, 0, 2000));
    EXPECT_EQ(link->b.done.size(), 1U);
    EXPECT_EQ(link->a.done[0].vendor, 0U);
}

TEST_P(RcTest, WriteWithImmediateWaitsForAReceive) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE_IMM, 1, 0, 3000, 0));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 10, 8192));
    link->idle(std::chrono::milliseconds(1));
    EXPECT_TRUE(link->a.done.empty());
    link->b.recv(3, 4096, 16);
    ASSERT_TRUE(link->run(2, 1));
    EXPECT_TRUE(same(0, 0, 3000));
    EXPECT_EQ(link->b.done[0].type, unsigned{MANA_HW_RNIC_CQE_WRITE_IMM});
}

// ROCE 10: 18, 19
TEST_P(RcTest, ZeroLengthNeedsNoKey) {
    open();
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 0, 0);
    write.rkey = 0xdeadbeef;
    write.remote_address = ~0ULL;
    link->post(write);
    SendWr read = write;
    read.opcode = MANA_HW_RNIC_WQE_READ;
    read.id = 2;
    link->post(read);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.done[0].vendor, 0U);
    EXPECT_EQ(link->a.done[1].vendor, 0U);
}

// ROCE 10: 83
TEST_P(RcTest, RangeEdges) {
    struct Case {
        std::int64_t offset;
        std::uint32_t length;
        bool ok;
    };
    const auto mr = static_cast<std::int64_t>(Connection::kMr);
    for (const Case& c :
         {Case{0, 1000, true}, Case{mr - 8, 8, true}, Case{mr - 7, 8, false}, Case{-1, 1, false},
          Case{-1, 2000, false}, Case{mr, 0, true}, Case{mr - 2000, 2001, false}}) {
        for (const std::uint32_t opcode : {MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_READ}) {
            SCOPED_TRACE(testing::Message()
                         << c.offset << " + " << c.length << " opcode " << opcode);
            open();
            link->post(link->wr(opcode, 1, 0, c.length, static_cast<std::uint64_t>(c.offset)));
            ASSERT_TRUE(link->run(1));
            EXPECT_EQ(link->a.done[0].vendor,
                      c.ok ? 0U : unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
            if (!c.ok && opcode == MANA_HW_RNIC_WQE_WRITE) {
                EXPECT_TRUE(zero_at_b(Connection::kMr - 4096, 4096));
            }
        }
    }
}

// ROCE 10: 83
TEST_P(RcTest, WrappingAddressIsRefused) {
    open();
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 8, 0);
    write.remote_address = ~0ULL - 3;
    link->post(write);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
}

// ROCE 10: 82
TEST_P(RcTest, BadKeysAreRefused) {
    for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(which);
        open();
        auto& host = link->b.node->host;
        SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
        if (which == 0) write.rkey += 1;
        if (which == 1) write.rkey += 0x1000000;
        if (which == 2) {
            const auto pd = host.hwc().create_pd();
            write.rkey = host.hwc().create_mr(*pd, link->b.buffer, 4096, Connection::kAll)->rkey;
        }
        if (which == 3) {
            const auto mr = host.hwc().create_mr(host.pd, link->b.buffer, 4096, Connection::kAll);
            write.rkey = mr->rkey;
            ASSERT_TRUE(host.hwc().destroy_mr(*mr));
        }
        link->b.recv(40, 8192, 100);
        link->post(write);
        ASSERT_TRUE(link->run(1, 1));
        EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
        EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
        EXPECT_STREQ(link->b.state(), "ERR");
        EXPECT_TRUE(zero_at_b(0, 100));
    }
}

// ROCE 10: 84
TEST_P(RcTest, RightsOfTheRegionAreChecked) {
    open();
    auto& host = link->b.node->host;
    const auto read_only =
        host.hwc().create_mr(host.pd, link->b.buffer, 4096, gdma::kLocalRead | gdma::kRemoteRead);
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
    write.rkey = read_only->rkey;
    SendWr read = link->wr(MANA_HW_RNIC_WQE_READ, 0, 0, 100, 0);
    read.rkey = read_only->rkey;
    link->post(read);
    link->post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.done[0].vendor, 0U);
    EXPECT_EQ(link->a.done[1].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
}

// ROCE 10: 85
TEST_P(RcTest, PriorWorkSurvivesAnError) {
    open();
    for (std::uint64_t i = 0; i < 6; ++i) {
        SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, i, 0, 100, 4096 * i);
        if (i == 3) write.rkey = 0x77;
        link->post(write, i == 5);
    }
    ASSERT_TRUE(link->run(4));
    link->idle();
    ASSERT_EQ(link->a.done.size(), 4U);
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(link->a.done[i].id, i);
        EXPECT_EQ(link->a.done[i].vendor, 0U);
        EXPECT_TRUE(same(0, 4096 * i, 100));
    }
    // The provider blames the first WQE behind the PSN of the CQE, which is the failing one.
    EXPECT_EQ(link->a.done[3].id, 3U);
    EXPECT_EQ(link->a.done[3].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
    EXPECT_TRUE(zero_at_b(4096 * 4, 8192));
    EXPECT_STREQ(link->a.state(), "ERR");
}

// ROCE 10: 87
TEST_P(RcTest, SendTooLong) {
    open();
    link->b.recv(11, 0, 1500);
    link->b.recv(12, 4096, 1500);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 2000));
    ASSERT_TRUE(link->run(1, 1));
    link->idle();
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_INVALID_REQUEST});
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_RX_TOO_LONG});
    EXPECT_EQ(link->b.done.size(), 1U) << "one receive-error CQE between two RESETs";
    EXPECT_TRUE(zero_at_b(1500, 2000));
}

// ROCE 10: 88
TEST_P(RcTest, ReceiveSgeFaults) {
    open();
    auto& host = link->b.node->host;
    const auto read_only = host.hwc().create_mr(host.pd, link->b.buffer, 4096, gdma::kLocalRead);
    const gdma::Sge bad{link->b.buffer.value(), gdma::Key(read_only->lkey), 100};
    ASSERT_TRUE(host.post_recv(*link->b.qp, 5, std::span(&bad, 1)));
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 100));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION});
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_RX_SGE_ACCESS});
}

// ROCE 10: 88
TEST_P(RcTest, ReceiveSgeIsGoodOrBadAsAWhole) {
    open();
    auto& host = link->b.node->host;
    const auto small = host.hwc().create_mr(host.pd, link->b.buffer, 4096, Connection::kAll);
    // The message would fit into what the region covers of it.
    const gdma::Sge beyond{link->b.buffer.value() + 4000, gdma::Key(small->lkey), 200};
    ASSERT_TRUE(host.post_recv(*link->b.qp, 5, std::span(&beyond, 1)));
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 10));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION});
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_RX_SGE_RANGE});
    EXPECT_TRUE(zero_at_b(4000, 96));
}

// ROCE 10: 89
TEST_P(RcTest, GatherFaults) {
    for (int which = 0; which < 2; ++which) {
        open();
        SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 64, 4096);
        if (which == 0) write.sges[0].key = gdma::Key(0x7700);
        if (which == 1) write.sges[0].address += Connection::kMr;
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64, 0), false);
        link->post(write);
        ASSERT_TRUE(link->run(2));
        EXPECT_EQ(link->a.done[0].vendor, 0U);
        EXPECT_EQ(link->a.done[1].id, 2U);
        EXPECT_EQ(link->a.done[1].vendor, which == 0 ? unsigned{MANA_HW_RNIC_VE_TX_DATA_KEY}
                                                     : unsigned{MANA_HW_RNIC_VE_TX_DATA_RANGE});
        EXPECT_TRUE(zero_at_b(4096, 64));
        EXPECT_STREQ(link->b.state(), "RTS");
    }
}

// ROCE 10: 90
TEST_P(RcTest, ReadScatterFaults) {
    open();
    auto& host = link->a.node->host;
    const auto read_only = host.hwc().create_mr(host.pd, link->a.buffer, 4096, gdma::kLocalRead);
    SendWr read = link->wr(MANA_HW_RNIC_WQE_READ, 1, 0, 100, 0);
    read.sges[0].key = gdma::Key(read_only->lkey);
    link->post(read);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RX_SGE_ACCESS});
    EXPECT_STREQ(link->b.state(), "RTS");
}

// ROCE 10: 76, 81
TEST_P(RcTest, PeerGoneExhaustsTheRetries) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 3;
    open(options);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64, 0));
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(link->b.node->host.destroy_rc(*link->b.qp));
    const auto start = link->world.now();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 64, 0));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 3, 0, 64, 0));
    ASSERT_TRUE(link->world.run_until(
        [&] {
            link->a.poll();
            return link->a.done.size() >= 2;
        },
        std::chrono::seconds(1)));
    EXPECT_EQ(link->a.done[1].id, 2U);
    EXPECT_EQ(link->a.done[1].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
    const auto t = std::chrono::nanoseconds(4096 * 256);
    EXPECT_GE(link->world.now() - start, 4 * t);
    EXPECT_LE(link->world.now() - start, 16 * t);
    EXPECT_EQ(link->a.node->rnic.counters().timeouts.value(), 4U);
}

TEST_P(RcTest, AConnectionMadeAnewReachesItsNewPeer) {
    open();
    auto& b = link->b;
    RdmaHost& host_a = link->a.node->host;
    RdmaHost& host_b = b.node->host;
    const auto other = host_b.create_rc(b.send_cq, b.recv_cq);
    const Peer from_a{host_a.gid(), host_a.mac(), link->a.qp->qpn(), 0x300};
    ASSERT_TRUE(other && host_b.connect(*other, 0x700, from_a));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64, 0));
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(host_a.reset(*link->a.qp));
    link->a.done.clear();
    ASSERT_TRUE(host_a.connect(*link->a.qp, 0x300, {host_b.gid(), host_b.mac(), other->qpn(), 0}));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 64, 0));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 3, 0, 64, 0));
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.done[0].vendor, 0U);
    for (const auto& status : b.node->rnic.qp_status())
        EXPECT_EQ(status.rx_messages, status.qpn == other->qpn() ? 2U : 1U);
}

// ROCE 10: 79
TEST_P(RcTest, TimeoutZeroWaitsForEver) {
    Connection::Options options;
    options.timeout = 0;
    open(options);
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_RESET));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64, 0));
    link->idle(std::chrono::hours(1));
    EXPECT_TRUE(link->a.done.empty());
    ASSERT_TRUE(link->a.node->host.to_state(*link->a.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

TEST_P(RcTest, RemovedAddressIsAsGoneAsLostPackets) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 1;
    open(options);
    ASSERT_TRUE(link->b.node->host.config_address(link->b.node->host.gid(), false));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_RETRY});
    EXPECT_TRUE(zero_at_b(0, 64));
}

// ROCE 10: 108
TEST_P(RcTest, HostErrFlushesBothSidesOnce) {
    open();
    link->b.recv(1, 0, 64);
    link->b.recv(2, 0, 64);
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    ASSERT_EQ(link->b.done.size(), 1U) << "nothing was posted on the send side";
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_ERR));
    link->b.recv(3, 0, 64);
    link->idle(std::chrono::seconds(1));
    EXPECT_EQ(link->b.done.size(), 1U);
}

// ROCE 10: 108
TEST_P(RcTest, PostThatCrossesTheErrorIsFlushed) {
    open();
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    EXPECT_TRUE(link->b.done.empty());
    link->b.recv(3, 0, 64);
    link->idle();
    ASSERT_EQ(link->b.done.size(), 1U);
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

TEST_P(RcTest, OtherSideIsHeldBackUntilTheHostKnows) {
    open();
    link->a.recv(50, 0, 64);
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
    write.rkey = 0x77;
    link->post(write);
    ASSERT_TRUE(link->run(1));
    link->idle(std::chrono::milliseconds(50));
    EXPECT_EQ(link->a.error(true), 0U) << "not before the ERR modify or 100 ms";
    ASSERT_TRUE(link->a.node->host.to_state(*link->a.qp, MANA_HW_RNIC_QP_ERR));
    link->idle();
    EXPECT_EQ(link->a.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
    EXPECT_EQ(link->a.done.size(), 2U);
}

TEST_P(RcTest, OtherSideIsFlushedAfterAWhileAnyway) {
    open();
    link->a.recv(50, 0, 64);
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
    write.rkey = 0x77;
    link->post(write);
    ASSERT_TRUE(link->run(2));
    EXPECT_EQ(link->a.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

TEST_P(RcTest, ErrorThatNoCqeCanExpressIsAnEvent) {
    open();
    SendWr write = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100, 0);
    write.rkey = 0x77;
    link->post(write);
    ASSERT_TRUE(link->run(1));
    link->idle();
    const auto events = link->b.node->host.fatal_eq.drain();
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].type, 176U);
    EXPECT_EQ(events[0].data[0], link->b.qp->qpn());
    EXPECT_TRUE(link->a.node->host.fatal_eq.drain().empty()) << "a CQE told it";
}

// ROCE 10: 109
TEST_P(RcTest, ResetForgetsEverything) {
    open();
    link->b.recv(1, 0, 64);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 200));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_NE(link->a.error(false), 0U);
    for (auto* side : {&link->a, &link->b}) {
        ASSERT_TRUE(side->node->host.reset(*side->qp));
        side->done.clear();
    }
    Connection::Options options;
    options.psn_a = 0x4000;
    link->connect(options);
    link->b.recv(2, 0, 256);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 5, 0, 200));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->a.done[0].id, 5U);
    EXPECT_EQ(link->a.done[0].vendor, 0U);
    EXPECT_EQ(link->b.done[0].id, 2U);
    EXPECT_EQ(link->b.done[0].vendor, 0U);
}

// ROCE 10: 114
TEST_P(RcTest, ResponderInRtrServes) {
    Connection::Options options;
    open(options);
    ASSERT_TRUE(link->b.node->host.to_state(*link->b.qp, MANA_HW_RNIC_QP_RTR));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 5000, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_TRUE(same(0, 0, 5000));
}

// ROCE 10: 103
TEST_P(RcTest, PathMtuMismatchIsAnInvalidRequest) {
    open();
    for (auto* side : {&link->a, &link->b}) ASSERT_TRUE(side->node->host.reset(*side->qp));
    const Peer to_b{link->b.node->host.gid(), link->b.node->host.mac(), link->b.qp->qpn(), 0x900};
    const Peer to_a{link->a.node->host.gid(), link->a.node->host.mac(), link->a.qp->qpn(), 0x100};
    ASSERT_TRUE(link->b.node->host.connect(*link->b.qp, 0x900, to_a, 1024));
    ASSERT_TRUE(link->a.node->host.connect(*link->a.qp, 0x100, to_b, 2048));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 5000, 0));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_NAK_INVALID_REQUEST});
    link->idle();
    EXPECT_STREQ(link->a.state(), "ERR");
    EXPECT_STREQ(link->b.state(), "ERR");
}

// ROCE 10: 104
TEST_P(RcTest, InvalidateOfAnOrdinaryKeyFailsTheReceive) {
    Connection::Options options;
    options.timeout = 8;
    options.retries = 1;
    open(options);
    link->b.recv(4, 0, 100);
    SendWr send = link->wr(MANA_HW_RNIC_WQE_SEND_INV, 1, 0, 10);
    link->post(send);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_RX_RKEY});
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_RETRY}) << "no NAK is sent";
    EXPECT_NE(link->b.node->function.keys().find(gdma::Key(link->b.mr.rkey)), nullptr);
}

TEST_P(RcTest, BothDirectionsAtOnce) {
    open();
    Connection::fill(link->b.at(0, 1 << 20), 3);
    for (std::uint64_t i = 0; i < 20; ++i) {
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, i, 0, 5000, (2 << 20) + 8192 * i));
        SendWr back;
        back.opcode = MANA_HW_RNIC_WQE_WRITE;
        back.id = i;
        back.sges = {link->b.sge(8192 * i, 5000)};
        back.remote_address = link->a.buffer.value() + (2 << 20) + 8192 * i;
        back.rkey = link->a.mr.rkey;
        ASSERT_TRUE(link->b.node->host.post_send(*link->b.qp, back));
    }
    ASSERT_TRUE(link->run(20, 20));
    for (std::uint64_t i = 0; i < 20; ++i) {
        EXPECT_TRUE(same(0, (2 << 20) + 8192 * i, 5000));
        EXPECT_TRUE(same((2 << 20) + 8192 * i, 8192 * i, 5000));
    }
}

// ROCE 10: 91
TEST_P(RcTest, RegionRemovedDuringALongReadIsNotTouchedAgain) {
    open();
    auto& host = link->b.node->host;
    const auto mr =
        host.hwc().create_mr(host.pd, link->b.buffer, Connection::kMr, Connection::kAll);
    SendWr read = link->wr(MANA_HW_RNIC_WQE_READ, 1, 0, 3 << 20, 0);
    read.rkey = mr->rkey;
    link->post(read);
    link->world.run_until([] { return true; }, {});
    ASSERT_TRUE(host.hwc().destroy_mr(*mr));
    ASSERT_TRUE(link->run(1));
    if (link->a.done[0].vendor != 0) {
        EXPECT_EQ(link->a.done[0].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
    }
}

TEST_P(RcTest, ImpossibleDoorbellsFailOnlyTheirQp) {
    open();
    auto& host = link->a.node->host;
    host.hwc().ring_sq(host.device.page, link->a.qp->ids[0], 0x10000);
    link->idle();
    EXPECT_STREQ(link->a.state(), "ERR");
    EXPECT_EQ(link->a.node->rnic.counters().bad_doorbell.value(), 1U);
    host.hwc().ring_rq(host.device.page, link->a.qp->ids[4], 0x10000);
    host.hwc().ring_rq(host.device.page, link->a.qp->ids[3], 0x10000);
    EXPECT_EQ(link->a.node->rnic.counters().bad_doorbell.value(), 3U);
    EXPECT_STREQ(link->b.state(), "RTS");
}

// ROCE 10: 38
TEST_P(RcTest, Loopback) {
    SimWorld world;
    TestNetwork network(world);
    network.local = GetParam();
    Node node(world, network, 1);
    auto& host = node.host;
    ASSERT_TRUE(host.bring_up());
    auto cq = *host.create_cq(4096);
    auto one = host.create_rc(cq, cq);
    auto two = host.create_rc(cq, cq);
    const auto buffer = node.ram.alloc(8192);
    const auto mr = *host.hwc().create_mr(host.pd, buffer, 8192, Connection::kAll);
    ASSERT_TRUE(host.connect(*one, 1, {host.gid(), host.mac(), two->qpn(), 2}));
    ASSERT_TRUE(host.connect(*two, 2, {host.gid(), host.mac(), one->qpn(), 1}));
    Connection::fill(node.ram.bytes(buffer, 4096), 9);
    SendWr write;
    write.opcode = MANA_HW_RNIC_WQE_WRITE;
    write.sges = {{buffer.value(), gdma::Key(mr.lkey), 4096}};
    write.remote_address = buffer.value() + 4096;
    write.rkey = mr.rkey;
    ASSERT_TRUE(host.post_send(*one, write));
    std::vector<Completion> done;
    HostQp* const qps[] = {one.get(), two.get()};
    ASSERT_TRUE(world.run_until(
        [&] {
            host.poll(cq, qps, done);
            return !done.empty();
        },
        std::chrono::seconds(1)));
    EXPECT_EQ(done[0].vendor, 0U);
    EXPECT_TRUE(
        std::ranges::equal(node.ram.bytes(buffer, 4096), node.ram.bytes(buffer + 4096, 4096)));
}

}  // namespace
}  // namespace openmana::test
