// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <dp_cq.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "support/provider_host.h"

namespace openmana::test {

/// Writes a CQE as the device does: the word with the owner bits last.
inline void write_cqe(const mana_dp_cq& cq, std::uint32_t position, const void* data,
                      std::uint32_t queue_id, bool is_sq) {
    mana_hw_cqe* cqe = cq.ring + (position & (cq.entries - 1));
    auto* word = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::uint8_t*>(cqe) +
                                                  offsetof(mana_hw_cqe, word));
    std::memcpy(cqe->data, data, 60);
    mana_store_release(word, queue_id | (is_sq ? MANA_HW_CQE_IS_SQ : 0) |
                                 (position >> cq.shift & 7) << MANA_HW_OWNER_SHIFT);
}

/// A CQ whose device is the test.
class TestCq {
public:
    TestCq(DoorbellSink& sink, const Tables& tables, std::uint32_t entries, bool extended)
        : memory_(std::make_unique<QueueMemory>(entries * 64 + 64)), produced_(entries) {
        auto* record = reinterpret_cast<mana_hw_ext_cq_record*>(memory_->data() + entries * 64);
        mana_dp_cq_init(&dp, memory_->data(), entries, extended ? record : nullptr, tables.sq.get(),
                        tables.rq.get());
        dp.id = 0x64;
        dp.doorbell = sink.page();
    }
    /// Writes a CQE as the device does.
    template <typename T>
    void write(const T& data, std::uint32_t queue_id, bool is_sq) {
        static_assert(sizeof(T) == 60);
        write_cqe(dp, produced_++, &data, queue_id, is_sq);
    }
    void armed(std::uint32_t rreq, std::uint32_t psn) {
        mana_hw_rnic_armed_cqe cqe{};
        cqe.type = MANA_HW_RNIC_CQE_ARMED;
        cqe.msn_syndrome = 0x1fU << 24;
        cqe.psn = psn;
        write(cqe, rreq, false);
    }
    void error(std::uint32_t id, bool is_sq, std::uint32_t vendor, std::uint32_t psn) {
        mana_hw_rnic_error_cqe cqe{};
        cqe.type_vendor = MANA_HW_RNIC_CQE_ERROR | vendor << MANA_HW_RNIC_CQE_VENDOR_SHIFT;
        cqe.psn_opcode = psn;
        cqe.responder_psn = 0xffffffff;
        write(cqe, id, is_sq);
    }
    void received(std::uint32_t rresp, std::uint8_t type, std::uint32_t length,
                  std::uint32_t offset, std::uint32_t immediate = 0) {
        mana_hw_rnic_recv_cqe cqe{};
        cqe.type = type;
        cqe.length = length;
        cqe.immediate = immediate;
        cqe.wqe_offset = offset;
        write(cqe, rresp, false);
    }
    /// All there is, or at most so many.
    std::vector<mana_completion> poll(std::size_t most = 1000) {
        std::vector<mana_completion> out;
        mana_completion c{};
        while (out.size() < most && (last = mana_dp_cq_poll(&dp, &c)) > 0) out.push_back(c);
        mana_dp_cq_done(&dp);
        return out;
    }
    /// The device moves the CQEs that were not taken to a ring of another size. Nobody polls or
    /// arms.
    void resize(std::uint32_t entries) {
        auto memory = std::make_unique<QueueMemory>(entries * 64 + 64);
        // Not all of it: who waits for a lock of it writes to that.
        const auto [ring, old_entries, consumer] = std::tuple(dp.ring, dp.entries, dp.consumer);
        auto* record = reinterpret_cast<mana_hw_ext_cq_record*>(memory->data() + entries * 64);
        mana_dp_cq_replace(&dp, memory->data(), entries, record, entries);
        const std::uint32_t left = produced_ - consumer;
        for (std::uint32_t i = 0; i < left; ++i) {
            const mana_hw_cqe& cqe = ring[(consumer + i) & (old_entries - 1)];
            write_cqe(dp, entries + i, cqe.data, cqe.word & MANA_HW_CQE_QUEUE_ID,
                      (cqe.word & MANA_HW_CQE_IS_SQ) != 0);
        }
        produced_ = entries + left;
        memory_ = std::move(memory);
    }
    mana_dp_cq dp{};
    int last = 0;

private:
    std::unique_ptr<QueueMemory> memory_;
    std::uint32_t produced_;
};

}  // namespace openmana::test
