// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/ext.h>

#include <memory>
#include <optional>

#include "base/busy_poll.h"
#include "rnic/ext_format.h"
#include "rnic/qp.h"
#include "rnic/shared_receive_queue.h"

namespace openmana::rnic {

/// The queues of the extension (docs/extensions.md): producer indexes lie in a record in guest
/// memory, the device counts PSNs, and work requests complete one by one.
class ExtQueues final : public QueueFormat {
public:
    struct Layout {
        std::shared_ptr<const gdma::DmaRegion> region;
        std::uint32_t sq_bytes = 0;
        std::uint32_t rq_bytes = 0;  ///< 0: `srq`
        std::uint32_t rq_stride = 0;
        gdma::Handle<SharedReceiveQueue> srq;
        bool privileged = false;
    };
    ExtQueues(Qp& qp, Layout layout);
    static constexpr std::uint16_t kSendBytes = 192;  ///< see Qp::requester_memory
    ~ExtQueues() override;

    bool ring_sends(std::uint32_t position) override;
    bool ring_receives(std::uint32_t position) override;
    void posted_in_error() override;
    bool sends_posted() override;
    void fetch(SendWqe& wqe, Psn next) override;
    void prefetch_sends(std::uint32_t position) const override;
    void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) override;
    std::uint16_t execute_local(const SendWqe& wqe) override;
    void finished(const SendWqe& wqe) override;
    void settle() override;
    void start_sends(Psn first) override;
    Next next_datagram(Datagram& datagram) override;
    void datagram_done() override;
    Take take(Receive& receive) override;
    void received(const Receive& receive, const Received& message) override;
    bool abandoned(const Receive& receive) override;
    void received_datagram(const Receive& receive, const roce::Packet& packet,
                           std::uint32_t length) override;
    bool stops_sends_only(std::uint16_t vendor) const override;
    void send_failed(std::uint16_t vendor, bool on_read_queue) override;
    void receive_failed(roce::NakCode code, std::uint16_t vendor) override;
    void responder_failed() override;
    void enter_error() override;
    void reset() override;
    void state_changed() override;
    void established() override;

    [[nodiscard]] Qp& qp() { return qp_; }
    /// A receive of an SRQ that a message is using completes as flushed: the QP ends. Held: the
    /// responder's mutex.
    void give_back();
    /// Looks at the SQ's producer index. True if it has moved.
    bool look();
    /// The host has to ring the doorbell from now on; true if it did post before it saw that.
    bool sleep();
    /// The host need not ring any more.
    void wake();

    // For the adapter's poller:
    base::TimePoint last_work{};
    base::BusyPoll busy_poll{std::chrono::microseconds(5)};
    bool watched = false;

private:
    /// What a failing request of the send queue is called.
    struct Outcome {
        std::uint8_t status = 0;
        std::uint16_t vendor = 0;
    };
    static const Outcome kFlushedOutcome;
    void parse(SendWqe& wqe, std::span<const std::byte> bytes);
    [[nodiscard]] std::uint16_t parse_data(SendWqe& wqe, std::span<const std::byte> bytes,
                                           std::size_t at, std::uint32_t inline_bytes);
    /// The bytes of the next WQE, or nothing, with the vendor error; then it is not taken.
    [[nodiscard]] std::span<const std::byte> take_wqe(std::uint16_t& error);
    void datagrams_failed(std::uint16_t vendor);
    void complete_send(const SendWqe& wqe, Outcome outcome);
    void complete_receive(const Receive& receive, Outcome outcome);
    void post(gdma::CompletionQueue& cq, mana_hw_ext_cqe& cqe, bool is_sq, bool solicited);
    void flush_sends();
    void flush_receives();
    void flush_taken();
    /// What is left of both queues, or in SQE of the send queue.
    void flush();
    void event(std::uint32_t number);

    // What sends need first: see Qp.
    Qp& qp_;
    Datapath& datapath_;
    std::uint32_t send_producer_ = 0;  // in units, as last read from the record
    std::uint32_t send_consumer_ = 0;
    std::uint32_t peeked_ = 0;  // up to here the keys were asked for
    const bool privileged_;
    bool last_receive_reported_ = false;
    bool drained_reported_ = false;
    bool bad_record_ = false;
    gdma::Ring send_ring_;
    const gdma::SharedWords record_;
    const gdma::Handle<SharedReceiveQueue> srq_;
    std::optional<ReceiveRing> receives_;
    Psn datagram_psn_{};
    SendWqe datagram_;
};

}  // namespace openmana::rnic
