// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "rnic/qp.h"
#include "roce/packet.h"

namespace openmana::sim {

/// What a bystander with a view of one QP and its wire holds against the rules (ROCE 10.8,
/// invariants 5 to 8, 10, 11, 14). Each check returns what is wrong, or an empty text.
class WireCheck {
public:
    struct Limits {
        std::uint32_t mtu = 1024;
        std::uint32_t reads = 16;
        std::uint32_t window = 256;
        bool wire_only = false;
    };
    /// A new life of the QP: it sends from `first` on and expects `expected`.
    void start(const Limits& limits, roce::Psn first, roce::Psn expected);
    /// A frame of this QP, before the network gets it. `messages`: what the peer's host has posted.
    [[nodiscard]] std::string sent(const rnic::Qp& qp, const roce::Packet& packet,
                                   std::uint64_t messages);
    /// A request for this QP, before it is dealt with.
    void arriving(const rnic::Qp& qp, const roce::Packet& packet);
    /// Where the QP stands, for a message.
    [[nodiscard]] static std::string position(const rnic::Qp& qp);
    /// At any time when nothing is going on at the moment.
    [[nodiscard]] std::string at_rest(const rnic::Qp& qp);
    /// What holds of a QP after RESET, too.
    [[nodiscard]] static std::string timers(const rnic::Qp& qp);

private:
    [[nodiscard]] std::string request(const rnic::Qp& qp, const roce::Packet& packet);
    [[nodiscard]] std::string response(const rnic::Qp& qp, const roce::Packet& packet,
                                       std::uint64_t messages);
    [[nodiscard]] bool answers_duplicate(const roce::Packet& packet);

    /// What a request packet was when it was first sent.
    struct Sent {
        bool known = false;
        roce::Opcode opcode{};
        std::size_t payload = 0;
        std::uint32_t length = 0;
    };
    Limits limits_;
    roce::Psn first_{};
    roce::Psn next_{};                // of requests sent
    std::vector<Sent> requests_;      // from first_ on; the PSNs of READ data are empty
    roce::Psn arrived_{};             // the highest request seen coming in, plus one
    std::uint64_t again_ = 0;         // requests that came in at or behind what had come before
    std::uint64_t again_before_ = 0;  // when expected_ last moved
    roce::Psn expected_{};            // last seen of the responder
    bool answered_ = false;
    roce::Psn last_response_{};
    bool last_was_nak_ = false;
    // Duplicates that came in while something is owed, and are not answered yet: of READs and
    // atomics by their PSNs, and how many others asked for an ACK.
    std::multiset<std::uint32_t> fetched_again_;
    std::uint64_t asked_again_ = 0;
    std::uint32_t msn_ = 0;
    roce::Psn nak_psn_{};
    std::uint64_t naks_ = 0;       // with nak_psn_
    std::uint64_t naks_base_ = 0;  // again_before_ at the first of them
    bool fatal_sent_ = false;
    bool ended_ = false;  // in ERR, and nothing is owed
};

}  // namespace openmana::sim
