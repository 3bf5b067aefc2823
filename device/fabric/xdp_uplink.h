// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/once_per.h"
#include "fabric/group_socket.h"
#include "fabric/link_watch.h"
#include "fabric/uplink.h"
#include "fabric/xdp_addresses.h"
#include "fabric/xdp_opener.h"
#include "fabric/xdp_queue.h"

namespace openmana::fabric {

#define OM_XDP_COUNTERS(X)                                                                         \
    X(tx_full, "fabric.xdp.tx_full", "frames dropped: all memory of their queue was on its way")   \
    X(tx_down, "fabric.xdp.tx_down", "frames dropped: the interface was down or not there")        \
    X(tx_large, "fabric.xdp.tx_large", "frames dropped: longer than the interface's MTU allows")   \
    X(rx_groups, "fabric.xdp.rx_groups", "frames that came in for groups")                         \
    X(rx_groups_lost, "fabric.xdp.rx_groups_lost", "more of them, for which there was no room")    \
    X(rx_large, "fabric.xdp.rx_large", "frames dropped: they came in more than 65,536 bytes")      \
    X(learned, "fabric.xdp.learned",                                                               \
      "addresses whose frames are taken since something came from them")                           \
    X(replaced, "fabric.xdp.replaced", "of these, those that took the place of another")           \
    X(moved, "fabric.xdp.moved", "learned addresses given up: they were seen outside")             \
    X(refused, "fabric.xdp.refused",                                                               \
      "frames that went out from an address whose frames are not taken: the host's, or a group's") \
    X(downs, "fabric.xdp.downs", "times that the interface went down")                             \
    X(opens, "fabric.xdp.opens", "times that the interface was opened")                            \
    X(open_errors, "fabric.xdp.open_errors", "times that it could not be")                         \
    X(kernel_rx_dropped, "fabric.xdp.kernel_rx_dropped",                                           \
      "frames that the kernel dropped: no memory, or too large for it")                            \
    X(kernel_rx_full, "fabric.xdp.kernel_rx_full",                                                 \
      "frames that the kernel dropped: the uplink's thread did not come to them")                  \
    X(kernel_rx_invalid, "fabric.xdp.kernel_rx_invalid", "entries that the kernel did not like")   \
    X(kernel_fill_empty, "fabric.xdp.kernel_fill_empty",                                           \
      "times that the kernel had no memory for a frame that came in")                              \
    X(kernel_tx_invalid, "fabric.xdp.kernel_tx_invalid",                                           \
      "entries to send that the kernel did not like")

OM_COUNTERS(XdpCounters, OM_XDP_COUNTERS);

/// An interface of the host, by AF_XDP: whole frames of its network, which the host goes on using.
/// What the XDP program takes for it comes by the sockets of the queues, what is for groups by a
/// GroupSocket. A flow leaves by one queue. All that comes in does on the loop's thread, since a
/// port has one thread that sends in.
class XdpUplink final : public Uplink {
public:
    static base::Result<std::unique_ptr<XdpUplink>> create(base::EventLoop& loop, Switch& network,
                                                           const UplinkConfig& config);
    ~XdpUplink() override;
    void deliver(base::FrameViews frames) override;
    void visit_counters(const CounterVisitor& visitor) const override;
    void expect(const base::MacAddr& mac) override;
    void expect_no_more(const base::MacAddr& mac) override;
    /// What the kernel has of its rings lies in memory that only this process has.
    [[nodiscard]] const char* bond() const override { return "is an interface (xdp=)"; }
    [[nodiscard]] bool connected() const override {
        return senders_.load(std::memory_order_relaxed) != 0;
    }

private:
    XdpUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
              std::array<std::uint64_t, 3> key);
    base::Result<void> open();
    base::Result<void> adopt(XdpHandles handles);
    void say_how(const XdpHandles::Facts& facts) const;
    void close();
    void lose(const char* reason);
    void try_open();
    void changed(const LinkState& link);
    void set_link(const LinkState& link);
    void set_senders();
    void say_down();
    void read_queue(XdpQueue& queue, std::uint32_t events);
    void read_groups();
    void learn(base::FrameView frame);
    void send(XdpQueue& queue, base::FrameViews frames);
    void ask_to_push();
    void push();
    void add_kernel_counts() const;

    static constexpr base::Duration kDown = std::chrono::milliseconds(50);
    static constexpr base::Duration kRetry = std::chrono::seconds(1);
    static constexpr base::Duration kFirstPush = std::chrono::microseconds(200);
    static constexpr base::Duration kLastPush = std::chrono::milliseconds(50);

    const std::string interface_;
    const XdpConfig config_;
    const std::array<std::uint64_t, 2> flow_key_;
    XdpAddresses addresses_;
    mutable XdpCounters xdp_;
    /// How many queues can send now; 0 while it is closed or down. Of itself alone, relaxed: who
    /// comes too late finds a queue closed.
    std::atomic<std::size_t> senders_{0};
    std::atomic<std::size_t> largest_{0};  // frame; of itself alone, relaxed
    mutable std::vector<XdpQueue> queues_{XdpConfig::kMaxQueues};
    std::atomic<bool> push_asked_{false};

    // Of the loop's thread.
    XdpHandles::Facts facts_;
    std::span<std::byte> memory_;
    base::UniqueFd program_;
    GroupSocket groups_;
    std::unique_ptr<LinkWatch> watch_;
    std::string called_;    // the name that it has now
    base::MacAddr host_{};  // its address
    bool open_ = false;
    std::string last_error_;
    base::Timer retry_;
    base::Timer push_timer_;
    base::Timer down_timer_;
    bool said_up_ = false;
    base::Duration push_wait_ = kFirstPush;
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for tasks that come too late

    mutable std::mutex kernel_mutex_;                                     // protects kernel_
    mutable std::array<xdp_statistics, XdpConfig::kMaxQueues> kernel_{};  // counted already
};

}  // namespace openmana::fabric
