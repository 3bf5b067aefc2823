// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/endian.h"
#include "gdma/wqe.h"

namespace openmana::rnic {

/// The limits of the extended format.
constexpr std::uint32_t kExtMaxSge = 32;
constexpr std::uint32_t kExtMaxInline = 512;
constexpr std::uint32_t kExtMaxRingBytes = 1U << 24;
constexpr std::uint32_t kExtMaxReceives = 32768;

/// Of the segment that each send work request begins with.
constexpr std::size_t kExtControlBytes = sizeof(mana_hw_ext_control);

/// A segment of a work request, copied; the caller has looked that it is there.
template <typename T>
T ext_segment_at(std::span<const std::byte> bytes, std::size_t at) {
    T segment;
    std::memcpy(&segment, bytes.data() + at, sizeof segment);
    return segment;
}

inline gdma::Sge ext_sge_at(const std::byte* at) {
    return {base::load_le<std::uint64_t>(at), gdma::Key(base::load_le<std::uint32_t>(at + 8)),
            base::load_le<std::uint32_t>(at + 12)};
}

}  // namespace openmana::rnic
