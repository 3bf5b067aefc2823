// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/session.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/activity.h"
#include "base/log.h"
#include "vfio_user/version.h"

namespace openmana::vfio_user {

using base::Error;
using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

namespace {

constexpr std::size_t kInputSize = ServerLedger::kInputSize;
/// Of input that is not handled: the largest message and, behind a part of it, a good batch of
/// doorbells.
constexpr std::size_t kMostUnhandled = kMaxMessage + 65536;
static_assert(kInputSize >= kMaxMessage + kMostUnhandled);
constexpr std::size_t kOutputLimit = ServerLedger::kOutputLimit;

tl::unexpected<Error> bad_size(std::size_t size) {
    return fail(ErrorCode::kInvalidArgument, "payload has the wrong size", size);
}

/// For requests whose reply has the same layout: the request must be whole, and must leave room for
/// the reply.
template <typename T>
Result<T> take_with_reply(Reader& reader) {
    const std::size_t size = reader.rest().size();
    const auto request = reader.take<T>();
    if (!request) return bad_size(size);
    if (request->argsz < sizeof(T))
        return fail(ErrorCode::kInvalidArgument, "argsz too small", request->argsz);
    return *request;
}

bool wants_fds(Command command) {
    return command == Command::kDmaMap || command == Command::kSetIrqs;
}

}  // namespace

Session::Session(DeviceBackend& backend, Counters& counters, std::string name,
                 MovableDevice* movable, DeviceState device, ServerLedger* ledger)
    : backend_(backend),
      counters_(counters),
      name_(std::move(name)),
      own_ledger_(ledger == nullptr ? std::make_unique_for_overwrite<ServerLedger>() : nullptr),
      ledger_(ledger == nullptr ? *own_ledger_ : *ledger) {
    if (movable != nullptr) features_.emplace(*movable, counters_, name_, device);
    for (unsigned i = 0; i < kRegionCount; ++i) regions_[i] = backend_.region(i);
    first_fds_.reserve(kMaxFds);
    last_fds_.reserve(kMaxFds);
}

std::span<std::byte> Session::receive_room() {
    const std::size_t unhandled = state_.end - state_.begin;
    return std::span(ledger_.input)
        .subspan(state_.end, std::min(kInputSize - state_.end, kMostUnhandled - unhandled));
}

Result<void> Session::receive(std::size_t bytes, FdSpan fds) {
    OM_CHECK(!backlog_ && bytes <= kInputSize - state_.end);
    state_.end += static_cast<std::uint32_t>(bytes);
    std::move(fds.begin(), fds.end(), std::back_inserter(last_fds_));
    // The next transfer has moved nothing yet when the ledger says that it is the next.
    ledger_.receives[++state_.received % 2].message.msg_len = 0;
    counters_.batches.add();
    return handle_all();
}

Result<void> Session::handle_all() {
    backlog_ = false;
    const auto handled = handle_messages();
    write_gathered();
    if (handled && !backlog_) {
        // The rest is the beginning of one message, whose fds are those of this batch and of
        // earlier ones.
        std::move(last_fds_.begin(), last_fds_.end(), std::back_inserter(first_fds_));
        last_fds_.clear();
        if (first_fds_.size() > kMaxFds) {
            return fail(ErrorCode::kProtocol, "too many fds with a message", first_fds_.size());
        }
        if (state_.begin == state_.end) state_.begin = state_.end = 0;
    }
    commit();
    compact();
    return handled;
}

/// Writes that have no answer: as they can be done twice, many are one step of the ledger.
bool Session::posts_writes(const Header& header) const {
    return !header.wants_reply() && (header.command == Command::kRegionWrite ||
                                     header.command == Command::kRegionWriteMulti);
}

/// All that are whole; with `backlog_`, as many as there is room for the replies of.
Result<void> Session::handle_messages() {
    for (;;) {
        TRY(const auto message,
            first_message({ledger_.input + state_.begin, std::size_t{state_.end} - state_.begin}));
        if (!message) return {};
        if (output().size() > kOutputLimit) {
            backlog_ = true;
            return {};
        }
        if (!state_.negotiated && message->header.command != Command::kVersion) {
            return fail(ErrorCode::kProtocol, "command before version negotiation",
                        static_cast<std::uint64_t>(message->header.command));
        }
        const bool last = message->header.size == state_.end - state_.begin;
        if (last && !last_fds_.empty()) {
            std::move(last_fds_.begin(), last_fds_.end(), std::back_inserter(first_fds_));
            last_fds_.clear();
        }
        if (first_fds_.size() > kMaxFds) {
            return fail(ErrorCode::kProtocol, "too many fds with a message", first_fds_.size());
        }
        handle(*message, first_fds_);
        state_.begin += message->header.size;
        if (!posts_writes(message->header) || !first_fds_.empty()) complete_message();
    }
}

void Session::handle(const Message& message, FdSpan fds) {
    counters_.messages.add();
    const Header& header = message.header;
    if (!fds.empty() && !wants_fds(header.command)) drop_fds(fds);
    const bool posted_write = header.command == Command::kRegionWrite && !header.wants_reply();
    Result<void> done;
    if (posted_write) [[likely]] {
        done = on_region_write(Reader(message.payload), true);
    } else {
        // The reply is built in place behind room for its header.
        reply_.resize(sizeof(Header));
        done = dispatch(message, fds);
    }
    if (!done) [[unlikely]] {
        OM_DEBUG("vfio_user refuse: nic={} command={} reason=\"{}\" detail={:#x}", name_,
                 static_cast<unsigned>(header.command), done.error().text, done.error().detail);
        (header.wants_reply() ? counters_.refused : counters_.posted_refused).add();
    }
    if (!header.wants_reply()) return;
    Header reply{
        .id = header.id, .command = header.command, .size = 0, .flags = kTypeReply, .error = 0};
    if (!done) {
        reply_.resize(sizeof(Header));  // an error reply has no payload
        reply.flags |= kFlagError;
        reply.error = errno_of(done.error());
        if (header.command == Command::kDmaMap && reply.error == EBUSY) reply.error = EEXIST;
    }
    reply.size = static_cast<std::uint32_t>(reply_.size());
    base::store_le(reply_.data(), reply);
    put_reply();
}

Result<void> Session::dispatch(const Message& message, FdSpan fds) {
    const Reader reader(message.payload);
    const base::Activity::Scope doing("vfio_user message",
                                      static_cast<std::uint64_t>(message.header.command));
    const bool posted = !message.header.wants_reply();
    if (!posted || message.header.command != Command::kRegionWriteMulti) write_gathered();
    switch (message.header.command) {
        case Command::kRegionRead:
            return on_region_read(reader);
        case Command::kRegionWrite: {
            TRY_VOID(on_region_write(reader, posted));
            Writer(reply_).put_bytes(message.payload.first(sizeof(RegionAccess)));
            return {};
        }
        case Command::kRegionWriteMulti:
            return on_write_multi(reader, posted);
        case Command::kSetIrqs:
            return on_set_irqs(reader, fds);
        case Command::kDmaMap:
            return on_dma_map(reader, fds);
        case Command::kDmaUnmap:
            return on_dma_unmap(reader);
        case Command::kVersion:
            return on_version(reader);
        case Command::kDeviceGetInfo:
            return on_device_info(reader);
        case Command::kGetRegionInfo:
            return on_region_info(reader);
        case Command::kGetIrqInfo:
            return on_irq_info(reader);
        case Command::kDeviceReset:
            backend_.device_reset();
            if (features_) features_->reset();
            return {};
        case Command::kDeviceFeature:
        case Command::kMigDataRead:
        case Command::kMigDataWrite:
            if (!features_) break;
            return on_feature(message.header.command, reader);
        case Command::kGetRegionIoFds:
        case Command::kDmaRead:
        case Command::kDmaWrite:
            break;
    }
    counters_.unknown.add();
    return fail(ErrorCode::kUnsupported, "command is not offered");
}

Result<void> Session::on_version(Reader reader) {
    if (state_.negotiated)
        return fail(ErrorCode::kInvalidArgument, "version was negotiated before");
    const auto proposed = reader.take<VersionHead>();
    if (!proposed) return bad_size(reader.rest().size());
    if (proposed->major != kVersionMajor) {
        return fail(ErrorCode::kUnsupported, "major version is not spoken", proposed->major);
    }
    TRY(const Capabilities theirs, parse_capabilities(reader.rest()));
    state_.max_read = std::min<std::uint64_t>(kMaxDataTransfer, theirs.max_data_xfer_size);
    Writer writer(reply_);
    writer.put(
        VersionHead{.major = kVersionMajor, .minor = std::min(kVersionMinor, proposed->minor)});
    const std::string text = format_capabilities({.max_msg_fds = kMaxFds,
                                                  .max_data_xfer_size = kMaxDataTransfer,
                                                  .write_multiple = theirs.write_multiple});
    writer.put_bytes(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
    state_.negotiated = true;
    return {};
}

Result<void> Session::on_dma_map(Reader reader, FdSpan fds) {
    TRY(const auto request, take_with_reply<DmaMapRequest>(reader));
    if ((request.flags & ~(kDmaReadable | kDmaWritable)) != 0) {
        return fail(ErrorCode::kInvalidArgument, "unknown DMA map flags", request.flags);
    }
    if (fds.size() > 1) {
        drop_fds(fds);
        return fail(ErrorCode::kInvalidArgument, "more than one fd for a DMA range", fds.size());
    }
    const DmaRange range{.address = request.address,
                         .size = request.size,
                         .offset = request.offset,
                         .readable = (request.flags & kDmaReadable) != 0,
                         .writable = (request.flags & kDmaWritable) != 0};
    static const UniqueFd kNone;
    const UniqueFd& fd = fds.empty() ? kNone : fds.front();
    const auto mapped = backend_.dma_map(range, fd);
    if (!mapped && again_ && backend_.has_range(range, static_cast<bool>(fd))) return {};
    return mapped;
}

Result<void> Session::on_dma_unmap(Reader reader) {
    TRY(const auto request, take_with_reply<DmaUnmapRequest>(reader));
    if ((request.flags & kUnmapDirtyBitmap) != 0) {
        return fail(ErrorCode::kUnsupported, "dirty bitmaps are not kept");
    }
    if ((request.flags & ~kUnmapAll) != 0) {
        return fail(ErrorCode::kInvalidArgument, "unknown DMA unmap flags", request.flags);
    }
    if ((request.flags & kUnmapAll) != 0) {
        if (request.address != 0 || request.size != 0) {
            return fail(ErrorCode::kInvalidArgument, "unmap all names a range", request.address,
                        request.size);
        }
        backend_.dma_unmap_all();
    } else {
        const auto unmapped = backend_.dma_unmap(request.address, request.size);
        if (!unmapped && !(again_ && unmapped.error().code == ErrorCode::kNotFound))
            return unmapped;
    }
    DmaUnmapRequest reply = request;
    reply.argsz = sizeof reply;
    Writer(reply_).put(reply);
    return {};
}

Result<void> Session::on_device_info(Reader reader) {
    TRY_VOID(take_with_reply<DeviceInfo>(reader));
    Writer(reply_).put(DeviceInfo{.argsz = sizeof(DeviceInfo),
                                  .flags = kDeviceFlagReset | kDeviceFlagPci,
                                  .region_count = kRegionCount,
                                  .irq_count = kIrqKindCount});
    return {};
}

Result<void> Session::on_region_info(Reader reader) {
    TRY(const auto request, take_with_reply<RegionInfoMessage>(reader));
    if (request.index >= kRegionCount)
        return fail(ErrorCode::kInvalidArgument, "no such region", request.index);
    const Region& region = regions_[request.index];
    Writer(reply_).put(RegionInfoMessage{
        .argsz = sizeof(RegionInfoMessage),
        .flags = (region.readable ? kRegionFlagRead : 0) | (region.writable ? kRegionFlagWrite : 0),
        .index = request.index,
        .cap_offset = 0,
        .size = region.size,
        .offset = 0});
    return {};
}

Result<void> Session::on_irq_info(Reader reader) {
    TRY(const auto request, take_with_reply<IrqInfoMessage>(reader));
    if (request.index >= kIrqKindCount)
        return fail(ErrorCode::kInvalidArgument, "no such irq", request.index);
    const std::uint32_t count = backend_.irq_count(request.index);
    // Masks are taken but not announced: QEMU masks MSI-X vectors itself and then needs no message
    // for it. Not announcing "no resize" makes QEMU change one vector at a time.
    Writer(reply_).put(IrqInfoMessage{.argsz = sizeof(IrqInfoMessage),
                                      .flags = count > 0 ? kIrqFlagEventfd : 0,
                                      .index = request.index,
                                      .count = count});
    return {};
}

Result<void> Session::on_set_irqs(Reader reader, FdSpan fds) {
    TRY(const auto request, take_with_reply<IrqSet>(reader));
    const std::uint32_t data = request.flags & kIrqDataMask;
    const std::uint32_t action = request.flags & kIrqActionBits;
    if (data != kIrqDataEventfd && !fds.empty()) drop_fds(fds);
    if (!std::has_single_bit(data) || !std::has_single_bit(action) ||
        (data | action) != request.flags) {
        return fail(ErrorCode::kInvalidArgument, "impossible irq flags", request.flags);
    }
    if (request.index >= kIrqKindCount)
        return fail(ErrorCode::kInvalidArgument, "no such irq", request.index);
    const std::uint32_t total = backend_.irq_count(request.index);
    if (request.count > total || request.start > total - request.count) {
        return fail(ErrorCode::kOutOfRange, "irq range", request.start, request.count);
    }
    if (request.count == 0) {
        if (data != kIrqDataNone || action != kIrqActionTrigger || request.start != 0) {
            return fail(ErrorCode::kInvalidArgument, "empty irq range");
        }
        backend_.irq_disable(request.index);
        return {};
    }
    if (data == kIrqDataEventfd) return set_eventfds(request, fds);
    const auto chosen = reader.rest();
    if (data == kIrqDataBool && chosen.size() < request.count) return bad_size(chosen.size());
    for (std::uint32_t i = 0; i < request.count; ++i) {
        if (data == kIrqDataBool && chosen[i] == std::byte{0}) continue;
        const std::uint32_t vector = request.start + i;
        if (action == kIrqActionTrigger) {
            backend_.irq_trigger(request.index, vector);
        } else {
            backend_.irq_mask(request.index, vector, action == kIrqActionMask);
        }
    }
    return {};
}

Result<void> Session::set_eventfds(const IrqSet& request, FdSpan fds) {
    if ((request.flags & kIrqActionTrigger) == 0) {
        drop_fds(fds);
        return fail(ErrorCode::kUnsupported, "eventfds for masking are not offered");
    }
    if (!fds.empty() && fds.size() != request.count) {
        drop_fds(fds);
        return fail(ErrorCode::kInvalidArgument, "number of eventfds", fds.size(), request.count);
    }
    for (std::uint32_t i = 0; i < request.count; ++i) {
        // A copy: the one that came is the message's until that is complete.
        UniqueFd eventfd;
        if (!fds.empty()) {
            eventfd = UniqueFd(::fcntl(fds[i].get(), F_DUPFD_CLOEXEC, 0));
            if (!eventfd)
                return fail(ErrorCode::kExhausted, "no descriptor for an eventfd",
                            static_cast<unsigned>(errno));
        }
        TRY_VOID(backend_.irq_assign(request.index, request.start + i, std::move(eventfd)));
    }
    return {};
}

Result<void> Session::on_region_read(Reader reader) {
    const auto access = reader.take<RegionAccess>();
    if (!access || !reader.rest().empty()) return bad_size(reader.rest().size());
    if (access->count > state_.max_read)
        return fail(ErrorCode::kInvalidArgument, "read too long", access->count);
    if (access->region >= kRegionCount)
        return fail(ErrorCode::kInvalidArgument, "no such region", access->region);
    const Region& region = regions_[access->region];
    if (!region.readable)
        return fail(ErrorCode::kInvalidArgument, "region cannot be read", access->region);
    if (access->count > region.size || access->offset > region.size - access->count) {
        return fail(ErrorCode::kOutOfRange, "read outside the region", access->offset,
                    access->count);
    }
    Writer writer(reply_);
    writer.put(*access);
    return backend_.region_read(access->region, access->offset, writer.room(access->count));
}

Result<void> Session::on_region_write(Reader reader, bool posted) {
    const auto access = reader.take<RegionAccess>();
    if (!access || reader.rest().size() != access->count) return bad_size(reader.rest().size());
    return write_region(*access, reader.rest(), posted);
}

Result<void> Session::write_region(const RegionAccess& access, std::span<const std::byte> data,
                                   bool posted) {
    if (access.region >= kRegionCount)
        return fail(ErrorCode::kInvalidArgument, "no such region", access.region);
    const Region& region = regions_[access.region];
    if (!region.writable)
        return fail(ErrorCode::kInvalidArgument, "region cannot be written", access.region);
    if (access.count > region.size || access.offset > region.size - access.count) {
        return fail(ErrorCode::kOutOfRange, "write outside the region", access.offset,
                    access.count);
    }
    if (posted && access.region == kRegionBar0) {
        if (gathered_count_ == kMaxGathered) write_gathered();
        gathered_[gathered_count_++] = {access.offset, data};
        return {};
    }
    write_gathered();
    (posted ? counters_.writes_posted : counters_.writes_answered).add();
    return backend_.region_write(access.region, access.offset, data);
}

void Session::write_gathered() {
    if (gathered_count_ == 0) return;
    counters_.writes_posted.add(gathered_count_);
    const base::Activity::Scope doing("doorbells", gathered_count_);
    backend_.bar0_writes(std::span(gathered_).first(std::exchange(gathered_count_, 0)));
}

Result<void> Session::on_write_multi(Reader reader, bool posted) {
    const auto count = reader.take<std::uint64_t>();
    const auto entries = reader.rest();
    if (!count || *count > entries.size() / sizeof(WriteEntry) ||
        *count * sizeof(WriteEntry) != entries.size()) {
        return bad_size(entries.size());
    }
    // All or nothing as far as the message itself can tell; what a write then does is up to the
    // device.
    for (Reader check(entries); const auto entry = check.take<WriteEntry>();) {
        if (entry->count > sizeof entry->data) {
            return fail(ErrorCode::kInvalidArgument, "write too long", entry->count);
        }
    }
    std::uint64_t done = 0;
    Result<void> first_error;
    for (auto rest = entries; !rest.empty(); rest = rest.subspan(sizeof(WriteEntry))) {
        const auto entry = base::load_le<WriteEntry>(rest.data());
        const RegionAccess access{
            .offset = entry.offset, .region = entry.region, .count = entry.count};
        const auto written =
            write_region(access, rest.subspan(offsetof(WriteEntry, data), entry.count), posted);
        if (written) {
            ++done;
        } else if (first_error) {
            first_error = written;
        }
    }
    if (done == 0) TRY_VOID(first_error);
    if (!first_error) counters_.posted_refused.add(*count - done);
    Writer(reply_).put(done);
    return {};
}

Result<void> Session::on_feature(Command command, Reader reader) {
    const Writer reply(reply_);
    if (command == Command::kMigDataRead)
        return features_->on_data_read(reader, reply, state_.max_read);
    if (command == Command::kMigDataWrite) return features_->on_data_write(reader);
    return features_->on_device_feature(reader, reply, state_.max_read);
}

/// They are closed with the message.
void Session::drop_fds(FdSpan fds) {
    counters_.fds_dropped.add(fds.size());
}

bool Session::retainable() const {
    if (!features_) return false;
    switch (features_->migration().state()) {
        case DeviceState::kRunning:
        case DeviceState::kRunningP2p:
            return state_.negotiated;
        case DeviceState::kStop:
            return true;
        default:
            return false;
    }
}

void Session::save(base::StateWriter& out) const {
    OM_CHECK(gathered_count_ == 0);
    const auto put_fds = [&out](const std::vector<UniqueFd>& fds) {
        out.count(fds.size());
        for (const UniqueFd& fd : fds) out.descriptor(fd.get());
    };
    out.begin("SESS", 1);
    out(state_.negotiated, state_.max_read, backlog_);
    out.bytes({ledger_.input + state_.begin, std::size_t{state_.end} - state_.begin});
    put_fds(first_fds_);
    put_fds(last_fds_);
    out.bytes(output());
    out.end();
}

void Session::load(base::StateReader& in) {
    const auto take_fds = [&in](std::vector<UniqueFd>& fds) {
        const std::size_t count = in.count();
        in.require(count <= kMaxFds, "too many fds with a message");
        for (std::size_t i = 0; i < count && in.ok(); ++i) {
            fds.push_back(in.descriptor());
            in.require(static_cast<bool>(fds.back()), "a descriptor is missing");
        }
    };
    in.begin("SESS", 1);
    in(state_.negotiated, state_.max_read, backlog_);
    in.require(state_.max_read <= kMaxDataTransfer, "longer reads than are offered");
    const auto input = in.bytes();
    take_fds(first_fds_);
    take_fds(last_fds_);
    const auto output = in.bytes();
    in.end();
    // A backlog is handled from the start. Without one there is no whole message, and there is room
    // for the rest of the one that has begun.
    const auto next = first_message(input);
    in.require(
        input.size() <= kMostUnhandled && (backlog_ || (next && !*next && last_fds_.empty())),
        "messages that are not handled");
    in.require(output.size() <= kOutputLimit + ServerLedger::kMaxReply,
               "more replies than there may be");
    if (!in.ok()) return;
    state_.end = static_cast<std::uint32_t>(input.size());
    std::copy(input.begin(), input.end(), ledger_.input);
    state_.output_end = static_cast<std::uint32_t>(output.size());
    std::copy(output.begin(), output.end(), ledger_.output);
    commit();
}

}  // namespace openmana::vfio_user
