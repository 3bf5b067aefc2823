// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/file_mapping.h"
#include "base/lent_files.h"
#include "base/page_log.h"
#include "base/result.h"
#include "base/state.h"
#include "base/strong.h"

namespace openmana::base {

enum class Access : std::uint8_t {
    kRead,
    kWrite,
    kWritable,  ///< as kWrite, but nothing is written by what is found
};

/// The guest memory that the client of one function has mapped for DMA: bus address ranges to host
/// memory.
///
/// Changed only by the NIC's own thread under an exclusion of the NIC's Gate; read by that thread
/// at any time and by others during a visit. Pointers obtained are good as long as `generation()`
/// does not change.
class GuestMemory {
public:
    /// Part of a file, and the descriptor by which it can be lent again.
    struct Lent {
        FileMapping mapping;
        LentFiles::File file;
    };
    /// What unmapping gives back: the mappings end with it, which may take long. So let it go
    /// behind the exclusion.
    struct Unmapped {
        std::uint64_t bytes = 0;
        std::vector<Lent> mappings;
        std::vector<PageLog> logs;
    };

    /// `loss`, if any, is told when memory of a file goes away, and outlives this.
    explicit GuestMemory(MemoryLoss* loss = nullptr) : loss_(loss) {}
    GuestMemory(const GuestMemory&) = delete;
    GuestMemory& operator=(const GuestMemory&) = delete;

    /// Maps the part of the file that `[address, address + length)` is to be: the step of a map
    /// that needs no exclusion. Fails on a zero or unaligned length, if the file is too short or
    /// not of a kind that is taken (FileMapping), if it is one too many (LentFiles), if it takes
    /// more than `most` bytes of address space, or if the system refuses. Keeps a copy of the fd.
    Result<Lent> map_file(GuestAddr address, const UniqueFd& fd, const FileMapping::Part& part,
                          std::uint64_t most = UINT64_MAX);
    /// Adds what map_file() has mapped. Fails on overlap.
    Result<void> add(GuestAddr address, const FileMapping::Part& part, Lent lent);
    /// A file whose descriptor another process kept that has ended: what is mapped of it next has
    /// this one. The caller keeps it until then.
    Result<LentFiles::File> adopt_file(UniqueFd fd) { return files_.adopt(std::move(fd)); }
    /// Both.
    Result<void> map_fd(GuestAddr address, std::uint64_t length, const UniqueFd& fd,
                        std::uint64_t offset, bool readable, bool writable);
    /// Notes a range without memory behind it (device BARs, ROM): accesses to it fail, unmapping it
    /// succeeds.
    Result<void> map_hole(GuestAddr address, std::uint64_t length);
    /// Maps host memory owned by the caller (tests).
    Result<void> map_host(GuestAddr address, std::span<std::byte> memory, bool writable = true);
    /// Removes every range that lies wholly inside; a range that is only partly covered is an error
    /// and nothing is removed.
    Result<Unmapped> unmap(GuestAddr address, std::uint64_t length);
    Unmapped unmap_all();
    /// Whether the function may reach memory at all. While it may not nothing is found, but what is
    /// mapped and unmapped counts later. Changed as ranges are.
    void set_reachable(bool reachable);
    /// Which ranges there are, with their files: for another process of this host.
    void save(StateWriter& out) const;
    /// Maps them as map_file() and map_hole() do, at most `most`, where nothing is mapped yet.
    /// Memory of the caller's (map_host) is refused.
    void load(StateReader& in, std::size_t most);
    /// Calls `f(address, part, file)` for each range; `file` is null for one without memory.
    template <typename F>
    void each_range(F&& f) const {
        for (const Range& range : ranges_)
            f(GuestAddr(range.address),
              FileMapping::Part{range.offset, range.length, range.readable, range.writable},
              range.lent.file.get());
    }
    /// What a log of the pages that are written to needs: the step that needs no exclusion.
    /// kExhausted: the client has lent more than can be logged.
    [[nodiscard]] Result<std::vector<PageLog>> make_logs() const;
    /// From now on each page that is found for kWrite is noted, whoever finds it: it was written
    /// to, or is just going to be. Those of memory that is unmapped are forgotten with it. `logs`
    /// is what make_logs() has made of the ranges as they are. Changed as ranges are.
    void log_writes(std::vector<PageLog> logs);
    /// Both.
    Result<void> log_writes();
    /// No more. What was noted is given back, to be let go of behind the exclusion.
    std::vector<PageLog> log_no_writes();
    [[nodiscard]] bool logs_writes() const { return logs_; }
    /// A bit for each `unit` from `origin` on.
    struct WriteReport {
        GuestAddr origin{};
        std::uint64_t unit = 0;
        std::span<std::byte> bits;
    };
    /// Calls `f(address, length)` for all pieces of `[address, address + length)` that are logged,
    /// each of `step` bytes at most.
    template <typename F>
    void each_logged(GuestAddr address, std::uint64_t length, std::uint64_t step, F&& f) const {
        const std::uint64_t end = address.value() + (length - 1);
        for (const Range& range : ranges_) {
            const std::uint64_t last = std::min(end, range.address + (range.length - 1));
            std::uint64_t at = std::max(address.value(), range.address);
            if (!range.log || range.address > end || last < at) continue;
            for (; last - at >= step; at += step) f(GuestAddr(at), step);
            f(GuestAddr(at), last - at + 1);
        }
    }
    /// Sets the bits of those pages of `[address, address + length)` that were noted, and notes
    /// them no more. Whole pages; in an exclusion.
    void take_written(GuestAddr address, std::uint64_t length, const WriteReport& report);
    /// How often memory of a file went away since this was asked.
    std::uint64_t take_losses() { return loss_ == nullptr ? 0 : loss_->take(); }

