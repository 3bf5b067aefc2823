// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/hold_meter.h"
#include "roce/aeth.h"
#include "unit/fabric/frames.h"
#include "unit/fabric/full_disk.h"

namespace openmana::fabric {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;
using test::FrameMaker;
using test::gid;

constexpr auto kTx = Direction::kTransmit;
constexpr auto kRx = Direction::kReceive;

class Lines final : public FlowSink {
public:
    void line(std::string_view text) override { all.push_back(json::parse(text)); }
    std::vector<json> all;
};

roce::Packet packet(roce::Opcode opcode, std::uint32_t qpn, std::uint32_t psn) {
    roce::Packet result;
    result.opcode = opcode;
    result.destination_qpn = roce::Qpn(qpn);
    result.psn = roce::Psn(psn);
    return result;
}
roce::Packet answer(std::uint32_t qpn, std::uint32_t psn, std::uint8_t syndrome = 0x1f) {
    roce::Packet result = packet(roce::Opcode::kAcknowledge, qpn, psn);
    result.aeth.syndrome = syndrome;
    return result;
}

class FlowLogTest : public ::testing::Test {
protected:
    void pass(Direction direction, const base::Frame& frame, bool denied = false) {
        table.frame(direction, read_headers(frame), frame, denied);
    }
    void send(const roce::Packet& packet, std::size_t bytes = 0) {
        pass(kTx, out.roce(packet, bytes));
    }
    void get(const roce::Packet& packet, std::size_t bytes = 0) {
        pass(kRx, in.roce(packet, bytes));
    }
    std::vector<json> ends() const {
        std::vector<json> result;
        for (const json& line : lines.all)
            if (line["event"] == "end") result.push_back(line);
        return result;
    }
    json only_end() {
        table.end_all("test");
        const auto found = ends();
        EXPECT_EQ(found.size(), 1u);
        return found.empty() ? json::object() : found.front();
    }

