// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/message.h"

#include <cerrno>
#include <cstring>

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;

std::span<std::byte> Writer::room(std::size_t length) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + length);
    return std::span(buffer_).subspan(before);
}

void Writer::put_bytes(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

base::Result<std::optional<Message>> first_message(std::span<const std::byte> bytes) {
    if (bytes.size() < sizeof(Header)) return std::nullopt;
    const auto header = base::load_le<Header>(bytes.data());
    if (header.size < sizeof(Header) || header.size > kMaxMessage) {
        return fail(ErrorCode::kProtocol, "impossible message size", header.size);
    }
    // Replies answer commands of the server; this one sends none.
    if ((header.flags & kTypeMask) != kTypeCommand) {
        return fail(ErrorCode::kProtocol, "message is not a command", header.flags);
    }
    if (bytes.size() < header.size) return std::nullopt;
    return Message{header, bytes.subspan(sizeof(Header), header.size - sizeof(Header))};
}

void put_message(std::vector<std::byte>& buffer, std::uint16_t id, Command command,
                 std::uint32_t flags, std::span<const std::byte> payload) {
    Writer writer(buffer);
    writer.put(Header{.id = id,
                      .command = command,
                      .size = static_cast<std::uint32_t>(sizeof(Header) + payload.size()),
                      .flags = flags,
                      .error = 0});
    writer.put_bytes(payload);
}

std::uint32_t errno_of(const base::Error& error) {
    switch (error.code) {
        case ErrorCode::kNotFound:
            return ENOENT;
        case ErrorCode::kPermission:
            return EACCES;
        case ErrorCode::kExhausted:
            return ENOSPC;
        case ErrorCode::kBusy:
            return EBUSY;
        case ErrorCode::kUnsupported:
            return EOPNOTSUPP;
        case ErrorCode::kProtocol:
            return EPROTO;
        case ErrorCode::kIo:
            return error.detail > 0 && error.detail < 4096
                       ? static_cast<std::uint32_t>(error.detail)
                       : EIO;
        case ErrorCode::kClosed:
            return ENOTCONN;
        case ErrorCode::kInvalidArgument:
        case ErrorCode::kOutOfRange:
            break;
    }
    return EINVAL;
}

}  // namespace openmana::vfio_user
