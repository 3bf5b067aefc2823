// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/executor.h"
#include "rnic/counters.h"
#include "rnic/credits.h"
#include "rnic/local_peer.h"
#include "rnic/request_figures.h"
#include "rnic/segment.h"
#include "rnic/send_queue.h"

namespace openmana::rnic {

struct Qp;
struct Datapath;

/// Packets of a READ that one request on the wire asks for (ROCE 3.2): as many requests as the QP
/// may have under way, up to four, fill a window.
[[nodiscard]] constexpr std::uint32_t read_part(std::uint32_t window, std::uint32_t depth) {
    return std::max(1U, window / std::clamp(depth, 1U, 4U));
}

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
    /// Times the requests that are posted now, to the last of them.
    void time_posted();
    /// What is posted waits for no more.
    void end_gathering() { last_burst_ = {}; }
    /// The addresses of the connection have changed.
    void forget_path() { path_generation_ = 0; }
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

    /// Into one that was just made, whose attributes are there.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
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

    // requester_state.cc
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self);
    [[nodiscard]] bool stands() const;
    [[nodiscard]] bool stands_in(const SendWqe& wqe, Psn end) const;
    /// Requests that data answer, and PSNs that these reserve.
    struct UnderWay {
        std::uint32_t reads = 0;
        std::uint32_t psns = 0;
    };
    void count_under_way(const SendWqe& wqe, UnderWay& most) const;

    /// Work taken from the ring and not finished; on the wire path also limited by the window.
    static constexpr std::uint32_t kMaxQueued = 1024;

    [[nodiscard]] bool can_send() const;
    void find_path();
    SendWqe* next();
    bool fetch();
    void fail(std::uint16_t vendor, bool on_rreq = false);
    [[nodiscard]] bool reliable() const;
    [[nodiscard]] std::uint32_t part_begin(std::uint32_t at) const;
    [[nodiscard]] std::uint32_t part_end(const SendWqe& wqe, std::uint32_t at) const;
    [[nodiscard]] std::uint32_t parts(std::uint32_t packets) const;
    [[nodiscard]] Psn answered_by(const SendWqe& wqe) const;
    bool run_local(Budget& budget);

    // local_path.cc
    void turn_local(const LocalEnd& end, Budget& budget);
    [[nodiscard]] Qp* find_peer(const LocalPeer& peer);
    Step local_request(SendWqe& wqe, Qp& target, std::uint64_t& copied, Budget& budget);
    Step local_read(SendWqe& wqe, Qp& target, const Answer& answer, std::uint64_t& copied);
    Step local_atomic(SendWqe& wqe, const Answer& answer);

    // wire_requests.cc
    void turn_wire(Budget& budget);
    [[nodiscard]] bool gathers();
    [[nodiscard]] std::uint32_t room_for(std::uint32_t left) const;
    [[nodiscard]] bool read_fits(std::uint32_t takes) const;
    void send_read(const SendWqe& wqe);
    void send_atomic(const SendWqe& wqe);
    bool send_packets(SendWqe& wqe, Budget& budget);
    [[nodiscard]] bool credited(const SendWqe& wqe);
    [[nodiscard]] std::uint32_t psns_out() const;
    [[nodiscard]] std::uint32_t in_flight() const;

    // wire_answers.cc
    void take_credits(roce::Aeth aeth);
    void on_read_response(const roce::Packet& packet);
    void on_atomic_response(const roce::Packet& packet);
    bool place_original(SendWqe& wqe, std::uint64_t original);

    // acknowledgement.cc
    Step local_outcome(const Answer& answer);
    void wait_for_receive(base::Duration delay);
    bool on_ack(Psn psn);
    void on_nak(Psn psn, std::uint8_t syndrome);
    bool ack_through(Psn psn);
    void advance_to(Psn next);
    void complete_front();
    void add_figures(const SendWqe& wqe);
    void progress();
    void discard(SendWqe& wqe);
    void skip_to_next();

    // retransmission.cc
    void watch();
    void stall();
    void on_timeout();
    bool retry(bool timed_out = false);
    void shrink_window(std::uint32_t least);
    void rewind();

    Qp& qp_;
    Datapath& datapath_;
    SendQueue queue_;
    std::uint32_t current_ = 0;  // index in queue_ of the WQE that holds send_psn_
    Psn una_{};                  // oldest PSN not acknowledged
    Psn send_psn_{};             // next to go out
    Psn next_psn_{};             // never sent before
    Psn fetch_psn_{};            // first PSN of the next WQE
    // Requests on the way that data answer, and the PSNs that these reserve beyond one each.
    std::uint32_t reads_out_ = 0;
    std::uint32_t read_psns_ = 0;
    std::uint32_t since_ack_request_ = 0;
    base::TimePoint last_burst_{};  // on the wire path
    std::uint32_t window_ = 0;      // packets under way at most: less after a loss
    std::uint32_t part_ = 1;        // see read_part; for the life of a connection
    std::uint32_t retry_left_ = 0;
    std::uint32_t timeouts_in_row_ = 0;  // without progress between them
    std::uint32_t rnr_left_ = 0;
    bool resent_ = false;  // has gone back to una_
    Credits credits_;
    bool asking_ = false;      // the packet sent last was to ask for credits
    bool no_credits_ = false;  // waits for some
    bool stalled_ = false;     // local path: as if the packet was lost; the timer decides
    std::uint16_t failure_ = 0;
    bool failure_on_rreq_ = false;
    RequestTiming timing_;
    // What the network said of the connection's addresses, as long as its generation is this.
    bool owns_source_ = false;
    LocalEnd local_;
    std::uint64_t path_generation_ = 0;
    // The peer's QP on the local path, as long as that adapter has the same QPs; else a mere place.
    Qp* peer_ = nullptr;
    std::uint64_t peer_generation_ = 0;
    base::Timer ack_timer_;
    base::Timer rnr_timer_;

public:
    std::uint64_t rnr_retries = 0;  ///< figure, too
};

}  // namespace openmana::rnic
