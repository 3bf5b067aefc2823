// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "gdma/command.h"
#include "gdma/config.h"
#include "gdma/devices.h"
#include "gdma/handle.h"
#include "gdma/hwc.h"
#include "gdma/tables.h"

namespace openmana::gdma {

/// The GDMA commands (GDMA 5): those of the function as a whole and its devices in commands.cc, of
/// queues and what they lie in in object_commands.cc, of memory in memory_commands.cc.
class Commands final : public CommandHandler {
public:
    /// All outlive it.
    Commands(Tables& tables, Devices& devices, const FunctionConfig& config, pci::IrqSink& irq)
        : tables_(tables), devices_(devices), config_(config), irq_(irq) {}

    void command(const HwcRequest& request, HwcReply& reply) override;
    [[nodiscard]] Handle<EventQueue> take_test_eq() override {
        return std::exchange(test_eq_, nullptr);
    }

private:
    using Status = std::uint32_t;  // HwcStatus
    struct Entry {
        std::uint32_t opcode;
        std::size_t least;  // bytes of the request
        Status (Commands::*handler)(const HwcRequest&, HwcReply&);
        bool keys = false;  // changes keys, which visitors look up; else the gate is open
    };
    static std::span<const Entry> table();
    void run(const Entry& entry, const HwcRequest& request, HwcReply& reply);
    void device_command(const HwcRequest& request, HwcReply& reply);

    Status verify_version(const HwcRequest& request, HwcReply& reply);
    Status query_max_resources(const HwcRequest& request, HwcReply& reply);
    Status query_hwc_timeout(const HwcRequest& request, HwcReply& reply);
    Status list_devices(const HwcRequest& request, HwcReply& reply);
    Status register_device(const HwcRequest& request, HwcReply& reply);
    Status deregister_device(const HwcRequest& request, HwcReply& reply);

    Status test_eqe(const HwcRequest& request, HwcReply& reply);
    Status create_queue(const HwcRequest& request, HwcReply& reply);
    Status disable_queue(const HwcRequest& request, HwcReply& reply);
    Status allocate_range(const HwcRequest& request, HwcReply& reply);
    Status destroy_range(const HwcRequest& request, HwcReply& reply);
    Status create_region(const HwcRequest& request, HwcReply& reply);
    Status add_pages(const HwcRequest& request, HwcReply& reply);
    Status destroy_region(const HwcRequest& request, HwcReply& reply);
    Status create_pd(const HwcRequest& request, HwcReply& reply);
    Status destroy_pd(const HwcRequest& request, HwcReply& reply);

    Status create_mr(const HwcRequest& request, HwcReply& reply);
    Status destroy_mr(const HwcRequest& request, HwcReply& reply);
    Status alloc_dm(const HwcRequest& request, HwcReply& reply);
    Status destroy_dm(const HwcRequest& request, HwcReply& reply);

    Tables& tables_;
    Devices& devices_;
    const FunctionConfig& config_;
    pci::IrqSink& irq_;
    Handle<EventQueue> test_eq_;
};

}  // namespace openmana::gdma
