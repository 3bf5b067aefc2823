// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gdma/function.h"
#include "rnic/rnic.h"
#include "roce/packet.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/move_device.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"

namespace openmana::test {

/// What happens to a frame.
struct Fate {
    bool lose = false;
    unsigned copies = 1;
    base::Duration delay = std::chrono::microseconds(1);
    bool corrupt = false;
};

class Node;

/// A NIC that says at once when there is no receive: for tests of RNR NAKs.
inline rnic::RnicConfig impatient() {
    rnic::RnicConfig config;
    config.receive_wait = {};
    return config;
}

/// The whole of a program's tests may run once more over the other family: the result must be the
/// same (ROCE 10).
inline bool over_ipv6() {
    static const bool wanted = std::getenv("OPENMANA_TEST_IPV6") != nullptr;
    return wanted;
}
/// An address that is none of a Node's, if `number` is not.
inline roce::Gid test_gid(std::uint8_t number, bool ipv6 = over_ipv6()) {
    return ipv6 ? ipv6_gid(number) : ipv4_gid(number);
}

/// Connects the RNICs of one world: by frames with a fate each, or by the local path.
class TestNetwork {
public:
    explicit TestNetwork(SimWorld& world) : executor_(world) {}
    bool local = false;
    std::function<Fate(const roce::Packet&)> fate;
    /// Looks at each frame before its fate is known.
    std::function<void(Node& from, const base::Frame&)> on_send;
    /// Gives a NIC what arrives for it; if there is none, the network does.
    std::function<void(Node& to, const base::Frame&)> on_arrival;
    std::function<void(roce::Packet&)> edit;  ///< what a peer of another make would have sent
    std::vector<Node*> nodes;
    /// 0: what the network says is good for one turn. Else a test raises it when `local` changes.
    std::uint64_t generation = 0;
    std::uint64_t lookups = 0;            ///< how often a NIC asked for a peer
    bool others_serve = false;            ///< all addresses that are claimed from now on
    std::uint64_t released = 0;           ///< addresses
    std::vector<roce::Packet> sent;       ///< all frames, without their payload
    std::vector<std::size_t> sent_bytes;  ///< payload bytes of each

