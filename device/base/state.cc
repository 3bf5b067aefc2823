// SPDX-License-Identifier: Apache-2.0
#include "base/state.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <limits>

namespace openmana::base {
namespace {

constexpr std::uint64_t kMagic = 0x31455441'54534d4f;  // "OMSTATE1"
constexpr std::uint32_t kFormat = 1;

struct Head {
    std::uint64_t magic = kMagic;
    std::uint32_t format = kFormat;
    std::uint32_t checksum = 0;  ///< of all behind the head
    std::uint64_t bytes = 0;     ///< behind the head
};
static_assert(sizeof(Head) == 24);

/// CRC-32 as gzip has it, in pieces that the library's length has room for.
std::uint32_t checksum(std::span<const std::byte> data) {
    constexpr std::size_t kMost = 1U << 30;
    std::uint32_t sum = 0;
    while (!data.empty()) {
        const std::size_t n = std::min(data.size(), kMost);
        sum = crc32_gzip_refl(sum, reinterpret_cast<const std::uint8_t*>(data.data()), n);
        data = data.subspan(n);
    }
    return sum;
}

/// Room for a small state.
constexpr std::size_t kFirst = 512;

/// Of a part: tag, version, and room for more; then its length.
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

}  // namespace

StateWriter::StateWriter(TimePoint now) : now_(now), bytes_(kFirst), used_(sizeof(Head)) {}

void StateWriter::grow(std::size_t size) {
    bytes_.resize(std::max(2 * bytes_.size(), used_ + size));
}

void StateWriter::bytes(std::span<const std::byte> data) {
    put(static_cast<std::uint64_t>(data.size()));
    if (!data.empty()) raw(data.data(), data.size());
}

void StateWriter::descriptor(int fd) {
    put(fd >= 0);
    if (fd >= 0) descriptors_.push_back(fd);
}

void StateWriter::begin(StateTag tag, std::uint16_t version) {
    put(tag.value);
    put(version);
    put(std::uint16_t{0});
    open_.push_back(used_);
    put(std::uint64_t{0});
}

void StateWriter::end() {
    OM_CHECK(!open_.empty());
    const std::size_t at = open_.back();
    open_.pop_back();
    store_le<std::uint64_t>(bytes_.data() + at, used_ - at - kLengthBytes);
}

std::vector<std::byte> StateWriter::finish() && {
    OM_CHECK(open_.empty());
    bytes_.resize(used_);
    Head head;
    head.bytes = bytes_.size() - sizeof head;
    head.checksum = checksum(std::span(bytes_).subspan(sizeof head));
    store_le(bytes_.data(), head);
    return std::move(bytes_);
}

Result<StateReader> StateReader::open(std::span<const std::byte> state, TimePoint now,
                                      std::span<UniqueFd> descriptors) {
    if (state.size() < sizeof(Head))
        return fail(ErrorCode::kInvalidArgument, "too short for a state", state.size());
    const auto head = load_le<Head>(state.data());
    if (head.magic != kMagic) return fail(ErrorCode::kInvalidArgument, "not a state of a NIC");
    if (head.format != kFormat)
        return fail(ErrorCode::kUnsupported, "state of another format", head.format, kFormat);
    const auto rest = state.subspan(sizeof head);
    if (head.bytes != rest.size())
        return fail(ErrorCode::kInvalidArgument, "state is not whole", rest.size(), head.bytes);
    if (head.checksum != checksum(rest))
        return fail(ErrorCode::kInvalidArgument, "state is broken: its checksum is wrong");
    return StateReader(rest, now, descriptors);
}

UniqueFd StateReader::descriptor() {
    if (!get<bool>()) return {};
    require(!descriptors_.empty(), "a descriptor is missing");
    if (!ok()) return {};
    UniqueFd taken = std::move(descriptors_.front());
    descriptors_ = descriptors_.subspan(1);
    require(static_cast<bool>(taken), "a descriptor is missing");
    return taken;
}

void StateReader::refuse(const Error& error) {
    if (!error_) error_ = error;
    at_ = end_;
}

/// After an error nothing is left, so this is who says so, too.
void StateReader::ends_early(void* data, std::size_t size) {
    require(!ok(), "state ends too early");
    std::memset(data, 0, size);
}

std::span<const std::byte> StateReader::bytes() {
    const auto size = get<std::uint64_t>();
    if (!ok() || size > end_ - at_) {
        require(!ok(), "state ends too early");
        return {};
    }
    const auto data = state_.subspan(at_, size);
    at_ += size;
    return data;
}

std::uint16_t StateReader::begin(StateTag tag, std::uint16_t newest) {
    const auto found = get<std::uint32_t>();
    const auto version = get<std::uint16_t>();
    const auto reserved = get<std::uint16_t>();
    const auto length = get<std::uint64_t>();
    require(found == tag.value, "another part than expected");
    require(reserved == 0 && version != 0, "head of a part makes no sense");
    if (ok() && version > newest)
        refuse({ErrorCode::kUnsupported, "part of a newer version", version, newest});
    require(!ok() || length <= end_ - at_, "part is longer than what it is in");
    outer_.push_back(end_);
    if (ok()) end_ = at_ + length;
    return ok() ? version : 0;
}

void StateReader::end() {
    OM_CHECK(!outer_.empty());
    require(!ok() || at_ == end_, "part is longer than what is known of it");
    end_ = outer_.back();
    outer_.pop_back();
    if (!ok()) at_ = end_;
}

std::size_t StateReader::count(std::size_t least) {
    const auto n = get<std::uint32_t>();
    require(!ok() || n <= (end_ - at_) / std::max<std::size_t>(least, 1),
            "more than there is room for");
    return ok() ? n : 0;
}

TimePoint StateReader::time_of(std::int64_t left) const {
    // Nothing here waits for as long, and sums of times must not overflow.
    constexpr std::int64_t kMost = std::int64_t{3600} * 1'000'000'000;
    return now_ + Duration(std::clamp(left, -kMost, kMost));
}

}  // namespace openmana::base
