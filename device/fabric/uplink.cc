// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "fabric/stream_uplink.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kMaxMessage = 65536 + 64;
constexpr int kReadsPerTurn = 64;
constexpr int kSocketBuffer = 8 << 20;

/// A descriptor that takes and gives one frame a call: a UDP socket or a TAP device.
class MessageUplink final : public Uplink {
public:
    MessageUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                  base::UniqueFd fd)
        : Uplink(loop, network, config.name),
          kind_(config.kind),
          fd_(std::move(fd)),
          buffer_(kMaxMessage) {}
    ~MessageUplink() override {
        network_.detach(*this);
        loop_.remove(fd_.get());
    }
    [[nodiscard]] bool connected() const override {
        return !ended_.load(std::memory_order_relaxed);
    }
    base::Result<void> watch() {
        return loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t) { read(); });
    }
    void deliver(std::span<const std::byte> frame) override {
        ssize_t n = ::write(fd_.get(), frame.data(), frame.size());
        // A socket first gives back the error of an earlier datagram (nobody there), and sends
        // nothing.
        if (n < 0 && errno == ECONNREFUSED) n = ::write(fd_.get(), frame.data(), frame.size());
        if (n != static_cast<ssize_t>(frame.size())) {
            counters_.tx_dropped.add();
            return;
        }
        counters_.tx_frames.add();
        counters_.tx_bytes.add(frame.size());
    }

private:
    void read() {
        for (int i = 0; i < kReadsPerTurn; ++i) {
            const ssize_t n = ::read(fd_.get(), buffer_.data(), buffer_.size());
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (n < 0 && kind_ == UplinkConfig::Kind::kUdp)
                continue;  // an error of the network: taken note of
            if (n < 0) {
                // What the kernel says of a device that is gone.
                const bool deleted = errno == EBADFD;
                OM_WARN("uplink end: uplink={} reason={}", name_,
                        deleted ? "the TAP device was deleted; manad has to be started anew"
                                : std::strerror(errno));
                loop_.remove(fd_.get());
                ended_.store(true, std::memory_order_relaxed);
                return;
            }
            receive({buffer_.data(), static_cast<std::size_t>(n)});
        }
    }

    const UplinkConfig::Kind kind_;
    base::UniqueFd fd_;
    std::vector<std::byte> buffer_;
    std::atomic<bool> ended_{false};
};

base::Result<base::UniqueFd> open_udp(const UplinkConfig& config) {
    const int family = config.local.storage.ss_family;
    if (family != config.remote.storage.ss_family)
        return fail(ErrorCode::kInvalidArgument, "local and remote are not of one IP version");
    base::UniqueFd fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        return fail(ErrorCode::kIo, "cannot create a UDP socket", static_cast<unsigned>(errno));
    // Best effort: more than the host's limit needs a privilege, and the default works too.
    for (const auto& [force, plain] :
         {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
        if (::setsockopt(fd.get(), SOL_SOCKET, force, &kSocketBuffer, sizeof kSocketBuffer) != 0)
            (void)::setsockopt(fd.get(), SOL_SOCKET, plain, &kSocketBuffer, sizeof kSocketBuffer);
    // Frames larger than the path's MTU go in fragments instead of being refused.
    const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
    const int name = family == AF_INET ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER;
    const int dont = family == AF_INET ? IP_PMTUDISC_DONT : IPV6_PMTUDISC_DONT;
    (void)::setsockopt(fd.get(), level, name, &dont, sizeof dont);
    if (::bind(fd.get(), config.local.get(), config.local.length) != 0)
        return fail(ErrorCode::kIo, "cannot bind the local address", static_cast<unsigned>(errno));
    // From now on only the other end's datagrams come in.
    if (::connect(fd.get(), config.remote.get(), config.remote.length) != 0)
        return fail(ErrorCode::kIo, "cannot use the remote address", static_cast<unsigned>(errno));
    return fd;
}

/// Puts the name that the kernel chose ("t%d" becomes "t0") in the place of the one asked for.
base::Result<base::UniqueFd> open_tap(UplinkConfig& config) {
    ifreq request{};
    if (config.interface.empty() || config.interface.size() >= sizeof request.ifr_name)
        return fail(ErrorCode::kInvalidArgument, "not a name that an interface can have");
    base::UniqueFd fd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return fail(ErrorCode::kIo, "cannot open /dev/net/tun", static_cast<unsigned>(errno));
    std::memcpy(request.ifr_name, config.interface.data(), config.interface.size());
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (::ioctl(fd.get(), TUNSETIFF, &request) != 0)
        return fail(ErrorCode::kIo, "cannot have the TAP device", static_cast<unsigned>(errno));
    const std::string real(request.ifr_name, ::strnlen(request.ifr_name, sizeof request.ifr_name));
    if (const std::size_t at = config.name.rfind(config.interface); at != std::string::npos)
        config.name.replace(at, config.interface.size(), real);
    config.interface = real;
    return fd;
}

}  // namespace

base::Result<SocketAddress> SocketAddress::parse(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos)
        return fail(ErrorCode::kInvalidArgument, "not ADDRESS:PORT");
    std::uint16_t port = 0;
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc{} || end != digits.data() + digits.size() || port == 0)
        return fail(ErrorCode::kInvalidArgument, "not a port from 1 to 65535");
    std::string host(text.substr(0, colon));
    SocketAddress result;
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = ::htons(port);
        std::memcpy(&result.storage, &v4, sizeof v4);
        result.length = sizeof v4;
        return result;
    }
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
        if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
            v6.sin6_family = AF_INET6;
            v6.sin6_port = ::htons(port);
            std::memcpy(&result.storage, &v6, sizeof v6);
            result.length = sizeof v6;
            return result;
        }
    }
    return fail(ErrorCode::kInvalidArgument, "not an IPv4 address, or an IPv6 address in brackets");
}

base::Result<std::unique_ptr<Uplink>> Uplink::create(base::EventLoop& loop, Switch& network,
                                                     const UplinkConfig& config) {
    if (config.kind == UplinkConfig::Kind::kStream) {
        TRY(auto stream, StreamUplink::create(loop, network, config));
        return std::unique_ptr<Uplink>(std::move(stream));
    }
    UplinkConfig own = config;
    TRY(auto fd, own.kind == UplinkConfig::Kind::kUdp ? open_udp(own) : open_tap(own));
    auto uplink = std::make_unique<MessageUplink>(loop, network, own, std::move(fd));
    TRY_VOID(uplink->watch());
    return std::unique_ptr<Uplink>(std::move(uplink));
}

}  // namespace openmana::fabric
