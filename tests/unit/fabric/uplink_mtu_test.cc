// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink_mtu.h"

#include <gtest/gtest.h>

#include "base/datagram_socket.h"
#include "fabric/tunnel_end.h"
#include "support/forged_icmp.h"

namespace openmana::fabric {
namespace {

/// Anybody can have the kernel believe that a path is narrow; NICs would have a small MTU for as
/// long as they live.
TEST(UplinkMtuTest, AMessageThatSomebodyMakesUpMakesNoNarrowPath) {
    const bool may = openmana::test::in_net_namespace([] {
        UplinkConfig config;
        config.local = *SocketAddress::parse("127.0.0.1:4001");
        config.remote = *SocketAddress::parse("127.0.0.2:4002");
        const auto before = find_mtu(config);
        ASSERT_TRUE(before);
        EXPECT_EQ(before->path, 65536U);
        // About datagrams that somebody here sends there, whoever it is.
        base::DatagramSocket::Options options;
        options.remote = config.remote;
        const auto victim = base::DatagramSocket::open(config.local, options);
        ASSERT_TRUE(victim);
        openmana::test::Forger forger;
        forger.needs_fragments(config.local, config.remote, 600);
        EXPECT_EQ(victim->path_mtu(), 600U) << "the kernel believes it";
        const auto after = find_mtu(config);
        ASSERT_TRUE(after);
        EXPECT_EQ(after->path, before->path);
        EXPECT_EQ(after->inside, before->inside);
    });
    if (!may) GTEST_SKIP() << "needs a network namespace: root";
}

TEST(UplinkMtuTest, WhereThereIsNoWayThereIsNoMtu) {
    const bool may = openmana::test::in_net_namespace([] {
        UplinkConfig config;
        config.local = *SocketAddress::parse("127.0.0.1:4001");
        config.remote = *SocketAddress::parse("192.0.2.1:4002");
        EXPECT_FALSE(find_mtu(config));
        config.local = *SocketAddress::parse("[::1]:4001");
        config.remote = *SocketAddress::parse("[2001:db8::1]:4002");
        EXPECT_FALSE(find_mtu(config));
    });
    if (!may) GTEST_SKIP() << "needs a network namespace: root";
}

TEST(UplinkMtuTest, IsOfIpv6Too) {
    UplinkConfig config;
    config.local = *SocketAddress::parse("[::1]:4001");
    config.remote = *SocketAddress::parse("[::1]:4002");
    const auto mtu = find_mtu(config);
    if (!mtu) GTEST_SKIP() << "no IPv6";
    EXPECT_EQ(mtu->inside + 40 + 8 + 18, mtu->path);
}

}  // namespace
}  // namespace openmana::fabric
