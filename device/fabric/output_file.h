// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::fabric {

enum class OutputMode : std::uint8_t {
    kReplace,  ///< empties the file, which nobody else may be writing
    kAppend,   ///< others may append too
};

/// Opens a file that the threads of NICs write to; creates it with `permissions` if it is not
/// there. Does not wait for anything, and refuses what another capture or flow log, of this or
/// another process, would spoil. A pipe is refused: its reader could stop a NIC.
[[nodiscard]] base::Result<base::UniqueFd> open_output(const std::string& path, OutputMode mode,
                                                       unsigned permissions);

}  // namespace openmana::fabric
