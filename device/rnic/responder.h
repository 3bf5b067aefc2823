// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/handover_mutex.h"
#include "rnic/counters.h"
#include "rnic/memory.h"
#include "rnic/receive_format.h"
#include "rnic/segment.h"

namespace openmana::rnic {

struct Qp;

/// A READ or an atomic, to be answered again if its answer is lost.
struct ReadEntry {
    SegmentKind kind = SegmentKind::kRead;
    std::uint64_t original = 0;  ///< atomic: what was in memory
    Psn first{};
    std::uint32_t packets = 0;
    std::uint64_t address = 0;
    RKey rkey{};
    std::uint32_t length = 0;
};

/// What a responder has that not every request needs.
struct ResponderHistory {
    static constexpr std::size_t kReadEntries = 128;

    Receive receive_;
    std::vector<ReadEntry> reads_;  // the newest kReadEntries; made with the first
    std::size_t next_read_ = 0;
    // Of the message that waits for a receive: since when, how long, and whether it really does.
    base::TimePoint wait_since_{};
    base::TimePoint wait_until_{};
    bool wait_counted_ = false;
};

/// What each request of the peer needs of a responder: three cache lines, and those of QpCore
/// follow.
struct alignas(64) ResponderCore {
    explicit ResponderCore(Qp& qp) : qp_(qp) {}

    mutable base::HandoverMutex
        mutex;  ///< protects all of the responder, and every change of the QP's state

protected:
    Qp& qp_;
    Psn expected_{};
    std::uint32_t msn_ = 0;
    SegmentKind message_ = SegmentKind::kInvalid;  // kind of the message in progress
    bool nak_sent_ = false;
    bool established_ = false;
    bool taken_ = false;        // a receive WQE is in use
    bool waiting_ = false;      // a message found none
    bool unanswered_ = false;   // the last request was executed silently
    bool failing_ = false;      // failed, which the owner has not told yet
    std::uint32_t offset_ = 0;  // bytes of the message in progress
    roce::Reth write_{};

public:
    ReceiveFormat* receives = nullptr;
    std::uint64_t messages = 0;  ///< figure for QpStatus
    QpTraffic traffic;           ///< what came by the local path, and datagrams
};
static_assert(sizeof(ResponderCore) == 192);

/// The side of a connected QP that executes what the peer asks for (RNIC 6.2, ROCE 4), and the
/// receive queue of a UD QP. Used by the owner and, on the local path, by visitors; `mutex` orders
/// before those of CQs and EQs.
class Responder : private ResponderHistory, public ResponderCore {
public:
    explicit Responder(Qp& qp) : ResponderCore(qp) {}

    /// One request. Held: `mutex`.
    Answer execute(const Segment& segment);
    /// A READ whose memory turned out not to be there: the QP fails. Held: `mutex`.
    Answer refuse_read(Psn psn);
    /// A datagram for a UD QP: 40 bytes of `grh`, then the payload (RNIC 7.4, 7.5). Held: `mutex`.
    bool deliver_datagram(const roce::Packet& packet, Spans payload, std::size_t length);

    /// The receive that a message is using, or a datagram was too long for.
    [[nodiscard]] bool taken() const { return taken_; }
    [[nodiscard]] const Receive& receive() const { return receive_; }
    /// It has ended in another way than by a message, and with it the one that had taken it.
    void drop_receive() {
        taken_ = false;
        message_ = SegmentKind::kInvalid;
    }
    /// The message that found no receive waits for one: when it may come again. Held: `mutex`.
    [[nodiscard]] base::Duration begin_wait();
    /// It has done so for less than half of the time that it may. Held: `mutex`.
    [[nodiscard]] bool waits_briefly() const;
    /// It waits no longer: an RNR NAK, if the QP still answers. Held: `mutex`.
    Answer end_wait();
    /// Packets were dropped behind a message that waited, the last of them `dropped`: a NAK if none
    /// has been sent; as acknowledge() if they have come again. Held: `mutex`.
    Answer report_gap(Psn dropped);
    /// An ACK that nobody asked for, if what it says has not been said. Held: `mutex`.
    Answer acknowledge();
    void start(Psn expected);
    void reset();
    /// Into one that was just made. Held: `mutex`.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// Its failure is to be told by the owner, who has not done so. Held: `mutex`.
    [[nodiscard]] bool failing() const { return failing_; }
    void failure_told() { failing_ = false; }
    [[nodiscard]] std::uint32_t msn() const { return msn_; }
    [[nodiscard]] Psn expected() const { return expected_; }

private:
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self);
    Answer duplicate(const Segment& segment);
    Answer read(const Segment& segment);
    Answer atomic(const Segment& segment);
    Answer fatal(roce::NakCode code, std::uint16_t receive_error, bool nak = true);
    /// The message cannot be executed: a NAK and the end of an RC QP; on UC it is as if it was
    /// lost.
    Answer refuse(const Segment& segment, roce::NakCode code, std::uint16_t receive_error);
    /// UC: drops the segment and the message that it belongs to.
    Answer discard(const Segment& segment);
    void abandon();
    [[nodiscard]] bool follows(const Segment& segment);
    [[nodiscard]] Answer nak_sequence();
    [[nodiscard]] Answer no_receive();
    [[nodiscard]] Answer nak_rnr();
    [[nodiscard]] Answer ack();
    ReceiveFormat::Take take_receive();
    [[nodiscard]] std::optional<Answer> provide_receive(const Segment& segment);
    [[nodiscard]] bool fits(const Segment& segment) const;
    [[nodiscard]] std::optional<Answer> find_memory(const Segment& segment);
    void complete_receive(const Segment& segment);
    void remember(const Segment& segment, std::uint32_t packets, std::uint64_t original);
};
static_assert(sizeof(Responder) % alignof(ResponderCore) == 0);

}  // namespace openmana::rnic
