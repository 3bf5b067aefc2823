// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gdma/function.h"
#include "gdma/wqe.h"
#include "pci/function_model.h"
#include "support/guest_ram.h"

namespace openmana::test {

/// Counts interrupts per vector. Any thread.
class FakeIrq final : public pci::IrqSink {
public:
    explicit FakeIrq(unsigned vectors = 65) : counts_(vectors) {}
    void raise(unsigned vector) override {
        if (vector < counts_.size()) counts_[vector].fetch_add(1, std::memory_order_relaxed);
    }
    [[nodiscard]] unsigned vector_count() const override {
        return static_cast<unsigned>(counts_.size());
    }
    [[nodiscard]] std::uint64_t count(unsigned vector) const {
        return counts_.at(vector).load(std::memory_order_relaxed);
    }

private:
    std::deque<std::atomic<std::uint64_t>> counts_;
};

/// A request under construction: the 40-byte header (GDMA 4.5), then what `put` writes.
class Request {
public:
    /// `size` and `room` are the bytes of request and response, headers included.
    Request(std::uint32_t opcode, std::size_t size, std::uint32_t room = 32,
            std::uint16_t device_type = 0, std::uint16_t version = 1,
            std::uint16_t response_version = 1);
    template <typename T>
    Request& put(std::size_t offset, T value) {
        if (offset + sizeof(T) > bytes.size()) bytes.resize(offset + sizeof(T));
        base::store_le<T>(bytes.data() + offset, value);
        return *this;
    }
    Request& put_bytes(std::size_t offset, std::span<const std::byte> data);
    /// Writes the size word; `HwcDriver::call` does not, so that tests can lie.
    Request& fit() { return put<std::uint32_t>(12, static_cast<std::uint32_t>(bytes.size())); }
    std::vector<std::byte> bytes;
};

/// What came back. Without an answer `arrived` is false and the status is all-ones but one.
struct Response {
    bool arrived = false;
    std::uint32_t status = 0xfffffffe;
    std::vector<std::byte> bytes;
    [[nodiscard]] bool ok() const { return arrived && status == 0; }
    template <typename T>
    [[nodiscard]] T get(std::size_t offset) const {
        return offset + sizeof(T) <= bytes.size() ? base::load_le<T>(bytes.data() + offset) : T{};
    }
};

/// A ring in guest memory, contiguous or not.
struct RingMemory {
    GuestRam* ram = nullptr;
    std::vector<std::uint64_t> pages;  ///< 4 KiB each
    std::uint64_t bytes = 0;
    [[nodiscard]] std::byte* at(std::uint64_t offset) const {
        return ram->at(base::GuestAddr(pages[offset / 4096] + offset % 4096));
    }
};

struct Eqe {
    std::uint8_t type = 0;
    std::array<std::uint32_t, 3> data{};
};
struct Cqe {
    std::array<std::byte, 60> data{};
    std::uint32_t queue_id = 0;
    bool is_sq = false;
    template <typename T>
    [[nodiscard]] T get(std::size_t offset) const {
        return base::load_le<T>(data.data() + offset);
    }
};

/// The consumer's side of an EQ or CQ: looks at owner bits as the drivers do.
class EntryRing {
public:
    EntryRing() = default;
    EntryRing(RingMemory memory, std::size_t entry_bytes)
        : memory_(std::move(memory)),
          entry_bytes_(entry_bytes),
          entries_(memory_.bytes / entry_bytes),
          consumer_(entries_) {}
    [[nodiscard]] std::uint64_t entries() const { return entries_; }
    /// Running count of consumed entries, from `entries()` on.
    [[nodiscard]] std::uint64_t consumer() const { return consumer_; }
    /// As the doorbell carries it.
    [[nodiscard]] std::uint32_t index() const {
        return static_cast<std::uint32_t>(consumer_ % (8 * entries_));
    }
    /// The next entry, or null. Owner bits of neither lap set `overflowed`.
    const std::byte* next();
    [[nodiscard]] bool overflowed() const { return overflowed_; }

private:
    RingMemory memory_;
    std::size_t entry_bytes_ = 0;
    std::uint64_t entries_ = 0;
    std::uint64_t consumer_ = 0;
    bool overflowed_ = false;
};

class HwcDriver;

/// An EQ as its driver sees it.
class DriverEq {
public:
    std::uint32_t id = 0;
    std::uint32_t page = 0;
    std::uint32_t vector = 0;
    std::optional<Eqe> poll();
    [[nodiscard]] std::vector<Eqe> drain();  ///< all there is, without a doorbell
    void arm();
    EntryRing ring;
    HwcDriver* driver = nullptr;
};

/// A CQ as its consumer sees it.
class DriverCq {
public:
    std::uint32_t id = 0;
    std::uint32_t page = 0;
    std::uint64_t handle = 0;  ///< free for the test
    std::optional<Cqe> poll();
    [[nodiscard]] std::vector<Cqe> drain();
    void arm();
    EntryRing ring;
    HwcDriver* driver = nullptr;
};

/// The producer's side of an SQ or RQ (a power of two of bytes): builds WQEs (GDMA 3.3).
class DriverWq {
public:
    std::uint32_t id = 0;
    std::uint32_t page = 0;
    bool is_sq = true;
    RingMemory ring;
    HwcDriver* driver = nullptr;

