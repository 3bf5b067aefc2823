// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "vfio_user/device_backend.h"

namespace openmana::vfio_user {

/// Writes down every call as a line. Region 0 is memory, region 4 cannot be written, 5 not read.
class FakeBackend : public DeviceBackend {
public:
    std::vector<std::string> calls;
    std::vector<std::byte> bar = std::vector<std::byte>(kBarSize);
    std::optional<base::Error> next_error;  ///< the answer to the next call that can fail
    std::vector<base::UniqueFd> eventfds;   ///< as given
    bool has = false;                       ///< the answer of has_range()
    std::vector<std::size_t> runs;          ///< of writes to BAR0 that came together

    static constexpr std::size_t kBarSize = 2U << 20;
    static constexpr std::uint32_t kVectors = 65;

    /// The calls since the last time.
    std::vector<std::string> take() { return std::exchange(calls, {}); }

    Region region(unsigned index) const override {
        if (index == 0) return {kBarSize, true, true};
        if (index == 4) return {64, true, false};
        if (index == 5) return {64, false, true};
        if (index == 7) return {4096, true, true};
        return {};
    }
    std::uint32_t irq_count(unsigned kind) const override {
        return kind == kIrqMsix ? kVectors : 0;
    }

    base::Result<void> region_read(unsigned index, std::uint64_t offset,
                                   std::span<std::byte> data) override {
        calls.push_back(fmt::format("read {} {:#x} {}", index, offset, data.size()));
        for (std::size_t i = 0; i < data.size(); ++i) {
            data[i] = index == 0 ? bar[offset + i] : static_cast<std::byte>(offset + i);
        }
        return answer();
    }
    base::Result<void> region_write(unsigned index, std::uint64_t offset,
                                    std::span<const std::byte> data) override {
        std::string hex;
        for (std::size_t i = 0; i < std::min<std::size_t>(data.size(), 8); ++i) {
            hex += fmt::format("{:02x}", static_cast<unsigned>(data[i]));
        }
        calls.push_back(fmt::format("write {} {:#x} {} {}", index, offset, data.size(), hex));
        if (index == 0)
            std::copy(data.begin(), data.end(), bar.begin() + static_cast<std::ptrdiff_t>(offset));
        return answer();
    }
    void bar0_writes(std::span<const base::BarWrite> writes) override {
        runs.push_back(writes.size());
        for (const base::BarWrite& write : writes) (void)region_write(0, write.offset, write.data);
    }
    base::Result<void> dma_map(const DmaRange& range, const base::UniqueFd& fd) override {
        calls.push_back(fmt::format("map {:#x} {:#x} offset={:#x} {}{} fd={}", range.address,
                                    range.size, range.offset, range.readable ? "r" : "-",
                                    range.writable ? "w" : "-", static_cast<bool>(fd)));
        return answer();
    }
    base::Result<void> dma_unmap(std::uint64_t address, std::uint64_t size) override {
        calls.push_back(fmt::format("unmap {:#x} {:#x}", address, size));
        return answer();
    }
    bool has_range(const DmaRange& range, bool with_fd) const override {
        (void)range;
        (void)with_fd;
        return has;
    }
    void dma_unmap_all() override { calls.push_back("unmap all"); }
    base::Result<void> irq_assign(unsigned kind, std::uint32_t vector,
                                  base::UniqueFd eventfd) override {
        calls.push_back(
            fmt::format("assign {} {} fd={}", kind, vector, static_cast<bool>(eventfd)));
        if (eventfd) eventfds.push_back(std::move(eventfd));
        return answer();
    }
    void irq_trigger(unsigned kind, std::uint32_t vector) override {
        calls.push_back(fmt::format("trigger {} {}", kind, vector));
    }
    void irq_mask(unsigned kind, std::uint32_t vector, bool masked) override {
        calls.push_back(fmt::format("{} {} {}", masked ? "mask" : "unmask", kind, vector));
    }
    void irq_disable(unsigned kind) override { calls.push_back(fmt::format("disable {}", kind)); }
    void device_reset() override { calls.push_back("reset"); }
    void client_gone() override { calls.push_back("gone"); }

private:
    base::Result<void> answer() {
        if (!next_error) return {};
        return tl::unexpected<base::Error>(*std::exchange(next_error, std::nullopt));
    }
};

/// A device that can move, and does nothing: it writes down every call.
class FakeMovable : public MovableDevice {
public:
    std::vector<std::string> calls;
    std::vector<std::byte> state;           ///< what it is
    std::optional<base::Error> next_error;  ///< the answer to the next call that can fail
    std::size_t most = 1U << 20;

    /// The calls since the last time.
    std::vector<std::string> take() { return std::exchange(calls, {}); }

    void stop() override { calls.push_back("stop"); }
    void start() override { calls.push_back("start"); }
    base::Result<std::vector<std::byte>> save() override {
        calls.push_back("save");
        if (next_error) return tl::unexpected<base::Error>(*std::exchange(next_error, {}));
        return state;
    }
    base::Result<void> load(std::span<const std::byte> bytes) override {
        calls.push_back(fmt::format("load {}", bytes.size()));
        if (next_error) return tl::unexpected<base::Error>(*std::exchange(next_error, {}));
        state.assign(bytes.begin(), bytes.end());
        return {};
    }
    [[nodiscard]] std::size_t expected_state() const override { return 0x123456; }
    [[nodiscard]] std::size_t max_state() const override { return most; }
    base::Result<void> log_writes() override {
        calls.push_back("log");
        if (next_error) return tl::unexpected<base::Error>(*std::exchange(next_error, {}));
        return {};
    }
    void log_no_writes() override { calls.push_back("log no more"); }
    base::Result<void> report_writes(std::uint64_t address, std::uint64_t length,
                                     std::uint64_t unit, std::span<std::byte> bits) override {
        calls.push_back(
            fmt::format("report {:#x} {:#x} {:#x} {}", address, length, unit, bits.size()));
        if (next_error) return tl::unexpected<base::Error>(*std::exchange(next_error, {}));
        bits[0] = std::byte{0xa5};
        return {};
    }
    void client_gone() override { calls.push_back("gone"); }
    void retain() override { calls.push_back("retain"); }
};

}  // namespace openmana::vfio_user
