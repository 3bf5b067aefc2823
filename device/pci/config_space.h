// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/state.h"

namespace openmana::pci {

constexpr std::size_t kConfigSize = 4096;
constexpr unsigned kMsixBar = 4;

// Where our capabilities are (the order is also that of the list).
constexpr std::size_t kCapPower = 0x40;
constexpr std::size_t kCapMsix = 0x50;
constexpr std::size_t kCapExpress = 0x60;
constexpr std::size_t kExtCapSerial = 0x100;

/// What differs from one function to another.
struct ConfigIdentity {
    std::uint16_t vendor = 0x1414;
    std::uint16_t device = 0x00BA;  ///< GDMA 1.1: the VF
    std::uint16_t subsystem_vendor = 0x1414;
    std::uint16_t subsystem = 0x00BA;
    std::uint8_t revision = 0;
    std::uint64_t serial = 0;  ///< EUI-64; 0: no serial number capability
    std::uint64_t bar0_size = 0;
    std::uint64_t msix_bar_size = 0;
    std::uint32_t msix_pba_offset = 0;
    std::uint16_t msix_vectors = 0;
};

/// The 4 KiB configuration space of an Ethernet function of type 0: values, and which bits software
/// may write. PCI Express Base 7.5; the layout of the capabilities is ours.
class ConfigSpace {
public:
    explicit ConfigSpace(const ConfigIdentity& identity);

    /// The range lies inside.
    void read(std::size_t offset, std::span<std::byte> data) const;
    /// True if the write asks for a function-level reset.
    [[nodiscard]] bool write(std::size_t offset, std::span<const std::byte> data);
    void reset() { value_ = power_on_; }
    /// Whether the function may send memory accesses and interrupts: not after power-on and a
    /// reset, until software says so. But a client that has never written the register has no bus
    /// with masters: it is not kept from anything.
    [[nodiscard]] bool masters_bus() const;
    /// Another client comes, or the same one begins anew.
    void forget_bus() { command_written_ = false; }
    void save(base::StateWriter& out) const;
    /// Refused if it is that of another function: what software cannot write differs.
    void load(base::StateReader& in);

private:
    template <typename T>
    void define(std::size_t offset, T value, T writable = 0);
    void define_bar(unsigned index, std::uint64_t size);
    void define_header(const ConfigIdentity& identity);
    void define_power();
    void define_msix(const ConfigIdentity& identity);
    void define_express();

    std::array<std::uint8_t, kConfigSize> value_{};
    std::array<std::uint8_t, kConfigSize> power_on_{};
    std::array<std::uint8_t, kConfigSize> writable_{};
    bool command_written_ = false;
};

}  // namespace openmana::pci
