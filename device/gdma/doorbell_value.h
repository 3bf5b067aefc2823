// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <mana/queue.h>

namespace openmana::gdma {

/// What a doorbell of 64 bits says (GDMA 3.8).
struct DoorbellValue {
    explicit DoorbellValue(std::uint64_t value)
        : id(static_cast<std::uint32_t>(value & MANA_HW_DB_ID)),
          eq_id(static_cast<std::uint32_t>(value & MANA_HW_DB_EQ_ID)),
          position(static_cast<std::uint32_t>(value >> 32)),
          index(static_cast<std::uint32_t>((value & MANA_HW_DB_INDEX) >> MANA_HW_DB_INDEX_SHIFT)),
          arm((value & MANA_HW_DB_ARM) != 0) {}

    std::uint32_t id;        ///< of an SQ, RQ or CQ
    std::uint32_t eq_id;     ///< of an EQ
    std::uint32_t position;  ///< of an SQ or RQ
    std::uint32_t index;     ///< of a CQ or EQ
    bool arm;
};

}  // namespace openmana::gdma
