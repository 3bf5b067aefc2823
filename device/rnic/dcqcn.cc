// SPDX-License-Identifier: Apache-2.0
#include "rnic/dcqcn.h"

#include <algorithm>
#include <utility>

namespace openmana::rnic {
namespace {

/// What a late timer may catch up with. One packet may go at any rate.
constexpr base::Duration kCatchUp = std::chrono::microseconds(50);
/// A QP that waits for long is looked at again, since its rate may have risen.
constexpr base::Duration kRecheck = std::chrono::microseconds(500);

double seconds(base::Duration time) {
    return static_cast<double>(time.count()) * 1e-9;
}

}  // namespace

Dcqcn::Dcqcn(const DcqcnConfig& config, base::TimePoint now)
    : line_(static_cast<double>(config.line_rate)),
      g_(config.g),
      r_ai_(config.r_ai != 0 ? static_cast<double>(config.r_ai) : line_ / 1000),
      r_hai_(config.r_hai != 0 ? static_cast<double>(config.r_hai) : line_ / 100),
      min_rate_(std::min(static_cast<double>(config.min_rate), line_)),
      alpha_timer_(config.alpha_timer),
      rate_timer_(config.rate_timer),
      byte_counter_(config.byte_counter),
      fast_recovery_(config.fast_recovery),
      rate_(line_),
      target_(line_),
      next_alpha_(now + alpha_timer_),
      next_rate_(now + rate_timer_),
      seen_(now) {}

void Dcqcn::drain(base::TimePoint until) {
    debt_ = std::max(debt_ - rate_ * seconds(until - seen_), -rate_ * seconds(kCatchUp));
    seen_ = until;
}

/// Alpha and rate timers that have fired since the last call, in their order. Ends soon however
/// long ago that was: at line rate nothing changes any more.
void Dcqcn::advance(base::TimePoint now) {
    while (line_ - rate_ > r_ai_) {
        const base::TimePoint next = std::min(next_alpha_, next_rate_);
        if (next > now) break;
        drain(next);
        if (next_alpha_ == next) {
            alpha_ *= 1 - g_;
            next_alpha_ += alpha_timer_;
        }
        if (next_rate_ == next) {
            ++time_stage_;
            increase();
            next_rate_ += rate_timer_;
        }
    }
    drain(now);
}

void Dcqcn::increase() {
    const auto [least, most] = std::minmax(time_stage_, byte_stage_);
    if (least > fast_recovery_)
        target_ += r_hai_ * (least - fast_recovery_);
    else if (most >= fast_recovery_)
        target_ += r_ai_;
    target_ = std::min(target_, line_);
    rate_ = (rate_ + target_) / 2;
    ++increases_;
}

void Dcqcn::on_cnp(base::TimePoint now) {
    advance(now);
    target_ = rate_;
    rate_ = std::max(rate_ * (1 - alpha_ / 2), min_rate_);
    alpha_ = (1 - g_) * alpha_ + g_;
    time_stage_ = byte_stage_ = 0;
    bytes_ = 0;
    next_alpha_ = now + alpha_timer_;
    next_rate_ = now + rate_timer_;
}

void Dcqcn::charge(std::size_t bytes, base::TimePoint now) {
    advance(now);
    debt_ += static_cast<double>(bytes) * 8;
    bytes_ += bytes;
    while (bytes_ >= byte_counter_) {
        bytes_ -= byte_counter_;
        ++byte_stage_;
        increase();
    }
}

bool Dcqcn::open(base::TimePoint now) {
    advance(now);
    return debt_ <= 0;
}

base::TimePoint Dcqcn::open_at() const {
    if (debt_ <= 0) return seen_;
    const double wait = std::min(debt_ / rate_, seconds(kRecheck));
    return seen_ + base::Duration(static_cast<base::Duration::rep>(wait * 1e9) + 1);
}

bool Dcqcn::recovered(base::TimePoint now) {
    advance(now);
    return line_ - rate_ <= r_ai_;
}

void Dcqcn::resume(base::TimePoint now) {
    seen_ = std::min(seen_, now);
    next_rate_ = std::min(next_rate_, now + rate_timer_);
    // advance() ends with the rate. An alpha timer that was behind it alone would go on for as
    // long.
    next_alpha_ = std::clamp(next_alpha_, next_rate_ - rate_timer_, next_rate_ + alpha_timer_);
}

std::uint32_t Dcqcn::take_increases() {
    return std::exchange(increases_, 0);
}

}  // namespace openmana::rnic
