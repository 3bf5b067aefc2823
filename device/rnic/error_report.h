// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "roce/aeth.h"

namespace openmana::rnic {

/// How the host learns of errors, of work that is flushed, and of changes of the state that it did
/// not ask for. "Owner" is the QP's own executor; "held" means with the responder's mutex, on any
/// thread that may hold it. Two exist: StockErrors and ExtErrors.
class ErrorReport {
public:
    virtual ~ErrorReport() = default;

    /// Whether this failure of a send leaves the receive side as it is: the QP goes to SQE.
    [[nodiscard]] virtual bool stops_sends_only(std::uint16_t vendor) const = 0;
    /// The requester failed; the QP is in ERR or SQE since. Owner.
    virtual void send_failed(std::uint16_t vendor, bool on_read_queue) = 0;
    /// The send format gave SendFormat::Next::kFailed: the QP leaves RTS. Owner.
    virtual void datagram_failed() = 0;
    /// The responder failed; the QP is in ERR since. `vendor` 0: no receive is to blame. Held.
    virtual void receive_failed(roce::NakCode code, std::uint16_t vendor) = 0;
    /// What `receive_failed` could not do. Owner.
    virtual void responder_failed() = 0;
    /// The QP failed in a way that no completion tells of. Owner, held or not.
    virtual void fatal() = 0;
    /// The host asked for ERR. Owner.
    virtual void enter_error() = 0;
    /// Any doorbell of a QP that is in ERR, or that of the SQ in SQE. Owner.
    virtual void posted_in_error() = 0;
    /// The host has changed the state to one in which the QP works. Owner.
    virtual void state_changed() = 0;
    /// The first packet came in RTR. Held.
    virtual void established() = 0;
    /// Forgets what was reported. Owner, held.
    virtual void reset() = 0;
};

}  // namespace openmana::rnic
