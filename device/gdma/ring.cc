// SPDX-License-Identifier: Apache-2.0
#include "gdma/ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/endian.h"
#include "base/hold_meter.h"
#include "base/prefetch.h"

namespace openmana::gdma {

namespace {

/// Calls `add(address, length, continues)` for each page, with what the region has of it and
/// whether that follows on the page before.
template <typename Add>
void for_pages(std::uint64_t length, std::uint32_t first_offset, unsigned page_shift,
               std::span<const std::uint64_t> pages, Add&& add) {
    std::uint64_t left = length;
    std::uint64_t skip = first_offset;
    std::uint64_t end = 0;  // of the page before
    for (const std::uint64_t page : pages) {
        if (left == 0) break;
        const std::uint64_t n = std::min((std::uint64_t{1} << page_shift) - skip, left);
        const std::uint64_t address = page + skip;
        // A page at bus address zero never continues one before it: that would wrap.
        add(address, n, address != 0 && address == end);
        end = address + n;
        left -= n;
        skip = 0;
    }
    base::count_work(pages.size());
}

std::size_t count_extents(std::uint64_t length, std::uint32_t first_offset, unsigned page_shift,
                          std::span<const std::uint64_t> pages) {
    std::size_t count = 0;
    for_pages(length, first_offset, page_shift, pages,
              [&](std::uint64_t, std::uint64_t, bool continues) { count += continues ? 0 : 1; });
    return count;
}

}  // namespace

DmaRegion::DmaRegion(std::uint64_t length, std::uint32_t first_offset, unsigned page_shift,
                     std::span<const std::uint64_t> pages, base::MemoryAccount::Charge charge)
    : length_(0), first_offset_(first_offset), charge_(std::move(charge)) {
    extents_.reserve(count_extents(length, first_offset, page_shift, pages));
    for_pages(length, first_offset, page_shift, pages,
              [&](std::uint64_t address, std::uint64_t n, bool continues) {
                  if (continues)
                      extents_.back().length += n;
                  else
                      extents_.push_back({length_, GuestAddr(address), n});
                  length_ += n;
              });
}

DmaRegion::~DmaRegion() {
    base::count_work(extents_.size());
}

namespace {

std::uint64_t cost_of(std::size_t extents) {
    // Queues share it by a pointer with a block of its own.
    constexpr std::uint64_t kShared = 4 * sizeof(void*);
    return base::heap_cost(sizeof(DmaRegion)) + base::heap_cost(kShared) +
           base::heap_cost(extents * sizeof(DmaRegion::Extent));
}

}  // namespace

std::uint64_t DmaRegion::cost(std::uint64_t length, std::uint32_t first_offset, unsigned page_shift,
                              std::span<const std::uint64_t> pages) {
    return cost_of(count_extents(length, first_offset, page_shift, pages));
}

void DmaRegion::save(base::StateWriter& out) const {
    out(first_offset_);
    out.count(extents_.size());
    for (const Extent& extent : extents_) out(extent.address, extent.length);
}

std::unique_ptr<DmaRegion> DmaRegion::load(base::StateReader& in, base::MemoryAccount& account) {
    std::unique_ptr<DmaRegion> region(new DmaRegion);
    in(region->first_offset_);
    const std::size_t count = in.count(sizeof(Extent::address) + sizeof(Extent::length));
    auto charge = account.charge(cost_of(count));
    if (!charge) in.refuse(charge.error());
    in.require(count > 0, "region of no memory");
    if (!in.ok()) return nullptr;
    region->charge_ = std::move(*charge);
    region->extents_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        Extent extent{region->length_, {}, 0};
        in(extent.address, extent.length);
        // Neither the bus addresses nor the region wrap.
        in.require(extent.length != 0 && extent.length - 1 <= UINT64_MAX - extent.address.value() &&
                       extent.length <= UINT64_MAX - region->length_,
                   "extent makes no sense");
        if (!in.ok()) return nullptr;
        region->length_ += extent.length;
        region->extents_.push_back(extent);
    }
    return region;
}

bool DmaRegion::resolve(const base::GuestMemory& memory, std::uint64_t offset, std::uint64_t length,
                        base::Access access, SpanList& out) const {
    base::GuestMemory::Resolver pieces(memory, access, out);
    return walk(offset, length,
                [&](GuestAddr address, std::uint64_t n) { return pieces.add(address, n); });
}

