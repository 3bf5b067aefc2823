// SPDX-License-Identifier: Apache-2.0
#include "fabric/uplink.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "fabric/stream_uplink.h"
#include "fabric/udp_uplink.h"
#include "fabric/xdp_uplink.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kMaxMessage = 65536 + 64;
constexpr int kReadsPerTurn = 64;

/// A TAP device, which takes and gives one frame a call.
class TapUplink final : public Uplink {
public:
    TapUplink(base::EventLoop& loop, Switch& network, std::string name, base::UniqueFd fd)
        : Uplink(loop, network, std::move(name)), fd_(std::move(fd)), buffer_(kMaxMessage) {}
    ~TapUplink() override {
        network_.detach(*this);
        loop_.remove(fd_.get());
    }
    [[nodiscard]] bool connected() const override {
        return !ended_.load(std::memory_order_relaxed);
    }
    void save(base::StateWriter& out) const override {
        out.begin("TAP ", 1);
        // Of a device that was deleted nothing is left: the other process opens its own.
        out.descriptor(connected() ? fd_.get() : -1);
        base::save_counters(out, counters_);
        out.end();
    }
    void load(base::StateReader& in) { base::load_counters(in, counters_); }
    base::Result<void> watch() {
        return loop_.add(fd_.get(), EPOLLIN, [this](std::uint32_t) { read(); });
    }
    void deliver(base::FrameViews frames) override {
        for (const base::FrameView frame : frames) {
            const ssize_t n = ::write(fd_.get(), frame.data(), frame.size());
            if (n == static_cast<ssize_t>(frame.size()))
                count_sent(1, frame.size());
            else
                counters_.tx_dropped.add();
        }
    }

private:
    void read() {
        for (int i = 0; i < kReadsPerTurn; ++i) {
            const ssize_t n = ::read(fd_.get(), buffer_.data(), buffer_.size());
            if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
            if (n < 0) {
                // What the kernel says of a device that is gone.
                const bool deleted = errno == EBADFD;
                OM_WARN("uplink end: uplink={} reason=\"{}\"", name_,
                        deleted ? "the TAP device was deleted; manad has to be started anew"
                                : std::strerror(errno));
                loop_.remove(fd_.get());
                ended_.store(true, std::memory_order_relaxed);
                return;
            }
            receive({buffer_.data(), static_cast<std::size_t>(n)});
        }
    }

    base::UniqueFd fd_;
    std::vector<std::byte> buffer_;
    std::atomic<bool> ended_{false};
};

/// Puts the name that the kernel chose ("t%d" becomes "t0") in the place of the one asked for.
base::Result<base::UniqueFd> open_tap(UplinkConfig& config, base::UniqueFd inherited) {
    ifreq request{};
    if (config.interface.empty() || config.interface.size() >= sizeof request.ifr_name)
        return fail(ErrorCode::kInvalidArgument, "not a name that an interface can have");
    base::UniqueFd fd;
    if (inherited) {
        fd = std::move(inherited);
        if (::ioctl(fd.get(), TUNGETIFF, &request) != 0)
            return fail(ErrorCode::kIo, "not a TAP device", static_cast<unsigned>(errno));
    } else {
        fd = base::UniqueFd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
        if (!fd)
            return fail(ErrorCode::kIo, "cannot open /dev/net/tun", static_cast<unsigned>(errno));
        std::memcpy(request.ifr_name, config.interface.data(), config.interface.size());
        request.ifr_flags = IFF_TAP | IFF_NO_PI;
        if (::ioctl(fd.get(), TUNSETIFF, &request) != 0)
            return fail(ErrorCode::kIo, "cannot have the TAP device", static_cast<unsigned>(errno));
    }
    const std::string real(request.ifr_name, ::strnlen(request.ifr_name, sizeof request.ifr_name));
    if (const std::size_t at = config.name.rfind(config.interface); at != std::string::npos)
        config.name.replace(at, config.interface.size(), real);
    config.interface = real;
    return fd;
}

}  // namespace

base::Result<std::optional<base::StateReader>> open_inherited(
    const std::shared_ptr<base::Parcel>& parcel, base::TimePoint now) {
    if (!parcel) return std::optional<base::StateReader>();
    return base::StateReader::open(parcel->bytes, now, parcel->descriptors);
}

void Uplink::receive(std::size_t queue, base::FrameViews frames) {
    Inlet& inlet = inlets_[queue];
    std::array<base::FrameView, kReceiveBurst> good;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), kReceiveBurst));
        frames = frames.subspan(burst.size());
        std::size_t count = 0;
        std::size_t bytes = 0;
        for (const base::FrameView frame : burst) {
            bytes += frame.size();
            if (inlet.guard.passes(frame)) good[count++] = frame;
        }
        counters_.rx_frames.add(burst.size());
        counters_.rx_bytes.add(bytes);
        if (count < burst.size()) counters_.foreign_source.add(burst.size() - count);
        network_.forward(*this, inlet.door, base::FrameViews(good).first(count));
    }
}

base::Result<std::unique_ptr<Uplink>> Uplink::create(std::span<base::EventLoop* const> loops,
                                                     Switch& network, const UplinkConfig& config) {
    base::EventLoop& loop = *loops.front();
    switch (config.kind) {
        case UplinkConfig::Kind::kStream: {
            TRY(auto stream, StreamUplink::create(loop, network, config));
            return std::unique_ptr<Uplink>(std::move(stream));
        }
        case UplinkConfig::Kind::kUdp: {
            TRY(auto udp, UdpUplink::create(loops, network, config));
            return std::unique_ptr<Uplink>(std::move(udp));
        }
        case UplinkConfig::Kind::kXdp: {
            TRY(auto xdp, XdpUplink::create(loop, network, config));
            return std::unique_ptr<Uplink>(std::move(xdp));
        }
        case UplinkConfig::Kind::kVxlan:
            return fail(ErrorCode::kInvalidArgument, "needs an endpoint");
        case UplinkConfig::Kind::kTap:
            break;
    }
    UplinkConfig own = config;
    TRY(auto state, open_inherited(config.inherited, loop.clock().now()));
    base::UniqueFd inherited;
    if (state) {
        state->begin("TAP ", 1);
        inherited = state->descriptor();
    }
    TRY(auto fd, open_tap(own, std::move(inherited)));
    auto tap = std::make_unique<TapUplink>(loop, network, own.name, std::move(fd));
    if (state) {
        tap->load(*state);
        state->end();
        TRY_VOID(state->result());
    }
    TRY_VOID(tap->watch());
    return std::unique_ptr<Uplink>(std::move(tap));
}

}  // namespace openmana::fabric
