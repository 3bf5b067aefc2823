// SPDX-License-Identifier: Apache-2.0
#include "gdma/region_table.h"

#include <algorithm>
#include <utility>

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

RegionClaim::~RegionClaim() {
    if (table_ != nullptr && region_) table_->give_back(handle_, std::move(region_));
}

std::unique_ptr<DmaRegion> RegionClaim::take() {
    if (table_ != nullptr) table_->remove(table_->regions_.find(handle_.value()));
    table_ = nullptr;
    return std::move(region_);
}

/// It has bytes, and all of them are in its pages.
bool RegionTable::sensible(const Shape& shape) {
    if (shape.length == 0 || shape.first_offset >> shape.page_shift != 0) return false;
    const std::uint64_t last_byte = shape.length - 1;
    return last_byte <= UINT64_MAX - shape.first_offset &&
           (shape.first_offset + last_byte) >> shape.page_shift < shape.page_count;
}

Result<RegionTable::Created> RegionTable::create(const Shape& shape,
                                                 std::span<const std::uint64_t> pages) {
    if (!sensible(shape))
        return fail(ErrorCode::kInvalidArgument, "DMA region makes no sense", shape.length,
                    shape.page_count);
    if (regions_.size() >= limits_.regions || shape.page_count > limits_.pages - pages_)
        return fail(ErrorCode::kExhausted, "no DMA region left", shape.page_count);
    Entry entry;
    entry.shape = shape;
    TRY(entry.charge, account_.charge(base::node_cost(sizeof(Entries::value_type))));
    TRY(entry.pages_charge,
        account_.charge(base::heap_cost(shape.page_count * sizeof(std::uint64_t))));
    entry.pages.reserve(shape.page_count);
    TRY(const bool complete, append(entry, pages));
    const RegionHandle handle(handles_.take());
    pages_ += shape.page_count;
    regions_.emplace(handle.value(), std::move(entry));
    return Created{handle, complete};
}

Result<bool> RegionTable::add_pages(RegionHandle handle, std::span<const std::uint64_t> pages) {
    const auto found = regions_.find(handle.value());
    if (found == regions_.end())
        return fail(ErrorCode::kNotFound, "no such DMA region", handle.value());
    if (found->second.complete)
        return fail(ErrorCode::kInvalidArgument, "DMA region is complete", handle.value());
    return append(found->second, pages);
}

/// Leaves the entry as it was, or adds all pages; builds the region with the last one.
Result<bool> RegionTable::append(Entry& entry, std::span<const std::uint64_t> pages) const {
    if (pages.size() > entry.shape.page_count - entry.pages.size())
        return fail(ErrorCode::kInvalidArgument, "too many pages", pages.size());
    const std::uint64_t mask = (std::uint64_t{1} << entry.shape.page_shift) - 1;
    if (std::any_of(pages.begin(), pages.end(), [&](std::uint64_t p) { return (p & mask) != 0; }))
        return fail(ErrorCode::kInvalidArgument, "page address is not aligned");
    const std::size_t before = entry.pages.size();
    entry.pages.insert(entry.pages.end(), pages.begin(), pages.end());
    if (entry.pages.size() < entry.shape.page_count) return false;
    auto region = make(entry.shape, entry.pages);
    if (!region) {
        entry.pages.resize(before);
        return tl::unexpected(region.error());
    }
    entry.region = std::move(*region);
    entry.complete = true;
    std::vector<std::uint64_t>().swap(entry.pages);  // its memory goes, too
    entry.pages_charge = {};
    return true;
}

Result<std::unique_ptr<DmaRegion>> RegionTable::make(const Shape& shape,
                                                     std::span<const std::uint64_t> pages) const {
    TRY(auto charge, account_.charge(DmaRegion::cost(shape.length, shape.first_offset,
                                                     shape.page_shift, pages)));
    return std::make_unique<DmaRegion>(shape.length, shape.first_offset, shape.page_shift, pages,
                                       std::move(charge));
}

Result<void> RegionTable::destroy(RegionHandle handle) {
    const auto found = regions_.find(handle.value());
    if (found == regions_.end())
        return fail(ErrorCode::kNotFound, "no such DMA region", handle.value());
    remove(found);
    return {};
}

Result<const DmaRegion*> RegionTable::find(RegionHandle handle) const {
    const auto found = regions_.find(handle.value());
    if (found == regions_.end() || !found->second.region)
        return fail(ErrorCode::kNotFound, "no such complete DMA region", handle.value());
    return found->second.region.get();
}

Result<RegionClaim> RegionTable::claim(RegionHandle handle) {
    const auto found = regions_.find(handle.value());
    if (found == regions_.end() || !found->second.region)
        return fail(ErrorCode::kNotFound, "no such complete DMA region", handle.value());
    return RegionClaim(*this, handle, std::move(found->second.region));
}

void RegionTable::give_back(RegionHandle handle, std::unique_ptr<DmaRegion> region) {
    const auto found = regions_.find(handle.value());
    if (found != regions_.end()) found->second.region = std::move(region);
}

void RegionTable::remove(Entries::iterator entry) {
    if (entry == regions_.end()) return;
    pages_ -= entry->second.shape.page_count;
    regions_.erase(entry);
}

void RegionTable::save(base::StateWriter& out) const {
    out.count(regions_.size());
    for (const auto& [handle, entry] : regions_) {
        const Shape& shape = entry.shape;
        out(handle, shape.length, shape.first_offset, static_cast<std::uint32_t>(shape.page_shift),
            shape.page_count, entry.complete);
        if (entry.complete)
            entry.region->save(out);
        else
            out(entry.pages);
    }
}

void RegionTable::load(base::StateReader& in) {
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) load_one(in);
}

void RegionTable::load_one(base::StateReader& in) {
    std::uint64_t handle = 0;
    std::uint32_t shift = 0;
    Entry entry;
    Shape& shape = entry.shape;
    in(handle, shape.length, shape.first_offset, shift, shape.page_count, entry.complete);
    in.require(handles_.given(handle) && !regions_.contains(handle) && shift >= 12 && shift <= 31 &&
                   regions_.size() < limits_.regions && shape.page_count <= limits_.pages - pages_,
               "DMA region that cannot be");
    if (!in.ok()) return;
    shape.page_shift = shift;
    in.require(sensible(shape), "DMA region makes no sense");
    auto charge = account_.charge(base::node_cost(sizeof(Entries::value_type)));
    if (!charge) in.refuse(charge.error());
    if (entry.complete) {
        entry.region = DmaRegion::load(in, account_);
        in.require(entry.region && entry.region->length() == shape.length &&
                       entry.region->first_offset() == shape.first_offset,
                   "DMA region is another than it was");
    } else {
        auto pages_charge =
            account_.charge(base::heap_cost(shape.page_count * sizeof(std::uint64_t)));
        if (!pages_charge) in.refuse(pages_charge.error());
        std::vector<std::uint64_t> pages;
        in.at_most(shape.page_count - 1, pages);
        if (!in.ok()) return;
        entry.pages_charge = std::move(*pages_charge);
        entry.pages.reserve(shape.page_count);
        const auto added = append(entry, pages);
        if (!added) in.refuse(added.error());
    }
    if (!in.ok()) return;
    entry.charge = std::move(*charge);
    pages_ += shape.page_count;
    regions_.emplace(handle, std::move(entry));
}

void RegionTable::reset() {
    Entries().swap(regions_);
    pages_ = 0;
}

}  // namespace openmana::gdma
