// SPDX-License-Identifier: Apache-2.0
#include "fabric/xdp_uplink.h"

#include <net/ethernet.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/activity.h"
#include "base/error_text.h"
#include "base/log.h"
#include "base/mac_at.h"
#include "base/random_seed.h"
#include "fabric/flow_queues.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kTaggedHeader = ETHER_HDR_LEN + 4;

const char* name_of(XdpConfig::Mode mode, bool zero_copy) {
    if (mode == XdpConfig::Mode::kGeneric) return "generic";
    return zero_copy ? "zero-copy" : "copy";
}

}  // namespace

XdpUplink::XdpUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                     std::array<std::uint64_t, 3> key)
    : Uplink(loop, network, config.name),
      interface_(config.interface),
      config_(config.xdp),
      flow_key_{key[0], key[1]},
      addresses_(key[2] | 1, config.xdp.addresses),
      retry_(loop, [this] { try_open(); }),
      push_timer_(loop, [this] { push(); }),
      down_timer_(loop, [this] { say_down(); }) {}

base::Result<std::unique_ptr<XdpUplink>> XdpUplink::create(base::EventLoop& loop, Switch& network,
                                                           const UplinkConfig& config) {
    std::array<std::uint64_t, 3> key;
    for (std::uint64_t& word : key) {
        TRY(word, base::random_seed());
    }
    std::unique_ptr<XdpUplink> uplink(new XdpUplink(loop, network, config, key));
    // First, so that no change is missed.
    TRY(uplink->watch_, LinkWatch::create(loop, [raw = uplink.get()](const LinkState& link) {
            raw->changed(link);
        }));
    TRY_VOID(uplink->open());
    return uplink;
}

XdpUplink::~XdpUplink() {
    // Nobody delivers any more once the switch has let go of the port.
    network_.detach(*this);
    close();
}

base::Result<void> XdpUplink::open() {
    const XdpRequest request{interface_, config_.mode, config_.queues, addresses_.key()};
    const base::Activity::Scope doing("opening an interface");
    TRY(auto handles, config_.opener ? config_.opener->open(request) : open_xdp(request));
    if (auto adopted = adopt(std::move(handles)); !adopted) {
        close();
        return adopted;
    }
    xdp_.opens.add();
    called_ = interface_;
    last_error_.clear();
    say_how(facts_);
    set_link({facts_.index, interface_, false, facts_.up, facts_.mtu, facts_.mac});
    if (!connected())
        OM_WARN("uplink down: uplink={} interface={} reason=\"it was when it was opened\"", name_,
                called_);
    watch_->ask();  // what changed since it was looked at
    return {};
}

base::Result<void> XdpUplink::adopt(XdpHandles handles) {
    facts_ = handles.facts;
    open_ = true;
    program_ = std::move(handles.link);
    void* const at = ::mmap(nullptr, facts_.queues * XdpMemory::kBytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED, handles.memory.get(), 0);
    if (at == MAP_FAILED)
        return base::fail(base::ErrorCode::kIo, "cannot map the memory of the interface",
                          static_cast<unsigned>(errno));
    memory_ = {static_cast<std::byte*>(at), facts_.queues * XdpMemory::kBytes};
    TRY_VOID(addresses_.attach(handles.table.get()));
    for (std::size_t i = 0; i < facts_.queues; ++i) {
        XdpQueue& queue = queues_[i];
        TRY_VOID(queue.open(std::move(handles.queues[i]),
                            memory_.subspan(i * XdpMemory::kBytes, XdpMemory::kBytes), facts_));
        TRY_VOID(loop_.add(queue.fd(), EPOLLIN,
                           [this, &queue](std::uint32_t events) { read_queue(queue, events); }));
    }
    groups_.adopt(std::move(handles.groups));
    return loop_.add(groups_.fd(), EPOLLIN, [this](std::uint32_t) { read_groups(); });
}

void XdpUplink::say_how(const XdpHandles::Facts& facts) const {
    OM_INFO("uplink xdp: uplink={} queues={} mode={} program={} mtu={}", name_, facts.queues,
            name_of(config_.mode, facts.zero_copy), facts.generic ? "generic" : "driver",
            facts.mtu);
    if (facts.generic && config_.mode != XdpConfig::Mode::kGeneric)
        OM_WARN(
            "uplink slow: uplink={} reason=\"its driver takes no XDP program, or none with "
            "this MTU: each frame is copied twice\"",
            name_);
    if (facts.queues < facts.has)
        OM_WARN(
            "uplink queues: uplink={} queues={} of={} reason=\"what comes by the others is "
            "not taken\" cure=\"ethtool -L {} combined {}\"",
            name_, facts.queues, facts.has, interface_, facts.queues);
    const std::size_t fits = XdpMemory::kLargestReceived - kTaggedHeader;
    if (!facts.fragments && facts.mtu > fits)
        OM_WARN(
            "uplink frames: uplink={} mtu={} fits={} reason=\"no XDP of several buffers here "
            "(Linux 6.6): RDMA has a path MTU of 2048\" cure=\"mtu={} of the NICs\"",
            name_, facts.mtu, fits, fits);
}

