// SPDX-License-Identifier: Apache-2.0
#include "fabric/capture.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "fabric/output_file.h"
#include "fabric/pcap.h"
#include "fabric/pcapng.h"

namespace openmana::fabric {
namespace {

constexpr std::uint32_t kSnapLength = 262144;
constexpr std::size_t kMostAround = PcapngPacket::kHead + PcapngPacket::kMaxTail;
static_assert(PcapPacket::kHead < kMostAround && kMostAround + kSnapLength <= Capture::kBufferSize);

base::Error no_write(int reason) {
    return {base::ErrorCode::kIo, "cannot write the capture", static_cast<unsigned>(reason)};
}

}  // namespace

/// The stream ignores the size of a buffer that it makes itself.
base::Result<void> Capture::open(base::UniqueFd fd) {
    file_.reset(::fdopen(fd.get(), "wb"));
    if (!file_) return tl::unexpected(no_write(errno));
    (void)fd.release();  // now the stream's
    std::setvbuf(file_.get(), buffer_.data(), _IOFBF, buffer_.size());
    return {};
}

/// The head of the file goes out now: a full disk is found at once, and a reader sees a valid file
/// from the start.
base::Result<void> Capture::begin(std::span<const std::string> points) {
    TRY(auto fd, open_output(path_, OutputMode::kReplace));
    TRY_VOID(open(std::move(fd)));
    several_ = points.size() > 1;
    const std::vector<std::byte> head =
        several_ ? pcapng_header(points, kSnapLength) : pcap_header(kSnapLength);
    errno = 0;
    if (std::fwrite(head.data(), 1, head.size(), file_.get()) != head.size() ||
        std::fflush(file_.get()) != 0)
        return tl::unexpected(no_write(errno));
    return {};
}

base::Result<std::unique_ptr<Capture>> Capture::create(const std::string& path,
                                                       const base::Clock& clock,
                                                       base::WallTime wall,
                                                       std::span<const std::string> points) {
    // What means the standard output elsewhere, which belongs to those who wait for "ready".
    if (path.empty() || path == "-")
        return base::fail(base::ErrorCode::kInvalidArgument, "a capture needs the path of a file");
    std::unique_ptr<Capture> capture(new Capture(path, clock, wall));
    TRY_VOID(capture->begin(points));
    for (std::uint32_t i = 0; i == 0 || i < points.size(); ++i)
        capture->points_.emplace_back(*capture, i, i < points.size() ? points[i] : std::string());
    return capture;
}

void Capture::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out.begin("CAPT", 1);
    out.bytes(std::as_bytes(std::span(path_)));
    out.descriptor(::fileno(file_.get()));
    out(several_, error_);
    base::save_counters(out, counters_);
    out.count(points_.size());
    for (const Point& point : points_) out.bytes(std::as_bytes(std::span(point.name())));
    out.end();
}

base::Result<std::unique_ptr<Capture>> Capture::resume(base::StateReader& in,
                                                       const base::Clock& clock,
                                                       base::WallTime wall) {
    const auto text = [&in] {
        const auto bytes = in.bytes();
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    in.begin("CAPT", 1);
    std::unique_ptr<Capture> capture(new Capture(text(), clock, wall));
    base::UniqueFd fd = in.descriptor();
    in(capture->several_, capture->error_);
    base::load_counters(in, capture->counters_);
    for (std::size_t left = in.count(); left > 0 && in.ok(); --left)
        capture->points_.emplace_back(*capture, static_cast<std::uint32_t>(capture->points_.size()),
                                      text());
    in.require(!capture->points_.empty() && (capture->several_ || capture->points_.size() == 1),
               "no capture");
    in.end();
    TRY_VOID(in.result());
    TRY_VOID(capture->open(std::move(fd)));
    return capture;
}

FrameTap* Capture::find_point(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(points_, name, &Point::name);
    return found == points_.end() ? nullptr : &*found;
}

base::Result<FrameTap*> Capture::add_point(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (!several_)
        return base::fail(base::ErrorCode::kUnsupported,
                          "a capture that was begun with one network has no room for another");
    const std::vector<std::byte> block = pcapng_interface(name, kSnapLength);
    if (buffered_ + block.size() > kBufferSize && error() == 0) flush_locked();
    errno = 0;
    if (error() == 0) buffered_ += std::fwrite(block.data(), 1, block.size(), file_.get());
    return &points_.emplace_back(*this, static_cast<std::uint32_t>(points_.size()), name);
}

Capture::~Capture() {
    flush();
}

void Capture::write(std::uint32_t point, std::span<const std::byte> frame) {
    const std::lock_guard lock(mutex_);
    const std::size_t kept = std::min<std::size_t>(frame.size(), kSnapLength);
    // Only whole packets leave the buffer.
    if (buffered_ + kMostAround + kept > kBufferSize && error() == 0) flush_locked();
    if (error() != 0) {
        counters_.lost.add();
        return;
    }
    // Taken under the lock, so that the times in the file never go back.
    const auto now = wall_.at(clock_.now()).count();
    errno = 0;
    const auto put = [this](std::span<const std::byte> part) {
        buffered_ += std::fwrite(part.data(), 1, part.size(), file_.get());
    };
    const auto whole = static_cast<std::uint32_t>(frame.size());
    if (several_) {
        const PcapngPacket packet(point, static_cast<std::uint64_t>(now),
                                  static_cast<std::uint32_t>(kept), whole);
        for (const auto part :
             {std::span<const std::byte>(packet.head), frame.first(kept), packet.behind()})
            put(part);
    } else {
        put(PcapPacket(static_cast<std::uint64_t>(now), static_cast<std::uint32_t>(kept), whole)
                .head);
        put(frame.first(kept));
    }
    if (std::ferror(file_.get()) != 0) {
        flush_locked();
        counters_.lost.add();
        return;
    }
    counters_.frames.add();
}

void Capture::flush() {
    const std::lock_guard lock(mutex_);
    if (buffered_ != 0 && error() == 0) flush_locked();
}

void Capture::flush_locked() {
    buffered_ = 0;
    const bool failed_before = std::ferror(file_.get()) != 0;
    const int reason = errno;
    errno = 0;
    if (std::fflush(file_.get()) == 0 && !failed_before) return;
    const int now = errno != 0 ? errno : reason;
    error_.store(now != 0 ? now : EIO, std::memory_order_relaxed);
    OM_WARN("capture end: file={} reason=\"{}\"", path_, std::strerror(error()));
}

}  // namespace openmana::fabric
