// SPDX-License-Identifier: Apache-2.0
#include "manactl/tables.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace openmana::manactl {
namespace {

/// In MiB, rounded up.
std::string mebibytes(const json& bytes) {
    return std::to_string((bytes.get<std::uint64_t>() + (1U << 20) - 1) >> 20);
}

/// The end of the bucket in which so many of the values of a histogram are: "<= 4096".
std::string up_to(const json& histogram, double share, double scale, const char* unit) {
    const double wanted = share * histogram["count"].get<double>();
    double count = 0;
    for (const json& bucket : histogram["buckets"]) {
        count += bucket[1].get<double>();
        if (bucket[0].is_null()) break;
        if (count < wanted) continue;
        char text[32];
        std::snprintf(text, sizeof text, "<= %.10g%s", bucket[0].get<double>() * scale, unit);
        return text;
    }
    return "beyond";
}

}  // namespace

std::string cell(const json& value) {
    if (value.is_null()) return "?";
    if (value.is_string()) return value.get<std::string>();
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    return value.dump();
}

void print_table(const std::vector<std::string>& columns, const json& rows) {
    std::vector<std::size_t> widths;
    for (const auto& column : columns) {
        std::size_t width = column.size();
        for (const auto& row : rows)
            width = std::max(width, cell(row.value(column, json(""))).size());
        widths.push_back(width);
    }
    const auto print = [&](std::size_t i, const std::string& text, bool right) {
        const char* gap = i + 1 == columns.size() ? "\n" : "  ";
        const int width = static_cast<int>(widths[i]);
        std::printf(right ? "%*s%s" : "%-*s%s", width, text.c_str(), gap);
    };
    for (std::size_t i = 0; i < columns.size(); ++i) print(i, columns[i], false);
    for (const auto& row : rows)
        for (std::size_t i = 0; i < columns.size(); ++i) {
            const json value = row.value(columns[i], json(""));
            print(i, cell(value), value.is_number());
        }
}

/// A NIC that hangs does not tell everything; then there is a line about it.
void print_status(json nics) {
    for (json& nic : nics) {
        // An older manad has none.
        if (const json memory = nic.value("memory", json()); memory.is_object())
            nic["memory"] = mebibytes(memory["used"]) + "/" + mebibytes(memory["limit"]) + "M";
    }
    print_table(
        {"nic", "network", "vlan", "mac", "link", "client", "mtu", "qps", "memory", "socket"},
        nics);
    for (const auto& nic : nics)
        if (nic.contains("hangs_s"))
            std::printf("%s does not answer for %.1f s; it is at: %s\n", cell(nic["nic"]).c_str(),
                        nic["hangs_s"].get<double>(), cell(nic["doing"]).c_str());
}

void print_counters(const json& counters, bool all) {
    for (const auto& [name, value] : counters.items())
        if (all || value != 0) std::printf("  %-36s %s\n", name.c_str(), value.dump().c_str());
}

/// An older manad has none of these.
void print_requests(const json& nic) {
    const json requests = nic.value("requests", json::object());
    const json times = requests.value("rnic.request.seconds", json::object());
    const json sizes = requests.value("rnic.request.bytes", json::object());
    for (const auto& [kind, bytes] : sizes.items()) {
        std::printf("  requests: %-8s %10s  bytes: half %s, 99 %% %s", kind.c_str(),
                    bytes["count"].dump().c_str(), up_to(bytes, 0.5, 1, "").c_str(),
                    up_to(bytes, 0.99, 1, "").c_str());
        if (const json time = times.value(kind, json()); time.is_object())
            std::printf("  time: half %s, 99 %% %s", up_to(time, 0.5, 1e6, " us").c_str(),
                        up_to(time, 0.99, 1e6, " us").c_str());
        std::printf("\n");
    }
}

/// An older manad has one network, and does not name it.
void print_stats(const json& reply, bool all) {
    const json networks = reply.value("networks", json::array());
    for (const auto& nic : reply["nics"]) {
        std::printf("%s", cell(nic["nic"]).c_str());
        if (networks.size() > 1) std::printf("  network %s", cell(nic["network"]).c_str());
        std::printf("\n");
        print_counters(nic["counters"], all);
        print_requests(nic);
    }
    if (networks.size() > 1)
        for (const auto& network : networks) {
            std::printf("switch of network %s\n", cell(network["network"]).c_str());
            print_counters(network["counters"], all);
        }
    if (!reply.contains("switch")) return;
    std::printf(networks.size() > 1 ? "all switches\n" : "switch\n");
    print_counters(reply["switch"], all);
}

}  // namespace openmana::manactl
