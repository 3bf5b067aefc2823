// SPDX-License-Identifier: Apache-2.0
#include "rnic/inbox.h"

#include <utility>

#include "roce/packet.h"

namespace openmana::rnic {

void Inbox::receive(base::FrameViews frames) {
    const base::FrameQueue::PushedAll pushed = frames_.push(frames);
    if (pushed.refused > 0) overflow_.add(pushed.refused);
    if (pushed.first) serve_later();
}

void Inbox::serve_later() {
    executor_.post([token = std::weak_ptr<int>(alive_), this] {
        if (!token.expired()) serve();
    });
}

void Inbox::save(base::StateWriter& out) const {
    base::save_frames(out, *this, [](base::Frame& frame) { roce::put_icrc(frame); });
}

void Inbox::load(base::StateReader& in) {
    base::load_frames(in, [this](base::FrameView frame) { receive(base::FrameViews(&frame, 1)); });
}

void Inbox::serve() {
    if (chunk_.empty()) chunk_ = frames_.take();
    handled_ += handler_(std::span(chunk_).subspan(handled_));
    if (handled_ == chunk_.size()) {
        handled_ = 0;
        frames_.recycle(std::exchange(chunk_, {}));
        if (frames_.done()) return;
    }
    // The rest has its turn when the executor has looked after everything else.
    serve_later();
}

}  // namespace openmana::rnic
