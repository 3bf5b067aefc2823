// SPDX-License-Identifier: Apache-2.0
#include "manad/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "base/unix_socket.h"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using base::UniqueFd;
using std::chrono::steady_clock;

/// What a process finds that goes on behind a crash: a ledger with two NICs, and descriptors that
/// its predecessor had open. What this process has open besides is named to the ledger.
class LedgerTest : public testing::Test {
protected:
    void SetUp() override {
        auto made = Ledger::create(2);
        ASSERT_TRUE(made);
        ledger_ = std::move(*made);
        for (const char* name : {"a", "b"}) {
            NicOptions nic;
            nic.nic.name = name;
            nic.socket = folder_.path() + "/" + name;
            nic.text = "socket=" + nic.socket;
            options_.nics.push_back(nic);
            claims_.push_back(ledger_->claim(nic));
            ASSERT_TRUE(claims_.back());
            auto listener = base::UnixListener::create(nic.socket);
            ASSERT_TRUE(listener);
            listeners_.push_back(std::move(*listener));
        }
        kept_ = open_descriptors();
    }

    [[nodiscard]] vfio_user::ServerLedger& server(std::size_t nic) { return claims_[nic]->server; }
    /// The end of a connection to a NIC's socket that the process had.
    [[nodiscard]] int connection_to(std::size_t nic) {
        auto client = base::connect_unix(options_.nics[nic].socket);
        EXPECT_TRUE(client);
        kept_.push_back(client->get());
        clients_.push_back(std::move(*client));
        const int accepted = listeners_[nic].accept().release();
        EXPECT_GE(accepted, 0);
        return accepted;
    }
    std::size_t recover() { return ledger_->recover(options_, kept_); }
    /// Another process closes it, in its own time.
    static bool closes(int number) {
        return test::eventually([number] { return ::fcntl(number, F_GETFD) < 0; });
    }

    const test::TempDir folder_{"ledger"};
    Options options_;
    std::unique_ptr<Ledger> ledger_;
    std::vector<NicLedgerClaim> claims_;
    std::vector<base::UnixListener> listeners_;
    std::vector<UniqueFd> clients_;
    std::vector<int> kept_;
};

TEST_F(LedgerTest, AClientThatWasJustAcceptedIsItsNics) {
    const int client = connection_to(1);
    server(1).accepting = 1;
    EXPECT_EQ(recover(), 0U);
    EXPECT_EQ(server(1).client.number(), client);
    EXPECT_EQ(server(0).client.number(), -1);
    EXPECT_EQ(server(1).accepting, 0U);
    ::close(client);
}

/// Whoever has bound a socket to that path, wherever that is, can send an end of it as a
/// descriptor.
TEST_F(LedgerTest, ASocketThatSomebodySentIsNobodysClient) {
    const int sent = connection_to(1);
    EXPECT_EQ(recover(), 1U);
    EXPECT_EQ(server(1).client.number(), -1) << "no client was being accepted";
    EXPECT_TRUE(closes(sent));
}

TEST_F(LedgerTest, OfTwoThatMayBeTheClientNoneIs) {
    const int one = connection_to(1);
    const int other = connection_to(1);
    server(1).accepting = 1;
    EXPECT_EQ(recover(), 2U);
    EXPECT_EQ(server(1).client.number(), -1);
    EXPECT_TRUE(closes(one));
    EXPECT_TRUE(closes(other));
}

/// A TCP connection to somebody who takes nothing, with data that is to be taken before close()
/// returns.
TEST_F(LedgerTest, ADescriptorThatDoesNotCloseKeepsNobodyWaiting) {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(::bind(listener.get(), name, bytes), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), name, &bytes), 0);
    UniqueFd stream(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(stream.get(), name, bytes), 0);
    const UniqueFd far(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(far);
    const std::vector<std::byte> data(1U << 20);
    while (::send(stream.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
    }
    constexpr int kSeconds = 20;
    const linger wait{.l_onoff = 1, .l_linger = kSeconds};
    ASSERT_EQ(::setsockopt(stream.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait), 0);
    kept_.insert(kept_.end(), {listener.get(), far.get()});
    const int behind = connection_to(0);

    const auto begin = steady_clock::now();
    (void)stream.release();
    EXPECT_EQ(recover(), 2U);
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(kSeconds / 2));
    EXPECT_TRUE(closes(behind));
    EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(kSeconds / 2))
        << "what closes at once is closed first";
}

}  // namespace
}  // namespace openmana::manad
