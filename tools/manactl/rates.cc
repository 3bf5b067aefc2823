// SPDX-License-Identifier: Apache-2.0
#include "manactl/rates.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

namespace openmana::manactl {
namespace {

/// Memory is what is now, and not what there was in all.
bool counts(std::string_view name) {
    return !name.starts_with("nic.memory.") || name == "nic.memory.refused";
}

json rates(const json& before, const json& after, double seconds) {
    json result = json::object();
    for (const auto& [name, value] : after.items()) {
        const auto old = before.find(name);
        if (old == before.end() || !counts(name)) continue;
        const auto now = value.get<std::uint64_t>();
        const auto then = old->get<std::uint64_t>();
        if (now > then) result[name] = static_cast<double>(now - then) / seconds;
    }
    return result;
}

/// The counters that a row of an answer to `stats` has, and how many requests were done.
json counters_of(const json& row) {
    json counters = row.value("counters", json::object());
    const json requests = row.value("requests", json::object());
    const json sizes = requests.value("rnic.request.bytes", json::object());
    for (const auto& [kind, histogram] : sizes.items())
        counters["rnic.request." + kind] = histogram.value("count", std::uint64_t{0});
    return counters;
}

const json* find(const json& rows, const char* key, const json& name) {
    for (const json& row : rows)
        if (row.value(key, json()) == name) return &row;
    return nullptr;
}

double sum(const json& rates, std::string_view prefix) {
    double all = 0;
    for (const auto& [name, value] : rates.items())
        if (std::string_view(name).starts_with(prefix)) all += value.get<double>();
    return all;
}

double sum_of(const json& rates, const std::array<std::string_view, 2>& names) {
    double all = 0;
    for (const std::string_view name : names) all += rates.value(std::string(name), 0.0);
    return all;
}

double rounded(double value, double to) {
    return std::round(value * to) / to;
}

}  // namespace

json with_rates(const json& before, json after) {
    const double seconds = after.value("at_s", 0.0) - before.value("at_s", 0.0);
    if (seconds <= 0) return after;
    after["interval_s"] = rounded(seconds, 1000);
    for (const auto& [rows, key] : {std::pair("nics", "nic"), std::pair("networks", "network")}) {
        if (!after.contains(rows)) continue;
        const json earlier = before.value(rows, json::array());
        for (json& row : after[rows])
            if (const json* const old = find(earlier, key, row[key]))
                row["rates"] = rates(counters_of(*old), counters_of(row), seconds);
    }
    if (before.contains("switch") && after.contains("switch"))
        after["switch_rates"] = rates(before["switch"], after["switch"], seconds);
    return after;
}

json status_rates(const json& status, const json& stats) {
    json rows = status["nics"];
    for (json& row : rows) {
        const json* const found = find(stats["nics"], "nic", row["nic"]);
        if (found == nullptr || !found->contains("rates")) continue;
        const json& of = (*found)["rates"];
        constexpr double kBits = 8e-9;
        row["tx_gbps"] = rounded(sum_of(of, {"eth.tx.bytes", "rnic.tx.bytes"}) * kBits, 1000);
        row["rx_gbps"] = rounded(sum_of(of, {"eth.rx.bytes", "rnic.rx.bytes"}) * kBits, 1000);
        row["requests/s"] = std::llround(sum(of, "rnic.request."));
        row["drops/s"] = std::llround(sum(of, "rnic.drop.") + sum(of, "eth.rx.no_") +
                                      sum_of(of, {"fabric.port.queue_full", "rnic.wait.dropped"}));
        row["retries/s"] = std::llround(of.value("rnic.requester.retransmits", 0.0));
    }
    return rows;
}

}  // namespace openmana::manactl
