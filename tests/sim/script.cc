// SPDX-License-Identifier: Apache-2.0
#include "sim/script.h"

#include <mana/rnic_queue.h>

#include <algorithm>

#include "base/result.h"

namespace openmana::sim {

bool SendOp::is_read() const {
    return opcode == MANA_HW_RNIC_WQE_READ;
}
bool SendOp::is_write() const {
    return opcode == MANA_HW_RNIC_WQE_WRITE || opcode == MANA_HW_RNIC_WQE_WRITE_IMM;
}
bool SendOp::takes_receive() const {
    return !is_read() && opcode != MANA_HW_RNIC_WQE_WRITE;
}

const char* name(Plan plan) {
    static constexpr const char* kNames[] = {
        "traffic", "remote access", "too long", "receive fault", "gather fault",
        "scatter", "invalidate",    "RNR",      "host error",    "host reset",
        "destroy", "deregister",    "unmap",    "function reset"};
    return kNames[static_cast<std::size_t>(plan)];
}

namespace {

using base::Duration;
using base::Random;

constexpr std::uint32_t kMaxGap = 31;
constexpr std::uint32_t kMaxPieces = 5;

/// Hands out the writable half of one arena, with gaps in which nothing may ever change.
class Half {
public:
    Half(std::uint32_t begin, std::uint32_t end) : at_(begin), end_(end) {}
    [[nodiscard]] std::uint32_t room() const { return end_ - at_; }
    Range take(Random& random, std::uint32_t length) {
        OM_CHECK(length <= room());
        const std::uint32_t gap = std::min(room() - length, kMaxGap);
        const Range range{at_ + static_cast<std::uint32_t>(random.below(gap + 1)), length};
        at_ = range.offset + length;
        return range;
    }

private:
    std::uint32_t at_;
    std::uint32_t end_;
};

class Author {
public:
    explicit Author(Script& script) : script_(script), random_(script.seed) {}
    void write() {
        set_up();
        const std::uint64_t phases = 2 + random_.below(3);
        for (std::uint64_t i = 0; i < phases; ++i) phase(i, i + 1 == phases);
    }

private:
    bool chance(std::uint32_t percent) { return random_.chance_ppm(percent * 10000); }
    std::uint32_t below(std::uint64_t bound) {
        return static_cast<std::uint32_t>(random_.below(bound));
    }

    void set_up() {
        big_ = chance(3);
        script_.nodes = big_ ? 2 : 2 + below(4);
        script_.ipv6 = chance(25);
        script_.shared_cqs = chance(40);
        script_.arena = big_ ? 6U << 20 : 192U << 10;
        script_.window = chance(20) ? 4 + below(28) : 256;
        const unsigned count = big_ ? 1 : 1 + below(script_.nodes + 1);
        for (unsigned i = 0; i < count; ++i) {
            ConnectionSetup c;
            c.node[0] = below(script_.nodes);
            c.node[1] = below(script_.nodes);
            if (big_) c.node = {0, 1};
            c.mtu = 256U << below(5);
            if (big_) c.mtu = 4096;
            c.timeout = static_cast<std::uint8_t>(6 + below(4));
            c.retries = chance(25) ? below(4) : 7;
            c.rnr_retry = chance(30) ? below(4) : 7;
            c.scarce = c.rnr_retry <= 2 && chance(25);
            c.rnr_timer = 1 + below(8);
            c.reads = 1U << below(5);
            c.ring = 4096U << below(3);
            for (auto& psn : c.psn) psn = chance(30) ? 0xffffff - below(16) : below(1U << 24);
            script_.connections.push_back(c);
        }
    }

    void phase(std::uint64_t number, bool last) {
        halves_.clear();
        const std::uint32_t half = script_.arena / 2;
        source_ = number % 2 == 0 ? Range{0, half} : Range{half, half};
        for (unsigned i = 0; i < script_.nodes; ++i)
            halves_.emplace_back(half - source_.offset, script_.arena - source_.offset);
        Phase& phase = script_.phases.emplace_back();
        for (const ConnectionSetup& setup : script_.connections) {
            setup_ = &setup;
            plan_ = &phase.connections.emplace_back();
            plan_->host_follows = chance(70);
            const std::uint32_t dice = below(100);
            if (dice < 55)
                plan_->plan = Plan::kTraffic;
            else if (dice < 80)
                plan_->plan = static_cast<Plan>(1 + below(7));
            else
                plan_->plan = static_cast<Plan>(8 + below(5));
            if (plan_->plan == Plan::kRnrExhaustion && setup.rnr_retry == 7)
                plan_->plan = Plan::kTraffic;
            fill_plan();
        }
        if (last && chance(15)) end_with_function_reset(phase);
    }

