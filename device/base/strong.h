// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace openmana::base {

/// An integer with a meaning of its own, so that an id cannot be passed where an address is meant.
template <typename Tag, typename T>
class Strong {
public:
    using value_type = T;
    constexpr Strong() = default;
    constexpr explicit Strong(T value) : value_(value) {}
    [[nodiscard]] constexpr T value() const { return value_; }
    friend constexpr auto operator<=>(Strong, Strong) = default;
    friend constexpr bool operator==(Strong, Strong) = default;

private:
    T value_{};
};

/// Bus address as the PCI function emits it (guest physical without an IOMMU).
using GuestAddr = Strong<struct GuestAddrTag, std::uint64_t>;

constexpr GuestAddr operator+(GuestAddr address, std::uint64_t offset) {
    return GuestAddr(address.value() + offset);
}

}  // namespace openmana::base

template <typename Tag, typename T>
struct std::hash<openmana::base::Strong<Tag, T>> {
    std::size_t operator()(openmana::base::Strong<Tag, T> id) const noexcept {
        return std::hash<T>{}(id.value());
    }
};
