// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rnic_fixture.h"
#include "support/ext_host.h"

namespace openmana::test {

/// Two NICs whose drivers know the extension, and a connection of extended QPs between them. Each
/// case of ExtPathTest runs on the local path and on the wire.
class ExtLink {
public:
    static constexpr std::uint32_t kPsn = 0x100;
    static constexpr std::uint64_t kMr = 1ULL << 20;
    static constexpr std::uint32_t kAll = gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead |
                                          gdma::kRemoteWrite | gdma::kRemoteAtomic |
                                          gdma::kBindWindow;

    struct Options {
        Options() {}
        ExtQpOptions a, b;
        ExtPath path;
        bool connect = true;
        bool srq = false;  ///< for B
        std::uint32_t entries = 256;
    };
    /// Both ends are UC.
    [[nodiscard]] static Options uc() {
        Options options;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UC;
        return options;
    }
    struct Side {
        Node* node = nullptr;
        std::unique_ptr<ExtHost> host;
        ExtCq send_cq, recv_cq;
        std::optional<ExtSrq> srq;
        ExtQp qp;
        base::GuestAddr buffer{};
        DriverMr mr;

        [[nodiscard]] std::span<std::byte> at(std::uint64_t offset, std::uint64_t length) const {
            return node->ram.bytes(buffer + offset, length);
        }
        [[nodiscard]] std::uint64_t& word(std::uint64_t offset) const {
            return *reinterpret_cast<std::uint64_t*>(node->ram.at(buffer + offset));
        }
        [[nodiscard]] gdma::Sge sge(std::uint64_t offset, std::uint32_t length) const {
            return {buffer.value() + offset, gdma::Key(mr.lkey), length};
        }
        void recv(std::uint32_t cookie, std::uint64_t offset, std::uint32_t length) {
            const gdma::Sge one = sge(offset, length);
            if (srq)
                srq->post(cookie, std::span(&one, 1));
            else
                host->recv(qp, cookie, std::span(&one, 1));
        }
        void post(const ExtWr& wr) { host->post(qp, wr); }
        [[nodiscard]] std::uint32_t state() const { return host->query_qp(qp)->state; }
        [[nodiscard]] bool had_event(std::uint32_t id, std::uint32_t number) {
            for (const auto& event : host->events()) seen.push_back(event);
            return std::ranges::count(seen, std::pair(id, number)) == 1;
        }
        std::vector<std::pair<std::uint32_t, std::uint32_t>> seen;
    };

    explicit ExtLink(bool local, const Options& options = Options())
        : network(world), nodes{{{world, network, 1}, {world, network, 2}}} {
        network.local = local;
        set_up(a, nodes[0], options, options.a);
        set_up(b, nodes[1], options, options.b);
        if (options.connect) connect(options.path);
    }
    void connect(const ExtPath& path) {
        OM_CHECK(b.host->connect(b.qp, kPsn, peer(a), path));
        OM_CHECK(a.host->connect(a.qp, kPsn, peer(b), path));
        world.run_until_idle();
        network.sent.clear();
    }
    [[nodiscard]] static Peer peer(const Side& side) {
        return {side.node->host.gid(), side.node->host.mac(), side.qp.qpn, kPsn};
    }
    ExtWr wr(std::uint8_t opcode, std::uint64_t from, std::uint32_t length,
             std::uint64_t to = 0) const {
        ExtWr request;
        request.opcode = opcode;
        if (length > 0) request.sges.push_back(a.sge(from, length));
        request.remote_address = b.buffer.value() + to;
        request.rkey = b.mr.rkey;
        return request;
    }
    /// Until that many CQEs came, in all, to A's send CQ and B's receive CQ.
    bool run(std::size_t sends, std::size_t receives = 0,
             base::Duration limit = std::chrono::seconds(60)) {
        return world.run_until(
            [&] {
                for (const auto& cqe : a.send_cq.drain()) sent.push_back(cqe);
                for (const auto& cqe : b.recv_cq.drain()) received.push_back(cqe);
                return sent.size() >= sends && received.size() >= receives;
            },
            limit);
    }
    void idle(base::Duration time = std::chrono::milliseconds(1)) {
        world.advance(time);
        (void)run(0);
    }
    [[nodiscard]] bool same(std::uint64_t at_a, std::uint64_t at_b, std::uint64_t length) const {
        return std::ranges::equal(a.at(at_a, length), b.at(at_b, length));
    }
    [[nodiscard]] std::size_t frames(roce::Opcode opcode) const {
        return static_cast<std::size_t>(std::ranges::count_if(
            network.sent, [&](const auto& packet) { return packet.opcode == opcode; }));
    }

    SimWorld world;
    TestNetwork network;
    std::array<Node, 2> nodes;
    Side a, b;
    std::vector<mana_hw_ext_cqe> sent, received;

private:
    static void set_up(Side& side, Node& node, const Options& options, ExtQpOptions qp) {
        side.node = &node;
        node.host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
        OM_CHECK(node.host.bring_up());
        side.host = std::make_unique<ExtHost>(node.host);
        side.send_cq = *side.host->create_cq(options.entries);
        side.recv_cq = *side.host->create_cq(options.entries);
        if (options.srq && node.host.mac() == test_mac(2)) {
            side.srq = side.host->create_srq();
            OM_CHECK(side.srq.has_value());
            qp.srq = &*side.srq;
        }
        const auto made = side.host->create_qp(side.send_cq, side.recv_cq, qp);
        OM_CHECK(made.has_value());
        side.qp = *made;
        side.buffer = node.ram.alloc(kMr);
        side.mr = *node.host.hwc().create_mr(node.host.pd, side.buffer, kMr, kAll);
        Connection::fill(side.at(0, kMr / 2), node.host.mac()[5]);
    }
};

class ExtPathTest : public ::testing::TestWithParam<bool> {
protected:
    void open(const ExtLink::Options& options = ExtLink::Options()) {
        link = std::make_unique<ExtLink>(GetParam(), options);
    }
    std::unique_ptr<ExtLink> link;
};

}  // namespace openmana::test
