// SPDX-License-Identifier: Apache-2.0
#include "sim/node.h"

namespace openmana::sim {

bool Node::bring_up(const Script& script) {
    constexpr std::uint32_t kLocal = gdma::kLocalRead | gdma::kLocalWrite;
    constexpr std::uint32_t kRemote = gdma::kRemoteRead | gdma::kRemoteWrite;
    if (!host.bring_up()) return false;
    auto& hwc = host.hwc();
    arena.address = ram.alloc(script.arena);
    arena.bytes = ram.bytes(arena.address, script.arena);
    arena.fill(script.seed + 1000 * number);
    const auto other = hwc.create_pd();
    if (!other) return false;
    const auto good = hwc.create_mr(host.pd, arena.address, script.arena, kLocal | kRemote);
    const auto narrow = hwc.create_mr(host.pd, arena.address, script.arena, kLocal);
    const auto read_only =
        hwc.create_mr(host.pd, arena.address, script.arena, gdma::kLocalRead | gdma::kRemoteRead);
    const auto foreign = hwc.create_mr(*other, arena.address, script.arena, kLocal | kRemote);
    if (!good || !narrow || !read_only || !foreign) return false;
    good_ = *good;
    narrow_ = *narrow;
    read_only_ = *read_only;
    other_pd_ = *foreign;
    bool used = false;
    for (const Phase& phase : script.phases)
        for (std::size_t i = 0; i < phase.connections.size(); ++i) {
            const Plan plan = phase.connections[i].plan;
            used = used || ((plan == Plan::kDeregister || plan == Plan::kUnmap) &&
                            script.connections[i].node[1] == number);
        }
    if (!used) return true;
    victim_memory_.resize(script.arena);
    victim.address = base::GuestAddr(kVictimAddress);
    victim.bytes = victim_memory_;
    victim.fill(script.seed + 1000 * number + 500);
    return restore_victim();
}

bool Node::restore_victim() {
    if (victim_memory_.empty()) return true;
    if (!victim_mapped_) {
        const base::Gate::Exclusion alone(function.gate());
        if (!memory.map_host(victim.address, victim_memory_)) return false;
        victim_mapped_ = true;
    }
    if (victim_mr_) return true;
    victim_mr_ = host.hwc().create_mr(
        host.pd, victim.address, victim_memory_.size(),
        gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite);
    return victim_mr_.has_value();
}

bool Node::deregister_victim() {
    const bool gone = !victim_mr_ || host.hwc().destroy_mr(*victim_mr_);
    victim_mr_.reset();
    return gone;
}

bool Node::unmap_victim() {
    if (!victim_mapped_) return true;
    const base::Gate::Exclusion alone(function.gate());
    victim_mapped_ = false;
    return memory.unmap(victim.address, victim_memory_.size()).has_value();
}

gdma::Sge Node::sge(const Sge& sge) const {
    gdma::Sge result{arena.address.value() + sge.range.offset, gdma::Key(good_.lkey),
                     sge.range.length};
    switch (sge.key) {
        case KeyKind::kNarrow:
            result.key = gdma::Key(narrow_.lkey);
            break;
        case KeyKind::kReadOnly:
            result.key = gdma::Key(read_only_.lkey);
            break;
        case KeyKind::kOtherPd:
            result.key = gdma::Key(other_pd_.lkey);
            break;
        case KeyKind::kUnknown:
            result.key = gdma::Key(good_.lkey + 0x1000000);
            break;
        case KeyKind::kRange:
            result.address = arena.address.value() + arena.bytes.size() - sge.range.length + 1;
            break;
        default:
            break;
    }
    return result;
}

void Node::name_remote(const SendOp& op, test::SendWr& wr) const {
    const Memory& target = op.rkey == KeyKind::kVictim ? victim : arena;
    wr.remote_address = target.address.value() + op.remote.offset;
    wr.rkey = good_.rkey;
    switch (op.rkey) {
        case KeyKind::kReadOnly:
            wr.rkey = read_only_.rkey;
            break;
        case KeyKind::kOtherPd:
            wr.rkey = other_pd_.rkey;
            break;
        case KeyKind::kUnknown:
            wr.rkey = good_.rkey + 0x1000000;
            break;
        case KeyKind::kStale:
            wr.rkey = good_.rkey ^ 1;
            break;
        case KeyKind::kVictim:
            wr.rkey = victim_mr_ ? victim_mr_->rkey : 0;
            break;
        case KeyKind::kRange:
            wr.remote_address = arena.address.value() + arena.bytes.size() - op.length() + 1;
            break;
        case KeyKind::kWrap:
            wr.remote_address = ~std::uint64_t{0} - 3;
            break;
        default:
            break;
    }
}

}  // namespace openmana::sim
