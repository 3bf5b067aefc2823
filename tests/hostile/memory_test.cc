// SPDX-License-Identifier: Apache-2.0
// Clients of a manad NIC in this process that leave without a word, hundreds of them, with all
// kinds of objects in use: the memory that the device takes from the heap does not grow with them.
// And one that takes all that it can: that is no more than its NIC may have.
#include <gtest/gtest.h>
#include <mana/ext.h>
#include <mana/gdma.h>
#include <mana/rnic_queue.h>
#include <stdlib.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>

#include "base/clock.h"
#include "base/heap.h"
#include "base/log.h"
#include "fabric/switch.h"
#include "manad/nic_server.h"
#include "support/eventually.h"
#include "support/ext_host.h"
#include "support/rdma_host.h"
#include "support/remote_nic.h"

namespace openmana::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

constexpr auto kPatience = std::chrono::seconds(60);
constexpr int kPairs = 6;  ///< of each kind, in each round
constexpr std::uint32_t kBufferBytes = 65536;

/// What a guest has when it ends without a word: `kPairs` connections between queue pairs of its
/// own, stock and extended, with traffic, each with completion queues, a PD and a region of its
/// own.
bool fill_with_objects(RemoteNic& nic) {
    RdmaHost host(nic, nic.ram(), nic.irq(), test_mac(1), ipv4_gid(1));
    host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
    if (!host.bring_up()) return false;
    ExtHost ext(host);
    const base::GuestAddr buffer = host.ram().alloc(kBufferBytes);
    for (int i = 0; i < kPairs; ++i) {
        const auto pd = host.hwc().create_pd();
        if (!pd || !host.hwc().create_mr(*pd, buffer, kBufferBytes, 15)) return false;
        const auto mr = host.hwc().create_mr(host.pd, buffer, kBufferBytes, 15);
        auto cq = host.create_cq();
        auto from = cq ? host.create_rc(*cq, *cq) : nullptr;
        auto to = from ? host.create_rc(*cq, *cq) : nullptr;
        if (!mr || !to) return false;
        if (!host.connect(*to, 999, {host.gid(), host.mac(), from->qpn(), 4242}) ||
            !host.connect(*from, 4242, {host.gid(), host.mac(), to->qpn(), 999}))
            return false;
        const SendWr write{.opcode = MANA_HW_RNIC_WQE_WRITE,
                           .sges = {{buffer.value(), gdma::Key(mr->lkey), 4096}},
                           .remote_address = buffer.value() + 32768,
                           .rkey = mr->rkey,
                           .id = 1};
        if (!host.post_send(*from, write)) return false;

        auto ext_cq = ext.create_cq(16);
        auto srq = ext.create_srq();
        if (!ext_cq || !srq || !ext.create_key(MANA_HW_EXT_MR_FAST_REGISTER, 4)) return false;
        auto first = ext.create_qp(*ext_cq, *ext_cq);
        auto second = ext.create_qp(*ext_cq, *ext_cq, {.srq = &*srq});
        if (!first || !second ||
            !ext.connect(*second, 999, {host.gid(), host.mac(), first->qpn, 4242}) ||
            !ext.connect(*first, 4242, {host.gid(), host.mac(), second->qpn, 999}))
            return false;
        const gdma::Sge sge{buffer.value(), gdma::Key(mr->lkey), 64};
        srq->post(1, std::span(&sge, 1));
        ExtWr send;
        send.sges = {sge};
        ext.post(*first, send);
    }
    return nic.alive();
}

class MemoryTest : public ::testing::Test {
protected:
    void SetUp() override {
        openmana::base::set_log_level(openmana::base::LogLevel::kOff);
        char name[] = "/tmp/openmana-memory-XXXXXX";
        ASSERT_NE(::mkdtemp(name), nullptr);
        folder_ = name;
        manad::NicOptions options;
        options.socket = folder_ + "/a";
        options.nic.name = "a";
        options.nic.mac = test_mac(1);
        options.nic.memory = memory_;
        auto server = manad::NicServer::create(options, switch_);
        ASSERT_TRUE(server.has_value());
        server_ = std::move(*server);
        ASSERT_TRUE(server_->start());
    }
    void TearDown() override {
        if (server_) server_->stop();
        server_.reset();
        std::filesystem::remove_all(folder_);
    }
    /// What the server's thread says; nothing if it is silent for long.
    template <typename F>
    [[nodiscard]] std::optional<std::invoke_result_t<F>> asked(F f) {
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (std::chrono::steady_clock::now() < end)
            if (auto answer = server_->call("test", f)) return *answer;
        return std::nullopt;
    }
    /// Whether the server has noticed that its client is gone.
    [[nodiscard]] bool client_gone() {
        return eventually([&] {
            const auto status = asked([server = server_.get()] { return server->status(); });
            return status && !status->client;
        });
    }
    /// Of the heap, while the server is idle.
    [[nodiscard]] std::optional<std::size_t> in_use() { return asked(&base::heap_bytes); }

    std::uint64_t memory_ = fabric::NicConfig().memory;
    std::string folder_;
    base::SystemClock clock_;
    fabric::Switch switch_{clock_};
    std::unique_ptr<manad::NicServer> server_;
};

