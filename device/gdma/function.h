// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/executor.h"
#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/result.h"
#include "gdma/command.h"
#include "gdma/completion_queue.h"
#include "gdma/cq_table.h"
#include "gdma/doorbell_pages.h"
#include "gdma/event_queue.h"
#include "gdma/handle.h"
#include "gdma/memory_table.h"
#include "gdma/pd_table.h"
#include "gdma/types.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// What one function offers. The defaults serve the drivers of Linux 6.12 and 7.2.
struct FunctionConfig {
    std::string name = "nic";             ///< in log lines
    std::uint32_t doorbell_pages = 1024;  ///< 4 KiB each in BAR0
    std::uint32_t max_sqs = 65536;        ///< quotas, per kind
    std::uint32_t max_rqs = 65536;
    std::uint32_t max_cqs = 32768;
    std::uint32_t max_eqs = 1024;
    std::uint32_t max_pds = 16384;
    std::uint32_t max_mrs = 1048576;
    std::uint32_t max_regions = 65536;  ///< DMA regions not yet consumed
    std::uint64_t max_region_pages =
        1ULL << 22;  ///< pages of all incomplete or unconsumed regions together
    std::uint64_t max_extents =
        1ULL << 24;  ///< contiguous stretches of all regions, in MRs and queues too
    std::uint64_t max_device_memory = 16ULL << 20;
};

#define OM_GDMA_COUNTERS(X)                                                        \
    X(hwc_requests, "gdma.hwc.requests", "HWC requests handled")                   \
    X(hwc_failed, "gdma.hwc.failed", "HWC requests answered with an error status") \
    X(hwc_malformed, "gdma.hwc.malformed",                                         \
      "HWC requests dropped: no valid message or no room for the answer")          \
    X(shm_failed, "gdma.shm.failed", "SHM requests answered with an error")        \
    X(shm_unshared, "gdma.shm.unshared",                                           \
      "HWC set-ups in guest memory that seems not to be shared with the device")   \
    X(doorbell_ignored, "gdma.doorbell.ignored",                                   \
      "doorbells for an unknown queue, or on a page that is not its own")          \
    X(cq_overruns, "gdma.cq.overruns",                                             \
      "arms of a CQ with more unread entries than it holds: some are lost")        \
    X(bar_ignored, "gdma.bar.ignored", "BAR0 writes that mean nothing")            \
    X(resets, "gdma.function.resets", "resets of the function")

OM_COUNTERS(FunctionCounters, OM_GDMA_COUNTERS);

/// Who owns an SQ or RQ: gets its doorbells. On the executor.
class DoorbellTarget {
public:
    virtual ~DoorbellTarget() = default;
    /// The running byte position that the driver has produced up to.
    virtual void ring(std::uint32_t position) = 0;
    /// RQ-client doorbell at 0x408 (RNIC 3.8): arm completion at a PSN. Others ignore it.
    virtual void arm_client(std::uint32_t psn) { (void)psn; }
    /// A hint that a doorbell is on its way, while others are served; nothing else may follow from
    /// it. The memory that connect_sq and set_beyond name is on its way, too.
    virtual void prepare(std::uint32_t position) const { (void)position; }
};

/// How many objects of each kind live, those of the HWC and of registered devices among them.
struct ObjectCounts {
    std::uint64_t eqs = 0, cqs = 0, sqs = 0, rqs = 0, pds = 0, keys = 0;
    std::uint64_t regions = 0, region_pages = 0;  ///< not consumed
    std::uint64_t extents = 0;                    ///< of all regions, in MRs and queues too
    std::uint64_t device_memories = 0, device_memory_bytes = 0;
    std::uint64_t doorbell_pages = 0;
    friend bool operator==(const ObjectCounts&, const ObjectCounts&) = default;
};

