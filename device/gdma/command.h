// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "base/result.h"
#include "base/state.h"
#include "gdma/types.h"

namespace openmana::gdma {

/// What a request that failed is answered with.
[[nodiscard]] constexpr std::uint32_t status_of(const base::Error& error) {
    switch (error.code) {
        case base::ErrorCode::kNotFound:
            return kHwcNotFound;
        case base::ErrorCode::kExhausted:
            return kHwcNoResources;
        case base::ErrorCode::kBusy:
            return kHwcBusy;
        case base::ErrorCode::kUnsupported:
            return kHwcUnsupported;
        default:
            return kHwcInvalidParameter;
    }
}

/// One HWC request, copied out of guest memory (GDMA 4.5). Offsets are from the start of the
/// message.
class HwcRequest {
public:
    /// `message` holds at least the 40-byte header; its own size word may not exceed what was sent.
    explicit HwcRequest(std::span<const std::byte> message) : message_(message) {}

    [[nodiscard]] std::uint32_t opcode() const { return get<std::uint32_t>(4); }
    [[nodiscard]] std::uint16_t version() const { return get<std::uint16_t>(8); }
    [[nodiscard]] std::uint16_t message_id() const { return get<std::uint16_t>(10); }
    [[nodiscard]] std::uint16_t response_version() const { return get<std::uint16_t>(24); }
    /// Bytes that the requester has room for.
    [[nodiscard]] std::uint32_t response_room() const { return get<std::uint32_t>(28); }
    [[nodiscard]] std::uint16_t device_type() const { return get<std::uint16_t>(32); }
    [[nodiscard]] std::uint16_t device_instance() const { return get<std::uint16_t>(34); }
    [[nodiscard]] std::uint32_t activity_id() const { return get<std::uint32_t>(36); }
    [[nodiscard]] std::size_t size() const { return message_.size(); }
    [[nodiscard]] std::span<const std::byte> bytes() const { return message_; }

    /// The field at `offset`, or zero if the (older, shorter) message does not reach it.
    template <typename T>
    [[nodiscard]] T get(std::size_t offset) const {
        if (sizeof(T) > message_.size() || offset > message_.size() - sizeof(T)) return T{};
        return base::load_le<T>(message_.data() + offset);
    }
    [[nodiscard]] bool has(std::size_t offset, std::size_t length) const {
        return length <= message_.size() && offset <= message_.size() - length;
    }
    /// The message as one of the structures of <mana/*.h>, zero where the message is shorter.
    template <typename T>
    [[nodiscard]] T as() const {
        static_assert(std::is_trivially_copyable_v<T>);
        T value{};
        std::memcpy(&value, message_.data(), std::min(sizeof value, message_.size()));
        return value;
    }

private:
    std::span<const std::byte> message_;
};

/// The response under construction: exactly the size that was asked for, zero where nothing was put
/// (GDMA 4.4). Fields beyond the requested size are cut.
class HwcReply {
public:
    explicit HwcReply(std::size_t size) : bytes_(size) {}
    void set_status(std::uint32_t status) { status_ = status; }
    [[nodiscard]] std::uint32_t status() const { return status_; }
    /// The newest version of this response that is implemented; the smaller of this and the one
    /// asked for is sent.
    void set_version(std::uint16_t version) { version_ = version; }
    [[nodiscard]] std::uint16_t version() const { return version_; }
    /// A whole structure of <mana/*.h>; its header part is overwritten when the response is sent.
    template <typename T>
    void put_struct(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        put_bytes(0, std::as_bytes(std::span<const T, 1>(&value, 1)));
    }
    template <typename T>
    void put(std::size_t offset, T value) {
        put_bytes(offset, std::as_bytes(std::span<const T, 1>(&value, 1)));
    }
    void put_bytes(std::size_t offset, std::span<const std::byte> data) {
        if (offset >= bytes_.size() || data.empty()) return;
        const std::size_t n = std::min(data.size(), bytes_.size() - offset);
        std::memcpy(bytes_.data() + offset, data.data(), n);
    }
    [[nodiscard]] std::size_t size() const { return bytes_.size(); }
    [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }

private:
    std::vector<std::byte> bytes_;
    std::uint32_t status_ = kHwcSuccess;
    std::uint16_t version_ = 0xffff;
};

struct FunctionLedger;

/// A GDMA device on the function: 2 = Ethernet, 3 = RNIC (GDMA 0.2).
class Client {
public:
    virtual ~Client() = default;
    [[nodiscard]] virtual std::uint16_t device_type() const = 0;
    /// Answers the opcodes of this device (those at and above 0x20000). On the executor, under an
    /// exclusion of the function's Gate, which long work leaves in a recess. Unknown opcodes:
    /// kHwcUnsupported.
    virtual void command(const HwcRequest& request, HwcReply& reply) = 0;
    /// Drops every object: SHM destroy, FLR, or the client is gone. On the executor, under an
    /// exclusion, before the function frees its own objects.
    virtual void reset() = 0;
    /// Its state. On the executor, while nobody visits; when it is read the device is as after a
    /// reset, and what it uses of the function is there. If it refuses, a reset follows.
    virtual void save(base::StateWriter& out) const { (void)out; }
    virtual void load(base::StateReader& in) { (void)in; }
    /// Goes on behind what a process that has ended wrote down: its driver does not know yet that
    /// all is gone, until it resets the function. On the executor's thread; guest memory is mapped,
    /// nothing is written to it yet.
    virtual void recover(FunctionLedger& ledger) { (void)ledger; }
    /// A doorbell of 64 bits of that driver, at an offset from page 0 on. False if it is for
    /// nothing of this device.
    virtual bool stale_doorbell(std::uint64_t offset, std::uint64_t value) {
        (void)offset, (void)value;
        return false;
    }
};

}  // namespace openmana::gdma