void XdpUplink::close() {
    senders_.store(0, std::memory_order_relaxed);
    if (!open_) return;
    add_kernel_counts();
    open_ = false;
    push_timer_.cancel();
    push_asked_.store(false);
    down_timer_.cancel();
    for (XdpQueue& queue : queues_) {
        if (queue.fd() < 0) continue;
        loop_.remove(queue.fd());
        queue.close();
    }
    {
        const std::lock_guard lock(kernel_mutex_);
        kernel_ = {};  // the next sockets begin at 0
    }
    if (groups_.fd() >= 0) {
        xdp_.rx_groups_lost.add(groups_.lost());
        loop_.remove(groups_.fd());
    }
    groups_.close();
    host_ = {};
    addresses_.detach();
    program_.reset();
    if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
    memory_ = {};
}

void XdpUplink::lose(const char* reason) {
    OM_WARN("uplink end: uplink={} reason=\"{}\"", name_, reason);
    if (said_up_) xdp_.downs.add();
    said_up_ = false;
    close();
    retry_.arm(kRetry);
}

void XdpUplink::try_open() {
    if (open_) return;
    if (auto opened = open(); !opened) {
        // An interface that is not there is waited for; it tells when it comes.
        if (opened.error().code == base::ErrorCode::kNotFound) return;
        xdp_.open_errors.add();
        const std::string text = base::to_string(opened.error());
        if (text != last_error_) OM_WARN("uplink open: uplink={} reason=\"{}\"", name_, text);
        last_error_ = text;
        retry_.arm(kRetry);
        return;
    }
    OM_INFO("uplink again: uplink={}", name_);
}

void XdpUplink::changed(const LinkState& link) {
    if (!open_) {
        // At once: the timer is for what could not be.
        if (!link.gone && link.name == interface_ && last_error_.empty()) retry_.arm({});
        return;
    }
    if (link.index != facts_.index) return;
    if (link.gone) {
        lose("the interface is gone");
        return;
    }
    if (link.name != called_) {
        called_ = link.name;
        OM_INFO("uplink renamed: uplink={} interface={}", name_, called_);
    }
    set_link(link);
}

void XdpUplink::set_link(const LinkState& link) {
    largest_.store(link.mtu + kTaggedHeader, std::memory_order_relaxed);
    if (link.mtu != facts_.mtu)
        OM_INFO("uplink mtu: uplink={} mtu={} before={}", name_, link.mtu, facts_.mtu);
    facts_.mtu = link.mtu;
    facts_.up = link.up;
    if (link.mac != host_ && !addresses_.set_host(link.mac))
        OM_WARN("uplink address: uplink={} reason=\"the interface has the MAC address of a NIC\"",
                name_);
    host_ = link.mac;
    set_senders();
    if (!connected()) {
        // One that is removed goes down first: that has a line of its own.
        if (said_up_ && !down_timer_.armed()) down_timer_.arm(kDown);
        return;
    }
    down_timer_.cancel();
    ask_to_push();
    if (said_up_) return;
    said_up_ = true;
    OM_INFO("uplink up: uplink={} interface={}", name_, called_);
}

void XdpUplink::say_down() {
    said_up_ = false;
    xdp_.downs.add();
    OM_WARN("uplink down: uplink={} interface={}", name_, called_);
}

void XdpUplink::set_senders() {
    senders_.store(open_ && facts_.up ? facts_.senders : 0, std::memory_order_relaxed);
}

void XdpUplink::read_queue(XdpQueue& queue, std::uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
        int error = 0;
        socklen_t length = sizeof error;
        (void)::getsockopt(queue.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
        // The interface has gone, which comes here before rtnetlink tells.
        if (error != 0) {
            lose(error == ENETDOWN ? "the interface is gone" : std::strerror(error));
            return;
        }
    }
    const std::uint64_t oversized = queue.oversized();
    receive(queue.receive());
    queue.done();
    if (queue.oversized() != oversized) xdp_.rx_large.add(queue.oversized() - oversized);
}

