// SPDX-License-Identifier: Apache-2.0
#include "esp/secret.h"

#include <openssl/crypto.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace openmana::esp {

void cleanse(std::span<std::byte> bytes) {
    ::OPENSSL_cleanse(bytes.data(), bytes.size());
}

bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
    return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

base::Result<SecretPages> SecretPages::create(std::size_t bytes) {
    constexpr int kProtection = PROT_READ | PROT_WRITE;
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
    // Not mlock(2), which the filter of system calls does not know.
    void* memory = ::mmap(nullptr, bytes, kProtection, kFlags | MAP_LOCKED, -1, 0);
    if (memory == MAP_FAILED) memory = ::mmap(nullptr, bytes, kProtection, kFlags, -1, 0);
    if (memory == MAP_FAILED)
        return base::fail(base::ErrorCode::kIo, "no memory for keys", static_cast<unsigned>(errno));
    if (::madvise(memory, bytes, MADV_DONTDUMP) != 0) {
        const int reason = errno;
        (void)::munmap(memory, bytes);
        return base::fail(base::ErrorCode::kIo, "cannot keep keys out of core dumps",
                          static_cast<unsigned>(reason));
    }
    return SecretPages({static_cast<std::byte*>(memory), bytes});
}

SecretPages::SecretPages(SecretPages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, std::span<std::byte>())) {}

SecretPages::~SecretPages() {
    if (bytes_.empty()) return;
    cleanse(bytes_);
    (void)::munmap(bytes_.data(), bytes_.size());
}

}  // namespace openmana::esp
