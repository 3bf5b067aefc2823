// SPDX-License-Identifier: Apache-2.0
#include "base/guest_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "base/hold_meter.h"

namespace openmana::base {
namespace {

constexpr std::uint64_t kPageMask = 4095;
/// In a state: memory of the caller's.
constexpr std::uint32_t kNoFile = UINT32_MAX;

/// Of all ranges together: what a client says of its memory is not what it has.
constexpr std::uint64_t kMostLogged = 1ULL << 45;

/// False if `[address, address + length)` is empty or passes the end of the address space.
bool sane(std::uint64_t address, std::uint64_t length) {
    return length != 0 && length - 1 <= UINT64_MAX - address;
}

}  // namespace

void GuestMemory::ranges_changed() {
    visible_ = reachable_ ? std::span<const Range>(ranges_) : std::span<const Range>();
    ++generation_;
}

void GuestMemory::set_reachable(bool reachable) {
    reachable_ = reachable;
    ranges_changed();
}

Result<void> GuestMemory::insert(Range range) {
    const auto after = std::upper_bound(
        ranges_.begin(), ranges_.end(), range.address,
        [](std::uint64_t address, const Range& other) { return address < other.address; });
    if (after != ranges_.end() && after->address - range.address < range.length)
        return fail(ErrorCode::kBusy, "DMA map overlaps another", range.address, range.length);
    if (after != ranges_.begin()) {
        const Range& before = *std::prev(after);
        if (range.address - before.address < before.length)
            return fail(ErrorCode::kBusy, "DMA map overlaps another", range.address, range.length);
    }
    if (logs_ && range.writable) {
        TRY(range.log, PageLog::create(range.length));
    }
    count_work(1 + static_cast<std::uint64_t>(ranges_.end() - after) / kSmallSteps);
    mapped_bytes_ += range.lent.mapping.length();
    ranges_.insert(after, std::move(range));
    ranges_changed();
    return {};
}

Result<GuestMemory::Lent> GuestMemory::map_file(GuestAddr address, const UniqueFd& fd,
                                                const FileMapping::Part& part, std::uint64_t most) {
    if (!sane(address.value(), part.length) || (address.value() & kPageMask) != 0 ||
        (part.length & kPageMask) != 0 || (part.offset & kPageMask) != 0)
        return fail(ErrorCode::kInvalidArgument, "DMA map is not page aligned", address.value(),
                    part.length);
    TRY(auto mapping, FileMapping::create(fd, part, loss_, most));
    TRY(auto file, files_.find(fd));
    return Lent{std::move(mapping), std::move(file)};
}

Result<void> GuestMemory::add(GuestAddr address, const FileMapping::Part& part, Lent lent) {
    std::byte* host = lent.mapping.data();
    return insert({address.value(), part.length, host, part.readable || part.writable,
                   part.writable, std::move(lent), part.offset});
}

Result<void> GuestMemory::map_fd(GuestAddr address, std::uint64_t length, const UniqueFd& fd,
                                 std::uint64_t offset, bool readable, bool writable) {
    const FileMapping::Part part{offset, length, readable, writable};
    TRY(auto lent, map_file(address, fd, part));
    return add(address, part, std::move(lent));
}

Result<void> GuestMemory::map_hole(GuestAddr address, std::uint64_t length) {
    if (!sane(address.value(), length))
        return fail(ErrorCode::kInvalidArgument, "DMA map is empty or wraps", address.value(),
                    length);
    return insert(Range{address.value(), length, nullptr, false, false});
}

Result<void> GuestMemory::map_host(GuestAddr address, std::span<std::byte> memory, bool writable) {
    if (!sane(address.value(), memory.size()))
        return fail(ErrorCode::kInvalidArgument, "DMA map is empty or wraps", address.value(),
                    memory.size());
    return insert(Range{address.value(), memory.size(), memory.data(), true, writable});
}

void GuestMemory::give_back(Range& range, Unmapped& to) {
    mapped_bytes_ -= range.lent.mapping.length();
    if (range.lent.mapping) to.mappings.push_back(std::move(range.lent));
    if (range.log) to.logs.push_back(std::move(range.log));
}

Result<GuestMemory::Unmapped> GuestMemory::unmap(GuestAddr address, std::uint64_t length) {
    if (!sane(address.value(), length))
        return fail(ErrorCode::kInvalidArgument, "DMA unmap is empty or wraps", address.value(),
                    length);
    const std::uint64_t last = address.value() + (length - 1);
    count_work(1 + ranges_.size() / kSmallSteps);
    Unmapped removed;
    for (const Range& range : ranges_) {
        const std::uint64_t range_last = range.address + (range.length - 1);
        if (range_last < address.value() || range.address > last) continue;
        if (range.address < address.value() || range_last > last)
            return fail(ErrorCode::kInvalidArgument, "DMA unmap would split a map", range.address,
                        range.length);
        removed.bytes += range.length;
    }
    if (removed.bytes == 0) return removed;
    std::erase_if(ranges_, [&](Range& range) {
        const bool inside = range.address >= address.value() && range.address <= last;
        if (inside) give_back(range, removed);
        return inside;
    });
    ranges_changed();
    return removed;
}

GuestMemory::Unmapped GuestMemory::unmap_all() {
    Unmapped removed;
    count_work(1 + ranges_.size() / kSmallSteps);
    removed.mappings.reserve(ranges_.size());
    for (Range& range : ranges_) {
        removed.bytes += range.length;
        give_back(range, removed);
    }
    ranges_.clear();
    ranges_changed();
    return removed;
}

Result<std::vector<PageLog>> GuestMemory::make_logs() const {
    std::uint64_t all = 0;
    for (const Range& range : ranges_)
        if (range.writable) all += std::min(range.length, kMostLogged);
    if (all > kMostLogged)
        return fail(ErrorCode::kExhausted, "more memory than can be logged", all);
    std::vector<PageLog> logs(ranges_.size());
    for (std::size_t i = 0; i < logs.size() && !logs_; ++i)
        if (ranges_[i].writable) {
            TRY(logs[i], PageLog::create(ranges_[i].length));
        }
    return logs;
}

void GuestMemory::log_writes(std::vector<PageLog> logs) {
    if (std::exchange(logs_, true)) return;
    OM_CHECK(logs.size() == ranges_.size());
    for (std::size_t i = 0; i < logs.size(); ++i) ranges_[i].log = std::move(logs[i]);
    count_work(1 + ranges_.size() / kSmallSteps);
    ranges_changed();
}

Result<void> GuestMemory::log_writes() {
    TRY(auto logs, make_logs());
    log_writes(std::move(logs));
    return {};
}

std::vector<PageLog> GuestMemory::log_no_writes() {
    std::vector<PageLog> logs;
    if (!std::exchange(logs_, false)) return logs;
    logs.reserve(ranges_.size());
    for (Range& range : ranges_)
        if (range.log) logs.push_back(std::move(range.log));
    count_work(1 + ranges_.size() / kSmallSteps);
    ranges_changed();
    return logs;
}

void GuestMemory::take_written(GuestAddr address, std::uint64_t length, const WriteReport& report) {
    const std::uint64_t last = address.value() + (length - 1);
    for (const Range& range : ranges_) {
        const std::uint64_t range_last = range.address + (range.length - 1);
        if (!range.log || range_last < address.value() || range.address > last) continue;
        const std::uint64_t first = std::max(address.value(), range.address);
        range.log.take(first - range.address, std::min(last, range_last) - first + 1,
                       [&](std::uint64_t offset) {
                           const std::uint64_t bit =
                               (range.address + offset - report.origin.value()) / report.unit;
                           report.bits[bit / 8] |= std::byte(1U << bit % 8);
                       });
    }
    count_work(1 + (ranges_.size() + length / PageLog::kWordBytes) / kSmallSteps);
}

void GuestMemory::save(StateWriter& out) const {
    std::unordered_map<const UniqueFd*, std::uint32_t> numbers;
    std::vector<int> files;
    for (const Range& range : ranges_) {
        const UniqueFd* const file = range.lent.file.get();
        if (file != nullptr && numbers.emplace(file, files.size()).second)
            files.push_back(file->get());
    }
    out.begin("GMEM", 1);
    out.count(files.size());
    for (const int file : files) out.descriptor(file);
    out.count(ranges_.size());
    for (const Range& range : ranges_) {
        out(range.address, range.length, range.host != nullptr);
        if (range.host == nullptr) continue;
        const auto number = numbers.find(range.lent.file.get());
        out(number != numbers.end() ? number->second : kNoFile, range.offset, range.writable);
    }
    out.end();
}

void GuestMemory::load(StateReader& in, std::size_t most) {
    OM_CHECK(ranges_.empty());
    in.begin("GMEM", 1);
    std::vector<UniqueFd> files(in.count());
    for (UniqueFd& file : files) file = in.descriptor();
    const std::size_t count = in.count(2 * sizeof(std::uint64_t));
    in.require(count <= most, "more DMA ranges than there may be");
    for (std::size_t i = 0; i < count && in.ok(); ++i) load_range(in, files);
    in.end();
}

void GuestMemory::load_range(StateReader& in, std::span<const UniqueFd> files) {
    const auto address = in.get<GuestAddr>();
    FileMapping::Part part{0, in.get<std::uint64_t>(), true, false};
    const bool has_memory = in.get<bool>();
    if (!has_memory) {
        if (!in.ok()) return;
        if (const auto noted = map_hole(address, part.length); !noted) in.refuse(noted.error());
        return;
    }
    const auto number = in.get<std::uint32_t>();
    in(part.offset, part.writable);
    in.require(number < files.size() && files[number], "DMA range of no file");
    if (!in.ok()) return;
    const auto mapped =
        map_fd(address, part.length, files[number], part.offset, part.readable, part.writable);
    if (!mapped) in.refuse(mapped.error());
}

const GuestMemory::Range* GuestMemory::range_of(std::uint64_t address) const {
    const auto after = std::upper_bound(
        visible_.begin(), visible_.end(), address,
        [](std::uint64_t value, const Range& range) { return value < range.address; });
    if (after == visible_.begin()) return nullptr;
    const Range& range = *std::prev(after);
    return address - range.address < range.length ? &range : nullptr;
}

bool GuestMemory::is_hole(GuestAddr address) const {
    const Range* range = range_of(address.value());
    return range != nullptr && range->host == nullptr;
}

bool GuestMemory::has_range(GuestAddr address, const FileMapping::Part& part,
                            bool has_memory) const {
    return std::ranges::any_of(ranges_, [&](const Range& range) {
        return range.address == address.value() && range.length == part.length &&
               (range.host != nullptr) == has_memory &&
               (!has_memory || (range.offset == part.offset && range.writable == part.writable));
    });
}

std::span<std::byte> GuestMemory::find(GuestAddr address, std::uint64_t length,
                                       Access access) const {
    const Range* range = range_of(address.value());
    if (range == nullptr || !allows(*range, access)) return {};
    const std::uint64_t offset = address.value() - range->address;
    if (length > range->length - offset) return {};
    if (range->log && access == Access::kWrite) [[unlikely]]
        range->log.note(offset, length);
    return {range->host + offset, length};
}

bool GuestMemory::resolve(GuestAddr address, std::uint64_t length, Access access,
                          std::vector<std::span<std::byte>>& out) const {
    return Resolver(*this, access, out).add(address, length);
}

bool GuestMemory::Resolver::search(GuestAddr address, std::uint64_t length) {
    std::uint64_t at = address.value();
    while (length != 0) {
        const Range* range = memory_.range_of(at);
        if (range == nullptr || !allows(*range, access_)) return false;
        address_ = range->address;
        length_ = range->length;
        host_ = range->host;
        log_ = range->log && access_ == Access::kWrite ? &range->log : nullptr;
        const std::uint64_t offset = at - address_;
        const std::uint64_t n = std::min(length, length_ - offset);
        if (log_ != nullptr) [[unlikely]]
            log_->note(offset, n);
        out_.emplace_back(host_ + offset, n);
        length -= n;
        if (length != 0 && n > UINT64_MAX - at) return false;
        at += n;
    }
    return true;
}

bool GuestMemory::read(GuestAddr address, std::span<std::byte> target) const {
    if (const auto source = find(address, target.size(), Access::kRead); !source.empty()) {
        std::memcpy(target.data(), source.data(), target.size());
        return true;
    }
    std::vector<std::span<std::byte>> pieces;
    if (!resolve(address, target.size(), Access::kRead, pieces)) return false;
    std::size_t done = 0;
    for (const auto piece : pieces) {
        std::memcpy(target.data() + done, piece.data(), piece.size());
        done += piece.size();
    }
    return true;
}

bool GuestMemory::write(GuestAddr address, std::span<const std::byte> source) const {
    if (const auto target = find(address, source.size(), Access::kWrite); !target.empty()) {
        std::memcpy(target.data(), source.data(), source.size());
        return true;
    }
    std::vector<std::span<std::byte>> pieces;
    if (!resolve(address, source.size(), Access::kWrite, pieces)) return false;
    std::size_t done = 0;
    for (const auto piece : pieces) {
        std::memcpy(piece.data(), source.data() + done, piece.size());
        done += piece.size();
    }
    return true;
}

}  // namespace openmana::base