Ring::Ring(const base::GuestMemory& memory, std::shared_ptr<const DmaRegion> region,
           std::uint64_t bytes, std::uint64_t offset)
    : memory_(&memory), region_(std::move(region)), bytes_(bytes), offset_(offset) {
    // The commands compare what a guest asks for with the length of its region.
    OM_CHECK(region_ != nullptr && bytes_ != 0 && bytes_ <= region_->length() &&
             offset_ <= region_->length() - bytes_);
    if (region_->extents().size() == 1) start_ = region_->extents()[0].address + offset_;
}

bool Ring::read(std::uint64_t position, std::span<std::byte> target) const {
    while (!target.empty()) {
        const std::uint64_t offset = position % bytes_;
        const std::uint64_t n = std::min<std::uint64_t>(target.size(), bytes_ - offset);
        if (start_) {
            if (!memory_->read(*start_ + offset, target.first(n))) return false;
            target = target.subspan(n);
            position += n;
            continue;
        }
        const bool ok =
            region_->walk(offset_ + offset, n, [&](GuestAddr address, std::uint64_t piece) {
                if (!memory_->read(address, target.first(piece))) return false;
                target = target.subspan(piece);
                return true;
            });
        if (!ok) return false;
        position += n;
    }
    return true;
}

void Ring::prefetch(std::uint64_t position, std::uint64_t length) const {
    constexpr std::uint64_t kMost = 512;
    if (!start_) return;
    const std::uint64_t offset = position % bytes_;
    const auto host = memory_->find(*start_ + offset, std::min({length, kMost, bytes_ - offset}),
                                    base::Access::kRead);
    base::prefetch(host.data(), host.data() + host.size());
}

bool Ring::write_entry(std::uint64_t position, std::span<const std::byte> entry) {
    const std::uint64_t offset = position % bytes_;
    if (entry.size() > bytes_ - offset) return false;
    std::span<std::byte> host;
    const auto find = [&](GuestAddr address, std::uint64_t piece) {
        // An entry is aligned to its size, a piece ends at a page border: it is always in one
        // piece.
        host = memory_->find(address, piece, base::Access::kWrite);
        return host.size() == entry.size();
    };
    if (start_ ? !find(*start_ + offset, entry.size())
               : !region_->walk(offset_ + offset, entry.size(), find))
        return false;
    std::byte* const last = host.data() + (entry.size() - sizeof(std::uint32_t));
    if (reinterpret_cast<std::uintptr_t>(last) % sizeof(std::uint32_t) != 0) return false;
    std::memcpy(host.data(), entry.data(), entry.size() - sizeof(std::uint32_t));
    // Partner: the read barrier of the consumer between the owner bits and the rest (GDMA 3.11).
    __atomic_store_n(
        reinterpret_cast<std::uint32_t*>(last),
        base::load_le<std::uint32_t>(entry.data() + (entry.size() - sizeof(std::uint32_t))),
        __ATOMIC_RELEASE);
    return true;
}

SharedWords::SharedWords(const base::GuestMemory& memory, std::shared_ptr<const DmaRegion> region,
                         std::uint64_t offset)
    : memory_(memory), region_(std::move(region)), offset_(offset) {}

std::uint32_t* SharedWords::words() const {
    const std::uint64_t generation = memory_.generation();
    if (generation_.load(std::memory_order_acquire) == generation)
        return words_.load(std::memory_order_relaxed);
    std::span<std::byte> host;
    const bool found = region_->walk(offset_, kBytes, [&](GuestAddr address, std::uint64_t piece) {
        // Aligned to their size, so never in two pieces.
        host = memory_.find(address, piece, base::Access::kWritable);
        return host.size() == kBytes;
    });
    const bool usable =
        found && reinterpret_cast<std::uintptr_t>(host.data()) % sizeof(std::uint32_t) == 0;
    auto* const at = usable ? reinterpret_cast<std::uint32_t*>(host.data()) : nullptr;
    words_.store(at, std::memory_order_relaxed);
    generation_.store(generation, std::memory_order_release);
    return at;
}

std::optional<std::uint32_t> SharedWords::load(unsigned index) const {
    const std::uint32_t* const at = words();
    if (at == nullptr) return std::nullopt;
    return __atomic_load_n(at + index, __ATOMIC_ACQUIRE);
}

void SharedWords::store(unsigned index, std::uint32_t value) const {
    std::uint32_t* const at = words();
    if (at == nullptr) return;
    if (memory_.logs_writes()) [[unlikely]]
        note_write();
    __atomic_store_n(at + index, value, __ATOMIC_RELEASE);
}

/// Where they are is kept, so nobody looks for them to write there.
void SharedWords::note_write() const {
    (void)region_->walk(offset_, kBytes, [&](GuestAddr address, std::uint64_t piece) {
        return !memory_.find(address, piece, base::Access::kWrite).empty();
    });
}

}  // namespace openmana::gdma
