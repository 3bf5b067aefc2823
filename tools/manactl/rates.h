// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace openmana::manactl {

using nlohmann::json;

/// A later answer to `stats`, with `interval_s` between the two, and in each NIC, network and
/// `switch` what its counters rose by in a second (`rates`, `switch_rates`): those that did rise.
/// What was not there before has none, and neither has what is no count.
json with_rates(const json& before, json after);

/// A row for each NIC of the answer to `status`, with what its `rates` say: Gb/s, requests, drops
/// and retransmissions a second.
json status_rates(const json& status, const json& stats);

}  // namespace openmana::manactl
