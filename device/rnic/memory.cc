// SPDX-License-Identifier: Apache-2.0
#include "rnic/memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/prefetch.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {
namespace {

// The processor fetches ahead within a page only. Where guest memory is in pieces, the first lines
// of the next one are asked for while this one is copied.
constexpr std::size_t kAhead = 256;

void fetch_ahead(std::span<const std::byte> piece) {
    base::prefetch(piece.data(), piece.data() + std::min(piece.size(), kAhead));
}

}  // namespace

void copy_spans(Spans from, Spans to, std::uint64_t length) {
    if (length == 0) return;
    std::uint64_t left = length - 1;
    std::size_t in = 0;
    std::size_t in_at = 0;
    std::size_t out = 0;
    std::size_t out_at = 0;
    const auto settle = [&] {
        while (in_at == from[in].size()) {
            ++in;
            in_at = 0;
        }
        while (out_at == to[out].size()) {
            ++out;
            out_at = 0;
        }
    };
    while (left > 0) {
        settle();
        const std::size_t n = static_cast<std::size_t>(
            std::min<std::uint64_t>({left, from[in].size() - in_at, to[out].size() - out_at}));
        if (n == from[in].size() - in_at && in + 1 < from.size()) fetch_ahead(from[in + 1]);
        if (n == to[out].size() - out_at && out + 1 < to.size()) fetch_ahead(to[out + 1]);
        // memmove: a guest may send a buffer onto itself.
        std::memmove(to[out].data() + out_at, from[in].data() + in_at, n);
        in_at += n;
        out_at += n;
        left -= n;
    }
    settle();
    std::atomic_ref<std::byte>(to[out][out_at]).store(from[in][in_at], std::memory_order_release);
}

gdma::MrFault check_sges(const gdma::MemoryTable& keys, gdma::Pdn pd,
                         std::span<const gdma::Sge> sges, std::uint32_t need) {
    for (const gdma::Sge& sge : sges) {
        const gdma::MrFault fault = keys.check(sge.key, pd, sge.address, sge.length, need);
        if (fault != gdma::MrFault::kNone) return fault;
    }
    return gdma::MrFault::kNone;
}

gdma::MrFault gather(const gdma::MemoryTable& keys, gdma::Pdn pd, std::span<const gdma::Sge> sges,
                     std::uint64_t offset, std::uint64_t length, std::uint32_t need,
                     gdma::SpanList& out, SgeCheck check) {
    for (const gdma::Sge& sge : sges) {
        if (length == 0) break;
        if (offset >= sge.length) {
            offset -= sge.length;
            continue;
        }
        const std::uint64_t n = std::min<std::uint64_t>(length, sge.length - offset);
        gdma::MrFault fault = gdma::MrFault::kNone;
        if (check == SgeCheck::kWhole && n < sge.length)
            fault = keys.check(sge.key, pd, sge.address, sge.length, need);
        if (fault == gdma::MrFault::kNone)
            fault = keys.resolve(sge.key, pd, sge.address + offset, n, need, out);
        if (fault != gdma::MrFault::kNone) return fault;
        length -= n;
        offset = 0;
    }
    return length == 0 ? gdma::MrFault::kNone : gdma::MrFault::kRange;
}

gdma::MrFault gather_payload(const gdma::MemoryTable& keys, gdma::Pdn pd, SendWqe& wqe,
                             std::uint64_t offset, std::uint64_t length, gdma::SpanList& out) {
    if (!wqe.is_inline) return gather(keys, pd, wqe.sges, offset, length, gdma::kLocalRead, out);
    const std::uint64_t size = wqe.inline_data.size();
    if (length > size || offset > size - length) return gdma::MrFault::kRange;
    if (length > 0) out.push_back(std::span(wqe.inline_data).subspan(offset, length));
    return gdma::MrFault::kNone;
}

}  // namespace openmana::rnic
