// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "rnic/memory.h"
#include "roce/aeth.h"
#include "roce/packet.h"
#include "roce/psn.h"

namespace openmana::rnic {

using roce::Psn;
using roce::QKey;
using roce::Qpn;
using roce::RKey;

enum class SegmentKind : std::uint8_t { kSend, kWrite, kRead, kAtomic, kInvalid };

/// Operands of an atomic.
struct Atomic {
    bool swap = false;  ///< compare and swap, else fetch and add
    std::uint64_t swap_add = 0;
    std::uint64_t compare = 0;
};

/// A request as the responder sees it: one packet of the wire, or on the local path a run of
/// neighbouring packets of one message, with its payload where it lies.
struct Segment {
    SegmentKind kind = SegmentKind::kInvalid;
    bool first = false;
    bool last = false;
    bool immediate = false;
    bool invalidate = false;
    bool ack_request = false;
    bool solicited = false;
    bool continued = false;  ///< local path: the rest of a READ that was answered in part
    Psn psn{};
    std::uint32_t packets = 1;  ///< PSNs that the payload takes
    std::uint32_t length = 0;   ///< payload bytes
    Spans payload{};
    roce::Reth reth{};  ///< WRITE: in the first; READ; atomic: address and key
    Atomic atomic{};
    std::uint32_t value = 0;  ///< immediate as a number, or the rkey to invalidate
};

/// Data that a READ asks for: from `psn` on, `length` bytes at `address`.
struct ReadJob {
    Psn psn{};
    std::uint32_t length = 0;
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint32_t done = 0;  ///< packets answered (wire path)
};

/// What the responder makes of a segment.
struct Answer {
    enum class Kind : std::uint8_t {
        kDrop,    ///< nothing happened
        kSilent,  ///< executed; no acknowledgement was asked for
        kAck,     ///< everything up to `psn` is executed
        kNak,     ///< `syndrome` tells the code
        kRnr,     ///< `syndrome` tells the delay
        kWait,    ///< nothing happened: a receive may come soon, and the request is to come again
        kRead,    ///< `read` is to be answered from `psn` on
        kAtomic,  ///< executed; `original` is the answer
    };
    Kind kind = Kind::kDrop;
    std::uint8_t syndrome = 0;
    Psn psn{};
    std::uint32_t msn = 0;
    ReadJob read{};
    std::uint64_t original = 0;
};

/// Packets of a message of `length` bytes.
[[nodiscard]] constexpr std::uint32_t packets_of(std::uint64_t length, std::uint32_t mtu) {
    return length == 0 ? 1 : static_cast<std::uint32_t>((length + mtu - 1) / mtu);
}

}  // namespace openmana::rnic