    /// Changes with every map and unmap; starts at 1, so that 0 can mean "never resolved".
    [[nodiscard]] std::uint64_t generation() const { return generation_; }
    [[nodiscard]] std::size_t range_count() const { return ranges_.size(); }
    /// Bytes of this process's address space that files take.
    [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_bytes_; }

    /// Whether the address is known, but has no memory behind it.
    [[nodiscard]] bool is_hole(GuestAddr address) const;
    /// Whether exactly this range is there, whether it can be reached or not.
    [[nodiscard]] bool has_range(GuestAddr address, const FileMapping::Part& part,
                                 bool has_memory) const;
    /// Host memory of `[address, address + length)`, which must lie in one range with the right
    /// access; else empty.
    [[nodiscard]] std::span<std::byte> find(GuestAddr address, std::uint64_t length,
                                            Access access) const;
    /// Appends the host memory of `[address, address + length)`, which may lie in several
    /// neighbouring ranges. False if any part is not mapped with the right access; then what was
    /// appended is meaningless.
    [[nodiscard]] bool resolve(GuestAddr address, std::uint64_t length, Access access,
                               std::vector<std::span<std::byte>>& out) const;
    /// Copies, across neighbouring ranges too. False, and nothing promised of the target, if any
    /// part is not mapped.
    [[nodiscard]] bool read(GuestAddr address, std::span<std::byte> target) const;
    [[nodiscard]] bool write(GuestAddr address, std::span<const std::byte> source) const;
    class Resolver;

private:
    struct Range {
        std::uint64_t address = 0;
        std::uint64_t length = 0;
        std::byte* host = nullptr;  // null: a hole
        bool readable = false;
        bool writable = false;
        Lent lent{};               // of a file
        std::uint64_t offset = 0;  // in it
        PageLog log{};             // of it, if it is kept
    };
    [[nodiscard]] static bool allows(const Range& range, Access access) {
        return access == Access::kRead ? range.readable : range.writable;
    }
    void ranges_changed();
    void give_back(Range& range, Unmapped& to);
    void load_range(StateReader& in, std::span<const UniqueFd> files);
    Result<void> insert(Range range);
    [[nodiscard]] const Range* range_of(std::uint64_t address) const;

    MemoryLoss* const loss_;
    LentFiles files_;
    std::vector<Range> ranges_;       // sorted by address, disjoint
    std::uint64_t mapped_bytes_ = 0;  // of their files
    std::span<const Range> visible_;  // all of them, or none
    bool reachable_ = true;
    bool logs_ = false;
    std::uint64_t generation_ = 1;
};

/// `resolve` for one piece after the other, as of a page list: the range of the piece before is
/// looked at first, since a guest's pages lie in few. Lives within a step in which ranges do not
/// change.
class GuestMemory::Resolver {
public:
    /// What it finds is appended to `out`.
    Resolver(const GuestMemory& memory, Access access, std::vector<std::span<std::byte>>& out)
        : memory_(memory), access_(access), out_(out) {}
    /// As GuestMemory::resolve. After false, what was appended is meaningless.
    [[nodiscard]] bool add(GuestAddr address, std::uint64_t length) {
        const std::uint64_t offset = address.value() - address_;
        if (offset < length_ && length <= length_ - offset) [[likely]] {
            if (log_ != nullptr) [[unlikely]]
                log_->note(offset, length);
            out_.emplace_back(host_ + offset, length);
            return true;
        }
        return search(address, length);
    }

private:
    [[nodiscard]] bool search(GuestAddr address, std::uint64_t length);

    const GuestMemory& memory_;
    const Access access_;
    std::vector<std::span<std::byte>>& out_;
    // The usable range found last; length 0: none yet.
    std::uint64_t address_ = 0;
    std::uint64_t length_ = 0;
    std::byte* host_ = nullptr;
    const PageLog* log_ = nullptr;  // of what is found to be written to
};

}  // namespace openmana::base
