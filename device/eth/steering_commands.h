// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "eth/steering.h"
#include "eth/work_queues.h"
#include "gdma/command.h"
#include "gdma/function.h"

namespace openmana::eth {

/// The commands that say which queue gets a frame: CONFIG_VPORT_RX, flow rules and spreads. Each
/// answers a status of HwcStatus. Under an exclusion of the function's Gate.
class SteeringCommands {
public:
    SteeringCommands(const gdma::Function& function, WorkQueues& queues, Steering& steering)
        : function_(function), queues_(queues), steering_(steering) {}

    std::uint32_t config_vport_rx(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t add_flow(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t remove_flow(const gdma::HwcRequest& request);
    std::uint32_t create_spread(const gdma::HwcRequest& request, gdma::HwcReply& reply);
    std::uint32_t destroy_spread(const gdma::HwcRequest& request);

private:
    const gdma::Function& function_;
    WorkQueues& queues_;
    Steering& steering_;
};

}  // namespace openmana::eth
