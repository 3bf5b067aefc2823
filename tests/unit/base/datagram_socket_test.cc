// SPDX-License-Identifier: Apache-2.0
#include "base/datagram_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <string>
#include <utility>

#include "support/faulty_calls.h"
#include "support/forged_icmp.h"

namespace openmana::base {
namespace {

using ::openmana::test::FaultyCalls;
using ::testing::ElementsAre;

SocketAddress address_of(const DatagramSocket& socket) {
    SocketAddress address;
    address.length = sizeof address.storage;
    EXPECT_EQ(::getsockname(socket.fd(), address.get(), &address.length), 0);
    return address;
}

SocketAddress any_port(bool ipv4) {
    SocketAddress address = *SocketAddress::parse(ipv4 ? "127.0.0.1:1" : "[::1]:1");
    // In the same place in both.
    reinterpret_cast<sockaddr_in*>(address.get())->sin_port = 0;
    return address;
}

DatagramSocket open(const DatagramSocket::Options& options, bool ipv4 = true) {
    auto socket = DatagramSocket::open(any_port(ipv4), options);
    EXPECT_TRUE(socket) << (socket ? "" : socket.error().text);
    return std::move(*socket);
}

/// Datagrams to one end, with their memory.
class Mail {
public:
    explicit Mail(const SocketAddress* to) : to_(to) {}
    Mail& add(std::size_t bytes, int fill, std::uint8_t traffic_class = 0, std::size_t head = 0) {
        const auto& memory =
            memory_.emplace_back(bytes, static_cast<std::byte>(fill));  // a deque does not move it
        const std::span<const std::byte> all = memory;
        datagrams_.push_back({all.first(head), all.subspan(head), to_, traffic_class});
        return *this;
    }
    [[nodiscard]] std::span<const Datagram> all() const { return datagrams_; }

private:
    const SocketAddress* to_;
    std::deque<std::vector<std::byte>> memory_;
    std::vector<Datagram> datagrams_;
};

/// What came, as it is compared: size, first byte, traffic class.
struct Came {
    std::size_t bytes;
    int fill;
    int traffic_class;
    friend bool operator==(const Came&, const Came&) = default;
};
void PrintTo(const Came& came, std::ostream* out) {
    *out << came.bytes << " bytes of " << came.fill << ", traffic class " << came.traffic_class;
}

/// Of whole datagrams: each is one byte all over.
std::vector<Came> receive_all(DatagramSocket& socket, std::size_t wanted) {
    std::vector<Came> all;
    while (all.size() < wanted) {
        pollfd ready{socket.fd(), POLLIN, 0};
        if (::poll(&ready, 1, 2000) <= 0) break;
        bool more = true;
        while (more)
            for (const ReceivedDatagram& got : socket.receive(more)) {
                const int first = got.bytes.empty() ? -1 : std::to_integer<int>(got.bytes[0]);
                EXPECT_TRUE(std::ranges::all_of(got.bytes, [&](std::byte byte) {
                    return std::to_integer<int>(byte) == first;
                }));
                all.push_back({got.bytes.size(), first, got.traffic_class});
            }
    }
    return all;
}

/// With what the kernel cuts and puts together, and without.
class DatagramSocketTest : public ::testing::TestWithParam<std::pair<bool, bool>> {
protected:
    DatagramSocketTest() {
        options.offload = GetParam().first;
        options.traffic_class = true;
    }
    bool ipv4 = GetParam().second;
    DatagramSocket::Options options;
};

TEST_P(DatagramSocketTest, CarriesDatagramsOfAllSizesInTheirOrder) {
    DatagramSocket to = open(options, ipv4);
    DatagramSocket from = open(options, ipv4);
    const SocketAddress address = address_of(to);
    Mail mail(&address);
    std::vector<Came> expected;
    for (int i = 0; i < 200; ++i) {
        // Runs of one size, each ended by a shorter one, a longer one, or a head in front.
        const std::size_t bytes = i % 50 < 30 ? 1000 : i % 2 == 0 ? 40 : 1400;
        mail.add(bytes, i % 256, 0, i % 3 == 0 ? 8 : 0);
        expected.push_back({bytes, i % 256, 0});
    }
    const auto sent = from.send(mail.all());
    EXPECT_EQ(sent.datagrams, 200U);
    EXPECT_EQ(sent.dropped + sent.too_large, 0U);
    EXPECT_EQ(receive_all(to, 200), expected);
}

TEST_P(DatagramSocketTest, TellsTheTrafficClassAndTheSender) {
    DatagramSocket to = open(options, ipv4);
    DatagramSocket from = open(options, ipv4);
    const SocketAddress address = address_of(to);
    Mail mail(&address);
    mail.add(100, 1, 0).add(100, 2, 0xb8).add(100, 3, 0xb8).add(100, 4, 3);
    EXPECT_EQ(from.send(mail.all()).datagrams, 4U);
    EXPECT_THAT(receive_all(to, 4), ElementsAre(Came{100, 1, 0}, Came{100, 2, 0xb8},
                                                Came{100, 3, 0xb8}, Came{100, 4, 3}));
    (void)from.send(mail.all().first(1));
    pollfd ready{to.fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 2000), 1);
    bool more = false;
    const auto got = to.receive(more);
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(*got[0].from, address_of(from)) << got[0].from->text();
}

TEST_P(DatagramSocketTest, TheLargestAndTheEmptyDatagramGoThrough) {
    options.fragments = true;
    DatagramSocket to = open(options, ipv4);
    DatagramSocket from = open(options, ipv4);
    const SocketAddress address = address_of(to);
    Mail mail(&address);
    mail.add(DatagramSocket::kMaxDatagram, 1).add(0, 0).add(DatagramSocket::kMaxDatagram, 2);
    EXPECT_EQ(from.send(mail.all()).datagrams, 3U);
    const std::size_t most = DatagramSocket::kMaxDatagram;
    EXPECT_THAT(receive_all(to, 3),
                ElementsAre(Came{most, 1, 0}, Came{0, -1, 0}, Came{most, 2, 0}));
}

INSTANTIATE_TEST_SUITE_P(Kernel, DatagramSocketTest,
                         ::testing::Values(std::pair{true, true}, std::pair{false, true},
                                           std::pair{true, false}, std::pair{false, false}),
                         [](const auto& info) {
                             return std::string(info.param.first ? "Offloads" : "OneByOne") +
                                    (info.param.second ? "4" : "6");
                         });

/// Two sockets, and mail from one to the other.
class DatagramSocketErrors : public ::testing::Test {
protected:
    DatagramSocket to = open({});
    DatagramSocket from = open({});
    const SocketAddress address = address_of(to);
    Mail mail{&address};
};

TEST_F(DatagramSocketErrors, WhatTheKernelDoesNotCutGoesOneByOneAndIsNotTriedAgainAtOnce) {
    for (int i = 0; i < 10; ++i) mail.add(500, i);
    FaultyCalls faults("sendmmsg", EINVAL);
    EXPECT_EQ(from.send(mail.all()).datagrams, 10U);
    EXPECT_EQ(receive_all(to, 10).size(), 10U);
    EXPECT_EQ(from.send(mail.all()).datagrams, 10U) << "each alone";
    EXPECT_EQ(receive_all(to, 10).size(), 10U);
    EXPECT_EQ(faults.failed(), 1U);
}

TEST_F(DatagramSocketErrors, WhatIsTooLargeForThePathIsToldApart) {
    mail.add(100, 1).add(60000, 2).add(200, 3);
    FaultyCalls faults("sendmmsg", EMSGSIZE, {.after = 0, .times = 1});
    auto sent = from.send(mail.all().subspan(1, 1));
    EXPECT_EQ(sent.too_large, 1U);
    EXPECT_EQ(sent.largest, 60000U);
    EXPECT_EQ(sent.dropped, 0U);
    sent = from.send(mail.all());
    EXPECT_EQ(sent.datagrams, 3U);
}

TEST_F(DatagramSocketErrors, AnErrorOfAnEarlierDatagramLosesNothing) {
    mail.add(100, 1).add(50, 2).add(70, 3);
    for (const int error : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EINTR}) {
        const FaultyCalls faults("sendmmsg", error);
        EXPECT_EQ(from.send(mail.all()).datagrams, 3U);
        EXPECT_EQ(receive_all(to, 3).size(), 3U);
    }
    FaultyCalls faults("recvmmsg", ECONNREFUSED);
    (void)from.send(mail.all());
    bool more = false;
    EXPECT_TRUE(to.receive(more).empty());
    EXPECT_TRUE(more) << "what came lies behind it";
    EXPECT_EQ(receive_all(to, 3).size(), 3U);
}

