// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/frame.h"
#include "base/result.h"

namespace openmana::fabric {

/// What comes in on an interface of the host for groups, while the host gets it too; and as long as
/// it is open the interface listens to all addresses. Not what the host itself sends.
class GroupSocket {
public:
    static constexpr std::size_t kFrames = 16;  ///< at a time

    /// Takes CAP_NET_RAW.
    static base::Result<base::UniqueFd> open(int interface);

    void adopt(base::UniqueFd socket);
    void close() { socket_.reset(); }
    [[nodiscard]] int fd() const { return socket_.get(); }
    /// Those that are there, with the VLAN tag that the kernel has taken out; good until the next
    /// call.
    [[nodiscard]] base::FrameViews receive();
    /// Of those that came, how many there was no room for since the last call.
    [[nodiscard]] std::uint64_t lost() const;

private:
    static constexpr std::size_t kMaxFrame = 65536;
    static constexpr std::size_t kTagBytes = 4;
    [[nodiscard]] base::FrameView whole(msghdr& message, std::byte* buffer, std::size_t bytes);

    base::UniqueFd socket_;
    std::vector<std::byte> buffer_;
    std::array<base::FrameView, kFrames> views_;
};

}  // namespace openmana::fabric
