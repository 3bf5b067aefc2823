// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/rnic_queue.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "gdma/function.h"
#include "rnic/congestion.h"
#include "rnic/rnic.h"
#include "rnic/segment.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {

struct Qp;
using Adapter = Rnic::Impl;

enum class QpType : std::uint8_t { kRc, kUd, kGsi };

/// What SET_QP_STATE sets (RNIC 2.10). The defaults are for what the request of the 6.12 driver
/// cannot carry.
struct QpAttributes {
    roce::Gid source{};
    roce::Gid destination{};
    base::MacAddr source_mac{};
    base::MacAddr destination_mac{};
    std::uint32_t dest_qpn = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t max_read_in = 32;
    std::uint32_t max_read_out = 32;
    std::uint32_t retry_count = 7;
    std::uint32_t rnr_retry = 7;
    std::uint32_t min_rnr_timer = 0;
    std::uint32_t timeout = 14;
    std::uint32_t qkey = 0;
    std::uint32_t access = 0xffffffff;
    std::uint32_t flow_label = 0;
    std::uint16_t udp_source_port = 0xc000;
    std::uint8_t hop_limit = 64;
    std::uint8_t dscp = 0;
};

/// Reused buffers of one thread's work, so that no message allocates.
struct Scratch {
    gdma::SpanList from;
    gdma::SpanList to;
    gdma::SpanList cut;
    base::Frame frame;
};

/// The side of an RC QP that executes what the peer asks for (RNIC 6.2, ROCE 4), and the receive
/// queue of a UD QP. Used by the owner and, on the local path, by visitors; `mutex` orders before
/// those of CQs and EQs.
class Responder {
public:
    Responder(Qp& qp, gdma::Ring ring) : qp_(qp), ring_(std::move(ring)) {}

    std::mutex mutex;  // protects all below, and every change of the QP's state

    /// One request. Held: `mutex`.
    Answer execute(const Segment& segment);
    /// A READ whose memory turned out not to be there: the QP fails. Held: `mutex`.
    Answer refuse_read(Psn psn);
    /// A datagram for a UD QP: 40 bytes of `grh`, then the payload (RNIC 7.4, 7.5). Held: `mutex`.
    bool deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length);

    /// RQ doorbell. False if the position is impossible.
    [[nodiscard]] bool ring(std::uint32_t position);
    [[nodiscard]] bool outstanding() const {
        return taken_ || producer_.load(std::memory_order_acquire) !=
                             consumer_.load(std::memory_order_relaxed);
    }
    /// Writes the one receive-error CQE between two RESETs, if receives are left. Held: `mutex`.
    bool report_error(std::uint16_t vendor);
    [[nodiscard]] bool error_reported() const { return error_reported_; }
    void start(Psn expected);
    void reset();
    [[nodiscard]] std::uint32_t msn() const { return msn_; }
    [[nodiscard]] Psn expected() const { return expected_; }

    std::uint64_t messages = 0;  ///< figures for QpStatus
    std::uint64_t bytes = 0;

private:
    enum class Take : std::uint8_t { kOk, kEmpty, kMalformed };
    Answer duplicate(const Segment& segment);
    Answer read(const Segment& segment);
    Answer fatal(roce::NakCode code, std::uint16_t receive_error, bool nak = true);
    [[nodiscard]] Answer nak_sequence();
    Take take_receive();
    void complete_receive(const Segment& segment);

    struct ReadEntry {
        Psn first{};
        std::uint32_t packets = 0;
        std::uint64_t address = 0;
        std::uint32_t rkey = 0;
        std::uint32_t length = 0;
    };
    static constexpr std::size_t kReadEntries = 128;

    Qp& qp_;
    gdma::Ring ring_;
    std::atomic<std::uint32_t> producer_{
        0};  // written by the owner; acquire pairs with release in ring()
    std::atomic<std::uint32_t> consumer_{
        0};  // written under `mutex`; release pairs with acquire in ring()
    Psn expected_{};
    std::uint32_t msn_ = 0;
    SegmentKind message_ = SegmentKind::kInvalid;  // kind of the message in progress
    bool nak_sent_ = false;
    bool error_reported_ = false;
    std::uint32_t offset_ = 0;  // bytes of the message in progress
    roce::Reth write_{};
    bool taken_ = false;  // a receive WQE is in use
    std::uint32_t taken_position_ = 0;
    std::uint64_t taken_total_ = 0;
    std::vector<gdma::Sge> taken_sges_;
    std::vector<ReadEntry> reads_;  // the newest kReadEntries READs; made with the first
    std::size_t next_read_ = 0;
    gdma::SpanList to_;
    gdma::SpanList from_;  // datagrams: GRH area and payload
};

/// Where a requester stands, for those who check what must hold at all times (ROCE 10.8).
struct RequesterView {
    Psn una{};   ///< oldest PSN not acknowledged
    Psn send{};  ///< next to go out
    Psn next{};  ///< never sent before
    std::uint32_t reads_out = 0;
    std::uint32_t read_psns = 0;  ///< of those between `una` and `send`: reserved for READ data
    bool stalled = false;
    bool ack_timer = false;
    bool rnr_timer = false;
};

