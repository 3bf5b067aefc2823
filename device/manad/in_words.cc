// SPDX-License-Identifier: Apache-2.0
#include "manad/in_words.h"

#include "base/error_text.h"

namespace openmana::manad {

std::string in_words(const std::string& subject, const base::Error& error) {
    return subject + ": " + base::to_string(error);
}

}  // namespace openmana::manad
