// SPDX-License-Identifier: Apache-2.0
#include "esp/derive.h"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/endian.h"

namespace openmana::esp {
namespace {

constexpr std::string_view kLabel = "OpenMANA ESP 1";
constexpr std::size_t kMaxEnd = 1 + 16 + 2;

struct FreeKdf {
    void operator()(EVP_KDF* kdf) const { ::EVP_KDF_free(kdf); }
    void operator()(EVP_KDF_CTX* context) const { ::EVP_KDF_CTX_free(context); }
};

/// What goes into the derivation, behind each other.
class Info {
public:
    void add(const void* data, std::size_t size) {
        std::memcpy(bytes_.data() + size_, data, size);
        size_ += size;
    }
    template <typename T>
    void add_be(T value) {
        std::array<std::byte, sizeof value> bytes;
        base::store_be(bytes.data(), value);
        add(bytes.data(), bytes.size());
    }
    void add(const Endpoint& end) {
        const std::uint8_t version = end.v6 ? 6 : 4;
        add(&version, 1);
        add(end.address.data(), end.v6 ? 16 : 4);
        add_be(end.port);
    }
    [[nodiscard]] OSSL_PARAM param() {
        return ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, bytes_.data(), size_);
    }

private:
    std::array<std::byte, kLabel.size() + 4 + 2 * kMaxEnd> bytes_{};
    std::size_t size_ = 0;
};

}  // namespace

base::Result<void> derive(std::span<const std::byte> psk, Spi spi, const Flow& flow, SaKey& key) {
    // Fetched once: to look an algorithm up takes longer than to use it.
    static const std::unique_ptr<EVP_KDF, FreeKdf> kdf(
        ::EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr));
    const std::unique_ptr<EVP_KDF_CTX, FreeKdf> context(::EVP_KDF_CTX_new(kdf.get()));
    Info info;
    info.add(kLabel.data(), kLabel.size());
    info.add_be(spi.value());
    info.add(flow.sender);
    info.add(flow.receiver);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {
        ::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        // OpenSSL writes to no key.
        ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<std::byte*>(psk.data()),
                                            psk.size()),
        info.param(), ::OSSL_PARAM_construct_end()};
    const auto out = key.bytes();
    if (!context || ::EVP_KDF_derive(context.get(), reinterpret_cast<unsigned char*>(out.data()),
                                     out.size(), params) != 1)
        return base::fail(base::ErrorCode::kUnsupported, "OpenSSL does not derive keys");
    return {};
}

base::Result<SaMark> mark_of(const SaKey& key, Spi spi, const Flow& flow) {
    SaKey derived;
    TRY_VOID(derive(key.bytes(), spi, flow, derived));
    SaMark mark{};
    std::ranges::copy(derived.bytes().first(mark.size()), mark.begin());
    return mark;
}

std::optional<PskId> find_psk(const KeyRing& ring, const SaMark& mark, Spi spi, const Flow& flow,
                              SaKey& key) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
        if (!derive(ring.key(i), spi, flow, key)) return std::nullopt;
        const auto own = mark_of(key, spi, flow);
        if (own && same_secret(*own, mark)) return ring.id(i);
    }
    return std::nullopt;
}

}  // namespace openmana::esp
