// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "gdma/function.h"
#include "rnic/rnic.h"
#include "sim/arrivals.h"
#include "sim/script.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/move_device.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"

namespace openmana::sim {

/// Memory that requests work on, and what it has to hold.
struct Memory {
    base::GuestAddr address{};
    std::span<std::byte> bytes;
    std::vector<std::byte> shadow;

    void fill(std::uint64_t seed) {
        base::Random random(seed);
        for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8)
            base::store_le<std::uint64_t>(bytes.data() + i, random.next());
        shadow.assign(bytes.begin(), bytes.end());
    }
    [[nodiscard]] std::span<std::byte> at(Range range) const {
        return bytes.subspan(range.offset, range.length);
    }
    [[nodiscard]] std::span<std::byte> wanted(Range range) {
        return std::span(shadow).subspan(range.offset, range.length);
    }
};

class Node;
/// The outside of a NIC.
struct Outside {
    virtual ~Outside() = default;
    virtual void on_transmit(Node& from, base::Frame frame) = 0;
    virtual const rnic::LocalPeer* peer_of(const roce::Gid& gid, const base::MacAddr& mac) = 0;
};

/// A NIC without its Ethernet half, its host, and the memory that peers may reach.
class Node final : private rnic::Network {
public:
    static constexpr std::uint64_t kVictimAddress = 0x40'0000'0000ULL;

    Node(test::SimWorld& world, Outside& outside, const Script& script, unsigned number)
        : executor(world),
          ram(memory, script.arena + (8U << 20)),
          function(executor, memory, irq, {}),
          config_(config(script, number)),
          rnic(function, config_, *this),
          host(function, ram, irq, test::test_mac(mac_byte(number)),
               script.ipv6 ? test::ipv6_gid(mac_byte(number)) : test::ipv4_gid(mac_byte(number))),
          number(number),
          arrivals(rnic, host.mac(), host.gid()),
          outside_(outside) {}

    [[nodiscard]] bool bring_up(const Script& script);
    /// The device is another one from now on, which has read what this one has written. The text of
    /// what it has refused, if anything.
    [[nodiscard]] std::string move() {
        return test::move_device(function, rnic, irq, config_, *this);
    }
    /// Registers the victim region, and maps its memory if it is not there.
    [[nodiscard]] bool restore_victim();
    [[nodiscard]] bool deregister_victim();
    [[nodiscard]] bool unmap_victim();

    [[nodiscard]] static std::uint8_t mac_byte(unsigned number) {
        return static_cast<std::uint8_t>(number + 1);
    }
    [[nodiscard]] gdma::Sge sge(const Sge& sge) const;
    /// Address and key that a peer names for this request.
    void name_remote(const SendOp& op, test::SendWr& wr) const;

    test::SimExecutor executor;
    base::GuestMemory memory;
    test::GuestRam ram;
    test::FakeIrq irq;
    gdma::Function function;

private:
    const rnic::RnicConfig config_;

public:
    rnic::Rnic rnic;
    test::RdmaHost host;
    const unsigned number;
    Memory arena;
    Memory victim;
    std::vector<test::DriverCq> send_cqs;
    std::vector<test::DriverCq> recv_cqs;
    std::vector<test::HostQp*> qps;
    Arrivals arrivals;
    bool dead = false;
    std::vector<std::byte> last_words;  ///< the arena when the function was reset

private:
    static rnic::RnicConfig config(const Script& script, unsigned number) {
        rnic::RnicConfig config;
        config.mac = test::test_mac(mac_byte(number));
        config.window_packets = script.window;
        return config;
    }
    void transmit(base::Frame frame) override { outside_.on_transmit(*this, std::move(frame)); }
    rnic::LocalEnd local_peer(const rnic::LocalPeer&, const rnic::Ends& ends) override {
        return {outside_.peer_of(ends.destination, ends.destination_mac), ends.vlan};
    }

    Outside& outside_;
    test::DriverMr good_, narrow_, read_only_, other_pd_;
    std::optional<test::DriverMr> victim_mr_;
    std::vector<std::byte> victim_memory_;
    bool victim_mapped_ = false;
};

}  // namespace openmana::sim
