// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <mana/gdma.h>

#include "gdma/cq_table.h"
#include "gdma/doorbell_pages.h"
#include "gdma/eq_table.h"
#include "gdma/function.h"
#include "gdma/handle.h"
#include "gdma/id_pool.h"
#include "gdma/pd_table.h"
#include "gdma/wq_table.h"
#include "gdma/wqe.h"

namespace openmana::gdma {

// BAR0 (GDMA 1.3).
constexpr std::uint64_t kShmOffset = 0x2000;
constexpr std::uint64_t kDoorbellOffset = 0x10000;
constexpr std::uint64_t kDoorbellPageBytes = 0x1000;

/// Private to the gdma layer: the state of a function, and its parts by source file: function.cc
/// (objects, reset), registers.cc (BAR0, SHM), hwc.cc (the channel), commands.cc (the opcodes).
struct Function::Impl {
    Impl(base::Executor& executor_in, base::GuestMemory& memory_in, pci::IrqSink& irq_in,
         FunctionConfig config_in);

    // ---- objects
    struct RegionEntry {
        std::uint64_t length = 0;
        std::uint32_t first_offset = 0;
        unsigned page_shift = 12;
        std::uint64_t page_count = 0;       ///< charged to the quota
        std::vector<std::uint64_t> pages;   ///< so far; empty once complete
        std::unique_ptr<DmaRegion> region;  ///< once complete
    };
    struct Device {
        Client* client = nullptr;
        bool registered = false;
        Handle<Pd> pd;
        Key gpa_key{};
        Handle<PageGrant> page;
    };

    [[nodiscard]] Device* device(std::uint16_t type, std::uint16_t instance);
    void drop_region(std::unordered_map<std::uint64_t, RegionEntry>::iterator entry);
    void reset_objects();
    void reset(bool clear_shm);
    void tell_unshared();

    // ---- registers.cc
    [[nodiscard]] std::uint32_t read_word(std::uint64_t offset) const;
    void write_shm(std::uint32_t index, std::uint32_t value);
    void shm_request();
    [[nodiscard]] std::uint32_t establish();
    void write_doorbells(std::uint64_t offset, std::span<const std::byte> data);
    /// Calls `visit(table, id)` if this is a doorbell of a work queue, of 8 bytes.
    template <typename Visit>
    void with_wq(const base::BarWrite& write, Visit&& visit) const;
    [[nodiscard]] bool doorbell64(DoorbellPage page, std::uint32_t offset, std::uint64_t value);
    [[nodiscard]] bool doorbell32(DoorbellPage page, std::uint32_t offset, std::uint32_t value);
    [[nodiscard]] bool ring_wq(WqTable& table, std::uint32_t id, DoorbellPage page,
                               std::uint32_t position, bool relative);
    [[nodiscard]] bool ring_cq(std::uint32_t id, DoorbellPage page, std::uint32_t index, bool arm,
                               bool relative);

    // ---- commands.cc
    void command(const HwcRequest& request, HwcReply& reply);
    void device_command(const HwcRequest& request, HwcReply& reply);
    using Status = std::uint32_t;
    Status verify_version(const HwcRequest& request, HwcReply& reply);
    Status query_max_resources(const HwcRequest& request, HwcReply& reply);
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
    Status append_pages(std::uint64_t handle, RegionEntry& entry, const HwcRequest& request,
                        std::size_t offset, std::uint32_t count);
    Status destroy_region(const HwcRequest& request, HwcReply& reply);
    Status create_pd(const HwcRequest& request, HwcReply& reply);
    Status destroy_pd(const HwcRequest& request, HwcReply& reply);
    Status create_mr(const HwcRequest& request, HwcReply& reply);
    /// The region that a handle of the guest names.
    [[nodiscard]] const MemoryRegion* mr_of(std::uint64_t handle) const;
    Status destroy_mr(const HwcRequest& request, HwcReply& reply);
    Status query_hwc_timeout(const HwcRequest& request, HwcReply& reply);
    Status alloc_dm(const HwcRequest& request, HwcReply& reply);
    Status destroy_dm(const HwcRequest& request, HwcReply& reply);

