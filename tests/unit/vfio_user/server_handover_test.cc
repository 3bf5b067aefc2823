// SPDX-License-Identifier: Apache-2.0
// A server that another one goes on for, as in another process of this host: the client notices
// nothing, nor does who waits for its turn.
#include <sys/socket.h>

#include <filesystem>
#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/state_damage.h"
#include "support/temp_dir.h"
#include "support/vfio_user_client.h"
#include "unit/vfio_user/fake_backend.h"
#include "vfio_user/server.h"

namespace openmana::vfio_user {
namespace {

using base::StateReader;
using base::StateWriter;
using test::make_memfd;
using test::VfioUserClient;
using test::Written;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;

/// What a process has: a thread with a loop, a backend, a server.
class Process {
public:
    Process() : loop_(base::EventLoop::create().value()), thread_([this] { loop_->run(); }) {}
    ~Process() {
        loop_->stop();
        thread_.join();
        server_.reset();
    }
    /// On the thread.
    template <typename F>
    auto call(F f) {
        std::packaged_task<std::invoke_result_t<F>()> task(std::move(f));
        auto result = task.get_future();
        loop_->post([&] { task(); });
        return result.get();
    }
    void serve(const std::string& path) {
        call([&] { server_ = Server::create(*loop_, backend_, path, "nic").value(); });
    }
    void pause() {
        call([&] { server_->pause(); });
    }
    void resume() {
        call([&] { server_->resume(); });
    }
    [[nodiscard]] Written state() {
        return call(
            [&] { return test::written({}, [&](StateWriter& out) { server_->save(out); }); });
    }
    /// The reason of a refusal, or "".
    std::string take_over(const Written& state, const std::string& path) {
        return call([&]() -> std::string {
            const auto read = test::read_state(state, {}, [&](StateReader& in) {
                auto server = Server::take_over(*loop_, backend_, in, path, "nic");
                if (server) server_ = std::move(*server);
                if (!server) in.refuse(server.error());
            });
            return read ? "" : read.error().text;
        });
    }
    /// As it is, in a pause or not.
    void end() {
        call([&] { server_.reset(); });
    }
    void drop(const char* reason) {
        call([&] { server_->drop_client(reason); });
    }
    std::vector<std::string> calls() {
        return call([&] { return backend_.take(); });
    }
    bool connected() {
        return call([&] { return server_->connected(); });
    }
    std::uint64_t clients() {
        return call([&] { return server_->counters().clients.value(); });
    }

private:
    FakeBackend backend_;
    std::unique_ptr<base::EventLoop> loop_;
    std::unique_ptr<Server> server_;
    std::thread thread_;
};

class ServerHandoverTest : public testing::Test {
protected:
    void SetUp() override { old_.serve(path_); }
    std::unique_ptr<VfioUserClient> negotiated() {
        auto client = VfioUserClient::connect(path_).value();
        EXPECT_TRUE(client->negotiate());
        return client;
    }
    void hand_over() {
        old_.pause();
        ASSERT_EQ(new_.take_over(old_.state(), path_), "");
        old_.end();
        new_.resume();
    }
    [[nodiscard]] bool socket_is_there() const { return std::filesystem::is_socket(path_); }

