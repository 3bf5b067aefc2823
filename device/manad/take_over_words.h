// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace openmana::manad {

/// The arguments of one that takes the place of the daemon at `control`, from those of that. For
/// manactl, too, which has nothing else of manad.
[[nodiscard]] inline std::vector<std::string> words_to_take_over(
    const std::vector<std::string>& words, const std::string& control) {
    constexpr const char* kOption = "--take-over";
    std::vector<std::string> all;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == kOption)
            ++i;  // and what it names
        else if (!words[i].starts_with(std::string(kOption) + "="))
            all.push_back(words[i]);
    }
    all.emplace_back(kOption);
    all.push_back(control);
    return all;
}

}  // namespace openmana::manad