/// The GDMA engine of one PCI function: registers, SHM channel, HWC, queue and memory tables. The
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

    // For the clients. On the executor unless stated.
    [[nodiscard]] base::Executor& executor() const;
    [[nodiscard]] base::GuestMemory& memory() const;
    [[nodiscard]] base::Gate& gate();
    [[nodiscard]] const FunctionConfig& config() const;
    [[nodiscard]] FunctionCounters& counters();
    [[nodiscard]] const MemoryTable& keys() const;  ///< also during a visit
    /// Counts resets, so that tasks posted before one can tell that their objects are gone.
    [[nodiscard]] std::uint64_t epoch() const;
    [[nodiscard]] ObjectCounts object_counts() const;

    /// The region without taking it: a command that fails must leave it with the driver (RNIC 2.3).
    /// Only complete ones.
    [[nodiscard]] base::Result<const DmaRegion*> region(RegionHandle handle) const;
    [[nodiscard]] base::Result<std::unique_ptr<DmaRegion>> take_region(RegionHandle handle);
    /// Gives a taken region back to the driver, because the command failed after all.
    void restore_region(RegionHandle handle, std::unique_ptr<DmaRegion> region);

    // Who needs an object holds it; it does not go before.
    [[nodiscard]] base::Result<Handle<EventQueue>> find_eq(Eqn id) const;
    [[nodiscard]] base::Result<Handle<Pd>> find_pd(PdHandle handle) const;
    /// One of the guest's, or that of the client.
    [[nodiscard]] base::Result<Handle<Pd>> find_pd(const Client& client, Pdn id) const;
    /// One that was handed out: to a registered device, or by ALLOCATE_RESOURCE_RANGE.
    [[nodiscard]] base::Result<Handle<PageGrant>> find_page(DoorbellPage page) const;

    /// Creates a CQ with an id from the table shared by all devices (round robin, so that ids come
    /// back late) and connects it to the CQ doorbell. The ring is the first `bytes` of the region,
    /// which is moved from on success only. `eq` may be null. With a record, that is what follows
    /// the ring. It ends when nobody holds it any more.
    base::Result<Handle<CompletionQueue>> create_cq(std::unique_ptr<DmaRegion>&& region,
                                                    std::uint64_t bytes, Handle<EventQueue> eq,
                                                    Handle<PageGrant> page,
                                                    bool with_record = false);
    /// Moves a CQ that has a record to the first `bytes` of another region, with the record behind
    /// them; the region is moved from on success only. Gives the consumer's new index.
    base::Result<std::uint32_t> resize_cq(CompletionQueue& cq, std::unique_ptr<DmaRegion>&& region,
                                          std::uint64_t bytes);
    [[nodiscard]] CompletionQueue* find_cq(Cqn id) const;

    /// Takes `count` (at most 4) neighbouring SQ (RQ) ids, the first a multiple of `align` (1, 2 or
    /// 4). RQ id 1 is kept for the GSI QP: see allocate_gsi_rq. Freed ids come back late.
    base::Result<Sqn> allocate_sqs(std::uint32_t count, std::uint32_t align);
    base::Result<Rqn> allocate_rqs(std::uint32_t count, std::uint32_t align);
    base::Result<Rqn> allocate_gsi_rq();  ///< id 1; kBusy if taken
    void free_sqs(Sqn first, std::uint32_t count);
    void free_rqs(Rqn first, std::uint32_t count);
    /// From now on doorbells on `page` for the id reach `target`; null disconnects. `bytes`: how
    /// much memory, from the target on, it looks at then. All of it is asked for when a doorbell
    /// comes.
    void connect_sq(Sqn id, DoorbellPage page, DoorbellTarget* target,
                    std::uint16_t bytes = sizeof(DoorbellTarget));
    void connect_rq(Rqn id, DoorbellPage page, DoorbellTarget* target);
    /// A hint: memory that a connected SQ's target goes on to, asked for with the target's own. It
    /// may be gone when a doorbell comes.
    void set_beyond(Sqn id, const void* memory, std::uint16_t bytes);
    /// A hint: a doorbell of this RQ follows soon.
    void prefetch(Rqn id) const;

    /// Whether CREATE_MR knows keys for fast registration (docs/extensions.md).
    void allow_fast_registration(bool allowed);
    /// Whether the Ethernet device has packet queues and flow rules (docs/extensions.md): the
    /// extension is negotiated with the RNIC.
    void allow_packets(bool allowed);
    [[nodiscard]] bool packets_allowed() const;
    /// MODIFY_MR of the extension (docs/extensions.md): what is named is changed, the key stays.
    struct MrChange {
        std::uint64_t mr = 0;  ///< handle
        std::optional<PdHandle> pd = std::nullopt;
        std::optional<std::uint32_t> access = std::nullopt;
        std::optional<RegionHandle> region = std::nullopt;
        std::uint64_t address = 0;  ///< with a region: of its first byte
    };
    /// A region is taken on success only.
    base::Result<void> change_mr(const MrChange& request);
    /// COPY_DM of the extension (docs/extensions.md): to or from guest memory.
    struct DmCopy {
        std::uint64_t dm = 0;  ///< handle
        std::uint64_t offset = 0;
        GuestAddr address{};
        std::uint32_t length = 0;
        bool to_dm = false;
    };
    /// All of it, or nothing and an error.
    base::Result<void> copy_dm(const DmCopy& request);
    /// What a work request asks for; the pages' addresses are an array at `page_list`.
    struct FastRegisterRequest {
        Key key{};
        Pdn pd{};
        std::uint32_t access = 0;
        std::uint64_t iova = 0;
        std::uint64_t length = 0;
        GuestAddr page_list{};
        std::uint32_t pages = 0;
        std::uint32_t page_shift = 0;
        bool zero_based = false;
    };
    /// False if the request makes no sense or is not allowed; then nothing has changed. Not during
    /// a visit.
    [[nodiscard]] bool fast_register(const FastRegisterRequest& request);
    /// Not during a visit.
    [[nodiscard]] bool bind_window(const WindowBind& request);
    /// MemoryTable::invalidate; afterwards no visitor is using what the key stood for. Not during a
    /// visit.
    [[nodiscard]] bool invalidate(Key key, Pdn pd, std::uint32_t qpn);
    /// The type 2 windows of a QP that ends, or of all QPs, become invalid. Not during a visit.
    void end_windows(std::optional<std::uint32_t> qpn);

    /// Tells the driver through the HWC EQ that the link went up or down (GDMA 4.8; 7.2 acts on
    /// it).
    void notify_link(bool up);

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace openmana::gdma
