// SPDX-License-Identifier: Apache-2.0
#include "fabric/faults.h"

#include <algorithm>
#include <utility>

#include "roce/packet.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kEthernetHeader = 14;
constexpr unsigned kMaxPassed = 4;

}  // namespace

FaultInjector::FaultInjector(base::Executor& executor, const FaultConfig& config,
                             FaultCounters& counters, std::function<void(base::Frame)> next)
    : executor_(executor),
      config_(config),
      counters_(counters),
      next_(std::move(next)),
      timer_(executor, [this] { fire(); }) {}

void FaultInjector::push(base::Frame frame) {
    // A generator of its own for each frame, always asked the same questions in the same order.
    base::Random random(config_.seed * 0x9e3779b97f4a7c15ULL + ++frames_);
    random.next();  // neighbouring seeds give neighbouring first values
    random.next();
    const bool drop = random.chance_ppm(config_.loss_ppm);
    const bool duplicate = random.chance_ppm(config_.duplicate_ppm);
    const bool reorder = random.chance_ppm(config_.reorder_ppm);
    const bool corrupt = random.chance_ppm(config_.corrupt_ppm);
    const std::uint64_t passed = random.below(kMaxPassed);
    const std::uint64_t where = random.next();
    const std::uint64_t jitter = random.next();

    if (drop) {
        counters_.lost.add();
        return;
    }
    if (bytes_ + frame.size() > kMaxHeldBytes) {
        counters_.overflows.add();
        return;
    }
    extra_delay_ = {};
    if (config_.jitter.count() > 0)
        extra_delay_ = base::Duration(static_cast<base::Duration::rep>(
            jitter % (static_cast<std::uint64_t>(config_.jitter.count()) + 1)));
    base::Frame copy;
    if (duplicate) {
        counters_.duplicated.add();
        copy = frame;
    }
    if (corrupt && frame.size() > kEthernetHeader) {
        counters_.corrupted.add();
        roce::put_icrc(frame);  // or nobody would find it
        const std::uint64_t bit = where % ((frame.size() - kEthernetHeader) * 8);
        frame[kEthernetHeader + bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
    if (reorder) {
        counters_.reordered.add();
        bytes_ += frame.size();
        held_.push_back(HeldBack{static_cast<unsigned>(passed) + 1, executor_.now() + kMaxHold,
                                 std::move(frame)});
        if (duplicate) pass_on(std::move(copy));
        arm();
        return;
    }
    pass_on(std::move(frame));
    if (duplicate) emit(std::move(copy));
}

void FaultInjector::pass_on(base::Frame frame) {
    emit(std::move(frame));
    for (HeldBack& held : held_)
        if (held.frames_to_pass > 0) --held.frames_to_pass;
    release_held();
}

void FaultInjector::emit(base::Frame frame) {
    const base::Duration wait = config_.delay + extra_delay_;
    if (wait.count() == 0 && delayed_.empty()) {
        next_(std::move(frame));
        return;
    }
    counters_.delayed.add();
    base::TimePoint due = executor_.now() + wait;
    if (!delayed_.empty()) due = std::max(due, delayed_.back().due);
    bytes_ += frame.size();
    delayed_.push_back(Delayed{due, std::move(frame)});
    arm();
}

void FaultInjector::release_held() {
    const base::TimePoint now = executor_.now();
    for (std::size_t i = 0; i < held_.size();) {
        if (held_[i].frames_to_pass > 0 && held_[i].latest > now) {
            ++i;
            continue;
        }
        // Taken out before it goes on: what it causes may come back here.
        base::Frame frame = std::move(held_[i].frame);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
        bytes_ -= frame.size();
        emit(std::move(frame));
    }
}

void FaultInjector::fire() {
    while (!delayed_.empty() && delayed_.front().due <= executor_.now()) {
        base::Frame frame = std::move(delayed_.front().frame);
        delayed_.pop_front();
        bytes_ -= frame.size();
        next_(std::move(frame));
    }
    release_held();
    arm();
}

void FaultInjector::arm() {
    base::TimePoint first = base::TimePoint::max();
    if (!delayed_.empty()) first = delayed_.front().due;
    for (const HeldBack& held : held_) first = std::min(first, held.latest);
    if (first != base::TimePoint::max())
        timer_.arm_at(first);
    else
        timer_.cancel();
}

void FaultInjector::flush() {
    timer_.cancel();
    while (!delayed_.empty()) {
        base::Frame frame = std::move(delayed_.front().frame);
        delayed_.pop_front();
        next_(std::move(frame));
    }
    for (HeldBack& held : std::exchange(held_, {})) next_(std::move(held.frame));
    bytes_ = 0;
}

}  // namespace openmana::fabric
