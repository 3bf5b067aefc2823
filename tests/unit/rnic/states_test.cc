// SPDX-License-Identifier: Apache-2.0
// The states of a QP, and what is left of its lives (ROCE 10.6).
#include "wire_fixture.h"

namespace openmana::test {
namespace {

using roce::Opcode;
using roce::Psn;
using std::chrono::milliseconds;

constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

class StatesTest : public WireCase {
protected:
    bool to_state(Connection::Side& side, std::uint32_t state) {
        return side.node->host.to_state(*side.qp, state);
    }
    bool reset_both() {
        for (auto* side : {&link->a, &link->b}) {
            if (!side->node->host.reset(*side->qp)) return false;
            side->done.clear();
        }
        return true;
    }
};

/// Drivers check neither transitions nor completeness, so the device takes what it can store.
// ROCE 10: 106
TEST_F(StatesTest, EveryTransitionIsTaken) {
    for (std::uint32_t from = 0; from <= 6; ++from)
        for (std::uint32_t next = 0; next <= 6; ++next) {
            open();
            ASSERT_TRUE(to_state(link->a, from));
            EXPECT_TRUE(to_state(link->a, next)) << kNames[from] << " to " << kNames[next];
            EXPECT_STREQ(link->a.state(), kNames[next]);
        }
    open();
    auto& host = link->a.node->host;
    Request set(MANA_HW_RNIC_SET_QP_STATE, 184, 32, 3, 3);
    set.put<std::uint64_t>(40, host.adapter)
        .put<std::uint64_t>(48, link->a.qp->handle)
        .put<std::uint64_t>(56, MANA_HW_RNIC_ATTR_STATE | MANA_HW_RNIC_ATTR_PATH_MTU)
        .put<std::uint32_t>(64, 7)
        .put<std::uint32_t>(68, 3);
    EXPECT_FALSE(host.call(set.fit()).ok()) << "no such state";
    set.put<std::uint32_t>(64, 6).put<std::uint32_t>(68, 6);
    EXPECT_FALSE(host.call(set.fit()).ok()) << "no such MTU";
    EXPECT_STREQ(link->a.state(), "RTS") << "nothing of a refused request is taken";
}

// ROCE 10: 107
TEST_F(StatesTest, WorkWaitsForTheStateThatDoesIt) {
    open();
    ASSERT_TRUE(reset_both());
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_INIT));
    ASSERT_TRUE(to_state(link->b, MANA_HW_RNIC_QP_INIT));
    link->b.recv(1, 0, 64);
    roce::Packet p = to(link->b, Opcode::kSendOnly, 0x100);
    inject(link->b, p, 10);
    EXPECT_EQ(at_b().drop_state.value(), 1U);
    EXPECT_TRUE(sent().empty());
    Connection::Options options;
    link->connect(options);
    send(5, 10);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
    EXPECT_EQ(link->b.done[0].id, 1U) << "a receive of INIT serves in RTS";
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_ERR));
    const std::size_t frames = sent().size();
    send(6, 10);
    link->a.recv(7, 0, 64);
    link->idle();
    EXPECT_EQ(sent().size(), frames);
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_FLUSHED});
    EXPECT_EQ(link->a.error(true), unsigned{MANA_HW_RNIC_VE_FLUSHED});
}

// ROCE 10: 107
TEST_F(StatesTest, NothingIsSentBeforeRts) {
    open();
    for (const std::uint32_t state :
         {MANA_HW_RNIC_QP_RESET, MANA_HW_RNIC_QP_INIT, MANA_HW_RNIC_QP_RTR}) {
        SCOPED_TRACE(kNames[state]);
        ASSERT_TRUE(reset_both());
        ASSERT_TRUE(to_state(link->a, state));
        write(1, 10);
        link->a.recv(2, 0, 64);
        link->idle(milliseconds(200));
        EXPECT_TRUE(sent().empty());
        EXPECT_TRUE(link->a.done.empty());
        EXPECT_TRUE(link->a.node->host.fatal_eq.drain().empty());
        EXPECT_STREQ(link->a.state(), kNames[state]);
    }
    ASSERT_TRUE(reset_both());
    link->connect(Connection::Options());
    write(3, 10);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
}