    /// The NIC of side 0 of the first connection dies: whatever uses it races with that.
    void end_with_function_reset(Phase& phase) {
        const unsigned node = script_.connections.front().node[0];
        const Duration at = std::chrono::microseconds(below(60));
        for (std::size_t i = 0; i < phase.connections.size(); ++i) {
            const auto& nodes = script_.connections[i].node;
            if (nodes[0] != node && nodes[1] != node) continue;
            setup_ = &script_.connections[i];
            plan_ = &phase.connections[i];
            plan_->plan = Plan::kFunctionReset;
            plan_->side = {};
            plan_->receive_vendor = 0;
            plan_->event_at = at;
            for (unsigned side = 0; side < 2; ++side) traffic(side, 4 + below(6), true);
        }
    }

    void fill_plan() {
        plan_->event_at = std::chrono::microseconds(below(80));
        switch (plan_->plan) {
            case Plan::kTraffic:
                for (unsigned side = 0; side < 2; ++side)
                    if (side == 0 || chance(70)) traffic(side, 1 + below(12), true);
                break;
            case Plan::kHostError:
            case Plan::kHostReset:
            case Plan::kDestroy:
            case Plan::kFunctionReset:
                for (unsigned side = 0; side < 2; ++side) traffic(side, 4 + below(8), true);
                break;
            case Plan::kDeregister:
            case Plan::kUnmap:
                traffic(0, 4 + below(8), true);
                for (SendOp& op : plan_->side[0].sends)
                    if (op.is_read() || op.is_write()) op.rkey = KeyKind::kVictim;
                break;
            default:
                fault();
                break;
        }
    }

    std::uint32_t length_of(std::uint32_t room) {
        const std::uint32_t mtu = setup_->mtu;
        std::uint32_t length = 0;
        const std::uint32_t dice = below(100);
        if (big_ && dice < 12)
            length = 1U << 20;
        else if (dice < 10)
            length = 0;
        else if (dice < 35)
            length = 1 + below(64);
        else if (dice < 65)
            length = mtu * (1 + below(4)) + below(3) - 1;
        else if (dice < 96)
            length = 1 + below(6000);
        else
            length = 1 + below(65536);
        return std::min(length, room);
    }
    /// A range of the half that nobody writes to in this phase.
    Range source(std::uint32_t length) {
        return {source_.offset + below(source_.length - length + 1), length};
    }
    /// Cuts a length into up to five, some of them nothing.
    template <typename F>
    std::vector<Sge> pieces(std::uint32_t length, F one) {
        std::vector<Sge> sges;
        const std::uint32_t count = chance(60) ? 1 : 2 + below(kMaxPieces - 1);
        for (std::uint32_t i = 0; i < count; ++i) {
            std::uint32_t part = length;
            if (i + 1 < count) part = chance(15) ? 0 : below(length + 1);
            length -= part;
            sges.push_back({one(part), KeyKind::kGood});
        }
        return sges;
    }
    std::vector<Sge> gather(std::uint32_t length) {
        auto sges = pieces(length, [this](std::uint32_t part) { return source(part); });
        for (Sge& sge : sges)
            if (chance(20)) sge.key = chance(50) ? KeyKind::kNarrow : KeyKind::kReadOnly;
        return sges;
    }
    std::vector<Sge> scatter(unsigned node, std::uint32_t length) {
        auto sges =
            pieces(length, [&](std::uint32_t part) { return halves_[node].take(random_, part); });
        for (Sge& sge : sges)
            if (chance(20)) sge.key = KeyKind::kNarrow;
        return sges;
    }
    /// What is left besides the gaps of a few scatter lists.
    [[nodiscard]] std::uint32_t room(unsigned node) const {
        const std::uint32_t room = halves_[node].room();
        return room > 4 * kMaxPieces * kMaxGap ? room - 4 * kMaxPieces * kMaxGap : 0;
    }

    void receive_for(unsigned side, const SendOp& op, bool late) {
        RecvOp receive;
        const unsigned node = setup_->node[side];
        const std::uint32_t need = op.is_write() ? 0 : op.length();
        const std::uint32_t length =
            std::min(need + (chance(50) ? 0 : below(99)), std::max(room(node), need));
        receive.sges = scatter(node, length);
        // With few retries it has to be there before it is needed, or they may run out.
        if (late && (setup_->rnr_retry == 7 || setup_->scarce) && chance(40))
            receive.at = std::chrono::microseconds(below(400));
        auto& receives = plan_->side[side].receives;
        if (!receives.empty()) receive.at = std::max(receive.at, receives.back().at);
        receives.push_back(std::move(receive));
    }

