// SPDX-License-Identifier: Apache-2.0
#include "manad/xdp_keeper.h"

#include <gtest/gtest.h>

#include <string>

#include "support/network_namespace.h"

namespace openmana::manad {
namespace {

using openmana::test::NetworkNamespace;

class XdpKeeperTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (!space.made()) GTEST_SKIP() << "network namespaces are made by root alone";
        if (!make_wire()) GTEST_SKIP() << "no veth devices here";
        if (!fabric::open_xdp({"near"})) GTEST_SKIP() << "no AF_XDP here";
    }
    static bool make_wire() {
        return NetworkNamespace::ip("link add near type veth peer name far") &&
               NetworkNamespace::ip("link set near up") && NetworkNamespace::ip("link set far up");
    }
    NetworkNamespace space;
};

TEST_F(XdpKeeperTest, OpensWhatItWasNamed) {
    auto keeper = XdpKeeper::start({"near"}, std::nullopt);
    ASSERT_TRUE(keeper.has_value()) << keeper.error().text;
    for (int turn = 0; turn < 2; ++turn) {
        auto handles = (*keeper)->open({"near"});
        ASSERT_TRUE(handles.has_value()) << handles.error().text;
        EXPECT_EQ(handles->queues.size(), 1U);
        EXPECT_TRUE(handles->memory && handles->table && handles->link && handles->groups);
        // It holds none of that itself.
        *handles = {};
    }
    // Another one of the name, too.
    ASSERT_TRUE(NetworkNamespace::ip("link del near"));
    const auto gone = (*keeper)->open({"near"});
    ASSERT_FALSE(gone.has_value());
    EXPECT_EQ(gone.error().code, base::ErrorCode::kNotFound);
    EXPECT_EQ(std::string(gone.error().text), "there is no such interface");
    ASSERT_TRUE(make_wire());
    EXPECT_TRUE((*keeper)->open({"near"}).has_value());
}

TEST_F(XdpKeeperTest, OpensNothingElse) {
    auto keeper = XdpKeeper::start({"near"}, std::nullopt);
    ASSERT_TRUE(keeper.has_value());
    for (const char* name : {"far", "", "a name that is much too long"})
        EXPECT_FALSE((*keeper)->open({name}).has_value()) << name;
    EXPECT_FALSE((*keeper)->open({"near", fabric::XdpConfig::Mode::kAuto, 1000}).has_value());
    EXPECT_TRUE((*keeper)->open({"near"}).has_value());
}

}  // namespace
}  // namespace openmana::manad
