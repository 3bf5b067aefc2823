// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/frame.h"
#include "base/guest_memory.h"
#include "eth/ethernet_device.h"
#include "fabric/demultiplexer.h"
#include "fabric/faults.h"
#include "fabric/frame_burst.h"
#include "fabric/peers.h"
#include "fabric/port_path.h"
#include "fabric/source_guard.h"
#include "fabric/switch.h"
#include "fabric/vlan_edge.h"
#include "gdma/function.h"
#include "pci/function_model.h"
#include "rnic/network.h"
#include "rnic/rnic.h"

namespace openmana::fabric {

struct NicConfig {
    std::string name = "nic";
    base::MacAddr mac{};
    std::uint16_t max_mtu = 9000;
    std::uint32_t link_speed_mbps = 100000;
    bool error_cqes_unasked = true;
    bool extensions = true;
    VlanConfig vlans;
    /// It is in its network from the first frame of its guest on, or when a guest has come to it
    /// from another host: until then another NIC has its MAC address there.
    bool incoming = false;
    /// It is in its network from appear() on, so that its owner may give up before that.
    bool apart = false;
    bool congestion = true;  ///< RoCE congestion control: ECN, CNP, DCQCN
    base::Duration gather = std::chrono::microseconds(20);  ///< rnic::RnicConfig has it
    std::uint64_t memory = 1ULL << 30;                      ///< that the guest may have us allocate
    std::uint64_t seed = 0;  ///< decides about keys and QP numbers (gdma::FunctionConfig)
};

#define OM_PORT_COUNTERS(X)                                                                      \
    X(tx_frames, "fabric.port.tx_frames", "frames from the NIC to the switch")                   \
    X(tx_bytes, "fabric.port.tx_bytes", "their bytes")                                           \
    X(rx_frames, "fabric.port.rx_frames", "frames from the switch to the NIC")                   \
    X(rx_bytes, "fabric.port.rx_bytes", "their bytes")                                           \
    X(link_down, "fabric.port.link_down", "frames dropped, either way, while the link was down") \
    X(foreign_source, "fabric.port.foreign_source",                                              \
      "frames of the guest dropped: RoCE from an address, or anything from a MAC address, of "   \
      "another NIC, or of the adapter from one that the NIC may not have now")                   \
    X(tx_vlan, "fabric.port.tx_vlan",                                                            \
      "frames of the guest dropped: of a VLAN that the NIC is not in")                           \
    X(rx_vlan, "fabric.port.rx_vlan",                                                            \
      "frames of the network not given to the guest: of a VLAN that the NIC is not in")          \
    X(address_vlan, "fabric.port.address_vlan",                                                  \
      "addresses that the guest gave its adapter in a VLAN that the NIC is not in")              \
    X(address_waits, "fabric.port.address_waits",                                                \
      "addresses that the guest gave its adapter, or had, while another NIC serves them")        \
    X(stopped, "fabric.port.stopped", "frames for the NIC dropped while it was stopped to move")

OM_COUNTERS(PortCounters, OM_PORT_COUNTERS);

/// One whole NIC: the GDMA function with its Ethernet and RDMA devices, on a port of the switch.
///
/// Everything but `deliver`, `link` and the counters is for the NIC's executor. It may come while
/// others are in traffic. Before it goes it leaves, and then others are given the time to be done
/// with what they have found of it.
class Nic final : public Port,
                  private Peer,
                  private Claims::Claimant,
                  private rnic::Network,
                  private PortPath::Exits {
public:
    Nic(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq, Switch& network,
        NicConfig config);
    ~Nic() override;

    [[nodiscard]] const NicConfig& config() const { return config_; }
    [[nodiscard]] gdma::Function& function() { return function_; }
    [[nodiscard]] eth::EthernetDevice& ethernet() { return ethernet_; }
    [[nodiscard]] rnic::Rnic& rdma() { return rdma_; }
    [[nodiscard]] const PortCounters& counters() const { return counters_; }

    /// What stages delay comes out of them, and what was sent has left: no state has either. On the
    /// executor, before its state is written.
    void flush();
    /// The state of the NIC, but for policies, faults and captures, which are its owner's. On the
    /// executor, while nobody visits; nothing changes.
    void save(base::StateWriter& out) const;
    /// Into a NIC that is as new, whose guest's memory is mapped. If it is refused, the NIC is as
    /// after a reset.
    base::Result<void> load(base::StateReader& in);
    /// What its owner has set, as far as it has a history: for a NIC of which the same was set. The
    /// same moments.
    void save_stages(base::StateWriter& out) const;
    void load_stages(base::StateReader& in);
    /// Takes the link down, and the NIC from its network: nobody finds it any more. Who has found
    /// it goes on with it to the end of what it is at. For a function that was reset.
    void leave();
    /// It is in its network from then on, if it is not yet; for one that has not left. On the
    /// executor.
    void appear();
    /// It stands still: it takes and sends nothing, nobody finds it in the network, and nobody is
    /// at it any more. Its executor has to stand still too. For a NIC that has not left.
    void stop();
    /// It goes on. If its guest's driver is at it, the network learns where it is; else it is there
    /// from the first frame on.
    void start();
    void set_link(bool up);
    /// Takes the link down and up again, over and over, whenever set_link has it up. Without a
    /// value: no more.
    void set_flaps(const std::optional<FlapConfig>& config);
    [[nodiscard]] const std::optional<FlapConfig>& flaps() const { return flaps_; }
    /// The stages between the guest and the switch.
    [[nodiscard]] PortPath& path() { return path_; }
    [[nodiscard]] bool link() const { return link_.load(std::memory_order_acquire); }

    /// Calls f(CounterInfo, value) for every counter of the NIC's layers, from any thread.
    template <typename F>
    void visit_counters(F&& f) {
        function_.counters().visit(f);
        ethernet_.counters().visit(f);
        rdma_.counters().visit(f);
        counters_.visit(f);
        path_.visit_counters(f);
    }

    /// Port: frames for this NIC.
    void deliver(base::FrameViews frames) override;
    using Port::deliver;
    [[nodiscard]] bool inside() const override { return true; }
    /// Interfaces of the guest with MAC addresses of their own reach each other by RDMA too.
    void returned(base::FrameView frame) override;

private:
    /// Frames of the Ethernet device; those of the RDMA device come in through Network.
    class EthernetSink final : public eth::Network {
    public:
        explicit EthernetSink(Nic& nic) : nic_(nic) {}
        void transmit(base::Frame frame) override { nic_.send(std::move(frame)); }
        [[nodiscard]] bool may_have(const base::MacAddr& mac) const override {
            return nic_.may_have(mac);
        }

    private:
        Nic& nic_;
    };
    /// What the devices send in a turn of the executor leaves at its end.
    class BurstSender final : public base::Poller {
    public:
        explicit BurstSender(Nic& nic) : nic_(nic) { nic_.executor_.add_poller(*this); }
        ~BurstSender() override { nic_.executor_.remove_poller(*this); }
        BurstSender(const BurstSender&) = delete;
        BurstSender& operator=(const BurstSender&) = delete;
        State poll() override {
            if (nic_.burst_.empty()) return State::kIdle;
            nic_.send_burst();
            return State::kWorked;
        }

    private:
        Nic& nic_;
    };
    void detach();
    void withdraw();
    void announce();
    bool give_mac(const base::MacAddr& mac, MacRight right);
    void take_mac(const base::MacAddr& mac, MacRight right);
    [[nodiscard]] bool carrier() const { return link_wanted_ && !flapped_down_; }
    void send(base::Frame frame);
    [[nodiscard]] bool stops_source(std::span<const std::byte> frame);
    void transmit(base::Frame frame) override;
    void transmit_lent(base::Frame& frame) override;
    void to_network(base::Frame frame) override;
    [[nodiscard]] bool into_vlan(base::Frame& frame);
    void leave_with_burst(base::Frame& frame);
    void send_burst();
    [[nodiscard]] bool stays(base::FrameView frame);
    void receive_own(base::FrameView frame);
    void to_guest(base::FrameView frame) override;
    std::size_t to_guest_now(base::FrameViews frames) override;
    void update_link();
    void flap();
    [[nodiscard]] std::uint64_t transmit_room() const override;
    void stages_changed() override;
    rnic::LocalEnd local_peer(const rnic::LocalPeer& self, const rnic::Ends& ends) override;
    [[nodiscard]] std::uint64_t generation() const override { return switch_.reach(); }
    bool claim_address(const roce::Address& address) override;
    void release_address(const roce::Address& address) override;
    bool review_address(const roce::Address& address) override;
    void addresses_changed() override { switch_.reach_changed(); }
    bool claim_mac(const base::MacAddr& mac) override;
    void release_mac(const base::MacAddr& mac) override;
    [[nodiscard]] bool may_claim(const base::MacAddr& mac) const override {
        return path_.may_have(mac);
    }
    [[nodiscard]] Port& port() override { return *this; }
    [[nodiscard]] bool foreign_mac(const base::MacAddr& mac) const;
    [[nodiscard]] bool may_have(const base::MacAddr& mac) const override {
        return mac == config_.mac || (path_.may_have(mac) && !foreign_mac(mac));
    }
    void review_macs();
    [[nodiscard]] const std::string& claimant_name() const override { return config_.name; }
    [[nodiscard]] Standing standing(const roce::Gid& address) const override;
    void claim_changed(const roce::Address& address) override;
    void review_changed_claims();
    void way_changed();
    void tell_address_waits(const roce::Address& address);
    void extensions_negotiated(bool wanted) override { ethernet_.allow_packets(wanted); }
    void connection_failed(const rnic::Connection& connection, rnic::Failure failure) override {
        path_.connection_failed(connection, failure);
    }
    void connection_ended(const rnic::Connection& connection) override {
        path_.connection_ended(connection);
    }
    [[nodiscard]] rnic::LocalEnd own_rdma(const roce::Address& destination) const;
    rnic::LocalEnd rdma_for(const rnic::Ends& ends) override;

    const NicConfig config_;
    base::Executor& executor_;
    Switch& switch_;
    PortCounters counters_;
    std::atomic<bool> link_{true};
    bool link_wanted_ = true;  // by set_link; the rest on the executor
    bool detached_ = false;
    bool stopped_ = false;    // then the link is down for all but the guest
    bool withdrawn_ = false;  // from the switch, which does not know its MAC addresses
    bool flapped_down_ = false;
    std::optional<FlapConfig> flaps_;
    base::Timer flap_timer_;
    PortPath path_;
    const VlanEdge edge_;  // behind it everything speaks of the network's VLANs
    SourceGuard guard_;
    FrameBurst burst_;
    std::vector<base::MacAddr> named_macs_;    // by the policy
    std::vector<base::MacAddr> claimed_macs_;  // by the adapter
    EthernetSink ethernet_sink_;
    gdma::Function function_;
    eth::EthernetDevice ethernet_;
    rnic::Rnic rdma_;
    Demultiplexer demultiplexer_;
    BurstSender burst_sender_{*this};  // behind the pollers of the devices, whose frames it sends
    base::TimePoint quiet_until_{};    // for log lines that a guest can ask for
    std::mutex changed_mutex_;         // protects the next two; behind the lock of the claims
    std::set<roce::Address> changed_claims_;  // of the network, of those that the NIC has
    bool review_waits_ = false;               // a task that looks at them
    std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // for posted tasks
};

}  // namespace openmana::fabric
