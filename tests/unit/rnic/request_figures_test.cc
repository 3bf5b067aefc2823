// SPDX-License-Identifier: Apache-2.0
// What is told of requests: how large they are and how long they take, and of queue pairs: how many
// are in each state.
#include "rnic/request_figures.h"

#include <map>
#include <string>

#include "ext_fixture.h"
#include "rnic_fixture.h"

namespace openmana::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Readings = std::map<std::string, base::HistogramReading>;

/// Of one NIC and one of the two histograms, by kind, those that have anything.
Readings figures_of(Node& node, const rnic::RequestFigures::Info& wanted) {
    Readings readings;
    node.rnic.request_figures().visit([&](const rnic::RequestFigures::Info& info, const char* kind,
                                          const base::HistogramReading& reading) {
        if (std::string(info.name) == wanted.name && reading.count() > 0) readings[kind] = reading;
    });
    return readings;
}
Readings bytes_of(Node& node) {
    return figures_of(node, rnic::RequestFigures::kBytes);
}
Readings times_of(Node& node) {
    return figures_of(node, rnic::RequestFigures::kSeconds);
}

using States = std::map<std::string, std::uint64_t>;
States states_of(Node& node) {
    States states;
    node.rnic.qp_states().visit([&](const char* state, std::uint64_t count) {
        if (count > 0) states[state] = count;
    });
    return states;
}

class RequestFiguresTest : public ::testing::TestWithParam<bool> {
protected:
    void open(const Connection::Options& options = Connection::Options()) {
        link = std::make_unique<Connection>(GetParam(), options, rnic::RnicConfig());
    }
    /// A NIC whose next doorbell is the first: nothing was posted before.
    Node& a() { return *link->a.node; }
    std::unique_ptr<Connection> link;
};

INSTANTIATE_TEST_SUITE_P(Paths, RequestFiguresTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });
/// What takes time: on the local path virtual time stands still.
class RequestFiguresWireTest : public RequestFiguresTest {};

INSTANTIATE_TEST_SUITE_P(Paths, RequestFiguresWireTest, ::testing::Values(false),
                         [](const auto&) { return "Wire"; });

TEST_P(RequestFiguresTest, BytesAreCountedByKindAtWhoPosts) {
    open();
    link->b.recv(1, 0, 4096);
    link->post(link->wr(MANA_HW_RNIC_WQE_SEND, 1, 0, 17));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 16));
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 3, 0, 5000));
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 4, 0, 300000));
    ASSERT_TRUE(link->run(4, 1));
    const Readings bytes = bytes_of(a());
    ASSERT_EQ(bytes.size(), 3U);
    EXPECT_EQ(bytes.at("send").sum, 17U);
    EXPECT_EQ(bytes.at("send").counts[1], 1U);
    EXPECT_EQ(bytes.at("write").sum, 5016U);
    EXPECT_EQ(bytes.at("write").counts[0], 1U);
    EXPECT_EQ(bytes.at("write").count(), 2U);
    EXPECT_EQ(bytes.at("read").sum, 300000U);
    EXPECT_TRUE(bytes_of(*link->b.node).empty());
}

TEST_P(RequestFiguresTest, TheFirstDoorbellIsTimed) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(times_of(a()).at("write").count(), 1U);
    EXPECT_TRUE(times_of(*link->b.node).empty());
}

TEST_P(RequestFiguresTest, OfTheOthersAboutOneIn16) {
    open();
    for (std::size_t i = 1; i <= 1600; ++i) {
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, i, 0, 8));
        ASSERT_TRUE(link->run(i));
    }
    EXPECT_EQ(bytes_of(a()).at("write").count(), 1600U);
    EXPECT_GT(times_of(a()).at("write").count(), 70U);
    EXPECT_LT(times_of(a()).at("write").count(), 140U);
}

TEST_P(RequestFiguresTest, TheTimeIsThatOfTheLastRequestOfTheDoorbell) {
    open();
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100), false);
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 2, 0, 100), false);
    link->post(link->wr(MANA_HW_RNIC_WQE_READ, 3, 0, 100));
    ASSERT_TRUE(link->run(3));
    const Readings times = times_of(a());
    ASSERT_EQ(times.size(), 1U);
    EXPECT_EQ(times.at("read").count(), 1U);
}

TEST_P(RequestFiguresWireTest, TheTimeIsThatOfTheWayThereAndBack) {
    open();
    link->network.fate = [](const roce::Packet&) { return Fate{.delay = milliseconds(3)}; };
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100));
    ASSERT_TRUE(link->run(1));
    const std::uint64_t sum = times_of(a()).at("write").sum;
    EXPECT_GE(sum, 6'000'000U);
    EXPECT_LT(sum, 6'100'000U);
}

TEST_P(RequestFiguresWireTest, WhatFailsHasNoTimeAndTheNextOneItsOwn) {
    Connection::Options options;
    options.retries = 0;
    open(options);
    link->network.fate = [](const roce::Packet&) { return Fate{.lose = true}; };
    link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100));
    ASSERT_TRUE(link->run(1));
    EXPECT_STREQ(link->a.state(), "ERR");
    EXPECT_TRUE(times_of(a()).empty());
    EXPECT_TRUE(bytes_of(a()).empty());

    link->network.fate = nullptr;
    for (Connection::Side* const side : {&link->a, &link->b})
        ASSERT_TRUE(side->node->host.reset(*side->qp));
    link->a.done.clear();
    link->connect(options);
    for (std::size_t i = 1; i <= 32; ++i) {
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, i, 0, 100));
        ASSERT_TRUE(link->run(i));
    }
    const base::HistogramReading times = times_of(a()).at("write");
    EXPECT_LT(times.sum, times.count() * 100'000);
}

TEST_P(RequestFiguresTest, QueuePairsAreCountedByState) {
    Connection::Options options;
    options.connect = false;
    open(options);
    EXPECT_EQ(states_of(a()), (States{{"RESET", 1}}));
    link->connect(options);
    EXPECT_EQ(states_of(a()), (States{{"RTS", 1}}));
    // A key that the peer does not have: both ends fail.
    SendWr wrong = link->wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 100);
    wrong.rkey ^= 0x100;
    link->post(wrong);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(states_of(a()), (States{{"ERR", 1}}));
    EXPECT_EQ(states_of(*link->b.node), (States{{"ERR", 1}}));
    a().rnic.reset();
    EXPECT_EQ(states_of(a()), States());
}

class ExtRequestFiguresTest : public ExtPathTest {};

INSTANTIATE_TEST_SUITE_P(Paths, ExtRequestFiguresTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtRequestFiguresTest, AreThoseOfTheExtensionToo) {
    open();
    link->a.post(link->wr(MANA_HW_EXT_WQE_WRITE, 7, 3000, 64));
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(bytes_of(*link->a.node).at("write").sum, 3000U);
    EXPECT_EQ(times_of(*link->a.node).at("write").count(), 1U);
}

TEST_P(ExtRequestFiguresTest, AnAtomicHasATimeAndNoSize) {
    open();
    ExtWr add = link->wr(MANA_HW_EXT_WQE_FETCH_ADD, 0x90000, 8, 0x80000);
    add.swap_add = 1;
    link->a.post(add);
    ASSERT_TRUE(link->run(1));
    EXPECT_EQ(link->sent.back().status, 0);
    EXPECT_EQ(times_of(*link->a.node).at("atomic").count(), 1U);
    EXPECT_TRUE(bytes_of(*link->a.node).empty());
}

}  // namespace
}  // namespace openmana::test
