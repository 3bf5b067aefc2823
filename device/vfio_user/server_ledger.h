// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/held_fd.h"
#include "base/twofold.h"
#include "vfio_user/message.h"

namespace openmana::vfio_user {

/// Fds of one receive, at most kMaxFds.
struct FdBatch {
    std::array<base::UniqueFd, kMaxFds> fds;
    std::size_t count = 0;
    bool overflow = false;
};

/// What a server knows of its client that nobody else does, in memory that may outlive the process:
/// what was taken from the socket and not handled, and what is handled and not answered. Another
/// process that has the descriptors can go on after any instruction of this one (docs/manad.md, "A
/// crash"). Written by the server's thread.
struct ServerLedger {
    /// Handling stops above this until the client has taken its replies: requests of 32 bytes can
    /// ask for 1 MiB each.
    static constexpr std::size_t kOutputLimit = 256 * 1024;
    /// Behind a message that has begun there is always room for the rest of it, and for a good
    /// batch of doorbells: it moves to the front only when the two places do not overlap.
    static constexpr std::size_t kInputSize = 2 * kMaxMessage + 65536;
    static constexpr std::size_t kMaxReply = kMaxMessage + 4096;
    static constexpr std::size_t kOutputSize = 2 * kOutputLimit + kMaxReply;

    struct Fds {
        std::uint32_t count = 0;
        std::array<int, kMaxFds> numbers{};
    };
    /// Where the conversation is. Changes as a whole.
    struct State {
        std::uint64_t max_read = kMaxDataTransfer;
        std::uint32_t begin = 0;  ///< of the input that is not handled
        std::uint32_t end = 0;
        std::uint32_t output_begin = 0;  ///< of what is not sent
        std::uint32_t output_end = 0;
        std::uint32_t received = 0;  ///< transfers that are in `end`; modulo two, the next one
        std::uint32_t sent = 0;      ///< and in `output_begin`
        bool negotiated = false;
        DeviceState device = DeviceState::kRunning;  ///< Migration's
        Fds first_fds, last_fds;                     ///< Session's
    };
    /// The arguments of a system call. What it has taken or sent the kernel writes to `message`
    /// before the call returns, so there is no moment in which nobody knows. Zero bytes are what a
    /// call that has not been made has moved.
    struct Transfer {
        mmsghdr message{};
        iovec vector{};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxFds)> control{};

        void prepare(void* data, std::size_t size, bool with_control);
        /// The fds that came, now the caller's.
        [[nodiscard]] FdBatch take_fds();
        /// Their numbers.
        [[nodiscard]] std::vector<int> numbers();
    };

    base::HeldFd listener;
    base::HeldFd client;
    /// One is being accepted, and may have a descriptor that `client` does not name.
    std::atomic<std::uint32_t> accepting{0};
    /// The device is as its client has left it, and waits for another one (MovableDevice::retain).
    /// With a client it says nothing.
    std::atomic<std::uint32_t> retained{0};
    /// Whether the client is being served, and how often in a row the process has ended in that.
    std::atomic<std::uint32_t> at_work{0};
    std::atomic<std::uint32_t> ends_at_work{0};
    base::Twofold<State> state;
    std::array<Transfer, 2> receives{};
    std::array<Transfer, 2> sends{};
    std::byte input[kInputSize];    // not touched before it is needed
    std::byte output[kOutputSize];  // the same

    /// Of a client that comes.
    void begin_session();
    /// Where a process that goes on finds the device: it runs, or is stopped. What a client had
    /// written of a state went with the process, and so did a device that was to have it.
    [[nodiscard]] DeviceState device_left() const;
    /// Of a process that has ended: the descriptors that are named here. Those of messages that are
    /// not handled are the session's.
    [[nodiscard]] std::vector<int> descriptors();
    [[nodiscard]] std::vector<int> descriptors_of_session();
};

}  // namespace openmana::vfio_user
