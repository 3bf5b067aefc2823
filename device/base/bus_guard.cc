// SPDX-License-Identifier: Apache-2.0
#include "base/bus_guard.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace openmana::base {
namespace {

constexpr std::size_t kSlots = 65536;  // as many mappings as the system gives a process, by default
constexpr std::size_t kFirstStep = 2U << 20;
constexpr std::uintptr_t kFree = 0;
constexpr std::uintptr_t kTaken = 1;

/// `start` is set last and cleared first, so that the handler never sees a start with another's
/// values.
struct Slot {
    std::atomic<std::uintptr_t> start{kFree};
    std::atomic<std::size_t> length{0};
    std::atomic<std::size_t> step{0};  // of the next replacement
    std::atomic<MemoryLoss*> loss{nullptr};
};
Slot slots[kSlots];
std::atomic<std::size_t> used_slots{0};  // none behind this was ever taken
std::atomic<std::uint64_t> replacements{0};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

Slot* slot_of(std::uintptr_t address) {
    const std::size_t count = used_slots.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t start = slots[i].start.load(std::memory_order_acquire);
        if (start > kTaken && address - start < slots[i].length.load(std::memory_order_relaxed))
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

bool BusGuard::add(const Range& range, MemoryLoss* loss) {
    for (std::size_t i = 0; i < kSlots; ++i) {
        Slot& slot = slots[i];
        std::uintptr_t expected = kFree;
        if (slot.start.load(std::memory_order_relaxed) != kFree ||
            !slot.start.compare_exchange_strong(expected, kTaken))
            continue;
        slot.length.store(range.length, std::memory_order_relaxed);
        slot.step.store(std::max<std::size_t>(kFirstStep, range.page), std::memory_order_relaxed);
        slot.loss.store(loss, std::memory_order_relaxed);
        slot.start.store(reinterpret_cast<std::uintptr_t>(range.start), std::memory_order_release);
        std::size_t count = used_slots.load(std::memory_order_relaxed);
        while (count <= i &&
               !used_slots.compare_exchange_weak(count, i + 1, std::memory_order_release)) {
        }
        return true;
    }
    return false;
}

void BusGuard::remove(const void* start) {
    const auto address = reinterpret_cast<std::uintptr_t>(start);
    const std::size_t count = used_slots.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        if (slots[i].start.load(std::memory_order_relaxed) != address) continue;
        slots[i].start.store(kFree, std::memory_order_release);
        return;
    }
}

std::uint64_t BusGuard::losses() {
    return replacements.load(std::memory_order_relaxed);
}

}  // namespace openmana::base
