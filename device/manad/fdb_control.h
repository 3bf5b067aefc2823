// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "manad/uplink_server.h"

namespace openmana::manad {

/// Answers a request `fdb`: shows the tables of the VXLAN networks, or changes one by a line as
/// `bridge fdb` takes it. The threads of the uplinks are not asked.
[[nodiscard]] nlohmann::json answer_fdb(const std::vector<std::unique_ptr<UplinkServer>>& servers,
                                        const nlohmann::json& request);

}  // namespace openmana::manad
