// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory_account.h"
#include "base/result.h"
#include "gdma/id_pool.h"
#include "gdma/ring.h"
#include "gdma/types.h"

namespace openmana::gdma {

class RegionTable;

/// A DMA region that a command is about to use. Whoever takes it has it; a claim that ends before
/// gives it back to the driver, because the command failed (RNIC 2.3).
class RegionClaim {
public:
    RegionClaim() = default;
    /// One that is in no table, and ends with the claim.
    explicit RegionClaim(std::unique_ptr<DmaRegion> region) : region_(std::move(region)) {}
    RegionClaim(RegionClaim&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)),
          handle_(other.handle_),
          region_(std::move(other.region_)) {}
    RegionClaim& operator=(RegionClaim&& other) noexcept {
        std::swap(table_, other.table_);
        std::swap(handle_, other.handle_);
        std::swap(region_, other.region_);
        return *this;
    }
    ~RegionClaim();

    explicit operator bool() const { return region_ != nullptr; }
    const DmaRegion& operator*() const { return *region_; }
    const DmaRegion* operator->() const { return region_.get(); }
    /// The command succeeds: the region is an object's from now on.
    [[nodiscard]] std::unique_ptr<DmaRegion> take();

private:
    friend class RegionTable;
    RegionClaim(RegionTable& table, RegionHandle handle, std::unique_ptr<DmaRegion> region)
        : table_(&table), handle_(handle), region_(std::move(region)) {}

    RegionTable* table_ = nullptr;
    RegionHandle handle_{};
    std::unique_ptr<DmaRegion> region_;
};

/// The DMA regions of a function that no object has taken yet, and the quota of all. On the
/// executor; visitors see none.
class RegionTable {
public:
    struct Limits {
        std::uint32_t regions = 0;
        std::uint64_t pages = 0;  ///< of all regions in the table
    };
    /// What CREATE_DMA_REGION says of it.
    struct Shape {
        std::uint64_t length = 0;
        std::uint32_t first_offset = 0;
        unsigned page_shift = 12;
        std::uint64_t page_count = 0;
    };
    /// Takes handles from `handles`; `account` pays for all regions, in objects too. Both outlive
    /// the table.
    RegionTable(Limits limits, HandleNumbers& handles, base::MemoryAccount& account)
        : limits_(limits), handles_(handles), account_(account) {}

    struct Created {
        RegionHandle handle{};
        bool complete = false;
    };
    base::Result<Created> create(const Shape& shape, std::span<const std::uint64_t> pages);
    /// Adds all of the pages or none. True when the region is complete.
    base::Result<bool> add_pages(RegionHandle handle, std::span<const std::uint64_t> pages);
    base::Result<void> destroy(RegionHandle handle);
    /// A complete one; claim: that nobody has claimed.
    [[nodiscard]] base::Result<const DmaRegion*> find(RegionHandle handle) const;
    [[nodiscard]] base::Result<RegionClaim> claim(RegionHandle handle);
    /// One that a work request makes, if the account can pay for it.
    [[nodiscard]] base::Result<std::unique_ptr<DmaRegion>> make(
        const Shape& shape, std::span<const std::uint64_t> pages) const;

    [[nodiscard]] std::uint64_t size() const { return regions_.size(); }
    [[nodiscard]] std::uint64_t pages() const { return pages_; }
    void reset();
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    friend class RegionClaim;
    struct Entry {
        Shape shape;
        base::MemoryAccount::Charge charge;
        base::MemoryAccount::Charge pages_charge;
        std::vector<std::uint64_t> pages;   // so far; empty once complete
        std::unique_ptr<DmaRegion> region;  // once complete, but for while it is claimed
        bool complete = false;
    };
    using Entries = std::unordered_map<std::uint64_t, Entry>;
    [[nodiscard]] static bool sensible(const Shape& shape);
    void load_one(base::StateReader& in);
    base::Result<bool> append(Entry& entry, std::span<const std::uint64_t> pages) const;
    void give_back(RegionHandle handle, std::unique_ptr<DmaRegion> region);
    void remove(Entries::iterator entry);

    const Limits limits_;
    HandleNumbers& handles_;
    Entries regions_;
    base::MemoryAccount& account_;
    std::uint64_t pages_ = 0;
};

}  // namespace openmana::gdma
