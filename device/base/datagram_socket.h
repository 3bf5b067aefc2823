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

/// What the network, or this host, says of a datagram that was sent (IP_RECVERR of ip(7)).
struct NetworkError {
    SocketAddress peer;    ///< where it was for
    int error = 0;         ///< errno
    bool of_host = false;  ///< this one says so, not a router or the other end
    std::size_t mtu = 0;   ///< of EMSGSIZE
};

/// A UDP socket for many datagrams a call: sendmmsg and recvmmsg, and where the kernel can,
/// neighbours of one size as one (UDP_SEGMENT, UDP_GRO of udp(7)), which it cuts as late and puts
/// together as early as it can.
class DatagramSocket {
public:
    struct Options {
        std::optional<SocketAddress> remote;  ///< only its datagrams come in; the default `to`
        /// What is larger than the interface's MTU goes in fragments, and routers may cut it; else
        /// it is refused. What messages of ICMP say of the path changes nothing: anybody can make
        /// one up. Only over IPv6, where no router cuts, do fragments become as small as they say,
        /// 1,280 bytes at least.
        bool fragments = false;
        bool traffic_class = false;  ///< tell that of what comes in
        bool receives = true;        ///< false: what comes in is thrown away
        bool shared = false;  ///< others of this user have the address too: each gets whole flows
        bool errors = false;  ///< read_error() tells what the network says; see hear()
        bool offload = true;  ///< false: each datagram by itself, as if the kernel could not
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
    /// Gets those that the kernel could not send, but for those that it took no more of.
    class Failures {
    public:
        virtual ~Failures() = default;
        virtual void failed(const Datagram& datagram, int error) = 0;
    };
    /// UDP's most over IPv4.
    static constexpr std::size_t kMaxDatagram = 65507;

    /// Bound, not blocking. An error has errno in `detail`.
    static Result<DatagramSocket> open(const SocketAddress& local, const Options& options);
    /// One that another process has opened so, bound there, and given the same other end.
    static Result<DatagramSocket> inherit(UniqueFd socket, const SocketAddress& local,
                                          const Options& options);
    /// Where one is bound.
    static Result<SocketAddress> bound(const UniqueFd& socket);
    [[nodiscard]] int fd() const { return fd_.get(); }

    /// In their order. From any thread. What the network said of one end loses nothing that is for
    /// another: where it says so much that sends fail again and again, the socket stops to hear it.
    Sent send(std::span<const Datagram> datagrams, Failures* failures = nullptr);
    /// Those that have come, in their order, good until the next call; empty if there are none now.
    /// `more` says whether it is worth to ask again at once. From one thread at a time.
    std::span<const ReceivedDatagram> receive(bool& more);
    /// With `errors`: whether the network is heard. While it is not, its messages cost nothing.
    /// From any thread.
    [[nodiscard]] bool hears() const { return shared_->hears.load(std::memory_order_relaxed); }
    void hear(bool yes);
    /// The next message that is there, if any.
    std::optional<NetworkError> read_error();

    /// The MTU of the path to the other end as the kernel knows it now, IP header included; 0 if it
    /// does not, or the socket has no other end.
    [[nodiscard]] std::size_t path_mtu() const;

private:
    DatagramSocket(UniqueFd fd, int family, const Options& options);
    class Batch;
    /// Of segments that one call may carry to an end: what was too much is not tried again for a
    /// while, since the path may have changed. Other ends are not the worse for it.
    class SegmentLimits {
    public:
        [[nodiscard]] bool allows(const SocketAddress* to, std::size_t bytes);
        void refused(const SocketAddress* to, std::size_t bytes);

    private:
        static constexpr Duration kTryAgain = std::chrono::seconds(10);
        static constexpr std::size_t kPlaces = 64;
        /// What one of the ends that share a place was refused last: the end's hash, and bytes in
        /// the last 16 bits. Each tells of itself alone, so relaxed.
        struct Place {
            std::atomic<std::uint64_t> end_and_bytes{0};
            std::atomic<TimePoint> until{};
        };
        SystemClock clock_;
        std::atomic<bool> used_{false};
        std::array<Place, kPlaces> places_;
    };
    /// What threads that send have in common.
    struct Shared {
        SegmentLimits limits;
        std::atomic<bool> hears{false};  // tells of itself alone, so relaxed
    };
    static constexpr std::size_t kReceiveMessages = 16;
    static constexpr std::size_t kReceiveBytes = 64U << 10;

    UniqueFd fd_;
    int family_;
    bool offload_;
    bool told_;  // a send may fail for what the network said before
    std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
    std::vector<std::byte> buffer_;  // kReceiveMessages of kReceiveBytes
    std::vector<SocketAddress> senders_;
    std::vector<ReceivedDatagram> received_;
};

}  // namespace openmana::base
