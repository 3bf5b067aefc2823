// SPDX-License-Identifier: Apache-2.0
// Whom a queue pair reaches without packets is asked for when that may have changed, and not for
// each message.
#include "wire_fixture.h"

namespace openmana::test {
namespace {

class PathTest : public ::testing::Test {
protected:
    PathTest() { link.network.generation = 1; }
    /// One WRITE from A to B, which must succeed; how it went.
    const char* write() {
        const std::size_t before = link.a.done.size();
        link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, before, 0, 64));
        EXPECT_TRUE(link.run(before + 1));
        EXPECT_EQ(link.a.done.back().vendor, 0U);
        return link.a.node->rnic.qp_status().at(0).path;
    }

    Connection link{true};
};

TEST_F(PathTest, TheNetworkIsAskedOnceForAllMessages) {
    const std::uint64_t before = link.network.lookups;
    for (int i = 0; i < 10; ++i) EXPECT_STREQ(write(), "local");
    EXPECT_EQ(link.network.lookups, before + 1);
}

TEST_F(PathTest, WithoutAGenerationItIsAskedInEachTurn) {
    link.network.generation = 0;
    const std::uint64_t before = link.network.lookups;
    for (int i = 0; i < 10; ++i) EXPECT_STREQ(write(), "local");
    EXPECT_GE(link.network.lookups, before + 10);
}

TEST_F(PathTest, AnotherGenerationIsAnotherPath) {
    EXPECT_STREQ(write(), "local");
    link.network.local = false;
    EXPECT_STREQ(write(), "local") << "nobody said that something had changed";
    ++link.network.generation;
    EXPECT_STREQ(write(), "wire");
    link.network.local = true;
    ++link.network.generation;
    EXPECT_STREQ(write(), "local");
}

TEST_F(PathTest, AnotherAddressOfTheConnectionIsAskedFor) {
    EXPECT_STREQ(write(), "local");
    const std::uint64_t before = link.network.lookups;
    auto& from = link.a.node->host;
    auto& to = link.b.node->host;
    ASSERT_TRUE(from.to_state(*link.a.qp, MANA_HW_RNIC_QP_SQD));
    ASSERT_TRUE(from.set_path(*link.a.qp, {to.gid(), to.mac(), link.b.qp->qpn(), Connection::kPsnB},
                              0xc001));
    ASSERT_TRUE(from.to_state(*link.a.qp, MANA_HW_RNIC_QP_RTS));
    EXPECT_STREQ(write(), "local");
    EXPECT_EQ(link.network.lookups, before + 1);
}

TEST_F(PathTest, AnAddressThatIsTakenAwayIsNotSentFrom) {
    EXPECT_STREQ(write(), "local");
    auto& host = link.a.node->host;
    ASSERT_TRUE(host.config_address(host.gid(), false));
    link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 1, 0, 64));
    link.idle();
    EXPECT_EQ(link.a.done.size(), 1U);
    EXPECT_GT(link.a.node->rnic.counters().drop_source.value(), 0U);
    ASSERT_TRUE(host.config_address(host.gid(), true));
    EXPECT_TRUE(link.run(2)) << "it came back";
}

/// It was given the address, but another adapter serves it.
TEST_F(PathTest, AnAddressThatWaitsIsNeitherSentFromNorReached) {
    for (Connection::Side* const side : {&link.a, &link.b}) {
        EXPECT_STREQ(write(), "local");
        const std::size_t done = link.a.done.size();
        link.network.others_serve = true;
        side->node->rnic.review_address(side->node->host.gid());
        EXPECT_FALSE(side->node->rnic.owns(side->node->host.gid()));
        link.post(link.wr(MANA_HW_RNIC_WQE_WRITE, 77, 0, 64));
        link.idle();
        EXPECT_EQ(link.a.done.size(), done);
        link.network.others_serve = false;
        side->node->rnic.review_addresses();
        EXPECT_TRUE(link.run(done + 1)) << "it does not any more";
        EXPECT_EQ(link.a.done.back().vendor, 0U);
    }
}

/// A READ of B's memory over the wire, in the middle of whose answers something happens. It takes
/// two turns.
class AnswersTest : public WireCase {
protected:
    static constexpr std::uint32_t kLength = 2 << 20;
    static constexpr std::size_t kMiddle = 100;
    /// Calls `act` for B, on its executor, when so many answers have left.
    void in_the_middle(const std::function<void(Node&)>& act) {
        Connection::Options options;
        options.limits_a.reads_out = 1;
        rnic::RnicConfig config;
        config.window_packets = kLength / 1024;  // so that one request asks for all
        open(options, config);
        link->network.on_send = [this, act](Node& from, const base::Frame&) {
            if (&from == link->b.node && ++answers == kMiddle)
                from.executor.post([&from, act] { act(from); });
        };
        read(0, kLength);
        link->idle();
    }
    std::size_t answers = 0;
};

TEST_F(AnswersTest, OfAConnectionWhoseEndsChangeAreForgotten) {
    constexpr std::uint16_t kPort = 0xc777;
    in_the_middle([&](Node& node) {
        const Peer to_a{link->a.node->host.gid(), link->a.node->host.mac(), link->a.qp->qpn(),
                        Connection::kPsnA};
        EXPECT_TRUE(node.host.set_path(*link->b.qp, to_a, kPort));
    });
    const auto by_the_new_path = [&] {
        return std::ranges::count(sent(), kPort, &roce::Packet::udp_source_port);
    };
    EXPECT_GE(answers, kMiddle);
    EXPECT_EQ(by_the_new_path(), 0) << "they were owed to the old peer";
    ASSERT_TRUE(link->run(1)) << "this one asks again";
    expect_ok(1);
    EXPECT_GT(by_the_new_path(), 0);
}

TEST_F(AnswersTest, AreForgottenWhenTheQueuePairAtTheOtherEndChanges) {
    constexpr std::uint32_t kOther = 0x4321;
    in_the_middle([&](Node& node) {
        node.host.tamper = [](Request& request) {
            request.put<std::uint64_t>(56, MANA_HW_RNIC_ATTR_DEST_QPN)
                .put<std::uint32_t>(80, kOther);
        };
        EXPECT_TRUE(node.host.to_state(*link->b.qp, MANA_HW_RNIC_QP_RTS));
    });
    EXPECT_GE(answers, kMiddle);
    EXPECT_EQ(std::ranges::count(sent(), roce::Qpn(kOther), &roce::Packet::destination_qpn), 0);
}

TEST_F(AnswersTest, EndWhenTheirSourceIsTakenAway) {
    in_the_middle(
        [](Node& node) { EXPECT_TRUE(node.host.config_address(node.host.gid(), false)); });
    EXPECT_GE(answers, kMiddle);
    EXPECT_LE(answers, kLength / 2 / 1024) << "the turn in which it was taken away";
    EXPECT_GT(at_b().drop_source.value(), 0U);
    ASSERT_TRUE(link->b.node->host.config_address(link->b.node->host.gid(), true));
    ASSERT_TRUE(link->run(1)) << "it came back";
    expect_ok(1);
}

TEST_F(PathTest, AResetReleasesWhatWasClaimed) {
    const roce::Gid own = link.a.node->host.gid();
    for (std::uint8_t i = 100; i < 110; ++i)
        ASSERT_TRUE(link.a.node->host.config_address(test_gid(i), true));
    const std::uint64_t before = link.network.generation;
    link.a.node->function.reset();
    EXPECT_EQ(link.network.released, 11U);
    EXPECT_GT(link.network.generation, before);
    EXPECT_FALSE(link.a.node->rnic.owns(own));
}

}  // namespace
}  // namespace openmana::test
