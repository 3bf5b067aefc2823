// SPDX-License-Identifier: Apache-2.0
#include "rnic/receive_ring.h"

#include <mana/queue.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "rnic/ext_format.h"

namespace openmana::rnic {

std::optional<ReceiveFormat::Take> ReceiveRing::take(std::uint32_t producer, Receive& receive) {
    const std::uint32_t available = producer - consumer_;
    if (available > entries_) return std::nullopt;
    if (available == 0) return ReceiveFormat::Take::kEmpty;
    std::array<std::byte, MANA_HW_EXT_WQE_MAX_BYTES> bytes;
    const auto wqe = std::span(bytes).first(stride_);
    receive.sges.clear();
    receive.total = 0;
    receive.name = 0;
    receive.named = false;
    const bool read = ring_.read(std::uint64_t{consumer_ % entries_} * stride_, wqe);
    ++consumer_;
    if (!read) return ReceiveFormat::Take::kMalformed;
    const auto header = ext_segment_at<mana_hw_ext_receive>(wqe, 0);
    receive.name = header.cookie;
    receive.named = true;
    const std::size_t room = (stride_ - sizeof header) / sizeof(mana_hw_sge);
    if (header.sge_count > std::min<std::size_t>(room, kExtMaxSge))
        return ReceiveFormat::Take::kMalformed;
    for (std::uint32_t i = 0; i < header.sge_count; ++i) {
        receive.sges.push_back(ext_sge_at(wqe.data() + sizeof header + i * sizeof(mana_hw_sge)));
        receive.total += receive.sges.back().length;
    }
    return ReceiveFormat::Take::kOk;
}

}  // namespace openmana::rnic
