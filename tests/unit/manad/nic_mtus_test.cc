// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_mtus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace openmana::manad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NicMtusTest : public ::testing::Test {
protected:
    void nic(const char* network, std::uint16_t mtu = 0) {
        NicOptions one;
        one.network = network;
        one.mtu_given = mtu != 0;
        if (mtu != 0) one.nic.max_mtu = mtu;
        options.nics.push_back(one);
    }
    /// With a path of that MTU and no encryption.
    void uplink(const char* network, std::size_t path) {
        fabric::UplinkConfig one;
        one.name = "u" + std::to_string(options.uplinks.size());
        one.network = network;
        options.uplinks.push_back(one);
        paths[one.name] = path;
    }
    [[nodiscard]] std::vector<std::uint16_t> mtus() {
        std::vector<std::uint16_t> found;
        for (const NicOptions& one : with_mtus_of_paths(
                 options, lines,
                 [&](const fabric::UplinkConfig& config) -> std::optional<fabric::UplinkMtu> {
                     const std::size_t path = paths.at(config.name);
                     if (path == 0) return std::nullopt;
                     return fabric::UplinkMtu{path, path - 46};
                 }))
            found.push_back(one.nic.max_mtu);
        return found;
    }
    Options options;
    std::map<std::string, std::size_t> paths;
    std::vector<std::string> lines;
};

TEST_F(NicMtusTest, FollowTheSmallestPathOfTheirNetwork) {
    nic("red");
    nic("blue");
    nic("green");
    uplink("red", 9000);
    uplink("red", 4000);
    uplink("blue", 65536);
    EXPECT_THAT(mtus(), ElementsAre(3954, 9000, 9000));
    EXPECT_THAT(lines, IsEmpty());
}

TEST_F(NicMtusTest, AreWhatWasSaidAndThenALineSaysThatFramesAreCut) {
    nic("red", 9000);
    nic("red");
    uplink("red", 9000);
    EXPECT_THAT(mtus(), ElementsAre(9000, 8954));
    EXPECT_THAT(
        lines, ElementsAre(HasSubstr("frames go in fragments: uplink=u0 path_mtu=9000 nic_mtu=9000 "
                                     "fits=8954")));
}

TEST_F(NicMtusTest, AreNeverLessThanDriversTake) {
    nic("red");
    uplink("red", 1500);
    EXPECT_THAT(mtus(), ElementsAre(1500));
    EXPECT_THAT(lines, ElementsAre(HasSubstr("path_mtu=1500 nic_mtu=1500 fits=1454")));
}

TEST_F(NicMtusTest, DoNotDependOnPathsThatNobodyKnows) {
    nic("red");
    uplink("red", 0);
    EXPECT_THAT(mtus(), ElementsAre(9000));
    EXPECT_THAT(lines, IsEmpty());
}

TEST(UplinkMtu, IsThatOfThePathLessWhatIsAroundAFrame) {
    const auto find = [](const char* local, const char* remote, const char* keys = "") {
        fabric::UplinkConfig config;
        config.local = *base::SocketAddress::parse(local);
        config.remote = *base::SocketAddress::parse(remote);
        config.encryption.key_file = keys;
        return fabric::find_mtu(config);
    };
    // Ports that are no other test's: each is free again at once.
    const auto ipv4 = find("127.0.0.1:47001", "127.0.0.1:47002");
    ASSERT_TRUE(ipv4);
    EXPECT_EQ(ipv4->inside, ipv4->path - 46);
    const auto ipv6 = find("[::1]:47001", "[::1]:47002");
    ASSERT_TRUE(ipv6);
    EXPECT_EQ(ipv6->inside, ipv6->path - 66);
    const auto sealed = find("127.0.0.1:47001", "127.0.0.1:47002", "k");
    ASSERT_TRUE(sealed);
    EXPECT_LT(sealed->inside, ipv4->inside - 30);
    EXPECT_FALSE(find("127.0.0.1:47001", "[::1]:47002"));
    fabric::UplinkConfig stream;
    stream.kind = fabric::UplinkConfig::Kind::kStream;
    EXPECT_FALSE(fabric::find_mtu(stream));
}

}  // namespace
}  // namespace openmana::manad
