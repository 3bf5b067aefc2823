// SPDX-License-Identifier: Apache-2.0
// A server whose system calls fail: the client that has to do with it goes, and the next is served.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/unix_socket.h"
#include "support/faulty_calls.h"
#include "support/temp_dir.h"
#include "unit/vfio_user/fake_backend.h"
#include "vfio_user/message.h"
#include "vfio_user/server.h"
#include "vfio_user/server_ledger.h"

namespace openmana::vfio_user {
namespace {

using test::FaultyCalls;

class ServerRefusalsTest : public testing::Test {
protected:
    void SetUp() override {
        server = Server::create(*loop, backend, directory_ + "/nic", "nic").value();
        base::set_log_level(base::LogLevel::kOff);
    }
    void TearDown() override {
        base::set_log_level(base::LogLevel::kInfo);
        server.reset();
    }
    /// One look of the loop at its descriptors.
    void turn() {
        loop->post([this] { loop->stop(); });
        loop->run();
    }
    base::UniqueFd connect() { return base::connect_unix(directory_ + "/nic").value(); }
    /// A client that has been taken up.
    base::UniqueFd connected() {
        base::UniqueFd client = connect();
        turn();
        EXPECT_TRUE(server->connected());
        return client;
    }
    /// VERSION, which is answered.
    static void ask(const base::UniqueFd& client) {
        std::vector<std::byte> message;
        const std::string body("\0\0\1\0{}\0", 7);
        put_message(message, 1, Command::kVersion, 0, std::as_bytes(std::span(body)));
        EXPECT_EQ(::send(client.get(), message.data(), message.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(message.size()));
    }
    /// Bytes that are there, 0 at the end of the conversation, -1 if there are none.
    static ssize_t answer(const base::UniqueFd& client) {
        std::array<char, 4096> buffer;
        return ::recv(client.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    }
    void expect_end(const base::UniqueFd& client) {
        EXPECT_FALSE(server->connected());
        EXPECT_LE(answer(client), 0);
        const base::UniqueFd next = connected();
        ask(next);
        turn();
        EXPECT_GT(answer(next), 0) << "the next one is served";
    }

    FakeBackend backend;
    std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
    std::unique_ptr<Server> server;

private:
    const test::TempDir made_{"vfio-user"};
    const std::string& directory_ = made_.path();
};

TEST_F(ServerRefusalsTest, AClientThatCannotBeWatchedIsLetGo) {
    const base::UniqueFd client = connect();
    {
        const FaultyCalls faults("epoll_ctl", ENOSPC);
        turn();
        EXPECT_EQ(faults.failed(), 1U);
    }
    expect_end(client);
}

TEST_F(ServerRefusalsTest, AnInterruptedReceiveIsTriedAgain) {
    const base::UniqueFd client = connected();
    ask(client);
    const FaultyCalls faults("recvmmsg", EINTR);
    turn();
    EXPECT_TRUE(server->connected());
    turn();
    EXPECT_GT(answer(client), 0);
}

TEST_F(ServerRefusalsTest, AReceiveThatFailsEndsTheConversation) {
    for (const int error : {ECONNRESET, EIO}) {
        const base::UniqueFd client = connected();
        ask(client);
        {
            const FaultyCalls faults("recvmmsg", error);
            turn();
        }
        expect_end(client);
        turn();  // which sees that the next one has gone, too
    }
}

TEST_F(ServerRefusalsTest, AnInterruptedSendIsTriedAgain) {
    const base::UniqueFd client = connected();
    ask(client);
    const FaultyCalls faults("sendmmsg", EINTR);
    turn();
    EXPECT_EQ(faults.failed(), 1U);
    EXPECT_GT(answer(client), 0);
}

TEST_F(ServerRefusalsTest, ASendThatFailsEndsTheConversation) {
    for (const int error : {EPIPE, EIO}) {
        const base::UniqueFd client = connected();
        ask(client);
        {
            const FaultyCalls faults("sendmmsg", error);
            turn();
        }
        expect_end(client);
        turn();
    }
}

TEST_F(ServerRefusalsTest, AClientWhoseRepliesCannotBeWaitedForIsLetGo) {
    const base::UniqueFd client = connected();
    ask(client);
    {
        FaultyCalls faults("sendmmsg", EAGAIN);
        faults.fail("epoll_ctl", ENOMEM);
        turn();
        EXPECT_EQ(faults.failed(), 2U);
    }
    expect_end(client);
}

TEST_F(ServerRefusalsTest, AClientThatCannotBeReadAgainIsLetGo) {
    const base::UniqueFd client = connected();
    ask(client);
    {
        FaultyCalls faults("sendmmsg", EAGAIN);
        // First it waits for the client to take the reply, then for its next message.
        faults.fail("epoll_ctl", ENOMEM, {.after = 1});
        turn();
        EXPECT_TRUE(server->connected());
        turn();
        EXPECT_EQ(faults.failed(), 2U);
    }
    EXPECT_FALSE(server->connected());
}

TEST_F(ServerRefusalsTest, ASocketThatCannotBeWatchedBehindACrashIsLeftToTheNextProcess) {
    const test::TempDir folder("left");
    const std::string path = folder.path() + "/nic";
    const auto listener = base::UnixListener::create(path);
    ASSERT_TRUE(listener);
    const auto ledger = std::make_unique<ServerLedger>();
    ledger->listener.hold(::fcntl(listener->fd(), F_DUPFD_CLOEXEC, 0));
    {
        const FaultyCalls faults("epoll_ctl", ENOSPC);
        EXPECT_FALSE(Server::recover(*loop, backend, *ledger, path, "nic"));
    }
    const auto next = Server::recover(*loop, backend, *ledger, path, "nic");
    ASSERT_TRUE(next);
    (*next)->take_up();
    (*next)->resume();
    const base::UniqueFd client = base::connect_unix(path).value();
    turn();
    EXPECT_TRUE((*next)->connected());
}

}  // namespace
}  // namespace openmana::vfio_user