    SendOp operation(unsigned side, std::uint32_t opcode, std::uint32_t length) {
        SendOp op;
        op.opcode = opcode;
        op.immediate = static_cast<std::uint32_t>(random_.next());
        op.fence = chance(15);
        op.solicited = chance(30);
        op.signaled = chance(75);
        const unsigned node = setup_->node[side];
        const unsigned peer = setup_->node[1 - side];
        if (op.is_read()) {
            op.remote = source(length);
            op.sges = scatter(node, length);
        } else {
            op.sges = gather(length);
            if (op.is_write()) op.remote = halves_[peer].take(random_, length);
        }
        return op;
    }

    std::uint32_t any_opcode() {
        static constexpr std::uint32_t kOpcodes[] = {
            MANA_HW_RNIC_WQE_SEND,  MANA_HW_RNIC_WQE_SEND_IMM,  MANA_HW_RNIC_WQE_WRITE,
            MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_WRITE_IMM, MANA_HW_RNIC_WQE_READ,
            MANA_HW_RNIC_WQE_READ};
        return kOpcodes[below(std::size(kOpcodes))];
    }

    /// `count` good operations of a side, and the receives that they need.
    void traffic(unsigned side, std::uint32_t count, bool late) {
        auto& sends = plan_->side[side].sends;
        const unsigned node = setup_->node[side];
        const unsigned peer = setup_->node[1 - side];
        Duration at = sends.empty() ? Duration{} : sends.back().at;
        for (std::uint32_t i = 0; i < count; ++i) {
            // Both ends may lie in one arena.
            const std::uint32_t room_now = std::min(room(node), room(peer)) / (big_ ? 2 : 4);
            if (chance(25)) at += std::chrono::nanoseconds(below(30000));
            if (chance(15) && room_now > 2000) {
                pattern(side, at, 1 + below(1500));
                continue;
            }
            SendOp op = operation(side, any_opcode(), length_of(room_now));
            op.at = at;
            if (op.takes_receive()) receive_for(1 - side, op, late);
            sends.push_back(std::move(op));
        }
        for (std::size_t i = 0; i + 1 < sends.size(); ++i)
            sends[i].ring = sends[i].at != sends[i + 1].at || chance(60);
    }

    /// Two operations on the same bytes of the peer: a READ finds what the WRITE before it left,
    /// and a fenced WRITE leaves alone what the READ before it finds.
    void pattern(unsigned side, Duration at, std::uint32_t length) {
        auto& sends = plan_->side[side].sends;
        SendOp write = operation(side, MANA_HW_RNIC_WQE_WRITE, length);
        SendOp read = operation(side, MANA_HW_RNIC_WQE_READ, length);
        read.remote = write.remote;
        read.at = write.at = at;
        if (chance(50)) {
            write.fence = true;
            sends.push_back(std::move(read));
            sends.push_back(std::move(write));
        } else {
            sends.push_back(std::move(write));
            sends.push_back(std::move(read));
        }
    }

