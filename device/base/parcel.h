// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// Bytes and descriptors that go from one process of a host to another one.
struct Parcel {
    std::vector<std::byte> bytes;
    std::vector<UniqueFd> descriptors;
};

/// Sends one over a connected Unix stream socket, and waits for at most `patience` each time that
/// the other end takes nothing. The descriptors stay the caller's.
Result<void> send_parcel(int socket, std::span<const std::byte> bytes,
                         std::span<const int> descriptors, Duration patience);
/// The next one, which is sent within `patience`. kClosed if the other end has gone, kProtocol if
/// that is no parcel.
Result<Parcel> receive_parcel(int socket, Duration patience);

}  // namespace openmana::base
