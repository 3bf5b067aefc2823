// SPDX-License-Identifier: Apache-2.0
#include "fabric/unsent_frames.h"

#include <algorithm>
#include <cstdint>

#include "base/endian.h"

namespace openmana::fabric {

void UnsentFrames::add(std::span<const std::byte> frame) {
    std::vector<std::byte> block(kLengthBytes + frame.size());
    base::store_be(block.data(), static_cast<std::uint32_t>(frame.size()));
    std::copy(frame.begin(), frame.end(), block.begin() + kLengthBytes);
    bytes_ += block.size();
    blocks_.push_back(std::move(block));
}

UnsentFrames::Step UnsentFrames::next_step() const {
    Step step;
    std::size_t skip = first_sent_;
    for (const auto& block : blocks_) {
        if (step.count == kStepParts || step.bytes == kStepBytes) break;
        const std::size_t length = std::min(block.size() - skip, kStepBytes - step.bytes);
        step.parts[step.count++] = {const_cast<std::byte*>(block.data() + skip), length};
        step.bytes += length;
        skip = 0;
    }
    return step;
}

void UnsentFrames::sent(std::size_t bytes) {
    bytes_ -= bytes;
    first_sent_ += bytes;
    while (!blocks_.empty() && first_sent_ >= blocks_.front().size()) {
        first_sent_ -= blocks_.front().size();
        blocks_.pop_front();
    }
}

std::vector<std::byte> UnsentFrames::all() const {
    std::vector<std::byte> all;
    all.reserve(bytes_);
    std::size_t skip = first_sent_;
    for (const auto& block : blocks_) {
        all.insert(all.end(), block.begin() + static_cast<std::ptrdiff_t>(skip), block.end());
        skip = 0;
    }
    return all;
}

void UnsentFrames::restore(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    blocks_.emplace_back(bytes.begin(), bytes.end());
    bytes_ += bytes.size();
}

std::span<std::byte> UnsentFrames::last() {
    return std::span(blocks_.back()).subspan(kLengthBytes);
}

}  // namespace openmana::fabric
