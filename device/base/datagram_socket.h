// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/socket_address.h"

namespace openmana::base {

/// A datagram to send: `head`, then `body`, which stay the caller's.
struct Datagram {
    std::span<const std::byte> head{};
    std::span<const std::byte> body{};
    const SocketAddress* to = nullptr;  ///< null: the other end that the socket has
    std::uint8_t traffic_class = 0;     ///< DSCP and ECN of the IP header
    [[nodiscard]] std::size_t size() const { return head.size() + body.size(); }
};

/// A datagram that came, in memory of the socket. Who gets it may change it.
struct ReceivedDatagram {
    std::span<std::byte> bytes{};
    const SocketAddress* from = nullptr;
    std::uint8_t traffic_class = 0;  ///< 0 if the socket was not asked for it
};

/// A UDP socket for many datagrams a call: sendmmsg and recvmmsg, and where the kernel can,
/// neighbours of one size as one (UDP_SEGMENT, UDP_GRO of udp(7)), which it cuts as late and puts
/// together as early as it can.
class DatagramSocket {
public:
    struct Options {
        std::optional<SocketAddress> remote;  ///< only its datagrams come in; the default `to`
        /// What is larger than the MTU of the path goes in fragments; else it is refused, also when
        /// a router on the way says so.
        bool fragments = false;
        bool traffic_class = false;  ///< tell that of what comes in
        bool receives = true;        ///< false: what comes in is thrown away
        bool offload = true;         ///< false: each datagram by itself, as if the kernel could not
    };
    /// Of a send().
    struct Sent {
        std::uint64_t datagrams = 0;
        std::uint64_t bytes = 0;
        std::uint64_t dropped = 0;    ///< the kernel took no more, or could not send them
        std::uint64_t too_large = 0;  ///< for the MTU of the path; not in `dropped`
        std::size_t largest = 0;      ///< bytes of the largest of these
        int error = 0;                ///< errno of the last that was dropped
    };
    /// UDP's most over IPv4.
    static constexpr std::size_t kMaxDatagram = 65507;

    /// Bound, not blocking. An error has errno in `detail`.
    static Result<DatagramSocket> open(const SocketAddress& local, const Options& options);
    [[nodiscard]] int fd() const { return fd_.get(); }

    /// In their order. From any thread.
    Sent send(std::span<const Datagram> datagrams);
    /// Those that have come, in their order, good until the next call; empty if there are none now.
    /// `more` says whether it is worth to ask again at once. From one thread at a time.
    std::span<const ReceivedDatagram> receive(bool& more);
    /// The MTU of the path to the other end as the kernel knows it now, IP header included; 0 if it
    /// does not, or the socket has no other end.
    [[nodiscard]] std::size_t path_mtu() const;

private:
    DatagramSocket(UniqueFd fd, int family, const Options& options);
    class Batch;
    /// Of segments that one call may carry: what was too much is not tried again for a while, since
    /// the path may have changed.
    class SegmentLimit {
    public:
        [[nodiscard]] bool allows(std::size_t bytes);
        void refused(std::size_t bytes);

    private:
        static constexpr Duration kTryAgain = std::chrono::seconds(10);
        SystemClock clock_;
        std::atomic<std::size_t> below_{SIZE_MAX};  // both tell of themselves alone, so relaxed
        std::atomic<TimePoint> until_{};
    };
    static constexpr std::size_t kReceiveMessages = 16;
    static constexpr std::size_t kReceiveBytes = 64U << 10;

    UniqueFd fd_;
    int family_;
    bool offload_;
    std::unique_ptr<SegmentLimit> limit_ = std::make_unique<SegmentLimit>();
    std::vector<std::byte> buffer_;  // kReceiveMessages of kReceiveBytes
    std::vector<SocketAddress> senders_;
    std::vector<ReceivedDatagram> received_;
};

}  // namespace openmana::base