    /// Writes header, OOB (8, 24 or 40 bytes) and SGEs at the head; returns the position of the
    /// WQE. `header1` is or-ed to the counts.
    std::uint32_t post(std::span<const std::byte> oob, std::span<const gdma::Sge> sges,
                       std::uint32_t header0 = 0, std::uint32_t header1 = 0);
    /// A WQE given as bytes.
    std::uint32_t post_raw(std::span<const std::byte> wqe);
    void doorbell(std::uint8_t count = 0);
    [[nodiscard]] std::uint32_t head() const { return head_; }

private:
    std::uint32_t head_ = 0;
};

struct DeviceRegistration {
    std::uint32_t pd = 0;
    std::uint32_t gpa_key = 0;
    std::uint32_t page = 0;
};
struct DriverPd {
    std::uint64_t handle = 0;
    std::uint32_t id = 0;
};
struct DriverMr {
    std::uint64_t handle = 0;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
};

/// A stand-in for the `mana` driver: the SHM handshake, the hardware channel, and the commands that
/// tests of all layers need. Everything it does goes through BAR0 and guest memory. Commands that
/// fail return nothing; the status of the last one is in `last_status`.
class HwcDriver {
public:
    HwcDriver(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq);

    // Registers and doorbells.
    [[nodiscard]] std::uint32_t read32(std::uint64_t offset);
    [[nodiscard]] std::uint64_t read64(std::uint64_t offset);
    void write32(std::uint64_t offset, std::uint32_t value);
    void write64(std::uint64_t offset, std::uint64_t value);
    [[nodiscard]] std::uint64_t doorbell_offset(std::uint32_t page) const;
    void ring_sq(std::uint32_t page, std::uint32_t id, std::uint32_t position);
    void ring_rq(std::uint32_t page, std::uint32_t id, std::uint32_t position,
                 std::uint8_t count = 0);
    void ring_rq_client(std::uint32_t page, std::uint32_t id, std::uint32_t psn);
    void ring_cq(std::uint32_t page, std::uint32_t id, std::uint32_t index, bool arm);
    /// `value`: all of it but the id.
    void ring_moderation(std::uint32_t page, std::uint32_t id, std::uint64_t value);
    void ring_eq(std::uint32_t page, std::uint32_t id, std::uint32_t index, bool arm);

    /// Reads the registers, allocates the rings, does the SHM handshake, reads the init EQEs, posts
    /// the receive buffer. False if any step fails.
    bool bring_up();
    /// SHM destroy.
    bool shut_down();
    /// SHM words as the driver writes them, DW7 last; returns DW7 afterwards.
    std::uint32_t shm_request(const std::array<std::uint32_t, 8>& words);

