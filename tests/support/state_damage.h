// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/state.h"

namespace openmana::test {

/// What `save` writes, with its descriptors, which stay their owners'.
struct Written {
    std::vector<std::byte> bytes;
    std::vector<int> descriptors;

    /// Another process's, as it gets them beside the bytes.
    [[nodiscard]] std::vector<base::UniqueFd> copies() const {
        std::vector<base::UniqueFd> fds;
        for (const int fd : descriptors) fds.emplace_back(::dup(fd));
        return fds;
    }
};
template <typename Save>
[[nodiscard]] Written written(base::TimePoint now, Save&& save) {
    base::StateWriter out(now);
    save(out);
    Written result{{}, {out.descriptors().begin(), out.descriptors().end()}};
    result.bytes = std::move(out).finish();
    return result;
}

/// Calls `load` with a reader of the state, and says what came of it.
template <typename Load>
[[nodiscard]] base::Result<void> read_state(std::span<const std::byte> bytes,
                                            std::span<base::UniqueFd> fds, base::TimePoint now,
                                            Load&& load) {
    TRY(auto in, base::StateReader::open(bytes, now, fds));
    load(in);
    return in.result();
}
template <typename Load>
[[nodiscard]] base::Result<void> read_state(const Written& state, base::TimePoint now,
                                            Load&& load) {
    auto fds = state.copies();
    return read_state(state.bytes, fds, now, load);
}

/// The body of a state, or what is left of it, with a head whose checksum is right.
[[nodiscard]] inline std::vector<std::byte> with_head(std::span<const std::byte> body) {
    base::StateWriter out({});
    for (const std::byte byte : body) out(byte);
    return std::move(out).finish();
}

/// Calls `f(state, what)` with each part of a state that begins as it does, and with each that
/// differs in one byte: in each bit of it, and as 0 and 255. The heads are right, so that each
/// number is looked at by who reads it. What is before `from` in it stays as it is.
template <typename F>
void for_each_damage(const std::vector<std::byte>& state, F&& f, std::size_t from = 0) {
    constexpr std::size_t kHead = 24;
    std::vector<std::byte> body(state.begin() + kHead, state.end());
    from -= std::min(from, kHead);
    for (std::size_t n = from; n < body.size(); ++n)
        f(with_head(std::span(body).first(n)), "the first " + std::to_string(n) + " bytes");
    for (std::size_t i = from; i < body.size(); ++i) {
        const std::byte was = body[i];
        const auto is = [&](std::byte value) {
            if (value == was) return;
            body[i] = value;
            f(with_head(body), "byte " + std::to_string(i) + " is " +
                                   std::to_string(std::to_integer<unsigned>(value)));
        };
        for (unsigned bit = 0; bit < 8; ++bit) is(was ^ std::byte(1U << bit));
        is(std::byte{0});
        is(std::byte{255});
        body[i] = was;
    }
}

}  // namespace openmana::test
