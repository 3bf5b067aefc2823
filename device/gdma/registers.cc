// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include <mana/queue.h>

#include "base/endian.h"
#include "base/log.h"
#include "gdma/function_impl.h"

namespace openmana::gdma {

using base::load_le;

// ---- reads

std::uint32_t Function::Impl::read_word(std::uint64_t offset) const {
    switch (offset) {
        case MANA_HW_REG_DB_OFFSET:
            return kDoorbellOffset;
        case MANA_HW_REG_DB_PAGE_SIZE:
            return kDoorbellPageBytes;
        case MANA_HW_REG_SHM_OFFSET:
            return kShmOffset;
        default:
            break;
    }
    if (offset >= kShmOffset && offset < kShmOffset + MANA_HW_SHM_BYTES)
        return shm[(offset - kShmOffset) / 4];
    return 0;
}

void Function::bar0_read(std::uint64_t offset, std::span<std::byte> data) {
    std::size_t done = 0;
    while (done < data.size()) {
        const std::uint64_t at = offset + done;
        const std::size_t skip = at % 4;
        const std::size_t n = std::min(4 - skip, data.size() - done);
        const std::uint32_t word = impl_->read_word(at - skip);
        std::memcpy(data.data() + done, reinterpret_cast<const std::byte*>(&word) + skip, n);
        done += n;
    }
}

// ---- writes

void Function::bar0_write(std::uint64_t offset, std::span<const std::byte> data) {
    if (offset >= kDoorbellOffset) [[likely]] {
        impl_->write_doorbells(offset - kDoorbellOffset, data);
        return;
    }
    if (offset % 4 != 0 || data.size() % 4 != 0 || data.empty()) {
        impl_->counters.bar_ignored.add();
        return;
    }
    for (; !data.empty(); data = data.subspan(4), offset += 4) {
        if (offset >= kShmOffset && offset < kShmOffset + MANA_HW_SHM_BYTES)
            impl_->write_shm(static_cast<std::uint32_t>((offset - kShmOffset) / 4),
                             load_le<std::uint32_t>(data.data()));
        else
            impl_->counters.bar_ignored.add();
    }
}

/// Doorbells of many queues come in bursts, and nothing of those queues is in a cache. So a few of
/// them are worked on at a time: while one is served, the next ones wait for the memory of their
/// table entry, of what that names, and of the work itself.
void Function::bar0_writes(std::span<const base::BarWrite> writes) {
    constexpr std::size_t kEntryAhead = 8;
    constexpr std::size_t kMemoryAhead = 4;
    constexpr std::size_t kWorkAhead = 2;
    std::size_t entry = 1;
    std::size_t memory = 1;
    std::size_t work = 1;
    // By id each time: what comes before may change or destroy any queue.
    const auto up_to = [&](std::size_t& next, std::size_t end, auto&& hint) {
        for (; next < std::min(end, writes.size()); ++next)
            impl_->with_wq(writes[next], [&](const WqTable& table, std::uint32_t id) {
                hint(table, id, writes[next]);
            });
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
        bar0_write(writes[i].offset, writes[i].data);
    }
}

template <typename Visit>
void Function::Impl::with_wq(const base::BarWrite& write, Visit&& visit) const {
    if (write.offset < kDoorbellOffset || write.data.size() != 8) return;
    const auto id =
        static_cast<std::uint32_t>(load_le<std::uint64_t>(write.data.data()) & MANA_HW_DB_ID);
    switch (write.offset % kDoorbellPageBytes) {
        case MANA_HW_DB_SQ:
            visit(sqs, id);
            break;
        case MANA_HW_DB_RQ:
        case MANA_HW_DB_RQ_CLIENT:
            visit(rqs, id);
            break;
        default:
            break;
    }
}

void Function::Impl::write_shm(std::uint32_t index, std::uint32_t value) {
    shm[index] = value;
    if (index == MANA_HW_SHM_WORDS - 1) shm_request();
}

void Function::Impl::shm_request() {
    const std::uint32_t header = shm.back();
    const std::uint32_t type = header & MANA_HW_SHM_TYPE;
    const bool valid = (header & (MANA_HW_SHM_VERSION | MANA_HW_SHM_RESPONSE | MANA_HW_SHM_STATUS |
                                  MANA_HW_SHM_DEVICE_OWNS)) == 0;
    std::uint32_t status = 1;
    if (valid && type == MANA_HW_SHM_ESTABLISH) {
        status = establish();
    } else if (valid && type == MANA_HW_SHM_DESTROY) {
        reset(false);
        status = 0;
    }
    if (status != 0) {
        counters.shm_failed.add();
        OM_DEBUG("shm request failed: nic={} header={:#x} status={}", config.name, header, status);
    }
    // The driver gets the aperture back with the answer: the whole request runs inside its store
    // (GDMA 2.3).
    shm.back() = type | MANA_HW_SHM_RESPONSE | status << MANA_HW_SHM_STATUS_SHIFT;
}

std::uint32_t Function::Impl::establish() {
    mana_hw_shm_establish message;
    static_assert(sizeof message == sizeof shm);
    std::memcpy(&message, shm.data(), sizeof message);
    const auto address = [&](const std::uint8_t(&frame)[6], unsigned shift) {
        std::uint64_t low = 0;
        std::memcpy(&low, frame, sizeof frame);
        const std::uint64_t high = message.frames_high >> shift & 0xf;
        return GuestAddr((high << 48 | low) << MANA_HW_PAGE_SHIFT);
    };
    const Hwc::Rings rings{address(message.eq_frame, 0), address(message.cq_frame, 4),
                           address(message.rq_frame, 8), address(message.sq_frame, 12),
                           message.msix_index};
    if (rings.vector >= irq.vector_count()) return 2;
    // A driver that was killed (kexec) establishes again without a destroy.
    if (hwc) reset(false);
    const base::Gate::Exclusion exclusion(gate);
    auto created = Hwc::create(*this, rings);
    if (!created) {
        OM_DEBUG("hwc create failed: nic={} reason={} detail={:#x}", config.name,
                 created.error().text, created.error().detail);
        const auto rings_of = {rings.eq, rings.cq, rings.rq, rings.sq};
        if (std::any_of(rings_of.begin(), rings_of.end(),
                        [&](GuestAddr ring) { return memory.is_hole(ring); }))
            tell_unshared();
        reset_objects();
        return 3;
    }
    hwc = std::move(*created);
    OM_DEBUG("hwc create: nic={} eq={:#x} cq={:#x} rq={:#x} sq={:#x} vector={}", config.name,
             rings.eq.value(), rings.cq.value(), rings.rq.value(), rings.sq.value(), rings.vector);
    return 0;
}

// ---- doorbells

void Function::Impl::write_doorbells(std::uint64_t offset, std::span<const std::byte> data) {
    while (!data.empty()) {
        const std::uint64_t number = offset / kDoorbellPageBytes;
        const auto in_page = static_cast<std::uint32_t>(offset % kDoorbellPageBytes);
        const DoorbellPage page(static_cast<std::uint32_t>(number));
        const bool exists = number < config.doorbell_pages;
        if (data.size() >= 8 && offset % 8 == 0) {
            if (!exists || !doorbell64(page, in_page, load_le<std::uint64_t>(data.data())))
                counters.doorbell_ignored.add();
            data = data.subspan(8);
            offset += 8;
        } else if (data.size() >= 4 && offset % 4 == 0) {
            if (!exists || !doorbell32(page, in_page, load_le<std::uint32_t>(data.data())))
                counters.doorbell_ignored.add();
            data = data.subspan(4);
            offset += 4;
        } else {
            counters.bar_ignored.add();
            return;
        }
    }
}

bool Function::Impl::doorbell64(DoorbellPage page, std::uint32_t offset, std::uint64_t value) {
    const auto id = static_cast<std::uint32_t>(value & MANA_HW_DB_ID);
    const auto high = static_cast<std::uint32_t>(value >> 32);
    const auto index =
        static_cast<std::uint32_t>((value & MANA_HW_DB_INDEX) >> MANA_HW_DB_INDEX_SHIFT);
    const bool arm = (value & MANA_HW_DB_ARM) != 0;
    switch (offset) {
        case MANA_HW_DB_SQ:
            return ring_wq(sqs, id, page, high, false);
        case MANA_HW_DB_RQ:
            return ring_wq(rqs, id, page, high, false);
        case MANA_HW_DB_CQ:
            return ring_cq(id, page, index, arm, false);
        case MANA_HW_DB_EQ:
            return eqs.ring(static_cast<std::uint32_t>(value & MANA_HW_DB_EQ_ID), page, index, arm,
                            false);
        case MANA_HW_DB_RQ_CLIENT: {
            // Other codes than 1 beside the id mean something else (RNIC 3.8).
            if ((value >> MANA_HW_DB_WQE_COUNT_SHIFT & 0xff) != 1) return false;
            const WqTable::Slot* const slot = rqs.find(id);
            if (slot == nullptr || slot->target == nullptr || slot->page != page) return false;
            slot->target->arm_client(high & 0xffffff);
            return true;
        }
        default:
            return false;
    }
}

bool Function::Impl::doorbell32(DoorbellPage page, std::uint32_t offset, std::uint32_t value) {
    const std::uint32_t id = (value & MANA_HW_DB_SHORT_ID) >> MANA_HW_DB_SHORT_ID_SHIFT;
    const std::uint32_t increment = value & MANA_HW_DB_SHORT_INCREMENT;
    const bool arm = (value & MANA_HW_DB_SHORT_ARM) != 0;
    switch (offset) {
        case MANA_HW_DB_SQ_SHORT:
            return ring_wq(sqs, id, page, increment, true);
        case MANA_HW_DB_RQ_SHORT:
            return ring_wq(rqs, id, page, increment, true);
        case MANA_HW_DB_CQ_SHORT:
            return ring_cq(id, page, increment, arm, true);
        case MANA_HW_DB_EQ_SHORT:
            return eqs.ring(id, page, increment, arm, true);
        default:
            return false;
    }
}

bool Function::Impl::ring_wq(WqTable& table, std::uint32_t id, DoorbellPage page,
                             std::uint32_t position, bool relative) {
    const WqTable::Slot* const slot = table.find(id);
    if (slot == nullptr || slot->target == nullptr || slot->page != page) return false;
    table.prefetch_memory(id);
    std::uint32_t& last = table.position(id);
    last = relative ? last + position : position;
    slot->target->ring(last);
    return true;
}

bool Function::Impl::ring_cq(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                             bool relative) {
    const CqTable::Rung rung = cqs.ring(id, page, index, arm, relative);
    if (rung == CqTable::Rung::kOverrun) counters.cq_overruns.add();
    return rung != CqTable::Rung::kNoSuchCq;
}

}  // namespace openmana::gdma
