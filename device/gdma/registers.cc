// SPDX-License-Identifier: Apache-2.0
#include "gdma/registers.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/endian.h"
#include "base/log.h"

namespace openmana::gdma {

using base::load_le;

std::uint64_t Registers::size() const {
    return std::bit_ceil(kDoorbellOffset + Doorbells::kPageBytes * config_.doorbell_pages);
}

// ---- reads

std::uint32_t Registers::read_word(std::uint64_t offset) const {
    switch (offset) {
        case MANA_HW_REG_DB_OFFSET:
            return kDoorbellOffset;
        case MANA_HW_REG_DB_PAGE_SIZE:
            return static_cast<std::uint32_t>(Doorbells::kPageBytes);
        case MANA_HW_REG_SHM_OFFSET:
            return kShmOffset;
        default:
            break;
    }
    if (offset >= kShmOffset && offset < kShmOffset + MANA_HW_SHM_BYTES)
        return shm_[(offset - kShmOffset) / 4];
    return 0;
}

void Registers::read(std::uint64_t offset, std::span<std::byte> data) const {
    std::size_t done = 0;
    while (done < data.size()) {
        const std::uint64_t at = offset + done;
        const std::size_t skip = at % 4;
        const std::size_t n = std::min(4 - skip, data.size() - done);
        const std::uint32_t word = read_word(at - skip);
        std::memcpy(data.data() + done, reinterpret_cast<const std::byte*>(&word) + skip, n);
        done += n;
    }
}

// ---- writes

void Registers::write(std::uint64_t offset, std::span<const std::byte> data) {
    if (offset >= kDoorbellOffset) [[likely]] {
        doorbells_.write(offset - kDoorbellOffset, data);
        return;
    }
    if (offset % 4 != 0 || data.size() % 4 != 0 || data.empty()) {
        counters_.bar_ignored.add();
        return;
    }
    for (; !data.empty(); data = data.subspan(4), offset += 4) {
        if (offset >= kShmOffset && offset < kShmOffset + MANA_HW_SHM_BYTES)
            write_shm(static_cast<std::uint32_t>((offset - kShmOffset) / 4),
                      load_le<std::uint32_t>(data.data()));
        else
            counters_.bar_ignored.add();
    }
}

/// Doorbells of many queues come in bursts, and nothing of those queues is in a cache. So a few of
/// them are worked on at a time: while one is served, the next ones wait for the memory of their
/// table entry, of what that names, and of the work itself.
void Registers::write_all(std::span<const base::BarWrite> writes) {
    constexpr std::size_t kEntryAhead = 8;
    constexpr std::size_t kMemoryAhead = 4;
    constexpr std::size_t kWorkAhead = 2;
    std::size_t entry = 1;
    std::size_t memory = 1;
    std::size_t work = 1;
    // By id each time: what comes before may change or destroy any queue.
    const auto up_to = [&](std::size_t& next, std::size_t end, auto&& hint) {
        for (; next < std::min(end, writes.size()); ++next)
            if (const auto& write = writes[next]; write.offset >= kDoorbellOffset)
                doorbells_.with_wq(
                    write.offset - kDoorbellOffset, write.data,
                    [&](const WqTable& table, std::uint32_t id) { hint(table, id, write); });
    };
    using Write = base::BarWrite;
    for (std::size_t i = 0; i < writes.size(); ++i) {
        up_to(entry, i + 1 + kEntryAhead,
              [](const WqTable& table, std::uint32_t id, const Write&) { table.prefetch(id); });
        up_to(memory, i + 1 + kMemoryAhead,
              [](const WqTable& table, std::uint32_t id, const Write&) {
                  table.prefetch_memory(id);
              });
        up_to(work, i + 1 + kWorkAhead,
              [](const WqTable& table, std::uint32_t id, const Write& write) {
                  const WqTable::Slot* const slot = table.find(id);
                  if (slot == nullptr || slot->target == nullptr) return;
                  slot->target->prepare(
                      static_cast<std::uint32_t>(load_le<std::uint64_t>(write.data.data()) >> 32));
              });
        write(writes[i].offset, writes[i].data);
    }
}

void Registers::write_shm(std::uint32_t index, std::uint32_t value) {
    shm_[index] = value;
    if (index == MANA_HW_SHM_WORDS - 1) shm_request();
    note_shm();
}

void Registers::note_shm() {
    if (ledger_ == nullptr) return;
    for (std::size_t i = 0; i < shm_.size(); ++i)
        ledger_->shm[i].store(shm_[i], std::memory_order_release);
}

void Registers::recover() {
    for (std::size_t i = 0; i < shm_.size(); ++i)
        shm_[i] = ledger_->shm[i].load(std::memory_order_acquire);
}

void Registers::shm_request() {
    const std::uint32_t header = shm_.back();
    const std::uint32_t type = header & MANA_HW_SHM_TYPE;
    const bool valid = (header & (MANA_HW_SHM_VERSION | MANA_HW_SHM_RESPONSE | MANA_HW_SHM_STATUS |
                                  MANA_HW_SHM_DEVICE_OWNS)) == 0;
    std::uint32_t status = 1;
    if (valid && type == MANA_HW_SHM_ESTABLISH) {
        status = handler_.establish(rings());
    } else if (valid && type == MANA_HW_SHM_DESTROY) {
        handler_.destroy();
        status = 0;
    }
    if (status != 0) {
        counters_.shm_failed.add();
        OM_DEBUG("shm request failed: nic={} header={:#x} status={}", config_.name, header, status);
    }
    // The driver gets the aperture back with the answer: the whole request runs inside its store
    // (GDMA 2.3).
    shm_.back() = type | MANA_HW_SHM_RESPONSE | status << MANA_HW_SHM_STATUS_SHIFT;
}

Hwc::Rings Registers::rings() const {
    mana_hw_shm_establish message;
    static_assert(sizeof message == sizeof shm_);
    std::memcpy(&message, shm_.data(), sizeof message);
    const auto address = [&](const std::uint8_t(&frame)[6], unsigned shift) {
        std::uint64_t low = 0;
        std::memcpy(&low, frame, sizeof frame);
        const std::uint64_t high = message.frames_high >> shift & 0xf;
        return GuestAddr((high << 48 | low) << MANA_HW_PAGE_SHIFT);
    };
    return {address(message.eq_frame, 0), address(message.cq_frame, 4),
            address(message.rq_frame, 8), address(message.sq_frame, 12), message.msix_index};
}

}  // namespace openmana::gdma
