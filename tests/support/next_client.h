// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "base/fd.h"
#include "support/raw_vfio_user.h"
#include "support/remote_nic.h"
#include "support/vfio_user_client.h"

namespace openmana::test {

/// Another client of a guest, at the NIC that is to go on with it: the guest's memory, at 4 GiB,
/// and eventfds of its own.
struct NextClient {
    NextClient(const std::string& socket, base::UniqueFd lent)
        : client(socket), memory(std::move(lent)) {
        for (auto& eventfd : eventfds) eventfd = make_eventfd();
        good = client.ok() && client.map(1ULL << 32, RemoteNic::kRamBytes, memory.get());
        for (unsigned i = 0; good && i < RemoteNic::kVectors; ++i)
            good = client.set_vector(i, eventfds[i].get());
    }
    RawVfioUser client;
    base::UniqueFd memory;
    std::array<base::UniqueFd, RemoteNic::kVectors> eventfds;
    bool good = false;
};

}  // namespace openmana::test
