// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "gdma/handle.h"
#include "gdma/ring.h"
#include "rnic/ext_completions.h"
#include "rnic/receive_format.h"
#include "rnic/receive_ring.h"
#include "rnic/shared_receive_queue.h"

namespace openmana::rnic {

struct Qp;

/// Receives of the extension (docs/extensions.md): of a ring of their own, whose producer lies in a
/// record in guest memory, or of a shared receive queue.
class ExtReceives final : public ReceiveFormat {
public:
    /// From `srq`, else from `ring`; there may be none. `fresh`: the record is to be as a new one.
    ExtReceives(Qp& qp, const gdma::SharedWords& record, gdma::Handle<SharedReceiveQueue> srq,
                std::optional<ReceiveRing> ring, bool fresh);

    bool ring_doorbell(std::uint32_t position) override;
    Take take(Receive& receive) override;
    void complete(const Receive& receive, const Received& message) override;
    void complete_datagram(const Receive& receive, const roce::Packet& packet,
                           std::uint32_t length) override;
    bool complete_aborted(const Receive& receive) override;
    void reset() override;
    /// Into new ones of the same ring (format_state.cc).
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

    void complete_with_error(const Receive& receive, ExtOutcome error);
    /// Completes all that is left as flushed; the last one of an SRQ is told by an event. Owner.
    void flush();
    /// A receive of an SRQ that a message is using completes as flushed: the QP ends. Held.
    void give_back();

private:
    void flush_taken();
    [[nodiscard]] bool flush_step(std::uint32_t& left);

    Qp& qp_;
    const gdma::SharedWords& record_;
    const gdma::Handle<SharedReceiveQueue> srq_;
    std::optional<ReceiveRing> ring_;
    bool last_reported_ = false;
};

}  // namespace openmana::rnic
