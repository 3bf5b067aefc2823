// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/state.h"
#include "base/wall_time.h"
#include "fabric/flow_key.h"
#include "fabric/frame_headers.h"
#include "fabric/psn_record.h"
#include "roce/packet.h"

namespace openmana::fabric {

/// What was seen of one connection. The flow log's executor.
class FlowRecord {
public:
    /// One direction's sums.
    struct Half {
        std::uint64_t frames = 0, bytes = 0, payload = 0, operations = 0;
        PsnRecord requests, responses;
        std::uint32_t unsettled_read = 0;  // length of the last READ, if its PSNs are unknown
        bool finished = false;             // FIN seen
        template <typename Archive, typename Self>
        static void fields(Archive& a, Self& self) {
            a(self.frames, self.bytes, self.payload, self.operations, self.requests, self.responses,
              self.unsettled_read, self.finished);
        }
    };

    FlowKey key;
    std::uint64_t order = 0;  // in which the flow log took them up; not in a state
    bool ipv4 = true;
    base::TimePoint start{}, last{};
    Half halves[kDirections];
    std::uint64_t errors = 0, rnr = 0, retransmits = 0, marked = 0, denied = 0, dropped = 0;
    std::uint32_t path_mtu = 0;     // of RDMA, 0 until a packet has shown it
    const char* failure = nullptr;  // of RC: why the NIC gave it up
    bool closing = false;
    Direction opened = Direction::kTransmit;
    unsigned pairing_attempts = 0;

    [[nodiscard]] Half& half(Direction direction) { return halves[index(direction)]; }
    [[nodiscard]] bool paired() const {
        return key.local != FlowKey::kUnknown && key.remote != FlowKey::kUnknown;
    }
    /// Both ends have closed, or one has broken it off (TCP).
    [[nodiscard]] bool over() const { return reset_ || (halves[0].finished && halves[1].finished); }

    /// A frame that the policy lets through.
    void count_frame(Direction direction, const FrameHeaders& headers,
                     std::span<const std::byte> frame);
    void count_tcp(Direction direction, const FrameHeaders& headers,
                   std::span<const std::byte> frame);
    /// From the base transport header to the end of the payload.
    void count_request(Direction direction, std::span<const std::byte> bth);
    void count_response(Direction direction, std::span<const std::byte> bth);
    /// Takes a frame back that was counted and then dropped.
    void count_drop(Direction direction, const FrameHeaders& headers,
                    std::span<const std::byte> frame);
    /// Adds the other direction of the same connection, seen on its own so far.
    void join(const FlowRecord& other);

    /// All but its order and times, and why the NIC gave it up.
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
        a(self.key, self.ipv4, self.halves[0], self.halves[1], self.errors, self.rnr,
          self.retransmits, self.marked, self.denied, self.dropped, self.path_mtu, self.closing);
        a.choice(self.opened, Direction::kReceive);
        a(self.pairing_attempts, self.reset_);
    }
    /// A line of the flow log; without a reason for the start of the connection.
    [[nodiscard]] std::string line(const std::string& nic, const base::WallTime& wall,
                                   const char* reason) const;

private:
    void learn_path_mtu(const roce::OpcodeInfo& info, std::size_t payload);

    bool reset_ = false;
};

/// The part of a RoCEv2 packet from its base transport header to the end of the payload; empty if
/// the packet is too short.
[[nodiscard]] std::span<const std::byte> bth_of(const FrameHeaders& headers,
                                                std::span<const std::byte> frame);

}  // namespace openmana::fabric
