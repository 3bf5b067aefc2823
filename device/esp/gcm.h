// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "esp/derive.h"
#include "esp/format.h"

namespace openmana::esp {

/// AES-256-GCM with one key, one direction, for one thread at a time: nothing is allocated for a
/// packet.
class Gcm {
public:
    enum class Use : std::uint8_t { kSeal, kOpen };
    /// Without a key yet.
    Gcm() = default;
    /// In place of any that it has. False if OpenSSL has no memory, or no AES-GCM.
    [[nodiscard]] bool set_key(const SaKey& key, Use use);
    [[nodiscard]] bool has_key() const { return context_ != nullptr; }

    /// Encrypts parts, and a trailer behind them, into a packet whose header is there, and writes
    /// its ICV.
    [[nodiscard]] bool seal(std::span<const std::span<const std::byte>> parts,
                            std::span<const std::byte> trailer, std::byte* packet);
    /// Decrypts a packet of at least kSmallestPacket bytes, to `out`, which may be where the
    /// encrypted bytes are. False if it is not authentic; then nobody may look at what is in `out`.
    [[nodiscard]] bool open(std::span<const std::byte> packet, std::byte* out);

private:
    static constexpr std::size_t kSaltBytes = 4;
    [[nodiscard]] bool begin(const std::byte* packet, Use use);

    struct Free {
        void operator()(EVP_CIPHER_CTX* context) const { ::EVP_CIPHER_CTX_free(context); }
    };
    std::unique_ptr<EVP_CIPHER_CTX, Free> context_;  // cleansed when freed
    Secret<kSaltBytes> salt_;
};

}  // namespace openmana::esp
