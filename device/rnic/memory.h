// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "gdma/memory_table.h"
#include "gdma/types.h"
#include "gdma/wqe.h"

namespace openmana::rnic {

using Spans = std::span<const std::span<std::byte>>;

/// Copies `length` bytes from one list of spans to another; both hold at least that much. The last
/// byte is stored last, with release order: programs poll on it (ROCE 4.9).
void copy_spans(Spans from, Spans to, std::uint64_t length);

/// MemoryTable::check for each entry of a list.
[[nodiscard]] gdma::MrFault check_sges(const gdma::MemoryTable& keys, gdma::Pdn pd,
                                       std::span<const gdma::Sge> sges, std::uint32_t need);

/// What of an entry must be good: all of it, whatever part a message uses (ROCE 9.3), or the part
/// alone. The latter is how other NICs take receives, and what programs are used to.
enum class SgeCheck : std::uint8_t { kWhole, kPart };

/// Appends the memory of `[offset, offset + length)` of the bytes that `sges` describe one after
/// the other. The caller has compared with their total.
[[nodiscard]] gdma::MrFault gather(const gdma::MemoryTable& keys, gdma::Pdn pd,
                                   std::span<const gdma::Sge> sges, std::uint64_t offset,
                                   std::uint64_t length, std::uint32_t need, gdma::SpanList& out,
                                   SgeCheck check = SgeCheck::kWhole);

struct SendWqe;
/// The same of the payload of a send, which may be inline.
[[nodiscard]] gdma::MrFault gather_payload(const gdma::MemoryTable& keys, gdma::Pdn pd,
                                           SendWqe& wqe, std::uint64_t offset, std::uint64_t length,
                                           gdma::SpanList& out);

[[nodiscard]] inline std::uint64_t total_length(std::span<const gdma::Sge> sges) {
    std::uint64_t total = 0;
    for (const gdma::Sge& sge : sges) total += sge.length;
    return total;
}

}  // namespace openmana::rnic
