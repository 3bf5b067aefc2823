// SPDX-License-Identifier: Apache-2.0
#include "esp/candidates.h"

#include <algorithm>

namespace openmana::esp {
namespace {

constexpr std::size_t kKeyBytes = 36;

}  // namespace

base::Result<Candidates> Candidates::create() {
    TRY(auto pages, SecretPages::create(kSlots * KeyRing::kMaxKeys * kKeyBytes));
    return Candidates(std::move(pages));
}

base::Result<void> Candidates::get(const KeyRing& ring, std::size_t index, Spi spi,
                                   const Flow& flow, SaKey& key) {
    const std::size_t number = spi.value() % kSlots;
    Slot& slot = slots_[number];
    if (slot.spi != spi) slot = {spi, 0};
    const auto kept =
        pages_.bytes().subspan((number * KeyRing::kMaxKeys + index) * kKeyBytes, kKeyBytes);
    const auto bit = static_cast<std::uint8_t>(1U << index);
    if ((slot.known & bit) == 0) {
        ++derivations_;
        TRY_VOID(derive(ring.key(index), spi, flow, key));
        std::ranges::copy(key.bytes(), kept.begin());
        slot.known |= bit;
    }
    std::ranges::copy(kept, key.bytes().begin());
    return {};
}

void Candidates::clear() {
    cleanse(pages_.bytes());
    slots_ = {};
}

}  // namespace openmana::esp
