// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "gdma/doorbell_target.h"
#include "gdma/ring.h"
#include "gdma/wqe.h"
#include "rnic/send_format.h"
#include "rnic/stock_completions.h"

namespace openmana::rnic {

struct Datapath;
struct Qp;

/// Sends of the stock ABI (RNIC 3, 7.2): the host counts PSNs and gives READs their scatter lists
/// in a queue of their own; requests complete by an armed PSN (RNIC 3.8), those of UC each by a CQE
/// (RNIC 3.13).
class StockSends final : public SendFormat {
public:
    /// `reads`: of scatter lists, RC only.
    StockSends(Qp& qp, gdma::Ring sends, std::optional<gdma::Ring> reads);

    bool ring_doorbell(std::uint32_t position) override;
    bool posted() override { return consumer_ != producer_; }
    void fetch(SendWqe& wqe, Psn next) override;
    void prefetch(std::uint32_t position) const override;
    void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) override;
    /// There is none: nothing that fetch() gives is local.
    std::uint16_t execute_local(const SendWqe& wqe) override;
    void complete(const SendWqe& wqe) override;
    void settle() override;
    void start(Psn first) override;
    Next next_datagram(Datagram& datagram) override;
    void complete_datagram() override;
    void reset() override;
    /// Into ones that were just made of the same rings (format_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    [[nodiscard]] const gdma::Ring& ring() const { return ring_; }
    /// Null if there is none.
    [[nodiscard]] const gdma::Ring* read_ring() const {
        return read_ring_ ? &*read_ring_ : nullptr;
    }

    /// Of the READ scatter queue, which also arms.
    [[nodiscard]] gdma::DoorbellTarget& read_doorbell() { return read_doorbell_; }
    /// The newest request that is done. Also for visitors.
    [[nodiscard]] Psn acked() const { return completions_.done(); }
    /// Tells the host of what is done, armed or not, if it does not know it.
    void report_progress();
    /// That the host blames its oldest request for.
    [[nodiscard]] Psn error_psn() const;

private:
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self);
    void ring_reads(std::uint32_t position);
    void take_scatter(SendWqe& wqe);
    void post_send_cqe(std::uint32_t position);
    [[nodiscard]] bool build_datagram(const gdma::Wqe& wqe, Datagram& datagram);

    struct ReadDoorbell final : gdma::DoorbellTarget {
        explicit ReadDoorbell(StockSends& owner) : sends(owner) {}
        void ring(std::uint32_t position) override { sends.ring_reads(position); }
        void ring_client(std::uint32_t value) override {
            sends.completions_.arm(sends.qp_, Psn(value & 0xffffff));
        }
        StockSends& sends;
    };

    // Most used first: see StockQueues::kSendBytes.
    Qp& qp_;
    Datapath& datapath_;
    std::uint32_t peeked_ = 0;  // up to here the keys were asked for
    StockCompletions completions_;
    std::uint32_t datagram_position_ = 0;
    gdma::Ring ring_;
    ReadDoorbell read_doorbell_{*this};

    std::uint32_t read_producer_ = 0;
    std::uint32_t read_consumer_ = 0;
    std::optional<gdma::Ring> read_ring_;
};

}  // namespace openmana::rnic
