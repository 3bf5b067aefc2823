// SPDX-License-Identifier: Apache-2.0
#include "sim/simulation.h"

#include <mana/rnic_queue.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "rnic/adapter.h"

namespace openmana::sim {

using test::Completion;

namespace {

constexpr std::uint64_t kKeyShift = 32;
constexpr base::Duration kPatience = std::chrono::seconds(30);

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
std::string number(std::uint64_t value) {
    return std::to_string(value);
}
std::string hex(std::uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(value));
    return text;
}

}  // namespace

const char* name(Path path) {
    static constexpr const char* kNames[] = {"wire", "local", "mixed"};
    return kNames[static_cast<std::size_t>(path)];
}

Simulation::Simulation(const Script& script, Path path, const Weather& weather, bool verbose,
                       unsigned move_every)
    : script_(script),
      path_(path),
      weather_(weather),
      verbose_(verbose),
      executor_(world_),
      path_random_(script.seed ^ 0x7061'7468ULL),
      move_every_(move_every),
      move_random_(script.seed ^ 0x6d6f'7665ULL),
      network_(world_, weather, script.seed, *this),
      action_(executor_, [this] { act(); }) {}

Simulation::~Simulation() = default;

void Simulation::fail(const std::string& text) {
    if (!outcome_.failure.empty()) return;
    outcome_.failure = "phase " + number(phase_) + ", t=" +
                       number(static_cast<std::uint64_t>((world_.now() - phase_start_).count())) +
                       " ns: " + text;
}
void Simulation::fail(const Side& side, const std::string& text) {
    fail("connection " + number(side.connection) + " side " + number(side.index) + " (" +
         name(connections_[side.connection].plan->plan) + "): " + text);
}
void Simulation::trace(const Side& side, const std::string& text) const {
    if (!verbose_) return;
    std::printf("%10lld  %u.%u %s\n", static_cast<long long>((world_.now() - phase_start_).count()),
                side.connection, side.index, text.c_str());
}

bool Simulation::set_up() {
    for (unsigned i = 0; i < script_.nodes; ++i) {
        nodes_.push_back(std::make_unique<Node>(world_, *this, script_, i));
        if (!nodes_.back()->bring_up(script_)) return false;
    }
    for (auto& node : nodes_) {
        node->send_cqs.reserve(2 * script_.connections.size());
        node->recv_cqs.reserve(2 * script_.connections.size());
    }
    connections_.resize(script_.connections.size());
    for (unsigned i = 0; i < connections_.size(); ++i) {
        Connection& connection = connections_[i];
        connection.setup = &script_.connections[i];
        for (unsigned s = 0; s < 2; ++s) {
            Side& side = connection.side[s];
            Node& node = *nodes_[connection.setup->node[s]];
            side.node = &node;
            side.connection = i;
            side.index = s;
            side.key = 1 + 2 * i + s;
            if (node.send_cqs.empty() || !script_.shared_cqs) {
                auto send = node.host.create_cq(8192);
                auto recv = node.host.create_cq(8192);
                if (!send || !recv) return false;
                node.send_cqs.push_back(std::move(*send));
                node.recv_cqs.push_back(std::move(*recv));
            }
            side.send_cq = &node.send_cqs.back();
            side.recv_cq = &node.recv_cqs.back();
            if (!create_qp(side)) return false;
        }
        if (!connect(connection)) return false;
    }
    return true;
}

bool Simulation::create_qp(Side& side) {
    const std::uint32_t ring = connections_[side.connection].setup->ring;
    side.qp = side.node->host.create_rc(*side.send_cq, *side.recv_cq, ring, ring);
    if (!side.qp) return false;
    side.node->qps.push_back(side.qp.get());
    return true;
}

/// From RESET on both sides. Each life is far from the PSNs of the ones before.
bool Simulation::connect(Connection& connection) {
    const ConnectionSetup& setup = *connection.setup;
    const std::uint32_t far = connection.lives++ << 20;
    for (Side& side : connection.side) side.psn = (setup.psn[side.index] + far) & 0xffffff;
    test::QpLimits limits;
    limits.rnr_retry = setup.rnr_retry;
    limits.rnr_timer = setup.rnr_timer;
    limits.reads_in = setup.reads;
    limits.reads_out = static_cast<std::uint8_t>(setup.reads);
    for (Side& side : connection.side) {
        const Side& peer = other(side);
        const auto& host = peer.node->host;
        if (!side.node->host.connect(*side.qp, side.psn,
                                     {host.gid(), host.mac(), peer.qp->qpn(), peer.psn}, setup.mtu,
                                     setup.timeout, setup.retries, limits))
            return false;
        side.check.start({setup.mtu, setup.reads, script_.window, path_ == Path::kWire},
                         roce::Psn(side.psn), roce::Psn(peer.psn));
        side.messages = 0;
        side.gone = false;
    }
    return true;
}

const rnic::LocalPeer* Simulation::peer_of(const roce::Gid& gid, const base::MacAddr& mac) {
    if (path_ == Path::kWire) return nullptr;
    if (path_ == Path::kMixed && path_random_.below(3) == 0) return nullptr;
    for (auto& node : nodes_)
        if (node->host.mac() == mac && node->rnic.owns(gid)) return &node->rnic.local_peer();
    return nullptr;
}

Simulation::Side* Simulation::side_of(const Node& node, std::uint32_t qpn) {
    for (Connection& connection : connections_)
        for (Side& side : connection.side)
            if (side.node == &node && side.qp && side.qp->qpn() == qpn) return &side;
    return nullptr;
}

/// Whose frame this is, by whom it is for.
Simulation::Side* Simulation::sender_of(const Node& node, const roce::Packet& packet) {
    for (Connection& connection : connections_)
        for (Side& side : connection.side) {
            if (side.node != &node || !side.qp) continue;
            const Side& peer = other(side);
            const rnic::Qp* qp = device(side);
            if (qp != nullptr && qp->route.dest_qpn == packet.destination_qpn &&
                peer.node->host.mac() == packet.destination_mac)
                return &side;
        }
    return nullptr;
}

void Simulation::on_transmit(Node& from, base::Frame frame) {
    // 14
    const auto packet = roce::parse(frame);
    if (!packet) return fail("a frame is sent that cannot be parsed");
    base::Frame again;
    roce::encode(*packet, again);
    if (again != frame) return fail("a frame does not encode to itself");
    Side* side = sender_of(from, *packet);
    if (side == nullptr) return fail("a frame of no connection is sent");
    const std::string wrong = side->check.sent(*device(*side), *packet, other(*side).messages);
    if (verbose_)
        trace(*side,
              "sends opcode " + hex(static_cast<unsigned>(packet->opcode)) + " psn " +
                  hex(packet->psn.value()) + " bytes " + number(packet->payload.size()) +
                  (packet->info().has(roce::kHasAeth) ? " syndrome " + hex(packet->aeth.syndrome)
                                                      : std::string()));
    if (!wrong.empty()) fail(*side, wrong);
    if (!network_.transmit(std::move(frame))) ++connections_[side->connection].disturbed;
}

void Simulation::on_arrival(std::span<const base::Frame> frames) {
    for (const base::Frame& frame : frames) {
        Node& node = *nodes_.at(static_cast<unsigned>(frame[5]) - 1);
        if (node.dead) continue;
        // What is due by now is no doing of the frame.
        if (frames.size() == 1) node.executor.run_once();
        const auto packet = roce::parse(frame);
        if (packet && !packet->info().response && packet->opcode != roce::Opcode::kCnp) {
            if (Side* side = side_of(node, packet->destination_qpn.value()))
                side->check.arriving(*device(*side), *packet);
        }
        // Dealt with here and now, so that what it did can be told from what the next one does.
        node.arrivals.count(frame, [&] {
            if (frames.size() > 1) return node.rnic.adapter().dispatcher.handle_frame(frame);
            node.rnic.receive(frame);
            node.executor.run_once();
        });
    }
    if (frames.size() < 2) return;
    // What more than one frame asks for is answered together.
    for (auto& node : nodes_)
        if (!node->dead) node->rnic.adapter().inbox.serve();
}

void Simulation::begin(const Phase& phase) {
    phase_start_ = world_.now();
    for (unsigned i = 0; i < connections_.size(); ++i) {
        Connection& connection = connections_[i];
        connection.plan = &phase.connections[i];
        connection.worn_out = connection.event_done = false;
        connection.disturbed = 0;
        connection.frozen.clear();
        for (Side& side : connection.side) {
            side.plan = &connection.plan->side[side.index];
            side.posted_sends = side.posted_receives = side.done_sends = side.done_receives = 0;
            side.send_error = side.recv_error = side.event = side.quiet = false;
            side.log.clear();
        }
    }
    action_.arm(base::Duration(1));
}

/// Does what is due, and sees to it that what is next is done in time.
void Simulation::act() {
    const base::Duration now = world_.now() - phase_start_;
    base::Duration next = base::Duration::max();
    for (Connection& connection : connections_)
        for (Side& side : connection.side) post_receives(side);
    for (Connection& connection : connections_) {
        for (Side& side : connection.side) post_sends(side);
        if (races(connection.plan->plan) && !connection.event_done) {
            if (connection.plan->event_at <= now)
                happen(connection);
            else
                next = std::min(next, connection.plan->event_at);
        }
    }
    constexpr base::Duration kAgain = std::chrono::microseconds(3);  // a full ring
    for (const Connection& connection : connections_)
        for (const Side& side : connection.side) {
            if (side.quiet) continue;
            if (side.posted_sends < side.plan->sends.size())
                next =
                    std::min(next, std::max(side.plan->sends[side.posted_sends].at, now + kAgain));
            if (side.posted_receives < side.plan->receives.size())
                next = std::min(
                    next, std::max(side.plan->receives[side.posted_receives].at, now + kAgain));
        }
    if (next != base::Duration::max()) action_.arm_at(phase_start_ + next);
}

void Simulation::post_receives(Side& side) {
    const base::Duration now = world_.now() - phase_start_;
    while (!side.quiet && side.posted_receives < side.plan->receives.size()) {
        const RecvOp& op = side.plan->receives[side.posted_receives];
        if (op.at > now) return;
        std::vector<gdma::Sge> sges;
        for (const Sge& sge : op.sges) sges.push_back(side.node->sge(sge));
        const std::uint64_t id = std::uint64_t{side.key} << kKeyShift | side.posted_receives;
        if (!side.node->host.post_recv(*side.qp, id, sges)) return;
        trace(side, "posts receive " + number(side.posted_receives) + " of " + number(op.length()));
        ++side.posted_receives;
    }
}

std::uint64_t Simulation::part_bytes(const Side& side) const {
    const ConnectionSetup& setup = *connections_[side.connection].setup;
    return std::uint64_t{rnic::read_part(script_.window, setup.reads)} * setup.mtu;
}

/// A READ is one for each of its parts (ROCE 3.2).
std::uint64_t Simulation::messages_of(const Side& side, const SendOp& op) const {
    if (!op.is_read()) return 1;
    return 1 + (std::max<std::uint64_t>(1, op.length()) - 1) / part_bytes(side);
}

void Simulation::post_sends(Side& side) {
    const base::Duration now = world_.now() - phase_start_;
    bool owed = false;
    while (!side.quiet && side.posted_sends < side.plan->sends.size()) {
        const SendOp& op = side.plan->sends[side.posted_sends];
        if (op.at > now) break;
        test::SendWr wr;
        wr.opcode = op.opcode;
        for (const Sge& sge : op.sges) wr.sges.push_back(side.node->sge(sge));
        if (op.opcode == MANA_HW_RNIC_WQE_SEND_INV)
            other(side).node->name_remote(op, wr);
        else if (op.is_read() || op.is_write())
            other(side).node->name_remote(op, wr);
        wr.immediate = op.immediate;
        wr.fence = op.fence;
        wr.solicited = op.solicited;
        wr.signaled = op.signaled;
        wr.id = std::uint64_t{side.key} << kKeyShift | side.posted_sends;
        // The MSN counts what the peer's responder finishes, hence what is posted here.
        const std::uint64_t messages = messages_of(side, op);
        side.messages += messages;
        if (!side.node->host.post_send(*side.qp, wr, false)) {
            side.messages -= messages;
            break;
        }
        trace(side, "posts " + number(side.posted_sends) + " opcode " + number(op.opcode) + " of " +
                        number(op.length()) + (op.fence ? " fenced" : ""));
        ++side.posted_sends;
        ++outcome_.operations;
        owed = true;
        if (op.ring) {
            side.qp->send.doorbell();
            owed = false;
        }
    }
    if (owed) side.qp->send.doorbell();
}

/// What the plan of a race has in store.
void Simulation::happen(Connection& connection) {
    connection.event_done = true;
    poll();
    poll();  // an error of the first made the host move to ERR, which flushes the rest
    Side& side = connection.side[0];
    Node& peer = *connection.side[1].node;
    trace(side, name(connection.plan->plan));
    switch (connection.plan->plan) {
        case Plan::kHostError:
            side.quiet = true;
            if (!side.node->host.to_state(*side.qp, MANA_HW_RNIC_QP_ERR)) fail(side, "ERR refused");
            break;
        case Plan::kHostReset:
            side.quiet = side.gone = true;
            if (!side.node->host.reset(*side.qp)) fail(side, "RESET refused");
            break;
        case Plan::kDestroy:
            side.quiet = side.gone = true;
            if (!side.node->host.destroy_rc(*side.qp)) fail(side, "destroy refused");
            std::erase(side.node->qps, side.qp.get());
            side.qp.reset();
            break;
        case Plan::kDeregister:
            if (!peer.deregister_victim())
                fail(side, "deregistration refused, status " + hex(peer.host.hwc().last_status));
            connection.frozen.assign(peer.victim.bytes.begin(), peer.victim.bytes.end());
            break;
        case Plan::kUnmap:
            if (!peer.unmap_victim()) fail(side, "unmap refused");
            connection.frozen.assign(peer.victim.bytes.begin(), peer.victim.bytes.end());
            break;
        default:  // kFunctionReset
            kill_function(*connections_.front().side[0].node);
            break;
    }
}

void Simulation::kill_function(Node& node) {
    if (node.dead) return;
    for (Connection& connection : connections_)
        for (Side& side : connection.side)
            if (side.node == &node) side.quiet = side.gone = true;
    {
        const base::Gate::Exclusion alone(node.function.gate());
        node.function.reset();
    }
    node.dead = true;
    node.last_words.assign(node.arena.bytes.begin(), node.arena.bytes.end());
}

/// After each event: what came to the hosts, and what has to hold at all times.
void Simulation::step() {
    poll();
    for (Connection& connection : connections_)
        for (Side& side : connection.side)
            if (const rnic::Qp* qp = device(side); qp != nullptr)
                if (const std::string wrong =
                        side.gone ? WireCheck::timers(*qp) : side.check.at_rest(*qp);
                    !wrong.empty())
                    fail(side, wrong);
}

/// Now and then, between two events, a NIC becomes another one.
void Simulation::move() {
    if (move_every_ == 0 || move_random_.below(move_every_) != 0) return;
    Node& node = *nodes_[move_random_.below(nodes_.size())];
    if (node.dead) return;
    if (const std::string refused = node.move(); !refused.empty())
        return fail("the state of NIC " + number(node.number) + " is refused: " + refused);
    ++outcome_.moves;
    step();
}

void Simulation::poll() {
    // Receives first: a SEND that succeeded has been received.
    for (const bool receives : {true, false})
        for (auto& node : nodes_)
            if (!node->dead)
                for (test::DriverCq& cq : receives ? node->recv_cqs : node->send_cqs)
                    poll(*node, cq);
}

void Simulation::poll(Node& node, test::DriverCq& cq) {
    done_.clear();
    node.host.poll(cq, node.qps, done_);
    for (const Completion& completion : done_) {
        const auto key = static_cast<std::uint32_t>(completion.id >> kKeyShift);
        if (key == 0) return fail("a completion for work that is not outstanding");
        Side& side = connections_[(key - 1) / 2].side[(key - 1) % 2];
        if (side.gone) return fail(side, "a completion after RESET");
        if (completion.type == MANA_HW_RNIC_CQE_ERROR)
            on_error(side, completion);
        else if (completion.receive)
            on_receive(side, completion);
        else
            on_send(side, completion);
    }
}

std::size_t Simulation::nth_taker(const SidePlan& plan, std::size_t n) {
    for (std::size_t i = 0; i < plan.sends.size(); ++i)
        if (plan.sends[i].takes_receive() && n-- == 0) return i;
    return plan.sends.size();
}
std::size_t Simulation::takers_before(const SidePlan& plan, std::size_t index) {
    return static_cast<std::size_t>(
        std::count_if(plan.sends.begin(), plan.sends.begin() + static_cast<std::ptrdiff_t>(index),
                      [](const SendOp& op) { return op.takes_receive(); }));
}

/// The bytes that the operation carries: those of its own memory, or for a READ the peer's.
std::vector<std::byte> Simulation::data_of(const Side& side, const SendOp& op) {
    std::vector<std::byte> data;
    if (op.is_read()) {
        const auto source = target_of(side, op).wanted(op.remote);
        data.assign(source.begin(), source.end());
        return data;
    }
    for (const Sge& sge : op.sges) {
        const auto source = side.node->arena.wanted(sge.range);
        data.insert(data.end(), source.begin(), source.end());
    }
    return data;
}

namespace {

/// Compares memory that `data` was scattered to, and takes it over as what has to stay there.
bool arrived(Memory& memory, const std::vector<Sge>& sges, std::span<const std::byte> data) {
    for (const Sge& sge : sges) {
        const auto length =
            static_cast<std::uint32_t>(std::min<std::size_t>(sge.range.length, data.size()));
        const Range part{sge.range.offset, length};
        if (!same(memory.at(part), data.first(length))) return false;
        std::ranges::copy(data.first(length), memory.wanted(part).begin());
        data = data.subspan(length);
    }
    return data.empty();
}

}  // namespace

void Simulation::check_sent(Side& side, const SendOp& op, std::size_t index) {
    const std::vector<std::byte> data = data_of(side, op);
    if (op.is_read()) {
        if (!arrived(side.node->arena, op.sges, data)) fail(side, "READ data is wrong");
        return;
    }
    if (op.is_write() && !arrived(target_of(side, op), {{op.remote, KeyKind::kGood}}, data))
        fail(side, "WRITE " + number(index) + " succeeded, and its bytes are not there");
    if (!op.takes_receive()) return;
    const Side& peer = other(side);
    if (!peer.gone && !peer.node->dead && peer.done_receives <= takers_before(*side.plan, index))
        fail(side, "SEND " + number(index) + " succeeded, and was not received");
}

void Simulation::on_send(Side& side, const Completion& completion) {
    const auto index = static_cast<std::size_t>(completion.id & 0xffffffff);
    trace(side, "completes " + number(index));
    if (side.send_error) return fail(side, "a success behind an error");
    if (index != side.done_sends || index >= side.posted_sends)
        return fail(side, "send completion " + number(index) + " out of order");
    const SendOp& op = side.plan->sends[index];
    if (op.fate != Fate::kSuccess) return fail(side, "operation " + number(index) + " succeeded");
    check_sent(side, op, index);
    ++side.done_sends;
    side.log.push_back(index);
}

void Simulation::on_receive(Side& side, const Completion& completion) {
    const auto index = static_cast<std::size_t>(completion.id & 0xffffffff);
    trace(side, "receives " + number(index) + " length " + number(completion.length));
    if (completion.vendor != 0) return fail(side, "a receive completion names another receive");
    if (side.recv_error) return fail(side, "a receive behind an error");
    if (index != side.done_receives || index >= side.posted_receives)
        return fail(side, "receive completion " + number(index) + " out of order");
    Side& peer = other(side);
    const std::size_t sender = nth_taker(*peer.plan, index);
    if (sender >= peer.posted_sends) return fail(side, "a message that nobody sent");
    const SendOp& op = peer.plan->sends[sender];
    std::uint32_t type = MANA_HW_RNIC_CQE_SEND;
    if (op.opcode == MANA_HW_RNIC_WQE_SEND_IMM) type = MANA_HW_RNIC_CQE_SEND_IMM;
    if (op.opcode == MANA_HW_RNIC_WQE_WRITE_IMM) type = MANA_HW_RNIC_CQE_WRITE_IMM;
    if (completion.type != type) return fail(side, "a receive of the wrong kind");
    if (completion.length != op.length()) return fail(side, "a receive of the wrong length");
    if (type != MANA_HW_RNIC_CQE_SEND && completion.immediate != op.immediate)
        return fail(side, "a wrong immediate");
    const std::vector<std::byte> data = data_of(peer, op);
    if (op.is_write()) {
        if (!arrived(target_of(peer, op), {{op.remote, KeyKind::kGood}}, data))
            fail(side, "a WRITE with immediate is announced, and its bytes are not there");
    } else if (!arrived(side.node->arena, side.plan->receives[index].sges, data)) {
        fail(side, "the bytes of receive " + number(index) + " are wrong");
    }
    ++side.done_receives;
    side.log.push_back(1ULL << 40 | std::uint64_t{completion.type} << 32 | completion.length);
}

void Simulation::on_error(Side& side, const Completion& completion) {
    const auto index = static_cast<std::size_t>(completion.id & 0xffffffff);
    Connection& connection = connections_[side.connection];
    const ConnectionPlan& plan = *connection.plan;
    const std::uint32_t vendor = completion.vendor;
    trace(side, std::string(completion.receive ? "receive" : "send") + " error " + hex(vendor) +
                    " at " + number(index));
    ++outcome_.errors;
    bool& told = completion.receive ? side.recv_error : side.send_error;
    if (told) fail(side, "a second error CQE of one side");
    told = true;
    if (index != (completion.receive ? side.done_receives : side.done_sends))
        fail(side, "an error that skips work");
    const bool race = races(plan.plan) || connection.worn_out;
    bool right = vendor == MANA_HW_RNIC_VE_FLUSHED && (race || completion.receive);
    if (completion.receive) {
        if (!race && side.index == 1 && plan.receive_vendor != 0)
            right = vendor == plan.receive_vendor;
        else if (race && plan.receive_vendor != 0)
            right = right || vendor == plan.receive_vendor;
    } else {
        const SendOp& op = side.plan->sends[index];
        if (op.fate == Fate::kFails && vendor == op.vendor) right = true;
        if (races(plan.plan))
            right = right || vendor == MANA_HW_RNIC_VE_RETRY ||
                    vendor == MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS;
        const rnic::Qp* peer = device(other(side));
        const bool silent = peer != nullptr && peer->state() == MANA_HW_RNIC_QP_ERR;
        if (vendor == MANA_HW_RNIC_VE_RETRY && !races(plan.plan) &&
            (op.vendor != vendor || !silent)) {
            // Each try fails for a frame of its own. But a peer that has failed is silent, and its
            // one NAK may have got lost; or it wore out itself.
            const std::uint64_t needed = silent ? 1 : std::uint64_t{connection.setup->retries} + 1;
            right = connection.worn_out || connection.disturbed >= needed;
            if (!silent) ++outcome_.worn_out;
            connection.worn_out = true;
        }
        if (vendor == MANA_HW_RNIC_VE_RNR_RETRY && op.vendor != vendor) {
            // Its receive came later than the request; how often it is tried depends on time.
            const auto& receives = other(side).plan->receives;
            const std::size_t receive = takers_before(*side.plan, index);
            right = connection.setup->scarce && op.takes_receive() && receive < receives.size() &&
                    receives[receive].at > op.at;
            ++outcome_.rnr_worn_out;
            connection.worn_out = true;
        }
    }
    if (!right) fail(side, "the error " + hex(vendor) + " is not the right one");
    side.log.push_back(2ULL << 40 | std::uint64_t{completion.receive} << 32 | vendor);
    side.quiet = true;
    if (plan.host_follows && !side.node->host.to_state(*side.qp, MANA_HW_RNIC_QP_ERR))
        fail(side, "ERR refused");
}

/// Nothing is left of what this side's host has to hear.
bool Simulation::settled(const Connection& connection, const Side& side) const {
    if (side.gone) return true;
    const rnic::Qp* qp = device(side);
    const bool all_posted = side.quiet || (side.posted_sends == side.plan->sends.size() &&
                                           side.posted_receives == side.plan->receives.size());
    if (!all_posted) return false;
    if (qp->state() == MANA_HW_RNIC_QP_ERR)
        return (side.send_error || side.done_sends == side.posted_sends) &&
               (side.recv_error || side.done_receives == side.posted_receives);
    if (side.send_error) return false;
    if (side.done_sends < side.posted_sends) return false;
    const bool race = races(connection.plan->plan) || connection.worn_out;
    return race || connection.plan->plan != Plan::kTraffic ||
           side.done_receives == side.posted_receives;
}

bool Simulation::finished(const Connection& connection) const {
    if (races(connection.plan->plan) && !connection.event_done) return false;
    return settled(connection, connection.side[0]) && settled(connection, connection.side[1]);
}

namespace {

/// Memory that a message which was not finished may have reached from its start on: the bytes
/// placed. -1 if it is anything but old behind new.
std::int64_t placed(Memory& memory, const std::vector<Sge>& sges, std::span<const std::byte> data) {
    std::int64_t count = 0;
    bool old = false;
    for (const Sge& sge : sges) {
        const auto now = memory.at(sge.range);
        auto wanted = memory.wanted(sge.range);
        for (std::size_t i = 0; i < now.size(); ++i) {
            if (!old && !data.empty() && now[i] == data.front()) {
                ++count;
                data = data.subspan(1);
                continue;
            }
            old = true;
            if (now[i] != wanted[i]) return -1;
        }
        std::ranges::copy(now, wanted.begin());
    }
    return count;
}
/// Takes the first `count` bytes there as they are. False if something has changed behind them.
bool adopt(Memory& memory, const std::vector<Sge>& sges, std::uint64_t count) {
    for (const Sge& sge : sges) {
        const auto now = memory.at(sge.range);
        const auto wanted = memory.wanted(sge.range);
        const auto begin = static_cast<std::size_t>(std::min<std::uint64_t>(count, now.size()));
        std::ranges::copy(now.first(begin), wanted.begin());
        if (!std::ranges::equal(now.subspan(begin), wanted.subspan(begin))) return false;
        count -= begin;
    }
    return true;
}
bool untouched(Memory& memory, const std::vector<Sge>& sges) {
    return std::ranges::all_of(
        sges, [&](const Sge& sge) { return same(memory.at(sge.range), memory.wanted(sge.range)); });
}

}  // namespace

/// The operations of a side that did not succeed: where their bytes could have gone there is either
/// the beginning of the message or what was there before, and nothing of what comes behind one that
/// is not complete.
void Simulation::judge_remains(Side& side) {
    Connection& connection = connections_[side.connection];
    Side& peer = other(side);
    const bool race = races(connection.plan->plan) || connection.worn_out;
    bool cut = false;  // what is not complete has been met
    for (std::size_t i = side.done_sends; i < side.posted_sends; ++i) {
        const SendOp& op = side.plan->sends[i];
        const std::vector<std::byte> data = data_of(side, op);
        if (op.is_read()) {
            // What lies before the end of the region may have come, as parts of the READ.
            const std::uint64_t parts = op.rkey == KeyKind::kRange ? messages_of(side, op) - 1 : 0;
            if (parts > 0 && !adopt(side.node->arena, op.sges, parts * part_bytes(side)))
                fail(side, "a failed READ left something behind its parts");
            else if (parts == 0 && placed(side.node->arena, op.sges, data) < 0)
                fail(side, "a failed READ left garbage");
            continue;
        }
        Memory* memory = &side.node->arena;
        std::vector<Sge> where;
        if (op.is_write()) {
            memory = &target_of(side, op);
            // A key that does not open names nothing of ours.
            if (op.rkey == KeyKind::kGood || op.rkey == KeyKind::kVictim)
                where = {{op.remote, KeyKind::kGood}};
        } else {
            memory = &peer.node->arena;
            const std::size_t receive = takers_before(*side.plan, i);
            // One that was received is taken over already.
            if (receive < peer.done_receives || receive >= peer.posted_receives) continue;
            where = peer.plan->receives[receive].sges;
        }
        if (cut || (!race && op.fate == Fate::kFlushed)) {
            if (!untouched(*memory, where))
                fail(side, "operation " + number(i) + " has effects behind one that failed");
            continue;
        }
        const std::int64_t count = placed(*memory, where, data);
        if (count < 0) fail(side, "operation " + number(i) + " failed and left garbage");
        cut = !data.empty() && static_cast<std::size_t>(count) < data.size();
    }
}

void Simulation::judge(Connection& connection) {
    const ConnectionPlan& plan = *connection.plan;
    for (Side& side : connection.side) judge_remains(side);
    for (Side& side : connection.side) {
        if (side.gone || side.node->dead) continue;
        const bool error = device(side)->state() == MANA_HW_RNIC_QP_ERR;
        if (side.event && !error) fail(side, "a fatal event of a QP that is not in ERR");
        if (races(plan.plan) || connection.worn_out) continue;
        if (side.event == (side.send_error || side.recv_error) && (side.event || error))
            fail(side, "an error is told twice, or not at all");
        if (plan.plan == Plan::kTraffic) continue;
        const auto failing = static_cast<std::size_t>(
            std::find_if(side.plan->sends.begin(), side.plan->sends.end(),
                         [](const SendOp& op) { return op.fate == Fate::kFails; }) -
            side.plan->sends.begin());
        if (side.index == 0 && (!side.send_error || side.done_sends != failing))
            fail(side, "operation " + number(failing) + " should have failed");
        if (side.index == 1 &&
            side.done_receives != takers_before(*other(side).plan, other(side).done_sends))
            fail(side, number(side.done_receives) + " receives are complete");
        if (side.index == 1 && plan.receive_vendor != 0 && !side.recv_error)
            fail(side, "the receive error is missing");
    }
}

void Simulation::judge_memory() {
    for (auto& node : nodes_) {
        if (!node->last_words.empty() && !same(node->arena.bytes, node->last_words))
            fail("node " + number(node->number) + ": memory changed after the function reset");
        for (Memory* memory : {&node->arena, &node->victim}) {
            if (same(memory->bytes, memory->shadow)) continue;
            const auto now = std::ranges::mismatch(memory->bytes, memory->shadow).in1;
            fail("node " + number(node->number) + ": byte " +
                 number(static_cast<std::uint64_t>(now - memory->bytes.begin())) +
                 (memory == &node->victim ? " of the victim" : "") + " changed");
        }
    }
    for (Connection& connection : connections_) {
        if (connection.frozen.empty()) continue;
        if (!same(connection.side[1].node->victim.bytes, connection.frozen))
            fail(connection.side[1], "memory changed after it was taken back");
    }
}

/// 13: each frame that arrived is accounted for.
void Simulation::judge_counters() {
    for (auto& node : nodes_) {
        if (node->dead) continue;
        const std::string wrong = node->arrivals.wrong(path_ == Path::kWire);
        if (!wrong.empty()) fail("counters of node " + number(node->number) + ": " + wrong);
    }
}

void Simulation::end_phase() {
    for (auto& node : nodes_) {
        if (node->dead) continue;
        for (const test::Eqe& event : node->host.fatal_eq.drain()) {
            Side* side = side_of(*node, event.data[0]);
            if (side == nullptr) continue;
            if (side->event) fail(*side, "a second fatal event");
            side->event = true;
        }
    }
    for (Connection& connection : connections_) judge(connection);
    judge_memory();
    judge_counters();
    std::vector<Observation>& seen = outcome_.phases.emplace_back();
    for (Connection& connection : connections_) {
        Observation& observation = seen.emplace_back();
        observation.comparable = !races(connection.plan->plan) && !connection.worn_out;
        for (const Side& side : connection.side) {
            observation.words.push_back(std::uint64_t{3} << 40 | std::uint64_t{side.event} << 1 |
                                        side.index);
            // Sends and receives of a side come in no order between them.
            for (const bool receives : {false, true})
                for (const std::uint64_t word : side.log) {
                    const bool receive =
                        word >> 40 == 1 || (word >> 40 == 2 && (word >> 32 & 1) != 0);
                    if (receive == receives) observation.words.push_back(word);
                }
        }
        const bool clean = connection.plan->plan == Plan::kTraffic && !connection.worn_out;
        if (phase_ + 1 == script_.phases.size() || (clean && phase_ % 2 == 0)) continue;
        for (Side& side : connection.side) {
            if (side.qp ? !side.node->host.reset(*side.qp) : !create_qp(side))
                return fail(side, "no RESET, or no new QP");
        }
        if (!connect(connection)) fail("cannot connect again");
    }
    for (auto& node : nodes_)
        if (!node->dead && !node->restore_victim()) fail("the victim cannot be restored");
}

Outcome Simulation::run() {
    if (!set_up()) {
        fail("set-up failed");
        return outcome_;
    }
    for (phase_ = 0; phase_ < script_.phases.size() && outcome_.failure.empty(); ++phase_) {
        begin(script_.phases[phase_]);
        if (verbose_) std::printf("-- %s, phase %zu\n", name(path_), phase_);
        const bool ended = world_.run_until(
            [&] {
                step();
                move();
                return !outcome_.failure.empty() ||
                       std::ranges::all_of(connections_, [&](const Connection& connection) {
                           return finished(connection);
                       });
            },
            kPatience);
        if (!outcome_.failure.empty()) break;
        if (!ended) {
            for (Connection& connection : connections_)
                for (Side& side : connection.side)
                    if (!settled(connection, side))
                        fail(side, "stands still with " + number(side.done_sends) + " of " +
                                       number(side.posted_sends) + " sends and " +
                                       number(side.done_receives) + " of " +
                                       number(side.posted_receives) + " receives done; " +
                                       WireCheck::position(*device(side)) + "; peer " +
                                       (device(other(side)) != nullptr
                                            ? WireCheck::position(*device(other(side)))
                                            : std::string("gone")));
            fail("stands still");
            break;
        }
        end_phase();
    }
    outcome_.frames = network_.frames();
    outcome_.lost = network_.lost();
    outcome_.stragglers = network_.stragglers();
    for (const auto& node : nodes_) outcome_.timeouts += node->rnic.counters().timeouts.value();
    return outcome_;
}

}  // namespace openmana::sim