    SimWorld world;
    SimExecutor executor{world};
    FlowCounters counters;
    Lines lines;
    FrameMaker out;
    FrameMaker in = out.reversed();
    FlowLog table{executor, "a", 60s, base::WallTime(1699999999s), lines, counters};
};

/// What differs where a multiplication carries nothing on, and then takes that back: one of many
/// ways to make keys that a hash without a key of its own cannot tell apart.
TEST(FlowKeyHash, NobodyCanMakeKeysThatShareAHash) {
    FlowKey one;
    one.remote_address = gid("fd00::1");
    FlowKey other = one;
    other.remote_address[7] ^= 0x80;
    other.remote_address[15] ^= 0x80;
    other.remote_address[12] ^= 0x04;
    EXPECT_NE(FlowKeyHash()(one), FlowKeyHash()(other));
    EXPECT_EQ(FlowKeyHash()(one), FlowKeyHash()(FlowKey(one)));
}

TEST_F(FlowLogTest, FollowsATcpConnectionFromStartToEnd) {
    const base::Frame syn = out.tcp(40000, 22, 0x02);
    const base::Frame data = in.tcp(22, 40000, 0x18, 100);
    pass(kTx, syn);
    ASSERT_EQ(lines.all.size(), 1u);
    EXPECT_EQ(lines.all[0]["event"], "start");
    EXPECT_EQ(lines.all[0]["nic"], "a");
    EXPECT_EQ(lines.all[0]["protocol"], "tcp");
    EXPECT_EQ(lines.all[0]["opened_by"], "guest");
    EXPECT_EQ(lines.all[0]["local"], "10.0.0.1");
    EXPECT_EQ(lines.all[0]["local_port"], 40000);
    EXPECT_EQ(lines.all[0]["remote"], "10.0.0.2");
    EXPECT_EQ(lines.all[0]["remote_port"], 22);
    EXPECT_EQ(lines.all[0]["start"], "2023-11-14T22:13:20.000000Z");
    world.advance(1500ms);
    pass(kRx, data);
    pass(kTx, out.tcp(40000, 22, 0x11));
    pass(kRx, in.tcp(22, 40000, 0x11));
    pass(kTx, out.tcp(40000, 22, 0x10));
    EXPECT_EQ(table.size(), 0u);
    EXPECT_TRUE(ends().empty()) << "the last acknowledgements still belong to it";
    world.advance(10s);
    ASSERT_EQ(ends().size(), 1u);
    const json end = ends()[0];
    EXPECT_EQ(end["reason"], "closed");
    EXPECT_EQ(end["end"], "2023-11-14T22:13:21.500000Z");
    EXPECT_EQ(end["tx_frames"], 3);
    EXPECT_EQ(end["tx_bytes"], 3 * syn.size());
    EXPECT_EQ(end["rx_frames"], 2);
    EXPECT_EQ(end["rx_bytes"], data.size() + syn.size());
    EXPECT_EQ(end["rx_payload"], 100);
    EXPECT_EQ(end["errors"], 0);
}

TEST_F(FlowLogTest, ATcpResetEndsWithAnError) {
    pass(kTx, out.tcp(40000, 22, 0x02));
    pass(kRx, in.tcp(22, 40000, 0x14));
    world.advance(10s);
    ASSERT_EQ(ends().size(), 1u);
    EXPECT_EQ(ends()[0]["errors"], 1);
}

TEST_F(FlowLogTest, UdpEndsWhenItIsIdle) {
    pass(kRx, in.udp(53, 5000, 40));
    world.advance(50s);
    pass(kTx, out.udp(5000, 53, 20));
    world.advance(59s);
    EXPECT_TRUE(ends().empty());
    world.advance(2s);
    ASSERT_EQ(ends().size(), 1u);
    EXPECT_EQ(ends()[0]["reason"], "idle");
    EXPECT_EQ(ends()[0]["opened_by"], "network");
    EXPECT_EQ(ends()[0]["rx_payload"], 40);
    EXPECT_EQ(ends()[0]["tx_payload"], 20);
}

TEST_F(FlowLogTest, FindsTheTwoNumbersOfAnRcConnection) {
    send(packet(roce::Opcode::kWriteFirst, 200, 7000), 1024);
    send(packet(roce::Opcode::kWriteLast, 200, 7001), 500);
    EXPECT_TRUE(lines.all.empty()) << "one number is not known yet";
    get(answer(100, 7001));
    ASSERT_EQ(lines.all.size(), 1u);
    EXPECT_EQ(lines.all[0]["event"], "start");
    EXPECT_EQ(lines.all[0]["protocol"], "rdma-rc");
    EXPECT_EQ(lines.all[0]["local_qpn"], 100);
    EXPECT_EQ(lines.all[0]["remote_qpn"], 200);
    get(packet(roce::Opcode::kSendOnly, 100, 42), 64);
    send(answer(200, 42));
    const json end = only_end();
    EXPECT_EQ(end["tx_frames"], 3);
    EXPECT_EQ(end["rx_frames"], 2);
    EXPECT_EQ(end["tx_payload"], 1524);
    EXPECT_EQ(end["rx_payload"], 64);
    EXPECT_EQ(end["tx_operations"], 1);
    EXPECT_EQ(end["rx_operations"], 1);
    EXPECT_EQ(counters.untracked.value(), 0u);
}

TEST_F(FlowLogTest, AccountsForEveryByteOfFrames) {
    std::uint64_t sent = 0;
    for (std::uint32_t i = 0; i < 50; ++i) {
        const base::Frame frame =
            out.roce(packet(roce::Opcode::kSendOnly, 200, 1000 + i), 10 * i + 1);
        sent += frame.size();
        pass(kTx, frame);
        if (i % 8 == 0) get(answer(100, 1000 + i));
    }
    const json end = only_end();
    EXPECT_EQ(end["tx_bytes"], sent);
    EXPECT_EQ(end["tx_payload"], 50 * 49 / 2 * 10 + 50) << "without pad";
    EXPECT_EQ(end["tx_operations"], 50);
}

TEST_F(FlowLogTest, RepetitionsAreNoNewOperations) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 10);
    send(packet(roce::Opcode::kSendOnly, 200, 6), 10);
    get(answer(100, 5, roce::nak_syndrome(roce::NakCode::kSequenceError)));
    send(packet(roce::Opcode::kSendOnly, 200, 5), 10);
    send(packet(roce::Opcode::kSendOnly, 200, 6), 10);
    get(answer(100, 6));
    const json end = only_end();
    EXPECT_EQ(end["tx_operations"], 2);
    EXPECT_EQ(end["tx_payload"], 20);
    EXPECT_EQ(end["tx_frames"], 4);
    EXPECT_EQ(end["retransmits"], 2);
    EXPECT_EQ(end["errors"], 0);
}

TEST_F(FlowLogTest, AReadIsOneOperationEvenIfAskedForAgainInTheMiddle) {
    roce::Packet read = packet(roce::Opcode::kReadRequest, 200, 10);
    read.reth = {0x10000, roce::RKey(1), 3000};
    send(read);
    get(packet(roce::Opcode::kReadResponseFirst, 100, 10), 1024);
    read.psn = roce::Psn(11);
    read.reth = {0x10000 + 1024, roce::RKey(1), 3000 - 1024};
    send(read);
    get(packet(roce::Opcode::kReadResponseFirst, 100, 11), 1024);
    get(packet(roce::Opcode::kReadResponseLast, 100, 12), 952);
    get(packet(roce::Opcode::kReadResponseLast, 100, 12), 952);
    const json end = only_end();
    EXPECT_EQ(end["tx_operations"], 1);
    EXPECT_EQ(end["rx_payload"], 3000);
    EXPECT_EQ(end["retransmits"], 2);
}

