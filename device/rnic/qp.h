// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>
#include <mana/rnic_queue.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/prefetch.h"
#include "gdma/function.h"
#include "rnic/congestion.h"
#include "rnic/counters.h"
#include "rnic/credits.h"
#include "rnic/memory.h"
#include "rnic/queue_format.h"
#include "rnic/rnic.h"
#include "rnic/segment.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {

struct Qp;
/// Gives the memory of a QP back to its adapter.
struct QpDeleter {
    void operator()(Qp* qp) const;
};
using QpPtr = std::unique_ptr<Qp, QpDeleter>;
class ExtQueues;
class SharedReceiveQueue;
using Adapter = Rnic::Impl;

enum class QpType : std::uint8_t { kRc, kUd, kGsi, kUc };

/// What SET_QP_STATE sets (RNIC 2.10). The defaults are for what the request of the 6.12 driver
/// cannot carry.
struct QpAttributes {
    roce::Gid source{};
    roce::Gid destination{};
    std::uint32_t dest_qpn = 0;
    std::uint32_t mtu = 1024;
    std::uint32_t access = 0xffffffff;
    // What a WRITE of the peer needs ends here: see Qp::responder_memory.
    base::MacAddr source_mac{};
    base::MacAddr destination_mac{};
    std::uint32_t max_read_in = 32;
    std::uint32_t max_read_out = 32;
    std::uint32_t retry_count = 7;
    std::uint32_t rnr_retry = 7;
    std::uint32_t min_rnr_timer = 0;
    std::uint32_t timeout = 14;
    std::uint32_t qkey = 0;
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
    SendWqe failed;  ///< see Requester::take_failed
    SendSlots slots;
    std::array<std::byte, MANA_HW_EXT_WQE_MAX_BYTES> wqe{};  ///< the one being taken
};

/// The side of a connected QP that executes what the peer asks for (RNIC 6.2, ROCE 4), and the
/// receive queue of a UD QP. Used by the owner and, on the local path, by visitors; `mutex` orders
/// before those of CQs and EQs.
class Responder {
public:
    explicit Responder(Qp& qp) : qp_(qp) {}

    /// One request. Held: `mutex`.
    Answer execute(const Segment& segment);
    /// A READ whose memory turned out not to be there: the QP fails. Held: `mutex`.
    Answer refuse_read(Psn psn);
    /// A datagram for a UD QP: 40 bytes of `grh`, then the payload (RNIC 7.4, 7.5). Held: `mutex`.
    bool deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length);

    /// The receive that a message is using, or a datagram was too long for.
    [[nodiscard]] bool taken() const { return taken_; }
    [[nodiscard]] const Receive& receive() const { return receive_; }
    /// It has ended in another way than by a message.
    void drop_receive() { taken_ = false; }
    void start(Psn expected);
    void reset();
    [[nodiscard]] std::uint32_t msn() const { return msn_; }
    [[nodiscard]] Psn expected() const { return expected_; }

private:
    Answer duplicate(const Segment& segment);
    Answer read(const Segment& segment);
    Answer atomic(const Segment& segment);
    Answer fatal(roce::NakCode code, std::uint16_t receive_error, bool nak = true);
    /// The message cannot be executed: a NAK and the end of an RC QP; on UC it is as if it was
    /// lost.
    Answer refuse(const Segment& segment, roce::NakCode code, std::uint16_t receive_error);
    /// UC: drops the segment and the message that it belongs to.
    Answer lose(const Segment& segment);
    void abandon();
    [[nodiscard]] bool follows(const Segment& segment);
    [[nodiscard]] Answer nak_sequence();
    QueueFormat::Take take_receive();
    /// How the memory of receives is checked.
    [[nodiscard]] SgeCheck receive_check() const;
    void complete_receive(const Segment& segment);
    void remember(const Segment& segment, std::uint32_t packets, std::uint64_t original);

    /// A READ or an atomic, to be answered again if its answer is lost.
    struct ReadEntry {
        SegmentKind kind = SegmentKind::kRead;
        std::uint64_t original = 0;  ///< atomic: what was in memory
        Psn first{};
        std::uint32_t packets = 0;
        std::uint64_t address = 0;
        std::uint32_t rkey = 0;
        std::uint32_t length = 0;
    };
    static constexpr std::size_t kReadEntries = 128;

    Receive receive_;
    std::vector<ReadEntry> reads_;  // the newest kReadEntries; made with the first
    std::size_t next_read_ = 0;

public:
    // From here on what each request needs: see Qp.
    /// Protects all of the responder, and every change of the QP's state.
    alignas(64) std::mutex mutex;

private:
    Qp& qp_;
    Psn expected_{};
    std::uint32_t msn_ = 0;
    SegmentKind message_ = SegmentKind::kInvalid;  // kind of the message in progress
    bool nak_sent_ = false;
    bool established_ = false;
    bool taken_ = false;        // a receive WQE is in use
    std::uint32_t offset_ = 0;  // bytes of the message in progress
    roce::Reth write_{};

