// SPDX-License-Identifier: Apache-2.0
#include "manad/warm_heap.h"

#include <malloc.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

namespace openmana::manad {
namespace {

// glibc's most, and what it begins with.
constexpr int kLargestBlock = 32 << 20;
constexpr int kUsualBlock = 128 << 10;
constexpr std::size_t kPiece = 16U << 20;
constexpr std::size_t kPage = 4096;
/// More than any manad has; a number that somebody else says.
constexpr std::size_t kMost = std::size_t{4} << 30;

}  // namespace

WarmHeap::WarmHeap(std::size_t bytes) {
    (void)::mallopt(M_MMAP_THRESHOLD, kLargestBlock);
    (void)::mallopt(M_TRIM_THRESHOLD, INT_MAX);
    std::vector<void*> pieces;
    for (std::size_t had = 0; had < std::min(bytes, kMost); had += kPiece) {
        auto* const piece = static_cast<volatile char*>(std::malloc(kPiece));
        if (piece == nullptr) break;
        for (std::size_t at = 0; at < kPiece; at += kPage) piece[at] = 0;
        pieces.push_back(const_cast<char*>(piece));
    }
    for (void* const piece : pieces) std::free(piece);
}

WarmHeap::~WarmHeap() {
    (void)::mallopt(M_MMAP_THRESHOLD, kUsualBlock);
    (void)::mallopt(M_TRIM_THRESHOLD, kUsualBlock);
    (void)::malloc_trim(0);
}

}  // namespace openmana::manad
