// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "fabric/nic.h"
#include "fabric/switch.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"

namespace openmana::test {

/// A whole NIC on a switch, and the memory of its guest, on virtual time.
struct SimNic {
    /// With a file: its memory is the guest's. `loss` is told when that goes away.
    SimNic(SimWorld& world, fabric::Switch& network, std::uint8_t number, std::uint64_t ram_bytes,
           int file = -1, base::MemoryLoss* loss = nullptr)
        : executor(world),
          memory(loss),
          ram(memory, ram_bytes, base::GuestAddr(0x1'0000'0000ULL), file),
          nic(executor, memory, irq, network, config(number)) {}

    static fabric::NicConfig config(std::uint8_t number) {
        fabric::NicConfig config;
        config.name = "nic" + std::to_string(number);
        config.mac = test_mac(number);
        return config;
    }

    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    fabric::Nic nic;
};

}  // namespace openmana::test
