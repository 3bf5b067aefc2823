// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/guest_memory.h"
#include "base/pausable_executor.h"
#include "base/result.h"
#include "fabric/nic.h"
#include "pci/endpoint.h"
#include "vfio_user/device_backend.h"

namespace openmana::manad {

/// A whole NIC as a device that can move: it stops between two of its steps, is written down
/// without what its client has lent, and is read where another client has lent the same memory. On
/// the NIC's thread.
class NicMover final : public vfio_user::MovableDevice {
public:
    /// Tasks of a NIC that stands still, beyond which no state is read: more than one has.
    static constexpr std::size_t kMostWaiting = 1U << 18;

    /// All outlive it. `executor` is the NIC's.
    NicMover(base::PausableExecutor& executor, base::GuestMemory& memory, pci::Endpoint& endpoint,
             fabric::Nic& nic)
        : executor_(executor), memory_(memory), endpoint_(endpoint), nic_(nic) {}

    /// It is stopped, or notes what it writes to: for a client that is about to move its guest.
    [[nodiscard]] bool busy() const { return stopped_ || memory_.logs_writes(); }

    /// All that the driver had made went with another process: before its next reset nothing of the
    /// function is a state to go on with elsewhere.
    void lose() { lost_at_ = nic_.function().epoch(); }
    [[nodiscard]] bool lost() const { return lost_at_ == nic_.function().epoch(); }
    /// And the NIC was not to run: it stops, until another client or this one starts it. Then the
    /// driver is asked for that reset.
    void stop_lost();

    void stop() override;
    void start() override;
    base::Result<std::vector<std::byte>> save() override;
    base::Result<void> load(std::span<const std::byte> state) override;
    [[nodiscard]] std::size_t expected_state() const override;
    [[nodiscard]] std::size_t max_state() const override;
    base::Result<void> log_writes() override;
    void log_no_writes() override;
    base::Result<void> report_writes(std::uint64_t address, std::uint64_t length,
                                     std::uint64_t unit, std::span<std::byte> bits) override;
    void client_gone() override;
    void retain() override;

private:
    base::Result<void> read(std::span<const std::byte> state);
    void forget();

    base::PausableExecutor& executor_;
    base::GuestMemory& memory_;
    pci::Endpoint& endpoint_;
    fabric::Nic& nic_;
    bool stopped_ = false;
    bool moved_ = false;  // since it was stopped, to here or to another client
    bool asks_ = false;   // its driver for a reset, when it starts
    std::optional<std::uint64_t> lost_at_;
};

}  // namespace openmana::manad
