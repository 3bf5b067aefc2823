// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rnic_fixture.h"

namespace openmana::test {

/// A connection over frames, with frames of the test's own making among them.
class WireCase : public ::testing::Test {
protected:
    void open(const Connection::Options& options = Connection::Options(),
              const rnic::RnicConfig& config = {}) {
        link = std::make_unique<Connection>(false, options, config);
        Connection::fill(link->a.at(0, 1 << 20), 1);
        Connection::fill(link->b.at(1 << 20, 1 << 20), 2);
    }
    [[nodiscard]] bool same(std::uint64_t at_a, std::uint64_t at_b, std::uint64_t length) const {
        return std::ranges::equal(link->a.at(at_a, length), link->b.at(at_b, length));
    }
    [[nodiscard]] bool zero_at_b(std::uint64_t at, std::uint64_t length) const {
        return std::ranges::all_of(link->b.at(at, length),
                                   [](std::byte b) { return b == std::byte{0}; });
    }
    /// Loses the frames for which `match` holds, at most `times` of them.
    void lose(std::function<bool(const roce::Packet&)> match, int times = 1) {
        link->network.fate = [match, times](const roce::Packet& packet) mutable {
            Fate fate;
            if (times > 0 && match(packet)) {
                fate.lose = true;
                --times;
            }
            return fate;
        };
    }
    static std::function<bool(const roce::Packet&)> request(std::uint32_t psn) {
        return
            [psn](const roce::Packet& p) { return p.psn == roce::Psn(psn) && !p.info().response; };
    }
    static std::function<bool(const roce::Packet&)> response(std::uint32_t psn) {
        return
            [psn](const roce::Packet& p) { return p.psn == roce::Psn(psn) && p.info().response; };
    }
    static bool is_ack(const roce::Packet& p) {
        return p.opcode == roce::Opcode::kAcknowledge && p.aeth.syndrome == 0x1f;
    }
    /// A packet of the connection towards one end, as the other would send it.
    [[nodiscard]] roce::Packet to(const Connection::Side& end, roce::Opcode opcode,
                                  std::uint32_t psn) const {
        const Connection::Side& other = &end == &link->a ? link->b : link->a;
        roce::Packet p;
        p.destination_mac = end.node->host.mac();
        p.source_mac = other.node->host.mac();
        p.source = other.node->host.gid();
        p.destination = end.node->host.gid();
        p.opcode = opcode;
        p.destination_qpn = roce::Qpn(end.qp->qpn());
        p.psn = roce::Psn(psn);
        p.ack_request = true;
        p.reth = {end.buffer.value(), roce::RKey(end.mr.rkey), 0};
        p.aeth = {0x1f, 1};
        return p;
    }
    /// Delivers it, with a payload of `bytes` bytes of 0x5a.
    void inject(const Connection::Side& end, roce::Packet packet, std::uint32_t bytes = 0) {
        const std::vector<std::byte> payload(bytes, std::byte{0x5a});
        packet.payload = payload;
        base::Frame frame;
        roce::encode(packet, frame);
        end.node->rnic.receive(frame);
        link->world.run_until_idle();
        link->poll();
    }
    void write(std::uint64_t id, std::uint32_t length, std::uint64_t at = 0, bool ring = true) {
        link->post(link->wr(MANA_HW_RNIC_WQE_WRITE, id, at, length, at), ring);
    }
    void send(std::uint64_t id, std::uint32_t length, bool ring = true) {
        link->post(link->wr(MANA_HW_RNIC_WQE_SEND, id, 0, length), ring);
    }
    void read(std::uint64_t id, std::uint32_t length, bool ring = true) {
        link->post(link->wr(MANA_HW_RNIC_WQE_READ, id, 1 << 20, length, 1 << 20), ring);
    }
    [[nodiscard]] const std::vector<roce::Packet>& sent() const { return link->network.sent; }
    /// What went out, in one word each: "SF" SEND first, "WO" WRITE only, "RR" READ request, "A"
    /// ACK, "N" NAK, "RNR", "RF" ... READ responses; each with its PSN.
    [[nodiscard]] std::vector<std::string> story() const;
    [[nodiscard]] std::size_t naks(std::uint8_t syndrome) const {
        return static_cast<std::size_t>(
            std::count_if(sent().begin(), sent().end(), [&](const roce::Packet& p) {
                return p.opcode == roce::Opcode::kAcknowledge && p.aeth.syndrome == syndrome;
            }));
    }
    [[nodiscard]] std::size_t position(
        const std::function<bool(const roce::Packet&)>& match) const {
        return static_cast<std::size_t>(std::find_if(sent().begin(), sent().end(), match) -
                                        sent().begin());
    }
    const rnic::RnicCounters& at_a() { return link->a.node->rnic.counters(); }
    const rnic::RnicCounters& at_b() { return link->b.node->rnic.counters(); }
    /// All of A's operations succeeded, and B got that many receives.
    void expect_ok(std::size_t sends, std::size_t receives = 0) {
        ASSERT_EQ(link->a.done.size(), sends);
        ASSERT_EQ(link->b.done.size(), receives);
        for (const auto* side : {&link->a, &link->b})
            for (const Completion& c : side->done) EXPECT_EQ(c.vendor, 0U);
    }
    std::unique_ptr<Connection> link;
};

inline std::vector<std::string> WireCase::story() const {
    static constexpr const char* kNames[] = {"SF", "SM", "SL", "SL", "SO", "SO", "WF", "WM",
                                             "WL", "WL", "WO", "WO", "RR", "RF", "RM", "RL",
                                             "RO", "A",  "AA", "CS", "FA", "?",  "SL", "SO"};
    std::vector<std::string> words;
    for (const roce::Packet& p : sent()) {
        const auto opcode = static_cast<std::size_t>(p.opcode);
        std::string word = opcode < std::size(kNames) ? kNames[opcode] : "?";
        if (word == "A" && (p.aeth.syndrome & 0x60) == 0x60) word = "N";
        if (word == "A" && (p.aeth.syndrome & 0x60) == 0x20) word = "RNR";
        char psn[16];
        std::snprintf(psn, sizeof psn, "%x", p.psn.value());
        words.push_back(word + psn);
    }
    return words;
}

}  // namespace openmana::test
