// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace openmana::roce {

/// What the syndrome byte of an AETH says (ROCE 2.5, IBTA 9.7.5.1).
enum class AethKind : std::uint8_t { kAck, kRnrNak, kNak, kReserved };

/// The NAK syndromes.
enum class NakCode : std::uint8_t {
    kSequenceError = 0,
    kInvalidRequest = 1,
    kRemoteAccess = 2,
    kRemoteOperational = 3,
};

constexpr std::uint8_t kAckUnlimited = 0x1f;  ///< ACK without end-to-end credits: what we send

[[nodiscard]] constexpr std::uint8_t ack_syndrome(std::uint8_t credit_code) {
    return credit_code & 0x1f;
}
[[nodiscard]] constexpr std::uint8_t rnr_syndrome(std::uint8_t timer_code) {
    return static_cast<std::uint8_t>(0x20 | (timer_code & 0x1f));
}
[[nodiscard]] constexpr std::uint8_t nak_syndrome(NakCode code) {
    return static_cast<std::uint8_t>(0x60 | static_cast<std::uint8_t>(code));
}

/// Reserved values, the NAK of the obsolete RD service among them, are to be ignored by the
/// receiver.
[[nodiscard]] constexpr AethKind aeth_kind(std::uint8_t syndrome) {
    if (syndrome < 0x20) return AethKind::kAck;
    if (syndrome < 0x40) return AethKind::kRnrNak;
    if (syndrome >= 0x60 && syndrome <= 0x63) return AethKind::kNak;
    return AethKind::kReserved;
}
/// The low five bits: credit code, RNR timer code or NAK code.
[[nodiscard]] constexpr std::uint8_t aeth_value(std::uint8_t syndrome) {
    return syndrome & 0x1f;
}
[[nodiscard]] constexpr NakCode nak_code(std::uint8_t syndrome) {
    return static_cast<NakCode>(aeth_value(syndrome));
}

/// Credits of an ACK's credit code; code 31 means "no limit", here the largest number.
[[nodiscard]] constexpr std::uint32_t credits(std::uint8_t code) {
    code &= 0x1f;
    if (code == 31) return UINT32_MAX;
    if (code < 4) return code;
    return code % 2 == 0 ? 1U << (code / 2) : 3U << ((code - 3) / 2);
}

/// What a timeout of this code, from 1 on, is (IBTA 9.7.6.1.3). That of the Local CA ACK Delay,
/// too.
[[nodiscard]] constexpr base::Duration ack_timeout(std::uint32_t code) {
    return base::Duration(4096ULL << std::min(code, 31U));
}

/// What the ACK timer waits after so many timeouts in a row (ROCE 3.6): twice as long each time,
/// but within the 4 T of IBTA 9.7.6.1.3, and never longer than code 16 unless that is the first
/// wait: who waits for the end of a connection that is dead does not wait much longer for that.
[[nodiscard]] constexpr base::Duration ack_timeout_after(std::uint32_t code,
                                                         std::uint32_t timeouts) {
    const base::Duration first = ack_timeout(code);
    return std::max(first, std::min(first * (1U << std::min(timeouts, 2U)), ack_timeout(16)));
}

/// Delay that an RNR NAK with this timer code asks for. Code 0 is the longest.
[[nodiscard]] constexpr base::Duration rnr_delay(std::uint8_t code) {
    constexpr std::array<std::uint32_t, 32> kTenMicroseconds = {
        65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
        48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
        2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return std::chrono::microseconds(10) * kTenMicroseconds[code & 0x1f];
}

}  // namespace openmana::roce
