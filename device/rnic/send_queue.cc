// SPDX-License-Identifier: Apache-2.0
#include "rnic/send_queue.h"

#include <mana/rnic_queue.h>

#include <bit>
#include <cstring>
#include <utility>

namespace openmana::rnic {
namespace {

constexpr std::uint64_t kMaxMessage = 1ULL << 31;

bool valid_mtu(std::uint32_t bytes) {
    return bytes >= 256 && bytes <= 4096 && std::has_single_bit(bytes);
}

}  // namespace

void SendWqe::clear() {
    std::vector<gdma::Sge> list = std::move(sges);
    std::vector<std::byte> data = std::move(inline_data);
    *this = SendWqe();
    sges = std::move(list);
    sges.clear();
    inline_data = std::move(data);
    inline_data.clear();
}

void SendWqe::parse(const gdma::Wqe& wqe, Psn expected, std::uint32_t path_mtu) {
    mana_hw_rnic_send_oob_large oob{};
    std::memcpy(&oob, wqe.oob().data(), std::min(wqe.oob().size(), sizeof oob));
    const std::uint32_t flags = oob.oob.flags_psn;
    const std::uint32_t opcode = flags & MANA_HW_RNIC_OOB_OPCODE;
    kind = SegmentKind::kInvalid;
    fence = (flags & MANA_HW_RNIC_OOB_FENCE) != 0;
    signaled = (flags & MANA_HW_RNIC_OOB_SIGNALED) != 0;
    solicited = (flags & MANA_HW_RNIC_OOB_SOLICITED) != 0;
    immediate = opcode == MANA_HW_RNIC_WQE_SEND_IMM || opcode == MANA_HW_RNIC_WQE_WRITE_IMM;
    invalidate = opcode == MANA_HW_RNIC_WQE_SEND_INV;
    error_on_rreq = false;
    error = 0;
    position = wqe.position();
    mtu = wqe.client_data_unit();
    first = Psn(flags >> MANA_HW_RNIC_OOB_PSN_SHIFT);
    packets = 1;
    length = 0;
    rkey = {};
    value = 0;
    address = 0;
    done = 0;
    sges.clear();

    const std::uint64_t total = wqe.total_length();
    std::uint64_t bytes = total;
    std::size_t oob_bytes = sizeof(mana_hw_rnic_send_oob);
    switch (opcode) {
        case MANA_HW_RNIC_WQE_SEND:
        case MANA_HW_RNIC_WQE_SEND_IMM:
        case MANA_HW_RNIC_WQE_SEND_INV:
            kind = SegmentKind::kSend;
            value = oob.oob.u.words[0];
            break;
        case MANA_HW_RNIC_WQE_WRITE_IMM:
            oob_bytes = sizeof oob;
            value = oob.immediate;
            [[fallthrough]];
        case MANA_HW_RNIC_WQE_WRITE:
        case MANA_HW_RNIC_WQE_READ:
            kind = opcode == MANA_HW_RNIC_WQE_READ ? SegmentKind::kRead : SegmentKind::kWrite;
            address = std::uint64_t{oob.oob.u.rdma.address_high} << 32 | oob.oob.u.rdma.address_low;
            rkey = RKey(oob.oob.u.rdma.rkey);
            bytes = oob.oob.u.rdma.length;
            break;
        default:
            error = MANA_HW_RNIC_VE_TX_UNSUPPORTED;
            return;
    }
    if (wqe.oob().size() < oob_bytes) {
        error = MANA_HW_RNIC_VE_TX_WQE_SIZE;
    } else if (!valid_mtu(mtu) || mtu > path_mtu) {
        error = MANA_HW_RNIC_VE_TX_MTU;
    } else if (bytes > kMaxMessage || (kind == SegmentKind::kWrite && bytes != total)) {
        error = MANA_HW_RNIC_VE_TX_LENGTH;
    } else if (first != expected) {
        error = MANA_HW_RNIC_VE_TX_WQE_FIELD;
    }
    if (error != 0) return;
    length = static_cast<std::uint32_t>(bytes);
    packets = packets_of(length, mtu);
    if (kind != SegmentKind::kRead) sges.assign(wqe.sges().begin(), wqe.sges().end());
}

std::uint16_t gather_error(gdma::MrFault fault) {
    switch (fault) {
        case gdma::MrFault::kAccess:
            return MANA_HW_RNIC_VE_TX_DATA_ACCESS;
        case gdma::MrFault::kRange:
            return MANA_HW_RNIC_VE_TX_DATA_RANGE;
        default:
            return MANA_HW_RNIC_VE_TX_DATA_KEY;
    }
}

std::uint16_t scatter_error(gdma::MrFault fault) {
    switch (fault) {
        case gdma::MrFault::kAccess:
            return MANA_HW_RNIC_VE_RX_SGE_ACCESS;
        case gdma::MrFault::kRange:
            return MANA_HW_RNIC_VE_RX_SGE_RANGE;
        default:
            return MANA_HW_RNIC_VE_RX_SGE_KEY;
    }
}

SendSlots::Run SendSlots::take() {
    if (spare_.empty()) return {std::vector<SendWqe>(kFew), {}};
    Run run = std::move(spare_.back());
    spare_.pop_back();
    spare_slots_ -= run.slots.size();
    return run;
}

void SendSlots::give_back(Run run) {
    if (spare_.size() == kMaxSpare || spare_slots_ + run.slots.size() > kMaxSpareSlots) return;
    spare_slots_ += run.slots.size();
    spare_.push_back(std::move(run));
}

void SendSlots::clear() {
    spare_.clear();
    spare_slots_ = 0;
}

std::optional<SendSlots::Run> SendSlots::make(std::size_t count) {
    auto charge = account_.charge(count * kSlotCost);
    if (!charge) return std::nullopt;
    return Run{std::vector<SendWqe>(count), std::move(*charge)};
}

bool SendQueue::reserve(std::uint32_t count) {
    if (count <= SendSlots::kFew) return true;
    auto run = pool_.make(std::bit_ceil(count));
    if (!run) return false;
    run_ = std::move(*run);
    return true;
}

bool SendQueue::grow() {
    if (run_.slots.empty()) {
        run_ = pool_.take();
        head_ = 0;
        return true;
    }
    auto bigger = pool_.make(run_.slots.size() * 2);
    if (!bigger) return false;
    for (std::uint32_t i = 0; i < size_; ++i) bigger->slots[i] = std::move(at(i));
    run_ = std::move(*bigger);
    head_ = 0;
    return true;
}

}  // namespace openmana::rnic
