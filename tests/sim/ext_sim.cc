// SPDX-License-Identifier: Apache-2.0
// Seeded runs of extended queue pairs between two NICs over a bad network, on virtual time: RC and
// UC, own and shared receives, atomics on words that all share, memory windows; datagrams to queue
// pairs and to a group. Each run is checked byte by byte and completion by completion, and for the
// invariants of the transport's design that hold at any time and for each frame; the ninth (atomics
// take effect once) is what `sim_test` cannot check with stock queue pairs.
#include <mana/gdma.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <set>
#include <string>

#include "rnic/datapath.h"
#include "rnic/qp_table.h"
#include "sim/arrivals.h"
#include "sim/wire_check.h"
#include "unit/rnic/ext_fixture.h"

namespace openmana::sim {
namespace {

using test::ExtCq;
using test::ExtLink;
using test::ExtQp;
using test::ExtWr;

enum class Path : std::uint8_t { kWire, kLocal, kMixed };
constexpr const char* kPathNames[] = {"wire", "local", "mixed"};

constexpr std::uint8_t kRemoteAccess = 10, kFlushed = 5, kRetryExceeded = 12, kRemoteAborted = 16;
constexpr std::uint32_t kSlot = 3072;     ///< bytes of one WRITE or READ at most
constexpr std::uint32_t kReceive = 1500;  ///< of one receive
constexpr std::uint64_t kTargets = 0x80000;
constexpr std::uint64_t kReceives = 0xd0000;
constexpr std::uint64_t kResults = 0xf0000;  ///< of atomics, at A
constexpr std::uint64_t kWords = 0xf8000;    ///< of atomics, at B
constexpr unsigned kOperations = 24;
constexpr std::uint64_t kDatagrams = 0xc8000;         ///< what A sends; at B what receives
constexpr std::uint64_t kDatagramReceives = 0xcc000;  ///< at A
constexpr std::uint32_t kDatagramSlot = 512;
constexpr unsigned kMostDatagrams = 32;
constexpr unsigned kListenerSlots = 16;
constexpr std::array<std::uint32_t, 2> kQkeys = {0x1234, 0x1235};

/// A request of A and what has to come of it.
struct Operation {
    std::uint8_t opcode = 0;
    std::uint64_t from = 0, to = 0;
    std::uint32_t length = 0;
    std::uint64_t expected = 0;  ///< compare and swap: what it finds
    unsigned word = 0;
};

/// A connection of A's queue pair to B's.
struct Connection {
    bool reliable = true;
    bool shared = false;
    ExtQp a, b;
    ExtCq a_send, a_recv, b_send, b_recv;
    std::deque<Operation> posted;
    std::vector<Operation> received;  ///< SENDs, in their order
    std::uint64_t own_word = 0;       ///< what A's own word at B holds now
    unsigned to_post = kOperations;
    std::size_t messages = 0;  ///< that B has got
    std::uint32_t next_send = 0;
    bool failed = false;  ///< by the network, or on purpose
    test::DriverMr window;
    std::uint64_t requests = 0;  ///< posted by A: all that B's MSN can count
    WireCheck check_a, check_b;  ///< reliable ones
};

/// A datagram queue pair that listens.
struct Listener {
    ExtLink::Side* side = nullptr;
    ExtQp qp;
    ExtCq send, recv;
    std::uint32_t qkey = 0;
    bool joined = false;  ///< the group
    std::vector<std::uint64_t> free;
    std::uint64_t got = 0;
};

/// A datagram of A, to a listener of B, to the group, or to a queue pair that takes none.
struct Datagram {
    static constexpr unsigned kGroup = 100, kNobody = 101;
    unsigned target = 0;
    std::uint32_t qkey = 0;
    std::uint32_t length = 0;
    bool immediate = false;
    unsigned frames = 0;   ///< sent; none on the local path
    unsigned arrived = 0;  ///< intact
    std::array<unsigned, 4> got{};
    [[nodiscard]] unsigned copies() const { return frames == 0 ? 1 : arrived; }
};

class Run {
public:
    /// `move_every`: with one event of so many a NIC becomes another one, which has its state.
    Run(std::uint64_t seed, Path path, std::uint64_t move_every)
        : random_(seed),
          path_(path),
          move_every_(move_every),
          move_random_(~seed),
          link_(path == Path::kLocal, options()) {}

