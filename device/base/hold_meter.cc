// SPDX-License-Identifier: Apache-2.0
#include "base/hold_meter.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <utility>

#include "base/result.h"

namespace openmana::base {
namespace {

constexpr std::uint64_t kMicrosecond = 1000;
constexpr const char* kNames[kHoldKinds] = {"exclusions", "visits", "locks"};

std::uint64_t thread_nanoseconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

HoldMeter::HoldMeter() {
    OM_CHECK(current() == nullptr);
    current_.store(this, std::memory_order_release);
}

HoldMeter::~HoldMeter() {
    current_.store(nullptr, std::memory_order_release);
}

void HoldMeter::Stopwatch::start() {
    work_ = work_done;
    began_ = thread_nanoseconds();
}

void HoldMeter::Stopwatch::stop(HoldKind kind, HoldCause cause) {
    const std::uint64_t began = std::exchange(began_, 0);
    HoldMeter* const meter = current();
    if (began == 0 || meter == nullptr) return;
    meter->add({kind, cause, thread_nanoseconds() - began, work_done - work_});
}

void HoldMeter::add(const Hold& hold) {
    const auto kind = static_cast<std::size_t>(hold.kind);
    const auto limit =
        std::find_if(kLimits.begin(), kLimits.end(), [&](std::uint64_t microseconds) {
            return hold.nanoseconds <= microseconds * kMicrosecond;
        });
    counts_[kind][static_cast<std::size_t>(limit - kLimits.begin())].fetch_add(
        1, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    Cause& cause = causes_[{hold.kind, hold.cause.what, hold.cause.apart ? hold.cause.detail : 0}];
    ++cause.holds;
    if (hold.nanoseconds > kSlow * kMicrosecond) ++cause.slow;
    if (hold.nanoseconds >= cause.longest.nanoseconds) cause.longest = hold;
    if (hold.work >= cause.largest.work) cause.largest = hold;
}

std::uint64_t HoldMeter::holds() const {
    std::uint64_t sum = 0;
    for (const auto& kind : counts_)
        for (const auto& count : kind) sum += count.load(std::memory_order_relaxed);
    return sum;
}

std::uint64_t HoldMeter::within(std::uint64_t microseconds) const {
    std::uint64_t sum = 0;
    for (const auto& kind : counts_)
        for (std::size_t i = 0; i < kLimits.size() && kLimits[i] <= microseconds; ++i)
            sum += kind[i].load(std::memory_order_relaxed);
    return sum;
}

HoldMeter::Hold HoldMeter::largest(std::optional<HoldKind> kind) const {
    const std::lock_guard lock(mutex_);
    Hold most;
    for (const auto& [key, cause] : causes_)
        if ((!kind || *kind == cause.largest.kind) && cause.largest.work >= most.work)
            most = cause.largest;
    return most;
}

std::vector<HoldMeter::Cause> HoldMeter::causes() const {
    std::vector<Cause> all;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [key, cause] : causes_) all.push_back(cause);
    }
    std::ranges::sort(all, std::greater(),
                      [](const Cause& cause) { return cause.longest.nanoseconds; });
    return all;
}

void HoldMeter::clear() {
    for (auto& kind : counts_)
        for (auto& count : kind) count.store(0, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    causes_.clear();
}

std::string HoldMeter::report() const {
    std::string text;
    for (std::size_t kind = 0; kind < kHoldKinds; ++kind) {
        text += fmt::format("{:<10}", kNames[kind]);
        for (std::size_t i = 0; i < kLimits.size(); ++i)
            text += fmt::format(" <={}us {}", kLimits[i],
                                counts_[kind][i].load(std::memory_order_relaxed));
        text += fmt::format(" more {}\n",
                            counts_[kind][kLimits.size()].load(std::memory_order_relaxed));
    }
    for (const Cause& cause : causes()) {
        const Hold& longest = cause.longest;
        text += fmt::format(
            "{:<10} {} {:#x}: {} holds, {} over {} us, longest {:.1f} us ({} units), most {} "
            "units\n",
            kNames[static_cast<std::size_t>(longest.kind)], longest.cause.what,
            longest.cause.detail, cause.holds, cause.slow, kSlow,
            static_cast<double>(longest.nanoseconds) / kMicrosecond, longest.work,
            cause.largest.work);
    }
    return text;
}

}  // namespace openmana::base
