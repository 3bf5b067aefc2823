// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "gdma/function.h"
#include "gdma/id_pool.h"
#include "rnic/config.h"
#include "rnic/datapath.h"
#include "rnic/dispatcher.h"
#include "rnic/inbox.h"
#include "rnic/network.h"
#include "rnic/qp.h"
#include "rnic/qp_table.h"
#include "rnic/shared_receive_queue.h"

namespace openmana::rnic {

struct ExtQueues;

// Handles: a mark and the id.
constexpr std::uint64_t kCqHandle = 0xcc00000000000000ULL;
constexpr std::uint64_t kQpHandle = 0xcd00000000000000ULL;
constexpr std::uint64_t kSrqHandle = 0xce00000000000000ULL;
constexpr std::uint32_t kMaxSrqs = 16384;
/// Bytes of the rings of a stock queue pair: of its SQ and its RQs at least, and of any at most.
constexpr std::uint64_t kMinSendRing = 512;
constexpr std::uint64_t kMinReceiveRing = 256;
constexpr std::uint64_t kMaxRing = 1ULL << 31;
/// Whether a region can hold the rings of an extended queue pair, or of an SRQ, and the record
/// behind them, and whether there are such rings.
struct ExtRings {
    std::uint32_t sq_bytes = 0;
    std::uint32_t rq_bytes = 0;
    std::uint32_t rq_stride = 0;
    bool shared = false;  ///< receives come from an SRQ
};
[[nodiscard]] bool ext_rings_fit(const gdma::DmaRegion& region, const ExtRings& rings);
[[nodiscard]] bool srq_fits(const gdma::DmaRegion& region, std::uint32_t ring_bytes,
                            std::uint32_t stride);
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

/// The control side of an RNIC: commands, and the tables of what they make. What queue pairs work
/// with is the data path's. Visitors look at queue pairs, addresses and a few flags: for changes of
/// these alone the gate is closed, so that the rest of a command keeps nobody waiting.
struct Adapter {
    Adapter(gdma::Function& function, const RnicConfig& config, Network& network);

    // commands.cc
    void command(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    void reset();

    // adapter_state.cc: see gdma::Client
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

    gdma::Function& function;
    Datapath datapath;
    QpTable qps;
    Dispatcher dispatcher;
    Inbox inbox;

private:
    void query_caps(gdma::HwcReply& reply);
    std::uint32_t create_adapter(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t config_address(const gdma::HwcRequest& request);
    std::uint32_t config_mac(const gdma::HwcRequest& request);
    std::uint32_t create_cq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_cq(const gdma::HwcRequest& request);
    std::uint32_t create_rc_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t create_uc_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t create_ud_qp(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_qp(const gdma::HwcRequest& request, bool connected);
    std::uint32_t set_qp_state(const gdma::HwcRequest& request);
    std::uint32_t modify_qp(Qp& qp, const mana_hw_rnic_set_qp_state_req& message, bool whole,
                            std::uint16_t tci);
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
    std::uint32_t ext_grant_source(const gdma::HwcRequest& request);
    std::uint32_t ext_revoke_source(const gdma::HwcRequest& request);
    std::uint32_t ext_config_address(const gdma::HwcRequest& request);
    std::uint32_t ext_set_qp_state(const gdma::HwcRequest& request);
    void save_qp(base::StateWriter& out, const Qp& qp) const;
    [[nodiscard]] Qp* load_qp(base::StateReader& in);
    [[nodiscard]] Qp* load_stock(base::StateReader& in, QpType type, const QpIds& ids, QpUses uses);
    [[nodiscard]] Qp* load_extended(base::StateReader& in, QpType type, const QpIds& ids,
                                    QpUses uses);
    void save_cqs(base::StateWriter& out) const;
    void require_extensions(base::StateReader& in, bool needed) const;
    void load_cqs(base::StateReader& in);
    void save_srqs(base::StateWriter& out) const;
    void load_srqs(base::StateReader& in);
    void watch_overrun(gdma::CompletionQueue& cq);
    void cq_overrun(std::uint32_t id);
    void fail_users(std::size_t place);
    void tell_of_full_cqs();
    /// Null if there is no such QP.
    [[nodiscard]] Qp* qp_of(std::uint64_t handle) const;
    /// Null if there is no such QP whose queues are of this format.
    template <typename Format>
    [[nodiscard]] QpWith<Format>* qp_with(std::uint64_t handle) const {
        return dynamic_cast<QpWith<Format>*>(qp_of(handle));
    }
    [[nodiscard]] QpWith<ExtQueues>* ext_qp(std::uint64_t handle) const;
    /// Null if there is no such SRQ.
    [[nodiscard]] gdma::Handle<SharedReceiveQueue> srq_of(std::uint64_t handle) const;
    void vf_counters(gdma::HwcReply& reply) const;
    void device_counters(gdma::HwcReply& reply) const;
    /// Null if there is no such CQ.
    [[nodiscard]] gdma::Handle<gdma::CompletionQueue> cq_of(std::uint64_t handle) const;
    /// What the messages that make a QP name alike.
    struct NewQp {
        std::uint64_t pd;
        std::uint64_t send_cq;
        std::uint64_t recv_cq;
        std::uint32_t doorbell_page;
    };
    /// Its SQs and RQs, so many of each; the first id is a multiple of `align`.
    struct NewIds {
        std::uint32_t count;
        std::uint32_t align;
        bool gsi = false;  ///< one RQ, with the id that packets for QP 1 go to
    };
    [[nodiscard]] base::Result<QpUses> uses_of(const NewQp& named, const NewIds& wanted);
    /// Doorbells and visitors reach a new QP from now on. `reads`: the doorbell of its READ scatter
    /// queue.
    void connect(Qp& qp, gdma::DoorbellTarget* reads = nullptr);
    /// A QP that is unlinked goes, with what it held.
    void free_qp(Qp& qp);
    /// All that is reached through queue pairs goes; these, which are of unlink_all(), too.
    void free_all(std::vector<Qp*>&& unlinked);

    /// CQs that are full and whose queue pairs fail, in rounds over all of these: one is for all
    /// CQs that were full when it began.
    struct FullCqs {
        std::vector<std::uint32_t> round, next;
        bool under_way = false;
    };

    bool created = false;
    bool extensions_wanted = false;
    FullCqs full_cqs;
    std::vector<gdma::Handle<gdma::CompletionQueue>> cqs;  // by id; QPs hold them, too
    std::vector<gdma::Handle<SharedReceiveQueue>> srqs;    // by id; QPs hold them, too
    std::optional<gdma::IdPool> srq_ids;
};

}  // namespace openmana::rnic