    /// Empty if all was as it should be.
    std::string go() {
        set_up();
        link_.network.fate = [this](const roce::Packet&) { return weather(); };
        link_.network.on_send = [this](test::Node& from, const base::Frame& frame) {
            sent(from, frame);
        };
        link_.network.on_arrival = [this](test::Node& to, const base::Frame& frame) {
            arrived(to, frame);
        };
        const bool done = link_.world.run_until(
            [this] {
                move();
                return step();
            },
            std::chrono::seconds(120));
        if (!done && failure_.empty()) fail("not done after two minutes");
        if (failure_.empty()) end();
        return failure_;
    }
    std::uint64_t operations = 0;
    std::uint64_t moves = 0;
    std::uint64_t worn_out = 0;
    std::uint64_t datagrams = 0;  ///< delivered

private:
    static ExtLink::Options options() {
        ExtLink::Options options;
        options.connect = false;
        options.srq = true;
        return options;
    }
    void fail(const std::string& text) {
        if (failure_.empty()) failure_ = text;
    }
    void move() {
        if (move_every_ == 0 || move_random_.below(move_every_) != 0) return;
        ExtLink::Side& side = move_random_.below(2) == 0 ? link_.a : link_.b;
        if (const std::string refused = side.node->move(); !refused.empty())
            fail("the state of a NIC is refused: " + refused);
        ++moves;
    }
    test::Fate weather() {
        test::Fate fate;
        fate.lose = random_.chance_ppm(loss_);
        if (random_.chance_ppm(duplicates_)) fate.copies = 2;
        fate.corrupt = random_.chance_ppm(corruption_);
        if (random_.chance_ppm(delays_))
            fate.delay = std::chrono::nanoseconds(1 + random_.below(30000));
        return fate;
    }
    void set_up() {
        loss_ = static_cast<std::uint32_t>(random_.below(100000));
        duplicates_ = static_cast<std::uint32_t>(random_.below(30000));
        corruption_ = static_cast<std::uint32_t>(random_.below(20000));
        delays_ = static_cast<std::uint32_t>(random_.below(100000));
        static constexpr std::uint32_t kMtus[] = {256, 512, 1024, 2048, 4096};
        connections_.resize(1 + random_.below(4));
        for (unsigned i = 0; i < connections_.size(); ++i) {
            Connection& c = connections_[i];
            // The first is always reliable, so that each run has atomics.
            c.reliable = i == 0 || random_.below(4) != 0;
            c.shared = random_.below(2) == 0;
            c.a_send = *link_.a.host->create_cq(64);
            c.a_recv = *link_.a.host->create_cq(64);
            c.b_send = *link_.b.host->create_cq(64);
            c.b_recv = *link_.b.host->create_cq(64);
            test::ExtQpOptions wish;
            wish.type = c.reliable ? MANA_HW_EXT_QP_RC : MANA_HW_EXT_QP_UC;
            c.a = *link_.a.host->create_qp(c.a_send, c.a_recv, wish);
            if (c.shared) wish.srq = &*link_.b.srq;
            c.b = *link_.b.host->create_qp(c.b_send, c.b_recv, wish);
            test::ExtPath path;
            path.mtu = kMtus[random_.below(5)];
            path.timeout = 9;
            const auto peer = [](const ExtLink::Side& side, const ExtQp& qp) {
                return test::Peer{side.node->host.gid(), side.node->host.mac(), qp.qpn,
                                  ExtLink::kPsn};
            };
            OM_CHECK(link_.b.host->connect(c.b, ExtLink::kPsn, peer(link_.a, c.a), path));
            OM_CHECK(link_.a.host->connect(c.a, ExtLink::kPsn, peer(link_.b, c.b), path));
            link_.b.word(kWords + 64 + 8 * i) = c.own_word = random_.next();
            c.window = *link_.b.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
        }
        for (unsigned w = 0; w < 2; ++w) link_.b.word(kWords + 8 * w) = 0;
        for (const ExtLink::Side* side : {&link_.a, &link_.b})
            arrivals_.emplace_back(side->node->rnic, side->node->host.mac(),
                                   side->node->host.gid());
        for (Connection& c : connections_) {
            if (!c.reliable) continue;
            c.check_a.start(limits(*device(link_.a, c.a)), roce::Psn(ExtLink::kPsn),
                            roce::Psn(ExtLink::kPsn));
            c.check_b.start(limits(*device(link_.b, c.b)), roce::Psn(ExtLink::kPsn),
                            roce::Psn(ExtLink::kPsn));
        }
        set_up_datagrams();
    }
    [[nodiscard]] static rnic::Qp* device(const ExtLink::Side& side, const ExtQp& qp) {
        return side.node->rnic.local_peer().qps.find(roce::Qpn(qp.qpn));
    }
    [[nodiscard]] WireCheck::Limits limits(const rnic::Qp& qp) const {
        return {qp.route.mtu, qp.attributes.max_read_out, qp.datapath.config.window_packets,
                path_ == Path::kWire};
    }
    /// The reliable connection whose queue pair at the other end has this number.
    Connection* connection_to(const test::Node& from, const roce::Packet& packet) {
        if (roce::transport(packet.opcode) != roce::Transport::kRc) return nullptr;
        const std::uint32_t qpn = packet.destination_qpn.value();
        for (Connection& c : connections_)
            if (c.reliable && (&from == link_.a.node ? c.b.qpn : c.a.qpn) == qpn) return &c;
        return nullptr;
    }
    void sent(const test::Node& from, const base::Frame& frame) {
        const auto packet = roce::parse(frame);
        base::Frame again;
        roce::encode(*packet, again);
        if (again != frame) fail("a frame does not encode to itself");
        if (Datagram* const datagram = datagram_in(*packet)) ++datagram->frames;
        Connection* const c = connection_to(from, *packet);
        if (c == nullptr) return;
        const bool a = &from == link_.a.node;
        const rnic::Qp& qp = a ? *device(link_.a, c->a) : *device(link_.b, c->b);
        // B posts nothing that A would have to answer.
        const std::string wrong =
            (a ? c->check_a : c->check_b).sent(qp, *packet, a ? 0 : c->requests);
        if (!wrong.empty()) fail(wrong);
    }
    void arrived(test::Node& to, const base::Frame& frame) {
        const bool a = &to == link_.a.node;
        to.executor.run_once();  // what is due by now is no doing of the frame
        if (const auto packet = roce::parse(frame)) {
            if (Datagram* const datagram = datagram_in(*packet)) ++datagram->arrived;
            Connection* const c = connection_to(a ? *link_.b.node : *link_.a.node, *packet);
            if (c != nullptr && !packet->info().response && packet->opcode != roce::Opcode::kCnp)
                (a ? c->check_a : c->check_b)
                    .arriving(a ? *device(link_.a, c->a) : *device(link_.b, c->b), *packet);
        }
        arrivals_[a ? 0 : 1].count(frame, [&] {
            to.rnic.receive(frame);
            to.executor.run_once();
        });
    }

