// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/result.h"
#include "base/state.h"
#include "pci/config_space.h"
#include "pci/counters.h"
#include "pci/endpoint_ledger.h"
#include "pci/function_model.h"
#include "pci/irq_vectors.h"
#include "vfio_user/device_backend.h"

namespace openmana::pci {

/// What a client may map of its memory. The process shares out what the system gives it: each range
/// costs a mapping, and its bytes are of one address space (47 bits on x86).
struct DmaLimits {
    std::size_t ranges = 8192;
    std::uint64_t bytes = 1ULL << 44;
};

struct EndpointConfig {
    std::string name = "nic";    ///< in log lines
    unsigned msix_vectors = 65;  ///< GDMA 1.4
    std::uint64_t serial = 0;    ///< device serial number (EUI-64), 0 for none
    DmaLimits dma{};
};

/// A PCI Express function as its client sees it: config space, BAR0 (the model's), BAR4 (MSI-X
/// table and PBA), interrupts, and the guest memory that the client lends.
///
/// Made before the model, which takes it as its IrqSink, and destroyed after it: give the model
/// with attach() before the first client. `raise` is for any thread, everything else for the NIC's
/// own.
class Endpoint final : public vfio_user::DeviceBackend, public IrqSink {
public:
    /// `memory` outlives the endpoint.
    Endpoint(base::GuestMemory& memory, EndpointConfig config);

    /// Once. Both stay until the last client is gone; `gate` keeps visitors of the NIC away from
    /// changes of its memory.
    void attach(FunctionModel& model, base::Gate& gate);
    /// The NIC's own, for interrupts that nobody else should raise. As `model`.
    void use_executor(base::Executor& executor) { vectors_.use_executor(executor); }
    /// From now on what the client lends and sets is written down there, in memory that may outlive
    /// the process. Behind attach(), before there is a client.
    void use_ledger(EndpointLedger& ledger);
    /// Goes on with what a process that has ended wrote down there. Behind use_ledger(), while
    /// nobody visits. After an error it is good for client_gone().
    base::Result<void> recover();
    /// Each vector that has an eventfd is raised once: nobody knows what was on its way.
    void raise_all() { vectors_.raise_assigned(); }

    [[nodiscard]] Counters& counters() { return counters_; }

    /// The device as its driver sees it, wherever it goes on. Read by an endpoint that is as after
    /// a reset, with a client or before one comes; after a refusal it is good for a reset. Both
    /// while nobody visits.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// The device stands still: writes to BAR0 are refused, and interrupts wait.
    void stop();
    /// It goes on. If it has `moved`, each vector that has an eventfd is raised once: what the
    /// client of the device that it was had still to hand on is in no state.
    void start(bool moved);
    /// All that it is is forgotten, but not what the client has lent.
    void forget();
    /// The client has its memory and its eventfds back, and nothing else changes. While it stands
    /// still.
    void give_back();
    /// What the client has lent: memory and eventfds, for another process of this host. Read
    /// behind load(), before there is a client.
    void save_lent(base::StateWriter& out) const;
    void load_lent(base::StateReader& in);

    // IrqSink
    void raise(unsigned vector) override { vectors_.raise(vector); }
    [[nodiscard]] unsigned vector_count() const override { return vectors_.count(); }

    // vfio_user::DeviceBackend
    [[nodiscard]] vfio_user::Region region(unsigned index) const override;
    [[nodiscard]] std::uint32_t irq_count(unsigned kind) const override;
    base::Result<void> region_read(unsigned index, std::uint64_t offset,
                                   std::span<std::byte> data) override;
    base::Result<void> region_write(unsigned index, std::uint64_t offset,
                                    std::span<const std::byte> data) override;
    void bar0_writes(std::span<const base::BarWrite> writes) override;
    base::Result<void> dma_map(const vfio_user::DmaRange& range, const base::UniqueFd& fd) override;
    [[nodiscard]] bool has_range(const vfio_user::DmaRange& range, bool with_fd) const override;
    base::Result<void> dma_unmap(std::uint64_t address, std::uint64_t size) override;
    void dma_unmap_all() override;
    base::Result<void> irq_assign(unsigned kind, std::uint32_t vector,
                                  base::UniqueFd eventfd) override;
    void irq_trigger(unsigned kind, std::uint32_t vector) override;
    void irq_mask(unsigned kind, std::uint32_t vector, bool masked) override;
    void irq_disable(unsigned kind) override;
    void device_reset() override;
    void client_gone() override;

private:
    base::Result<void> map_range(const vfio_user::DmaRange& range, const base::UniqueFd& fd);
    void note_range(const vfio_user::DmaRange& range, const base::UniqueFd* file);
    void note_registers();
    void msix_read(std::uint64_t offset, std::span<std::byte> data) const;
    void msix_write(std::uint64_t offset, std::span<const std::byte> data);
    void reset();
    void reset_table();
    void follow_bus_master();
    void hold_vectors() { vectors_.hold(!masters_bus_ || stopped_); }

    base::GuestMemory& memory_;
    const EndpointConfig config_;
    Counters counters_;
    IrqVectors vectors_;
    const std::uint32_t pba_offset_;
    const std::uint64_t msix_bar_size_;
    std::vector<std::byte> table_;  // the client emulates the table and seldom asks for this copy
    FunctionModel* model_ = nullptr;
    base::Gate* gate_ = nullptr;
    EndpointLedger* ledger_ = nullptr;
    std::uint64_t bar0_size_ = 0;
    std::optional<ConfigSpace> space_;
    bool masters_bus_ = true;
    bool stopped_ = false;
    bool warned_ = false;  // that this client's memory is of a kind that is not taken
};

}  // namespace openmana::pci
