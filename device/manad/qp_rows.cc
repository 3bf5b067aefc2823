// SPDX-License-Identifier: Apache-2.0
#include "manad/qp_rows.h"

#include <algorithm>

namespace openmana::manad {

void QpRows::add(const std::string& nic, std::span<const rnic::QpStatus> qps) {
    all_ += qps.size();
    for (const rnic::QpStatus& qp : qps.first(std::min(qps.size(), kMost - rows_.size())))
        rows_.push_back({{"nic", nic},
                         {"qpn", qp.qpn},
                         {"type", qp.type},
                         {"state", qp.state},
                         {"path", qp.path},
                         {"remote_qpn", qp.remote_qpn},
                         {"tx_messages", qp.tx_messages},
                         {"tx_bytes", qp.tx_bytes},
                         {"rx_messages", qp.rx_messages},
                         {"rx_bytes", qp.rx_bytes},
                         {"retries", qp.retries},
                         {"rnr_retries", qp.rnr_retries},
                         {"credit_waits", qp.credit_waits},
                         {"errors", qp.errors},
                         {"rate_mbps", qp.rate_mbps}});
}

}  // namespace openmana::manad