    // Datagrams

    [[nodiscard]] static roce::Gid group() {
        roce::Gid gid = test::ipv4_gid(1);
        gid[12] = 239;
        return gid;
    }
    void set_up_datagrams() {
        const auto listener = [&](ExtLink::Side& side, std::uint32_t qkey, bool joins,
                                  std::uint64_t memory) {
            Listener& l = listeners_.emplace_back();
            l.side = &side;
            l.qkey = qkey;
            l.joined = joins;
            l.send = *side.host->create_cq(64);
            l.recv = *side.host->create_cq(64);
            test::ExtQpOptions wish;
            wish.type = MANA_HW_EXT_QP_UD;
            l.qp = *side.host->create_qp(l.send, l.recv, wish);
            OM_CHECK(side.host->start_datagrams(l.qp, qkey));
            if (joins) OM_CHECK(side.host->multicast(l.qp, group(), true));
            for (unsigned i = 0; i < kListenerSlots; ++i)
                l.free.push_back(memory + i * kDatagramSlot);
        };
        for (unsigned i = 0; i < 3; ++i)
            listener(link_.b, kQkeys[random_.below(2)], random_.below(2) == 0,
                     kDatagrams + i * kListenerSlots * kDatagramSlot);
        // The sender may hear itself, too.
        listener(link_.a, kQkeys[random_.below(2)], random_.below(2) == 0, kDatagramReceives);
        datagrams_to_post_ = static_cast<unsigned>(random_.below(kMostDatagrams + 1));
        // Not looked at in sent() while they move.
        datagrams_.reserve(kMostDatagrams);
    }
    /// The datagram that a packet carries: its number comes first.
    Datagram* datagram_in(const roce::Packet& packet) {
        if (roce::transport(packet.opcode) != roce::Transport::kUd) return nullptr;
        std::uint32_t number = 0;
        std::memcpy(&number, packet.payload.data(), 4);
        return &datagrams_.at(number);
    }
    void post_datagram() {
        const auto number = static_cast<std::uint32_t>(datagrams_.size());
        Datagram& d = datagrams_.emplace_back();
        static constexpr unsigned kTargets[] = {
            0, 1, 2, Datagram::kGroup, Datagram::kGroup, Datagram::kNobody};
        d.target = kTargets[random_.below(std::size(kTargets))];
        d.qkey = kQkeys[random_.below(2)];
        d.length = 4 + static_cast<std::uint32_t>(random_.below(400));
        d.immediate = random_.below(3) == 0;
        const std::uint64_t from = kDatagrams + number * kDatagramSlot;
        for (std::byte& byte : link_.a.at(from, d.length))
            byte = static_cast<std::byte>(random_.next());
        std::memcpy(link_.a.node->ram.at(link_.a.buffer + from), &number, 4);
        ExtWr wr;
        wr.opcode = d.immediate ? MANA_HW_EXT_WQE_SEND_IMM : MANA_HW_EXT_WQE_SEND;
        wr.value = number;
        wr.sges = {link_.a.sge(from, d.length)};
        wr.ud.emplace();
        const auto& target = link_.b.node->host;
        const bool to_group = d.target == Datagram::kGroup;
        std::ranges::copy(link_.a.node->host.gid(), wr.ud->source_gid);
        std::ranges::copy(to_group ? group() : target.gid(), wr.ud->dest_gid);
        std::ranges::copy(to_group ? base::MacAddr{1, 0, 0x5e, 0, 0, 1} : target.mac(),
                          wr.ud->dest_mac);
        wr.ud->udp_source_port = 0xc111;
        wr.ud->qkey = d.qkey;
        if (to_group)
            wr.ud->dest_qpn = 0xffffff;
        else if (d.target == Datagram::kNobody)
            wr.ud->dest_qpn = connections_[0].b.qpn;
        else
            wr.ud->dest_qpn = listeners_[d.target].qp.qpn;
        Listener& sender = listeners_.back();
        link_.a.host->post(sender.qp, wr);
    }
    void step_datagrams() {
        for (Listener& l : listeners_) {
            // Some receives are too short for most, and sometimes there is none.
            if (!l.free.empty() && random_.below(2) == 0) {
                const gdma::Sge sge =
                    l.side->sge(l.free.back(), random_.below(6) == 0 ? 90 : kDatagramSlot);
                l.side->host->recv(l.qp, static_cast<std::uint32_t>(l.free.back()),
                                   std::span(&sge, 1));
                l.free.pop_back();
            }
            while (const auto cqe = l.recv.poll()) check_datagram(l, *cqe);
        }
        while (const auto cqe = listeners_.back().send.poll()) {
            if (cqe->status != 0) fail("a datagram completes with an error");
            ++datagrams_sent_;
        }
        if (datagrams_to_post_ > 0 && random_.below(4) == 0) {
            --datagrams_to_post_;
            post_datagram();
        }
    }
    /// Whole, from the right queue pair, at one that it is for and that has its Q_Key, and not more
    /// often than the network brought it.
    void check_datagram(Listener& l, const mana_hw_ext_cqe& cqe) {
        constexpr std::uint32_t kGrh = 40;
        if (cqe.status != 0 || cqe.length < kGrh + 4) return fail("a broken datagram");
        std::uint32_t number = 0;
        std::memcpy(&number, l.side->node->ram.at(l.side->buffer + cqe.cookie + kGrh), 4);
        if (number >= datagrams_.size()) return fail("a datagram that was not sent");
        Datagram& d = datagrams_[number];
        const auto index = static_cast<std::size_t>(&l - listeners_.data());
        if (d.target == Datagram::kGroup ? !l.joined : d.target != index)
            return fail("a datagram at a queue pair that it is not for");
        if (d.qkey != l.qkey) return fail("a datagram with a wrong Q_Key");
        if (++d.got[index] > (l.side == &link_.a ? 1 : d.copies()))
            return fail("a datagram comes more often than the network brought it");
        const bool immediate = (cqe.flags & MANA_HW_EXT_CQE_IMMEDIATE) != 0;
        if (cqe.length != kGrh + d.length || cqe.source_qpn != listeners_.back().qp.qpn ||
            immediate != d.immediate || (immediate && cqe.value != number) ||
            !std::ranges::equal(link_.a.at(kDatagrams + number * kDatagramSlot, d.length),
                                l.side->at(cqe.cookie + kGrh, d.length)))
            return fail("a datagram is not what was sent");
        ++l.got;
        l.free.push_back(cqe.cookie);
    }
    /// Each copy that came was delivered, or is counted as dropped.
    void end_datagrams() {
        link_.world.advance(std::chrono::milliseconds(1));
        step_datagrams();
        if (datagrams_sent_ != datagrams_.size()) fail("a datagram did not complete");
        for (ExtLink::Side* side : {&link_.a, &link_.b}) {
            std::uint64_t due = 0, got = 0, wrong_key = 0;
            for (std::size_t i = 0; i < listeners_.size(); ++i) {
                const Listener& l = listeners_[i];
                if (l.side != side) continue;
                got += l.got;
                for (const Datagram& d : datagrams_) {
                    const std::uint64_t copies = side == &link_.a ? 1 : d.copies();
                    if (d.target == i) (d.qkey == l.qkey ? due : wrong_key) += copies;
                    if (d.target == Datagram::kGroup && l.joined && d.qkey == l.qkey) due += copies;
                }
            }
            const rnic::RnicCounters& c = side->node->rnic.counters();
            if (got + c.drop_no_receive.value() != due)
                fail(std::to_string(due) + " datagrams came, " + std::to_string(got) +
                     " were delivered and " + std::to_string(c.drop_no_receive.value()) +
                     " dropped");
            if (c.drop_qkey.value() != wrong_key) fail("wrong Q_Keys are not counted");
            datagrams += got;
        }
    }
    std::uint64_t take(std::uint64_t& next, std::uint64_t bytes) {
        const std::uint64_t at = next;
        next += bytes;
        return at;
    }