TEST_F(FlowLogTest, ReadsOfOnePlaceAreOperationsOfTheirOwn) {
    for (std::uint32_t psn = 10; psn < 10 + 4 * 3; psn += 3) {
        roce::Packet read = packet(roce::Opcode::kReadRequest, 200, psn);
        read.reth = {0x10000, roce::RKey(1), 3000};
        send(read);
        get(packet(roce::Opcode::kReadResponseFirst, 100, psn), 1024);
        get(packet(roce::Opcode::kReadResponseMiddle, 100, psn + 1), 1024);
        get(packet(roce::Opcode::kReadResponseLast, 100, psn + 2), 952);
    }
    const json end = only_end();
    EXPECT_EQ(end["tx_operations"], 4);
    EXPECT_EQ(end["rx_payload"], 12000);
    EXPECT_EQ(end["retransmits"], 0);
}

TEST_F(FlowLogTest, WhatTheNetworkLostBeforeTheNicCountsWhenItComes) {
    get(packet(roce::Opcode::kWriteFirst, 100, 0xfffffe), 1024);
    get(packet(roce::Opcode::kWriteMiddle, 100, 0), 1024);
    send(answer(200, 0xffffff, roce::nak_syndrome(roce::NakCode::kSequenceError)));
    get(packet(roce::Opcode::kWriteLast, 100, 1), 100);
    get(packet(roce::Opcode::kWriteMiddle, 100, 0xffffff), 1024);
    get(packet(roce::Opcode::kWriteMiddle, 100, 0), 1024);
    get(packet(roce::Opcode::kWriteLast, 100, 1), 100);
    const json end = only_end();
    EXPECT_EQ(end["rx_operations"], 1);
    EXPECT_EQ(end["rx_payload"], 3 * 1024 + 100);
    EXPECT_EQ(end["retransmits"], 2);
}

TEST_F(FlowLogTest, AnswersThatTheNetworkLostCountWhenTheyCome) {
    roce::Packet read = packet(roce::Opcode::kReadRequest, 200, 10);
    read.reth = {0x10000, roce::RKey(1), 3000};
    send(read);
    get(packet(roce::Opcode::kReadResponseFirst, 100, 10), 1024);
    get(packet(roce::Opcode::kReadResponseLast, 100, 12), 952);
    read.psn = roce::Psn(11);
    read.reth = {0x10000 + 1024, roce::RKey(1), 3000 - 1024};
    send(read);
    get(packet(roce::Opcode::kReadResponseFirst, 100, 11), 1024);
    get(packet(roce::Opcode::kReadResponseLast, 100, 12), 952);
    const json end = only_end();
    EXPECT_EQ(end["tx_operations"], 1);
    EXPECT_EQ(end["rx_payload"], 3000);
    EXPECT_EQ(end["retransmits"], 2);
}

TEST_F(FlowLogTest, TheFirstPacketsCountWhenTheyComeAfterLaterOnes) {
    get(packet(roce::Opcode::kWriteMiddle, 100, 0), 1024);
    get(packet(roce::Opcode::kWriteFirst, 100, 0xfffffe), 1024);
    get(packet(roce::Opcode::kWriteMiddle, 100, 0xffffff), 1024);
    get(packet(roce::Opcode::kWriteMiddle, 100, 0), 1024);
    get(packet(roce::Opcode::kWriteLast, 100, 1), 100);
    send(answer(200, 1));
    const json end = only_end();
    EXPECT_EQ(end["rx_operations"], 1);
    EXPECT_EQ(end["rx_payload"], 3 * 1024 + 100);
    EXPECT_EQ(end["retransmits"], 1);
}

TEST_F(FlowLogTest, ALostReadRequestCountsWhenItComes) {
    const auto ask = [this](std::uint32_t psn) {
        roce::Packet read = packet(roce::Opcode::kReadRequest, 100, psn);
        read.reth = {0x10000, roce::RKey(1), 2048};
        get(read);
    };
    ask(10);
    send(packet(roce::Opcode::kReadResponseFirst, 200, 10), 1024);
    send(packet(roce::Opcode::kReadResponseLast, 200, 11), 1024);
    ask(14);  // 12 is missing
    ask(12);
    ask(14);
    const json end = only_end();
    EXPECT_EQ(end["rx_operations"], 3);
    EXPECT_EQ(end["retransmits"], 1);
}

TEST_F(FlowLogTest, CountsErrorsAndRnr) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 10);
    get(answer(100, 5, roce::rnr_syndrome(14)));
    send(packet(roce::Opcode::kSendOnly, 200, 5), 10);
    get(answer(100, 5, roce::nak_syndrome(roce::NakCode::kRemoteAccess)));
    const json end = only_end();
    EXPECT_EQ(end["rnr"], 1);
    EXPECT_EQ(end["errors"], 1);
}

