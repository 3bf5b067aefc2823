// SPDX-License-Identifier: Apache-2.0
#include "esp/gcm.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace openmana::esp {
namespace {

const unsigned char* in(const std::byte* bytes) {
    return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* to(std::byte* bytes) {
    return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace

bool Gcm::set_key(const SaKey& key, Use use) {
    struct FreeCipher {
        void operator()(EVP_CIPHER* cipher) const { ::EVP_CIPHER_free(cipher); }
    };
    // Fetched once, which takes longer than to encrypt.
    static const std::unique_ptr<EVP_CIPHER, FreeCipher> cipher(
        ::EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr));
    if (context_ == nullptr) context_.reset(::EVP_CIPHER_CTX_new());
    if (cipher == nullptr || context_ == nullptr ||
        ::EVP_CipherInit_ex2(context_.get(), cipher.get(), in(key.bytes().data()), nullptr,
                             use == Use::kSeal ? 1 : 0, nullptr) != 1) {
        context_.reset();
        return false;
    }
    std::ranges::copy(key.bytes().last(kSaltBytes), salt_.bytes().begin());
    return true;
}

/// The nonce is salt and IV (RFC 4106 4), what is authenticated beside the payload SPI and sequence
/// number (5).
bool Gcm::begin(const std::byte* packet, Use use) {
    std::array<std::byte, kSaltBytes + kIvBytes> nonce;
    std::ranges::copy(salt_.bytes(), nonce.begin());
    std::memcpy(nonce.data() + kSaltBytes, packet + kIvAt, kIvBytes);
    int length = 0;
    return ::EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, in(nonce.data()),
                                use == Use::kSeal ? 1 : 0, nullptr) == 1 &&
           ::EVP_CipherUpdate(context_.get(), nullptr, &length, in(packet),
                              static_cast<int>(kAuthenticatedHeader)) == 1;
}

bool Gcm::seal(std::span<const std::span<const std::byte>> parts,
               std::span<const std::byte> trailer, std::byte* packet) {
    if (!begin(packet, Use::kSeal)) return false;
    std::byte* out = packet + kHeaderBytes;
    int length = 0;
    const auto encrypt = [&](std::span<const std::byte> bytes) {
        if (bytes.empty()) return true;
        if (::EVP_EncryptUpdate(context_.get(), to(out), &length, in(bytes.data()),
                                static_cast<int>(bytes.size())) != 1)
            return false;
        out += bytes.size();
        return true;
    };
    for (const auto part : parts)
        if (!encrypt(part)) return false;
    return encrypt(trailer) && ::EVP_EncryptFinal_ex(context_.get(), to(out), &length) == 1 &&
           ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kIcvBytes),
                                 out) == 1;
}

bool Gcm::open(std::span<const std::byte> packet, std::byte* out) {
    const auto secret = packet.subspan(kHeaderBytes, packet.size() - kHeaderBytes - kIcvBytes);
    // OpenSSL only reads it.
    auto* icv = const_cast<std::byte*>(packet.data() + packet.size() - kIcvBytes);
    int length = 0;
    return begin(packet.data(), Use::kOpen) &&
           ::EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, static_cast<int>(kIcvBytes),
                                 icv) == 1 &&
           ::EVP_DecryptUpdate(context_.get(), to(out), &length, in(secret.data()),
                               static_cast<int>(secret.size())) == 1 &&
           ::EVP_DecryptFinal_ex(context_.get(), to(out + secret.size()), &length) == 1;
}

}  // namespace openmana::esp
