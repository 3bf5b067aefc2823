// SPDX-License-Identifier: Apache-2.0
#include "manad/connections.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "base/fd.h"
#include "base/unix_socket.h"
#include "manad/ledger.h"
#include "support/temp_dir.h"

namespace openmana::manad {
namespace {

using ::testing::UnorderedElementsAre;

/// Both ends are of this process, as all that a test opens.
struct Pair {
    explicit Pair(int type) {
        int ends[2] = {-1, -1};
        EXPECT_EQ(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        near = base::UniqueFd(ends[0]);
        far = base::UniqueFd(ends[1]);
    }
    /// What a read gives: 0 at the end of the connection, -1 while it lasts.
    [[nodiscard]] ssize_t end() const {
        char byte = 0;
        return ::recv(far.get(), &byte, 1, 0);
    }
    base::UniqueFd near, far;
};

class ConnectionsTest : public testing::Test {
protected:
    /// What the program was started with, and what the test names besides.
    std::vector<int> others = open_descriptors();
};

TEST_F(ConnectionsTest, AreStreamSocketsThatNobodyElseHas) {
    const test::TempDir folder("connections");
    const auto listener = base::UnixListener::create(folder.path() + "/s");
    ASSERT_TRUE(listener);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const base::UniqueFd reads(ends[0]), writes(ends[1]);
    const Pair own(SOCK_STREAM), datagrams(SOCK_DGRAM), shared(SOCK_STREAM);
    others.insert(others.end(), {shared.near.get(), shared.far.get()});
    EXPECT_THAT(connections_but(others), UnorderedElementsAre(own.near.get(), own.far.get()));
}

TEST_F(ConnectionsTest, EndForWhoIsAtTheOtherEnd) {
    const Pair own(SOCK_STREAM), shared(SOCK_STREAM);
    others.insert(others.end(), {own.far.get(), shared.near.get(), shared.far.get()});
    ASSERT_EQ(own.end(), -1);
    end_connections(others);
    EXPECT_EQ(own.end(), 0);
    EXPECT_EQ(shared.end(), -1);
}

/// The next process goes on with them.
TEST_F(ConnectionsTest, ALedgerNamesThoseOfItsClients) {
    const auto ledger = Ledger::create(3).value();
    std::vector<NicLedgerClaim> nics;
    for (const char* name : {"a", "b", "c"}) {
        NicOptions nic;
        nic.text = name;
        nics.push_back(ledger->claim(nic));
    }
    nics[0]->server.client.hold(7);
    nics[1]->server.client.hold(8);
    nics[1]->state = NicLedger::kLeaving;
    EXPECT_THAT(ledger->clients(), UnorderedElementsAre(7));
}

}  // namespace
}  // namespace openmana::manad
