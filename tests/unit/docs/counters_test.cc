// SPDX-License-Identifier: Apache-2.0
// docs/counters.md is generated from the tables in the code, and compared with them here.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "base/memory_account.h"
#include "esp/counters.h"
#include "eth/counters.h"
#include "fabric/nic.h"
#include "fabric/port_path.h"
#include "fabric/switch.h"
#include "fabric/uplink.h"
#include "fabric/vxlan_uplink.h"
#include "fabric/xdp_uplink.h"
#include "gdma/function.h"
#include "manad/loop_watch.h"
#include "pci/counters.h"
#include "rnic/counters.h"
#include "rnic/request_figures.h"
#include "vfio_user/counters.h"

namespace openmana {
namespace {

struct Table {
    const char* title;
    std::span<const base::CounterInfo> lines;
};

const Table kTables[] = {
    {"Threads", manad::LoopCounters::kInfo},
    {"Memory", base::MemoryAccount::kInfo},
    {"vfio-user", vfio_user::Counters::kInfo},
    {"PCI", pci::Counters::kInfo},
    {"GDMA", gdma::FunctionCounters::kInfo},
    {"Ethernet", eth::EthernetCounters::kInfo},
    {"RDMA", rnic::RnicCounters::kInfo},
    {"Port", fabric::PortCounters::kInfo},
    {"Port: queue", fabric::PathCounters::kInfo},
    {"Port: policy", fabric::PolicyCounters::kInfo},
    {"Port: rate limits", fabric::ShaperCounters::kInfo},
    {"Port: faults", fabric::FaultCounters::kInfo},
    {"Port: flow log", fabric::FlowCounters::kInfo},
    {"Capture", fabric::CaptureCounters::kInfo},
    {"Uplink", fabric::UplinkCounters::kInfo},
    {"Uplink: XDP", fabric::XdpCounters::kInfo},
    {"Uplink: encryption", esp::EspCounters::kInfo},
    {"Uplink: VXLAN", fabric::VxlanCounters::kInfo},
    {"Uplink: table of VXLAN", fabric::FdbCounters::kInfo},
    {"Uplink: VXLAN, all networks of a local address", fabric::VxlanEndpointCounters::kInfo},
    {"Switch", fabric::SwitchCounters::kInfo},
};

std::string document() {
    std::ostringstream text;
    text << "# Counters\n\nFor those who watch a running `manad`. `manactl stats` prints them for "
            "each NIC and\nfor the switch of each network. Counts start at zero when `manad` "
            "starts, and only "
            "rise, but for\nthose of memory, which are what is now.\n";
    for (const Table& table : kTables) {
        text << "\n## " << table.title << "\n| counter | counts |\n|---|---|\n";
        for (const auto& line : table.lines)
            text << "| `" << line.name << "` | " << line.help << " |\n";
    }
    text << "\n## Histograms of requests\nBy kind (send, write, read, atomic, datagram), as "
            "docs/monitoring.md says.\n\n| histogram | counts |\n|---|---|\n";
    for (const auto& info : {rnic::RequestFigures::kSeconds, rnic::RequestFigures::kBytes})
        text << "| `" << info.name << "` | " << info.help << " |\n";
    return text.str();
}

TEST(CountersDocument, IsWhatTheCodeDeclares) {
    const std::string path = OPENMANA_SOURCE_DIR "/docs/counters.md";
    if (std::getenv("OPENMANA_UPDATE_DOCS") != nullptr) std::ofstream(path) << document();
    std::ifstream file(path);
    const std::string written{std::istreambuf_iterator<char>(file),
                              std::istreambuf_iterator<char>()};
    EXPECT_EQ(written, document())
        << "run this test with OPENMANA_UPDATE_DOCS=1 to write the file anew";
}

TEST(CountersDocument, NamesAreUniqueAndHaveThreeParts) {
    std::set<std::string> names;
    for (const Table& table : kTables)
        for (const auto& line : table.lines) {
            EXPECT_TRUE(names.insert(line.name).second) << line.name;
            const std::string name = line.name;
            EXPECT_EQ(std::count(name.begin(), name.end(), '.'), 2) << name;
            EXPECT_FALSE(std::string(line.help).empty()) << name;
        }
}

}  // namespace
}  // namespace openmana
