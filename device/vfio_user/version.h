// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "vfio_user/message.h"

namespace openmana::vfio_user {

constexpr std::uint16_t kVersionMajor = 0;
constexpr std::uint16_t kVersionMinor = 1;

/// What the two sides say of themselves in VERSION. The defaults are the protocol's, for a side
/// that says nothing.
struct Capabilities {
    std::uint64_t max_msg_fds = 1;
    std::uint64_t max_data_xfer_size = 1U << 20;
    bool write_multiple = false;
};

/// Reads the JSON text behind a VersionHead; empty is allowed. Unknown names are skipped, a known
/// one with a value of the wrong kind is an error.
[[nodiscard]] base::Result<Capabilities> parse_capabilities(std::span<const std::byte> text);

/// JSON text without its NUL. `write_multiple` is left out when false: a reply names only what the
/// client knows.
[[nodiscard]] std::string format_capabilities(const Capabilities& capabilities);

}  // namespace openmana::vfio_user
