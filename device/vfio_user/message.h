// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/endian.h"
#include "base/result.h"

/// Messages of the vfio-user protocol, version 0.1 (QEMU's docs/interop/vfio-user.rst): layouts,
/// and the bounded reader and writer for them. Pure: no sockets, no state. Fields are in the host's
/// byte order.
namespace openmana::vfio_user {

enum class Command : std::uint16_t {
    kVersion = 1,
    kDmaMap = 2,
    kDmaUnmap = 3,
    kDeviceGetInfo = 4,
    kGetRegionInfo = 5,
    kGetRegionIoFds = 6,
    kGetIrqInfo = 7,
    kSetIrqs = 8,
    kRegionRead = 9,
    kRegionWrite = 10,
    kDmaRead = 11,
    kDmaWrite = 12,
    kDeviceReset = 13,
    kRegionWriteMulti = 15,
    kDeviceFeature = 16,
    kMigDataRead = 17,
    kMigDataWrite = 18,
};

/// Header::flags.
constexpr std::uint32_t kTypeMask = 0xF;
constexpr std::uint32_t kTypeCommand = 0;
constexpr std::uint32_t kTypeReply = 1;
constexpr std::uint32_t kFlagNoReply = 1U << 4;
constexpr std::uint32_t kFlagError = 1U << 5;

struct Header {
    std::uint16_t id = 0;
    Command command{};
    std::uint32_t size = 0;  ///< of the whole message
    std::uint32_t flags = 0;
    std::uint32_t error = 0;  ///< errno, in a reply with kFlagError

