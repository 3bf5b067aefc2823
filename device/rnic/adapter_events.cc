// SPDX-License-Identifier: Apache-2.0
#include "rnic/adapter_events.h"

#include <mana/ext.h>

namespace openmana::rnic {

void AdapterEvents::qp_fatal(roce::Qpn qpn) {
    counters_.fatal_events.add();
    if (eq_) eq_->post(gdma::EqeType::kQpFatal, {qpn.value(), 0, 0});
}

void AdapterEvents::extension(std::uint32_t id, std::uint32_t number) {
    counters_.events.add();
    if (eq_) eq_->post(gdma::EqeType::kQpFatal, {id, MANA_HW_EXT_EVENT_MARK | number, 0});
}

}  // namespace openmana::rnic
