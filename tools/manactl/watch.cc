// SPDX-License-Identifier: Apache-2.0
#include "manactl/watch.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>
#include <utility>

#include "manactl/control_client.h"
#include "manactl/rates.h"
#include "manactl/tables.h"

namespace openmana::manactl {
namespace {

void print_rates(const char* what, const json& row, const json& rates) {
    std::printf("%s%s\n", what, cell(row).c_str());
    for (const auto& [name, value] : rates.items())
        std::printf("  %-36s %.1f/s\n", name.c_str(), value.get<double>());
}

void print_all_rates(const json& stats) {
    const json none = json::object();
    for (const auto& nic : stats["nics"]) print_rates("", nic["nic"], nic.value("rates", none));
    const json networks = stats.value("networks", json::array());
    if (networks.size() > 1)
        for (const auto& network : networks)
            print_rates("switch of network ", network["network"], network.value("rates", none));
    print_rates("", networks.size() > 1 ? "all switches" : "switch",
                stats.value("switch_rates", none));
}

}  // namespace

void Watch::run(const json& request, bool status) const {
    const bool screen = ::isatty(STDOUT_FILENO) == 1 && !as_json;
    json before = ask(control, request);
    if (!before.contains("at_s")) die("this manad is too old to be watched");
    for (unsigned round = 1; count == 0 || round <= count; ++round) {
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        json now = ask(control, request);
        json rates = with_rates(before, now);
        before = std::move(now);
        if (status) {
            const json rows = status_rates(ask(control, {{"command", "status"}}), rates);
            rates = {{"ok", true}, {"interval_s", rates["interval_s"]}, {"nics", rows}};
        }
        if (screen) std::fputs("\033[H\033[2J", stdout);
        if (as_json) {
            std::printf("%s\n", rates.dump().c_str());
        } else if (status) {
            print_table({"nic", "network", "link", "client", "qps", "tx_gbps", "rx_gbps",
                         "requests/s", "drops/s", "retries/s"},
                        rates["nics"]);
        } else {
            print_all_rates(rates);
        }
        std::fflush(stdout);
    }
}

}  // namespace openmana::manactl