/// The usual end of a connection whose peer dies: nothing on the wire tells of it.
TEST_F(FlowLogTest, AConnectionThatWasGivenUpEndsWithAnError) {
    const auto connection = [](std::uint32_t local, std::uint32_t remote) {
        return rnic::Connection{gid("10.0.0.1"), gid("10.0.0.2"), roce::Qpn(local),
                                roce::Qpn(remote)};
    };
    const auto last = [this](std::size_t count) {
        EXPECT_EQ(ends().size(), count);
        return ends().empty() ? json::object() : ends().back();
    };
    table.connection_failed(connection(1, 2), rnic::Failure::kRetries);
    table.connection_ended(connection(1, 2));
    EXPECT_TRUE(lines.all.empty()) << "nothing of it was seen";

    send(packet(roce::Opcode::kSendOnly, 200, 5), 10);
    get(answer(100, 5));
    table.connection_failed(connection(100, 200), rnic::Failure::kRetries);
    EXPECT_TRUE(ends().empty()) << "its end is yet to come";
    table.connection_ended(connection(100, 200));
    json end = last(1);
    EXPECT_EQ(end["reason"], "retries exceeded");
    EXPECT_EQ(end["errors"], 1);

    // Nobody ever answered.
    send(packet(roce::Opcode::kSendOnly, 201, 5), 10);
    send(packet(roce::Opcode::kSendOnly, 201, 5), 10);
    table.connection_failed(connection(101, 201), rnic::Failure::kRetries);
    table.connection_ended(connection(101, 201));
    end = last(2);
    EXPECT_EQ(end["reason"], "retries exceeded");
    EXPECT_EQ(end["errors"], 1);
    EXPECT_EQ(end["retransmits"], 1);

    send(packet(roce::Opcode::kSendOnly, 202, 5), 10);
    get(answer(102, 5, roce::rnr_syndrome(14)));
    table.connection_failed(connection(102, 202), rnic::Failure::kRnrRetries);
    table.connection_ended(connection(102, 202));
    end = last(3);
    EXPECT_EQ(end["reason"], "rnr retries exceeded");
    EXPECT_EQ(end["errors"], 1);
    EXPECT_EQ(end["rnr"], 1);

    // The same queue pairs, connected again.
    send(packet(roce::Opcode::kSendOnly, 202, 5), 10);
    get(answer(102, 5));
    table.connection_ended(connection(102, 202));
    end = last(4);
    EXPECT_EQ(end["reason"], "closed");
    EXPECT_EQ(end["errors"], 0);
}

TEST_F(FlowLogTest, ManyConnectionsBetweenTwoHostsStayApart) {
    for (std::uint32_t i = 0; i < 20; ++i)
        send(packet(roce::Opcode::kSendOnly, 200 + i, 100000 * i), i);
    for (std::uint32_t i = 0; i < 20; ++i) get(answer(100 + i, 100000 * i));
    table.end_all("test");
    ASSERT_EQ(ends().size(), 20u);
    for (const json& end : ends()) {
        EXPECT_EQ(end["remote_qpn"].get<int>() - 200, end["local_qpn"].get<int>() - 100);
        EXPECT_EQ(end["tx_payload"], end["local_qpn"].get<int>() - 100);
    }
}

TEST_F(FlowLogTest, AnAnswerThatCouldBelongToTwoWaitsForAClearOne) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 1);
    send(packet(roce::Opcode::kSendOnly, 201, 5), 2);
    get(answer(100, 5));
    EXPECT_TRUE(lines.all.empty());
    for (std::uint32_t psn = 6; psn < 0x20006; psn += 0x4000)
        send(packet(roce::Opcode::kSendOnly, 201, psn), 0);
    get(answer(100, 0x1c006));
    ASSERT_EQ(lines.all.size(), 1u);
    EXPECT_EQ(lines.all[0]["remote_qpn"], 201);
}

TEST_F(FlowLogTest, ANumberInUseAgainStartsANewConnection) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 1);
    get(answer(100, 5));
    send(packet(roce::Opcode::kSendOnly, 300, 0x800000), 1);
    get(answer(100, 0x800000));
    table.end_all("test");
    ASSERT_EQ(ends().size(), 2u);
    EXPECT_EQ(ends()[0]["reason"], "number in use again");
    EXPECT_EQ(ends()[0]["remote_qpn"], 200);
    EXPECT_EQ(ends()[1]["remote_qpn"], 300);
    EXPECT_EQ(ends()[1]["local_qpn"], 100);
}

TEST_F(FlowLogTest, UdNamesBothNumbers) {
    roce::Packet datagram = packet(roce::Opcode::kUdSendOnly, 1, 0);
    datagram.deth = {roce::QKey(0x80010000), roce::Qpn(77)};
    send(datagram, 256);
    const json end = only_end();
    EXPECT_EQ(end["protocol"], "rdma-ud");
    EXPECT_EQ(end["local_qpn"], 77);
    EXPECT_EQ(end["remote_qpn"], 1);
    EXPECT_EQ(end["tx_payload"], 256);
    EXPECT_EQ(end["tx_operations"], 1);
}

