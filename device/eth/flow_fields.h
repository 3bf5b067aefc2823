// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace openmana::eth {

/// The bytes of mana_hw_ext_flow_fields, in words that are compared at once.
using FlowFields = std::array<std::uint64_t, 7>;

/// What flow rules see of a frame; a header that is cut short counts as absent.
[[nodiscard]] FlowFields flow_fields(std::span<const std::byte> frame);
/// Whether a rule may ask for this: nothing beside the mask, or of what is reserved.
[[nodiscard]] bool can_match(const FlowFields& value, const FlowFields& mask);

}  // namespace openmana::eth
