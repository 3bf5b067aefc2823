// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "vfio_user/message.h"

namespace openmana::vfio_user {

inline std::vector<std::byte> bytes(std::initializer_list<int> values) {
    std::vector<std::byte> result;
    for (const int value : values) result.push_back(static_cast<std::byte>(value));
    return result;
}

/// One behind the other, as messages have them.
template <typename... T>
std::vector<std::byte> pack(const T&... values) {
    std::vector<std::byte> result;
    Writer writer(result);
    (writer.put(values), ...);
    return result;
}

}  // namespace openmana::vfio_user
