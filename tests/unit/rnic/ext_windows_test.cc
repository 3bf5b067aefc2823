// SPDX-License-Identifier: Apache-2.0
// Memory windows of both types, regions that they show, and what invalidates them.
#include <mana/gdma.h>

#include <atomic>
#include <thread>

#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtWindowsTest : public ExtVerbsTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtWindowsTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtWindowsTest, WindowShowsAPartOfItsRegion) {
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

TEST_P(ExtWindowsTest, RegionThatWindowsShowIsNotModified) {
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

TEST_P(ExtWindowsTest, ModifiedRegionHasOtherMemoryAndRightsUnderItsKey) {
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
TEST_P(ExtWindowsTest, UnboundAndOldKeysOfAWindowAreRefused) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    const std::uint64_t base = link->a.buffer.value();
    ASSERT_EQ(done(bind(*window, window->rkey + 1, 0, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(window->rkey, base), 10);
}

// ROCE 10: 131
TEST_P(ExtWindowsTest, WindowOfType1IsBoundAgainAndItsOldKeyEnds) {
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

TEST_P(ExtWindowsTest, WindowOfLengthZeroShowsNothing) {
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
TEST_P(ExtWindowsTest, ZeroBasedWindow) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0x90000, 64,
                        gdma::kRemoteWrite | MANA_HW_EXT_ACCESS_ZERO_BASED))
                  .status,
              0);
    EXPECT_EQ(write_by_b(window->rkey, 48), 0);
    EXPECT_TRUE(link->same(0x90000 + 48, 0, 16));
}

TEST_P(ExtWindowsTest, WindowWithoutTheRightRefusesIt) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteRead)).status, 0);
    EXPECT_EQ(write_by_b(window->rkey, link->a.buffer.value()), 10);
}

// ROCE 10: 133
TEST_P(ExtWindowsTest, BadBindsAreRefused) {
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

TEST_P(ExtWindowsTest, WindowOfType2IsBoundOnceAndInvalidated) {
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
TEST_P(ExtWindowsTest, WindowOfType2IsNotUnboundByABind) {
    open();
    const auto window = link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_EQ(done(bind(*window, window->rkey, 0, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(done(bind(*window, window->rkey, 0, 0, 0)).status, 6);
}

TEST_P(ExtWindowsTest, BindGoesByTheIndexOfTheWindow) {
    open();
    auto window = *link->a.host->create_key(MANA_HW_MR_WINDOW_TYPE1);
    // A bind that was flushed: the host believes in a tag that the device never saw.
    window.rkey ^= 0x21;
    const std::uint32_t key = window.rkey ^ 0x42;
    ASSERT_EQ(done(bind(window, key, 0x90000, 64, gdma::kRemoteWrite)).status, 0);
    EXPECT_EQ(write_by_b(key, link->a.buffer.value() + 0x90000), 0);
}

TEST_P(ExtWindowsTest, WindowOfType2EndsWithItsQp) {
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
TEST_P(ExtWindowsTest, WindowOfType2KnowsOneQueuePairOnly) {
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
TEST_P(ExtWindowsTest, RegionWithWindowsStays) {
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

TEST_P(ExtWindowsTest, LocalInvalidateWaitsForVisitors) {
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

TEST_P(ExtWindowsTest, LocalInvalidateOfAnythingElseIsRefused) {
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
TEST_P(ExtWindowsTest, SendWithInvalidateEndsAWindow) {
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
TEST_P(ExtWindowsTest, SendWithInvalidateOfAPlainKeyFailsTheReceiver) {
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
TEST_P(ExtWindowsTest, SendWithInvalidateOfWhatIsNotItsOwnFailsTheReceiver) {
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

}  // namespace
}  // namespace openmana::test
