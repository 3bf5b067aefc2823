// SPDX-License-Identifier: Apache-2.0
#include "base/error_text.h"

#include <cstring>

namespace openmana::base {

std::string to_string(const Error& error) {
    std::string text = error.text;
    if (error.code == ErrorCode::kIo && error.detail != 0)
        text.append(": ").append(std::strerror(static_cast<int>(error.detail)));
    return text;
}

}  // namespace openmana::base
