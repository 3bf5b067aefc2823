// SPDX-License-Identifier: Apache-2.0
// What the RDMA device of a guest has is paid for from the account of its NIC. Where that cannot
// pay, commands and work requests are refused and leave nothing behind, and queue pairs go on with
// what they have.
#include <mana/ext.h>
#include <mana/gdma.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/heap.h"
#include "ext_verbs_fixture.h"
#include "rnic/adapter.h"
#include "rnic/qp.h"
#include "support/scarcity.h"

extern "C" std::size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace openmana::test {
namespace {

/// Of this process. The sanitizers' allocators have a call of their own.
std::uint64_t allocated() {
    if (__sanitizer_get_current_allocated_bytes != nullptr)
        return __sanitizer_get_current_allocated_bytes();
    return base::heap_bytes();
}

/// Tables keep the places of ids that were handed out while a command was tried.
constexpr std::uint64_t kTables = 256U << 10;

class RnicAccountTest : public ExtVerbsTest {
protected:
    void SetUp() override {
        ExtLink::Options options;
        options.a.flags = MANA_HW_EXT_QP_PRIVILEGED;
        for (ExtQpOptions* const end : {&options.a, &options.b}) {
            end->rq_bytes = 8192;
            end->stride = MANA_HW_EXT_WQE_MAX_BYTES;  // for receives with all SGEs
        }
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

/// All that grows is made to grow as far as it may, and what that takes is compared with what was
/// paid.
TEST_P(RnicAccountTest, AQueuePairHasPaidForAllThatPeersMayMakeOfIt) {
    if (!GetParam()) GTEST_SKIP() << "growth knows no path";
#ifdef OPENMANA_COVERAGE
    GTEST_SKIP() << "the C library takes small blocks that were freed before for allocated";
#endif
    const std::uint64_t used = account().used();
    ASSERT_TRUE(ext().create_qp(link->a.send_cq, link->a.recv_cq));
    EXPECT_GE(account().used(), used + rnic::Qp::growth());

    rnic::Qp& qp = *link->a.node->rnic.adapter().qps.find(roce::Qpn(link->a.qp.qpn));
    // What a thread has for all queue pairs is there when B has got such a message.
    link->b.host->recv(link->b.qp, 1, std::vector<gdma::Sge>(rnic::kMostSges, link->b.sge(0, 64)));
    EXPECT_EQ(done(link->wr(MANA_HW_EXT_WQE_SEND, 0, 1024, 0)).status, 0);
    const std::vector<gdma::Sge> sges(rnic::kMostSges, link->a.sge(0, 64));
    ext().recv(link->a.qp, 1, sges);
    const std::uint64_t before = allocated();
    rnic::Segment segment;
    segment.first = segment.last = true;
    {
        const std::lock_guard lock(qp.responder.mutex);
        segment.kind = rnic::SegmentKind::kRead;
        segment.psn = qp.responder.expected();
        segment.reth = {link->a.buffer.value(), roce::RKey(link->a.mr.rkey), 8};
        ASSERT_EQ(qp.responder.execute(segment).kind, rnic::Answer::Kind::kRead);
        std::byte bytes[1024]{};  // the MTU
        const std::span<std::byte> payload(bytes);
        segment.kind = rnic::SegmentKind::kSend;
        segment.last = false;
        segment.psn = qp.responder.expected();
        segment.payload = rnic::Spans(&payload, 1);
        segment.length = sizeof bytes;
        (void)qp.responder.execute(segment);
        ASSERT_TRUE(qp.responder.taken());
    }
    qp.limiter = std::make_unique<rnic::Limiter>(qp);
    const std::uint64_t parts = allocated() - before;
    EXPECT_GT(parts, rnic::ResponderHistory::kReadEntries * sizeof(rnic::ReadEntry) +
                         rnic::kMostSges * sizeof(gdma::Sge) + sizeof(rnic::Limiter) - 1);
    for (std::uint32_t psn = 0; !qp.responses.full(); ++psn) {
        rnic::Answer answer;
        answer.psn = roce::Psn(2 * psn);
        answer.kind = rnic::Answer::Kind::kAtomic;
        qp.responses.add(answer);
        answer.kind = rnic::Answer::Kind::kRnr;
        qp.responses.add(answer);
        answer.kind = rnic::Answer::Kind::kAck;
        qp.responses.add(answer);
    }
    const std::uint64_t answers = allocated() - before - parts;
    EXPECT_GT(answers, 100 * sizeof(rnic::Answer)) << "they were made to wait";
    EXPECT_LE(answers, rnic::Responses::most_bytes());
    // What its owner makes of it, and others of what it holds.
    constexpr std::uint64_t kRest = (rnic::SendSlots::kFew + 1) * rnic::SendSlots::kSlotCost +
                                    rnic::AdapterEvents::kOfQp * gdma::EventQueue::held_cost();
    EXPECT_GE(rnic::Qp::growth(), parts + rnic::Responses::most_bytes() + kRest);
}

/// Nobody has paid for a list of all queue pairs for each of them.
TEST_P(RnicAccountTest, CqsThatAreFullAtOnceTakeLittleForEach) {
    if (!GetParam()) GTEST_SKIP() << "a full CQ knows no path";
    constexpr std::uint32_t kCount = 400;
    std::vector<ExtCq> full;
    std::vector<ExtQp> users;
    for (std::uint32_t i = 0; i < kCount; ++i) {
        auto cq = ext().create_cq(1);
        ASSERT_TRUE(cq);
        auto qp = ext().create_qp(*cq, *cq, {.sq_bytes = 64, .rq_bytes = 0});
        ASSERT_TRUE(qp);
        ASSERT_TRUE(ext().to_state(*qp, MANA_HW_RNIC_QP_INIT));
        full.push_back(std::move(*cq));
        users.push_back(std::move(*qp));
    }
    const rnic::Adapter& adapter = link->a.node->rnic.adapter();
    for (const ExtQp& user : users)
        for (int i = 0; i < 2; ++i)
            adapter.qps.find(roce::Qpn(user.qpn))->send_cq->post({}, user.sq_id, true);
    const std::uint64_t before = allocated();
    std::uint64_t most = before;
    while (link->a.node->executor.run_once()) most = std::max(most, allocated());
    EXPECT_EQ(adapter.datapath.counters.cq_overruns.value(), kCount);
    for (const ExtQp& user : users)
        EXPECT_EQ(ext().query_qp(user)->state, unsigned{MANA_HW_RNIC_QP_ERR});
    EXPECT_LT(most, before + 512 * kCount);
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
    if (GetParam()) GTEST_SKIP() << "each request ends before the next one begins";
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
    EXPECT_GT(account().refused(), refused);
    EXPECT_EQ(account().used(), account().limit());
}

TEST_P(RnicAccountTest, WhatEndsIsPaidBack) {
    const auto cycle = [&] {
        auto cq = ext().create_cq(64);
        auto srq = ext().create_srq();
        auto qp = ext().create_qp(*cq, *cq, {.sq_bytes = 1024, .srq = &*srq});
        EXPECT_TRUE(qp && ext().destroy_qp(*qp));
        EXPECT_TRUE(ext().destroy_srq(*srq) && ext().destroy_cq(*cq));
        return account().used();
    };
    // Ids are new ones first, and tables grow with them by half or more: after so many cycles they
    // have room for the rest.
    for (int i = 0; i < 1200; ++i) cycle();
    const std::uint64_t used = account().used();
    for (int i = 0; i < 100; ++i) EXPECT_EQ(cycle(), used);
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
