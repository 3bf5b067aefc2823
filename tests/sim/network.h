// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/frame.h"
#include "roce/packet.h"
#include "support/sim_executor.h"

namespace openmana::sim {

/// What the network does to frames, in parts per million.
struct Weather {
    std::uint32_t loss = 0;
    std::uint32_t duplicate = 0;
    std::uint32_t reorder = 0;
    std::uint32_t corrupt = 0;
    std::uint32_t straggle = 0;  ///< later than most ACK timeouts
    std::uint32_t mark = 0;      ///< congestion, on packets that can say so
    std::uint32_t credits = 0;   ///< acknowledgements that name a limit, at random
    base::Duration delay = std::chrono::microseconds(1);
    base::Duration jitter{};
    base::Duration bunch{};  ///< frames of so long a time are brought together

    /// Drawn from a seed: in a quarter of all cases clear, else up to a tenth of everything.
    static Weather of(std::uint64_t seed);
    [[nodiscard]] bool clear() const {
        return loss == 0 && duplicate == 0 && reorder == 0 && corrupt == 0 && straggle == 0 &&
               jitter.count() == 0;
    }
    [[nodiscard]] std::string text() const;
};

/// Carries frames between NICs in virtual time, badly. What happens to the n-th frame follows from
/// the seed and n alone.
class Network {
public:
    struct Listener {
        virtual ~Listener() = default;
        /// What arrives at one time, in its order.
        virtual void on_arrival(std::span<const base::Frame> frames) = 0;
    };
    Network(test::SimWorld& world, const Weather& weather, std::uint64_t seed, Listener& listener);

    /// False if the frame does not arrive once, intact and in its order.
    bool transmit(base::Frame frame);
    [[nodiscard]] std::uint64_t frames() const { return frames_; }
    [[nodiscard]] std::uint64_t lost() const { return lost_; }
    [[nodiscard]] std::uint64_t stragglers() const { return stragglers_; }

private:
    struct Flight {
        base::TimePoint arrival;
        std::uint64_t number;
        base::Frame frame;
        /// For a heap whose top is the earliest.
        bool operator<(const Flight& other) const {
            return arrival != other.arrival ? arrival > other.arrival : number > other.number;
        }
    };
    void give_credits(base::Frame& frame);
    void launch(base::Frame frame, base::TimePoint arrival);
    void land();

    const Weather weather_;
    base::Random random_;
    base::Random credit_random_;
    Listener& listener_;
    std::uint64_t frames_ = 0;
    std::uint64_t lost_ = 0;
    std::uint64_t stragglers_ = 0;
    std::uint64_t flights_ = 0;
    base::TimePoint last_{};   // nothing that is in order arrives before what went before it
    std::vector<Flight> air_;  // a heap
    std::vector<base::Frame> landed_;
    test::SimExecutor executor_;
    base::Timer timer_;
};

}  // namespace openmana::sim
