// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/gate.h"
#include "gdma/memory_table.h"
#include "rnic/counters.h"

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

}  // namespace openmana::rnic