// ROCE 10: 107
TEST_F(StatesTest, WhatIsPostedInSqdWaits) {
    open();
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_SQD));
    link->a.recv(9, 0, 64);
    write(1, 10, 0, false);
    read(2, 10);
    link->idle(milliseconds(200));
    EXPECT_TRUE(sent().empty());
    EXPECT_TRUE(link->a.done.empty());
    roce::Packet p = to(link->a, Opcode::kSendOnly, Connection::kPsnB);
    inject(link->a, p, 10);
    ASSERT_EQ(link->a.done.size(), 1U) << "the receive serves";
    EXPECT_EQ(link->a.done[0].id, 9U);
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_RTS));
    ASSERT_TRUE(link->run(3));
    expect_ok(3);
}

// ROCE 10: 108
TEST_F(StatesTest, ErrFlushesEachQueueOnce) {
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    for (std::uint64_t i = 0; i < 5; ++i) {
        link->a.recv(10 + i, 0, 64);
        write(i, 10, 0, i == 4);
    }
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_ERR));
    link->idle();
    ASSERT_EQ(link->a.done.size(), 2U) << "one for each queue; the provider makes the others";
    EXPECT_EQ(link->a.find(false, 0)->vendor, unsigned{MANA_HW_RNIC_VE_FLUSHED});
    EXPECT_EQ(link->a.find(true, 10)->vendor, unsigned{MANA_HW_RNIC_VE_FLUSHED});
    write(20, 10);
    link->a.recv(21, 0, 64);
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_ERR));
    link->idle(std::chrono::seconds(1));
    EXPECT_EQ(link->a.done.size(), 2U);
}

// ROCE 10: 109
TEST_F(StatesTest, ResetSaysNothing) {
    open();
    lose([](const roce::Packet&) { return true; }, 100);
    for (std::uint64_t i = 0; i < 5; ++i) {
        link->a.recv(10 + i, 0, 64);
        write(i, 10, 0, i == 4);
    }
    ASSERT_TRUE(reset_both());
    link->idle(std::chrono::seconds(10));
    EXPECT_TRUE(link->a.done.empty());
    EXPECT_TRUE(link->a.node->host.fatal_eq.drain().empty());
    Connection::Options options;
    options.psn_a = 0x5000;
    link->network.fate = {};
    link->connect(options);
    write(1, 3000);
    ASSERT_TRUE(link->run(1));
    expect_ok(1);
    EXPECT_EQ(sent()[0].psn, Psn(0x5000));
    EXPECT_EQ(sent().back().aeth.msn, 1U);
}

// ROCE 10: 110
TEST_F(StatesTest, HalfAMessageOfAnotherLifeIsForgotten) {
    open();
    link->b.recv(1, 0, 8192);
    lose(request(0x102), 100);
    send(1, 3 * 1024);
    link->idle();
    ASSERT_TRUE(reset_both());
    Connection::Options options;
    options.psn_a = 0x7000;
    link->connect(options);
    inject(link->b, to(link->b, Opcode::kSendLast, 0x102), 1024);
    link->b.recv(2, 65536, 64);
    send(5, 10);
    ASSERT_TRUE(link->run(1, 1));
    link->idle();
    expect_ok(1, 1);
    EXPECT_EQ(link->b.done[0].id, 2U) << "the receive of the old life is gone";
    EXPECT_TRUE(same(0, 65536, 10));
    EXPECT_TRUE(zero_at_b(2048, 1024));
}

// ROCE 10: 111
TEST_F(StatesTest, HalfAMessageOfOneSideIsASequenceOfOpcodesThatIsNone) {
    open();
    link->b.recv(1, 0, 8192);
    lose(request(0x102), 100);
    send(1, 3 * 1024);
    link->idle();
    ASSERT_TRUE(link->a.node->host.reset(*link->a.qp));
    link->a.done.clear();
    link->network.fate = {};
    const Peer to_b{link->b.node->host.gid(), link->b.node->host.mac(), link->b.qp->qpn(),
                    Connection::kPsnB};
    ASSERT_TRUE(link->a.node->host.connect(*link->a.qp, 0x102, to_b));
    send(2, 10);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->a.error(false), unsigned{MANA_HW_RNIC_VE_NAK_INVALID_REQUEST});
    EXPECT_EQ(link->b.error(true), unsigned{MANA_HW_RNIC_VE_RX_OPCODE});
}

