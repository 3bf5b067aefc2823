// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <semaphore>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/unix_socket.h"
#include "support/no_more_fds.h"
#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"

namespace openmana::vfio_user {
namespace {

using test::make_eventfd;
using test::make_memfd;
using test::VfioUserClient;
using testing::Contains;
using testing::ElementsAre;
using testing::SizeIs;

/// A backend that a test on another thread can wait for.
class WaitableBackend final : public FakeBackend {
public:
    void client_gone() override {
        FakeBackend::client_gone();
        gone.release();
    }
    std::counting_semaphore<> gone{0};
};

class ServerTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = testing::TempDir() + "vfio-user-XXXXXX";
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        directory_ = pattern;
        path_ = directory_ + "/nic";
        auto loop = base::EventLoop::create();
        ASSERT_TRUE(loop);
        loop_ = std::move(*loop);
        auto server = Server::create(*loop_, backend_, path_, "nic");
        ASSERT_TRUE(server) << server.error().text;
        server_ = std::move(*server);
        thread_ = std::thread([this] { loop_->run(); });
    }
    void TearDown() override {
        stop();
        std::filesystem::remove_all(directory_);
    }
    void stop() {
        if (!thread_.joinable()) return;
        loop_->stop();
        thread_.join();
        server_.reset();
    }
    std::unique_ptr<VfioUserClient> connect() {
        auto client = VfioUserClient::connect(path_);
        EXPECT_TRUE(client);
        return std::move(*client);
    }
    std::unique_ptr<VfioUserClient> negotiated() {
        auto client = connect();
        EXPECT_TRUE(client->negotiate());
        return client;
    }
    /// The backend's calls, asked for on the loop's thread.
    std::vector<std::string> calls() {
        std::promise<std::vector<std::string>> result;
        loop_->post([&] { result.set_value(backend_.take()); });
        return result.get_future().get();
    }

    std::string directory_;
    std::string path_;
    WaitableBackend backend_;
    std::unique_ptr<base::EventLoop> loop_;
    std::unique_ptr<Server> server_;
    std::thread thread_;
};

TEST_F(ServerTest, ServesAWholeConversation) {
    auto client = connect();
    const auto capabilities = client->negotiate();
    ASSERT_TRUE(capabilities);
    EXPECT_EQ(capabilities->max_msg_fds, 16U);
    EXPECT_TRUE(capabilities->write_multiple);
    EXPECT_EQ(client->device_info()->region_count, 9U);
    EXPECT_EQ(client->region_info(7)->size, 4096U);
    EXPECT_EQ(client->irq_info(2)->count, 65U);
    EXPECT_TRUE(client->dma_map(0x1000, 0x1000, make_memfd(0x1000).get()));
    EXPECT_TRUE(client->set_eventfd(0, make_eventfd()));
    EXPECT_TRUE(client->post_value<std::uint64_t>(0, 0x10, 0x1122334455667788));
    EXPECT_EQ(*client->read_value<std::uint64_t>(0, 0x10), 0x1122334455667788U);
    EXPECT_TRUE(client->dma_unmap(0x1000, 0x1000));
    EXPECT_TRUE(client->reset());
    EXPECT_THAT(calls(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=true",
                                     "assign 2 0 fd=true", "write 0 0x10 8 8877665544332211",
                                     "read 0 0x10 8", "unmap 0x1000 0x1000", "reset"));
}

TEST_F(ServerTest, AClientForWhomNoDescriptorIsLeftWaitsWithoutSpinning) {
    if (!::openmana::test::kCanBeWithoutFds) GTEST_SKIP() << "a sanitizer needs descriptors";
    const base::UniqueFd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto connected = [this] {
        std::promise<bool> result;
        loop_->post([&] { result.set_value(server_->connected()); });
        return result.get_future().get();
    };
    {
        const ::openmana::test::NoMoreFds none;
        ASSERT_TRUE(::openmana::test::connect_to(client, path_));
        const auto before = ::openmana::test::cpu_time();
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        EXPECT_LT(::openmana::test::cpu_time() - before, std::chrono::milliseconds(150));
        EXPECT_FALSE(connected());
    }
    for (int i = 0; i < 100 && !connected(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(connected());
}

TEST_F(ServerTest, FdOfASendStaysWithItsMessageAmongOthers) {
    auto client = negotiated();
    const auto memory = make_memfd(0x1000);
    const int fd = memory.get();
    // Three sends that the server may find together: only the middle one has the fd.
    const DmaMapRequest first{32, 3, 0, 0x1000, 0x1000};
    const DmaMapRequest second{32, 3, 0, 0x2000, 0x1000};
    const DmaMapRequest third{32, 3, 0, 0x3000, 0x1000};
    ASSERT_TRUE(client->send(Command::kDmaMap, std::as_bytes(std::span(&first, 1))));
    ASSERT_TRUE(
        client->send(Command::kDmaMap, std::as_bytes(std::span(&second, 1)), 0, std::span(&fd, 1)));
    ASSERT_TRUE(client->send(Command::kDmaMap, std::as_bytes(std::span(&third, 1))));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->receive());
    EXPECT_THAT(calls(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=false",
                                     "map 0x2000 0x1000 offset=0x0 rw fd=true",
                                     "map 0x3000 0x1000 offset=0x0 rw fd=false"));
}

TEST_F(ServerTest, ClientThatDiesAnywhereIsReportedOnceAndTheNextIsServed) {
    std::vector<std::byte> stream;
    const VersionHead version{};
    put_message(stream, 1, Command::kVersion, 0, std::as_bytes(std::span(&version, 1)));
    const DmaMapRequest map{32, 3, 0, 0x1000, 0x1000};
    put_message(stream, 2, Command::kDmaMap, 0, std::as_bytes(std::span(&map, 1)));
    const auto memory = make_memfd(0x1000);
    const int fd = memory.get();
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        auto client = connect();
        if (cut > 0) {
            ASSERT_TRUE(client->send_raw(std::span(stream).first(cut), std::span(&fd, 1)));
        }
        client->close();
        backend_.gone.acquire();
    }
    EXPECT_TRUE(negotiated()->device_info());
    backend_.gone.acquire();
    EXPECT_FALSE(backend_.gone.try_acquire());
}

