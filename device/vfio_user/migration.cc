// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/migration.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

bool can_be_asked_for(DeviceState state) {
    switch (state) {
        case DeviceState::kStop:
        case DeviceState::kRunning:
        case DeviceState::kStopCopy:
        case DeviceState::kResuming:
        case DeviceState::kRunningP2p:
            return true;
        case DeviceState::kError:
        case DeviceState::kPreCopy:
        case DeviceState::kPreCopyP2p:
            break;
    }
    return false;
}

bool runs(DeviceState state) {
    return state == DeviceState::kRunning || state == DeviceState::kRunningP2p;
}

/// The neighbour of `from` on the way to `target`, which is another state.
DeviceState towards(DeviceState from, DeviceState target) {
    if (from == DeviceState::kRunning) return DeviceState::kRunningP2p;
    if (from == DeviceState::kRunningP2p)
        return target == DeviceState::kRunning ? target : DeviceState::kStop;
    if (from == DeviceState::kStop) return runs(target) ? DeviceState::kRunningP2p : target;
    return DeviceState::kStop;
}

}  // namespace

Result<void> Migration::change(DeviceState target) {
    if (!can_be_asked_for(target))
        return fail(ErrorCode::kInvalidArgument, "no migration state to go to",
                    static_cast<std::uint64_t>(target));
    if (state_ == DeviceState::kError)
        return fail(ErrorCode::kInvalidArgument, "the device has to be reset first");
    while (state_ != target) TRY_VOID(step(towards(state_, target)));
    return {};
}

Result<void> Migration::step(DeviceState next) {
    if (runs(state_) && !runs(next)) {
        device_.stop();
        OM_INFO("migration stop: nic={}", name_);
    } else if (!runs(state_) && runs(next)) {
        device_.start();
        OM_INFO("migration start: nic={}", name_);
    } else if (next == DeviceState::kStopCopy) {
        TRY_VOID(save());
    } else if (state_ == DeviceState::kResuming) {
        TRY_VOID(load());
    } else {
        data_ = {};
    }
    state_ = next;
    return {};
}

Result<void> Migration::save() {
    auto saved = device_.save();
    if (!saved) {
        OM_WARN("migration refuse: nic={} reason=\"{}\"", name_, saved.error().text);
        return tl::unexpected(saved.error());
    }
    data_ = std::move(*saved);
    at_ = 0;
    counters_.states_saved.add();
    OM_INFO("migration save: nic={} bytes={}", name_, data_.size());
    return {};
}

Result<void> Migration::load() {
    const std::vector<std::byte> data = std::exchange(data_, {});
    const auto loaded = device_.load(data);
    if (!loaded) {
        state_ = DeviceState::kError;
        counters_.states_refused.add();
        OM_WARN("migration refuse: nic={} bytes={} reason=\"{}\" detail={:#x}", name_, data.size(),
                loaded.error().text, loaded.error().detail);
        return loaded;
    }
    counters_.states_loaded.add();
    OM_INFO("migration load: nic={} bytes={}", name_, data.size());
    return {};
}

Result<std::span<const std::byte>> Migration::read(std::size_t most) {
    if (state_ != DeviceState::kStopCopy)
        return fail(ErrorCode::kInvalidArgument, "no migration state to read in",
                    static_cast<std::uint64_t>(state_));
    const auto piece = std::span<const std::byte>(data_).subspan(at_);
    const auto taken = piece.first(std::min(most, piece.size()));
    at_ += taken.size();
    return taken;
}

Result<void> Migration::write(std::span<const std::byte> piece) {
    if (state_ != DeviceState::kResuming)
        return fail(ErrorCode::kInvalidArgument, "no migration state to write in",
                    static_cast<std::uint64_t>(state_));
    if (piece.size() > device_.max_state() - data_.size())
        return fail(ErrorCode::kExhausted, "more than a state can be", data_.size(), piece.size());
    data_.insert(data_.end(), piece.begin(), piece.end());
    return {};
}

void Migration::reset() {
    data_ = {};
    at_ = 0;
    const DeviceState before = std::exchange(state_, DeviceState::kRunning);
    if (runs(before)) return;
    device_.start();
    OM_INFO("migration start: nic={} cause=reset", name_);
}

}  // namespace openmana::vfio_user
