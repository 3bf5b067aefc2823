// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/gate.h"
#include "gdma/memory_table.h"
#include "rnic/counters.h"
#include "roce/address.h"

namespace openmana::rnic {

class Datagrams;
class QpTable;

/// What the requesters of other RNICs of this process reach of one. All but the gate during a visit
/// of it, or on its executor.
struct LocalPeer {
    base::Gate& gate;
    const QpTable& qps;
    const gdma::MemoryTable& keys;
    const Datagrams& datagrams;
    RnicCounters& counters;
};

/// Where a local path leads.
struct LocalEnd {
    const LocalPeer* peer = nullptr;  ///< null: nowhere
    /// The VLAN that both ends are in, as the peer's guest has it; the network's may be another,
    /// and so may this end's.
    roce::Vlan vlan = roce::kNoVlan;
};

}  // namespace openmana::rnic
