// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/bar_write.h"

namespace openmana::pci {

/// Raises MSI-X vectors; implemented by the endpoint, used by the layers above.
class IrqSink {
public:
    virtual ~IrqSink() = default;
    /// One edge message for the vector; kept pending while the vector has no eventfd. Out of range:
    /// ignored. Any thread.
    virtual void raise(unsigned vector) = 0;
    [[nodiscard]] virtual unsigned vector_count() const = 0;
};

/// What the PCI endpoint needs of the device behind it. Called on the NIC's executor.
class FunctionModel {
public:
    virtual ~FunctionModel() = default;
    [[nodiscard]] virtual std::uint64_t bar0_size() const = 0;
    /// Fills all of `data`; what does not exist reads as zero. Any offset and length inside the
    /// BAR.
    virtual void bar0_read(std::uint64_t offset, std::span<std::byte> data) = 0;
    virtual void bar0_write(std::uint64_t offset, std::span<const std::byte> data) = 0;
    /// Several, one after the other. All are known from the start, so that what the later ones need
    /// can be asked for early.
    virtual void bar0_writes(std::span<const base::BarWrite> writes) {
        for (const auto& write : writes) bar0_write(write.offset, write.data);
    }
    /// Function-level reset, machine reset, or the client is gone: back to the power-on state.
    virtual void reset() = 0;
};

}  // namespace openmana::pci
