// SPDX-License-Identifier: Apache-2.0
#include "sim/network.h"

#include <algorithm>

#include "fabric/frame_headers.h"
#include "roce/aeth.h"

namespace openmana::sim {

Weather Weather::of(std::uint64_t seed) {
    base::Random random(seed ^ 0x5741'7468'6572ULL);
    Weather weather;
    weather.delay = std::chrono::nanoseconds(300 + random.below(5000));
    // Of a stream of its own, so that the rest of a seed is what it was.
    base::Random credit_random(seed ^ 0x63'7265'6469'7473ULL);
    if (credit_random.below(3) == 0)
        weather.credits = 1 + static_cast<std::uint32_t>(credit_random.below(1000000));
    if (random.below(4) == 0) return weather;
    const auto up_to = [&](std::uint32_t most) {
        return random.below(3) == 0 ? 0 : static_cast<std::uint32_t>(random.below(most + 1));
    };
    weather.loss = up_to(100000);
    weather.duplicate = up_to(100000);
    weather.reorder = up_to(100000);
    weather.corrupt = up_to(100000);
    weather.mark = up_to(20000);
    weather.jitter = std::chrono::nanoseconds(up_to(3000));
    if (random.below(3) == 0) weather.bunch = std::chrono::nanoseconds(1 + random.below(4000));
    weather.straggle = up_to(3000);
    return weather;
}

std::string Weather::text() const {
    return "loss " + std::to_string(loss) + " duplicate " + std::to_string(duplicate) +
           " reorder " + std::to_string(reorder) + " corrupt " + std::to_string(corrupt) +
           " straggle " + std::to_string(straggle) + " mark " + std::to_string(mark) + " credits " +
           std::to_string(credits) + " ppm, delay " + std::to_string(delay.count()) + " ns + " +
           std::to_string(jitter.count()) + ", in bunches of " + std::to_string(bunch.count());
}

Network::Network(test::SimWorld& world, const Weather& weather, std::uint64_t seed,
                 Listener& listener)
    : weather_(weather),
      random_(seed ^ 0x6672'616d'6573ULL),
      credit_random_(seed ^ 0x6c69'6d69'74ULL),
      listener_(listener),
      executor_(world),
      timer_(executor_, [this] { land(); }) {}

bool Network::transmit(base::Frame frame) {
    ++frames_;
    const bool lose = random_.chance_ppm(weather_.loss);
    const bool twice = random_.chance_ppm(weather_.duplicate);
    const bool late = random_.chance_ppm(weather_.reorder);
    const bool broken = random_.chance_ppm(weather_.corrupt);
    const auto extra = [&](base::Duration most) {
        return base::Duration(
            random_.below(static_cast<std::uint64_t>(std::max<std::int64_t>(1, most.count()))));
    };
    const base::TimePoint in_order = std::max(
        executor_.now() + weather_.delay + extra(weather_.jitter), last_ + base::Duration(1));
    const base::Duration behind = extra(std::chrono::microseconds(10));
    const std::uint64_t bit = random_.next();
    const bool straggle = weather_.straggle > 0 && random_.chance_ppm(weather_.straggle);
    if (lose) {
        ++lost_;
        return false;
    }
    if (weather_.credits != 0) give_credits(frame);
    if (random_.chance_ppm(weather_.mark))
        (void)fabric::mark_congestion(frame, fabric::read_headers(frame));
    if (broken) {
        constexpr std::size_t kEthernet = 14;
        const std::size_t at = kEthernet + (bit >> 3) % (frame.size() - kEthernet);
        frame[at] ^= std::byte{1} << static_cast<int>(bit & 7);
    }
    if (twice) launch(frame, in_order + behind / 2);
    if (straggle) {
        ++stragglers_;
        launch(std::move(frame),
               in_order + std::chrono::microseconds(250) + extra(std::chrono::milliseconds(4)));
    } else if (late) {
        launch(std::move(frame), in_order + behind);
    } else {
        last_ = in_order;
        launch(std::move(frame), in_order);
    }
    return !twice && !late && !broken && !straggle;
}

/// Makes of an acknowledgement what a peer would say that has other limits. They need not be true:
/// credits are advice, and what is sent without any is told to wait.
void Network::give_credits(base::Frame& frame) {
    const bool wanted = credit_random_.chance_ppm(weather_.credits);
    const auto code = static_cast<std::uint8_t>(credit_random_.below(8));
    auto packet = roce::parse(frame);
    if (!wanted || !packet || !packet->info().has(roce::kHasAeth) ||
        roce::aeth_kind(packet->aeth.syndrome) != roce::AethKind::kAck)
        return;
    packet->aeth.syndrome = roce::ack_syndrome(code);
    base::Frame limited;
    roce::encode(*packet, limited);
    frame = std::move(limited);
}

void Network::launch(base::Frame frame, base::TimePoint arrival) {
    if (weather_.bunch.count() > 0)
        arrival += weather_.bunch - arrival.time_since_epoch() % weather_.bunch;
    air_.push_back({arrival, flights_++, std::move(frame)});
    std::push_heap(air_.begin(), air_.end());
    timer_.arm_at(air_.front().arrival);
}

void Network::land() {
    while (!air_.empty() && air_.front().arrival <= executor_.now()) {
        std::pop_heap(air_.begin(), air_.end());
        landed_.push_back(std::move(air_.back().frame));
        air_.pop_back();
    }
    listener_.on_arrival(landed_);
    landed_.clear();
    if (!air_.empty()) timer_.arm_at(air_.front().arrival);
}

}  // namespace openmana::sim