    [[nodiscard]] bool wants_reply() const { return (flags & kFlagNoReply) == 0; }
};
static_assert(sizeof(Header) == 16 && offsetof(Header, size) == 4 && offsetof(Header, error) == 12);

/// Followed by JSON text with its terminating NUL.
struct VersionHead {
    std::uint16_t major = 0;
    std::uint16_t minor = 0;
};
static_assert(sizeof(VersionHead) == 4);

constexpr std::uint32_t kDmaReadable = 1U << 0;
constexpr std::uint32_t kDmaWritable = 1U << 1;

struct DmaMapRequest {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint64_t offset = 0;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
};
static_assert(sizeof(DmaMapRequest) == 32 && offsetof(DmaMapRequest, address) == 16);

constexpr std::uint32_t kUnmapDirtyBitmap = 1U << 0;
constexpr std::uint32_t kUnmapAll = 1U << 1;

struct DmaUnmapRequest {  // and its reply
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
};
static_assert(sizeof(DmaUnmapRequest) == 24 && offsetof(DmaUnmapRequest, address) == 8);

constexpr std::uint32_t kDeviceFlagReset = 1U << 0;
constexpr std::uint32_t kDeviceFlagPci = 1U << 1;

struct DeviceInfo {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint32_t region_count = 0;
    std::uint32_t irq_count = 0;
};
static_assert(sizeof(DeviceInfo) == 16);

constexpr std::uint32_t kRegionFlagRead = 1U << 0;
constexpr std::uint32_t kRegionFlagWrite = 1U << 1;

struct RegionInfoMessage {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint32_t index = 0;
    std::uint32_t cap_offset = 0;
    std::uint64_t size = 0;
    std::uint64_t offset = 0;
};
static_assert(sizeof(RegionInfoMessage) == 32 && offsetof(RegionInfoMessage, size) == 16);

constexpr std::uint32_t kIrqFlagEventfd = 1U << 0;
constexpr std::uint32_t kIrqFlagMaskable = 1U << 1;

struct IrqInfoMessage {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint32_t index = 0;
    std::uint32_t count = 0;
};
static_assert(sizeof(IrqInfoMessage) == 16);

/// IrqSet::flags: one kind of data and one action.
constexpr std::uint32_t kIrqDataNone = 1U << 0;
constexpr std::uint32_t kIrqDataBool = 1U << 1;
constexpr std::uint32_t kIrqDataEventfd = 1U << 2;
constexpr std::uint32_t kIrqDataMask = kIrqDataNone | kIrqDataBool | kIrqDataEventfd;
constexpr std::uint32_t kIrqActionMask = 1U << 3;
constexpr std::uint32_t kIrqActionUnmask = 1U << 4;
constexpr std::uint32_t kIrqActionTrigger = 1U << 5;
constexpr std::uint32_t kIrqActionBits = kIrqActionMask | kIrqActionUnmask | kIrqActionTrigger;

/// Followed by one byte for each interrupt if the data are booleans.
struct IrqSet {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
    std::uint32_t index = 0;
    std::uint32_t start = 0;
    std::uint32_t count = 0;
};
static_assert(sizeof(IrqSet) == 20);

/// Request and reply of REGION_READ and REGION_WRITE; followed by the data in a read reply and a
/// write request.
struct RegionAccess {
    std::uint64_t offset = 0;
    std::uint32_t region = 0;
    std::uint32_t count = 0;
};
static_assert(sizeof(RegionAccess) == 16 && offsetof(RegionAccess, count) == 12);

/// REGION_WRITE_MULTI: a 64-bit count, then so many of these.
struct WriteEntry {
    std::uint64_t offset = 0;
    std::uint32_t region = 0;
    std::uint32_t count = 0;  ///< 8 at most
    std::byte data[8] = {};
};
static_assert(sizeof(WriteEntry) == 24 && offsetof(WriteEntry, data) == 16);

/// DEVICE_FEATURE: the index of a feature and what is asked of it, then the feature's own data.
struct FeatureHead {
    std::uint32_t argsz = 0;
    std::uint32_t flags = 0;
};
static_assert(sizeof(FeatureHead) == 8);
constexpr std::uint32_t kFeatureMask = 0xFFFF;
constexpr std::uint32_t kFeatureGet = 1U << 16;
constexpr std::uint32_t kFeatureSet = 1U << 17;
constexpr std::uint32_t kFeatureProbe = 1U << 18;

enum class Feature : std::uint32_t {
    kMigration = 1,
    kMigDeviceState = 2,
    kDmaLoggingStart = 6,
    kDmaLoggingStop = 7,
    kDmaLoggingReport = 8,
    kMigDataSize = 9,  ///< of <linux/vfio.h>; vfio-user's document has no line for it
};

/// Data of MIGRATION.
constexpr std::uint64_t kMigrationStopCopy = 1U << 0;
constexpr std::uint64_t kMigrationP2p = 1U << 1;
constexpr std::uint64_t kMigrationPreCopy = 1U << 2;

/// Of <linux/vfio.h>, with its numbers.
enum class DeviceState : std::uint32_t {
    kError = 0,
    kStop = 1,
    kRunning = 2,
    kStopCopy = 3,
    kResuming = 4,
    kRunningP2p = 5,
    kPreCopy = 6,
    kPreCopyP2p = 7,
};

/// Data of MIG_DEVICE_STATE.
struct MigState {
    DeviceState state{};
    std::uint32_t data_fd = 0;  ///< not used: MIG_DATA_READ and WRITE carry the data
};
static_assert(sizeof(MigState) == 8);

/// Data of DMA_LOGGING_START; followed by its ranges.
struct LoggingControl {
    std::uint64_t page_size = 0;
    std::uint32_t range_count = 0;
    std::uint32_t reserved = 0;
};
static_assert(sizeof(LoggingControl) == 16 && offsetof(LoggingControl, range_count) == 8);
struct LoggingRange {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
};
static_assert(sizeof(LoggingRange) == 16);

/// Data of DMA_LOGGING_REPORT; followed by the bitmap in a reply.
struct LoggingReport {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint64_t page_size = 0;
};
static_assert(sizeof(LoggingReport) == 24 && offsetof(LoggingReport, page_size) == 16);

/// Request and reply of MIG_DATA_READ, request of MIG_DATA_WRITE; followed by the data in the last
/// two.
struct MigData {
    std::uint32_t argsz = 0;
    std::uint32_t size = 0;
};
static_assert(sizeof(MigData) == 8);

/// What this server takes and offers. QEMU refuses a server that says more than 16 fds or 64 MiB.
constexpr std::size_t kMaxFds = 16;
constexpr std::uint32_t kMaxDataTransfer = 1U << 20;
constexpr std::size_t kMaxMessage = sizeof(Header) + sizeof(RegionAccess) + kMaxDataTransfer;

/// Takes values from the front of a message that stays where it is.
class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    /// A copy of the next T, or nothing if fewer bytes are left.
    template <typename T>
    [[nodiscard]] std::optional<T> take() {
        static_assert(std::is_trivially_copyable_v<T>);
        if (bytes_.size() < sizeof(T)) return std::nullopt;
        const T value = base::load_le<T>(bytes_.data());
        bytes_ = bytes_.subspan(sizeof(T));
        return value;
    }
    [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

private:
    std::span<const std::byte> bytes_;
};

/// Appends values to a buffer that keeps its memory from use to use.
class Writer {
public:
    explicit Writer(std::vector<std::byte>& buffer) : buffer_(buffer) {}

    template <typename T>
    void put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        base::store_le(room(sizeof(T)).data(), value);
    }
    void put_bytes(std::span<const std::byte> bytes);
    /// `length` zero bytes at the end; good until the next append.
    [[nodiscard]] std::span<std::byte> room(std::size_t length);

private:
    std::vector<std::byte>& buffer_;
};

/// A whole message inside a receive buffer.
struct Message {
    Header header;
    std::span<const std::byte> payload;
};

/// The message at the front of `bytes`, or nothing if it is not complete yet. Fails on a header
/// that no client sends: a size that is too small or above kMaxMessage, or a type other than
/// command. There is no way to find the next message after that.
[[nodiscard]] base::Result<std::optional<Message>> first_message(std::span<const std::byte> bytes);

/// Appends a message. `flags` are the header's.
void put_message(std::vector<std::byte>& buffer, std::uint16_t id, Command command,
                 std::uint32_t flags, std::span<const std::byte> payload);

/// The errno that tells the client of an error.
[[nodiscard]] std::uint32_t errno_of(const base::Error& error);

}  // namespace openmana::vfio_user
