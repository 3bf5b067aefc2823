// SPDX-License-Identifier: Apache-2.0
#include "rnic/inbox.h"

#include <algorithm>

namespace openmana::rnic {
namespace {

/// Waiting frames beyond this are dropped, as a NIC without buffers would.
constexpr std::size_t kMaxInboxBytes = 16U << 20;
/// Frames whose memory is kept for the next ones: fresh pages cost more than what is done with
/// them.
constexpr std::size_t kMaxSpare = 512;

}  // namespace

void Inbox::receive(std::span<const std::byte> frame) {
    bool first = false;
    {
        const std::lock_guard lock(mutex_);
        if (frame.size() > kMaxInboxBytes - std::min(bytes_, kMaxInboxBytes)) {
            overflow_.add();
            return;
        }
        first = frames_.empty();
        if (spare_.empty()) {
            frames_.emplace_back(frame.begin(), frame.end());
        } else {
            frames_.push_back(std::move(spare_.back()));
            spare_.pop_back();
            frames_.back().assign(frame.begin(), frame.end());
        }
        bytes_ += frame.size();
    }
    if (!first) return;
    executor_.post([token = std::weak_ptr<int>(alive_), this] {
        if (!token.expired()) serve();
    });
}

void Inbox::serve() {
    {
        const std::lock_guard lock(mutex_);
        handled_.swap(frames_);
        bytes_ = 0;
    }
    handler_(handled_);
    {
        const std::lock_guard lock(mutex_);
        while (!handled_.empty() && spare_.size() < kMaxSpare) {
            spare_.push_back(std::move(handled_.back()));
            handled_.pop_back();
        }
    }
    handled_.clear();
}

void Inbox::clear() {
    const std::lock_guard lock(mutex_);
    frames_.clear();
    spare_.clear();
    bytes_ = 0;
}

}  // namespace openmana::rnic
