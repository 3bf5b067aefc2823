// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "support/ext_host.h"
#include "support/rdma_host.h"

namespace openmana::test {

/// A guest that makes its NIC work as long as a command can: a CQ of the largest size with all of
/// its entries waiting is resized, a million pages are registered, a QP of many goes with many
/// windows bound to it. Each is false if the device did not do what it should.
class HeavyAttack {
public:
    struct Load {
        std::uint32_t entries = 1U << 22;
        std::size_t pages = 1U << 20;
        int windows = 51200;  ///< a multiple of kBatch
        int neighbours = 500;
    };
    HeavyAttack(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq, base::MacAddr mac,
                roce::Gid gid, Load load)
        : function_(function), ram_(ram), irq_(irq), mac_(mac), gid_(gid), load_(load) {}

    /// The driver from the start, all memory anew: at first, and after a reset.
    bool begin();
    bool resize();
    bool regions();
    /// A QP to which windows are bound step by step, for the device has turns in between. With the
    /// last one the QP goes. A step before the device had its turn does nothing.
    bool start_windows();
    [[nodiscard]] bool binding() const { return binding_.has_value(); }
    bool bind_more();
    [[nodiscard]] RdmaHost& host() { return *host_; }

private:
    static constexpr int kBatch = 32;  ///< windows bound before the device gets its turn
    struct Binding {
        ExtQp qp;
        ExtCq cq;
        DriverMr mr;
        int left = 0;
        int under_way = 0;
    };

    std::optional<std::uint64_t> ring_region(std::uint64_t record_page);
    bool resize_to(std::uint64_t cq, std::uint64_t record, std::uint32_t consumer);
    bool bind();

    pci::FunctionModel& function_;
    GuestRam& ram_;
    FakeIrq& irq_;
    const base::MacAddr mac_;
    const roce::Gid gid_;
    const Load load_;
    std::optional<RdmaHost> host_;
    std::optional<ExtHost> ext_;
    std::optional<Binding> binding_;
    std::uint64_t page_ = 0;
};

}  // namespace openmana::test
