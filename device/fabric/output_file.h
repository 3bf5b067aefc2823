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

/// Opens a file that the threads of NICs write to; creates it for its owner alone (0600) if it is
/// not there. Does not wait for anything, and refuses what another capture or flow log, of this or
/// another process, would spoil.
///
/// Only a regular file is written: the reader of a pipe could stop a NIC, and a write to a device
/// is a command. A symbolic link as the path's last part is refused, because who may write to the
/// directory may have put it there to have another file written.
[[nodiscard]] base::Result<base::UniqueFd> open_output(const std::string& path, OutputMode mode);

}  // namespace openmana::fabric
