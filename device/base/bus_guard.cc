// SPDX-License-Identifier: Apache-2.0
#include "base/bus_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

#include "base/hold_meter.h"

namespace openmana::base {
namespace {

constexpr std::size_t kFirstStep = 2U << 20;
constexpr std::uintptr_t kFree = 0;
constexpr std::uint32_t kNone = UINT32_MAX;

/// `start` is set last and cleared first, so that the handler never sees a start with another's
/// values.
struct Slot {
    std::atomic<std::uintptr_t> start{kFree};
    std::atomic<std::size_t> length{0};
    std::atomic<std::size_t> step{0};  // of the next replacement
    std::atomic<MemoryLoss*> loss{nullptr};
    std::uint32_t next_free = kNone;  // of one that is free again
};
Slot slots[BusGuard::kMaxRanges];
std::mutex places_mutex;                   // protects which places are free
std::atomic<std::uint32_t> used_slots{0};  // none behind this was ever taken
std::uint32_t first_free = kNone;
std::atomic<std::uint64_t> replacements{0};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

Slot* slot_of(std::uintptr_t address) {
    const std::size_t count = used_slots.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t start = slots[i].start.load(std::memory_order_acquire);
        if (start != kFree && address - start < slots[i].length.load(std::memory_order_relaxed))
            return &slots[i];
    }
    return nullptr;
}

/// Without MAP_NORESERVE the system might have no room for the size of a guest.
bool map_zeros(const LostPiece& piece) {
    return ::mmap(reinterpret_cast<void*>(piece.start), piece.length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

bool replace(Slot& slot, std::uintptr_t address) {
    const std::uintptr_t start = slot.start.load(std::memory_order_relaxed);
    const std::size_t length = slot.length.load(std::memory_order_relaxed);
    const std::size_t step = slot.step.load(std::memory_order_relaxed);
    if (step < length) slot.step.store(2 * step, std::memory_order_relaxed);
    // The whole range takes no mapping more, should the system have no more.
    return map_zeros(lost_piece(start, length, address, step)) || map_zeros({start, length});
}

/// Calls nothing but what is safe in a signal handler: mmap, write and signal are plain system
/// calls.
void on_sigbus(int number, siginfo_t* info, void*) {
    const int saved = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    Slot* slot = slot_of(address);
    if (slot != nullptr && replace(*slot, address)) {
        replacements.fetch_add(1, std::memory_order_relaxed);
        if (MemoryLoss* loss = slot->loss.load(std::memory_order_relaxed)) loss->note();
    } else {
        ::signal(number, SIG_DFL);  // the access is tried again, and ends the process
    }
    errno = saved;
}

}  // namespace

LostPiece lost_piece(std::uintptr_t start, std::size_t length, std::uintptr_t address,
                     std::size_t step) {
    const std::uintptr_t first = address & ~(step - 1);
    const std::uintptr_t begin = std::max(start, first);
    const std::size_t left = start + length - begin;
    return {begin, std::min(left, step - (begin - first))};
}

Result<void> BusGuard::install() {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, nullptr) != 0)
        return fail(ErrorCode::kIo, "cannot catch SIGBUS", static_cast<unsigned>(errno));
    return {};
}

std::optional<std::uint32_t> BusGuard::add(const Range& range, MemoryLoss* loss) {
    const std::lock_guard lock(places_mutex);
    count_work(1);
    std::uint32_t place = first_free;
    if (place != kNone) {
        first_free = slots[place].next_free;
    } else {
        place = used_slots.load(std::memory_order_relaxed);
        if (place == kMaxRanges) return std::nullopt;
        used_slots.store(place + 1, std::memory_order_release);
    }
    Slot& slot = slots[place];
    slot.length.store(range.length, std::memory_order_relaxed);
    slot.step.store(std::max<std::size_t>(kFirstStep, range.page), std::memory_order_relaxed);
    slot.loss.store(loss, std::memory_order_relaxed);
    slot.start.store(reinterpret_cast<std::uintptr_t>(range.start), std::memory_order_release);
    return place;
}

void BusGuard::remove(std::uint32_t place) {
    const std::lock_guard lock(places_mutex);
    count_work(1);
    slots[place].start.store(kFree, std::memory_order_release);
    slots[place].next_free = first_free;
    first_free = place;
}

std::uint64_t BusGuard::losses() {
    return replacements.load(std::memory_order_relaxed);
}

}  // namespace openmana::base