TEST_F(ServerTest, MalformedHeaderEndsTheConnection) {
    auto client = negotiated();
    const Header wrong{
        .id = 1, .command = Command::kDeviceReset, .size = 3, .flags = 0, .error = 0};
    ASSERT_TRUE(client->send_raw(std::as_bytes(std::span(&wrong, 1))));
    EXPECT_TRUE(client->closed_by_server());
    backend_.gone.acquire();
    EXPECT_EQ(server_->counters().malformed.value(), 1U);
    EXPECT_TRUE(negotiated()->device_info());
}

TEST_F(ServerTest, MoreFdsThanAnnouncedEndTheConnection) {
    auto client = negotiated();
    const auto memory = make_memfd(0x1000);
    const std::vector<int> fds(17, memory.get());
    const DmaMapRequest map{32, 3, 0, 0x1000, 0x1000};
    ASSERT_TRUE(client->send(Command::kDmaMap, std::as_bytes(std::span(&map, 1)), 0, fds));
    EXPECT_TRUE(client->closed_by_server());
    backend_.gone.acquire();
    EXPECT_THAT(calls(), ElementsAre("gone"));
}

TEST_F(ServerTest, SecondClientWaitsUntilTheFirstHasGone) {
    auto first = negotiated();
    auto second = connect();
    std::promise<bool> answered;
    std::thread waiting([&] { answered.set_value(second->negotiate().has_value()); });
    EXPECT_TRUE(first->device_info());
    EXPECT_EQ(server_->counters().clients.value(), 1U);
    first->close();
    EXPECT_TRUE(answered.get_future().get());
    waiting.join();
    EXPECT_EQ(server_->counters().clients.value(), 2U);
    EXPECT_THAT(calls(), ElementsAre("gone"));
}

TEST_F(ServerTest, ClientThatTakesNoRepliesIsServedWhenItDoes) {
    auto client = negotiated();
    const RegionAccess access{0, 0, 65536};
    constexpr int kReads = 200;  // 13 MB of replies; no socket buffer holds that
    for (int i = 0; i < kReads; ++i) {
        ASSERT_TRUE(client->send(Command::kRegionRead, std::as_bytes(std::span(&access, 1))));
    }
    for (int i = 0; i < kReads; ++i) {
        const auto reply = client->receive();
        ASSERT_TRUE(reply);
        ASSERT_EQ(reply->header.id, i + 2);
        ASSERT_THAT(reply->payload, SizeIs(16 + 65536));
    }
    EXPECT_TRUE(client->device_info());
}

TEST_F(ServerTest, ClientThatDiesWithRepliesUntakenIsDropped) {
    auto client = negotiated();
    const RegionAccess access{0, 0, 65536};
    for (int i = 0; i < 200; ++i) {
        ASSERT_TRUE(client->send(Command::kRegionRead, std::as_bytes(std::span(&access, 1))));
    }
    client->close();
    backend_.gone.acquire();
    EXPECT_TRUE(negotiated()->device_info());
}

TEST_F(ServerTest, EndOfTheServerEndsTheClient) {
    auto client = negotiated();
    stop();
    EXPECT_THAT(backend_.take(), Contains("gone"));
    EXPECT_TRUE(client->closed_by_server());
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ServerTest, PathInUseIsRefused) {
    const auto second = Server::create(*loop_, backend_, path_, "other");
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, base::ErrorCode::kBusy);
}

}  // namespace
}  // namespace openmana::vfio_user