    /// Good work, something that fails, and work behind it; in one direction, so that the outcome
    /// does not depend on time.
    void fault() {
        traffic(0, below(5), false);
        auto& sends = plan_->side[0].sends;
        const unsigned node = setup_->node[0];
        const unsigned peer = setup_->node[1];
        const std::uint32_t room_now = std::min(room(node), room(peer)) / 4;
        const std::uint32_t length = std::max(1U, std::min(room_now, length_of(room_now)));
        const Duration at = sends.empty() ? Duration{} : sends.back().at;
        SendOp bad;
        switch (plan_->plan) {
            case Plan::kRemoteAccess:
                bad = remote_access(length);
                break;
            case Plan::kTooLong: {
                bad = operation(0, chance(50) ? MANA_HW_RNIC_WQE_SEND : MANA_HW_RNIC_WQE_SEND_IMM,
                                length);
                RecvOp receive;
                receive.sges = scatter(peer, below(length));
                plan_->side[1].receives.push_back(std::move(receive));
                bad.vendor = MANA_HW_RNIC_VE_NAK_INVALID_REQUEST;
                plan_->receive_vendor = MANA_HW_RNIC_VE_RX_TOO_LONG;
                break;
            }
            case Plan::kReceiveFault:
                bad = receive_fault(length);
                break;
            case Plan::kGatherFault: {
                static constexpr std::uint32_t kOpcodes[] = {
                    MANA_HW_RNIC_WQE_SEND, MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_WRITE_IMM};
                bad = operation(0, kOpcodes[below(3)], length);
                if (bad.takes_receive()) receive_for(1, bad, false);
                bad.vendor = spoil(bad.sges, false);
                break;
            }
            case Plan::kScatterFault:
                bad = operation(0, MANA_HW_RNIC_WQE_READ, length);
                bad.vendor = spoil(bad.sges, true);
                break;
            case Plan::kInvalidate:
                bad = operation(0, MANA_HW_RNIC_WQE_SEND_INV, length);
                receive_for(1, bad, false);
                bad.vendor = MANA_HW_RNIC_VE_RETRY;
                plan_->receive_vendor = MANA_HW_RNIC_VE_RX_RKEY;
                break;
            default:  // kRnrExhaustion
                bad = operation(0, chance(50) ? MANA_HW_RNIC_WQE_SEND : MANA_HW_RNIC_WQE_WRITE_IMM,
                                length);
                bad.vendor = MANA_HW_RNIC_VE_RNR_RETRY;
                break;
        }
        bad.fate = Fate::kFails;
        bad.at = at;
        sends.push_back(std::move(bad));
        const std::size_t behind = sends.size();
        if (plan_->plan == Plan::kRnrExhaustion) {
            // Nothing that takes a receive: what comes behind has to wait in vain anyway.
            for (std::uint32_t i = below(4); i > 0; --i) {
                sends.push_back(operation(0, MANA_HW_RNIC_WQE_WRITE, below(500)));
                sends.back().at = at;
            }
        } else {
            traffic(0, below(5), false);
        }
        for (std::size_t i = behind; i < sends.size(); ++i) sends[i].fate = Fate::kFlushed;
        for (std::size_t i = 0; i + 1 < sends.size(); ++i)
            sends[i].ring = sends[i].at != sends[i + 1].at || chance(60);
        // Receives that nobody uses, on either side. They come to nothing but a flush.
        for (unsigned side = 0; side < 2; ++side)
            for (std::uint32_t i = below(3); i > 0; --i) {
                if (plan_->plan == Plan::kRnrExhaustion && side == 1) break;
                RecvOp receive;
                receive.sges = scatter(setup_->node[side], below(40));
                plan_->side[side].receives.push_back(std::move(receive));
            }
    }

    SendOp remote_access(std::uint32_t length) {
        static constexpr std::uint32_t kOpcodes[] = {
            MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_WRITE_IMM, MANA_HW_RNIC_WQE_READ};
        static constexpr KeyKind kKeys[] = {KeyKind::kUnknown, KeyKind::kStale, KeyKind::kOtherPd,
                                            KeyKind::kRange,   KeyKind::kWrap,  KeyKind::kReadOnly};
        SendOp bad = operation(0, kOpcodes[below(3)], length);
        bad.rkey = kKeys[below(bad.is_read() ? 5 : 6)];
        bad.vendor = MANA_HW_RNIC_VE_NAK_REMOTE_ACCESS;
        if (bad.takes_receive()) receive_for(1, bad, false);
        return bad;
    }

    SendOp receive_fault(std::uint32_t length) {
        SendOp bad = operation(0, MANA_HW_RNIC_WQE_SEND, length);
        RecvOp receive;
        receive.sges = scatter(setup_->node[1], length);
        plan_->receive_vendor = spoil(receive.sges, true);
        plan_->side[1].receives.push_back(std::move(receive));
        bad.vendor = MANA_HW_RNIC_VE_NAK_REMOTE_OPERATION;
        return bad;
    }

    /// Spoils one entry that has a length; the vendor error for it.
    std::uint32_t spoil(std::vector<Sge>& sges, bool scattered) {
        std::size_t i = below(sges.size());
        while (sges[i].range.length == 0) i = (i + 1) % sges.size();
        switch (below(scattered ? 3 : 2)) {
            case 0:
                sges[i].key = chance(50) ? KeyKind::kUnknown : KeyKind::kOtherPd;
                return scattered ? MANA_HW_RNIC_VE_RX_SGE_KEY : MANA_HW_RNIC_VE_TX_DATA_KEY;
            case 1:
                sges[i].key = KeyKind::kRange;
                return scattered ? MANA_HW_RNIC_VE_RX_SGE_RANGE : MANA_HW_RNIC_VE_TX_DATA_RANGE;
            default:
                sges[i].key = KeyKind::kReadOnly;
                return MANA_HW_RNIC_VE_RX_SGE_ACCESS;
        }
    }

    Script& script_;
    Random random_;
    bool big_ = false;
    std::vector<Half> halves_;  // by node
    Range source_;
    const ConnectionSetup* setup_ = nullptr;
    ConnectionPlan* plan_ = nullptr;
};

}  // namespace

Script::Script(std::uint64_t seed_) : seed(seed_) {
    Author(*this).write();
}

}  // namespace openmana::sim