void XdpUplink::read_groups() {
    const base::FrameViews frames = groups_.receive();
    if (frames.empty()) return;
    // Only who has many waiting can have lost some.
    if (frames.size() == GroupSocket::kFrames) xdp_.rx_groups_lost.add(groups_.lost());
    xdp_.rx_groups.add(frames.size());
    for (const base::FrameView frame : frames)
        if (frame.size() >= ETHER_HDR_LEN &&
            addresses_.saw_outside(frame.data() + base::kSourceMac))
            xdp_.moved.add();
    receive(frames);
}

/// Frames are taken for those from whom something came: so a guest behind a guest is reached, and
/// an uplink beside this one.
void XdpUplink::learn(base::FrameView frame) {
    using Learned = XdpAddresses::Learned;
    const Learned learned = addresses_.saw_inside(frame.data() + base::kSourceMac);
    if (learned == Learned::kKnown) return;
    if (learned == Learned::kRefused) {
        xdp_.refused.add();
        return;
    }
    xdp_.learned.add();
    if (learned == Learned::kReplaced) xdp_.replaced.add();
}

void XdpUplink::expect(const base::MacAddr& mac) {
    addresses_.add_fixed(mac);
}

void XdpUplink::expect_no_more(const base::MacAddr& mac) {
    addresses_.remove_fixed(mac);
}

void XdpUplink::deliver(base::FrameViews frames) {
    std::array<base::FrameView, XdpQueue::kBurst> good;
    while (!frames.empty()) {
        const base::FrameViews burst = frames.first(std::min(frames.size(), good.size()));
        frames = frames.subspan(burst.size());
        std::size_t count = 0;
        const std::size_t largest = largest_.load(std::memory_order_relaxed);
        for (const base::FrameView frame : burst) {
            if (frame.size() < ETHER_HDR_LEN || frame.size() > largest) continue;
            learn(frame);
            good[count++] = frame;
        }
        if (const auto large = burst.size() - count; large > 0) {
            xdp_.tx_large.add(large);
            counters_.tx_dropped.add(large);
        }
        const base::FrameViews rest = base::FrameViews(good).first(count);
        const std::size_t senders = senders_.load(std::memory_order_relaxed);
        if (senders == 0) {
            xdp_.tx_down.add(count);
            counters_.tx_dropped.add(count);
        } else if (senders == 1) {
            send(queues_[0], rest);
        } else {
            each_flow_queue(rest, senders, flow_key_,
                            [this](std::size_t queue, base::FrameViews frames) {
                                send(queues_[queue], frames);
                            });
        }
    }
}

void XdpUplink::send(XdpQueue& queue, base::FrameViews frames) {
    if (frames.empty()) return;
    const XdpQueue::Sent sent = queue.send(frames);
    count_sent(sent.frames, sent.bytes);
    if (sent.frames < frames.size()) {
        counters_.tx_dropped.add(frames.size() - sent.frames);
        xdp_.tx_full.add(sent.full);
        xdp_.tx_down.add(sent.closed);
        xdp_.tx_large.add(sent.large);
    }
    if (sent.waits) ask_to_push();
}

/// The kernel took no more for now, and does not say when it would.
void XdpUplink::ask_to_push() {
    if (push_asked_.exchange(true)) return;
    loop_.post([token = std::weak_ptr<int>(alive_), this] {
        if (token.expired()) return;
        push_wait_ = kFirstPush;
        push_timer_.arm(push_wait_);
    });
}

void XdpUplink::push() {
    push_asked_.store(false);
    bool waits = false;
    for (std::size_t i = 0; connected() && i < facts_.queues; ++i)
        waits = queues_[i].push() || waits;
    if (!waits || push_asked_.exchange(true)) return;
    push_wait_ = std::min(2 * push_wait_, kLastPush);
    push_timer_.arm(push_wait_);
}

void XdpUplink::add_kernel_counts() const {
    const std::lock_guard lock(kernel_mutex_);
    for (std::size_t i = 0; i < kernel_.size(); ++i) {
        const xdp_statistics now = queues_[i].statistics();
        xdp_statistics& before = kernel_[i];
        const auto add = [&](base::Counter& counter, auto field) {
            if (now.*field > before.*field) counter.add(now.*field - before.*field);
        };
        add(xdp_.kernel_rx_dropped, &xdp_statistics::rx_dropped);
        add(xdp_.kernel_rx_full, &xdp_statistics::rx_ring_full);
        add(xdp_.kernel_rx_invalid, &xdp_statistics::rx_invalid_descs);
        add(xdp_.kernel_fill_empty, &xdp_statistics::rx_fill_ring_empty_descs);
        add(xdp_.kernel_tx_invalid, &xdp_statistics::tx_invalid_descs);
        before = now;
    }
}

void XdpUplink::visit_counters(const CounterVisitor& visitor) const {
    add_kernel_counts();
    Uplink::visit_counters(visitor);
    xdp_.visit(visitor);
}

}  // namespace openmana::fabric
