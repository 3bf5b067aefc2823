// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "gdma/id_pool.h"
#include "rnic/adapter_events.h"
#include "rnic/addresses.h"
#include "rnic/counters.h"
#include "rnic/ext_queues.h"
#include "rnic/inbox.h"
#include "rnic/qp.h"
#include "rnic/qp_table.h"
#include "rnic/record_watch.h"
#include "rnic/rnic.h"
#include "rnic/scheduler.h"
#include "rnic/scratch.h"

namespace openmana::rnic {

// Handles: a mark and the id.
constexpr std::uint64_t kCqHandle = 0xcc00000000000000ULL;
constexpr std::uint64_t kQpHandle = 0xcd00000000000000ULL;
constexpr std::uint64_t kSrqHandle = 0xce00000000000000ULL;
constexpr std::uint64_t kAdapterHandle = 0xada0000000000001ULL;

/// QP 1 has the number that the IB architecture gives it.
constexpr gdma::Rqn kGsiRq{1};

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
struct Adapter {
    Adapter(Rnic& owner, gdma::Function& function, RnicConfig config, Network& network);

    // commands.cc, modify_qp.cc
    void command(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    void reset();

    [[nodiscard]] Qp* find_qp(std::uint32_t qpn) const { return qps.find(qpn); }
    [[nodiscard]] const gdma::MemoryTable& keys() const { return function.keys(); }
    [[nodiscard]] bool error_cqes() const { return error_cqes_wanted || config.error_cqes_unasked; }

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
    /// Gives a frame of the QP to the network, counting it. Its size.
    std::size_t transmit(Qp& qp, const roce::Packet& packet, Spans payload);
    // congestion.cc
    void notify_congestion(Qp& qp, const roce::Packet& marked);
    void handle_cnp(const roce::Packet& cnp);
    [[nodiscard]] std::uint32_t line_rate_mbps() const;
    // dispatch.cc
    void handle_frames(std::span<const base::Frame> frames);
    void handle_frame(std::span<const std::byte> frame);
    void handle_request(Qp& qp, const roce::Packet& packet);
    void count_drop(roce::DropReason reason);
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
    Addresses addresses;
    AdapterEvents events;
    RecordWatch records;
    std::vector<gdma::Handle<gdma::CompletionQueue>> cqs;  // by id; QPs hold them, too
    std::vector<gdma::Handle<SharedReceiveQueue>> srqs;    // by id; QPs hold them, too
    std::optional<gdma::IdPool> srq_ids;
    struct Group {
        roce::Gid gid;
        std::vector<std::uint32_t> qpns;
    };
    std::vector<Group> groups;  // multicast, of extended QPs
    base::BlockPool qp_memory;  // outlives `qps`
    QpTable qps;
    Scheduler scheduler;
    Inbox inbox;
    std::vector<std::uint32_t> datagram_qps;  // QPNs of stock UD QPs
    std::uint64_t function_epoch = 0;         // counts resets of ours
    std::uint64_t next_life = 1;              // of QPs: never given twice
    std::uint32_t current_rate_mbps = 0;      // of the QP whose rate changed last

private:
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
    std::uint32_t modify_qp(Qp& qp, const mana_hw_rnic_set_qp_state_req& message, bool extended);
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

    std::shared_ptr<int> alive = std::make_shared<int>(0);  // for posted tasks
    std::vector<std::uint32_t> batch;                       // QPNs that got frames
};

}  // namespace openmana::rnic