    void transmit(Node& from, base::Frame frame);

private:
    struct Flight {
        std::unique_ptr<base::Timer> timer;
        base::Frame frame;
        bool landed = false;
    };
    void deliver(const base::Frame& frame);
    SimExecutor executor_;
    std::list<Flight> flights_;
    base::TimePoint last_{};
};

/// A NIC without its Ethernet half, and the driver and provider on it.
class Node final : private rnic::Network {
public:
    Node(SimWorld& world, TestNetwork& network, std::uint8_t number, rnic::RnicConfig config = {},
         bool ipv6 = over_ipv6())
        : executor(world),
          ram(memory),
          function(executor, memory, irq, {}),
          config_(with_mac(config, number)),
          rnic(function, config_, *this),
          host(function, ram, irq, test_mac(number), test_gid(number, ipv6)),
          network_(network) {
        network.nodes.push_back(this);
    }

    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    gdma::Function function;

private:
    const rnic::RnicConfig config_;

public:
    rnic::Rnic rnic;
    RdmaHost host;
    /// The device is another one from now on, which has read what this one has written. The text of
    /// what it has refused, if anything.
    [[nodiscard]] std::string move() { return move_device(function, rnic, irq, config_, *this); }
    std::function<void()> on_connection_ended;
    std::uint64_t room = UINT64_MAX;  ///< that the network has for its frames

private:
    static rnic::RnicConfig with_mac(rnic::RnicConfig config, std::uint8_t number) {
        config.mac = test_mac(number);
        return config;
    }
    void transmit(base::Frame frame) override { network_.transmit(*this, std::move(frame)); }
    [[nodiscard]] std::uint64_t transmit_room() const override { return room; }
    void connection_ended(const rnic::Connection&) override {
        if (on_connection_ended) on_connection_ended();
    }
    [[nodiscard]] std::uint64_t generation() const override { return network_.generation; }
    /// Others may wait for the network, and want to get in here before they answer.
    void expect_open() { EXPECT_TRUE(static_cast<bool>(base::Gate::TryVisit(function.gate()))); }
    bool claim_address(const roce::Address&) override {
        expect_open();
        return !network_.others_serve;
    }
    void release_address(const roce::Address&) override {
        expect_open();
        ++network_.released;
    }
    bool review_address(const roce::Address&) override {
        expect_open();
        return !network_.others_serve;
    }
    void addresses_changed() override {
        if (network_.generation != 0) ++network_.generation;
    }
    rnic::LocalEnd local_peer(const rnic::LocalPeer&, const rnic::Ends& ends) override {
        ++network_.lookups;
        if (!network_.local) return {};
        for (Node* node : network_.nodes)
            if (node->host.mac() == ends.destination_mac &&
                node->rnic.owns({ends.destination, ends.vlan}))
                return {&node->rnic.local_peer(), ends.vlan};
        return {};
    }
    TestNetwork& network_;
};

inline void TestNetwork::deliver(const base::Frame& frame) {
    const bool group = (frame[0] & std::byte{1}) != std::byte{};
    for (Node* node : nodes) {
        const auto& mac = node->host.mac();
        if (group ? std::memcmp(frame.data() + 6, mac.data(), 6) == 0
                  : std::memcmp(frame.data(), mac.data(), 6) != 0)
            continue;
        if (on_arrival)
            on_arrival(*node, frame);
        else
            node->rnic.receive(frame);
    }
}

inline void TestNetwork::transmit(Node& from, base::Frame frame) {
    if (on_send) on_send(from, frame);
    auto packet = roce::parse(frame);
    ASSERT_TRUE(packet) << packet.error().text;
    if (edit) {
        edit(*packet);
        base::Frame edited;
        roce::encode(*packet, edited);
        frame = std::move(edited);
        packet = roce::parse(frame);
    }
    const Fate what = fate ? fate(*packet) : Fate{};
    sent_bytes.push_back(packet->payload.size());
    sent.push_back(*packet);
    sent.back().payload = {};
    flights_.remove_if([](const Flight& flight) { return flight.landed; });
    if (what.lose) return;
    if (what.corrupt) frame[frame.size() / 2] ^= std::byte{0x10};
    for (unsigned i = 0; i < what.copies; ++i) {
        Flight& flight = flights_.emplace_back();
        flight.frame = frame;
        flight.timer = std::make_unique<base::Timer>(executor_, [this, &flight] {
            deliver(flight.frame);
            flight.landed = true;
        });
        base::TimePoint arrival = executor_.now() + what.delay * (i + 1);
        // Equal deadlines come in no order; the network keeps it unless a fate says otherwise.
        if (what.delay == Fate{}.delay)
            arrival = last_ = std::max(arrival, last_ + base::Duration(1));
        flight.timer->arm_at(arrival);
    }
}

/// Two NICs with an RC connection between them: A sends from PSN 0x100, B from 0x900.
class Connection {
public:
    static constexpr std::uint32_t kPsnA = 0x100;
    static constexpr std::uint32_t kPsnB = 0x900;
    static constexpr std::uint64_t kMr = 4ULL << 20;
    static constexpr std::uint32_t kAll =
        gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;

    struct Options {
        Options() {}  // so that the enclosing class may use it as a default
        std::uint32_t mtu = 1024;
        std::uint8_t timeout = 14;
        std::uint32_t retries = 7;
        std::uint32_t psn_a = kPsnA;
        std::uint32_t ring = 4096;
        std::uint32_t read_ring = 4096;  ///< of scatter lists
        bool connect = true;
        bool uc = false;
        bool ipv6 = over_ipv6();
        QpLimits limits_a{}, limits_b{};
    };
    struct Side {
        Node* node = nullptr;
        DriverCq send_cq, recv_cq;
        std::unique_ptr<HostQp> qp;
        base::GuestAddr buffer{};
        DriverMr mr;
        std::vector<Completion> done;

        [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t length) const {
            return node->ram.bytes(buffer + offset, length);
        }
        [[nodiscard]] gdma::Sge sge(std::uint64_t offset, std::uint32_t length) const {
            return {buffer.value() + offset, gdma::Key(mr.lkey), length};
        }
        void recv(std::uint64_t id, std::uint64_t offset, std::uint32_t length) {
            const gdma::Sge one = sge(offset, length);
            ASSERT_TRUE(node->host.post_recv(*qp, id, std::span(&one, 1)));
        }
        /// Looks at both CQs; what they give goes into `done`.
        void poll() {
            HostQp* const qps[] = {qp.get()};
            node->host.poll(send_cq, qps, done);
            node->host.poll(recv_cq, qps, done);
        }
        [[nodiscard]] std::size_t count(bool receive) const {
            return static_cast<std::size_t>(
                std::count_if(done.begin(), done.end(),
                              [&](const Completion& c) { return c.receive == receive; }));
        }
        [[nodiscard]] const Completion* find(bool receive, std::uint64_t id) const {
            for (const Completion& c : done)
                if (c.receive == receive && c.id == id) return &c;
            return nullptr;
        }
        [[nodiscard]] std::uint32_t error(bool receive) const {
            for (const Completion& c : done)
                if (c.receive == receive && c.type == MANA_HW_RNIC_CQE_ERROR) return c.vendor;
            return 0;
        }
        [[nodiscard]] const char* state() const { return node->rnic.qp_status().at(0).state; }
    };