    test::TempDir directory_{"handover"};
    const std::string path_ = directory_.path() + "/nic";
    Process old_;
    Process new_;
};

TEST_F(ServerHandoverTest, TheClientNoticesNothing) {
    auto client = negotiated();
    ASSERT_TRUE(client->write_value<std::uint32_t>(0, 0x10, 1));
    hand_over();
    EXPECT_TRUE(client->write_value<std::uint32_t>(0, 0x20, 2));
    EXPECT_TRUE(client->dma_map(0x1000, 0x1000, make_memfd(0x1000).get()));
    EXPECT_THAT(old_.calls(), ElementsAre("write 0 0x10 4 01000000")) << "nobody has gone";
    EXPECT_THAT(new_.calls(),
                ElementsAre("write 0 0x20 4 02000000", "map 0x1000 0x1000 offset=0x0 rw fd=true"));
    EXPECT_TRUE(new_.connected());
}

TEST_F(ServerHandoverTest, WhatIsSentInThePauseIsServedAfterItAndOnce) {
    auto client = negotiated();
    old_.pause();
    ASSERT_TRUE(client->post_value<std::uint32_t>(0, 0x10, 1));
    const RegionAccess read{0x10, 0, 4};
    ASSERT_TRUE(client->send(Command::kRegionRead, std::as_bytes(std::span(&read, 1))));
    EXPECT_THAT(old_.calls(), IsEmpty());
    ASSERT_EQ(new_.take_over(old_.state(), path_), "");
    EXPECT_THAT(new_.calls(), IsEmpty());
    old_.end();
    new_.resume();
    EXPECT_TRUE(client->receive());
    EXPECT_THAT(new_.calls(), ElementsAre("write 0 0x10 4 01000000", "read 0 0x10 4"));
}

TEST_F(ServerHandoverTest, IfTheNewOneFailsTheOldOneGoesOn) {
    auto client = negotiated();
    old_.pause();
    ASSERT_TRUE(client->post_value<std::uint32_t>(0, 0x10, 1));
    ASSERT_EQ(new_.take_over(old_.state(), path_), "");
    new_.end();
    EXPECT_TRUE(socket_is_there());
    old_.resume();
    EXPECT_EQ(*client->read_value<std::uint32_t>(0, 0x10), 1U);
    EXPECT_THAT(new_.calls(), IsEmpty()) << "nobody has gone there";
    client->close();
    EXPECT_TRUE(negotiated()->device_info());
}

TEST_F(ServerHandoverTest, WhoWaitsForItsTurnIsServedByTheNewOne) {
    auto client = negotiated();
    auto second = VfioUserClient::connect(path_).value();
    hand_over();
    EXPECT_TRUE(socket_is_there());
    client->close();
    EXPECT_TRUE(second->negotiate());
    EXPECT_THAT(new_.calls(), ElementsAre("gone"));
    second->close();
    EXPECT_TRUE(negotiated()->device_info());
    new_.end();
    EXPECT_FALSE(socket_is_there()) << "the path is the new one's now";
}

TEST_F(ServerHandoverTest, AServerWithoutAClientGoesOver) {
    old_.pause();
    auto early = VfioUserClient::connect(path_).value();
    ASSERT_EQ(new_.take_over(old_.state(), path_), "");
    EXPECT_FALSE(new_.connected());
    old_.end();
    new_.resume();
    EXPECT_TRUE(early->negotiate());
    EXPECT_EQ(new_.clients(), 1U);
}

TEST_F(ServerHandoverTest, NobodyIsAcceptedInAPause) {
    old_.pause();
    auto early = VfioUserClient::connect(path_).value();
    EXPECT_FALSE(old_.connected());
    old_.resume();
    EXPECT_TRUE(early->negotiate());
}

TEST_F(ServerHandoverTest, AClientThatGoesInThePauseIsMissedByWhoResumes) {
    auto client = negotiated();
    old_.pause();
    client->close();
    EXPECT_THAT(old_.calls(), IsEmpty());
    ASSERT_EQ(new_.take_over(old_.state(), path_), "");
    old_.end();
    new_.resume();
    const auto next = negotiated();
    EXPECT_THAT(new_.calls(), ElementsAre("gone"));
    EXPECT_THAT(old_.calls(), IsEmpty());
}

TEST_F(ServerHandoverTest, AClientThatIsDroppedInAPauseGoesAfterIt) {
    auto client = negotiated();
    old_.pause();
    old_.drop("guest memory went away");
    EXPECT_THAT(old_.calls(), IsEmpty());
    old_.resume();
    EXPECT_TRUE(client->closed_by_server());
    EXPECT_THAT(old_.calls(), ElementsAre("gone"));
}

TEST_F(ServerHandoverTest, RepliesThatTheClientDoesNotTakeAreSentByTheNewOne) {
    auto client = negotiated();
    // More than the socket and the server have room for.
    constexpr unsigned kReads = 16;
    const RegionAccess read{0, 0, 1U << 20};
    for (unsigned i = 0; i < kReads; ++i)
        ASSERT_TRUE(client->send(Command::kRegionRead, std::as_bytes(std::span(&read, 1))));
    hand_over();
    for (unsigned i = 0; i < kReads; ++i) {
        const auto reply = client->receive();
        ASSERT_TRUE(reply) << i;
        EXPECT_EQ(reply->payload.size(), sizeof read + read.count) << i;
    }
    EXPECT_EQ(old_.calls().size() + new_.calls().size(), kReads) << "each was done once";
    EXPECT_TRUE(client->write_value<std::uint32_t>(0, 0x20, 2));
}

TEST_F(ServerHandoverTest, AMessageThatHasBegunEndsInTheNewOneWithItsDescriptor) {
    auto client = negotiated();
    std::vector<std::byte> bytes;
    const DmaMapRequest map{32, 3, 0, 0x1000, 0x1000};
    put_message(bytes, 9, Command::kDmaMap, 0, std::as_bytes(std::span(&map, 1)));
    const auto memory = make_memfd(0x1000);
    const int fd = memory.get();
    ASSERT_TRUE(client->send_raw(std::span(bytes).first(20), std::span(&fd, 1)));
    EXPECT_THAT(old_.calls(), IsEmpty());
    hand_over();
    ASSERT_TRUE(client->send_raw(std::span(bytes).subspan(20)));
    ASSERT_TRUE(client->receive());
    EXPECT_THAT(new_.calls(), ElementsAre("map 0x1000 0x1000 offset=0x0 rw fd=true"));
}

TEST_F(ServerHandoverTest, TwentyTimesInARow) {
    auto client = negotiated();
    std::uint32_t value = 0;
    std::unique_ptr<Process> last;
    old_.pause();
    Written state = old_.state();
    Process* from = &old_;
    for (int i = 0; i < 20; ++i) {
        auto next = std::make_unique<Process>();
        ASSERT_TRUE(client->post_value<std::uint32_t>(0, 0x10, ++value));
        ASSERT_EQ(next->take_over(state, path_), "") << i;
        from->end();
        next->resume();
        EXPECT_EQ(*client->read_value<std::uint32_t>(0, 0x10), value);
        next->pause();
        state = next->state();
        last = std::move(next);
        from = last.get();
    }
    last->resume();
    EXPECT_TRUE(client->device_info());
}

TEST_F(ServerHandoverTest, WhatIsNoSocketIsRefused) {
    auto client = negotiated();
    old_.pause();
    const Written good = old_.state();
    const auto memory = make_memfd(0x1000);
    Written no_listener = good;
    no_listener.descriptors[0] = memory.get();
    EXPECT_EQ(new_.take_over(no_listener, path_), "not a listening socket");
    Written no_client = good;
    no_client.descriptors[1] = memory.get();
    EXPECT_EQ(new_.take_over(no_client, path_), "not a client's socket");
    Written swapped = good;
    std::swap(swapped.descriptors[0], swapped.descriptors[1]);
    EXPECT_EQ(new_.take_over(swapped, path_), "not a listening socket");
    EXPECT_EQ(new_.take_over(good, path_ + "2"), "the socket listens at another path");
    Written none = good;
    none.descriptors.clear();
    EXPECT_EQ(new_.take_over(none, path_), "a descriptor is missing");
    EXPECT_TRUE(socket_is_there());
    EXPECT_THAT(new_.calls(), Not(Contains("gone")));
    old_.resume();
    EXPECT_TRUE(client->device_info());
}

TEST_F(ServerHandoverTest, DamageIsRefusedOrLeavesTheOldOneAsItWas) {
    auto client = negotiated();
    old_.pause();
    const Written good = old_.state();
    test::for_each_damage(good.bytes, [&](const std::vector<std::byte>& bytes, const auto&) {
        if (new_.take_over({bytes, good.descriptors}, path_).empty()) new_.end();
    });
    EXPECT_THAT(new_.calls(), IsEmpty());
    EXPECT_TRUE(socket_is_there());
    old_.resume();
    EXPECT_TRUE(client->device_info());
}

}  // namespace
}  // namespace openmana::vfio_user
