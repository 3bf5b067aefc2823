// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "base/result.h"

namespace openmana::esp {

/// Overwrites bytes in a way that no compiler leaves out.
void cleanse(std::span<std::byte> bytes);
/// Takes as long whatever is in them. Of one length.
[[nodiscard]] bool same_secret(std::span<const std::byte> a, std::span<const std::byte> b);

/// Bytes on the stack, or in an object, that nobody finds when they are no longer needed.
template <std::size_t kBytes>
class Secret {
public:
    Secret() = default;
    ~Secret() { cleanse(bytes_); }
    Secret(const Secret&) = delete;
    Secret& operator=(const Secret&) = delete;
    [[nodiscard]] std::span<std::byte, kBytes> bytes() { return bytes_; }
    [[nodiscard]] std::span<const std::byte, kBytes> bytes() const { return bytes_; }

private:
    std::array<std::byte, kBytes> bytes_{};
};

/// Pages for secrets that stay: left out of core dumps, not swapped out if RLIMIT_MEMLOCK allows,
/// cleansed at their end.
class SecretPages {
public:
    [[nodiscard]] static base::Result<SecretPages> create(std::size_t bytes);
    ~SecretPages();
    SecretPages(SecretPages&& other) noexcept;
    SecretPages& operator=(SecretPages&&) = delete;
    SecretPages(const SecretPages&) = delete;
    SecretPages& operator=(const SecretPages&) = delete;
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

private:
    explicit SecretPages(std::span<std::byte> bytes) : bytes_(bytes) {}
    std::span<std::byte> bytes_;
};

}  // namespace openmana::esp
