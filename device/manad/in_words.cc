// SPDX-License-Identifier: Apache-2.0
#include "manad/in_words.h"

#include <fmt/format.h>

#include <cstring>

namespace openmana::manad {

std::string in_words(const std::string& subject, const base::Error& error) {
    const bool has_errno = error.code == base::ErrorCode::kIo && error.detail != 0;
    return fmt::format("{}: {}{}{}", subject, error.text, has_errno ? ": " : "",
                       has_errno ? std::strerror(static_cast<int>(error.detail)) : "");
}

}  // namespace openmana::manad