public:
    std::uint64_t messages = 0;  ///< figure for QpStatus
    QpTraffic traffic;           ///< what came by the local path, and datagrams
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
    bool failed = false;  ///< all that comes is for nothing
};

/// The side that executes the guest's own work requests (RNIC 6.1, ROCE 3). Owner's executor only,
/// without locks.
class Requester {
public:
    explicit Requester(Qp& qp);

    /// One bounded turn. True if more can be done right away.
    bool turn();
    void start(Psn first);
    void reset();
    /// From SQE to RTS: what failed is forgotten, what is posted from now on is sent.
    void resume();
    /// Enters ERR or SQE: no timer fires any more, nothing is sent.
    void stop();
    [[nodiscard]] RequesterView view() const {
        return {una_,     send_psn_,          next_psn_,          reads_out_,   read_psns_,
                stalled_, ack_timer_.armed(), rnr_timer_.armed(), failure_ != 0};
    }
    /// Nothing that was taken from the queue is unfinished.
    [[nodiscard]] bool idle() const { return queue_.empty(); }
    /// Takes the oldest unfinished request out; it is good until the next call. Only of a QP that
    /// has failed.
    [[nodiscard]] const SendWqe* take_failed();
    /// Nothing that was begun is unfinished.
    [[nodiscard]] bool drained() const { return una_ == next_psn_; }
    [[nodiscard]] Psn next_psn() const { return next_psn_; }

    /// An ACK, NAK or READ response from the wire.
    void receive(const roce::Packet& packet);
    /// Ends a batch: fails the QP if the batch asked for it, else writes the armed completion that
    /// is due.
    void settle();

    std::uint64_t messages = 0;  ///< figure for QpStatus
    QpTraffic traffic;           ///< what leaves, and what came over the wire
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
    void fail(std::uint16_t vendor, bool on_rreq = false);
    [[nodiscard]] bool reliable() const;
    void lose(SendWqe& wqe);
    bool run_local(Budget& budget);

    void turn_local(Rnic& peer, Budget& budget);
    [[nodiscard]] Qp* find_peer(Adapter& other);
    Step local_request(SendWqe& wqe, Qp& target, std::uint64_t& copied, Budget& budget);
    Step local_read(SendWqe& wqe, Qp& target, const Answer& answer, std::uint64_t& copied);
    Step local_atomic(SendWqe& wqe, const Answer& answer);
    Step local_outcome(const Answer& answer);
    void stall();
    void turn_wire(Budget& budget);
    void send_read(const SendWqe& wqe);
    void send_atomic(const SendWqe& wqe);
    bool send_packets(SendWqe& wqe, Budget& budget);
    [[nodiscard]] bool credited(const SendWqe& wqe);
    [[nodiscard]] std::uint32_t psns_out() const;
    [[nodiscard]] std::uint32_t in_flight() const;

    bool on_ack(Psn psn);
    void take_credits(roce::Aeth aeth);
    void on_nak(Psn psn, std::uint8_t syndrome);
    void on_read_response(const roce::Packet& packet);
    void on_atomic_response(const roce::Packet& packet);
    bool place_original(SendWqe& wqe, std::uint64_t original);
    bool ack_through(Psn psn);
    void progress();
    void complete_front();
    bool retry(Psn psn, bool timed_out = false);
    void shrink_window(std::uint32_t least);
    void rewind(Psn psn);
    void skip_to_next();
    void advance_to(Psn next);
    void watch();
    void on_timeout();

    Qp& qp_;
    Adapter& adapter_;
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
    Credits credits_;
    bool asking_ = false;      // the packet sent last was to ask for credits
    bool no_credits_ = false;  // waits for some
    bool stalled_ = false;     // local path: as if the packet was lost; the timer decides
    std::uint16_t failure_ = 0;
    bool failure_on_rreq_ = false;
    // The peer's QP on the local path, as long as that adapter has the same QPs; else a mere place.
    Qp* peer_ = nullptr;
    std::uint64_t peer_generation_ = 0;
    base::Timer ack_timer_;
    base::Timer rnr_timer_;

public:
    std::uint64_t rnr_retries = 0;  ///< figure, too
};

/// Answers of the responder on the wire path, which leave in PSN order (ROCE 4.9, 4.11). Owner's
/// executor.
class Responses {
public:
    explicit Responses(Qp& qp) : qp_(qp) {}
    void add(const Answer& answer);
    /// As many READs and atomics wait as a peer may ever have under way.
    [[nodiscard]] bool full() const { return queue_.size() >= kMost; }
    /// Sends what is due. True if READ data is left for another turn.
    bool send();
    [[nodiscard]] bool empty() const { return queue_.empty() && !ack_; }
    void clear() {
        queue_.clear();
        ack_.reset();
    }

private:
    enum class Sent : std::uint8_t { kAll, kPart, kLimited, kRefused };
    static constexpr std::size_t kMost = 128;
    void implied(const Answer& answer);
    Sent send_read(Answer& answer, std::uint64_t& budget);
    void send_aeth(const Answer& answer);

