// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/features.h"

#include <bit>

#include "base/log.h"

namespace openmana::vfio_user {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr std::uint64_t kLogPage = MovableDevice::kLogPage;

tl::unexpected<Error> bad_size(std::size_t size) {
    return fail(ErrorCode::kInvalidArgument, "payload has the wrong size", size);
}

/// What can be asked of a feature; 0 if it is none of ours.
std::uint32_t operations_of(Feature feature) {
    switch (feature) {
        case Feature::kMigration:
        case Feature::kMigDataSize:
        case Feature::kDmaLoggingReport:
            return kFeatureGet | kFeatureProbe;
        case Feature::kMigDeviceState:
            return kFeatureGet | kFeatureSet | kFeatureProbe;
        case Feature::kDmaLoggingStart:
        case Feature::kDmaLoggingStop:
            return kFeatureSet | kFeatureProbe;
    }
    return 0;
}

/// Whether `[address, address + length)` is some whole pages.
bool is_pages(std::uint64_t address, std::uint64_t length) {
    return length != 0 && (address | length) % kLogPage == 0 && length - 1 <= UINT64_MAX - address;
}

/// The reply to a GET: what was asked, and the data behind it.
Result<void> put_head(const FeatureHead& head, std::uint64_t data, Writer& reply) {
    const std::uint64_t size = sizeof(FeatureHead) + data;
    if (head.argsz < size) return fail(ErrorCode::kInvalidArgument, "argsz too small", head.argsz);
    reply.put(FeatureHead{.argsz = static_cast<std::uint32_t>(size), .flags = head.flags});
    return {};
}

}  // namespace

Result<void> Features::on_device_feature(Reader reader, Writer reply, std::uint64_t most) {
    const std::size_t size = reader.rest().size();
    const auto payload = reader.rest();
    const auto head = reader.take<FeatureHead>();
    if (!head) return bad_size(size);
    const auto feature = static_cast<Feature>(head->flags & kFeatureMask);
    const std::uint32_t asked = head->flags & ~kFeatureMask;
    const std::uint32_t offered = operations_of(feature);
    if (offered == 0 || (asked & ~offered) != 0)
        return fail(ErrorCode::kInvalidArgument, "feature is not offered", head->flags);
    if (asked == kFeatureGet) return get(feature, *head, reader, reply, most);
    if (asked != kFeatureSet && (asked & kFeatureProbe) == 0)
        return fail(ErrorCode::kInvalidArgument, "nothing, or two things, to do with a feature",
                    head->flags);
    if (head->argsz < size)
        return fail(ErrorCode::kInvalidArgument, "argsz too small", head->argsz);
    if (asked == kFeatureSet) return set(feature, *head, reader, reply);
    reply.put_bytes(payload);
    return {};
}

Result<void> Features::get(Feature feature, const FeatureHead& head, Reader data, Writer reply,
                           std::uint64_t most) {
    if (feature == Feature::kDmaLoggingReport) return report(head, data, reply, most);
    if (feature == Feature::kMigration || feature == Feature::kMigDataSize) {
        TRY_VOID(put_head(head, sizeof(std::uint64_t), reply));
        reply.put<std::uint64_t>(feature == Feature::kMigration ? kMigrationStopCopy | kMigrationP2p
                                                                : device_.expected_state());
        return {};
    }
    TRY_VOID(put_head(head, sizeof(MigState), reply));
    reply.put(MigState{.state = migration_.state(), .data_fd = 0});
    return {};
}

Result<void> Features::set(Feature feature, const FeatureHead& head, Reader data, Writer reply) {
    const std::size_t size = data.rest().size();
    if (feature == Feature::kDmaLoggingStart) return start_logging(head, data, reply);
    reply.put(head);
    if (feature == Feature::kDmaLoggingStop) {
        if (size != 0) return bad_size(size);
        device_.log_no_writes();
        return {};
    }
    const auto wanted = data.take<MigState>();
    if (size != sizeof(MigState)) return bad_size(size);
    reply.put(*wanted);
    return migration_.change(wanted->state);
}

/// All that the device writes to is logged, whatever ranges are named: it is no less work to look
/// for them.
Result<void> Features::start_logging(const FeatureHead& head, Reader data, Writer reply) {
    const std::size_t size = data.rest().size();
    auto control = data.take<LoggingControl>();
    const auto ranges = data.rest();
    if (!control || ranges.size() % sizeof(LoggingRange) != 0 ||
        ranges.size() / sizeof(LoggingRange) != control->range_count)
        return bad_size(size);
    if (!std::has_single_bit(control->page_size))
        return fail(ErrorCode::kInvalidArgument, "no size of a page", control->page_size);
    for (Reader check(ranges); const auto range = check.take<LoggingRange>();)
        if (!is_pages(range->address, range->length))
            return fail(ErrorCode::kInvalidArgument, "range to log is not whole pages",
                        range->address, range->length);
    TRY_VOID(device_.log_writes());
    control->page_size = kLogPage;
    reply.put(head);
    reply.put(*control);
    reply.put_bytes(ranges);
    return {};
}

Result<void> Features::report(const FeatureHead& head, Reader data, Writer reply,
                              std::uint64_t most) {
    const std::size_t size = data.rest().size();
    const auto request = data.take<LoggingReport>();
    if (!request) return bad_size(size);
    const std::uint64_t unit = request->page_size;
    if (!std::has_single_bit(unit) || unit < kLogPage ||
        !is_pages(request->address, request->length))
        return fail(ErrorCode::kInvalidArgument, "report of what is not whole pages",
                    request->address, request->length);
    const std::uint64_t bits = (request->length - 1) / unit + 1;
    const std::uint64_t bytes = ((bits - 1) / 64 + 1) * sizeof(std::uint64_t);
    if (bytes > most)
        return fail(ErrorCode::kInvalidArgument, "bitmap is too long for a reply", bytes, most);
    TRY_VOID(put_head(head, sizeof(LoggingReport) + bytes, reply));
    reply.put(*request);
    return device_.report_writes(request->address, request->length, unit, reply.room(bytes));
}

Result<void> Features::on_data_read(Reader reader, Writer reply, std::uint64_t most) {
    const std::size_t size = reader.rest().size();
    const auto request = reader.take<MigData>();
    if (!request) return bad_size(size);
    if (request->size > most)
        return fail(ErrorCode::kInvalidArgument, "read too long", request->size);
    if (request->argsz < sizeof(MigData) + std::uint64_t{request->size})
        return fail(ErrorCode::kInvalidArgument, "argsz too small", request->argsz);
    TRY(const auto piece, migration_.read(request->size));
    const auto length = static_cast<std::uint32_t>(piece.size());
    reply.put(
        MigData{.argsz = static_cast<std::uint32_t>(sizeof(MigData)) + length, .size = length});
    reply.put_bytes(piece);
    return {};
}

Result<void> Features::on_data_write(Reader reader) {
    const std::size_t size = reader.rest().size();
    const auto request = reader.take<MigData>();
    if (!request || reader.rest().size() != request->size) return bad_size(size);
    if (request->argsz < size)
        return fail(ErrorCode::kInvalidArgument, "argsz too small", request->argsz);
    return migration_.write(reader.rest());
}

}  // namespace openmana::vfio_user