    explicit Connection(bool local) : Connection(local, Options(), rnic::RnicConfig()) {}
    Connection(bool local, const Options& options, const rnic::RnicConfig& config)
        : network(world),
          nodes{{{world, network, 1, config, options.ipv6},
                 {world, network, 2, config, options.ipv6}}} {
        network.local = local;
        for (int i = 0; i < 2; ++i) set_up(i == 0 ? a : b, nodes[i], options);
        if (!options.connect) return;
        connect(options);
    }
    void connect(const Options& options) {
        const Peer to_b{b.node->host.gid(), b.node->host.mac(), b.qp->qpn(), kPsnB};
        const Peer to_a{a.node->host.gid(), a.node->host.mac(), a.qp->qpn(), options.psn_a};
        OM_CHECK(b.node->host.connect(*b.qp, kPsnB, to_a, options.mtu, options.timeout,
                                      options.retries, options.limits_b));
        OM_CHECK(a.node->host.connect(*a.qp, options.psn_a, to_b, options.mtu, options.timeout,
                                      options.retries, options.limits_a));
        world.run_until_idle();
        network.sent.clear();
        network.sent_bytes.clear();
    }

    /// Random bytes, none of its blocks like another at the same place: nearly all tests do this to
    /// two MiB first, so but one block is made and the others are that one, turned.
    static void fill(std::span<std::byte> memory, std::uint64_t seed) {
        constexpr std::size_t kBlock = 64U << 10;
        constexpr std::size_t kTurn = 4099;
        base::Random random(seed);
        std::vector<std::uint64_t> words(kBlock / sizeof(std::uint64_t));
        std::ranges::generate(words, [&] { return random.next(); });
        const auto block = std::as_bytes(std::span(words));
        std::size_t turned = 0;
        while (!memory.empty()) {
            const std::size_t n = std::min(memory.size(), kBlock - turned);
            std::ranges::copy(block.subspan(turned, n), memory.begin());
            memory = memory.subspan(n);
            const std::size_t rest = std::min(memory.size(), turned);
            std::ranges::copy(block.first(rest), memory.begin());
            memory = memory.subspan(rest);
            turned = (turned + kTurn) % kBlock;
        }
    }
    SendWr wr(std::uint32_t opcode, std::uint64_t id, std::uint64_t from, std::uint32_t length,
              std::uint64_t to = 0) {
        SendWr request;
        request.opcode = opcode;
        request.id = id;
        if (length > 0) request.sges.push_back(a.sge(from, length));
        request.remote_address = b.buffer.value() + to;
        request.rkey = b.mr.rkey;
        return request;
    }
    void post(const SendWr& request, bool ring = true) {
        ASSERT_TRUE(a.node->host.post_send(*a.qp, request, ring));
    }
    void poll() {
        a.poll();
        b.poll();
    }
    /// Until both sides have that many completions in all.
    bool run(std::size_t at_a, std::size_t at_b = 0,
             base::Duration limit = std::chrono::seconds(60)) {
        return world.run_until(
            [&] {
                poll();
                return a.done.size() >= at_a && b.done.size() >= at_b;
            },
            limit);
    }
    void idle(base::Duration time = std::chrono::milliseconds(1)) {
        world.advance(time);
        poll();
    }
    /// Frames with this opcode.
    [[nodiscard]] std::size_t frames(roce::Opcode opcode) const {
        return static_cast<std::size_t>(
            std::count_if(network.sent.begin(), network.sent.end(),
                          [&](const auto& p) { return p.opcode == opcode; }));
    }

    SimWorld world;
    TestNetwork network;
    std::array<Node, 2> nodes;
    Side a, b;

private:
    static void set_up(Side& side, Node& node, const Options& options) {
        side.node = &node;
        OM_CHECK(node.host.bring_up());
        side.send_cq = *node.host.create_cq(16384);
        side.recv_cq = *node.host.create_cq(16384);
        side.qp = options.uc
                      ? node.host.create_uc(side.send_cq, side.recv_cq, options.ring, options.ring)
                      : node.host.create_rc(side.send_cq, side.recv_cq, options.ring, options.ring,
                                            options.read_ring);
        OM_CHECK(side.qp != nullptr);
        side.buffer = node.ram.alloc(kMr);
        side.mr = *node.host.hwc().create_mr(node.host.pd, side.buffer, kMr, kAll);
    }
};

}  // namespace openmana::test
