// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of the device share: NICs of one switch in one process, on one thread and
// virtual time.
#pragma once

#include <mana/ext.h>

#include <cstdint>
#include <span>

#include "fabric/switch.h"
#include "gdma/types.h"
#include "support/hwc_driver.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"
#include "support/sim_nic.h"

namespace openmana::test {

constexpr std::uint32_t kAllAccess =
    gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;

/// A NIC on the switch, the memory of its guest, and a buffer in it that both ends may use.
struct BenchNic : SimNic {
    BenchNic(SimWorld& world, fabric::Switch& network, std::uint8_t number,
             std::uint64_t ram_bytes = 64U << 20)
        : SimNic(world, network, number, ram_bytes) {}

    [[nodiscard]] bool add_buffer(RdmaHost& host, std::uint64_t bytes) {
        buffer = ram.alloc(bytes);
        const auto region = host.hwc().create_mr(host.pd, buffer, bytes, kAllAccess);
        if (region) mr = *region;
        return region.has_value();
    }

    base::GuestAddr buffer{};
    DriverMr mr;
};

/// The same with its driver.
struct BenchHost : BenchNic {
    BenchHost(SimWorld& world, fabric::Switch& network, std::uint8_t number, bool extended)
        : BenchNic(world, network, number),
          host(nic.function(), ram, irq, test_mac(number), ipv4_gid(number)) {
        if (extended) host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
    }
    [[nodiscard]] bool bring_up(std::uint64_t buffer_bytes) {
        return host.bring_up() && add_buffer(host, buffer_bytes);
    }
    RdmaHost host;
};

/// Makes everything a frame.
class NoTap final : public fabric::FrameTap {
public:
    void frame(std::span<const std::byte>) override {}
};

}  // namespace openmana::test
