// SPDX-License-Identifier: Apache-2.0
#include "gdma/doorbells.h"

#include <utility>

#include <mana/queue.h>

#include "base/endian.h"
#include "base/log.h"
#include "base/probe.h"
#include "gdma/doorbell_value.h"

namespace openmana::gdma {

using base::load_le;

void Doorbells::write(std::uint64_t offset, std::span<const std::byte> data) {
    while (!data.empty()) {
        const std::uint64_t number = offset / kPageBytes;
        const auto in_page = static_cast<std::uint32_t>(offset % kPageBytes);
        const DoorbellPage page(static_cast<std::uint32_t>(number));
        const bool exists = number < config_.doorbell_pages;
        if (data.size() >= 8 && offset % 8 == 0) {
            if (!exists || !ring64(page, in_page, load_le<std::uint64_t>(data.data()))) ignore();
            data = data.subspan(8);
            offset += 8;
        } else if (data.size() >= 4 && offset % 4 == 0) {
            if (!exists || !ring32(page, in_page, load_le<std::uint32_t>(data.data()))) ignore();
            data = data.subspan(4);
            offset += 4;
        } else {
            counters_.bar_ignored.add();
            return;
        }
    }
}

/// A driver makes the HWC before anything else. One that rings without has made it with a NIC that
/// is not here any more: its guest was moved, or brought back, without its NIC.
void Doorbells::ignore() {
    counters_.doorbell_ignored.add();
    if (expected_) return;
    counters_.doorbell_strange.add();
    if (!std::exchange(told_, true))
        OM_WARN(
            "doorbells for queues that this NIC never made: nic={} cure=\"unload and load the "
            "driver in the guest: it was moved or restored without its NIC\"",
            config_.name);
}

bool Doorbells::ring64(DoorbellPage page, std::uint32_t offset, std::uint64_t value) {
    const auto [id, eq_id, position, index, arm] = DoorbellValue(value);
    OM_PROBE(doorbell, page.value(), offset, id, value);
    switch (offset) {
        case MANA_HW_DB_SQ:
            return tables_.sqs.ring(id, page, position, false);
        case MANA_HW_DB_RQ:
            return tables_.rqs.ring(id, page, position, false);
        case MANA_HW_DB_CQ:
            return ring_cq(id, page, index, arm, false);
        case MANA_HW_DB_CQ_MODERATION:
            return tables_.cqs.moderate(id, page, value);
        case MANA_HW_DB_EQ:
            return tables_.eqs.ring(eq_id, page, index, arm, false);
        case MANA_HW_DB_RQ_CLIENT:
            // Other codes than 1 beside the id mean something else (RNIC 3.8).
            return (value >> MANA_HW_DB_WQE_COUNT_SHIFT & 0xff) == 1 &&
                   tables_.rqs.ring_client(id, page, position);
        default:
            return false;
    }
}

bool Doorbells::ring32(DoorbellPage page, std::uint32_t offset, std::uint32_t value) {
    const std::uint32_t id = (value & MANA_HW_DB_SHORT_ID) >> MANA_HW_DB_SHORT_ID_SHIFT;
    const std::uint32_t increment = value & MANA_HW_DB_SHORT_INCREMENT;
    const bool arm = (value & MANA_HW_DB_SHORT_ARM) != 0;
    switch (offset) {
        case MANA_HW_DB_SQ_SHORT:
            return tables_.sqs.ring(id, page, increment, true);
        case MANA_HW_DB_RQ_SHORT:
            return tables_.rqs.ring(id, page, increment, true);
        case MANA_HW_DB_CQ_SHORT:
            return ring_cq(id, page, increment, arm, true);
        case MANA_HW_DB_EQ_SHORT:
            return tables_.eqs.ring(id, page, increment, arm, true);
        default:
            return false;
    }
}

bool Doorbells::ring_cq(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                        bool relative) {
    const CqTable::Rung rung = tables_.cqs.ring(id, page, index, arm, relative);
    if (rung == CqTable::Rung::kOverrun) counters_.cq_overruns.add();
    return rung != CqTable::Rung::kNoSuchCq;
}

}  // namespace openmana::gdma
