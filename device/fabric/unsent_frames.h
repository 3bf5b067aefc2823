// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace openmana::fabric {

/// Frames that the other end of a stream has not taken yet, each behind its length in four bytes of
/// network order. They go out in steps of a bounded size, since whoever sends a frame meanwhile
/// waits for the end of a step. No locks of its own.
class UnsentFrames {
public:
    static constexpr std::size_t kLengthBytes = 4;
    static constexpr std::size_t kStepBytes = 64U << 10;
    static constexpr std::size_t kStepParts = 64;

    /// The next bytes to send: no more than kStepBytes in no more than kStepParts.
    struct Step {
        std::array<iovec, kStepParts> parts;
        std::size_t count = 0;
        std::size_t bytes = 0;
    };

    void add(std::span<const std::byte> frame);
    [[nodiscard]] Step next_step() const;
    /// So many bytes of what is first have gone.
    void sent(std::size_t bytes);
    [[nodiscard]] bool empty() const { return blocks_.empty(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    /// All of them, for another one to go on with.
    [[nodiscard]] std::vector<std::byte> all() const;
    void restore(std::span<const std::byte> bytes);
    /// The frame that was added last.
    [[nodiscard]] std::span<std::byte> last();

private:
    std::deque<std::vector<std::byte>> blocks_;  // a frame with its length each
    std::size_t first_sent_ = 0;                 // of the first block
    std::size_t bytes_ = 0;
};

}  // namespace openmana::fabric
