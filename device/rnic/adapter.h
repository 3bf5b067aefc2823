// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "rnic/counters.h"
#include "rnic/qp.h"
#include "rnic/rnic.h"

namespace openmana::rnic {

/// The adapter of a function: its addresses and objects, and who is served next. Tables change on
/// the executor under an exclusion of the gate; visitors read them.
struct Rnic::Impl {
    Impl(Rnic& owner, gdma::Function& function, RnicConfig config, Network& network);

    // commands.cc, qp_state.cc
    void command(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    void reset();

    [[nodiscard]] Qp* find_qp(std::uint32_t qpn) const {
        return qpn < qps.size() ? qps[qpn].get() : nullptr;
    }
    [[nodiscard]] bool owns(const roce::Gid& gid) const;
    [[nodiscard]] bool owns(const base::MacAddr& mac) const;
    [[nodiscard]] const gdma::MemoryTable& keys() const { return function.keys(); }
    [[nodiscard]] bool error_cqes() const { return error_cqes_wanted || config.error_cqes_unasked; }

    /// Gives the QP a turn later, behind the others.
    void schedule(Qp& qp);
    /// Runs `task(qp)` on the executor if the QP is then still in the same life. From any thread.
    template <typename F>
    void post_to(const Qp& qp, F task) {
        function.executor().post([token = std::weak_ptr<int>(alive), this, qpn = qp.qpn(),
                                  life = qp.life, epoch = function_epoch, task] {
            if (token.expired() || epoch != function_epoch) return;
            Qp* found = find_qp(qpn);
            if (found != nullptr && found->life == life) task(*found);
        });
    }
    void post_fatal_event(const Qp& qp);

    /// Gives a frame to the network, counting it. Its size.
    std::size_t transmit(const roce::Packet& packet, Spans payload);
    // congestion.cc
    void notify_congestion(Qp& qp, const roce::Packet& marked);
    void handle_cnp(const roce::Packet& cnp);
    [[nodiscard]] std::uint32_t line_rate_mbps() const;
    // wire_rx.cc
    void receive(std::span<const std::byte> frame);
    void handle_frames();
    void handle_frame(std::span<const std::byte> frame);
    void handle_request(Qp& qp, const roce::Packet& packet);
    // ud.cc
    /// On the executor or during a visit.
    void deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length);
    /// A datagram to a group, for each QP that listens.
    void deliver_to_group(const roce::Packet& packet, Spans payload, std::size_t length);

    Rnic& owner;
    gdma::Function& function;
    const RnicConfig config;
    Network& network;
    RnicCounters counters;
    Scratch scratch;

    bool created = false;
    bool error_cqes_wanted = false;
    gdma::Eqn event_eq{};
    struct Address {
        roce::Gid gid;
        std::uint32_t uses;
    };
    std::vector<Address> addresses;
    std::vector<base::MacAddr> macs;
    struct Cq {
        gdma::CompletionQueue* queue = nullptr;
        std::uint32_t users = 0;
    };
    std::vector<Cq> cqs;                      // by id
    std::vector<std::unique_ptr<Qp>> qps;     // by QPN
    std::vector<std::uint32_t> datagram_qps;  // QPNs of UD QPs but the GSI QP
    std::uint32_t qp_count = 0;
    std::uint64_t function_epoch = 0;     // counts resets of ours
    std::uint64_t next_life = 1;          // of QPs: never given twice
    std::uint32_t current_rate_mbps = 0;  // of the QP whose rate changed last

private:
    friend class Rnic;
    void query_caps(gdma::HwcReply& reply);
    std::uint32_t create_adapter(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t config_address(const gdma::HwcRequest& request);
    std::uint32_t config_mac(const gdma::HwcRequest& request);
    std::uint32_t create_cq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_cq(const gdma::HwcRequest& request);
    std::uint32_t create_rc_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t create_ud_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_qp(const gdma::HwcRequest& request, bool rc);
    std::uint32_t set_qp_state(const gdma::HwcRequest& request);
    std::uint32_t apply(Qp& qp, const mana_hw_rnic_set_qp_state_req& message, bool extended);
    void vf_counters(gdma::HwcReply& reply) const;
    void device_counters(gdma::HwcReply& reply) const;
    [[nodiscard]] gdma::CompletionQueue* cq_of(std::uint64_t handle) const;
    void insert_qp(std::unique_ptr<Qp> qp, gdma::DoorbellPage page);
    void remove_qp(Qp& qp);
    void pump();

    std::shared_ptr<int> alive = std::make_shared<int>(0);
    std::deque<std::uint32_t> ready;  // QPNs that wait for a turn
    bool pump_posted = false;
    std::vector<std::uint32_t> batch;  // QPNs that got frames

    std::mutex inbox_mutex;  // protects inbox, inbox_bytes and spare
    std::vector<base::Frame> inbox;
    std::size_t inbox_bytes = 0;
    std::vector<base::Frame> spare;    // for their capacity
    std::vector<base::Frame> handled;  // swapped with inbox, so that both keep their capacity
};

}  // namespace openmana::rnic