// ROCE 10: 112
TEST_F(StatesTest, PacketsOfAnotherLifeAreDuplicates) {
    open();
    write(1, 10);
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(reset_both());
    std::ranges::fill(link->b.at(0, 64), std::byte{0});
    Connection::Options options;
    options.psn_a = 0x200;
    link->connect(options);
    link->b.recv(1, 65536, 64);
    roce::Packet p = to(link->b, Opcode::kWriteOnly, 0x100);
    p.reth.length = 10;
    inject(link->b, p, 10);
    inject(link->b, to(link->b, Opcode::kSendOnly, 0x101), 10);
    p = to(link->b, Opcode::kReadRequest, 0x102);
    p.reth.length = 10;
    inject(link->b, p);
    for (const roce::Packet& answer : sent()) {
        EXPECT_TRUE(is_ack(answer));
        EXPECT_EQ(answer.psn, Psn(0x1ff));
    }
    EXPECT_TRUE(zero_at_b(0, 64));
    EXPECT_TRUE(link->b.done.empty());
    send(2, 10);
    ASSERT_TRUE(link->run(1, 1));
    expect_ok(1, 1);
}

// ROCE 10: 113, 114
TEST_F(StatesTest, ResponderServesBeforeRts) {
    open();
    ASSERT_TRUE(to_state(link->b, MANA_HW_RNIC_QP_RTR));
    for (std::uint64_t i = 0; i < 2; ++i) link->b.recv(i, 4096 * i, 4096);
    send(1, 2000, false);
    write(2, 100, 65536, false);
    read(3, 3000, false);
    send(4, 10);
    ASSERT_TRUE(link->run(4, 2));
    expect_ok(4, 2);
    EXPECT_STREQ(link->b.state(), "RTR");
}

// ROCE 10: 115
TEST_F(StatesTest, SqdFinishesWhatItBegan) {
    Connection::Options options;
    options.limits_a.reads_out = 2;
    open(options);
    lose([](const roce::Packet& p) { return p.opcode == Opcode::kReadResponseOnly; }, 2);
    for (std::uint64_t i = 0; i < 5; ++i) read(i, 100, i == 4);
    link->idle();
    // Two are out, and the others wait for them.
    EXPECT_EQ(sent().size(), 4U);
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_SQD));
    ASSERT_TRUE(link->run(2));
    link->idle(std::chrono::seconds(1));
    EXPECT_EQ(link->a.done.size(), 2U);
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_RTS));
    ASSERT_TRUE(link->run(5));
    expect_ok(5);
}

// ROCE 10: 115
TEST_F(StatesTest, DrainedQueueTakesANewPath) {
    open();
    write(1, 10);
    ASSERT_TRUE(link->run(1));
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_SQD));
    const Peer to_b{link->b.node->host.gid(), link->b.node->host.mac(), link->b.qp->qpn(),
                    Connection::kPsnB};
    write(2, 10);
    ASSERT_TRUE(link->a.node->host.set_path(*link->a.qp, to_b, 0xd234));
    ASSERT_TRUE(to_state(link->a, MANA_HW_RNIC_QP_RTS));
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    ASSERT_EQ(sent().size(), 4U);
    EXPECT_EQ(sent()[0].udp_source_port, 0xc123);
    EXPECT_EQ(sent()[2].udp_source_port, 0xd234);
    EXPECT_EQ(sent()[2].psn, Psn(0x101)) << "the PSNs go on";
}

// ROCE 10: 116
TEST_F(StatesTest, SqdReceives) {
    open();
    ASSERT_TRUE(to_state(link->b, MANA_HW_RNIC_QP_SQD));
    link->b.recv(1, 0, 4096);
    send(1, 3000, false);
    read(2, 3000);
    ASSERT_TRUE(link->run(2, 1));
    expect_ok(2, 1);
    EXPECT_TRUE(same(0, 0, 3000));
}

/// Regions whose addresses begin at 0.
// ROCE 10: 138
TEST_F(StatesTest, ZeroBasedRegion) {
    open();
    auto& host = link->b.node->host;
    const auto mr =
        host.hwc().create_mr(host.pd, link->b.buffer, 8192, Connection::kAll, std::uint64_t{0});
    ASSERT_TRUE(mr);
    SendWr wr = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 1);
    wr.rkey = mr->rkey;
    std::uint64_t id = 1;
    for (const std::uint64_t address : {std::uint64_t{0}, std::uint64_t{8191}}) {
        wr.id = id++;
        wr.remote_address = address;
        link->post(wr);
    }
    ASSERT_TRUE(link->run(2));
    expect_ok(2);
    EXPECT_EQ(link->b.at(8191, 1)[0], link->a.at(0, 1)[0]);
    wr.id = 3;
    wr.remote_address = 8192;
    link->post(wr);
    ASSERT_TRUE(link->run(3));
    EXPECT_EQ(link->a.done[2].vendor, unsigned{MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS});
}

}  // namespace
}  // namespace openmana::test