    Qp& qp_;
    std::deque<Answer> queue_;   // a READ in front, what must wait behind it; bounded by kMost
    std::optional<Answer> ack_;  // one for a batch
};

/// A queue pair. Owned by its adapter; created and destroyed under an exclusion of the function's
/// gate, so a visitor that found it may keep the pointer for the visit.
///
/// Of thousands of queue pairs none is in a cache when its turn comes. So what a request needs lies
/// together, its queues included (QpWith), and is asked for at once, both ends' by the doorbell.
struct Qp {
    struct Ids {
        gdma::Sqn sq{};           ///< stock RC: requester SQ; +1 responder SQ, +2 fast register
        gdma::Rqn rq{};           ///< the QP number. Stock RC: responder RQ
        gdma::Rqn rreq{};         ///< stock RC: requester RQ
        std::uint32_t count = 1;  ///< ids of either kind
    };
    /// What it holds: none of it goes before the QP.
    struct Uses {
        gdma::Handle<gdma::Pd> pd;
        gdma::Handle<gdma::CompletionQueue> send_cq;
        gdma::Handle<gdma::CompletionQueue> recv_cq;
        gdma::Handle<gdma::PageGrant> page;  ///< of its doorbells
    };
    virtual ~Qp() = default;
    Qp(const Qp&) = delete;
    Qp& operator=(const Qp&) = delete;

    [[nodiscard]] std::uint32_t qpn() const { return ids.rq.value(); }
    [[nodiscard]] std::uint32_t state() const { return state_.load(std::memory_order_acquire); }
    void set_state(std::uint32_t state) { state_.store(state, std::memory_order_release); }
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

    /// What its requests need, from the send doorbell on, with its queues.
    [[nodiscard]] std::span<const std::byte> requester_memory() const {
        return between(&send_bell, reinterpret_cast<const std::byte*>(this + 1) + queue_bytes);
    }
    /// What a request of the peer needs.
    [[nodiscard]] std::span<const std::byte> responder_memory() const {
        return between(&responder.mutex, &attributes.source_mac);
    }

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
    [[nodiscard]] Connection connection() const;

    struct SendBell final : gdma::DoorbellTarget {
        explicit SendBell(Qp& owner) : qp(owner) {}
        void ring(std::uint32_t position) override;
        void prepare(std::uint32_t position) const override { qp.queues->prefetch_sends(position); }
        Qp& qp;
    };
    struct ReceiveBell final : gdma::DoorbellTarget {
        explicit ReceiveBell(Qp& owner) : qp(owner) {}
        void ring(std::uint32_t position) override;
        Qp& qp;
    };

    const gdma::Handle<gdma::PageGrant> page;
    std::unique_ptr<Limiter> limiter;  ///< while congestion control slows this QP down
    Responses responses{*this};
    base::TimePoint next_cnp{};  ///< no CNP before
    std::uint64_t life = 0;      ///< counts RESETs, for tasks on their way
    QpEvents events;
    ReceiveBell receive_bell{*this};
    Responder responder{*this};

    // The middle is what both sides need: see requester_memory and responder_memory.
    alignas(64) SendBell send_bell{*this};
    Adapter& adapter;
    QueueFormat* queues = nullptr;
    const gdma::Handle<gdma::Pd> pd;
    const gdma::Handle<gdma::CompletionQueue> send_cq;
    const gdma::Handle<gdma::CompletionQueue> recv_cq;
    const Ids ids;
    const QpType type;
    bool extended = false;          ///< its queues are of the extended format
    bool scheduled = false;         ///< waits for a turn
    bool in_batch = false;          ///< got frames in this batch
    bool held = false;              ///< waits for room in the network
    std::uint16_t queue_bytes = 0;  ///< of the queues, which follow: what sends need

private:
    std::atomic<std::uint32_t> state_{MANA_HW_RNIC_QP_RESET};

public:
    QpAttributes attributes;
    Requester requester;

    // UD and GSI: see ud.cc
    /// True if more are posted than one turn may send.
    bool send_datagrams();

protected:
    Qp(Adapter& adapter, QpType type, Ids ids, Uses uses);

private:
    void send_datagram(Datagram& datagram);
    [[nodiscard]] static std::span<const std::byte> between(const void* begin, const void* end) {
        return {static_cast<const std::byte*>(begin), static_cast<const std::byte*>(end)};
    }
};

/// A queue pair with its queues.
template <typename Format>
struct QpWith final : Qp {
    template <typename Layout>
    QpWith(Adapter& adapter, QpType type, Ids ids, Uses uses, Layout layout)
        : Qp(adapter, type, ids, std::move(uses)), format(*this, std::move(layout)) {
        queues = &format;
        queue_bytes = Format::kSendBytes;
    }
    Format format;
};

}  // namespace openmana::rnic