/// A CNP names the queue pair that shall slow down, and not of which transport it is.
TEST_F(FlowLogTest, ACongestionNotificationBelongsToItsConnection) {
    const roce::Packet slow_down = packet(roce::Opcode::kCnp, 100, 0);
    const auto is_counted = [&](const char* protocol) {
        const json end = only_end();
        EXPECT_EQ(end["protocol"], protocol);
        EXPECT_EQ(end["tx_frames"], 1);
        EXPECT_EQ(end["rx_frames"], 2) << protocol;
        lines.all.clear();
    };
    send(packet(roce::Opcode::kSendOnly, 200, 5), 64);
    get(answer(100, 5));
    get(slow_down);
    is_counted("rdma-rc");

    send(packet(roce::Opcode::kUcWriteOnly, 200, 5), 64);
    get(slow_down);
    get(slow_down);
    is_counted("rdma-uc");

    roce::Packet datagram = packet(roce::Opcode::kUdSendOnly, 200, 0);
    datagram.deth = {roce::QKey(0x11111111), roce::Qpn(100)};
    send(datagram, 64);
    get(slow_down);
    get(slow_down);
    is_counted("rdma-ud");
}

TEST_F(FlowLogTest, ACongestionNotificationForOneOfManyGoesByItsNumber) {
    // Of a UC queue pair that also receives the number is known.
    get(packet(roce::Opcode::kUcWriteOnly, 100, 5), 64);
    send(packet(roce::Opcode::kUcWriteOnly, 200, 5), 64);
    send(packet(roce::Opcode::kUcWriteOnly, 201, 5), 64);
    get(packet(roce::Opcode::kCnp, 100, 0));
    EXPECT_EQ(table.size(), 3U);
    // Which of the two that send this one is for, nobody can tell; but they are of one kind.
    get(packet(roce::Opcode::kCnp, 101, 0));
    table.end_all("test");
    ASSERT_EQ(ends().size(), 4U);
    for (const json& end : ends()) EXPECT_EQ(end["protocol"], "rdma-uc");
}

TEST_F(FlowLogTest, ACongestionNotificationThatMayBeForAReliableOneIsNotAnothers) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 64);
    send(packet(roce::Opcode::kUcWriteOnly, 300, 5), 64);
    get(packet(roce::Opcode::kCnp, 100, 0));
    table.end_all("test");
    ASSERT_EQ(ends().size(), 3U);
    EXPECT_EQ(ends()[2]["protocol"], "rdma-rc");
    EXPECT_EQ(ends()[2]["local_qpn"], 100);
}

TEST_F(FlowLogTest, AHalfWithoutAnswerIsLoggedWithWhatIsKnown) {
    send(packet(roce::Opcode::kSendOnly, 200, 5), 1);
    const json end = only_end();
    EXPECT_EQ(end["remote_qpn"], 200);
    EXPECT_TRUE(end["local_qpn"].is_null());
}

TEST_F(FlowLogTest, DeniedFramesAreCountedApart) {
    pass(kRx, in.tcp(5, 22, 2), true);
    const json end = only_end();
    EXPECT_EQ(end["denied"], 1);
    EXPECT_EQ(end["rx_frames"], 0);
    EXPECT_EQ(end["rx_bytes"], 0);
}

TEST_F(FlowLogTest, CountsCongestionMarks) {
    out.ecn = 3;
    pass(kTx, out.udp(1, 2));
    EXPECT_EQ(only_end()["marked"], 1);
}

TEST_F(FlowLogTest, CountsIpv6AsIpv4) {
    out.source = gid("fd00::1");
    out.destination = gid("fd00::2");
    out.ecn = 3;
    in = out.reversed();
    const base::Frame tcp = out.tcp(40000, 22, 0x18, 100);
    const base::Frame udp = in.udp(53, 5000, 40);
    const base::Frame write = out.roce(packet(roce::Opcode::kWriteOnly, 200, 7000), 500);
    const base::Frame ack = in.roce(answer(100, 7000));
    pass(kTx, tcp);
    pass(kRx, udp);
    pass(kTx, write);
    pass(kRx, ack);
    table.end_all("test");
    ASSERT_EQ(ends().size(), 3u);
    for (const json& end : ends()) {
        EXPECT_EQ(end["local"], "fd00::1");
        EXPECT_EQ(end["remote"], "fd00::2");
        if (end["protocol"] == "tcp") {
            EXPECT_EQ(end["tx_bytes"], tcp.size());
            EXPECT_EQ(end["tx_payload"], 100);
            EXPECT_EQ(end["marked"], 1);
        } else if (end["protocol"] == "udp") {
            EXPECT_EQ(end["rx_bytes"], udp.size());
            EXPECT_EQ(end["rx_payload"], 40);
        } else {
            EXPECT_EQ(end["protocol"], "rdma-rc");
            EXPECT_EQ(end["local_qpn"], 100);
            EXPECT_EQ(end["remote_qpn"], 200);
            EXPECT_EQ(end["tx_bytes"], write.size());
            EXPECT_EQ(end["tx_payload"], 500);
            EXPECT_EQ(end["rx_bytes"], ack.size());
            EXPECT_EQ(end["marked"], 2);
        }
    }
}

/// Parses nothing: all the lines of a full table take half a minute under sanitizers.
class Ends final : public FlowSink {
public:
    void line(std::string_view text) override {
        if (text.starts_with(R"({"event":"start")"))
            ++starts;
        else
            others.emplace_back(text);
    }
    std::size_t starts = 0;
    std::vector<std::string> others;
};

