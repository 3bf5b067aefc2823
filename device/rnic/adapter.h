// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "gdma/id_pool.h"
#include "rnic/counters.h"
#include "rnic/ext_queues.h"
#include "rnic/qp.h"
#include "rnic/rnic.h"

namespace openmana::rnic {

// Handles: a mark and the id.
constexpr std::uint64_t kCqHandle = 0xcc00000000000000ULL;
constexpr std::uint64_t kQpHandle = 0xcd00000000000000ULL;
constexpr std::uint64_t kSrqHandle = 0xce00000000000000ULL;
constexpr std::uint64_t kAdapterHandle = 0xada0000000000001ULL;

/// The request as its structure; what an older driver does not send is zero.
template <typename T>
T read_message(const gdma::HwcRequest& request) {
    T message{};
    std::memcpy(&message, request.bytes().data(), std::min(sizeof message, request.size()));
    return message;
}

/// Writes a response but for its header, which the hardware channel fills in.
template <typename T>
void write_message(gdma::HwcReply& reply, const T& message) {
    constexpr std::size_t kHead = sizeof(mana_hw_rnic_resp_head);
    reply.put_bytes(kHead, std::as_bytes(std::span(&message, 1)).subspan(kHead));
}

/// The adapter of a function: its addresses and objects, and who is served next. Tables change on
/// the executor under an exclusion of the gate; visitors read them.
struct Rnic::Impl final : base::Poller {
    Impl(Rnic& owner, gdma::Function& function, RnicConfig config, Network& network);

    ~Impl() override;

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
    /// True if the network has no room for frames of this QP; then it gets a turn when there is.
    [[nodiscard]] bool hold_back(Qp& qp);
    void post_fatal_event(const Qp& qp);
    // ext_adapter.cc
    /// An event of the extension: `number` is that of IB, `id` that of the object.
    void post_event(std::uint32_t id, std::uint32_t number);
    /// From now on the producer of its sends is looked at, for some time, if not too many are.
    void watch(ExtQueues& queues);
    void unwatch(ExtQueues& queues);
    State poll() override;

    /// Gives a frame of the QP to the network, counting it. Its size.
    std::size_t transmit(Qp& qp, const roce::Packet& packet, Spans payload);
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
    bool extensions_wanted = false;
    gdma::Handle<gdma::EventQueue> event_eq;
    struct Address {
        roce::Gid gid;
        std::uint32_t uses;
    };
    std::vector<Address> addresses;
    std::vector<base::MacAddr> macs;
    std::vector<gdma::Handle<gdma::CompletionQueue>> cqs;  // by id; QPs hold them, too
    std::vector<ExtQueues*> watched;                       // their SQs are looked at
    std::vector<gdma::Handle<SharedReceiveQueue>> srqs;    // by id; QPs hold them, too
    std::optional<gdma::IdPool> srq_ids;
    struct Group {
        roce::Gid gid;
        std::vector<std::uint32_t> qpns;
    };
    std::vector<Group> groups;  // multicast, of extended QPs
    base::BlockPool qp_memory;  // outlives `qps`
    std::vector<QpPtr> qps;     // by QPN
    /// Changes whenever a QP comes or goes, and is never that of another adapter: who found one
    /// finds the same one as long as this is the same.
    std::uint64_t qps_generation = next_generation();
    std::vector<std::uint32_t> datagram_qps;  // QPNs of stock UD QPs
    std::uint32_t qp_count = 0;
    std::uint64_t function_epoch = 0;     // counts resets of ours
    std::uint64_t next_life = 1;          // of QPs: never given twice
    std::uint32_t current_rate_mbps = 0;  // of the QP whose rate changed last

private:
    friend class Rnic;
    static std::uint64_t next_generation() {
        static std::atomic<std::uint64_t> next{1};
        return next.fetch_add(1, std::memory_order_relaxed);
    }
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
    std::uint32_t ext_command(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    void ext_query_caps(gdma::HwcReply& reply) const;
    std::uint32_t ext_create_cq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_resize_cq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_create_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_destroy_qp(const gdma::HwcRequest& request);
    std::uint32_t ext_query_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_query_qp_counters(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_create_srq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_srq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t ext_multicast(const gdma::HwcRequest& request);
    std::uint32_t ext_modify_mr(const gdma::HwcRequest& request);
    std::uint32_t ext_copy_dm(const gdma::HwcRequest& request);
    void leave_groups(std::uint32_t qpn);
    void cq_overrun(std::uint32_t id);
    [[nodiscard]] Qp* ext_qp(std::uint64_t handle) const;
    /// Null if there is no such SRQ.
    [[nodiscard]] gdma::Handle<SharedReceiveQueue> srq_of(std::uint64_t handle) const;
    void vf_counters(gdma::HwcReply& reply) const;
    void device_counters(gdma::HwcReply& reply) const;
    /// Null if there is no such CQ.
    [[nodiscard]] gdma::Handle<gdma::CompletionQueue> cq_of(std::uint64_t handle) const;
    template <typename Format, typename Layout>
    [[nodiscard]] QpPtr make_qp(QpType type, Qp::Ids ids, Qp::Uses uses, Layout layout) {
        return QpPtr(new (qp_memory.take())
                         QpWith<Format>(*this, type, ids, std::move(uses), std::move(layout)));
    }
    void insert_qp(QpPtr qp);
    void remove_qp(Qp& qp);
    void pump();
    void serve(Qp& qp);
    void serve_held();

    std::shared_ptr<int> alive = std::make_shared<int>(0);
    std::deque<std::uint32_t> ready;  // QPNs that wait for a turn
    bool pump_posted = false;
    std::deque<std::uint32_t> held;  // QPNs that the network has no room for
    base::Timer held_timer;
    std::vector<std::uint32_t> batch;  // QPNs that got frames

    std::mutex inbox_mutex;  // protects inbox, inbox_bytes and spare
    std::vector<base::Frame> inbox;
    std::size_t inbox_bytes = 0;
    std::vector<base::Frame> spare;    // for their capacity
    std::vector<base::Frame> handled;  // swapped with inbox, so that both keep their capacity
};

}  // namespace openmana::rnic
