// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <span>
#include <vector>

#include "base/clock.h"

namespace openmana::test {

/// Where arbitrary decisions come from: a fuzzer's input, or a seed. Zero is always the plainest
/// choice, so that an input that has run out still means something.
class Choices {
public:
    virtual ~Choices() = default;
    /// False when only zeros follow.
    [[nodiscard]] virtual bool more() const = 0;
    virtual std::uint8_t byte() = 0;

    template <typename T>
    T value() {
        std::uint64_t result = 0;
        for (std::size_t i = 0; i < sizeof(T); ++i) result |= std::uint64_t{byte()} << (8 * i);
        return static_cast<T>(result);
    }
    /// In [0, bound), bound > 0; takes as many bytes as the bound needs.
    std::uint64_t below(std::uint64_t bound) {
        std::uint64_t result = 0;
        for (std::uint64_t rest = bound - 1; rest != 0; rest >>= 8) result = result << 8 | byte();
        return result % bound;
    }
    /// True in `n` of 256 cases.
    bool chance(unsigned n) { return byte() > 255 - n; }
    template <typename Container>
    auto& pick(Container& from) {
        return from[below(std::size(from))];
    }
    void fill(std::span<std::byte> target) {
        for (std::byte& b : target) b = static_cast<std::byte>(byte());
    }
    std::vector<std::byte> bytes(std::size_t length) {
        std::vector<std::byte> result(length);
        fill(result);
        return result;
    }
    /// A number of the kind that programs get wrong: small, around a power of two, all ones, or
    /// any.
    std::uint64_t number() {
        const std::uint8_t kind = byte();
        if (kind < 64) return kind;
        if (kind < 160) return (1ULL << (kind % 64)) + below(3) - 1;
        if (kind < 176) return UINT64_MAX - (kind - 160);
        if (kind < 192) return value<std::uint16_t>();
        if (kind < 224) return value<std::uint32_t>();
        return value<std::uint64_t>();
    }
};

/// Takes decisions from the bytes of an input, in order.
class InputChoices final : public Choices {
public:
    explicit InputChoices(std::span<const std::uint8_t> input) : input_(input) {}
    [[nodiscard]] bool more() const override { return !input_.empty(); }
    std::uint8_t byte() override {
        if (input_.empty()) return 0;
        const std::uint8_t first = input_.front();
        input_ = input_.subspan(1);
        return first;
    }

private:
    std::span<const std::uint8_t> input_;
};

/// Takes decisions from a seed, for ever.
class RandomChoices final : public Choices {
public:
    explicit RandomChoices(std::uint64_t seed) : random_(seed) {}
    [[nodiscard]] bool more() const override { return true; }
    std::uint8_t byte() override { return static_cast<std::uint8_t>(random_.next() >> 40); }

private:
    base::Random random_;
};

}  // namespace openmana::test
