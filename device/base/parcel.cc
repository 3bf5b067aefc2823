// SPDX-License-Identifier: Apache-2.0
#include "base/parcel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace openmana::base {
namespace {

constexpr std::uint64_t kMagic = 0x6c656372'6150'4d4f;  // "OMParcel"
/// What a NIC's state takes at most, and then some.
constexpr std::uint64_t kMostBytes = 4ULL << 30;
constexpr std::uint32_t kMostDescriptors = 1U << 17;
/// With one call; the kernel takes 253.
constexpr std::size_t kDescriptorsOfCall = 128;

struct Head {
    std::uint64_t magic = kMagic;
    std::uint64_t bytes = 0;
    std::uint32_t descriptors = 0;
    std::uint32_t reserved = 0;
};

Result<void> wait_for(int socket, short events, Duration patience) {
    pollfd entry{socket, events, 0};
    const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
    for (;;) {
        const int ready = ::poll(&entry, 1, static_cast<int>(limit));
        if (ready > 0) return {};
        if (ready == 0) return fail(ErrorCode::kBusy, "the other process does not answer");
        if (errno != EINTR)
            return fail(ErrorCode::kIo, "cannot wait", static_cast<unsigned>(errno));
    }
}

union Control {
    std::array<char, CMSG_SPACE(kDescriptorsOfCall * sizeof(int))> bytes;
    cmsghdr align;
};

/// Some of the bytes, and with them all of the descriptors.
Result<std::size_t> send_some(int socket, std::span<const std::byte> bytes,
                              std::span<const int> descriptors, Duration patience) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    Control control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!descriptors.empty()) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
        std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
    }
    for (;;) {
        const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) return static_cast<std::size_t>(n);
        if (errno == EPIPE || errno == ECONNRESET)
            return fail(ErrorCode::kClosed, "the other process has gone");
        if (errno == EAGAIN)
            TRY_VOID(wait_for(socket, POLLOUT, patience));
        else if (errno != EINTR)
            return fail(ErrorCode::kIo, "cannot send", static_cast<unsigned>(errno));
    }
}

Result<void> send_all(int socket, std::span<const std::byte> bytes, Duration patience) {
    while (!bytes.empty()) {
        TRY(const std::size_t n, send_some(socket, bytes, {}, patience));
        bytes = bytes.subspan(n);
    }
    return {};
}

/// Some bytes into the room, at least one; the descriptors that come with them are added.
Result<std::size_t> receive_some(int socket, std::span<std::byte> room,
                                 std::vector<UniqueFd>& descriptors, Duration patience) {
    iovec part{room.data(), room.size()};
    Control control{};
    for (;;) {
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.bytes.data();
        message.msg_controllen = control.bytes.size();
        const ssize_t n = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EAGAIN) {
            TRY_VOID(wait_for(socket, POLLIN, patience));
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || (n < 0 && errno == ECONNRESET))
            return fail(ErrorCode::kClosed, "the other process has gone");
        if (n < 0) return fail(ErrorCode::kIo, "cannot receive", static_cast<unsigned>(errno));
        for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
             head = CMSG_NXTHDR(&message, head)) {
            if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
            for (std::size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
                descriptors.emplace_back(fd);
            }
        }
        if ((message.msg_flags & MSG_CTRUNC) != 0)
            return fail(ErrorCode::kExhausted, "no room for the descriptors of the other process");
        return static_cast<std::size_t>(n);
    }
}

Result<void> receive_all(int socket, std::span<std::byte> room, std::vector<UniqueFd>& descriptors,
                         Duration patience) {
    while (!room.empty()) {
        TRY(const std::size_t n, receive_some(socket, room, descriptors, patience));
        room = room.subspan(n);
    }
    return {};
}

}  // namespace

Result<void> send_parcel(int socket, std::span<const std::byte> bytes,
                         std::span<const int> descriptors, Duration patience) {
    Head head;
    head.bytes = bytes.size();
    head.descriptors = static_cast<std::uint32_t>(descriptors.size());
    TRY_VOID(send_all(socket, std::as_bytes(std::span(&head, 1)), patience));
    // Each call's go with a byte of their own, so that none are merged.
    while (!descriptors.empty()) {
        const auto some = descriptors.first(std::min(descriptors.size(), kDescriptorsOfCall));
        const std::byte mark{0};
        TRY_VOID(send_some(socket, std::span(&mark, 1), some, patience));
        descriptors = descriptors.subspan(some.size());
    }
    return send_all(socket, bytes, patience);
}

Result<Parcel> receive_parcel(int socket, Duration patience) {
    Parcel parcel;
    Head head;
    TRY_VOID(receive_all(socket, std::as_writable_bytes(std::span(&head, 1)), parcel.descriptors,
                         patience));
    if (head.magic != kMagic || head.bytes > kMostBytes || head.descriptors > kMostDescriptors ||
        !parcel.descriptors.empty())
        return fail(ErrorCode::kProtocol, "the other process sends something else");
    while (parcel.descriptors.size() < head.descriptors) {
        const std::size_t before = parcel.descriptors.size();
        std::byte mark{};
        TRY_VOID(receive_some(socket, std::span(&mark, 1), parcel.descriptors, patience));
        if (parcel.descriptors.size() == before)
            return fail(ErrorCode::kProtocol, "descriptors are missing");
    }
    parcel.bytes.resize(head.bytes);
    TRY_VOID(receive_all(socket, parcel.bytes, parcel.descriptors, patience));
    if (parcel.descriptors.size() != head.descriptors)
        return fail(ErrorCode::kProtocol, "more descriptors than were told of");
    return parcel;
}

}  // namespace openmana::base
