// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace openmana::roce {

/// A packet sequence number: 24 bits, ordered as serial numbers, so that `a >= b` means that a is
/// at most 2^23 - 1 steps ahead of b (ROCE 0). The order is not transitive over more than half the
/// range.
class Psn {
public:
    static constexpr std::uint32_t kMask = 0xffffff;

    constexpr Psn() = default;
    /// Takes the low 24 bits.
    constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}
    [[nodiscard]] constexpr std::uint32_t value() const { return value_; }

    /// Steps from `other` to this one: -2^23 .. 2^23 - 1.
    [[nodiscard]] constexpr std::int32_t distance(Psn other) const {
        return static_cast<std::int32_t>((value_ - other.value_) << 8) >> 8;
    }

    friend constexpr Psn operator+(Psn psn, std::uint32_t n) { return Psn(psn.value_ + n); }
    friend constexpr Psn operator-(Psn psn, std::uint32_t n) { return Psn(psn.value_ - n); }
    friend constexpr std::int32_t operator-(Psn a, Psn b) { return a.distance(b); }
    constexpr Psn& operator+=(std::uint32_t n) { return *this = *this + n; }
    constexpr Psn& operator++() { return *this += 1; }

    friend constexpr bool operator==(Psn a, Psn b) = default;
    friend constexpr bool operator<(Psn a, Psn b) { return a.distance(b) < 0; }
    friend constexpr bool operator>(Psn a, Psn b) { return a.distance(b) > 0; }
    friend constexpr bool operator<=(Psn a, Psn b) { return a.distance(b) <= 0; }
    friend constexpr bool operator>=(Psn a, Psn b) { return a.distance(b) >= 0; }

private:
    std::uint32_t value_ = 0;
};

}  // namespace openmana::roce
