// SPDX-License-Identifier: Apache-2.0
#include "base/socket_address.h"

#include <gtest/gtest.h>

namespace openmana::base {
namespace {

TEST(SocketAddress, ReadsBothIpVersionsAndSaysThemTheSameWay) {
    EXPECT_EQ(SocketAddress::parse("10.0.0.1:4000")->family(), AF_INET);
    EXPECT_EQ(SocketAddress::parse("[fd00::1]:4000")->family(), AF_INET6);
    for (const char* text : {"10.0.0.1:4000", "[fd00::1]:65535"})
        EXPECT_EQ(SocketAddress::parse(text)->text(), text);
    for (const char* text :
         {"10.0.0.1", "10.0.0.1:0", "10.0.0.1:70000", "host:1", "fd00::1:4000", ":1", "[]:1"})
        EXPECT_FALSE(SocketAddress::parse(text).has_value()) << text;
}

TEST(SocketAddress, IsAnotherOneWithAnotherAddressPortOrFamily) {
    const auto at = [](const char* text) { return *SocketAddress::parse(text); };
    EXPECT_EQ(at("10.0.0.1:4000"), at("10.0.0.1:4000"));
    EXPECT_EQ(at("[::1]:4000"), at("[0:0::1]:4000"));
    EXPECT_FALSE(at("10.0.0.1:4000") == at("10.0.0.2:4000"));
    EXPECT_FALSE(at("10.0.0.1:4000") == at("10.0.0.1:4001"));
    EXPECT_FALSE(at("[::1]:4000") == at("[::2]:4000"));
    EXPECT_FALSE(at("[::1]:4000") == at("[::1]:4001"));
    EXPECT_FALSE(at("[::1]:4000") == at("127.0.0.1:4000"));
}

}  // namespace
}  // namespace openmana::base
