// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bar_write.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::vfio_user {

/// Region and interrupt numbers of a PCI device, as VFIO counts them.
constexpr unsigned kRegionBar0 = 0;
constexpr unsigned kRegionRom = 6;
constexpr unsigned kRegionConfig = 7;
constexpr unsigned kRegionVga = 8;
constexpr unsigned kRegionCount = 9;
constexpr unsigned kIrqIntx = 0;
constexpr unsigned kIrqMsi = 1;
constexpr unsigned kIrqMsix = 2;
constexpr unsigned kIrqError = 3;
constexpr unsigned kIrqRequest = 4;
constexpr unsigned kIrqKindCount = 5;

/// A region that does not exist has size zero.
struct Region {
    std::uint64_t size = 0;
    bool readable = false;
    bool writable = false;
};

struct DmaRange {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t offset = 0;  ///< in the file
    bool readable = false;
    bool writable = false;
};

/// The device behind a server. Called on the server's thread only. Regions, offsets and interrupt
/// numbers were checked against `region` and `irq_count`; addresses and fds were not. An Error
/// reaches the client as an errno.
class DeviceBackend {
public:
    virtual ~DeviceBackend() = default;

    /// For index < kRegionCount. Does not change while a client is connected.
    [[nodiscard]] virtual Region region(unsigned index) const = 0;
    /// For kind < kIrqKindCount.
    [[nodiscard]] virtual std::uint32_t irq_count(unsigned kind) const = 0;

    virtual base::Result<void> region_read(unsigned index, std::uint64_t offset,
                                           std::span<std::byte> data) = 0;
    virtual base::Result<void> region_write(unsigned index, std::uint64_t offset,
                                            std::span<const std::byte> data) = 0;
    /// Several writes to BAR0, one after the other: the client did not wait for their outcome.
    virtual void bar0_writes(std::span<const base::BarWrite> writes) = 0;

    /// Without an fd the range exists but its memory cannot be reached. kBusy: overlaps a range.
    virtual base::Result<void> dma_map(const DmaRange& range, const base::UniqueFd& fd) = 0;
    /// Whether exactly this range is there, with memory or without.
    [[nodiscard]] virtual bool has_range(const DmaRange& range, bool with_memory) const = 0;
    /// When this returns nothing touches the memory any more. kNotFound: no such range.
    virtual base::Result<void> dma_unmap(std::uint64_t address, std::uint64_t size) = 0;
    virtual void dma_unmap_all() = 0;

    /// Gives one interrupt its eventfd, in place of the one it had; an empty fd takes it away.
    virtual base::Result<void> irq_assign(unsigned kind, std::uint32_t vector,
                                          base::UniqueFd eventfd) = 0;
    /// Fires it as if the device had.
    virtual void irq_trigger(unsigned kind, std::uint32_t vector) = 0;
    virtual void irq_mask(unsigned kind, std::uint32_t vector, bool masked) = 0;
    /// Takes the eventfds of the whole kind.
    virtual void irq_disable(unsigned kind) = 0;

    virtual void device_reset() = 0;
    /// The connection has ended, however: give back all that the client has lent and go to the
    /// power-on state. Once for each client.
    virtual void client_gone() = 0;
};

/// A device that can stop, and go on in another process (docs/migration.md). Called on the server's
/// thread only; stop() and start() in turn.
class MovableDevice {
public:
    virtual ~MovableDevice() = default;

    /// It stops where it is: what it is does not change any more, but for what the client does, and
    /// neither does guest memory. Cannot fail.
    virtual void stop() = 0;
    /// It goes on.
    virtual void start() = 0;
    /// All that it is, and nothing of what the client has lent. While it is stopped.
    virtual base::Result<std::vector<std::byte>> save() = 0;
    /// Takes what save() has written somewhere, in place of all that it was. While it is stopped.
    /// After a refusal it is as after a reset.
    virtual base::Result<void> load(std::span<const std::byte> state) = 0;
    /// About how long what save() would write now is; rather too much.
    [[nodiscard]] virtual std::size_t expected_state() const = 0;
    /// What is longer is no state of it.
    [[nodiscard]] virtual std::size_t max_state() const = 0;

    /// From now on it notes which pages of guest memory it writes to.
    virtual base::Result<void> log_writes() = 0;
    /// No more, and what it has noted is forgotten.
    virtual void log_no_writes() = 0;
    /// Sets a bit for each unit of `[address, address + length)` that has a page which it has
    /// written to since it was asked before, bit 0 of the first byte being the first unit's. The
    /// range and the unit are whole pages, and there is a bit for each unit. kInvalidArgument if it
    /// does not log.
    virtual base::Result<void> report_writes(std::uint64_t address, std::uint64_t length,
                                             std::uint64_t unit, std::span<std::byte> bits) = 0;
    static constexpr std::uint64_t kLogPage = 4096;

    /// The connection has ended, and DeviceBackend::client_gone() was called: if it is stopped it
    /// starts, and it logs no more.
    virtual void client_gone() = 0;
    /// Instead of both: the connection has ended, and another client may go on with the device. It
    /// gives back all that the client has lent, stops if it runs, and logs no more. When it starts
    /// it has moved: what the client had been told last may never have been handed on.
    virtual void retain() = 0;
};

}  // namespace openmana::vfio_user
