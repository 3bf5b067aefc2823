// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"

namespace openmana::sim {

/// Bytes of a NIC's arena.
struct Range {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
};

/// Which key an SGE or a request names.
enum class KeyKind : std::uint8_t {
    kGood,      ///< the region over the arena
    kNarrow,    ///< local side: a second region over the arena, without remote rights
    kReadOnly,  ///< a region over the arena that nothing may write to
    kUnknown,   ///< no such index
    kStale,     ///< the good key with another low byte
    kOtherPd,   ///< a good region of another PD
    kVictim,    ///< a region that goes away in the middle of the phase
    kRange,     ///< the good key, and an address beyond the region
    kWrap,      ///< the good key, and an address near the end of the address space
};

struct Sge {
    Range range;
    KeyKind key = KeyKind::kGood;
};

/// What becomes of a work request if nothing unforeseen happens.
enum class Fate : std::uint8_t { kSuccess, kFails, kFlushed };

struct SendOp {
    std::uint32_t opcode = 0;  ///< MANA_HW_RNIC_WQE_*
    std::vector<Sge> sges;
    Range remote;  ///< in the peer's arena: WRITE, WRITE_IMM, READ
    KeyKind rkey = KeyKind::kGood;
    std::uint32_t immediate = 0;
    bool fence = false;
    bool solicited = false;
    bool signaled = true;
    bool ring = true;  ///< the doorbell follows this one; else a later one of the same list has it
    base::Duration at{};
    Fate fate = Fate::kSuccess;
    std::uint32_t vendor = 0;  ///< kFails: its vendor error

    [[nodiscard]] std::uint32_t length() const {
        std::uint32_t total = 0;
        for (const Sge& sge : sges) total += sge.range.length;
        return total;
    }
    [[nodiscard]] bool is_read() const;
    [[nodiscard]] bool is_write() const;  ///< with or without immediate
    [[nodiscard]] bool takes_receive() const;
};

struct RecvOp {
    std::vector<Sge> sges;
    base::Duration at{};
    [[nodiscard]] std::uint32_t length() const {
        std::uint32_t total = 0;
        for (const Sge& sge : sges) total += sge.range.length;
        return total;
    }
};

/// What a phase has in store for a connection. Up to kRnrExhaustion its outcome does not depend on
/// time, so that all paths have to agree on it.
enum class Plan : std::uint8_t {
    kTraffic,
    kRemoteAccess,  ///< a request with a key that does not allow it
    kTooLong,       ///< a SEND longer than the receive
    kReceiveFault,  ///< a receive whose memory may not be written
    kGatherFault,   ///< a send or WRITE whose memory may not be read
    kScatterFault,  ///< a READ whose memory may not be written
    kInvalidate,    ///< SEND with invalidate of an ordinary key
    kRnrExhaustion,
    kHostError,      ///< side 0's host moves its QP to ERR
    kHostReset,      ///< side 0's host resets its QP
    kDestroy,        ///< side 0's host destroys its QP
    kDeregister,     ///< side 1's victim region is deregistered
    kUnmap,          ///< the memory of side 1's victim region is unmapped
    kFunctionReset,  ///< the NIC of the first connection's side 0 is reset, and out of the run
};
[[nodiscard]] const char* name(Plan plan);
[[nodiscard]] inline bool races(Plan plan) {
    return plan >= Plan::kHostError;
}

struct SidePlan {
    std::vector<SendOp> sends;
    std::vector<RecvOp> receives;
};
struct ConnectionPlan {
    Plan plan = Plan::kTraffic;
    std::array<SidePlan, 2> side;
    base::Duration event_at{};
    bool host_follows = true;  ///< an error CQE makes the host move its QP to ERR
    /// The receive error that side 1 gets, beyond flushes; 0: none.
    std::uint32_t receive_vendor = 0;
};
struct Phase {
    std::vector<ConnectionPlan> connections;
};

struct ConnectionSetup {
    std::array<unsigned, 2> node{};
    std::uint32_t mtu = 1024;
    std::uint8_t timeout = 8;
    std::uint32_t retries = 7;
    std::uint32_t rnr_retry = 7;
    std::uint32_t rnr_timer = 1;
    bool scarce = false;       ///< receives may come too late for `rnr_retry`
    std::uint32_t reads = 16;  ///< depth of READs
    std::uint32_t ring = 8192;
    std::array<std::uint32_t, 2> psn{};  ///< first PSN of each side
};

/// One run: all that hosts do, drawn from the seed before anything happens. The arena's halves
/// take turns: one is only read in a phase, the other is only written, each byte for one purpose.
struct Script {
    explicit Script(std::uint64_t seed);

    std::uint64_t seed;
    unsigned nodes = 2;
    bool ipv6 = false;
    bool shared_cqs = false;
    std::uint32_t arena = 0;
    std::uint32_t window = 256;
    std::vector<ConnectionSetup> connections;
    std::vector<Phase> phases;
};

}  // namespace openmana::sim
