// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

namespace openmana::esp {

/// Which sequence numbers of an SA came already (RFC 4303 3.4.3), of the highest one and those up
/// to kPackets behind it. What is further behind counts as come; 0 is no number. A ring of bits,
/// whose words are cleared as the highest number moves on: so the window is a word smaller.
///
/// `may_accept` from any thread; `accept` by one at a time, whose stores are relaxed: `may_accept`
/// only saves work, and what it says is not relied on.
template <std::uint32_t kRing>
class ReplayWindow {
public:
    static_assert(kRing >= 128 && (kRing & (kRing - 1)) == 0);
    static constexpr std::uint32_t kPackets = kRing - 64;

    [[nodiscard]] bool may_accept(std::uint32_t number) const {
        const std::uint32_t highest = highest_.load(std::memory_order_relaxed);
        if (number == 0) return false;
        if (number > highest) return true;
        return highest - number < kPackets && !has(number);
    }
    /// True if the number is new; then it is no longer. Only for what is authentic.
    bool accept(std::uint32_t number) {
        if (!may_accept(number)) return false;
        const std::uint32_t highest = highest_.load(std::memory_order_relaxed);
        if (number > highest) {
            const std::uint32_t words = number / kBits - highest / kBits;
            for (std::uint32_t i = 1; i <= words && i <= kWords; ++i)
                word(highest / kBits + i).store(0, std::memory_order_relaxed);
            highest_.store(number, std::memory_order_relaxed);
        }
        std::atomic<std::uint64_t>& bits = word(number / kBits);
        bits.store(bits.load(std::memory_order_relaxed) | bit(number), std::memory_order_relaxed);
        return true;
    }

    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.highest_, self.words_);
    }

private:
    static constexpr std::uint32_t kBits = 64;
    static constexpr std::uint32_t kWords = kRing / kBits;
    [[nodiscard]] static std::uint64_t bit(std::uint32_t number) {
        return std::uint64_t{1} << (number % kBits);
    }
    [[nodiscard]] bool has(std::uint32_t number) const {
        return (words_[number / kBits % kWords].load(std::memory_order_relaxed) & bit(number)) != 0;
    }
    std::atomic<std::uint64_t>& word(std::uint32_t index) { return words_[index % kWords]; }

    std::atomic<std::uint32_t> highest_{0};
    std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace openmana::esp