TEST_F(FlowLogTest, AFullTableMakesRoom) {
    constexpr std::size_t kMore = 10;
    constexpr std::size_t kDestination = 30;  // where these are in the frame
    constexpr std::size_t kSourcePort = 34;
    Ends written;
    FlowLog full{executor, "a", 60s, base::WallTime(1699999999s), written, counters};
    base::Frame frame = out.udp(0, 7, 0);
    for (std::uint32_t i = 0; i < FlowLog::kMaxFlows + kMore; ++i) {
        frame[kDestination + 2] = static_cast<std::byte>(i >> 16);
        base::store_be(frame.data() + kSourcePort, static_cast<std::uint16_t>(i));
        full.frame(kTx, read_headers(frame), frame, false);
    }
    EXPECT_EQ(full.size(), FlowLog::kMaxFlows);
    EXPECT_EQ(counters.evicted.value(), kMore);
    EXPECT_EQ(written.starts, FlowLog::kMaxFlows + kMore);
    ASSERT_EQ(written.others.size(), kMore);
    for (std::size_t i = 0; i < kMore; ++i) {
        const json line = json::parse(written.others[i]);
        EXPECT_EQ(line["event"], "end");
        EXPECT_EQ(line["reason"], "no room");
        EXPECT_EQ(line["local_port"], i) << "the oldest goes first";
    }
}

TEST_F(FlowLogTest, TheEndOfAHalfLooksAtNoOthers) {
    constexpr std::uint32_t kHalves = 1000;
    for (std::uint32_t i = 0; i < kHalves; ++i)
        send(packet(roce::Opcode::kSendOnly, 1000 + i, 0), 1);
    ASSERT_EQ(table.size(), kHalves);
    const std::uint64_t before = base::work_done;
    EXPECT_TRUE(table.end_some("test"));
    EXPECT_EQ(base::work_done - before, FlowLog::kEndsATurn) << "each is found at once";
}

TEST_F(FlowLogTest, HalvesOfOnesOwnSideHideNoPartner) {
    for (std::uint32_t i = 0; i < 300; ++i) get(packet(roce::Opcode::kSendOnly, 1000 + i, 0), 1);
    send(packet(roce::Opcode::kSendOnly, 200, 5), 1);
    get(answer(100, 5));
    ASSERT_EQ(lines.all.size(), 1U);
    EXPECT_EQ(lines.all[0]["local_qpn"], 100);
    EXPECT_EQ(lines.all[0]["remote_qpn"], 200);
}

TEST_F(FlowLogTest, ManyThatAreIdleEndInTurns) {
    constexpr std::uint16_t kFlows = 200;
    for (std::uint16_t i = 0; i < kFlows; ++i) pass(kTx, out.udp(i, 53, 20));
    world.advance(60s);
    EXPECT_EQ(counters.ended.value(), FlowLog::kEndsATurn) << "of one turn";
    world.advance(1us);
    EXPECT_EQ(counters.ended.value(), kFlows);
}

TEST_F(FlowLogTest, OtherProtocolsAreCounted) {
    pass(kTx, out.arp());
    pass(kTx, base::Frame(60));
    EXPECT_EQ(counters.untracked.value(), 2u);
    EXPECT_EQ(table.size(), 0u);
}

/// A UDP datagram in fragments of 1,480 bytes of the IP packet.
class FragmentsTest : public FlowLogTest, public ::testing::WithParamInterface<bool> {
protected:
    static constexpr unsigned kMore = 0x2000;
    static constexpr std::size_t kPiece = 1480;
    void SetUp() override {
        if (!GetParam()) return;
        out.source = gid("fd00::1");
        out.destination = gid("fd00::2");
        in = out.reversed();
    }
    base::Frame first(FrameMaker maker, unsigned id, unsigned port = 5000) const {
        maker.fragment = kMore;
        maker.fragment_id = id;
        return maker.udp(port, 53, kPiece - 8);
    }
    base::Frame later(FrameMaker maker, unsigned id, unsigned number, std::size_t bytes,
                      bool last = false) const {
        maker.fragment = static_cast<unsigned>(number * kPiece / 8) | (last ? 0 : kMore);
        maker.fragment_id = id;
        return maker.ip(17, base::Frame(bytes));
    }
};

TEST_P(FragmentsTest, AreCountedForTheConnectionOfTheFirst) {
    const std::vector<base::Frame> frames{first(out, 0x1234), later(out, 0x1234, 1, kPiece),
                                          later(out, 0x1234, 2, 100, true)};
    std::uint64_t bytes = 0;
    for (const base::Frame& frame : frames) {
        pass(kTx, frame);
        bytes += frame.size();
    }
    EXPECT_EQ(counters.untracked.value(), 0u);
    // The same number the other way, or of another packet, is not this one.
    pass(kRx, later(in, 0x1234, 1, 40));
    pass(kTx, later(out, 0x1235, 1, 40));
    EXPECT_EQ(counters.untracked.value(), 2u);
    const json end = only_end();
    EXPECT_EQ(end["protocol"], "udp");
    EXPECT_EQ(end["tx_frames"], 3);
    EXPECT_EQ(end["tx_bytes"], bytes);
    EXPECT_EQ(end["tx_payload"], 2 * kPiece + 100 - 8);
    EXPECT_EQ(end["rx_frames"], 0);
}

