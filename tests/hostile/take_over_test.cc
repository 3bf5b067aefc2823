// SPDX-License-Identifier: Apache-2.0
// A manad process that another one takes the place of, under clients in traffic: none of them
// notices. And what goes wrong on the way, after which the first one goes on as it was.
#include "take_over_fixture.h"

namespace openmana::test {
namespace {

TEST_F(TakeOverTest, ClientsInTrafficNoticeNothing) {
    start();
    attach();
    for (int i = 0; i < 50; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    std::size_t files = 0;
    for (int i = 0; i < 10; ++i) {
        ASSERT_NO_FATAL_FAILURE(take_over());
        for (int j = 0; j < 20; ++j) ASSERT_NO_FATAL_FAILURE(exchange());
        if (i == 2) files = open_files();
    }
    EXPECT_LE(open_files(), files) << "each one keeps more files open";
    EXPECT_TRUE(a_->nic->alive() && b_->nic->alive());
    // Commands work, with the numbers that the objects had.
    EXPECT_TRUE(a_->host->destroy_rc(*a_->qp));
    EXPECT_TRUE(b_->host->destroy_rc(*b_->qp));
}

TEST_F(TakeOverTest, CountersGoOn) {
    start();
    attach();
    for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(exchange());
    const auto sends = [&] {
        return ask({{"command", "stats"}})["nics"][1]["counters"]["rnic.rx.sends"]
            .get<std::uint64_t>();
    };
    const std::uint64_t before = sends();
    ASSERT_NO_FATAL_FAILURE(take_over());
    EXPECT_GE(sends(), before);
}

TEST_F(TakeOverTest, ClientsThatCameLaterAndNobodysNicsGoAlong) {
    start();
    attach();
    const json added = ask({{"command", "nic"},
                            {"action", "add"},
                            {"options", "id=c,mac=02:00:00:00:00:03,socket=" + folder_ + "/c"}});
    ASSERT_EQ(added["ok"], true) << added;
    ASSERT_NO_FATAL_FAILURE(take_over());
    const json status = ask({{"command", "status"}});
    ASSERT_EQ(status["nics"].size(), 3) << status;
    EXPECT_EQ(status["nics"][2]["nic"], "c");
    const Client late(folder_ + "/c", 3);
    EXPECT_TRUE(late.nic->alive());
}

TEST_F(TakeOverTest, PoliciesAreWhatTheyWereLast) {
    start();
    attach();
    const json before = limit_a();
    ASSERT_TRUE(before.is_object());
    ASSERT_NO_FATAL_FAILURE(take_over());
    EXPECT_EQ(policies(), before);
    EXPECT_NE(before.dump().find("limit=1G"), std::string::npos) << before;
}

TEST_F(TakeOverTest, WithOtherOptionsOfANicTheFirstOneGoesOn) {
    start();
    attach();
    auto all = words();
    all[2] += ",mtu=1500";
    all.insert(all.end(), {"--take-over", folder_ + "/control"});
    ASSERT_NO_FATAL_FAILURE(fail(all));
}

TEST_F(TakeOverTest, WithoutOneOfTheNicsTheFirstOneGoesOn) {
    start();
    attach();
    auto all = words();
    all.erase(all.begin() + 3, all.begin() + 5);
    all.insert(all.end(), {"--take-over", folder_ + "/control"});
    ASSERT_NO_FATAL_FAILURE(fail(all));
}

TEST_F(TakeOverTest, WhenASocketIsNotToBeHadTheFirstOneGoesOn) {
    start();
    attach();
    auto all = words();
    all.insert(all.end(), {"--take-over", folder_ + "/control", "--nic",
                           "id=c,socket=" + folder_ + "/none/c"});
    ASSERT_NO_FATAL_FAILURE(fail(all));
}

}  // namespace
}  // namespace openmana::test
