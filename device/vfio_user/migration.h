// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "vfio_user/counters.h"
#include "vfio_user/device_backend.h"
#include "vfio_user/message.h"

namespace openmana::vfio_user {

/// Where a device is between running here and running elsewhere: the states of VFIO migration v2
/// and the data that go along, for one client.
///
/// RUNNING and RUNNING_P2P are the same here: the device reaches no other device's memory, so it
/// never has to refrain from that. PRE_COPY is not offered (docs/migration.md). What is left is a
/// tree, so there is one way from each state to each other, and STOP_COPY is never passed:
///
///     RUNNING - RUNNING_P2P - STOP - STOP_COPY
///                               \- RESUMING
class Migration {
public:
    /// `name` is the NIC in log lines; all outlive it. `state`: where another client or another
    /// process has left the device, RUNNING, STOP or ERROR.
    Migration(MovableDevice& device, Counters& counters, const std::string& name,
              DeviceState state = DeviceState::kRunning)
        : device_(device), counters_(counters), name_(name), state_(state) {}
    Migration(const Migration&) = delete;
    Migration& operator=(const Migration&) = delete;

    [[nodiscard]] DeviceState state() const { return state_; }
    /// Goes to `target`, one arc after the other. After an error the device is in the last state
    /// that was reached: kError if it did not take what it was given.
    base::Result<void> change(DeviceState target);
    /// The next bytes of its state, `most` at most; fewer, or none, are the last. Good until the
    /// next change.
    base::Result<std::span<const std::byte>> read(std::size_t most);
    /// The next bytes of the state that it is to have.
    base::Result<void> write(std::span<const std::byte> piece);
    /// The device was reset: it runs.
    void reset();

private:
    base::Result<void> step(DeviceState next);
    base::Result<void> save();
    base::Result<void> load();

    MovableDevice& device_;
    Counters& counters_;
    const std::string& name_;
    DeviceState state_;
    std::vector<std::byte> data_;  // in STOP_COPY and RESUMING: its state
    std::size_t at_ = 0;           // what of that was read
};

}  // namespace openmana::vfio_user
