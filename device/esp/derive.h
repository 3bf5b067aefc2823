// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "esp/format.h"
#include "esp/key_ring.h"
#include "esp/secret.h"

namespace openmana::esp {

/// One end of a tunnel as both ends name it: the address and UDP port that packets go to.
struct Endpoint {
    std::array<std::uint8_t, 16> address{};  ///< of IPv4 the first four bytes
    std::uint16_t port = 0;
    bool v6 = false;
    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// From whom to whom: each has keys of its own.
struct Flow {
    Endpoint sender;
    Endpoint receiver;
    [[nodiscard]] Flow reversed() const { return {receiver, sender}; }
};

/// What an SA encrypts with: 32 bytes for AES-256, and the 4 of RFC 4106's salt behind them.
using SaKey = Secret<36>;
inline constexpr std::size_t kAesKeyBytes = 32;

/// HKDF-SHA256 (RFC 5869) of a pre-shared key, without salt. Its info is the label "OpenMANA ESP
/// 1", the SPI, sender and receiver; an end is its IP version (one byte, 4 or 6), address and port.
/// So two hosts agree on the keys of an SA by its SPI alone, which is in each packet.
base::Result<void> derive(std::span<const std::byte> psk, Spi spi, const Flow& flow, SaKey& key);

/// Tells the keys of SAs apart, and nothing of them: who goes on with an SA of another process, and
/// has the pre-shared keys himself, finds by it which of them that was.
using SaMark = std::array<std::byte, 16>;
base::Result<SaMark> mark_of(const SaKey& key, Spi spi, const Flow& flow);
/// The pre-shared key of the ring from which the SA with this mark follows, and the SA's own in
/// `key`; nothing if there is none.
[[nodiscard]] std::optional<PskId> find_psk(const KeyRing& ring, const SaMark& mark, Spi spi,
                                            const Flow& flow, SaKey& key);

}  // namespace openmana::esp
