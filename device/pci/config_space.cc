// SPDX-License-Identifier: Apache-2.0
#include "pci/config_space.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/endian.h"
#include "base/result.h"

namespace openmana::pci {

namespace {

// Header, type 0.
constexpr std::size_t kCommand = 0x04;
constexpr std::size_t kStatus = 0x06;
constexpr std::size_t kBar0 = 0x10;
// Memory, bus master, parity response, SERR, INTx disable. No I/O BAR, so no I/O enable.
constexpr std::uint16_t kCommandWritable = 0x0546;
constexpr std::uint16_t kBusMaster = 0x0004;
constexpr std::uint16_t kStatusCapabilities = 0x0010;
constexpr std::uint32_t kBarPrefetchable64 = 0x0C;

// Power management.
constexpr std::size_t kPowerStatus = kCapPower + 4;
constexpr std::uint8_t kPowerStateMask = 0x03;

// PCI Express.
constexpr std::size_t kDeviceControl = kCapExpress + 0x08;
constexpr std::uint16_t kInitiateFlr = 0x8000;

constexpr std::uint8_t kIdPower = 0x01;
constexpr std::uint8_t kIdExpress = 0x10;
constexpr std::uint8_t kIdMsix = 0x11;
constexpr std::uint16_t kIdSerial = 0x0003;

/// Behind the last register: zeros that nobody can write.
constexpr std::size_t kUsed = kExtCapSerial + 12;

bool is_power_state(std::uint8_t status) {
    // D1 and D2 do not exist.
    const auto state = static_cast<std::uint8_t>(status & kPowerStateMask);
    return state != 1 && state != 2;
}

}  // namespace

template <typename T>
void ConfigSpace::define(std::size_t offset, T value, T writable) {
    static_assert(std::is_unsigned_v<T>);
    base::store_le(power_on_.data() + offset, value);
    base::store_le(writable_.data() + offset, writable);
}

/// A 64-bit BAR. Prefetchable, so that firmware and bridges can place it above 4 GiB: no read has
/// side effects.
void ConfigSpace::define_bar(unsigned index, std::uint64_t size) {
    OM_CHECK(std::has_single_bit(size) && size >= 16);
    define<std::uint64_t>(kBar0 + index * 4, kBarPrefetchable64, ~(size - 1));
}

ConfigSpace::ConfigSpace(const ConfigIdentity& identity) {
    define_header(identity);
    define_power();
    define_msix(identity);
    define_express();
    if (identity.serial != 0) {
        define<std::uint32_t>(kExtCapSerial, kIdSerial | 1U << 16);  // version 1, last in the list
        define<std::uint64_t>(kExtCapSerial + 4, identity.serial);
    }
    reset();
}

void ConfigSpace::define_header(const ConfigIdentity& identity) {
    define<std::uint16_t>(0x00, identity.vendor);
    define<std::uint16_t>(0x02, identity.device);
    define<std::uint16_t>(kCommand, 0, kCommandWritable);
    define<std::uint16_t>(kStatus, kStatusCapabilities);
    define<std::uint8_t>(0x08, identity.revision);
    define<std::uint16_t>(0x0A, 0x0200);  // Ethernet controller
    define<std::uint8_t>(0x0C, 0, 0xFF);  // cache line size: software's, without effect
    define_bar(0, identity.bar0_size);
    define_bar(kMsixBar, identity.msix_bar_size);
    define<std::uint16_t>(0x2C, identity.subsystem_vendor);
    define<std::uint16_t>(0x2E, identity.subsystem);
    define<std::uint8_t>(0x34, kCapPower);
    define<std::uint8_t>(0x3C, 0, 0xFF);  // interrupt line: software's; there is no interrupt pin
}

void ConfigSpace::define_power() {
    define<std::uint8_t>(kCapPower, kIdPower);
    define<std::uint8_t>(kCapPower + 1, kCapMsix);
    define<std::uint16_t>(kCapPower + 2, 0x0003);  // version 3; D0 and D3 only, no PME
    define<std::uint16_t>(kPowerStatus, 0x0008,
                          kPowerStateMask);  // no soft reset when it leaves D3hot
}

void ConfigSpace::define_msix(const ConfigIdentity& identity) {
    OM_CHECK(identity.msix_vectors >= 1 && identity.msix_vectors <= 2048);
    define<std::uint8_t>(kCapMsix, kIdMsix);
    define<std::uint8_t>(kCapMsix + 1, kCapExpress);
    const auto last = static_cast<std::uint16_t>(identity.msix_vectors - 1);
    define<std::uint16_t>(kCapMsix + 2, last, 0xC000);  // enable, function mask
    define<std::uint32_t>(kCapMsix + 4, 0 | kMsixBar);
    define<std::uint32_t>(kCapMsix + 8, identity.msix_pba_offset | kMsixBar);
}

/// The link says 16 lanes of 16 GT/s: enough for what the model moves, and it is never negotiated.
void ConfigSpace::define_express() {
    define<std::uint8_t>(kCapExpress, kIdExpress);
    define<std::uint8_t>(kCapExpress + 1, 0);
    define<std::uint16_t>(kCapExpress + 0x02, 0x0002);  // version 2, endpoint
    // 256 byte payload, extended tags, role-based error reporting, function-level reset.
    define<std::uint32_t>(kCapExpress + 0x04, 0x10008021);
    // Relaxed ordering, no snoop, 512 byte read requests. Phantom functions and auxiliary power do
    // not exist.
    define<std::uint16_t>(kDeviceControl, 0x2810, 0xF9FF);
    define<std::uint32_t>(kCapExpress + 0x0C, 0x00400104);  // no ASPM, and that may be relied on
    define<std::uint16_t>(kCapExpress + 0x10, 0, 0x00CB);  // ASPM, RCB, common clock, extended sync
    define<std::uint16_t>(kCapExpress + 0x12, 0x1104);     // 16 GT/s x16, slot clock
    define<std::uint32_t>(kCapExpress + 0x24, 0x0000001F);  // completion timeouts, and none
    define<std::uint16_t>(kCapExpress + 0x28, 0, 0x001F);
    define<std::uint32_t>(kCapExpress + 0x2C, 0x0000001E);      // 2.5, 5, 8 and 16 GT/s
    define<std::uint16_t>(kCapExpress + 0x30, 0x0004, 0x000F);  // target speed
    define<std::uint16_t>(kCapExpress + 0x32, 0x001E);          // equalisation done
}

// vfio_user::Session compares what a client sends with the size of the region, here and below.
void ConfigSpace::read(std::size_t offset, std::span<std::byte> data) const {
    OM_CHECK(data.size() <= kConfigSize && offset <= kConfigSize - data.size());
    if (!data.empty()) std::memcpy(data.data(), value_.data() + offset, data.size());
}

bool ConfigSpace::masters_bus() const {
    return !command_written_ ||
           (base::load_le<std::uint16_t>(value_.data() + kCommand) & kBusMaster) != 0;
}

bool ConfigSpace::write(std::size_t offset, std::span<const std::byte> data) {
    OM_CHECK(data.size() <= kConfigSize && offset <= kConfigSize - data.size());
    const std::uint8_t power_before = value_[kPowerStatus];
    for (std::size_t i = 0; i < data.size(); ++i) {
        const std::uint8_t mask = writable_[offset + i];
        std::uint8_t& byte = value_[offset + i];
        byte = static_cast<std::uint8_t>((byte & ~mask) |
                                         (std::to_integer<std::uint8_t>(data[i]) & mask));
    }
    if (!data.empty() && offset <= kCommand && kCommand - offset < data.size())
        command_written_ = true;
    // Such a write is completed and changes nothing (PCI PM 5.4.1).
    if (!is_power_state(value_[kPowerStatus])) value_[kPowerStatus] = power_before;
    auto control = base::load_le<std::uint16_t>(value_.data() + kDeviceControl);
    if ((control & kInitiateFlr) == 0) return false;
    control &= static_cast<std::uint16_t>(~kInitiateFlr);  // reads back as zero
    base::store_le(value_.data() + kDeviceControl, control);
    return true;
}

void ConfigSpace::save(base::StateWriter& out) const {
    out(command_written_);
    for (std::size_t i = 0; i < kUsed; ++i) out(value_[i]);
}

void ConfigSpace::load(base::StateReader& in) {
    const bool command_written = in.get<bool>();
    auto value = power_on_;
    for (std::size_t i = 0; i < kUsed; ++i) {
        in(value[i]);
        in.require(((value[i] ^ power_on_[i]) & ~writable_[i]) == 0,
                   "configuration space of another function");
    }
    in.require(
        is_power_state(value[kPowerStatus]) &&
            (base::load_le<std::uint16_t>(value.data() + kDeviceControl) & kInitiateFlr) == 0,
        "register of the configuration space that cannot be");
    if (!in.ok()) return;
    value_ = value;
    command_written_ = command_written;
}

}  // namespace openmana::pci
