// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "gdma/ring.h"
#include "rnic/receive_format.h"

namespace openmana::rnic {

/// A ring of receive work requests of one size (docs/extensions.md), and how many were taken.
class ReceiveRing {
public:
    ReceiveRing(gdma::Ring ring, std::uint32_t stride)
        : ring_(std::move(ring)),
          stride_(stride),
          entries_(static_cast<std::uint32_t>(ring_.bytes() / stride)) {}
    /// The next one, if `producer` says that there is one. Nothing if it is impossible.
    [[nodiscard]] std::optional<ReceiveFormat::Take> take(std::uint32_t producer, Receive& receive);
    [[nodiscard]] std::uint32_t posted(std::uint32_t producer) const {
        return producer - consumer_;
    }
    [[nodiscard]] std::uint32_t entries() const { return entries_; }
    [[nodiscard]] std::uint32_t stride() const { return stride_; }
    [[nodiscard]] const gdma::Ring& ring() const { return ring_; }
    void reset() { consumer_ = 0; }
    void save(base::StateWriter& out) const { out(consumer_); }
    void load(base::StateReader& in);

private:
    gdma::Ring ring_;
    std::uint32_t stride_;
    std::uint32_t entries_;
    std::uint32_t consumer_ = 0;
};

}  // namespace openmana::rnic
