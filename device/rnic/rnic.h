// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/frame.h"
#include "gdma/function.h"
#include "rnic/config.h"
#include "rnic/counters.h"
#include "rnic/local_peer.h"
#include "rnic/network.h"
#include "rnic/qp_states.h"
#include "rnic/request_figures.h"

namespace openmana::rnic {

struct Adapter;

/// Figures of one QP for `manactl`.
struct QpStatus {
    std::uint32_t qpn = 0;
    const char* type = "";   ///< "RC", "UD", "GSI"
    const char* state = "";  ///< "RESET" ... "ERR"
    const char* path = "";   ///< "local", "wire" or "-"
    std::uint32_t remote_qpn = 0;
    std::uint64_t tx_messages = 0, tx_bytes = 0, rx_messages = 0, rx_bytes = 0;
    std::uint64_t retries = 0, rnr_retries = 0, credit_waits = 0, errors = 0;
    std::uint32_t rate_mbps = 0;  ///< what congestion control allows; 0: no limit
};

/// The RDMA device (GDMA type 3) of a function: adapter, CQs, QPs, transport (RNIC all sections).
class Rnic final : public gdma::Client {
public:
    /// Attaches itself to the function.
    Rnic(gdma::Function& function, RnicConfig config, Network& network);
    ~Rnic() override;

    [[nodiscard]] std::uint16_t device_type() const override { return 3; }
    void command(const gdma::HwcRequest& request, gdma::HwcReply& reply) override;
    void reset() override;
    void save(base::StateWriter& out) const override;
    void load(base::StateReader& in) override;

    /// RoCEv2 frames from the wire. From any thread: they are copied and handled on the executor.
    void receive(base::FrameViews frames);
    void receive(base::FrameView frame) { receive(base::FrameViews(&frame, 1)); }
    /// True if the adapter has this address configured, and serves it. During a visit or on the
    /// executor.
    [[nodiscard]] bool owns(const roce::Address& address) const;
    /// Others may have a better claim to its addresses now, or not any more: asks the network again
    /// for all, or for one. On the executor, not during a visit.
    void review_addresses();
    void review_address(const roce::Address& address);
    /// True if a datagram to a group may find a receiver. During a visit or on the executor.
    [[nodiscard]] bool takes_multicast() const;
    /// What requesters of this process reach of it. It lives as long as this.
    [[nodiscard]] const LocalPeer& local_peer() const;
    /// From any thread.
    [[nodiscard]] const RnicCounters& counters() const;
    [[nodiscard]] const RequestFigures& request_figures() const;
    [[nodiscard]] const QpStates& qp_states() const;
    /// On the executor, like qp_status, which costs a lock and a record for each.
    [[nodiscard]] std::size_t qp_count() const;
    [[nodiscard]] std::vector<QpStatus> qp_status() const;

    /// For tests that look inside.
    [[nodiscard]] Adapter& adapter() { return *adapter_; }

private:
    std::unique_ptr<Adapter> adapter_;
};

}  // namespace openmana::rnic