    /// Posts some more, takes what has come. True at the end.
    bool step() {
        if (!failure_.empty()) return true;
        // The host goes on when nothing happens, too.
        tick_.arm(std::chrono::microseconds(3));
        link_.network.sent.clear();
        link_.network.sent_bytes.clear();
        if (path_ == Path::kMixed && random_.below(50) == 0)
            link_.network.local = !link_.network.local;
        step_datagrams();
        bool done = datagrams_to_post_ == 0 && datagrams_sent_ == datagrams_.size();
        for (Connection& c : connections_) {
            poll(c);
            // In lists, some of which are longer than what a doorbell is polled for.
            if (c.to_post > 0 && c.posted.size() < 12 && random_.below(4) == 0)
                for (std::uint64_t n = 1 + random_.below(4); n > 0 && c.to_post > 0;
                     --n, --c.to_post)
                    if (!c.failed) post(c);
            watch(c);
            done = done && (c.failed || c.to_post == 0) && c.posted.empty();
            if (c.reliable && !c.failed && c.messages < c.received.size()) done = false;
        }
        return done;
    }
    /// What must hold at all times (ROCE 10.8).
    void watch(Connection& c) {
        if (!c.reliable) return;
        const rnic::Qp& a = *device(link_.a, c.a);
        for (const std::string& wrong :
             {c.check_a.at_rest(a), c.check_b.at_rest(*device(link_.b, c.b))})
            if (!wrong.empty()) fail(wrong);
        const rnic::RequesterView view = a.requester.view();
        if (c.posted.empty() && !c.failed && !(view.una == view.next))
            fail("all is complete, and something is outstanding");
    }
    void post(Connection& c) {
        Operation op;
        ExtWr wr;
        wr.rkey = link_.b.mr.rkey;
        static constexpr std::uint8_t kKinds[] = {
            MANA_HW_EXT_WQE_SEND,      MANA_HW_EXT_WQE_SEND_IMM, MANA_HW_EXT_WQE_WRITE,
            MANA_HW_EXT_WQE_READ,      MANA_HW_EXT_WQE_CMP_SWAP, MANA_HW_EXT_WQE_FETCH_ADD,
            MANA_HW_EXT_WQE_FETCH_ADD,
        };
        op.opcode = kKinds[random_.below(c.reliable ? std::size(kKinds) : 3)];
        const bool atomic =
            op.opcode == MANA_HW_EXT_WQE_CMP_SWAP || op.opcode == MANA_HW_EXT_WQE_FETCH_ADD;
        const bool send = op.opcode <= MANA_HW_EXT_WQE_SEND_IMM;
        op.length = atomic ? 8 : static_cast<std::uint32_t>(random_.below(send ? kReceive : kSlot));
        if (send) op.length += 4;
        op.from = random_.below(kTargets / 8 - kSlot) * 8;
        if (atomic) {
            op.from = take(results_, 8);
            if (op.opcode == MANA_HW_EXT_WQE_FETCH_ADD) {
                op.word = static_cast<unsigned>(random_.below(2));
                op.to = kWords + 8 * op.word;
                wr.swap_add = 1;
                ++added_[op.word];
            } else {
                op.to = kWords + 64 + 8 * static_cast<std::uint64_t>(&c - connections_.data());
                const bool matches = random_.below(2) == 0;
                wr.compare = matches ? c.own_word : c.own_word + 1;
                wr.swap_add = random_.next();
                op.expected = c.own_word;
                if (matches) c.own_word = wr.swap_add;
            }
        } else if (op.opcode == MANA_HW_EXT_WQE_READ) {
            op.to = op.from;
            op.from = take(read_targets_, kSlot);
        } else if (op.opcode == MANA_HW_EXT_WQE_WRITE) {
            op.to = take(write_targets_, kSlot);
        } else {
            // A receive for it comes before, or some time after: it may see none.
            const std::uint64_t at = take(receives_, kReceive + 4);
            const gdma::Sge sge = link_.b.sge(at, kReceive + 4);
            if (c.shared)
                link_.b.srq->post(static_cast<std::uint32_t>(at), std::span(&sge, 1));
            else
                link_.b.host->recv(c.b, static_cast<std::uint32_t>(at), std::span(&sge, 1));
            // The number by which B knows the message; nobody else sends from there meanwhile.
            op.from = take(send_sources_, kReceive + 4);
            op.word = c.next_send++;
            std::memcpy(link_.a.node->ram.at(link_.a.buffer + op.from), &op.word, 4);
            if (op.opcode == MANA_HW_EXT_WQE_SEND_IMM) wr.value = op.word ^ 0x5a5a5a5a;
            c.received.push_back(op);
        }
        wr.opcode = op.opcode;
        if (op.length > 0) wr.sges = {link_.a.sge(op.from, op.length)};
        wr.remote_address = link_.b.buffer.value() + op.to;
        c.posted.push_back(op);
        ++c.requests;
        link_.a.host->post(c.a, wr);
        ++operations;
    }
    void poll(Connection& c) {
        while (const auto cqe = c.a_send.poll()) {
            if (c.posted.empty()) return fail("a completion of nothing");
            const Operation op = c.posted.front();
            c.posted.pop_front();
            if (cqe->status == kRetryExceeded || (c.failed && cqe->status == kFlushed)) {
                if (!c.failed) ++worn_out;
                c.failed = true;
                torn_ = true;
                continue;
            }
            if (cqe->status != 0 || cqe->opcode != op.opcode)
                return fail("completion with status " + std::to_string(cqe->status));
            check_sent(c, op);
        }
        while (const auto cqe = c.b_recv.poll()) check_received(c, *cqe);
    }
    void check_sent(Connection& c, const Operation& op) {
        switch (op.opcode) {
            case MANA_HW_EXT_WQE_WRITE:
                if (c.reliable && !link_.same(op.from, op.to, op.length))
                    fail("a WRITE's data differ");
                break;
            case MANA_HW_EXT_WQE_READ:
                if (!link_.same(op.from, op.to, op.length)) fail("a READ's data differ");
                break;
            case MANA_HW_EXT_WQE_CMP_SWAP:
                if (link_.a.word(op.from) != op.expected)
                    fail("a compare and swap found something else");
                break;
            case MANA_HW_EXT_WQE_FETCH_ADD:
                if (!originals_[op.word].insert(link_.a.word(op.from)).second)
                    fail("two fetch and adds found the same");
                break;
            default:
                break;
        }
    }
    void check_received(Connection& c, const mana_hw_ext_cqe& cqe) {
        if (cqe.status == kFlushed && c.failed) return;
        if (cqe.status == kRemoteAborted && !c.reliable && c.shared) {
            // A message that did not come whole; the connections that share wait for theirs.
            const gdma::Sge sge = link_.b.sge(cqe.cookie, kReceive + 4);
            link_.b.srq->post(cqe.cookie, std::span(&sge, 1));
            return;
        }
        if (cqe.status != 0) return fail("a receive with status " + std::to_string(cqe.status));
        std::uint32_t number = 0;
        std::memcpy(&number, link_.b.node->ram.at(link_.b.buffer + cqe.cookie), 4);
        // All of them, once and in order. Of UC some are lost, and what the network doubles or puts
        // into another order comes as it is.
        if (number >= c.received.size() || (c.reliable && number != c.messages))
            return fail("message " + std::to_string(number) + " instead of " +
                        std::to_string(c.messages));
        c.messages = number + 1;
        const Operation& op = c.received[number];
        if (cqe.length != op.length) return fail("a message of another length");
        if (!link_.same(op.from, cqe.cookie, op.length)) return fail("a message's data differ");
        const bool immediate = (cqe.flags & MANA_HW_EXT_CQE_IMMEDIATE) != 0;
        if (immediate != (op.opcode == MANA_HW_EXT_WQE_SEND_IMM) ||
            (immediate && cqe.value != (op.word ^ 0x5a5a5a5a)))
            fail("the immediate differs");
    }
    bool until(const std::function<bool()>& condition) {
        return link_.world.run_until(condition, std::chrono::seconds(60));
    }
    std::optional<mana_hw_ext_cqe> completion(ExtCq& cq) {
        std::optional<mana_hw_ext_cqe> cqe;
        (void)until([&] { return (cqe = cq.poll()).has_value(); });
        return cqe;
    }

