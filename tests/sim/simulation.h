// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rnic/qp_table.h"
#include "sim/network.h"
#include "sim/node.h"
#include "sim/script.h"
#include "sim/wire_check.h"

namespace openmana::sim {

enum class Path : std::uint8_t { kWire, kLocal, kMixed };
[[nodiscard]] const char* name(Path path);

/// What the hosts of one connection saw in one phase, as far as it may not depend on time.
struct Observation {
    bool comparable = false;
    std::vector<std::uint64_t> words;
    friend bool operator==(const Observation&, const Observation&) = default;
};

struct Outcome {
    std::string failure;  ///< empty: all as it should be
    std::vector<std::vector<Observation>> phases;
    std::uint64_t operations = 0;
    std::uint64_t frames = 0;
    std::uint64_t lost = 0;
    std::uint64_t stragglers = 0;
    std::uint64_t worn_out = 0;      ///< connections that ran out of retries though the peer lived
    std::uint64_t rnr_worn_out = 0;  ///< whose receive came too late
    std::uint64_t timeouts = 0;
    std::uint64_t errors = 0;  ///< error completions
    std::uint64_t moves = 0;   ///< of a NIC
};

/// One run of a script over one kind of path. All NICs on one thread and on virtual time.
class Simulation final : public Outside, public Network::Listener {
public:
    /// `move_every`: a NIC becomes another one, which has its state, with one event of so many; 0:
    /// never.
    Simulation(const Script& script, Path path, const Weather& weather, bool verbose,
               unsigned move_every = 0);
    ~Simulation() override;
    Outcome run();

private:
    /// One end of a connection: its QP, and how far it got in this phase.
    struct Side {
        Node* node = nullptr;
        unsigned connection = 0;
        unsigned index = 0;
        std::uint32_t key = 0;  ///< what its completions are known by
        test::DriverCq* send_cq = nullptr;
        test::DriverCq* recv_cq = nullptr;
        std::unique_ptr<test::HostQp> qp;
        std::uint32_t psn = 0;  ///< first of this life
        WireCheck check;
        std::uint64_t messages = 0;  ///< posted in this life

        const SidePlan* plan = nullptr;
        std::size_t posted_sends = 0, posted_receives = 0;
        std::size_t done_sends = 0, done_receives = 0;  ///< successes
        bool send_error = false, recv_error = false;
        bool event = false;  ///< QP-fatal
        bool quiet = false;  ///< the host posts no more
        bool gone = false;   ///< reset, destroyed, or its function reset: nothing may come
        std::vector<std::uint64_t> log;
    };
    struct Connection {
        const ConnectionSetup* setup = nullptr;
        const ConnectionPlan* plan = nullptr;
        std::array<Side, 2> side;
        bool worn_out = false;  ///< retries exceeded because of the network, or of a late receive
        std::uint64_t disturbed = 0;  ///< frames of this phase that the network did something to
        bool event_done = false;
        std::uint32_t lives = 0;
        std::vector<std::byte> frozen;  ///< the victim's memory when it went away
    };

    // Outside, Listener
    void on_transmit(Node& from, base::Frame frame) override;
    const rnic::LocalPeer* peer_of(const roce::Gid& gid, const base::MacAddr& mac) override;
    void on_arrival(std::span<const base::Frame> frames) override;

    [[nodiscard]] bool set_up();
    [[nodiscard]] bool create_qp(Side& side);
    [[nodiscard]] bool connect(Connection& connection);
    void begin(const Phase& phase);
    void act();
    void post_receives(Side& side);
    void post_sends(Side& side);
    void happen(Connection& connection);
    void kill_function(Node& node);
    void step();
    void move();
    void poll();
    void poll(Node& node, test::DriverCq& cq);
    void on_send(Side& side, const test::Completion& completion);
    void on_receive(Side& side, const test::Completion& completion);
    void on_error(Side& side, const test::Completion& completion);
    void check_sent(Side& side, const SendOp& op, std::size_t index);
    [[nodiscard]] bool finished(const Connection& connection) const;
    [[nodiscard]] bool settled(const Connection& connection, const Side& side) const;
    void end_phase();
    void judge(Connection& connection);
    void judge_remains(Side& side);
    void judge_memory();
    void judge_counters();

    [[nodiscard]] Side& other(const Side& side) {
        return connections_[side.connection].side[1 - side.index];
    }
    [[nodiscard]] rnic::Qp* device(const Side& side) const {
        return side.qp && !side.node->dead
                   ? side.node->rnic.local_peer().qps.find(roce::Qpn(side.qp->qpn()))
                   : nullptr;
    }
    [[nodiscard]] Side* side_of(const Node& node, std::uint32_t qpn);
    [[nodiscard]] Side* sender_of(const Node& node, const roce::Packet& packet);
    [[nodiscard]] std::vector<std::byte> data_of(const Side& side, const SendOp& op);
    [[nodiscard]] std::uint64_t part_bytes(const Side& side) const;
    [[nodiscard]] std::uint64_t messages_of(const Side& side, const SendOp& op) const;
    [[nodiscard]] Memory& target_of(const Side& side, const SendOp& op) {
        Node& peer = *other(side).node;
        return op.rkey == KeyKind::kVictim ? peer.victim : peer.arena;
    }
    [[nodiscard]] static std::size_t nth_taker(const SidePlan& plan, std::size_t n);
    [[nodiscard]] static std::size_t takers_before(const SidePlan& plan, std::size_t index);
    void fail(const Side& side, const std::string& text);
    void fail(const std::string& text);
    void trace(const Side& side, const std::string& text) const;

    const Script& script_;
    const Path path_;
    const Weather weather_;
    const bool verbose_;
    test::SimWorld world_;
    test::SimExecutor executor_;
    base::Random path_random_;
    const unsigned move_every_;
    base::Random move_random_;
    Network network_;
    std::vector<std::unique_ptr<Node>> nodes_;
    std::vector<Connection> connections_;
    std::size_t phase_ = 0;
    base::TimePoint phase_start_{};
    base::Timer action_;
    std::vector<test::Completion> done_;
    Outcome outcome_;
};

}  // namespace openmana::sim
