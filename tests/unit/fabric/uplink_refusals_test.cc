// SPDX-License-Identifier: Apache-2.0
// Uplinks whose system calls fail: at the start with the reason, later without an end of the
// others.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/unix_socket.h"
#include "fabric/stream_uplink.h"
#include "fabric/uplink.h"
#include "support/faulty_calls.h"
#include "support/temp_dir.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric {
namespace {

using openmana::test::FaultyCalls;
using test::numbered;

class CountingPort final : public Port {
public:
    void deliver(base::FrameViews delivered) override {
        frames += static_cast<unsigned>(delivered.size());
    }
    unsigned frames = 0;
};

class UplinkRefusalsTest : public ::testing::Test {
protected:
    void SetUp() override {
        network.attach(port, &test::kMacA);
        base::set_log_level(base::LogLevel::kOff);
    }
    void TearDown() override {
        base::set_log_level(base::LogLevel::kInfo);
        uplink.reset();
        network.detach(port);
    }
    static UplinkConfig udp() {
        UplinkConfig config;
        config.name = "udp";
        config.local = *SocketAddress::parse("127.0.0.1:1");
        config.remote = *SocketAddress::parse("127.0.0.1:1");
        // Any port: nobody else is to have it.
        std::fill_n(reinterpret_cast<std::byte*>(&config.local.storage) + 2, 2, std::byte{0});
        return config;
    }
    static UplinkConfig tap() {
        UplinkConfig config;
        config.kind = UplinkConfig::Kind::kTap;
        config.name = "tap:t0";
        config.interface = "t0";
        return config;
    }
    UplinkConfig stream() const {
        UplinkConfig config;
        config.kind = UplinkConfig::Kind::kStream;
        config.name = "stream";
        config.path = directory + "/s";
        config.listen = true;
        return config;
    }
    /// The errno of an uplink that cannot be made.
    int reason(const UplinkConfig& config) {
        const auto made = Uplink::create(*loop, network, config);
        if (made) return -1;
        EXPECT_EQ(made.error().code, base::ErrorCode::kIo);
        return static_cast<int>(made.error().detail);
    }
    void turn() {
        loop->post([this] { loop->stop(); });
        loop->run();
    }
    /// The other end of a stream uplink, which has seen it.
    base::UniqueFd join() {
        base::UniqueFd other = base::connect_unix(directory + "/s").value();
        turn();
        EXPECT_TRUE(uplink->connected());
        return other;
    }
    /// A whole frame for the port here.
    static void send_frame(const base::UniqueFd& to) {
        const base::Frame frame = test::FrameMaker{}.reversed().udp(1, 2);
        std::vector<std::byte> bytes(4);
        base::store_be(bytes.data(), static_cast<std::uint32_t>(frame.size()));
        bytes.insert(bytes.end(), frame.begin(), frame.end());
        EXPECT_EQ(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    static ssize_t received(const base::UniqueFd& from) {
        std::array<char, 4096> buffer;
        return ::recv(from.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    }
    /// It has lost its other end, and takes the next.
    void expect_next() {
        EXPECT_FALSE(uplink->connected());
        const base::UniqueFd next = join();
        const unsigned before = port.frames;
        send_frame(next);
        turn();
        EXPECT_EQ(port.frames, before + 1);
    }
    /// A TAP uplink on a socket that keeps messages apart, as the device does.
    base::UniqueFd make_tap() {
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
        base::UniqueFd other(ends[1]);
        device = ends[0];
        FaultyCalls faults;
        faults.give("open", ends[0]);
        faults.give("ioctl", 0);
        auto made = Uplink::create(*loop, network, tap());
        EXPECT_TRUE(made) << made.error().text;
        if (made) uplink = std::move(*made);
        return other;
    }

    const openmana::test::TempDir made{"uplink"};
    const std::string& directory = made.path();
    base::SystemClock clock;
    std::unique_ptr<base::EventLoop> loop = base::EventLoop::create().value();
    Switch network{clock};
    CountingPort port;
    std::unique_ptr<Uplink> uplink;
    int device = -1;
};

TEST_F(UplinkRefusalsTest, AUdpUplinkSaysWhatItCannotHave) {
    for (const char* call : {"socket", "bind", "connect", "epoll_ctl"}) {
        const FaultyCalls faults(call, EADDRNOTAVAIL);
        EXPECT_EQ(reason(udp()), EADDRNOTAVAIL) << call;
        EXPECT_EQ(faults.failed(), 1U) << call;
    }
}

TEST_F(UplinkRefusalsTest, ATapUplinkSaysWhatItCannotHave) {
    {
        const FaultyCalls faults("open", EACCES);
        EXPECT_EQ(reason(tap()), EACCES);
    }
    FaultyCalls faults;
    faults.give("open", ::eventfd(0, EFD_CLOEXEC));
    faults.fail("ioctl", EPERM);
    EXPECT_EQ(reason(tap()), EPERM);
}

TEST_F(UplinkRefusalsTest, AStreamUplinkSaysWhatItCannotHave) {
    for (const char* call : {"socket", "bind", "listen", "epoll_ctl"}) {
        const FaultyCalls faults(call, EACCES);
        EXPECT_EQ(reason(stream()), EACCES) << call;
        EXPECT_FALSE(std::filesystem::exists(directory + "/s")) << call;
    }
}

TEST_F(UplinkRefusalsTest, ADatagramUplinkOutlivesErrorsOfTheNetwork) {
    auto made = Uplink::create(*loop, network, udp());
    ASSERT_TRUE(made);
    uplink = std::move(*made);
    FaultyCalls faults;
    for (const int error : {ECONNREFUSED, EMSGSIZE}) {
        faults.fail("sendmmsg", error);
        network.forward(port, numbered(1));
    }
    EXPECT_EQ(uplink->counters().tx_frames.value(), 2U) << "the error was an earlier datagram's";
    for (const int error : {EPERM, ENOBUFS}) {
        faults.fail("sendmmsg", error);
        network.forward(port, numbered(2));
    }
    EXPECT_EQ(uplink->counters().tx_dropped.value(), 2U);
    network.forward(port, numbered(3));
    EXPECT_EQ(uplink->counters().tx_frames.value(), 3U);
    EXPECT_TRUE(uplink->connected());
}

TEST_F(UplinkRefusalsTest, ATapDeviceThatGoesEndsItsUplinkAlone) {
    for (const int error : {EBADFD, EIO}) {
        const base::UniqueFd other = make_tap();
        const base::Frame frame = test::FrameMaker{}.reversed().udp(1, 2);
        ASSERT_EQ(::send(other.get(), frame.data(), frame.size(), 0),
                  static_cast<ssize_t>(frame.size()));
        turn();
        EXPECT_EQ(uplink->counters().rx_frames.value(), 1U);
        ASSERT_EQ(::send(other.get(), frame.data(), frame.size(), 0),
                  static_cast<ssize_t>(frame.size()));
        const FaultyCalls faults("read", error, {.fd = device});
        turn();
        EXPECT_FALSE(uplink->connected());
        EXPECT_EQ(uplink->counters().rx_frames.value(), 1U);
        turn();  // nobody looks at it any more
        EXPECT_EQ(faults.failed(), 1U);
    }
}

TEST_F(UplinkRefusalsTest, AReadOfATapDeviceThatIsInterruptedIsTriedAgain) {
    const base::UniqueFd other = make_tap();
    const base::Frame frame = test::FrameMaker{}.reversed().udp(1, 2);
    ASSERT_GT(::send(other.get(), frame.data(), frame.size(), 0), 0);
    const FaultyCalls faults("read", EINTR, {.fd = device});
    turn();
    EXPECT_EQ(uplink->counters().rx_frames.value(), 0U);
    turn();
    EXPECT_EQ(uplink->counters().rx_frames.value(), 1U);
    EXPECT_TRUE(uplink->connected());
}

class StreamRefusalsTest : public UplinkRefusalsTest {
protected:
    void SetUp() override {
        UplinkRefusalsTest::SetUp();
        uplink = Uplink::create(*loop, network, stream()).value();
    }
};

TEST_F(StreamRefusalsTest, AnEndThatCannotBeWatchedIsLetGo) {
    const base::UniqueFd other = base::connect_unix(directory + "/s").value();
    {
        // Its socket is no longer watched, but the connection cannot be.
        const FaultyCalls faults("epoll_ctl", ENOSPC, {.after = 1});
        turn();
        EXPECT_EQ(faults.failed(), 1U);
    }
    EXPECT_EQ(received(other), 0);
    expect_next();
}

TEST_F(StreamRefusalsTest, AReceiveThatIsInterruptedIsTriedAgain) {
    const base::UniqueFd other = join();
    send_frame(other);
    const FaultyCalls faults("recv", EINTR);
    turn();
    turn();
    EXPECT_EQ(port.frames, 1U);
    EXPECT_TRUE(uplink->connected());
}

TEST_F(StreamRefusalsTest, AReceiveThatFailsEndsTheConnection) {
    const base::UniqueFd other = join();
    send_frame(other);
    {
        const FaultyCalls faults("recv", ECONNRESET);
        turn();
    }
    expect_next();
}

TEST_F(StreamRefusalsTest, AFrameThatIsNotTakenAtOnceIsSentLater) {
    const base::UniqueFd other = join();
    FaultyCalls faults("sendmsg", EAGAIN);
    network.forward(port, numbered(1, 300));
    EXPECT_EQ(received(other), -1);
    faults.fail("sendmsg", EINTR);
    faults.fail("sendmsg", EAGAIN);
    turn();
    EXPECT_EQ(received(other), -1);
    turn();
    EXPECT_EQ(received(other), 304);
    EXPECT_TRUE(uplink->connected());
    EXPECT_EQ(uplink->counters().tx_dropped.value(), 0U);
}

TEST_F(StreamRefusalsTest, AFrameOfWhichAPartWasTakenIsSentWhole) {
    const base::UniqueFd other = join();
    {
        FaultyCalls faults;
        faults.give("sendmsg", 0);
        network.forward(port, numbered(1, 300));
    }
    turn();
    EXPECT_EQ(received(other), 304);
}

TEST_F(StreamRefusalsTest, AnErrorIsSeenByTheLoopAndEndsTheConnection) {
    const base::UniqueFd other = join();
    {
        const FaultyCalls faults("sendmsg", EPIPE, {.times = 2});
        network.forward(port, numbered(1));
        EXPECT_TRUE(uplink->connected());
        turn();
        EXPECT_EQ(faults.failed(), 2U);
    }
    expect_next();
}

TEST_F(StreamRefusalsTest, AConnectionThatCannotBeWatchedForRoomEnds) {
    const base::UniqueFd other = join();
    {
        FaultyCalls faults("sendmsg", EAGAIN);
        faults.fail("epoll_ctl", ENOMEM);
        network.forward(port, numbered(1));
        turn();
        EXPECT_EQ(faults.failed(), 2U);
    }
    expect_next();
}

TEST_F(StreamRefusalsTest, AConnectionThatCannotBeWatchedForInputAgainEnds) {
    const base::UniqueFd other = join();
    {
        FaultyCalls faults("sendmsg", EAGAIN);
        faults.fail("epoll_ctl", ENOMEM, {.after = 1});
        network.forward(port, numbered(1));
        turn();
        EXPECT_EQ(faults.failed(), 2U);
    }
    expect_next();
}

TEST_F(StreamRefusalsTest, AClientThatCannotGetASocketTriesAgain) {
    UplinkConfig config = stream();
    config.listen = false;
    const FaultyCalls faults("socket", EMFILE);
    Switch far(clock);
    auto client = Uplink::create(*loop, far, config);
    ASSERT_TRUE(client);
    EXPECT_FALSE((*client)->connected());
    base::Timer end(*loop, [this] { loop->stop(); });
    end.arm(StreamUplink::kRetry + std::chrono::milliseconds(100));
    loop->run();
    EXPECT_TRUE((*client)->connected());
}

}  // namespace
}  // namespace openmana::fabric
