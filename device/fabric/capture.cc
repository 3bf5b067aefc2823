// SPDX-License-Identifier: Apache-2.0
#include "fabric/capture.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "fabric/output_file.h"
#include "fabric/pcapng.h"

namespace openmana::fabric {
namespace {

constexpr std::uint32_t kSnapLength = 262144;
constexpr std::size_t kPcapHeader = 16;  // of a packet in a pcap file
constexpr std::size_t kMostAround = PcapngPacket::kHead + PcapngPacket::kMaxTail;
static_assert(kPcapHeader < kMostAround && kMostAround + kSnapLength <= Capture::kBufferSize);

base::Error no_write(int reason) {
    return {base::ErrorCode::kIo, "cannot write the capture", static_cast<unsigned>(reason)};
}

}  // namespace

/// The head of the file goes out now: a full disk is found at once, and a reader sees a valid file
/// from the start.
base::Result<void> Capture::begin(std::span<const std::string> points) {
    File stream;
    {
        TRY(auto fd, open_output(path_, OutputMode::kReplace));
        stream.reset(::fdopen(fd.get(), "wb"));
        if (!stream) return tl::unexpected(no_write(errno));
        (void)fd.release();  // now the stream's
    }
    // The stream ignores the size of a buffer that it makes itself.
    std::setvbuf(stream.get(), buffer_.data(), _IOFBF, buffer_.size());
    file_ = stream.get();
    errno = 0;
    if (points.size() > 1) {
        const std::vector<std::byte> head = pcapng_header(points, kSnapLength);
        own_ = std::move(stream);
        if (std::fwrite(head.data(), 1, head.size(), file_) != head.size())
            return tl::unexpected(no_write(errno));
    } else {
        pcap_.reset(pcap_open_dead_with_tstamp_precision(DLT_EN10MB, kSnapLength,
                                                         PCAP_TSTAMP_PRECISION_NANO));
        if (!pcap_) return base::fail(base::ErrorCode::kExhausted, "cannot start a capture");
        dump_.reset(pcap_dump_fopen(pcap_.get(), file_));
        if (!dump_) return tl::unexpected(no_write(errno));
        (void)stream.release();  // now the dump's
    }
    errno = 0;
    if (std::fflush(file_) != 0) return tl::unexpected(no_write(errno));
    return {};
}

base::Result<std::unique_ptr<Capture>> Capture::create(const std::string& path,
                                                       const base::Clock& clock,
                                                       base::WallTime wall,
                                                       std::span<const std::string> points) {
    // libpcap takes "-" for the standard output, which belongs to those who wait for "ready".
    if (path.empty() || path == "-")
        return base::fail(base::ErrorCode::kInvalidArgument, "a capture needs the path of a file");
    std::unique_ptr<Capture> capture(new Capture(path, clock, wall));
    TRY_VOID(capture->begin(points));
    for (std::uint32_t i = 0; i == 0 || i < points.size(); ++i)
        capture->points_.emplace_back(*capture, i);
    return capture;
}

base::Result<FrameTap*> Capture::add_point(const std::string& name) {
    const std::lock_guard lock(mutex_);
    if (!own_)
        return base::fail(base::ErrorCode::kUnsupported,
                          "a capture that was begun with one network has no room for another");
    const std::vector<std::byte> block = pcapng_interface(name, kSnapLength);
    if (buffered_ + block.size() > kBufferSize && error() == 0) flush_locked();
    errno = 0;
    if (error() == 0) buffered_ += std::fwrite(block.data(), 1, block.size(), file_);
    return &points_.emplace_back(*this, static_cast<std::uint32_t>(points_.size()));
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
    if (dump_) {
        pcap_pkthdr header{};
        header.ts.tv_sec = now / 1000000000;
        header.ts.tv_usec = now % 1000000000;
        header.len = static_cast<bpf_u_int32>(frame.size());
        header.caplen = static_cast<bpf_u_int32>(kept);
        pcap_dump(reinterpret_cast<u_char*>(dump_.get()), &header,
                  reinterpret_cast<const u_char*>(frame.data()));
        buffered_ += kPcapHeader + kept;
    } else {
        const PcapngPacket packet(point, static_cast<std::uint64_t>(now),
                                  static_cast<std::uint32_t>(kept),
                                  static_cast<std::uint32_t>(frame.size()));
        for (const auto part :
             {std::span<const std::byte>(packet.head), frame.first(kept), packet.behind()})
            buffered_ += std::fwrite(part.data(), 1, part.size(), file_);
    }
    // Neither way says that it failed; the stream below does.
    if (std::ferror(file_) != 0) {
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
    const bool failed_before = std::ferror(file_) != 0;
    const int reason = errno;
    errno = 0;
    if (std::fflush(file_) == 0 && !failed_before) return;
    const int now = errno != 0 ? errno : reason;
    error_.store(now != 0 ? now : EIO, std::memory_order_relaxed);
    OM_WARN("capture end: file={} reason=\"{}\"", path_, std::strerror(error()));
}

}  // namespace openmana::fabric
