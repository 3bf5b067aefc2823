// SPDX-License-Identifier: Apache-2.0
#include "esp/replay_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "base/clock.h"

namespace openmana::esp {
namespace {

/// The same, in the plainest way.
class Model {
public:
    explicit Model(std::uint32_t window) : window_(window) {}
    bool accept(std::uint32_t number) {
        if (number == 0) return false;
        const std::uint32_t highest = seen_.empty() ? 0 : *seen_.rbegin();
        if (number <= highest && highest - number >= window_) return false;
        return seen_.insert(number).second;
    }

private:
    const std::uint32_t window_;
    std::set<std::uint32_t> seen_;
};

using Small = ReplayWindow<128>;

TEST(ReplayWindowTest, AllShortSequencesAreAsTheModelSays) {
    // Around the ends of words, of the window and of the ring, and a jump beyond all of it.
    constexpr std::array<std::uint32_t, 12> kNumbers = {0,   1,   63,  64,  65,  127,
                                                        128, 129, 192, 193, 256, 1'000'000};
    std::array<std::size_t, 5> at{};
    for (bool more = true; more;) {
        Small window;
        Model model(Small::kPackets);
        for (const std::size_t index : at) {
            const std::uint32_t number = kNumbers[index];
            const bool expected = model.accept(number);
            ASSERT_EQ(window.may_accept(number), expected) << testing::PrintToString(at);
            ASSERT_EQ(window.accept(number), expected) << testing::PrintToString(at);
        }
        more = false;
        for (std::size_t& index : at) {
            if (++index != kNumbers.size()) {
                more = true;
                break;
            }
            index = 0;
        }
    }
}

TEST(ReplayWindowTest, EachNumberIsTakenOnceInWhateverOrder) {
    base::Random random(1);
    std::vector<std::uint32_t> numbers(Small::kPackets);
    for (std::uint32_t start = 1; start < 200; ++start) {
        for (std::uint32_t i = 0; i < numbers.size(); ++i) numbers[i] = start + i;
        for (std::size_t i = numbers.size(); i > 1; --i)
            std::swap(numbers[i - 1], numbers[random.below(i)]);
        Small window;
        for (const auto number : numbers) ASSERT_TRUE(window.accept(number)) << start;
        for (const auto number : numbers) ASSERT_FALSE(window.accept(number)) << start;
    }
}

template <typename Window>
void compare(std::uint64_t seed, std::uint32_t start, std::uint32_t spread, unsigned steps) {
    base::Random random(seed);
    const auto window = std::make_unique<Window>();
    Model model(Window::kPackets);
    std::uint32_t middle = start;
    for (unsigned i = 0; i < steps; ++i) {
        if (random.chance_ppm(1000)) middle += static_cast<std::uint32_t>(random.below(3 * spread));
        middle += static_cast<std::uint32_t>(random.below(3));
        const auto number = static_cast<std::uint32_t>(middle + random.below(spread)) -
                            std::min(middle, spread / 2);
        ASSERT_EQ(window->accept(number), model.accept(number)) << "step " << i;
    }
}

TEST(ReplayWindowTest, LongRunsAreAsTheModelSays) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        compare<Small>(seed, 1, 100, 20000);
        compare<Small>(seed, 0x7fff0000, 200, 20000);
        compare<ReplayWindow<65536>>(seed, 1U << 29, 80000, 20000);
    }
}

}  // namespace
}  // namespace openmana::esp