    void end() {
        end_datagrams();
        // Invariant 9. What a connection that wore out had posted may have taken effect or not.
        for (unsigned w = 0; w < 2; ++w) {
            const std::uint64_t value = link_.b.word(kWords + 8 * w);
            if (torn_ ? value > added_[w] || value < originals_[w].size() : value != added_[w])
                fail("word " + std::to_string(w) + " holds " + std::to_string(value) + " after " +
                     std::to_string(added_[w]) + " times one");
            if (!originals_[w].empty() && *originals_[w].rbegin() >= value)
                fail("an original that never was");
        }
        for (unsigned i = 0; i < connections_.size(); ++i) {
            Connection& c = connections_[i];
            if (c.failed || !c.reliable) continue;
            if (link_.b.word(kWords + 64 + 8 * i) != c.own_word)
                fail("a word of compare and swap differs");
            if (failure_.empty()) windows(c);
        }
        // 13
        for (const Arrivals& arrivals : arrivals_)
            if (const std::string wrong = arrivals.wrong(path_ == Path::kWire); !wrong.empty())
                fail("counters: " + wrong);
    }
    /// B shows a part of its memory, A writes there, B ends it, A is refused.
    void windows(Connection& c) {
        const std::uint64_t at = kResults + 8 * random_.below(64);
        ExtWr bind;
        bind.opcode = MANA_HW_EXT_WQE_BIND_MW;
        bind.bind.emplace();
        bind.bind->mw_key = c.window.rkey;
        bind.bind->new_key = c.window.rkey ^ static_cast<std::uint32_t>(random_.below(256));
        bind.bind->mr_key = link_.b.mr.lkey;
        bind.bind->access = gdma::kRemoteWrite;
        bind.bind->address = link_.b.buffer.value() + at;
        bind.bind->length = 512;
        link_.b.host->post(c.b, bind);
        const auto bound = completion(c.b_send);
        if (!bound || bound->status != 0) return fail("a bind failed");
        ExtWr write;
        write.opcode = MANA_HW_EXT_WQE_WRITE;
        write.rkey = bind.bind->new_key;
        write.remote_address = bind.bind->address;
        write.sges = {link_.a.sge(0, 512)};
        c.requests += 2;
        link_.a.host->post(c.a, write);
        const auto written = completion(c.a_send);
        if (written && written->status == kRetryExceeded) return;
        if (!written || written->status != 0 || !link_.same(0, at, 512))
            return fail("a WRITE by way of a window failed");
        ExtWr invalidate;
        invalidate.opcode = MANA_HW_EXT_WQE_LOCAL_INV;
        invalidate.value = bind.bind->new_key;
        link_.b.host->post(c.b, invalidate);
        const auto ended = completion(c.b_send);
        if (!ended || ended->status != 0) return fail("the end of a window failed");
        std::memset(link_.b.node->ram.at(link_.b.buffer + at), 0x77, 512);
        link_.a.host->post(c.a, write);
        const auto refused = completion(c.a_send);
        if (!refused || (refused->status != kRemoteAccess && refused->status != kRetryExceeded))
            return fail("a WRITE by way of a window that has ended was not refused");
        for (const std::byte byte : link_.b.at(at, 512))
            if (byte != std::byte{0x77}) return fail("a window that has ended was written to");
    }