TEST_F(MemoryTest, ClientsThatLeaveTheirObjectsCostNoMemory) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's own allocator does not tell what is in use";
    // Ids are new ones first, so that tables grow up to what the device can have: the first third.
    constexpr int kRounds = 300, kSettled = 100;
    // A queue pair that stays behind in each round has 500 bytes here, beside its block of a pool:
    // three times as much.
    constexpr std::size_t kMost = 32768;
    std::size_t settled = 0;
    std::size_t last = 0;
    for (int round = 1; round <= kRounds; ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        {
            const auto client = RemoteNic::attach(folder_ + "/a");
            ASSERT_NE(client, nullptr);
            ASSERT_TRUE(fill_with_objects(*client));
        }
        ASSERT_TRUE(client_gone());
        const auto bytes = in_use();
        ASSERT_TRUE(bytes) << "the server hangs";
        last = *bytes;
        if (round == kSettled) settled = last;
    }
    EXPECT_LT(last, settled + kMost);
    RecordProperty("bytes_settled", std::to_string(settled));
    RecordProperty("bytes_last", std::to_string(last));
}

class GreedyTest : public MemoryTest {
protected:
    static constexpr std::uint64_t kLimit = 64U << 20;
    GreedyTest() { memory_ = kLimit; }
    [[nodiscard]] const base::MemoryAccount& account() {
        return server_->nic().function().account();
    }
};

/// Queue pairs whose requests nobody answers, so that their send queues grow.
void post_into_the_void(RdmaHost& host, ExtHost& ext, const ExtCq& cq) {
    const ExtQpOptions options{.sq_bytes = 65536, .rq_bytes = 1024};
    const ExtPath patient{.timeout = 20};
    const base::GuestAddr buffer = host.ram().alloc(4096);
    const auto mr = host.hwc().create_mr(host.pd, buffer, 4096, 15);
    for (int i = 0; i < 20; ++i) {
        auto qp = ext.create_qp(cq, cq, options);
        if (!mr || !qp ||
            !ext.connect(*qp, 999, {ipv4_gid(99), test_mac(99), 0x777777, 4242}, patient))
            return;
        ExtWr send;
        send.sges.assign(16, {buffer.value(), gdma::Key(mr->lkey), 64});
        for (int n = 0; n < 200; ++n) ext.post(*qp, send);
    }
}

TEST_F(GreedyTest, AGuestThatTakesAllItCanStaysWithinItsLimit) {
    if (kSanitized) GTEST_SKIP() << "a sanitizer's own allocator does not tell what is in use";
    // Half of what a NIC may have beside what is counted (docs/manad.md).
    constexpr std::uint64_t kBeside = 8U << 20;
    {
        const auto client = RemoteNic::attach(folder_ + "/a");
        ASSERT_NE(client, nullptr);
        RdmaHost host(*client, client->ram(), client->irq(), test_mac(1), ipv4_gid(1));
        host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
        ASSERT_TRUE(host.bring_up());
        ExtHost ext(host);
        HwcDriver& hwc = host.hwc();
        const auto at_first = in_use();
        ASSERT_TRUE(at_first) << "the server hangs";
        const std::uint64_t before = *at_first - account().used();
        auto cq = ext.create_cq(16);
        ASSERT_TRUE(cq);
        post_into_the_void(host, ext, *cq);
        for (int i = 0; i < 400; ++i)
            ASSERT_TRUE(ext.create_qp(*cq, *cq, {.sq_bytes = 1024, .rq_bytes = 1024}));
        for (int i = 0; i < 400; ++i) ASSERT_TRUE(ext.create_cq(16));
        for (int i = 0; i < 300; ++i) ASSERT_TRUE(ext.create_srq(1024));
        for (int i = 0; i < 20000; ++i) ASSERT_TRUE(ext.create_key(MANA_HW_MR_WINDOW_TYPE2)) << i;
        for (int i = 0; i < 10000; ++i)
            ASSERT_TRUE(hwc.call(Request(MANA_HW_ALLOC_DM, 56, 40).put<std::uint64_t>(40, 1)).ok());
        const auto pages = host.ram().alloc_scattered(500);
        while (hwc.create_region(pages, 500 * 4096)) {
        }
        EXPECT_EQ(hwc.last_status, gdma::kHwcNoResources);
        while (hwc.create_pd()) {
        }
        EXPECT_EQ(hwc.last_status, gdma::kHwcNoResources);
        EXPECT_TRUE(client->alive());
        const std::uint64_t used = account().used();
        const auto at_last = in_use();
        ASSERT_TRUE(at_last) << "the server hangs";
        const std::uint64_t taken = *at_last - before;
        RecordProperty("bytes_counted", std::to_string(used));
        RecordProperty("bytes_taken", std::to_string(taken));
        EXPECT_LE(account().peak(), kLimit);
        EXPECT_GT(used, kLimit - 4096);
        EXPECT_LE(taken, kLimit + kBeside);
        EXPECT_GE(taken, kLimit / 2) << "what is counted is there";
    }
    ASSERT_TRUE(client_gone());
    EXPECT_EQ(account().used(), 0U);
}

}  // namespace
}  // namespace openmana::test
