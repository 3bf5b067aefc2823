// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "base/frame.h"

namespace openmana::fabric {

/// Frames that leave together. Their memory is used again: who puts one in gets another one's. No
/// locks of its own.
class FrameBurst {
public:
    static constexpr std::size_t kMaxFrames = 64;
    /// If it is more than one frame.
    static constexpr std::size_t kMaxBytes = 256U << 10;

    [[nodiscard]] bool empty() const { return count_ == 0; }
    /// Whether one of so many bytes has to wait for the next burst.
    [[nodiscard]] bool full_for(std::size_t bytes) const {
        return count_ == kMaxFrames || (count_ > 0 && bytes_ + bytes > kMaxBytes);
    }
    /// It is not full for the frame, which is another one afterwards.
    void add(base::Frame& frame) {
        bytes_ += frame.size();
        frames_[count_].swap(frame);
        views_[count_] = frames_[count_];
        ++count_;
    }
    /// Good until the next add().
    [[nodiscard]] base::FrameViews take() {
        bytes_ = 0;
        return base::FrameViews(views_).first(std::exchange(count_, 0));
    }

private:
    std::array<base::Frame, kMaxFrames> frames_;
    std::array<base::FrameView, kMaxFrames> views_;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
};

}  // namespace openmana::fabric
