// SPDX-License-Identifier: Apache-2.0
#include "gdma/wqe.h"

#include <algorithm>
#include <cstring>

#include <mana/queue.h>

#include "base/endian.h"

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::load_le;

namespace {

/// Of the inline OOB; 0 if the code means none.
std::uint32_t oob_bytes(std::uint32_t header1) {
    switch ((header1 & MANA_HW_WQE_OOB_CODE) >> MANA_HW_WQE_OOB_CODE_SHIFT) {
        case MANA_HW_OOB_SMALL:
            return 8;
        case MANA_HW_OOB_LARGE:
            return 24;
        case MANA_HW_OOB_EXTRA_LARGE:
            return 40;
        default:
            return 0;
    }
}

std::uint32_t wqe_bytes(std::uint32_t header1, std::uint32_t oob) {
    const std::uint32_t sges = header1 & MANA_HW_WQE_SGE_COUNT;
    const std::uint32_t used = 8 + oob + sges * std::uint32_t{sizeof(mana_hw_sge)};
    return (used + MANA_HW_WQE_UNIT - 1) / MANA_HW_WQE_UNIT * MANA_HW_WQE_UNIT;
}

}  // namespace

Wqe::Peek Wqe::peek(const Ring& ring, std::uint32_t position) {
    Peek result;
    if (!ring.read(position, result.bytes)) return result;
    const auto header1 = load_le<std::uint32_t>(result.bytes.data() + 4);
    result.oob_size = oob_bytes(header1);
    if (result.oob_size != 0) result.size = wqe_bytes(header1, result.oob_size);
    return result;
}

base::Result<Wqe> Wqe::fetch(const Ring& ring, std::uint32_t position, std::uint32_t available,
                             std::size_t max_bytes) {
    max_bytes = std::min<std::size_t>(max_bytes, kMaxSendBytes);
    if (available < MANA_HW_WQE_UNIT)
        return fail(ErrorCode::kProtocol, "WQE is not posted whole", available);
    std::array<std::byte, kMaxSendBytes> raw;
    if (!ring.read(position, std::span(raw).first(MANA_HW_WQE_UNIT)))
        return fail(ErrorCode::kOutOfRange, "WQE is not in guest memory", position);

    Wqe wqe;
    wqe.position_ = position;
    wqe.header0_ = load_le<std::uint32_t>(raw.data());
    wqe.header1_ = load_le<std::uint32_t>(raw.data() + 4);
    wqe.oob_size_ = oob_bytes(wqe.header1_);
    if (wqe.oob_size_ == 0)
        return fail(ErrorCode::kProtocol, "WQE has an unknown OOB size", wqe.header1_);
    const std::uint32_t counted = wqe.header1_ & MANA_HW_WQE_SGE_COUNT;
    const std::uint32_t padding = wqe.header0_ & MANA_HW_WQE_PADDING_COUNT;
    wqe.size_ = wqe_bytes(wqe.header1_, wqe.oob_size_);
    if (wqe.size_ > max_bytes)
        return fail(ErrorCode::kProtocol, "WQE is too big", wqe.size_, max_bytes);
    if (wqe.size_ > available)
        return fail(ErrorCode::kProtocol, "WQE is not posted whole", wqe.size_, available);
    if (padding > counted)
        return fail(ErrorCode::kProtocol, "WQE pads more SGEs than it has", padding, counted);
    wqe.sge_count_ = counted - padding;
    // The unit at the head is not read again: a guest that changes it meanwhile changes nothing.
    if (wqe.size_ > MANA_HW_WQE_UNIT &&
        !ring.read(std::uint64_t{position} + MANA_HW_WQE_UNIT,
                   std::span(raw).first(wqe.size_).subspan(MANA_HW_WQE_UNIT)))
        return fail(ErrorCode::kOutOfRange, "WQE is not in guest memory", position);

    std::memcpy(wqe.bytes_.data(), raw.data(), 8 + wqe.oob_size_);
    const std::byte* at = raw.data() + 8 + wqe.oob_size_;
    for (std::uint32_t i = 0; i < wqe.sge_count_; ++i, at += sizeof(mana_hw_sge))
        wqe.sges_[i] = Sge{load_le<std::uint64_t>(at), Key(load_le<std::uint32_t>(at + 8)),
                           load_le<std::uint32_t>(at + 12)};
    return wqe;
}

std::uint64_t Wqe::total_length() const {
    std::uint64_t total = 0;
    for (const Sge& sge : sges()) total += sge.length;
    return total;
}

}  // namespace openmana::gdma
