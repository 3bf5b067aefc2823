// SPDX-License-Identifier: Apache-2.0
#include "gdma/key_changes.h"

#include <span>
#include <utility>
#include <vector>

#include <mana/gdma.h>
#include <mana/queue.h>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

/// An MR handle is its key with a mark, so that a key alone or another handle is none.
constexpr std::uint64_t kHandleMark = 1ULL << 32;

}  // namespace

std::uint64_t KeyChanges::handle_of(Key created) {
    return kHandleMark | created.value();
}

const MemoryRegion* KeyChanges::of_guest(std::uint64_t handle) const {
    if ((handle & ~std::uint64_t{UINT32_MAX}) != kHandleMark) return nullptr;
    const MemoryRegion* const mr = keys_.find_created(Key(static_cast<std::uint32_t>(handle)));
    // The keys of the HWC and of the devices are not the guest's.
    return mr != nullptr && mr->pd->owner == kGuest ? mr : nullptr;
}

Result<void> KeyChanges::change(const Change& request) {
    const base::Gate::Exclusion exclusion(gate_, {"change of a key"});
    const MemoryRegion* const mr = of_guest(request.mr);
    if (mr == nullptr) return fail(ErrorCode::kNotFound, "no such MR", request.mr);
    MemoryChange change;
    if (request.pd) {
        TRY(change.pd, pds_.find(*request.pd));
    }
    if (request.access) {
        if ((*request.access & ~MANA_HW_ACCESS_ALL) != 0)
            return fail(ErrorCode::kInvalidArgument, "unknown rights", *request.access);
        change.access = request.access;
    }
    if (request.region) {
        TRY(change.region, regions_.claim(*request.region));
        if (change.region->length() - 1 > UINT64_MAX - request.address)
            return fail(ErrorCode::kInvalidArgument, "MR wraps", request.address);
        change.base = request.address;
    }
    return keys_.change(mr->key, std::move(change));
}

bool KeyChanges::fast_register(const FastRegister& request) {
    constexpr std::uint32_t kWrites = kRemoteWrite | kRemoteAtomic;
    if (request.page_shift < MANA_HW_PAGE_SHIFT || request.page_shift > 31 || request.pages == 0 ||
        request.length == 0 || !keys_.registrable(request.key, request.pd, request.pages) ||
        (request.access & ~MANA_HW_ACCESS_ALL) != 0 ||
        ((request.access & kWrites) != 0 && (request.access & kLocalWrite) == 0))
        return false;
    const std::uint64_t mask = (std::uint64_t{1} << request.page_shift) - 1;
    const std::uint64_t base = request.zero_based ? 0 : request.iova;
    const auto first_offset = static_cast<std::uint32_t>(request.iova & mask);
    const std::uint64_t room = (std::uint64_t{request.pages} << request.page_shift) - first_offset;
    if (request.length > room || request.length - 1 > UINT64_MAX - base) return false;
    std::vector<std::uint64_t> pages(request.pages);
    if (!memory_.read(request.page_list, std::as_writable_bytes(std::span(pages)))) return false;
    for (const std::uint64_t page : pages)
        if ((page & mask) != 0 || page > UINT64_MAX - mask) return false;
    auto region =
        regions_.make({request.length, first_offset, request.page_shift, request.pages}, pages);
    if (!region) return false;
    std::unique_ptr<DmaRegion> before;  // goes when the gate is open again
    const base::Gate::Exclusion exclusion(gate_, {"fast registration"});
    before =
        keys_.fast_register({request.key, request.pd, request.access, base, std::move(*region)});
    return true;
}

bool KeyChanges::bind_window(const WindowBind& request) {
    const base::Gate::Exclusion exclusion(gate_, {"bind"});
    return keys_.bind(request);
}

bool KeyChanges::invalidate(Key key, Pdn pd, WindowScope scope) {
    const base::Gate::Exclusion exclusion(gate_, {"invalidation"});
    return keys_.invalidate(key, pd, scope);
}

void KeyChanges::end_windows(std::optional<WindowScope> scope) {
    const base::Gate::Exclusion exclusion(gate_, {"end of windows"});
    keys_.end_windows(scope);
}

}  // namespace openmana::gdma
