// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace openmana::gdma {

/// Who owns an SQ or RQ: gets its doorbells. On the executor.
class DoorbellTarget {
public:
    virtual ~DoorbellTarget() = default;
    /// The running byte position that the driver has produced up to.
    virtual void ring(std::uint32_t position) = 0;
    /// The RQ-client doorbell (GDMA 3.8), whose value is between the client and its driver. Others
    /// ignore it.
    virtual void ring_client(std::uint32_t value) { (void)value; }
    /// A hint that a doorbell is on its way, while others are served; nothing else may follow from
    /// it. The memory that WorkQueues::connect and set_beyond name is on its way, too.
    virtual void prepare(std::uint32_t position) const { (void)position; }
};

}  // namespace openmana::gdma
