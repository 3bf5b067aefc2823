// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "esp/derive.h"
#include "esp/key_ring.h"
#include "esp/secret.h"

namespace openmana::esp {

/// Keys of SAs that a peer may begin now, derived when a packet names one for the first time and
/// kept: so whoever sends packets with all SPIs that there are has this host derive each key once,
/// a hundred or so at first and one a second from then on. For one thread at a time.
class Candidates {
public:
    /// More than there are SPIs that are neither too old nor too new.
    static constexpr std::size_t kSlots = 128;

    static base::Result<Candidates> create();
    /// The key of this SA for one of the ring's pre-shared keys. The ring has to be that of the
    /// last `clear`.
    base::Result<void> get(const KeyRing& ring, std::size_t index, Spi spi, const Flow& flow,
                           SaKey& key);
    void clear();
    [[nodiscard]] std::uint64_t derivations() const { return derivations_; }

private:
    explicit Candidates(SecretPages pages) : pages_(std::move(pages)) {}
    struct Slot {
        Spi spi{};
        std::uint8_t known = 0;  // a bit for each key of the ring
    };
    static_assert(KeyRing::kMaxKeys <= 8);
    SecretPages pages_;
    std::array<Slot, kSlots> slots_{};
    std::uint64_t derivations_ = 0;
};

}  // namespace openmana::esp
