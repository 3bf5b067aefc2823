// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "rnic/rnic.h"

namespace openmana::manad {

/// Figures of the queue pairs of several NICs, as the answer to `qps` has them. There may be more
/// than an answer has room for: what is over is counted.
class QpRows {
public:
    static constexpr std::size_t kMost = 16384;

    void add(const std::string& nic, std::span<const rnic::QpStatus> qps);
    [[nodiscard]] std::size_t all() const { return all_; }
    [[nodiscard]] nlohmann::json take() { return std::move(rows_); }

private:
    nlohmann::json rows_ = nlohmann::json::array();
    std::size_t all_ = 0;
};

}  // namespace openmana::manad
