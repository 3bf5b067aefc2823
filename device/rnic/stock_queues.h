// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "rnic/qp.h"

namespace openmana::rnic {

/// The queues of the stock ABI (RNIC 3, 4, 7): the host counts PSNs and gives READs their scatter
/// lists in a queue of their own; sends complete by an armed PSN, and each side tells one error.
class StockQueues final : public QueueFormat {
public:
    struct Regions {
        std::unique_ptr<gdma::DmaRegion> send;
        std::unique_ptr<gdma::DmaRegion> read_scatter;  ///< RC only
        std::unique_ptr<gdma::DmaRegion> receive;
        std::vector<std::unique_ptr<gdma::DmaRegion>>
            held;  ///< belong to the QP; the model needs no memory there
    };
    StockQueues(Qp& qp, Regions regions);
    static constexpr std::uint16_t kSendBytes = 128;  ///< see Qp::requester_memory

    bool ring_sends(std::uint32_t position) override;
    bool ring_receives(std::uint32_t position) override;
    void posted_in_error() override;
    gdma::DoorbellTarget* read_doorbell() override { return &read_doorbell_; }
    bool sends_posted() override { return send_consumer_ != send_producer_; }
    void fetch(SendWqe& wqe, Psn next) override;
    void prefetch_sends(std::uint32_t position) const override;
    void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) override;
    void finished(const SendWqe& wqe) override;
    void settle() override;
    void start_sends(Psn first) override;
    Next next_datagram(Datagram& datagram) override;
    void datagram_done() override;
    Take take(Receive& receive) override;
    void received(const Receive& receive, const Received& message) override;
    void received_datagram(const Receive& receive, const roce::Packet& packet,
                           std::uint32_t length) override;
    void send_failed(std::uint16_t vendor, bool on_read_queue) override;
    void receive_failed(roce::NakCode code, std::uint16_t vendor) override;
    void responder_failed() override;
    void enter_error() override;
    void reset() override;

    /// Doorbell of the READ scatter queue.
    void ring_reads(std::uint32_t position);
    /// Doorbell 0x408 (RNIC 3.8).
    void arm(Psn psn);

private:
    void take_scatter(SendWqe& wqe);
    void post_armed();
    /// Writes the one send-error CQE between two RESETs, if work is left, with rules a and b of
    /// RNIC 3.9.
    bool report_send_error(std::uint16_t vendor, bool on_read_queue);
    /// The same of receives. Held.
    bool report_receive_error(std::uint16_t vendor);
    void flush_other_side();
    [[nodiscard]] bool build_datagram(const gdma::Wqe& wqe, Datagram& datagram);
    [[nodiscard]] Psn acked() const { return Psn(acked_.load(std::memory_order_relaxed)); }

    struct ReadDoorbell final : gdma::DoorbellTarget {
        explicit ReadDoorbell(StockQueues& owner) : queues(owner) {}
        void ring(std::uint32_t position) override { queues.ring_reads(position); }
        void ring_client(std::uint32_t value) override { queues.arm(Psn(value & 0xffffff)); }
        StockQueues& queues;
    };

    // Most used first: see Qp.
    Qp& qp_;
    Datapath& datapath_;
    std::uint32_t send_producer_ = 0;
    std::uint32_t send_consumer_ = 0;      // of WQEs fetched
    std::uint32_t peeked_ = 0;             // up to here the keys were asked for
    std::atomic<std::uint32_t> acked_{0};  // PSN of the newest finished WQE; read by visitors
    Psn reported_{};
    Psn arm_psn_{};
    bool armed_ = false;
    bool send_error_reported_ = false;
    std::uint32_t datagram_position_ = 0;
    gdma::Ring send_ring_;
    ReadDoorbell read_doorbell_{*this};
    base::Timer hold_timer_;  // holds the other side's flush back (RNIC 3.9 rule c)

    gdma::Ring receive_ring_;
    std::atomic<std::uint32_t> receive_producer_{
        0};  // written by the owner; acquire pairs with release in ring_receives()
    std::atomic<std::uint32_t> receive_consumer_{
        0};  // written under the mutex; release pairs with acquire in ring_receives()
    bool receive_error_reported_ = false;

    std::uint32_t read_producer_ = 0;
    std::uint32_t read_consumer_ = 0;
    std::optional<gdma::Ring> read_ring_;
    std::vector<std::unique_ptr<gdma::DmaRegion>> held_;
};

}  // namespace openmana::rnic
