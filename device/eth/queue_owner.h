// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include "gdma/function.h"
#include "gdma/handle.h"

namespace openmana::eth {

/// What a work queue belongs to, and holds.
struct QueueOwner {
    gdma::Handle<gdma::Pd> pd;           ///< of the memory that its WQEs name
    gdma::Handle<gdma::PageGrant> page;  ///< of its doorbells

    /// Nothing unless both are there; the PD is one of the guest's, or the device's.
    [[nodiscard]] static std::optional<QueueOwner> find(gdma::Function& function,
                                                        gdma::DeviceType device, gdma::Pdn pd,
                                                        gdma::DoorbellPage page) {
        auto found_pd = function.pds().find(pd, device);
        auto found_page = function.pages().find(page);
        if (!found_pd || !found_page) return std::nullopt;
        return QueueOwner{std::move(*found_pd), std::move(*found_page)};
    }
};

}  // namespace openmana::eth
