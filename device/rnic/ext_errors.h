// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "rnic/error_report.h"
#include "rnic/ext_receives.h"
#include "rnic/ext_sends.h"

namespace openmana::rnic {

/// Errors of the extension (docs/extensions.md): each work request completes with its own status,
/// what is left as flushed, and what no completion can tell is an event as IB has it.
class ExtErrors final : public ErrorReport {
public:
    ExtErrors(Qp& qp, ExtSends& sends, ExtReceives& receives)
        : qp_(qp), sends_(sends), receives_(receives) {}

    bool stops_sends_only(std::uint16_t vendor) const override;
    void send_failed(std::uint16_t vendor, bool on_read_queue) override;
    void datagram_failed() override;
    void receive_failed(roce::NakCode code, std::uint16_t vendor) override;
    void responder_failed() override { flush(); }
    void fatal() override;
    void enter_error() override { flush(); }
    void posted_in_error() override { flush(); }
    void state_changed() override { sends_.report_drained(); }
    void established() override;
    /// Nothing: sends and receives know what of theirs was reported.
    void reset() override {}

private:
    /// What is left of both queues, or in SQE of the send queue.
    void flush();
    void event(std::uint32_t number);

    Qp& qp_;
    ExtSends& sends_;
    ExtReceives& receives_;
};

}  // namespace openmana::rnic
