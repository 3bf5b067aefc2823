// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace openmana::test {

/// What the dying client tells its test on stdout, and gets back on stdin, to connect a QP on each
/// side.
struct QpCard {
    std::uint32_t qpn = 0;
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
};

constexpr std::uint32_t kClientPsn = 4242;
constexpr std::uint32_t kTestPsn = 999;
constexpr std::uint8_t kClientHost = 1;
constexpr std::uint8_t kTestHost = 2;
constexpr std::uint32_t kBufferBytes = 65536;
/// WRITEs of a client that is told to live: then it says goodbye with status 0.
constexpr std::uint32_t kRounds = 64;

}  // namespace openmana::test
