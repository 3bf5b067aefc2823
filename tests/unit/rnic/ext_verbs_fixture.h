// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "ext_fixture.h"

namespace openmana::test {

/// What the tests of the extension's verbs share: two queue pairs that are connected, on the local
/// path or on the wire, and who does one request.
class ExtVerbsTest : public ExtPathTest {
protected:
    /// Executes one request of A and gives its completion.
    mana_hw_ext_cqe done(const ExtWr& wr) {
        const std::size_t before = link->sent.size();
        link->a.post(wr);
        EXPECT_TRUE(link->run(before + 1));
        return link->sent.size() > before ? link->sent[before] : mana_hw_ext_cqe{};
    }
    ExtWr bind(const DriverMr& window, std::uint32_t new_key, std::uint64_t offset,
               std::uint64_t length, std::uint32_t access) {
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_BIND_MW;
        wr.bind.emplace();
        wr.bind->mw_key = window.rkey;
        wr.bind->new_key = new_key;
        wr.bind->mr_key = link->a.mr.lkey;
        wr.bind->access = access;
        wr.bind->address = link->a.buffer.value() + offset;
        wr.bind->length = length;
        return wr;
    }
    /// A SEND by A to B's queue pair, of `length` bytes of A's buffer.
    ExtWr datagram(std::uint64_t from, std::uint32_t length, std::uint32_t qkey) {
        ExtWr wr;
        if (length > 0) wr.sges = {link->a.sge(from, length)};
        wr.ud.emplace();
        const auto& target = link->b.node->host;
        std::ranges::copy(link->a.node->host.gid(), wr.ud->source_gid);
        std::ranges::copy(target.gid(), wr.ud->dest_gid);
        std::ranges::copy(target.mac(), wr.ud->dest_mac);
        wr.ud->dest_qpn = link->b.qp.qpn;
        wr.ud->qkey = qkey;
        return wr;
    }
    /// A WRITE of 16 bytes by B through a key of A, by the queue pair of the link or another; its
    /// status.
    std::uint8_t write_by_b(std::uint32_t key, std::uint64_t address, ExtQp* by = nullptr) {
        ExtWr wr;
        wr.opcode = MANA_HW_EXT_WQE_WRITE;
        wr.sges = {link->b.sge(0, 16)};
        wr.rkey = key;
        wr.remote_address = address;
        link->b.host->post(by != nullptr ? *by : link->b.qp, wr);
        std::optional<mana_hw_ext_cqe> cqe;
        EXPECT_TRUE(link->world.run_until(
            [&] { return (cqe = link->b.send_cq.poll()).has_value(); }, std::chrono::seconds(60)));
        return cqe ? cqe->status : 0xff;
    }
    /// One more connection between the two; A's queue pair first.
    std::pair<ExtQp, ExtQp> another() {
        auto a = link->a.host->create_qp(link->a.send_cq, link->a.recv_cq);
        auto b = link->b.host->create_qp(link->b.send_cq, link->b.recv_cq);
        OM_CHECK(a && b);
        const auto peer = [&](const ExtLink::Side& side, const ExtQp& qp) {
            return Peer{side.node->host.gid(), side.node->host.mac(), qp.qpn, ExtLink::kPsn};
        };
        OM_CHECK(link->b.host->connect(*b, ExtLink::kPsn, peer(link->a, *a)));
        OM_CHECK(link->a.host->connect(*a, ExtLink::kPsn, peer(link->b, *b)));
        return {*a, *b};
    }
};

}  // namespace openmana::test