TEST_P(FragmentsTest, TheSameNumberInAnotherVlanIsAnotherPacket) {
    const auto in_vlan = [](base::Frame frame) {
        frame.insert(frame.begin() + 12,
                     {std::byte{0x81}, std::byte{0}, std::byte{0}, std::byte{5}});
        return frame;
    };
    pass(kTx, in_vlan(first(out, 7)));
    pass(kTx, first(out, 7));
    pass(kTx, in_vlan(later(out, 7, 1, 100, true)));
    EXPECT_EQ(counters.untracked.value(), 0u);
    table.end_all("test");
    ASSERT_EQ(ends().size(), 2u);
    for (const json& end : ends()) EXPECT_EQ(end["tx_frames"], end.contains("vlan") ? 2 : 1);
}

TEST_P(FragmentsTest, ThoseBeforeTheFirstBelongToNobody) {
    pass(kTx, later(out, 7, 2, 100, true));
    EXPECT_EQ(counters.untracked.value(), 1u);
    pass(kTx, first(out, 7));
    pass(kTx, later(out, 7, 1, kPiece));
    EXPECT_EQ(counters.untracked.value(), 1u);
    EXPECT_EQ(only_end()["tx_payload"], 2 * kPiece - 8);
}

TEST_P(FragmentsTest, ANumberOfAPacketThatIsWholeOrOldIsFree) {
    pass(kTx, first(out, 7));
    pass(kTx, later(out, 7, 1, 100, true));
    pass(kTx, later(out, 7, 1, 100, true));
    EXPECT_EQ(counters.untracked.value(), 1u) << "of another packet, or a copy";
    pass(kTx, first(out, 8));
    world.advance(FlowFragments::kWait);
    pass(kTx, later(out, 8, 1, 100, true));
    EXPECT_EQ(counters.untracked.value(), 2u);
    // A new first one takes the number over.
    pass(kTx, first(out, 9, 5001));
    pass(kTx, first(out, 9, 5002));
    pass(kTx, later(out, 9, 1, 100, true));
    table.end_all("test");
    ASSERT_EQ(ends().size(), 3u);
    for (const json& end : ends())
        EXPECT_EQ(end["tx_frames"], end["local_port"] == 5001   ? 1
                                    : end["local_port"] == 5002 ? 2
                                                                : 3);
}

TEST_P(FragmentsTest, OfAConnectionThatEndedBelongToNobody) {
    pass(kTx, first(out, 7));
    table.end_all("test");
    pass(kTx, later(out, 7, 1, 100));
    EXPECT_EQ(counters.untracked.value(), 1u);
    EXPECT_EQ(table.size(), 0u);
}

TEST_P(FragmentsTest, AFullTableForgetsTheOldest) {
    for (unsigned id = 0; id <= FlowFragments::kMaxPackets; ++id) pass(kTx, first(out, id));
    pass(kTx, later(out, 0, 1, kPiece));
    EXPECT_EQ(counters.untracked.value(), 1u);
    for (unsigned id = 1; id <= FlowFragments::kMaxPackets; ++id)
        pass(kTx, later(out, id, 1, kPiece));
    EXPECT_EQ(counters.untracked.value(), 1u);
    EXPECT_EQ(only_end()["tx_frames"], 2 * FlowFragments::kMaxPackets + 1);
}

TEST_P(FragmentsTest, ThoseThatAreStoppedOrDroppedAreCountedApart) {
    const base::Frame start = first(out, 7);
    const base::Frame middle = later(out, 7, 1, kPiece);
    const base::Frame end = later(out, 7, 2, 100, true);
    pass(kTx, start);
    pass(kTx, middle, true);
    pass(kTx, end);
    table.dropped(kTx, read_headers(end), end);
    const json line = only_end();
    EXPECT_EQ(line["denied"], 1);
    EXPECT_EQ(line["dropped"], 1);
    EXPECT_EQ(line["tx_frames"], 1);
    EXPECT_EQ(line["tx_bytes"], start.size());
    EXPECT_EQ(line["tx_payload"], kPiece - 8);
}

INSTANTIATE_TEST_SUITE_P(FlowLog, FragmentsTest, ::testing::Bool(),
                         [](const auto& run) { return run.param ? "Ipv6" : "Ipv4"; });

TEST_F(FlowLogTest, ShortRdmaPacketsAreRead) {
    // Cut inside every header, with lengths that agree.
    for (std::size_t bytes = 0; bytes < 40; ++bytes) {
        base::Frame frame = out.udp(1, 4791, bytes);
        for (int opcode = 0; opcode < 256; ++opcode) {
            if (bytes > 0) frame[42] = static_cast<std::byte>(opcode);
            base::Frame exact(frame.begin(), frame.end());
            pass(kTx, exact);
            pass(kRx, exact);
        }
    }
}

