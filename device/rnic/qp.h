// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/rnic_queue.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/executor.h"
#include "base/memory_account.h"
#include "base/prefetch.h"
#include "gdma/function.h"
#include "rnic/congestion.h"
#include "rnic/counters.h"
#include "rnic/error_report.h"
#include "rnic/network.h"
#include "rnic/qp_attributes.h"
#include "rnic/receive_wait.h"
#include "rnic/requester.h"
#include "rnic/responder.h"
#include "rnic/responses.h"
#include "rnic/send_format.h"

namespace openmana::rnic {

struct Datapath;

enum class QpType : std::uint8_t { kRc, kUd, kGsi, kUc };

/// The doorbell of the SQ of a QP.
struct SendDoorbell final : gdma::DoorbellTarget {
    explicit SendDoorbell(Qp& owner) : qp(owner) {}
    void ring(std::uint32_t position) override;
    void prepare(std::uint32_t position) const override;
    Qp& qp;
};
/// And that of its RQ.
struct ReceiveDoorbell final : gdma::DoorbellTarget {
    explicit ReceiveDoorbell(Qp& owner) : qp(owner) {}
    void ring(std::uint32_t position) override;
    Qp& qp;
};

/// Queue ids of a QP.
struct QpIds {
    gdma::Sqn sq{};    ///< stock RC: requester SQ; +1 responder SQ, +2 fast register
    gdma::Rqn rq{};    ///< the QP number. Stock RC: responder RQ
    gdma::Rqn rreq{};  ///< stock RC: requester RQ
};

/// What a QP holds: none of it goes before the QP.
struct QpUses {
    gdma::Handle<gdma::Pd> pd;
    gdma::Handle<gdma::CompletionQueue> send_cq;
    gdma::Handle<gdma::CompletionQueue> recv_cq;
    gdma::Handle<gdma::PageGrant> page;  ///< of its doorbells
    gdma::SqIds sqs;
    gdma::RqIds rqs;
    base::MemoryAccount::Charge charge;  ///< Qp::growth()
};

/// What a QP has that few requests need. Its end, the core of the responder, is what those of the
/// peer need.
struct QpUpkeep {
    QpUpkeep(Qp& qp, QpUses& uses)
        : sqs(std::move(uses.sqs)),
          rqs(std::move(uses.rqs)),
          charge(std::move(uses.charge)),
          page(std::move(uses.page)),
          responses(qp),
          receive_doorbell(qp),
          responder(qp) {}
    virtual ~QpUpkeep() = default;
    QpUpkeep(const QpUpkeep&) = delete;
    QpUpkeep& operator=(const QpUpkeep&) = delete;

    const gdma::SqIds sqs;
    const gdma::RqIds rqs;
    const base::MemoryAccount::Charge charge;
    const gdma::Handle<gdma::PageGrant> page;
    ErrorReport* errors = nullptr;     ///< how the host learns of errors
    std::unique_ptr<Limiter> limiter;  ///< while congestion control slows this QP down
    Responses responses;
    std::unique_ptr<ReceiveWait> receive_wait;  ///< since a message first waited for its receive
    base::TimePoint next_cnp{};                 ///< no CNP before
    std::uint64_t life = 0;                     ///< counts RESETs, for tasks on their way
    QpEvents events;
    ReceiveDoorbell receive_doorbell;
    Responder responder;
};
static_assert(sizeof(QpUpkeep) % alignof(ResponderCore) == 0, "QpCore follows without a gap");

/// What the requests of both sides need: two cache lines.
struct alignas(64) QpCore {
    QpCore(Qp& qp, Datapath& datapath_in, QpType type_in, const QpIds& ids_in, QpUses uses)
        : send_doorbell(qp),
          datapath(datapath_in),
          pd(std::move(uses.pd)),
          send_cq(std::move(uses.send_cq)),
          recv_cq(std::move(uses.recv_cq)),
          ids(ids_in),
          type(type_in) {}

