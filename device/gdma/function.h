// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "base/executor.h"
#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "gdma/command.h"
#include "gdma/config.h"
#include "gdma/function_ledger.h"
#include "gdma/tables.h"
#include "gdma/types.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// The GDMA engine of one PCI function: registers, SHM channel, HWC, and the tables of objects. The
/// Ethernet and RDMA devices are clients of it. Lives on one executor; see Gate for what others may
/// do.
class Function final : public pci::FunctionModel {
public:
    /// All references outlive the function.
    Function(base::Executor& executor, base::GuestMemory& memory, pci::IrqSink& irq,
             FunctionConfig config);
    ~Function() override;

    /// At set-up only. The device is listed, and gets a PD, a GPA key and a doorbell page of its
    /// own when registered.
    void attach(Client& client);

    // pci::FunctionModel
    [[nodiscard]] std::uint64_t bar0_size() const override;
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override;
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override;
    void bar0_writes(std::span<const base::BarWrite> writes) override;
    void reset() override;

    /// The state of the function and its devices. On the executor, while nobody visits; nothing
    /// changes.
    void save(base::StateWriter& out) const;
    /// Into one that is as after a reset, and whose guest memory is mapped. If it is refused, the
    /// function is reset.
    base::Result<void> load(base::StateReader& in);

    /// From now on what is needed to reach the driver without all the rest is written down there,
    /// in memory that may outlive the process. At set-up only.
    void use_ledger(FunctionLedger& ledger);
    /// Goes on behind what a process that has ended wrote down there: as after a reset, but what
    /// the driver commands is refused until it resets the function. Guest memory is mapped.
    void recover();
    /// Asks a driver for that which has a channel from before (GDMA 4.8; 7.2 acts on it).
    void request_reset();

    // For the clients. On the executor unless stated.
    [[nodiscard]] base::Executor& executor() const;
    [[nodiscard]] base::GuestMemory& memory() const;
    [[nodiscard]] pci::IrqSink& irq() const;
    /// Null: nobody goes on after this process.
    [[nodiscard]] FunctionLedger* ledger() const;
    [[nodiscard]] base::Gate& gate();
    [[nodiscard]] const FunctionConfig& config() const;
    [[nodiscard]] FunctionCounters& counters();
    /// Pays for all that the guest has of the function and its devices.
    [[nodiscard]] base::MemoryAccount& account() const;
    /// Counts resets, so that tasks posted before one can tell that their objects are gone.
    [[nodiscard]] std::uint64_t epoch() const;
    [[nodiscard]] ObjectCounts object_counts() const;
    /// Tells the driver through the HWC EQ that the link went up or down (GDMA 4.8; 7.2 acts on
    /// it).
    void notify_link(bool up);

    // What the guest has made. Who needs an object holds it; it does not go before.
    [[nodiscard]] PdTable& pds();
    [[nodiscard]] const DoorbellPages& pages() const;
    [[nodiscard]] const EqTable& eqs() const;
    [[nodiscard]] const MemoryTable& keys() const;  ///< also during a visit
    [[nodiscard]] KeyChanges& key_changes();
    [[nodiscard]] RegionTable& regions();
    [[nodiscard]] DeviceMemoryTable& device_memory();
    [[nodiscard]] CqTable& cqs();
    [[nodiscard]] SendQueues& sqs();
    [[nodiscard]] ReceiveQueues& rqs();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace openmana::gdma