/// The side that executes the guest's own work requests (RNIC 6.1, ROCE 3). Owner's executor only,
/// without locks, but for `acked()`.
class Requester {
public:
    Requester(Qp& qp, gdma::Ring send_ring, std::optional<gdma::Ring> read_ring);

    /// SQ doorbell. Works at once if this QP is not waiting for its turn.
    void ring(std::uint32_t position);
    void ring_reads(std::uint32_t position);
    /// Doorbell 0x408 (RNIC 3.8).
    void arm(Psn psn);
    /// One bounded turn. True if more can be done right away.
    bool turn();
    void start(Psn first);
    void reset();
    /// Enters ERR: no timer fires any more, nothing is sent.
    void stop();
    [[nodiscard]] bool outstanding() const { return !queue_.empty() || consumer_ != producer_; }
    [[nodiscard]] const gdma::Ring& send_ring() const {
        return ring_;
    }  ///< UD QPs use the ring only
    [[nodiscard]] RequesterView view() const {
        return {una_,       send_psn_, next_psn_,          reads_out_,
                read_psns_, stalled_,  ack_timer_.armed(), rnr_timer_.armed()};
    }
    /// PSN of the newest finished WQE. Any thread.
    [[nodiscard]] Psn acked() const { return Psn(acked_.load(std::memory_order_relaxed)); }
    /// Writes the one send-error CQE between two RESETs, if work is left, with rules a and b of
    /// RNIC 3.9.
    bool report_error(std::uint16_t vendor, bool on_rreq);

    /// An ACK, NAK or READ response from the wire.
    void receive(const roce::Packet& packet);
    /// Ends a batch: fails the QP if the batch asked for it, else writes the armed completion that
    /// is due.
    void settle();

    std::uint64_t messages = 0;  ///< figures for QpStatus
    std::uint64_t bytes = 0;
    std::uint64_t retries = 0;
    std::uint64_t rnr_retries = 0;
    const char* path = "-";

private:
    struct Budget {
        std::uint64_t bytes;
        std::uint32_t wqes;
    };
    enum class Step : std::uint8_t { kGo, kWait, kLeave };

    [[nodiscard]] bool can_send() const;
    SendWqe* next();
    bool fetch();
    void take_scatter(SendWqe& wqe);
    void fail(std::uint16_t vendor, bool on_rreq = false);

    void turn_local(Rnic& peer, Budget& budget);
    Step local_request(SendWqe& wqe, Qp& target, std::uint64_t& copied, Budget& budget);
    Step local_read(SendWqe& wqe, Qp& target, const Answer& answer, std::uint64_t& copied);
    Step local_outcome(const Answer& answer);
    void stall();
    void turn_wire(Budget& budget);
    void send_read(const SendWqe& wqe);
    bool send_packets(SendWqe& wqe, Budget& budget);
    [[nodiscard]] std::uint32_t in_flight() const;

    bool on_ack(Psn psn);
    void on_nak(Psn psn, std::uint8_t syndrome);
    void on_read_response(const roce::Packet& packet);
    bool ack_through(Psn psn);
    void progress();
    void complete_front();
    bool retry(Psn psn, bool timed_out = false);
    void shrink_window(std::uint32_t least);
    void rewind(Psn psn);
    void advance_to(Psn next);
    void watch();
    void on_timeout();
    void test_armed();
    void post_armed();

    Qp& qp_;
    Adapter& adapter_;
    gdma::Ring ring_;
    std::optional<gdma::Ring> read_ring_;
    std::uint32_t producer_ = 0;
    std::uint32_t consumer_ = 0;  // of WQEs fetched
    std::uint32_t read_producer_ = 0;
    std::uint32_t read_consumer_ = 0;
    SendQueue queue_;
    std::uint32_t current_ = 0;  // index in queue_ of the WQE that holds send_psn_
    Psn una_{};                  // oldest PSN not acknowledged
    Psn send_psn_{};             // next to go out
    Psn next_psn_{};             // never sent before
    Psn fetch_psn_{};            // first PSN of the next WQE
    std::uint32_t reads_out_ = 0;
    std::uint32_t read_psns_ = 0;  // reserved by READs on the way, beyond one each
    std::uint32_t since_ack_request_ = 0;
    std::uint32_t window_ = 0;  // packets under way at most: less after a loss
    std::uint32_t retry_left_ = 0;
    std::uint32_t rnr_left_ = 0;
    std::optional<Psn> resent_from_;
    bool stalled_ = false;  // local path: as if the packet was lost; the timer decides
    std::atomic<std::uint32_t> acked_{0};
    Psn reported_{};
    Psn arm_psn_{};
    bool armed_ = false;
    bool error_reported_ = false;
    std::uint16_t failure_ = 0;
    bool failure_on_rreq_ = false;
    base::Timer ack_timer_;
    base::Timer rnr_timer_;
};