    base::Random random_;
    const Path path_;
    const std::uint64_t move_every_;
    base::Random move_random_;
    ExtLink link_;
    test::SimExecutor host_{link_.world};
    base::Timer tick_{host_, [] {}};
    std::uint32_t loss_ = 0, duplicates_ = 0, corruption_ = 0, delays_ = 0;
    std::vector<Connection> connections_;
    std::vector<Arrivals> arrivals_;   // of A, of B
    std::vector<Listener> listeners_;  // three of B; the last is A's, which sends
    std::vector<Datagram> datagrams_;
    unsigned datagrams_to_post_ = 0;
    std::size_t datagrams_sent_ = 0;
    std::uint64_t results_ = kResults, read_targets_ = kTargets, write_targets_ = kTargets,
                  receives_ = kReceives, send_sources_ = kReceives;
    std::array<std::uint64_t, 2> added_{};
    std::array<std::set<std::uint64_t>, 2> originals_;
    bool torn_ = false;
    std::string failure_;
};

int main(int argc, char** argv) {
    std::uint64_t seed = 1, runs = 100, move_every = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = std::strtoull(word.substr(word.find('=') + 1).c_str(), nullptr, 0);
        if (word.starts_with("--seed=")) {
            seed = value;
            runs = 1;
        } else if (word.starts_with("--runs=")) {
            runs = value;
        } else if (word.starts_with("--move=")) {
            move_every = value;
        } else {
            std::fputs(
                "ext_sim_test [--runs=N] [--seed=N] [--move=N]: runs of seeds 1 to N, or of one "
                "seed, on each path; with one event of N a NIC becomes another one, which has read "
                "its state\n",
                stderr);
            return 2;
        }
    }
    std::uint64_t operations = 0, moves = 0, worn_out = 0, datagrams = 0, failures = 0;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < runs && failures < 10; ++i)
        for (const Path path : {Path::kWire, Path::kLocal, Path::kMixed}) {
            Run run(seed + i, path, move_every);
            const std::string failure = run.go();
            operations += run.operations;
            moves += run.moves;
            worn_out += run.worn_out;
            datagrams += run.datagrams;
            if (failure.empty()) continue;
            ++failures;
            std::printf(
                "FAILED seed %llu on path %s: %s\n  replay: ext_sim_test --seed=%llu --move=%llu\n",
                static_cast<unsigned long long>(seed + i),
                kPathNames[static_cast<std::size_t>(path)], failure.c_str(),
                static_cast<unsigned long long>(seed + i),
                static_cast<unsigned long long>(move_every));
        }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf(
        "%llu seeds, %llu operations, %llu moves, %llu datagrams delivered, %llu connections worn "
        "out, "
        "%llu failures; %.1f s\n",
        static_cast<unsigned long long>(runs), static_cast<unsigned long long>(operations),
        static_cast<unsigned long long>(moves), static_cast<unsigned long long>(datagrams),
        static_cast<unsigned long long>(worn_out), static_cast<unsigned long long>(failures),
        took.count());
    return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace openmana::sim

int main(int argc, char** argv) {
    return openmana::sim::main(argc, argv);
}