TEST(FlowFile, AppendsLines) {
    std::string pattern = (std::filesystem::temp_directory_path() / "flows-XXXXXX").string();
    const std::filesystem::path directory = ::mkdtemp(pattern.data());
    const std::string path = directory / "flows.json";
    for (int run = 0; run < 2; ++run) {
        auto file = FlowFile::create(path);
        ASSERT_TRUE(file.has_value());
        (*file)->line("{\"a\":1}");
    }
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(text, "{\"a\":1}\n{\"a\":1}\n");
    EXPECT_FALSE(FlowFile::create(directory / "no" / "flows").has_value());
    std::filesystem::remove_all(directory);
}

TEST(FlowFile, AFullDiskDoesNotEndTheProcess) {
    std::string pattern = (std::filesystem::temp_directory_path() / "flows-XXXXXX").string();
    const std::filesystem::path directory = ::mkdtemp(pattern.data());
    auto file = FlowFile::create(directory / "flows");
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ((*file)->error(), 0);
    ASSERT_TRUE(test::fill_disk_of(directory / "flows"));
    (*file)->line("{}");
    (*file)->line("{}");
    EXPECT_EQ((*file)->error(), ENOSPC);
    EXPECT_EQ((*file)->lost(), 2u);
    EXPECT_FALSE((*file)->current());
    std::filesystem::remove_all(directory);
}

/// The flow log of another process, which goes on with the connections of one.
class FlowLogMoveTest : public FlowLogTest {
protected:
    void move() {
        base::StateWriter out(world.now());
        table.save(out);
        const auto bytes = std::move(out).finish();
        lines_before = lines.all;
        auto in = base::StateReader::open(bytes, world.now());
        ASSERT_TRUE(in.has_value());
        next.load(*in);
        ASSERT_TRUE(in->result().has_value()) << in->result().error().text;
        EXPECT_EQ(lines.all.size(), lines_before.size()) << "a line for what went on";
        EXPECT_TRUE(more.all.empty());
    }
    void pass_next(Direction direction, const base::Frame& frame) {
        next.frame(direction, read_headers(frame), frame, false);
    }

    std::vector<json> lines_before;
    Lines more;
    FlowCounters other_counters;
    // The calendar of another process is compared with the clock at another moment.
    FlowLog next{executor, "a", 60s, base::WallTime(1699999999s + 123ns), more, other_counters};
};

TEST_F(FlowLogMoveTest, AConnectionEndsOnceWithTheStartThatItHad) {
    pass(kTx, out.tcp(40000, 22, 0x02));
    world.advance(1500ms);
    pass(kRx, in.tcp(22, 40000, 0x18, 100));
    move();
    pass_next(kRx, in.tcp(22, 40000, 0x18, 50));
    pass_next(kTx, out.tcp(40000, 22, 0x11));
    pass_next(kRx, in.tcp(22, 40000, 0x11));
    world.advance(3s);
    ASSERT_EQ(more.all.size(), 1u);
    EXPECT_EQ(more.all[0]["event"], "end");
    EXPECT_EQ(more.all[0]["start"], lines.all[0]["start"]);
    EXPECT_EQ(more.all[0]["reason"], "closed");
    EXPECT_EQ(more.all[0]["rx_payload"], 150);
}

TEST_F(FlowLogMoveTest, ThoseThatArePairedAndThoseThatAreNotGoOn) {
    send(packet(roce::Opcode::kSendOnly, 0x20, 5), 100);
    get(answer(0x10, 5));
    send(packet(roce::Opcode::kSendOnly, 0x21, 7), 100);
    ASSERT_EQ(lines.all.size(), 1u) << "one is known by both numbers";
    move();
    EXPECT_EQ(next.size(), 2u);
    pass_next(kRx, in.roce(answer(0x11, 7), 0));
    ASSERT_EQ(more.all.size(), 1u);
    EXPECT_EQ(more.all[0]["local_qpn"], 0x11);
    pass_next(kTx, out.roce(packet(roce::Opcode::kSendOnly, 0x20, 5), 100));
    pass_next(kTx, out.roce(packet(roce::Opcode::kSendOnly, 0x20, 6), 100));
    next.end_all("test");
    ASSERT_EQ(more.all.size(), 3u);
    const auto first = std::ranges::find_if(more.all, [](const json& line) {
        return line["event"] == "end" && line["remote_qpn"] == 0x20;
    });
    ASSERT_NE(first, more.all.end());
    EXPECT_EQ((*first)["tx_operations"], 2);
    EXPECT_EQ((*first)["retransmits"], 1) << "what came before is known";
}

TEST_F(FlowLogMoveTest, OneThatIsIdleEndsWhenItWouldHave) {
    pass(kTx, out.tcp(40000, 22, 0x02));
    world.advance(50s);
    move();
    world.advance(9s);
    EXPECT_EQ(next.size(), 1u);
    world.advance(2s);
    EXPECT_EQ(next.size(), 0u);
}

}  // namespace
}  // namespace openmana::fabric