    /// Sends a request and waits for the answer in the CQ.
    Response call(const Request& request);
    std::uint32_t last_status = 0;
    std::uint32_t last_failure = 0;  ///< the last one of a command that failed
    /// In place of a call: puts the request into the SQ without a doorbell. For several at once.
    void queue_request(const Request& request);
    void ring_requests();
    std::optional<Response> take_response();
    /// Posts one more receive buffer.
    void post_receive();

    // Commands.
    std::optional<DeviceRegistration> register_device(std::uint16_t type);
    bool deregister_device(std::uint16_t type);
    std::uint32_t allocate_page(std::uint32_t count = 1,
                                std::uint32_t alignment = 1);  ///< all-ones on failure
    bool free_page(std::uint32_t first, std::uint32_t count = 1);
    /// Any list of pages, in as many messages as it takes (`per_message` in each; the most that fit
    /// by default).
    std::optional<std::uint64_t> create_region(std::span<const std::uint64_t> pages,
                                               std::uint64_t length, std::uint32_t first_offset = 0,
                                               unsigned page_shift = 12,
                                               std::size_t per_message = 504);
    /// Over contiguous memory, from any byte on.
    std::optional<std::uint64_t> create_region(base::GuestAddr address, std::uint64_t length);
    bool destroy_region(std::uint64_t handle);
    /// Allocates a ring, its region, the queue, and takes the test EQE.
    std::optional<DriverEq> create_eq(std::uint16_t device_type, const DeviceRegistration& device,
                                      std::uint32_t vector, std::uint32_t bytes = 32768);
    bool test_eq(std::uint16_t device_type, DriverEq& eq);
    bool destroy_eq(std::uint16_t device_type, const DriverEq& eq);
    std::optional<DriverPd> create_pd(bool allow_gpa = false, std::uint32_t flags = 0);
    bool destroy_pd(const DriverPd& pd);
    /// Type 2: `[address, address + length)` known as `va` (default: the address itself).
    std::optional<DriverMr> create_mr(const DriverPd& pd, base::GuestAddr address,
                                      std::uint64_t length, std::uint32_t access,
                                      std::optional<std::uint64_t> va = {});
    std::optional<DriverMr> create_mr_of(const DriverPd& pd, std::uint64_t region, std::uint64_t va,
                                         std::uint32_t access);
    std::optional<DriverMr> create_gpa_mr(const DriverPd& pd);
    bool destroy_mr(const DriverMr& mr);

    /// Ring memory for a queue of the test, and the consumer or producer on it.
    [[nodiscard]] RingMemory alloc_ring(std::uint64_t bytes, bool scattered = false);
    [[nodiscard]] std::optional<std::uint64_t> create_region(const RingMemory& ring);
    [[nodiscard]] DriverCq make_cq(const RingMemory& ring, std::uint32_t id, std::uint32_t page);
    [[nodiscard]] DriverWq make_wq(const RingMemory& ring, std::uint32_t id, std::uint32_t page,
                                   bool is_sq);

    [[nodiscard]] GuestRam& ram() { return ram_; }
    [[nodiscard]] FakeIrq& irq() { return irq_; }
    /// What the init EQEs said; index = data type of GDMA 4.2.
    std::array<std::uint32_t, 16> init_data{};
    DriverEq hwc_eq;  ///< events on it that are not completions of the HWC land in `events`
    DriverCq hwc_cq;
    DriverWq hwc_sq;
    DriverWq hwc_rq;
    std::deque<Eqe> events;

private:
    void pump_hwc_eq();

    pci::FunctionModel& function_;
    GuestRam& ram_;
    FakeIrq& irq_;
    std::uint64_t doorbells_ = 0;
    std::uint64_t shm_ = 0;
    std::uint64_t page_bytes_ = 4096;
    base::GuestAddr request_buffer_;
    std::uint64_t request_slot_ = 0;
};

}  // namespace openmana::test
