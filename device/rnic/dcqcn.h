// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/state.h"

namespace openmana::rnic {

/// Parameters of DCQCN (ROCE 8.3), named as in its paper (Zhu et al., SIGCOMM 2015). Rates in
/// bit/s.
struct DcqcnConfig {
    std::uint64_t line_rate = 100'000'000'000;
    double g = 1.0 / 256;  ///< weight of the newest CNP in alpha
    base::Duration alpha_timer = std::chrono::microseconds(55);  ///< K
    base::Duration rate_timer = std::chrono::microseconds(55);   ///< T
    std::uint64_t byte_counter = 10'000'000;                     ///< B
    std::uint32_t fast_recovery = 5;                             ///< F, in stages
    std::uint64_t r_ai = 0;                                      ///< 0: a thousandth of the line
    std::uint64_t r_hai = 0;                                     ///< 0: a hundredth of the line
    std::uint64_t min_rate = 10'000'000;
};

/// Congestion control of a NIC (ROCE 8).
struct CongestionConfig {
    bool on = true;
    base::Duration cnp_interval = std::chrono::microseconds(50);  ///< N: at most one CNP a QP in it
    DcqcnConfig dcqcn;
    [[nodiscard]] std::uint32_t line_rate_mbps() const {
        return static_cast<std::uint32_t>(dcqcn.line_rate / 1'000'000);
    }
};

/// The reaction point of one QP from its first congestion notification until it is back at line
/// rate: what rate it has, and when its next packet may go. Knows no executor; time is given to
/// every call and never goes back. The timers of the algorithm are caught up with when it is asked,
/// which gives the same rates and costs nothing in between.
class Dcqcn {
public:
    Dcqcn(const DcqcnConfig& config, base::TimePoint now);

    void on_cnp(base::TimePoint now);
    /// Accounts for a packet that goes out now.
    void charge(std::size_t bytes, base::TimePoint now);
    /// True if a packet may go now.
    [[nodiscard]] bool open(base::TimePoint now);
    /// When to ask again if it may not.
    [[nodiscard]] base::TimePoint open_at() const;
    /// True when the rate is within an additive step of the line rate: the limit can be forgotten.
    [[nodiscard]] bool recovered(base::TimePoint now);

    [[nodiscard]] double rate() const { return rate_; }
    [[nodiscard]] double target() const { return target_; }
    [[nodiscard]] double alpha() const { return alpha_; }
    /// Increases since the last call.
    [[nodiscard]] std::uint32_t take_increases();
    /// What was read goes on now: with times that the timers could have, whatever they were.
    void resume(base::TimePoint now);

    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.rate_, self.target_, self.alpha_, self.time_stage_, self.byte_stage_, self.bytes_,
          self.next_alpha_, self.next_rate_, self.debt_, self.seen_);
        // A frame's time at the least rate is the most that it owes.
        constexpr double kMostDebt = 1e7;
        a.require(self.rate_ >= self.min_rate_ && self.rate_ <= self.line_ &&
                      self.target_ >= self.min_rate_ && self.target_ <= self.line_ &&
                      self.alpha_ >= 0 && self.alpha_ <= 1 && self.debt_ >= -kMostDebt * 1e3 &&
                      self.debt_ <= kMostDebt * 1e3 && self.bytes_ < self.byte_counter_,
                  "rate that cannot be");
    }

private:
    void advance(base::TimePoint now);
    void drain(base::TimePoint until);
    void increase();

    double line_;
    double g_;
    double r_ai_;
    double r_hai_;
    double min_rate_;
    base::Duration alpha_timer_;
    base::Duration rate_timer_;
    std::uint64_t byte_counter_;
    std::uint32_t fast_recovery_;

    double rate_;    // Rc
    double target_;  // Rt
    double alpha_ = 1;
    std::uint32_t time_stage_ = 0;  // T
    std::uint32_t byte_stage_ = 0;  // B
    std::uint64_t bytes_ = 0;       // since the last byte stage
    std::uint32_t increases_ = 0;
    base::TimePoint next_alpha_;
    base::TimePoint next_rate_;
    double debt_ = 0;       // bits that must drain at the rate before the next packet
    base::TimePoint seen_;  // until when everything is accounted for
};

}  // namespace openmana::rnic
