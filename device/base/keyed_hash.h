// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::base {

/// A key of this process, drawn from the system when it is first asked for.
[[nodiscard]] const std::array<std::uint64_t, 2>& process_hash_key();

/// SipHash-1-3 of words, for tables whose keys a guest or a peer makes up: without the key of the
/// process nobody can tell which of them share a bucket.
struct KeyedHash {
    [[nodiscard]] std::size_t operator()(std::uint64_t word) const {
        return of(std::span(&word, 1));
    }
    [[nodiscard]] static std::size_t of(std::span<const std::uint64_t> words) {
        return hash(words, process_hash_key());
    }
    /// SipHash with so many rounds for each word and at the end.
    template <int kRounds = 1, int kLastRounds = 3>
    [[nodiscard]] static constexpr std::uint64_t hash(std::span<const std::uint64_t> words,
                                                      const std::array<std::uint64_t, 2>& key) {
        State state{key[0] ^ 0x736f6d6570736575ULL, key[1] ^ 0x646f72616e646f6dULL,
                    key[0] ^ 0x6c7967656e657261ULL, key[1] ^ 0x7465646279746573ULL};
        for (const std::uint64_t word : words) state.take(word, kRounds);
        state.take(std::uint64_t{words.size_bytes()} << 56, kRounds);
        state.c ^= 0xff;
        for (int i = 0; i < kLastRounds; ++i) state.round();
        return state.a ^ state.b ^ state.c ^ state.d;
    }

private:
    struct State {
        std::uint64_t a, b, c, d;
        constexpr void round() {
            a += b;
            b = std::rotl(b, 13) ^ a;
            a = std::rotl(a, 32);
            c += d;
            d = std::rotl(d, 16) ^ c;
            a += d;
            d = std::rotl(d, 21) ^ a;
            c += b;
            b = std::rotl(b, 17) ^ c;
            c = std::rotl(c, 32);
        }
        constexpr void take(std::uint64_t word, int rounds) {
            d ^= word;
            for (int i = 0; i < rounds; ++i) round();
            a ^= word;
        }
    };
};

}  // namespace openmana::base
