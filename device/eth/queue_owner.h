// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gdma/doorbell_pages.h"
#include "gdma/handle.h"
#include "gdma/pd_table.h"

namespace openmana::eth {

/// What a work queue belongs to, and holds.
struct QueueOwner {
    gdma::Handle<gdma::Pd> pd;           ///< of the memory that its WQEs name
    gdma::Handle<gdma::PageGrant> page;  ///< of its doorbells
};

}  // namespace openmana::eth
