// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace openmana::vfio_user
