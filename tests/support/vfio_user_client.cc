// SPDX-License-Identifier: Apache-2.0
#include "support/vfio_user_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/unix_socket.h"

namespace openmana::test {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;
using namespace vfio_user;  // the messages

namespace {

constexpr int kReplySeconds = 60;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace

UniqueFd make_memfd(std::uint64_t size) {
    UniqueFd fd(::memfd_create("guest-ram", MFD_CLOEXEC));
    OM_CHECK(fd);
    const int truncated = ::ftruncate(fd.get(), static_cast<off_t>(size));
    OM_CHECK(truncated == 0);
    return fd;
}

UniqueFd make_eventfd() {
    UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    OM_CHECK(fd);
    return fd;
}

std::uint64_t take_signals(const UniqueFd& eventfd) {
    std::uint64_t count = 0;
    return ::read(eventfd.get(), &count, sizeof count) == sizeof count ? count : 0;
}

bool wait_signal(const UniqueFd& eventfd, int seconds) {
    pollfd waiting{.fd = eventfd.get(), .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, seconds * 1000) == 1;
}

Result<std::unique_ptr<VfioUserClient>> VfioUserClient::connect(const std::string& path) {
    TRY(UniqueFd socket, base::connect_unix(path));
    return std::make_unique<VfioUserClient>(std::move(socket));
}

Result<void> VfioUserClient::send_raw(std::span<const std::byte> bytes, std::span<const int> fds) {
    std::vector<std::byte> control(fds.empty() ? 0 : CMSG_SPACE(fds.size_bytes()));
    while (!bytes.empty()) {
        iovec vector{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
        msghdr header{};
        header.msg_iov = &vector;
        header.msg_iovlen = 1;
        if (!fds.empty()) {
            header.msg_control = control.data();
            header.msg_controllen = control.size();
            cmsghdr* part = CMSG_FIRSTHDR(&header);
            part->cmsg_level = SOL_SOCKET;
            part->cmsg_type = SCM_RIGHTS;
            part->cmsg_len = CMSG_LEN(fds.size_bytes());
            std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
        }
        const ssize_t sent = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) continue;
            return fail(ErrorCode::kClosed, "cannot send", static_cast<unsigned>(errno));
        }
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
        fds = {};
    }
    return {};
}

Result<void> VfioUserClient::send(Command command, std::span<const std::byte> payload,
                                  std::uint32_t flags, std::span<const int> fds) {
    std::vector<std::byte> message;
    put_message(message, ++next_id_, command, flags, payload);
    return send_raw(message, fds);
}

Result<void> VfioUserClient::receive_exactly(std::span<std::byte> target) {
    while (!target.empty()) {
        pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        if (::poll(&waiting, 1, kReplySeconds * 1000) == 0)
            return fail(ErrorCode::kIo, "no reply", ETIMEDOUT);
        const ssize_t got = ::recv(socket_.get(), target.data(), target.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return fail(ErrorCode::kClosed, "connection closed");
        target = target.subspan(static_cast<std::size_t>(got));
    }
    return {};
}

Result<Reply> VfioUserClient::receive() {
    std::array<std::byte, sizeof(Header)> head;
    TRY_VOID(receive_exactly(head));
    Reply reply{.header = base::load_le<Header>(head.data()), .payload = {}};
    if (reply.header.size < sizeof(Header) || reply.header.size > kMaxMessage) {
        return fail(ErrorCode::kProtocol, "reply of an impossible size", reply.header.size);
    }
    reply.payload.resize(reply.header.size - sizeof(Header));
    TRY_VOID(receive_exactly(reply.payload));
    return reply;
}

Result<std::vector<std::byte>> VfioUserClient::call(Command command,
                                                    std::span<const std::byte> payload,
                                                    std::span<const int> fds) {
    TRY_VOID(send(command, payload, 0, fds));
    TRY(Reply reply, receive());
    if (reply.header.id != next_id_ || reply.header.command != command ||
        (reply.header.flags & kTypeMask) != kTypeReply) {
        return fail(ErrorCode::kProtocol, "reply to something else", reply.header.id);
    }
    if ((reply.header.flags & kFlagError) != 0) {
        if (!reply.payload.empty()) return fail(ErrorCode::kProtocol, "error reply with a payload");
        return fail(ErrorCode::kIo, "error reply", reply.header.error);
    }
    return std::move(reply.payload);
}

bool VfioUserClient::closed_by_server() {
    std::array<std::byte, 256> ignored;
    for (;;) {
        pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        if (::poll(&waiting, 1, kReplySeconds * 1000) <= 0) return false;
        const ssize_t got = ::recv(socket_.get(), ignored.data(), ignored.size(), 0);
        if (got == 0 || (got < 0 && errno == ECONNRESET)) return true;
        if (got < 0) return false;
    }
}

Result<Capabilities> VfioUserClient::negotiate() {
    std::vector<std::byte> payload;
    Writer writer(payload);
    writer.put(VersionHead{.major = 0, .minor = 0});
    const std::string text = format_capabilities(
        {.max_msg_fds = 8, .max_data_xfer_size = 1U << 20, .write_multiple = true});
    writer.put_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    TRY(const auto reply, call(Command::kVersion, payload));
    Reader reader(reply);
    const auto head = reader.take<VersionHead>();
    if (!head || head->major != 0 || head->minor != 0) return fail(ErrorCode::kProtocol, "version");
    return parse_capabilities(reader.rest());
}

template <typename T>
Result<T> VfioUserClient::ask(Command command, const T& request) {
    TRY(const auto reply, call(command, bytes_of(request)));
    if (reply.size() != sizeof(T))
        return fail(ErrorCode::kProtocol, "size of the reply", reply.size());
    return base::load_le<T>(reply.data());
}

Result<DeviceInfo> VfioUserClient::device_info() {
    return ask(Command::kDeviceGetInfo, DeviceInfo{.argsz = sizeof(DeviceInfo)});
}

Result<RegionInfoMessage> VfioUserClient::region_info(std::uint32_t index) {
    RegionInfoMessage request{};
    request.argsz = sizeof request;
    request.index = index;
    return ask(Command::kGetRegionInfo, request);
}

Result<IrqInfoMessage> VfioUserClient::irq_info(std::uint32_t index) {
    return ask(
        Command::kGetIrqInfo,
        IrqInfoMessage{.argsz = sizeof(IrqInfoMessage), .flags = 0, .index = index, .count = 0});
}

Result<void> VfioUserClient::dma_map(std::uint64_t address, std::uint64_t size, int fd,
                                     std::uint64_t offset, std::uint32_t flags) {
    const DmaMapRequest request{.argsz = sizeof(DmaMapRequest),
                                .flags = flags,
                                .offset = offset,
                                .address = address,
                                .size = size};
    TRY_VOID(call(Command::kDmaMap, bytes_of(request),
                  fd >= 0 ? std::span<const int>(&fd, 1) : std::span<const int>()));
    return {};
}

Result<void> VfioUserClient::dma_unmap(std::uint64_t address, std::uint64_t size,
                                       std::uint32_t flags) {
    TRY_VOID(ask(
        Command::kDmaUnmap,
        DmaUnmapRequest{
            .argsz = sizeof(DmaUnmapRequest), .flags = flags, .address = address, .size = size}));
    return {};
}

Result<void> VfioUserClient::set_irqs(std::uint32_t flags, std::uint32_t start, std::uint32_t count,
                                      std::span<const int> fds, std::span<const std::byte> data,
                                      std::uint32_t index) {
    std::vector<std::byte> payload;
    Writer writer(payload);
    writer.put(IrqSet{.argsz = static_cast<std::uint32_t>(sizeof(IrqSet) + data.size()),
                      .flags = flags,
                      .index = index,
                      .start = start,
                      .count = count});
    writer.put_bytes(data);
    TRY_VOID(call(Command::kSetIrqs, payload, fds));
    return {};
}

Result<void> VfioUserClient::set_eventfd(std::uint32_t vector, const UniqueFd& eventfd) {
    const int fd = eventfd.get();
    return set_irqs(kIrqDataEventfd | kIrqActionTrigger, vector, 1,
                    eventfd ? std::span<const int>(&fd, 1) : std::span<const int>());
}

Result<std::vector<std::byte>> VfioUserClient::read(std::uint32_t region, std::uint64_t offset,
                                                    std::uint32_t count) {
    const RegionAccess access{.offset = offset, .region = region, .count = count};
    TRY(auto reply, call(Command::kRegionRead, bytes_of(access)));
    if (reply.size() != sizeof access + count ||
        std::memcmp(reply.data(), &access, sizeof access) != 0) {
        return fail(ErrorCode::kProtocol, "reply to another read", reply.size());
    }
    reply.erase(reply.begin(), reply.begin() + sizeof access);
    return reply;
}

Result<void> VfioUserClient::write(std::uint32_t region, std::uint64_t offset,
                                   std::span<const std::byte> data) {
    std::vector<std::byte> payload;
    Writer writer(payload);
    writer.put(RegionAccess{
        .offset = offset, .region = region, .count = static_cast<std::uint32_t>(data.size())});
    writer.put_bytes(data);
    TRY(const auto reply, call(Command::kRegionWrite, payload));
    if (reply.size() != sizeof(RegionAccess))
        return fail(ErrorCode::kProtocol, "size of the reply", reply.size());
    return {};
}

Result<void> VfioUserClient::post(std::uint32_t region, std::uint64_t offset,
                                  std::span<const std::byte> data) {
    std::vector<std::byte> payload;
    Writer writer(payload);
    writer.put(RegionAccess{
        .offset = offset, .region = region, .count = static_cast<std::uint32_t>(data.size())});
    writer.put_bytes(data);
    return send(Command::kRegionWrite, payload, kFlagNoReply);
}

Result<void> VfioUserClient::reset() {
    TRY_VOID(call(Command::kDeviceReset, {}));
    return {};
}

}  // namespace openmana::test
