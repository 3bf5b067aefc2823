// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace openmana::manactl {

/// `--watch`: asks again and again, and prints what happens in a second.
struct Watch {
    double seconds = 0;  ///< between two looks; 0: no watch
    unsigned count = 0;  ///< rounds until it ends; 0: it does not
    std::string control;
    bool as_json = false;

    /// `stats` is the request for counters. A line of `status` for each NIC with its rates, or
    /// those of all counters. As JSON one answer a line.
    void run(const nlohmann::json& stats, bool status) const;
};

}  // namespace openmana::manactl
