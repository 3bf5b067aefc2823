// SPDX-License-Identifier: Apache-2.0
#include "pci/endpoint.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/activity.h"
#include "base/log.h"

namespace openmana::pci {

using base::ErrorCode;
using base::fail;
using base::GuestAddr;
using base::Result;
using base::UniqueFd;
using vfio_user::Region;

namespace {

constexpr std::uint32_t kPage = 4096;
constexpr std::size_t kTableEntry = 16;
constexpr std::size_t kEntryControl = 12;  // vector control; bit 0 masks, and is set at power-on
constexpr unsigned kMsixRegion = vfio_user::kRegionBar0 + kMsixBar;

/// The PBA starts on a page of its own, so that a client can give the guest the table's page.
std::uint32_t pba_offset_for(unsigned vectors) {
    const auto bytes = static_cast<std::uint32_t>(vectors * kTableEntry);
    return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Endpoint::Endpoint(base::GuestMemory& memory, EndpointConfig config)
    : memory_(memory),
      config_(std::move(config)),
      vectors_(config_.msix_vectors, counters_),
      pba_offset_(pba_offset_for(config_.msix_vectors)),
      msix_bar_size_(std::bit_ceil(pba_offset_ + kPage)),
      table_(config_.msix_vectors * kTableEntry) {
    reset_table();
}

void Endpoint::attach(FunctionModel& model, base::Gate& gate) {
    OM_CHECK(model_ == nullptr);
    model_ = &model;
    gate_ = &gate;
    bar0_size_ = model.bar0_size();
    ConfigIdentity identity;
    identity.serial = config_.serial;
    identity.bar0_size = bar0_size_;
    identity.msix_bar_size = msix_bar_size_;
    identity.msix_pba_offset = pba_offset_;
    identity.msix_vectors = static_cast<std::uint16_t>(config_.msix_vectors);
    space_.emplace(identity);
}

void Endpoint::use_ledger(EndpointLedger& ledger) {
    ledger_ = &ledger;
    vectors_.use_ledger(ledger);
}

/// The registers first, for interrupts are raised as soon as there is an eventfd.
Result<void> Endpoint::recover() {
    EndpointLedger& ledger = *ledger_;
    if (const auto& registers = ledger.registers.get(); registers.length != 0) {
        TRY(auto in, base::StateReader::open(std::span(registers.bytes).first(registers.length),
                                             base::TimePoint()));
        load(in);
        TRY_VOID(in.result());
    }
    // In their order, so that none is put before others.
    std::vector<EndpointLedger::Range*> ranges;
    ledger.each_range([&](EndpointLedger::Range& range) { ranges.push_back(&range); });
    std::ranges::sort(ranges, {}, &EndpointLedger::Range::address);
    std::map<int, base::LentFiles::File> files;
    for (const EndpointLedger::Range* const range : ranges) {
        const GuestAddr address(range->address);
        const int number = range->file.number();
        if (number < 0) {
            TRY_VOID(memory_.map_hole(address, range->length));
            continue;
        }
        if (!files.contains(number)) {
            TRY(auto file, memory_.adopt_file(UniqueFd(number)));
            files.emplace(number, std::move(file));
        }
        TRY_VOID(memory_.map_fd(address, range->length, *files.at(number), range->offset,
                                range->readable != 0, range->writable != 0));
    }
    return vectors_.recover_eventfds();
}

/// A range that there is, with the descriptor by which it is kept.
void Endpoint::note_range(const vfio_user::DmaRange& range, const UniqueFd* file) {
    if (ledger_ == nullptr) return;
    EndpointLedger::Range* const entry = ledger_->free_range();
    OM_CHECK(entry != nullptr);
    entry->address = range.address;
    entry->length = range.size;
    entry->offset = range.offset;
    entry->readable = range.readable ? 1 : 0;
    entry->writable = range.writable ? 1 : 0;
    entry->file.forget();
    if (file != nullptr) entry->file.hold(file->get());
    entry->used.store(1, std::memory_order_release);
}

void Endpoint::note_registers() {
    if (ledger_ == nullptr) return;
    base::StateWriter out{base::TimePoint()};
    save(out);
    const auto state = std::move(out).finish();
    auto registers = std::make_unique<EndpointLedger::Registers>();
    OM_CHECK(state.size() <= registers->bytes.size());
    registers->length = static_cast<std::uint32_t>(state.size());
    std::copy(state.begin(), state.end(), registers->bytes.begin());
    ledger_->registers.set(*registers);
}

Region Endpoint::region(unsigned index) const {
    OM_CHECK(model_ != nullptr);
    switch (index) {
        case vfio_user::kRegionBar0:
            return {.size = bar0_size_, .readable = true, .writable = true};
        case kMsixRegion:
            return {.size = msix_bar_size_, .readable = true, .writable = true};
        case vfio_user::kRegionConfig:
            return {.size = kConfigSize, .readable = true, .writable = true};
        default:
            return {};
    }
}

std::uint32_t Endpoint::irq_count(unsigned kind) const {
    return kind == vfio_user::kIrqMsix ? vectors_.count() : 0;
}

Result<void> Endpoint::region_read(unsigned index, std::uint64_t offset,
                                   std::span<std::byte> data) {
    switch (index) {
        case vfio_user::kRegionBar0:
            model_->bar0_read(offset, data);
            return {};
        case kMsixRegion:
            msix_read(offset, data);
            return {};
        case vfio_user::kRegionConfig:
            space_->read(offset, data);
            return {};
        default:
            return fail(ErrorCode::kInvalidArgument, "no such region", index);
    }
}

Result<void> Endpoint::region_write(unsigned index, std::uint64_t offset,
                                    std::span<const std::byte> data) {
    switch (index) {
        case vfio_user::kRegionBar0:
            if (stopped_) {
                counters_.writes_stopped.add();
                return fail(ErrorCode::kBusy, "the device is stopped");
            }
            model_->bar0_write(offset, data);
            return {};
        case kMsixRegion:
            msix_write(offset, data);
            note_registers();
            return {};
        case vfio_user::kRegionConfig:
            if (space_->write(offset, data)) {
                counters_.flrs.add();
                OM_DEBUG("function reset: nic={} cause=flr", config_.name);
                reset();
            }
            follow_bus_master();
            note_registers();
            return {};
        default:
            return fail(ErrorCode::kInvalidArgument, "no such region", index);
    }
}

void Endpoint::bar0_writes(std::span<const base::BarWrite> writes) {
    if (stopped_) [[unlikely]]
        counters_.writes_stopped.add(writes.size());
    else
        model_->bar0_writes(writes);
}

/// What is neither table nor PBA reads as zero.
void Endpoint::msix_read(std::uint64_t offset, std::span<std::byte> data) const {
    for (std::size_t i = 0; i < data.size(); ++i) {
        const std::uint64_t at = offset + i;
        std::byte value{0};
        if (at < table_.size()) {
            value = table_[at];
        } else if (at >= pba_offset_) {
            const std::uint64_t first = (at - pba_offset_) * 8;
            for (unsigned bit = 0; bit < 8 && first < vectors_.count(); ++bit) {
                if (vectors_.pending(static_cast<unsigned>(first) + bit))
                    value |= std::byte(1U << bit);
            }
        }
        data[i] = value;
    }
}

void Endpoint::msix_write(std::uint64_t offset, std::span<const std::byte> data) {
    if (offset >= table_.size()) return;
    const std::size_t length = std::min<std::size_t>(data.size(), table_.size() - offset);
    std::copy_n(data.begin(), length, table_.begin() + static_cast<std::ptrdiff_t>(offset));
}

void Endpoint::reset_table() {
    std::fill(table_.begin(), table_.end(), std::byte{0});
    for (std::size_t i = kEntryControl; i < table_.size(); i += kTableEntry)
        table_[i] = std::byte{1};
}

/// Mapping a file and unmapping it happen outside the exclusion: how long that takes, the client
/// has a say in.
Result<void> Endpoint::map_range(const vfio_user::DmaRange& range, const UniqueFd& fd) {
    if (memory_.range_count() >= config_.dma.ranges)
        return fail(ErrorCode::kExhausted, "too many DMA ranges", config_.dma.ranges);
    const GuestAddr address(range.address);
    // Without an fd it is memory of another device, or ROM; without any access there is nothing to
    // map.
    if (!fd || !(range.readable || range.writable)) {
        const base::Gate::Exclusion alone(*gate_, {"DMA map"});
        TRY_VOID(memory_.map_hole(address, range.size));
        note_range(range, nullptr);
        return {};
    }
    const base::FileMapping::Part part{range.offset, range.size, range.readable, range.writable};
    const std::uint64_t left =
        config_.dma.bytes - std::min(config_.dma.bytes, memory_.mapped_bytes());
    auto mapping = memory_.map_file(address, fd, part, left);
    if (!mapping) {
        if (mapping.error().code == ErrorCode::kUnsupported) {
            counters_.dma_not_memory.add();
            if (!std::exchange(warned_, true))
                OM_WARN("dma map refuse: nic={} reason=\"{}\"", config_.name, mapping.error().text);
        }
        return tl::unexpected(mapping.error());
    }
    const base::LentFiles::File file = mapping->file;
    const base::Gate::Exclusion alone(*gate_, {"DMA map"});
    TRY_VOID(memory_.add(address, part, std::move(*mapping)));
    note_range(range, file.get());
    return {};
}

bool Endpoint::has_range(const vfio_user::DmaRange& range, bool with_fd) const {
    const base::FileMapping::Part part{range.offset, range.size, range.readable, range.writable};
    return memory_.has_range(GuestAddr(range.address), part,
                             with_fd && (range.readable || range.writable));
}

Result<void> Endpoint::dma_map(const vfio_user::DmaRange& range, const UniqueFd& fd) {
    const auto mapped = map_range(range, fd);
    (mapped ? counters_.dma_mapped : counters_.dma_refused).add();
    OM_DEBUG("dma map: nic={} address={:#x} size={:#x} fd={} read={} write={} ok={}", config_.name,
             range.address, range.size, static_cast<bool>(fd), range.readable, range.writable,
             mapped.has_value());
    return mapped;
}

Result<void> Endpoint::dma_unmap(std::uint64_t address, std::uint64_t size) {
    auto removed = [&] {
        const base::Gate::Exclusion alone(*gate_, {"DMA unmap"});
        return memory_.unmap(GuestAddr(address), size);
    }();
    if (removed && ledger_ != nullptr)
        ledger_->each_range([&](EndpointLedger::Range& range) {
            if (range.address - address < size) range.used.store(0, std::memory_order_release);
        });
    if (removed && removed->bytes == 0)
        removed = fail(ErrorCode::kNotFound, "no such DMA range", address, size);
    (removed ? counters_.dma_unmapped : counters_.dma_refused).add();
    OM_DEBUG("dma unmap: nic={} address={:#x} size={:#x} ok={}", config_.name, address, size,
             removed.has_value());
    if (!removed) return tl::unexpected(removed.error());
    return {};
}

void Endpoint::dma_unmap_all() {
    base::GuestMemory::Unmapped removed;
    {
        const base::Gate::Exclusion alone(*gate_, {"DMA unmap"});
        removed = memory_.unmap_all();
    }
    if (ledger_ != nullptr)
        ledger_->each_range(
            [](EndpointLedger::Range& range) { range.used.store(0, std::memory_order_release); });
    counters_.dma_unmapped.add();
}

Result<void> Endpoint::irq_assign(unsigned kind, std::uint32_t vector, UniqueFd eventfd) {
    if (kind != vfio_user::kIrqMsix) return fail(ErrorCode::kInvalidArgument, "no such irq", kind);
    return vectors_.assign(vector, std::move(eventfd));
}

void Endpoint::irq_trigger(unsigned kind, std::uint32_t vector) {
    if (kind == vfio_user::kIrqMsix) vectors_.raise(vector);
}

void Endpoint::irq_mask(unsigned kind, std::uint32_t vector, bool masked) {
    if (kind != vfio_user::kIrqMsix) return;
    vectors_.mask(vector, masked);
    note_registers();
}

void Endpoint::irq_disable(unsigned kind) {
    if (kind != vfio_user::kIrqMsix) return;
    const auto eventfds = vectors_.disable();
    note_registers();
}

void Endpoint::device_reset() {
    counters_.resets.add();
    OM_INFO("function reset: nic={} cause=client", config_.name);
    forget();
}

void Endpoint::forget() {
    reset();
    space_->forget_bus();
    follow_bus_master();
    note_registers();
}

void Endpoint::stop() {
    stopped_ = true;
    hold_vectors();
}

void Endpoint::start(bool moved) {
    stopped_ = false;
    if (moved) vectors_.raise_assigned();
    hold_vectors();
}

void Endpoint::give_back() {
    std::vector<UniqueFd> eventfds;
    base::GuestMemory::Unmapped removed;
    {
        const base::Gate::Exclusion alone(*gate_, {"client gone"});
        eventfds = vectors_.disable();
        removed = memory_.unmap_all();
    }
    if (ledger_ != nullptr) ledger_->forget_client();
    counters_.dma_lost.add(memory_.take_losses());
}

void Endpoint::client_gone() {
    const base::Activity::Scope doing("client end");
    counters_.resets.add();
    std::vector<UniqueFd> eventfds;
    base::GuestMemory::Unmapped removed;
    {
        const base::Gate::Exclusion alone(*gate_, {"client gone"});
        eventfds = vectors_.disable();
        reset();
        removed = memory_.unmap_all();
    }
    space_->forget_bus();
    follow_bus_master();
    if (ledger_ != nullptr) ledger_->forget_client();
    note_registers();
    warned_ = false;
    counters_.dma_lost.add(memory_.take_losses());
}

/// The model first: what it still raises while it stops is forgotten with the rest.
void Endpoint::reset() {
    const base::Activity::Scope doing("function reset");
    const base::Gate::Exclusion alone(*gate_, {"reset"});
    model_->reset();
    vectors_.reset();
    reset_table();
    space_->reset();
}

/// A driver turns mastering off to be sure that nothing is written to memory that it gives back:
/// when its write is answered, no visitor is in the middle of that either. Interrupts are writes,
/// too, and wait; each vector has its lock, so that their eventfds are not signalled under the
/// exclusion.
void Endpoint::follow_bus_master() {
    if (space_->masters_bus() == masters_bus_) return;
    masters_bus_ = !masters_bus_;
    {
        const base::Gate::Exclusion alone(*gate_);
        memory_.set_reachable(masters_bus_);
    }
    hold_vectors();
    OM_DEBUG("bus master: nic={} on={}", config_.name, masters_bus_);
}

void Endpoint::save(base::StateWriter& out) const {
    out.begin("PCI ", 1);
    space_->save(out);
    out.bytes(table_);
    vectors_.save(out);
    out.end();
}

void Endpoint::load(base::StateReader& in) {
    in.begin("PCI ", 1);
    space_->load(in);
    const auto table = in.bytes();
    in.require(table.size() == table_.size(), "MSI-X table of another size");
    if (in.ok()) std::copy(table.begin(), table.end(), table_.begin());
    follow_bus_master();
    vectors_.load(in);
    in.end();
    if (in.ok()) note_registers();
}

void Endpoint::save_lent(base::StateWriter& out) const {
    out.begin("LENT", 1);
    memory_.save(out);
    vectors_.save_eventfds(out);
    out.end();
}

void Endpoint::load_lent(base::StateReader& in) {
    in.begin("LENT", 1);
    // Of a process that may have given this NIC a larger share: fewer were there then.
    memory_.load(in, DmaLimits().ranges);
    memory_.each_range(
        [this](GuestAddr address, const base::FileMapping::Part& part, const UniqueFd* file) {
            note_range({.address = address.value(),
                        .size = part.length,
                        .offset = part.offset,
                        .readable = part.readable,
                        .writable = part.writable},
                       file);
        });
    vectors_.load_eventfds(in);
    in.end();
}

}  // namespace openmana::pci
