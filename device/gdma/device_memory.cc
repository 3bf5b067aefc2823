// SPDX-License-Identifier: Apache-2.0
#include "gdma/device_memory.h"

#include <algorithm>
#include <span>
#include <utility>

#include <mana/ext.h>

#include "base/hold_meter.h"

namespace openmana::gdma {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

/// What even one byte counts.
constexpr std::uint64_t kUnit = 64;
constexpr std::uint32_t kPage = 4096;

}  // namespace

auto DeviceMemoryTable::make(std::uint64_t length) const -> Result<Piece> {
    if (length == 0) return fail(ErrorCode::kInvalidArgument, "device memory of no bytes");
    if (std::max(length, kUnit) > max_bytes_ - bytes_)
        return fail(ErrorCode::kExhausted, "no device memory left", length, max_bytes_ - bytes_);
    constexpr std::uint64_t kPiece =
        base::node_cost(sizeof(Piece)) + base::node_cost(sizeof(DeviceMemory));
    TRY(auto charge, account_.charge(kPiece + base::heap_cost(length)));
    return Piece{std::move(charge), std::make_shared<DeviceMemory>(length)};
}

Result<std::uint64_t> DeviceMemoryTable::allocate(std::uint64_t length) {
    TRY(Piece piece, make(length));
    const std::uint64_t handle = handles_.take();
    pieces_.emplace(handle, std::move(piece));
    bytes_ += std::max(length, kUnit);
    return handle;
}

void DeviceMemoryTable::save(base::StateWriter& out) const {
    out.count(pieces_.size());
    for (const auto& [handle, piece] : pieces_) {
        out(handle);
        out.bytes(*piece.memory);
    }
}

void DeviceMemoryTable::load(base::StateReader& in) {
    for (std::size_t n = in.count(); n > 0 && in.ok(); --n) {
        const auto handle = in.get<std::uint64_t>();
        const auto bytes = in.bytes();
        in.require(handles_.given(handle) && !pieces_.contains(handle), "device memory twice");
        if (!in.ok()) return;
        auto piece = make(bytes.size());
        if (!piece) {
            in.refuse(piece.error());
            return;
        }
        piece->memory->assign(bytes.begin(), bytes.end());
        pieces_.emplace(handle, std::move(*piece));
        bytes_ += std::max<std::uint64_t>(bytes.size(), kUnit);
    }
}

Result<void> DeviceMemoryTable::destroy(std::uint64_t handle) {
    const auto found = pieces_.find(handle);
    if (found == pieces_.end()) return fail(ErrorCode::kNotFound, "no such device memory", handle);
    // Every other owner is an MR.
    if (found->second.memory.use_count() > 1)
        return fail(ErrorCode::kBusy, "device memory is in use", handle);
    bytes_ -= std::max<std::uint64_t>(found->second.memory->size(), kUnit);
    pieces_.erase(found);
    return {};
}

Result<std::shared_ptr<DeviceMemory>> DeviceMemoryTable::find(std::uint64_t handle) const {
    const auto found = pieces_.find(handle);
    if (found == pieces_.end()) return fail(ErrorCode::kNotFound, "no such device memory", handle);
    return found->second.memory;
}

Result<void> DeviceMemoryTable::copy(const Copy& request) {
    // Work requests of others reach device memory during a visit.
    const base::Gate::Exclusion exclusion(gate_, {"copy of device memory"});
    TRY(const std::shared_ptr<DeviceMemory> memory, find(request.dm));
    if (request.length == 0 || request.length > MANA_HW_EXT_COPY_DM_BYTES)
        return fail(ErrorCode::kInvalidArgument, "bytes of a copy", request.length);
    if (request.length > memory->size() || request.offset > memory->size() - request.length)
        return fail(ErrorCode::kInvalidArgument, "copy beyond device memory", request.offset,
                    request.length);
    base::count_work(1 + request.length / kPage);
    const std::span<std::byte> bytes(memory->data() + request.offset, request.length);
    const bool copied = request.to_dm ? memory_.read(request.address, bytes)
                                      : memory_.write(request.address, bytes);
    if (!copied)
        return fail(ErrorCode::kInvalidArgument, "no such guest memory", request.address.value(),
                    request.length);
    return {};
}

void DeviceMemoryTable::reset() {
    decltype(pieces_)().swap(pieces_);
    bytes_ = 0;
}

}  // namespace openmana::gdma
