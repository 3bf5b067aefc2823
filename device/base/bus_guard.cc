// SPDX-License-Identifier: Apache-2.0
#include "base/bus_guard.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace openmana::base {
namespace {

constexpr std::size_t kSlots = 65536;  // as many mappings as the system gives a process, by default
constexpr std::uintptr_t kFree = 0;
constexpr std::uintptr_t kTaken = 1;
constexpr std::uintptr_t kPage = 4096;

/// `start` is set last and cleared first, so that the handler never sees a start with another's
/// length.
struct Slot {
    std::atomic<std::uintptr_t> start{kFree};
    std::atomic<std::size_t> length{0};
};
Slot slots[kSlots];
std::atomic<std::size_t> used_slots{0};  // none behind this was ever taken
std::atomic<std::uint64_t> lost{0};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

bool registered(std::uintptr_t address) {
    const std::size_t count = used_slots.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t start = slots[i].start.load(std::memory_order_acquire);
        if (start > kTaken && address - start < slots[i].length.load(std::memory_order_relaxed))
            return true;
    }
    return false;
}

/// Calls nothing but what is safe in a signal handler: mmap and signal are plain system calls.
void on_sigbus(int number, siginfo_t* info, void*) {
    const int saved = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    void* page = reinterpret_cast<void*>(address & ~(kPage - 1));
    if (registered(address) && ::mmap(page, kPage, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        lost.fetch_add(1, std::memory_order_relaxed);
    else
        ::signal(number, SIG_DFL);  // the access is tried again, and ends the process
    errno = saved;
}

}  // namespace

Result<void> BusGuard::install() {
    struct sigaction action {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    if (::sigaction(SIGBUS, &action, nullptr) != 0)
        return fail(ErrorCode::kIo, "cannot catch SIGBUS", static_cast<unsigned>(errno));
    return {};
}

bool BusGuard::add(const void* start, std::size_t length) {
    for (std::size_t i = 0; i < kSlots; ++i) {
        std::uintptr_t expected = kFree;
        if (slots[i].start.load(std::memory_order_relaxed) != kFree ||
            !slots[i].start.compare_exchange_strong(expected, kTaken))
            continue;
        slots[i].length.store(length, std::memory_order_relaxed);
        slots[i].start.store(reinterpret_cast<std::uintptr_t>(start), std::memory_order_release);
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

std::uint64_t BusGuard::lost_pages() {
    return lost.load(std::memory_order_relaxed);
}

}  // namespace openmana::base
