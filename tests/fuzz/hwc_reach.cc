// SPDX-License-Identifier: Apache-2.0
// Whether the seeds of the target `hwc` reach every command that the device handles: each opcode
// must be answered with success at least once. The device itself is asked which ones it handles, so
// that a new command without a seed fails, whatever tables say.
//
//     hwc_reach FOLDER
#include <mana/eth.h>
#include <mana/ext.h>
#include <mana/ext_eth.h>
#include <mana/gdma.h>
#include <mana/rnic.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "base/log.h"
#include "fuzz.h"

using namespace openmana;

namespace {

/// Where opcodes are: the first one of a range, and the device that it is for.
struct Range {
    std::uint32_t first;
    std::uint16_t device;
};
constexpr std::uint32_t kRangeLength = 256;
constexpr Range kRanges[] = {{0, 0},
                             {0x20000, MANA_HW_ETH_DEVICE_TYPE},
                             {0x28000, MANA_HW_ETH_DEVICE_TYPE},
                             {MANA_HW_EXT_CREATE_PACKET_WQ, MANA_HW_ETH_DEVICE_TYPE},
                             {0x30000, MANA_HW_RNIC_DEVICE_TYPE},
                             {MANA_HW_EXT_QUERY_CAPS, MANA_HW_RNIC_DEVICE_TYPE}};

/// A NIC whose driver has negotiated everything.
struct Ready {
    Ready()
        : network(world),
          nic(world, network, 1),
          driver(nic.nic.function(), nic.ram, nic.irq,
                 {test::test_mac(1), test::ipv4_gid(1), {}, 0, false}) {
        fuzz::require(driver.bring_up(true), "bring-up");
    }
    test::SimWorld world;
    fabric::Switch network;
    fuzz::FuzzNic nic;
    test::HostileDriver driver;
};

/// The answer to a request that is all zeros behind its header, but for the adapter's handle, which
/// the RDMA device looks at first. It is as short as may be: what a command does not know of an
/// opcode comes before what it does not like of a field.
std::uint32_t answer(Ready& ready, std::uint32_t opcode, std::uint16_t device) {
    const bool rdma = device == MANA_HW_RNIC_DEVICE_TYPE;
    test::Request request(opcode, rdma ? 48 : 40, 4096, device);
    if (rdma) request.put<std::uint64_t>(40, ready.driver.host().adapter);
    return ready.driver.host().hwc().call(request).status;
}

std::set<std::uint32_t> handled() {
    std::set<std::uint32_t> found;
    auto ready = std::make_unique<Ready>();
    for (const Range& range : kRanges) {
        for (std::uint32_t opcode = range.first; opcode < range.first + kRangeLength; ++opcode) {
            const std::uint32_t status = answer(*ready, opcode, range.device);
            if (status == MANA_HW_STATUS_UNSUPPORTED) continue;
            found.insert(opcode);
            // It may have ended what the next one needs.
            if (status == MANA_HW_STATUS_SUCCESS) ready = std::make_unique<Ready>();
        }
    }
    return found;
}

std::vector<std::filesystem::path> files_in(const char* folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "hwc_reach: give the folder of the seeds\n");
        return 2;
    }
    base::set_log_level(base::LogLevel::kOff);
    std::set<std::uint32_t> asked;
    std::set<std::uint32_t> done;
    fuzz::on_answer = [&](std::uint32_t opcode, std::uint32_t status) {
        asked.insert(opcode);
        if (status == MANA_HW_STATUS_SUCCESS) done.insert(opcode);
    };
    for (const auto& file : files_in(argv[1])) {
        std::ifstream stream(file, std::ios::binary);
        const std::vector<char> input{std::istreambuf_iterator<char>(stream),
                                      std::istreambuf_iterator<char>()};
        LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    }
    const std::set<std::uint32_t> all = handled();
    int missing = 0;
    for (const std::uint32_t opcode : all) {
        if (done.contains(opcode)) continue;
        ++missing;
        std::fprintf(stderr, "hwc_reach: no seed has the command %#x %s: see make_corpus.py\n",
                     opcode, asked.contains(opcode) ? "answered with success" : "sent");
    }
    std::printf("hwc_reach: %zu commands, %d of them without a seed\n", all.size(), missing);
    return missing == 0 && !all.empty() ? 0 : 1;
}