/// Answers of the responder on the wire path, which leave in PSN order (ROCE 4.9, 4.11). Owner's
/// executor.
class Responses {
public:
    explicit Responses(Qp& qp) : qp_(qp) {}
    void add(const Answer& answer);
    /// Sends what is due. True if READ data is left for another turn.
    bool send();
    [[nodiscard]] bool empty() const { return queue_.empty() && !ack_; }
    void clear() {
        queue_.clear();
        ack_.reset();
    }

private:
    enum class Sent : std::uint8_t { kAll, kPart, kLimited, kRefused };
    Sent send_read(Answer& answer, std::uint64_t& budget);
    void send_aeth(const Answer& answer);

    Qp& qp_;
    std::deque<Answer>
        queue_;  // a READ in front, what must wait behind it; bounded by the READs remembered
    std::optional<Answer> ack_;  // one for a batch
};

/// A queue pair. Owned by its adapter; created and destroyed under an exclusion of the function's
/// gate, so a visitor that found it may keep the pointer for the visit.
struct Qp {
    struct Ids {
        gdma::Sqn sq{};    ///< RC: requester SQ; +1 responder SQ, +2 fast register
        gdma::Rqn rq{};    ///< the QP number. RC: responder RQ
        gdma::Rqn rreq{};  ///< RC: requester RQ
    };
    struct Queues {
        std::unique_ptr<gdma::DmaRegion> send;
        std::unique_ptr<gdma::DmaRegion> read_scatter;  ///< RC only
        std::unique_ptr<gdma::DmaRegion> receive;
        std::vector<std::unique_ptr<gdma::DmaRegion>>
            held;  ///< belong to the QP; the model needs no memory there
    };
    Qp(Adapter& adapter, QpType type, Ids ids, gdma::Pd& pd, gdma::CompletionQueue& send_cq,
       gdma::CompletionQueue& recv_cq, Queues queues);
    ~Qp();
    Qp(const Qp&) = delete;
    Qp& operator=(const Qp&) = delete;

    [[nodiscard]] std::uint32_t qpn() const { return ids.rq.value(); }
    [[nodiscard]] std::uint32_t state() const { return state_.load(std::memory_order_acquire); }
    void set_state(std::uint32_t state) { state_.store(state, std::memory_order_release); }
    [[nodiscard]] bool responds() const {
        const std::uint32_t s = state();
        return s == MANA_HW_RNIC_QP_RTR || s == MANA_HW_RNIC_QP_RTS || s == MANA_HW_RNIC_QP_SQD ||
               s == MANA_HW_RNIC_QP_SQE;
    }

    /// A packet of this connection, less opcode, PSN and what the opcode adds.
    [[nodiscard]] roce::Packet packet() const;

    /// Looks after the limiter, which there must be: drops it if it has recovered.
    void tend_limiter();

    // completion.cc
    /// The requester side failed by itself.
    void fail_send(std::uint16_t vendor, bool on_rreq);
    /// The responder side failed; the owner does what the visitor could not.
    void responder_failed();
    /// The host asked for ERR.
    void enter_error();
    void reset();
    /// Tells the network that this was the end of the connection, if there was one.
    void end_connection();
    void flush_other_side();

    struct SendBell final : gdma::DoorbellTarget {
        explicit SendBell(Qp& owner) : qp(owner) {}
        void ring(std::uint32_t position) override;
        Qp& qp;
    };
    struct ReadBell final : gdma::DoorbellTarget {
        explicit ReadBell(Qp& owner) : qp(owner) {}
        void ring(std::uint32_t position) override { qp.requester.ring_reads(position); }
        void arm_client(std::uint32_t psn) override { qp.requester.arm(Psn(psn)); }
        Qp& qp;
    };
    struct ReceiveBell final : gdma::DoorbellTarget {
        explicit ReceiveBell(Qp& owner) : qp(owner) {}
        void ring(std::uint32_t position) override;
        Qp& qp;
    };

    Adapter& adapter;
    const QpType type;
    const Ids ids;
    gdma::Pd& pd;
    gdma::CompletionQueue& send_cq;
    gdma::CompletionQueue& recv_cq;
    std::vector<std::unique_ptr<gdma::DmaRegion>> held;
    QpAttributes attributes;
    Responder responder;
    Requester requester;
    Responses responses;
    SendBell send_bell{*this};
    ReadBell read_bell{*this};
    ReceiveBell receive_bell{*this};
    std::unique_ptr<Limiter> limiter;  ///< while congestion control slows this QP down
    base::TimePoint next_cnp{};        ///< no CNP before
    base::Timer hold_timer;            ///< holds the other side's flush back (RNIC 3.9 rule c)
    std::uint64_t life = 0;            ///< counts RESETs, for tasks on their way
    std::uint64_t errors = 0;
    bool scheduled = false;  ///< waits for a turn
    bool in_batch = false;   ///< got frames in this batch

    // UD and GSI: see ud.cc
    void ring_datagrams(std::uint32_t position);
    /// True if more are posted than one turn may send.
    bool send_datagrams();

private:
    std::atomic<std::uint32_t> state_{MANA_HW_RNIC_QP_RESET};
    std::uint32_t datagram_producer_ = 0;
    std::uint32_t datagram_consumer_ = 0;
    std::uint32_t datagram_psn_ = 0;

    void send_datagram(const gdma::Wqe& wqe);
};

}  // namespace openmana::rnic