    class Hwc;

    base::Executor& executor;
    base::GuestMemory& memory;
    pci::IrqSink& irq;
    const FunctionConfig config;
    base::Gate gate;
    FunctionCounters counters;
    std::vector<Device> devices;  // by order of attachment
    std::uint64_t epoch = 0;
    std::array<std::uint32_t, MANA_HW_SHM_WORDS> shm{};

    HandleNumbers handles;
    PdTable pds;
    DoorbellPages pages;
    MemoryTable keys;
    EqTable eqs;
    CqTable cqs;
    WqTable sqs;
    WqTable rqs;
    std::optional<QueueIdPool> sq_ids;
    std::optional<QueueIdPool> rq_ids;
    bool gsi_rq_taken = false;
    bool fast_registration = false;
    bool packets = false;
    std::unordered_map<std::uint64_t, RegionEntry> regions;
    std::uint64_t region_pages = 0;
    std::unordered_map<std::uint64_t, std::shared_ptr<DeviceMemory>> device_memory;
    std::uint64_t device_memory_bytes = 0;
    /// Extents of all regions that live, in whatever object.
    std::shared_ptr<std::atomic<std::uint64_t>> extents =
        std::make_shared<std::atomic<std::uint64_t>>(0);
    std::unique_ptr<Hwc> hwc;
    bool unshared_told = false;  ///< said once: a guest can ask for it often
};

/// The hardware channel (GDMA 4): takes requests from its SQ as the doorbell comes in, and answers
/// in its RQ.
class Function::Impl::Hwc final {
public:
    struct Rings {
        GuestAddr eq, cq, rq, sq;
        unsigned vector = 0;
    };
    /// Creates the queues and writes the init events.
    static base::Result<std::unique_ptr<Hwc>> create(Impl& function, const Rings& rings);
    ~Hwc();
    Hwc(const Hwc&) = delete;
    Hwc& operator=(const Hwc&) = delete;

    [[nodiscard]] EventQueue& eq() { return *eq_; }
    /// The driver has seen the init events: it posts receives after them.
    [[nodiscard]] bool seen_by_driver() const { return rq_posted_ != 0; }
    /// The command in progress wants a test event on this EQ, after its response.
    void test_eq_after_response(Handle<EventQueue> eq) { test_eq_ = std::move(eq); }

private:
    struct SendTarget final : DoorbellTarget {
        explicit SendTarget(Hwc& hwc_in) : hwc(hwc_in) {}
        void ring(std::uint32_t position) override { hwc.requests_posted(position); }
        Hwc& hwc;
    };
    struct ReceiveTarget final : DoorbellTarget {
        explicit ReceiveTarget(Hwc& hwc_in) : hwc(hwc_in) {}
        void ring(std::uint32_t position) override { hwc.rq_posted_ = position; }
        Hwc& hwc;
    };

    Hwc(Impl& function, Ring sq, Ring rq);
    void announce();
    void requests_posted(std::uint32_t position);
    [[nodiscard]] bool handle_request(const Wqe& wqe);
    [[nodiscard]] bool gather(const Wqe& wqe, std::uint32_t need, std::uint64_t limit,
                              SpanList& out) const;

    Impl& function_;
    Ring sq_;
    Ring rq_;
    SendTarget send_target_{*this};
    ReceiveTarget receive_target_{*this};
    Handle<PageGrant> page_;
    Handle<Pd> pd_;
    Handle<EventQueue> eq_;
    Handle<CompletionQueue> cq_;
    Key key_{};
    Sqn sq_id_{};
    Rqn rq_id_{};
    std::uint32_t sq_done_ = 0;
    std::uint32_t rq_posted_ = 0;
    std::uint32_t rq_done_ = 0;
    Handle<EventQueue> test_eq_;
};

}  // namespace openmana::gdma
