// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <mana/queue.h>

#include "base/endian.h"
#include "gdma/config.h"
#include "gdma/tables.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// Takes doorbells (GDMA 3.8, 3.9) to their queues. On the executor.
class Doorbells {
public:
    static constexpr std::uint64_t kPageBytes = 0x1000;

    Doorbells(Tables& tables, const FunctionConfig& config, FunctionCounters& counters)
        : tables_(tables), config_(config), counters_(counters) {}

    /// Whether any queue can be there; else who rings has made his queues elsewhere.
    void expect(bool expected) { expected_ = expected; }
    /// What the driver wrote at `offset` from page 0 on.
    void write(std::uint64_t offset, std::span<const std::byte> data);
    /// Calls `visit(table, id)` if a write of these bytes is the doorbell of a work queue.
    template <typename Visit>
    void with_wq(std::uint64_t offset, std::span<const std::byte> data, Visit&& visit) const {
        if (data.size() != 8) return;
        switch (kind_of(offset)) {
            case Kind::kSend:
                visit(tables_.sqs.table(), wq_id(data));
                break;
            case Kind::kReceive:
                visit(tables_.rqs.table(), wq_id(data));
                break;
            case Kind::kOther:
                break;
        }
    }

private:
    enum class Kind : std::uint8_t { kSend, kReceive, kOther };
    [[nodiscard]] static Kind kind_of(std::uint64_t offset) {
        switch (offset % kPageBytes) {
            case MANA_HW_DB_SQ:
                return Kind::kSend;
            case MANA_HW_DB_RQ:
            case MANA_HW_DB_RQ_CLIENT:
                return Kind::kReceive;
            default:
                return Kind::kOther;
        }
    }
    [[nodiscard]] static std::uint32_t wq_id(std::span<const std::byte> data) {
        return static_cast<std::uint32_t>(base::load_le<std::uint64_t>(data.data()) &
                                          MANA_HW_DB_ID);
    }
    void ignore();
    [[nodiscard]] bool ring64(DoorbellPage page, std::uint32_t offset, std::uint64_t value);
    [[nodiscard]] bool ring32(DoorbellPage page, std::uint32_t offset, std::uint32_t value);
    [[nodiscard]] bool ring_cq(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                               bool relative);

    Tables& tables_;
    const FunctionConfig& config_;
    FunctionCounters& counters_;
    bool expected_ = false;
    bool told_ = false;  // said once: a guest can ask for it often
};

}  // namespace openmana::gdma
