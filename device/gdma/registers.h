// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <mana/gdma.h>

#include "gdma/channel_ledger.h"
#include "gdma/config.h"
#include "gdma/doorbells.h"
#include "gdma/hwc.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// What the driver asks for through the shared memory (SHM) aperture (GDMA 2). The status: 0, or
/// what the aperture says of a failure.
class ShmHandler {
public:
    virtual ~ShmHandler() = default;
    [[nodiscard]] virtual std::uint32_t establish(const Hwc::Rings& rings) = 0;
    virtual void destroy() = 0;
};

/// BAR0 (GDMA 1.3): constant registers, the SHM aperture, the doorbell pages. On the executor.
class Registers {
public:
    static constexpr std::uint64_t kShmOffset = 0x2000;
    static constexpr std::uint64_t kDoorbellOffset = 0x10000;

    /// All outlive it.
    Registers(Doorbells& doorbells, ShmHandler& handler, const FunctionConfig& config,
              FunctionCounters& counters)
        : doorbells_(doorbells), handler_(handler), config_(config), counters_(counters) {}

    [[nodiscard]] std::uint64_t size() const;
    void read(std::uint64_t offset, std::span<std::byte> data) const;
    void write(std::uint64_t offset, std::span<const std::byte> data);
    void write_all(std::span<const base::BarWrite> writes);
    void clear_shm() {
        shm_.fill(0);
        note_shm();
    }
    /// From now on what is in the aperture is written down there.
    void use_ledger(ChannelLedger& ledger) { ledger_ = &ledger; }
    void note_shm();
    /// What a process that has ended wrote down.
    void recover();
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.shm_);
    }

private:
    [[nodiscard]] std::uint32_t read_word(std::uint64_t offset) const;
    void write_shm(std::uint32_t index, std::uint32_t value);
    void shm_request();
    [[nodiscard]] Hwc::Rings rings() const;

    Doorbells& doorbells_;
    ShmHandler& handler_;
    const FunctionConfig& config_;
    FunctionCounters& counters_;
    std::array<std::uint32_t, MANA_HW_SHM_WORDS> shm_{};
    ChannelLedger* ledger_ = nullptr;
};

}  // namespace openmana::gdma