TEST_F(DatagramSocketErrors, ASocketThatTakesNoMoreDropsTheRestAndSaysSo) {
    for (std::size_t i = 0; i < 200; ++i) mail.add(100 + i, 1);
    const FaultyCalls faults("sendmmsg", EAGAIN, {.after = 1});
    const auto sent = from.send(mail.all());
    EXPECT_GT(sent.datagrams, 0U);
    EXPECT_EQ(sent.datagrams + sent.dropped, 200U);
    EXPECT_EQ(sent.error, EAGAIN);
    EXPECT_EQ(receive_all(to, sent.datagrams).size(), sent.datagrams);
}

TEST_F(DatagramSocketErrors, OneThatCannotGoKeepsNoOtherBack) {
    mail.add(100, 1).add(200, 2).add(300, 3);
    const FaultyCalls faults("sendmmsg", EPERM);
    const auto sent = from.send(mail.all());
    EXPECT_EQ(sent.datagrams, 2U);
    EXPECT_EQ(sent.dropped, 1U);
    EXPECT_EQ(sent.error, EPERM);
    EXPECT_THAT(receive_all(to, 2), ElementsAre(Came{200, 2, 0}, Came{300, 3, 0}));
}

/// Of several ends one may not be there: what the network says of it is no reason to send to the
/// others one by one.
TEST_F(DatagramSocketErrors, AnErrorOfAnEarlierDatagramLeavesSegmentsWhole) {
    for (int i = 0; i < 10; ++i) mail.add(500, i);
    {
        const FaultyCalls faults("sendmmsg", EHOSTUNREACH);
        EXPECT_EQ(from.send(mail.all()).datagrams, 10U);
    }
    bool more = false;
    EXPECT_EQ(to.receive(more).size(), 10U);
    const FaultyCalls none("sendmsg", EIO);  // which each alone would meet
    EXPECT_EQ(from.send(mail.all()).datagrams, 10U);
    EXPECT_EQ(none.failed(), 0U) << "one call, of one message";
}