    SendDoorbell send_doorbell;
    Datapath& datapath;
    SendFormat* sends = nullptr;
    const gdma::Handle<gdma::Pd> pd;
    const gdma::Handle<gdma::CompletionQueue> send_cq;
    const gdma::Handle<gdma::CompletionQueue> recv_cq;
    const QpIds ids;
    const QpType type;
    bool scheduled = false;         ///< waits for a turn
    bool in_batch = false;          ///< got frames in this batch
    bool held = false;              ///< waits for room in the network
    bool gathering = false;         ///< waits for more of its work
    std::uint16_t queue_bytes = 0;  ///< of the queues, which follow: what sends need

protected:
    std::atomic<std::uint32_t> state_{MANA_HW_RNIC_QP_RESET};

public:
    QpRoute route;
};
static_assert(sizeof(QpCore) == 128);

/// A queue pair. Owned by its adapter, which links it when it is whole and unlinks it before it
/// goes, both under an exclusion of the function's gate: a visitor that found it may keep the
/// pointer for the visit.
///
/// Of thousands of queue pairs none is in a cache when its turn comes. So what a request needs lies
/// together and is asked for at once, both ends' by the doorbell: first what is seldom needed, then
/// ResponderCore, QpCore, the requester, and behind it the queues (QpWith).
struct Qp : QpUpkeep, QpCore {
    using Ids = QpIds;
    using Uses = QpUses;
    ~Qp() override;
    /// What one may take beside its own memory, whatever its owner and its peers do. Not its send
    /// queue beyond a few slots: see SendQueue.
    [[nodiscard]] static std::uint64_t growth();

    [[nodiscard]] Qpn qpn() const { return Qpn(ids.rq.value()); }
    /// What windows of type 2 are bound to.
    [[nodiscard]] gdma::WindowScope scope() const { return gdma::WindowScope(qpn().value()); }
    [[nodiscard]] std::uint32_t state() const { return state_.load(std::memory_order_acquire); }
    void set_state(std::uint32_t state);
    [[nodiscard]] bool connected() const { return type == QpType::kRc || type == QpType::kUc; }
    /// The SQ may have more work than before.
    void sends_posted();
    [[nodiscard]] bool responds() const {
        const std::uint32_t s = state();
        return s == MANA_HW_RNIC_QP_RTR || s == MANA_HW_RNIC_QP_RTS || s == MANA_HW_RNIC_QP_SQD ||
               s == MANA_HW_RNIC_QP_SQE;
    }

    /// A packet of this connection, less opcode, PSN and what the opcode adds.
    [[nodiscard]] roce::Packet packet() const;

    /// Looks after the limiter, which there must be: drops it if it has recovered.
    void tend_limiter();
    /// A packet with a mark has come: tells its sender, but not more often than once in an
    /// interval.
    void notify_congestion(const roce::Packet& marked);

    /// What its requests need, with its queues.
    [[nodiscard]] std::span<const std::byte> requester_memory() const {
        return memory(static_cast<const QpCore*>(this),
                      sizeof(Qp) - sizeof(QpUpkeep) + queue_bytes);
    }
    /// What a request of the peer needs.
    [[nodiscard]] std::span<const std::byte> responder_memory() const {
        return memory(static_cast<const ResponderCore*>(&responder),
                      sizeof(ResponderCore) + sizeof(QpCore));
    }

    /// The requester side failed by itself.
    void fail_send(std::uint16_t vendor, bool on_rreq);
    /// The responder side failed; the owner does what the visitor could not.
    void responder_failed();
    /// The host asked for ERR.
    void enter_error();
    void reset();
    /// Nothing is answered any more: what waits for that is dropped.
    void drop_answers();
    /// Tells the network that this was the end of the connection, if there was one.
    void end_connection();
    [[nodiscard]] Connection connection() const;

    QpAttributes attributes;
    Requester requester;

    /// Its state, but for what it was made with (adapter_state.cc). Into one that nobody finds yet;
    /// then, when all is read, it goes on.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    void go_on();

    // UD and GSI: see ud.cc
    /// True if more are posted than one turn may send.
    bool send_datagrams();

protected:
    Qp(Datapath& datapath, QpType type, Ids ids, Uses uses);
    virtual void save_queues(base::StateWriter& out) const = 0;
    virtual void load_queues(base::StateReader& in) = 0;

private:
    [[nodiscard]] bool send_datagram(Datagram& datagram);
    [[nodiscard]] static std::span<const std::byte> memory(const void* begin, std::size_t bytes) {
        return {static_cast<const std::byte*>(begin), bytes};
    }
};

/// A queue pair with its queues: a struct of sends, receives and errors, of which sends need the
/// first kSendBytes.
template <typename Format>
struct QpWith final : Qp {
    template <typename Layout>
    QpWith(Datapath& datapath, QpType type, Ids ids, Uses uses, Layout layout)
        : Qp(datapath, type, ids, std::move(uses)), format(*this, std::move(layout)) {
        sends = &format.sends;
        responder.receives = &format.receives;
        errors = &format.errors;
        queue_bytes = Format::kSendBytes;
    }
    Format format;

private:
    void save_queues(base::StateWriter& out) const override { format.save(out); }
    void load_queues(base::StateReader& in) override { format.load(in); }
};

}  // namespace openmana::rnic
