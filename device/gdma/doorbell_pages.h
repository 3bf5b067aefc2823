// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/state.h"
#include "gdma/handle.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// A doorbell page that was handed out. Whoever listens to doorbells on it holds it, so that it
/// does not become somebody else's meanwhile.
struct PageGrant final : Held {
    PageGrant(DoorbellPage page_number, DeviceType page_owner, bool range_start)
        : page(page_number), owner(page_owner), starts_range(range_start) {}
    const DoorbellPage page;
    const DeviceType owner;   ///< kGuest, or who got it by its registration
    const bool starts_range;  ///< of the guest's: the first of an ALLOCATE_RESOURCE_RANGE
};

/// The doorbell pages of BAR0: one for each device and the HWC, and ranges of the guest's. On the
/// executor; visitors see none.
class DoorbellPages {
public:
    explicit DoorbellPages(std::uint32_t count) : pages_(count) {}

    /// The first of `count` pages for the guest, a multiple of `align`, from `from` on.
    [[nodiscard]] base::Result<DoorbellPage> allocate_range(std::uint32_t count,
                                                            std::uint32_t align,
                                                            std::uint32_t from);
    /// Exactly a range that was allocated; kBusy while anybody holds a page of it.
    base::Result<void> free_range(std::uint32_t first, std::uint32_t count);
    [[nodiscard]] base::Result<Handle<PageGrant>> allocate(DeviceType owner);
    /// One of a device's. The caller is the last who holds it.
    void free(Handle<PageGrant> page);
    /// One that queues may use: not the HWC's.
    [[nodiscard]] base::Result<Handle<PageGrant>> find(DoorbellPage page) const;
    /// Any, that of the HWC too: for who held it when a state was written. Null if there is none.
    [[nodiscard]] Handle<PageGrant> held(DoorbellPage page) const;
    [[nodiscard]] std::uint32_t used() const;
    void reset();
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    [[nodiscard]] base::Result<std::uint32_t> take(std::uint32_t count, std::uint32_t align,
                                                   std::uint32_t from, DeviceType owner);

    std::vector<Handle<PageGrant>> pages_;  // null: free
    std::uint32_t next_ = 0;
};

}  // namespace openmana::gdma