/// A refusal of one end is none of the others'.
TEST_F(DatagramSocketErrors, WhatIsNotCutForOneEndIsCutForOthers) {
    DatagramSocket other = open({});
    const SocketAddress other_address = address_of(other);
    Mail others(&other_address);
    for (int i = 0; i < 10; ++i) {
        mail.add(500, i);
        others.add(500, i);
    }
    {
        const FaultyCalls faults("sendmmsg", EINVAL);
        EXPECT_EQ(from.send(mail.all()).datagrams, 10U);
    }
    EXPECT_EQ(from.send(others.all()).datagrams, 10U);
    // It takes them as they were sent.
    std::vector<std::byte> whole(65536);
    EXPECT_EQ(::recv(other.fd(), whole.data(), whole.size(), 0), 5000);
}

TEST_F(DatagramSocketErrors, WhoeverSaysMuchIsNotHeardAnyMoreAndNothingIsLost) {
    DatagramSocket::Options options;
    options.receives = false;
    options.errors = true;
    DatagramSocket from = open(options);
    mail.add(100, 1).add(50, 2);
    EXPECT_TRUE(from.hears());
    FaultyCalls faults("sendmmsg", ECONNREFUSED);
    faults.fail("sendmsg", EHOSTUNREACH, {.times = 3});
    EXPECT_EQ(from.send(mail.all()).datagrams, 2U);
    EXPECT_FALSE(from.hears());
    from.hear(true);
    EXPECT_TRUE(from.hears());
    EXPECT_FALSE(from.read_error());
    // What is too large for the interface is no such thing, and its message stays.
    Mail large(&address);
    large.add(DatagramSocket::kMaxDatagram + 1, 1);
    EXPECT_EQ(from.send(large.all()).too_large, 1U);
    EXPECT_TRUE(from.hears());
    EXPECT_EQ(receive_all(to, 2).size(), 2U);
}

/// A message of ICMP, which anybody can make up, about datagrams of a connected socket.
TEST(DatagramSocketForged, ThePathIsNotNarrowerForAMessage) {
    const bool may = openmana::test::in_net_namespace([] {
        DatagramSocket::Options options;
        DatagramSocket to = open(options);
        options.remote = address_of(to);
        options.fragments = true;
        DatagramSocket from = open(options);
        openmana::test::Forger forger;
        ASSERT_TRUE(forger.may());
        Mail mail(nullptr);
        for (int i = 0; i < 10; ++i) mail.add(2000, i);
        for (int i = 0; i < 20; ++i) {
            forger.needs_fragments(address_of(from), *options.remote, 600);
            const auto sent = from.send(mail.all());
            EXPECT_EQ(sent.datagrams, 10U);
            EXPECT_EQ(sent.too_large, 0U);
            EXPECT_EQ(receive_all(to, 10).size(), 10U);
        }
        EXPECT_EQ(openmana::test::ip_figure("FragCreates"), 0);
    });
    if (!may) GTEST_SKIP() << "needs a network namespace: root";
}

TEST_F(DatagramSocketErrors, OneThatTakesNothingHasNothingInItsQueue) {
    DatagramSocket::Options options;
    options.receives = false;
    DatagramSocket to = open(options);
    DatagramSocket from = open({});
    const SocketAddress address = address_of(to);
    Mail mail(&address);
    mail.add(100, 1);
    EXPECT_EQ(from.send(mail.all()).datagrams, 1U);
    pollfd ready{to.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

TEST_F(DatagramSocketErrors, SaysWhatItCannotHave) {
    const SocketAddress local = any_port(true);
    for (const char* const call : {"socket", "bind", "setsockopt"}) {
        const FaultyCalls faults(call, EPERM,
                                 {.after = std::string(call) == "setsockopt" ? 2U : 0U});
        const auto socket = DatagramSocket::open(local, {});
        ASSERT_FALSE(socket) << call;
        EXPECT_EQ(socket.error().detail, static_cast<std::uint64_t>(EPERM)) << call;
    }
    DatagramSocket::Options options;
    options.remote = *SocketAddress::parse("[::1]:5");
    const auto socket = DatagramSocket::open(local, options);
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(DatagramSocketErrors, KnowsTheMtuOfThePathToItsOtherEndAlone) {
    DatagramSocket to = open({});
    EXPECT_EQ(to.path_mtu(), 0U);
    DatagramSocket::Options options;
    options.remote = address_of(to);
    EXPECT_GE(open(options).path_mtu(), 1280U);
}

}  // namespace
}  // namespace openmana::base
