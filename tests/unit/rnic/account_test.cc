// SPDX-License-Identifier: Apache-2.0
// What the RDMA device of a guest has is paid for from the account of its NIC. Where that cannot
// pay, commands and work requests are refused and leave nothing behind, and queue pairs go on with
// what they have.
#include <mana/ext.h>
#include <mana/gdma.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "ext_verbs_fixture.h"
#include "rnic/adapter.h"
#include "support/scarcity.h"

namespace openmana::test {
namespace {

/// Tables keep the places of ids that were handed out while a command was tried.
constexpr std::uint64_t kTables = 256U << 10;

class RnicAccountTest : public ExtVerbsTest {
protected:
    void SetUp() override {
        ExtLink::Options options;
        options.a.flags = MANA_HW_EXT_QP_PRIVILEGED;
        open(options);
    }
    void TearDown() override {
        rest = {};
        qps.clear();
        function().reset();
        EXPECT_EQ(account().used(), 0U);
    }
    gdma::Function& function() { return link->a.node->function; }
    base::MemoryAccount& account() { return function().account(); }
    RdmaHost& host() { return link->a.node->host; }
    ExtHost& ext() { return *link->a.host; }
    void expect_refusals(const std::function<bool()>& make) {
        expect_refusals_leave_nothing(function(), host().hwc(), make, kTables);
    }
    /// All of the account but so much, for as long as the test lasts.
    void leave(std::uint64_t bytes) {
        auto charge = account().charge(account().left() - bytes);
        ASSERT_TRUE(charge);
        rest = std::move(*charge);
    }
    base::MemoryAccount::Charge rest;
    std::vector<std::unique_ptr<HostQp>> qps;
};

INSTANTIATE_TEST_SUITE_P(Paths, RnicAccountTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(RnicAccountTest, CommandsAreRefusedAndLeaveNothing) {
    if (!GetParam()) GTEST_SKIP() << "commands know no path";
    expect_refusals([&] { return host().create_cq().has_value(); });
    expect_refusals([&] { return ext().create_cq(64).has_value(); });
    expect_refusals([&] { return ext().create_srq().has_value(); });
    expect_refusals([&] { return ext().create_key(MANA_HW_MR_WINDOW_TYPE2).has_value(); });
    auto cq = host().create_cq();
    ASSERT_TRUE(cq);
    expect_refusals([&] {
        qps.push_back(host().create_rc(*cq, *cq));
        return qps.back() != nullptr;
    });
    expect_refusals([&] {
        qps.push_back(host().create_ud(*cq, *cq, 1));
        return qps.back() != nullptr;
    });
    expect_refusals([&] {
        qps.push_back(host().create_ud(*cq, *cq, 1, true));
        return qps.back() != nullptr;
    });
    expect_refusals([&] { return ext().create_qp(link->a.send_cq, link->a.recv_cq).has_value(); });
}

/// The memory of the first queue pairs comes in one piece.
TEST_P(RnicAccountTest, TheFirstQueuePairIsRefusedAndLeavesNothing) {
    if (!GetParam()) GTEST_SKIP() << "commands know no path";
    ASSERT_TRUE(ext().destroy_qp(link->a.qp));
    auto cq = host().create_cq();
    ASSERT_TRUE(cq);
    expect_refusals([&] {
        qps.push_back(host().create_rc(*cq, *cq));
        return qps.back() != nullptr;
    });
}

TEST_P(RnicAccountTest, AQueuePairHasPaidForAllThatPeersMayMakeOfIt) {
    const std::uint64_t used = account().used();
    ASSERT_TRUE(ext().create_qp(link->a.send_cq, link->a.recv_cq));
    EXPECT_GE(account().used(), used + rnic::Qp::growth());
    const std::uint64_t paid = account().used();
    ExtWr read;
    read.opcode = MANA_HW_EXT_WQE_READ;
    read.sges = {link->b.sge(0, 8)};
    read.remote_address = link->a.buffer.value();
    read.rkey = link->a.mr.rkey;
    for (int i = 0; i < 100; ++i) link->b.post(read);
    std::size_t completed = 0;
    ASSERT_TRUE(
        link->world.run_until([&] { return (completed += link->b.send_cq.drain().size()) == 100; },
                              std::chrono::seconds(60)));
    EXPECT_EQ(account().used(), paid);
}

TEST_P(RnicAccountTest, AFastRegistrationWithoutMemoryFailsAsOneThatMakesNoSense) {
    const auto key = ext().create_key(MANA_HW_EXT_MR_FAST_REGISTER, 16);
    ASSERT_TRUE(key);
    for (std::uint64_t i = 0; i < 16; ++i)
        link->a.word(0xf000 + 8 * i) = link->a.buffer.value() + 8192 * i;
    ExtWr wr;
    wr.opcode = MANA_HW_EXT_WQE_FAST_REGISTER;
    wr.reg.emplace();
    wr.reg->key = key->rkey;
    wr.reg->access = gdma::kLocalRead;
    wr.reg->iova = 0;
    wr.reg->length = 16 * 4096;
    wr.reg->page_list = link->a.buffer.value() + 0xf000;
    wr.reg->pages = 16;
    wr.reg->page_shift = 12;
    leave(300);
    const std::uint64_t used = account().used();
    EXPECT_NE(done(wr).status, 0);
    EXPECT_EQ(account().used(), used);
}

TEST_P(RnicAccountTest, AQueuePairWithoutMemoryForMoreSlotsCompletesAllItsWork) {
    constexpr std::uint32_t kWrites = 10000;
    leave(0);
    const std::uint64_t refused = account().refused();
    std::uint32_t completed = 0;
    for (std::uint32_t posted = 0; posted < kWrites;) {
        for (int i = 0; i < 100; ++i, ++posted)
            link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, posted % 1000, 64, posted % 1000));
        ASSERT_TRUE(link->world.run_until(
            [&] {
                for (const auto& cqe : link->a.send_cq.drain()) {
                    EXPECT_EQ(cqe.status, 0);
                    ++completed;
                }
                return completed == posted;
            },
            std::chrono::seconds(60)));
    }
    EXPECT_EQ(completed, kWrites);
    EXPECT_TRUE(link->same(999, 999, 64));
    // On the local path each request ends before the next one begins.
    if (!GetParam()) {
        EXPECT_GT(account().refused(), refused);
    }
    EXPECT_EQ(account().used(), account().limit());
}

TEST_P(RnicAccountTest, WhatEndsIsPaidBack) {
    const auto cycle = [&] {
        auto cq = ext().create_cq(64);
        auto srq = ext().create_srq();
        auto qp = ext().create_qp(*cq, *cq, {.srq = &*srq});
        EXPECT_TRUE(qp && ext().destroy_qp(*qp));
        EXPECT_TRUE(ext().destroy_srq(*srq) && ext().destroy_cq(*cq));
        return account().used();
    };
    // Ids are new ones first: a table may have room for a few more.
    const std::uint64_t used = cycle();
    for (int i = 0; i < 100; ++i) EXPECT_LE(cycle(), used + kTables);
}

/// Else they would stay for each number that there ever was.
TEST_P(RnicAccountTest, EventsThatAreHeldBackEndWithTheirQueuePair) {
    if (!GetParam()) GTEST_SKIP() << "events know no path";
    const ExtQpOptions small{.sq_bytes = 1024, .rq_bytes = 1024};
    std::uint32_t number = 0;
    // Nobody takes what is in the EQ of the adapter, which has 2,048 entries.
    for (std::uint32_t i = 0; i < 3000; ++i) {
        auto qp = ext().create_qp(link->a.send_cq, link->a.recv_cq, small);
        ASSERT_TRUE(qp);
        link->a.node->rnic.adapter().datapath.events.qp_fatal(roce::Qpn(qp->qpn));
        number = qp->qpn;
        ASSERT_TRUE(ext().destroy_qp(*qp));
    }
    auto last = ext().create_qp(link->a.send_cq, link->a.recv_cq, small);
    ASSERT_TRUE(last);
    link->a.node->rnic.adapter().datapath.events.qp_fatal(roce::Qpn(last->qpn));
    std::vector<std::uint32_t> seen;
    for (int round = 0; round < 2; ++round) {
        for (const Eqe& eqe : host().fatal_eq.drain()) seen.push_back(eqe.data[0]);
        host().fatal_eq.arm();
    }
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back(), last->qpn);
    EXPECT_EQ(std::ranges::count(seen, number), 0) << "held back, and then it was gone";
}

}  // namespace
}  // namespace openmana::test
