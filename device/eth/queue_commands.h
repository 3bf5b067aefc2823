// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/eth.h>

#include <cstdint>
#include <optional>

#include "eth/queue_owner.h"
#include "eth/work_queues.h"
#include "gdma/command.h"
#include "gdma/function.h"

namespace openmana::eth {

/// The commands that make and end work queues. Each answers a status of HwcStatus. Under an
/// exclusion of the function's Gate.
class QueueCommands {
public:
    /// `device_type`: of the device whose PDs the queues may have. `max_queues`: of each kind.
    QueueCommands(gdma::Function& function, std::uint16_t device_type, std::uint32_t max_queues,
                  WorkQueues& queues)
        : function_(function),
          device_type_(device_type),
          max_queues_(max_queues),
          queues_(queues) {}

    std::uint32_t config_vport_tx(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t create_wq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t create_packet_wq(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_wq(const gdma::HwcRequest& request);
    std::uint32_t fence_rq(const gdma::HwcRequest& request);
    /// Forgets what CONFIG_VPORT_TX has set.
    void reset() { binding_.reset(); }
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    /// CONFIG_VPORT_TX: what the queues created from now on belong to, if it is still there then.
    /// It need not be: nothing takes the setting back when a raw packet QP and its PD end.
    struct Binding {
        gdma::Weak<gdma::Pd> pd;
        gdma::Weak<gdma::PageGrant> page;
    };
    void bind(const QueueOwner& owner);
    /// Nothing if it is not set, or not there any more.
    [[nodiscard]] std::optional<QueueOwner> bound() const;
    [[nodiscard]] std::optional<QueueOwner> find_owner(gdma::Pdn pd,
                                                       gdma::DoorbellPage page) const {
        return QueueOwner::find(function_, device_type_, pd, page);
    }
    std::uint32_t make(const mana_hw_eth_create_wq_req& in, QueueOwner owner, bool packets,
                       gdma::HwcReply& reply);

    gdma::Function& function_;
    const std::uint16_t device_type_;
    const std::uint32_t max_queues_;
    WorkQueues& queues_;
    std::optional<Binding> binding_;
};

}  // namespace openmana::eth
