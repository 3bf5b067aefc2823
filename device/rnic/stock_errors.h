// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "rnic/error_report.h"
#include "rnic/stock_receives.h"
#include "rnic/stock_sends.h"

namespace openmana::rnic {

/// Errors of the stock ABI (RNIC 3.9, 3.10): each side tells one, by a CQE that stands for all that
/// is flushed; for the rest there is an event of the QP.
class StockErrors final : public ErrorReport {
public:
    StockErrors(Qp& qp, StockSends& sends, StockReceives& receives);

    /// The stock ABI has no SQE.
    bool stops_sends_only(std::uint16_t) const override { return false; }
    void send_failed(std::uint16_t vendor, bool on_read_queue) override;
    void datagram_failed() override;
    void receive_failed(roce::NakCode code, std::uint16_t vendor) override;
    void responder_failed() override;
    void fatal() override;
    void enter_error() override;
    void posted_in_error() override;
    // The stock ABI has no events of these.
    void state_changed() override {}
    void established() override {}
    void reset() override;
    /// Into new ones (format_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    /// Writes the one send-error CQE between two RESETs, if work is left, with rules a and b of
    /// RNIC 3.9. True if it did.
    bool report_send_error(std::uint16_t vendor, bool on_read_queue);
    /// The same of receives. Held.
    bool report_receive_error(std::uint16_t vendor);
    void flush_other_side();

    Qp& qp_;
    Datapath& datapath_;
    StockSends& sends_;
    StockReceives& receives_;
    bool send_error_reported_ = false;
    bool receive_error_reported_ = false;  // protected by the responder's mutex
    base::Timer hold_timer_;               // holds the other side's flush back (RNIC 3.9 rule c)
};

}  // namespace openmana::rnic
