// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace openmana::manactl {

using nlohmann::json;

std::string cell(const json& value);
/// Columns as wide as their widest cell; numbers to the right.
void print_table(const std::vector<std::string>& columns, const json& rows);
/// The answers to `status` and to `stats`.
void print_status(json nics);
void print_stats(const json& reply, bool all);
void print_counters(const json& counters, bool all);

}  // namespace openmana::manactl
