// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

namespace openmana::manad {

/// The connections (stream sockets) that this process has open, but for those among `others`:
/// descriptors that somebody else has, too, for whom a shutdown would end them as well.
[[nodiscard]] std::vector<int> connections_but(std::span<const int> others);

/// Ends them, so that nobody at another end of one waits until the process has closed its files:
/// that may take as long as a file system likes. Each stays open, with the number that it has.
void end_connections(std::span<const int> others);

}  // namespace openmana::manad
