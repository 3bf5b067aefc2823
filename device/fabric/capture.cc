// SPDX-License-Identifier: Apache-2.0
#include "fabric/capture.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"
#include "fabric/output_file.h"

namespace openmana::fabric {
namespace {

constexpr int kSnapLength = 262144;
constexpr std::size_t kPacketHeaderSize = 16;  // of a packet in a pcap file
static_assert(kPacketHeaderSize + kSnapLength <= Capture::kBufferSize);

}  // namespace

base::Result<std::unique_ptr<Capture>> Capture::create(const std::string& path,
                                                       const base::Clock& clock,
                                                       base::WallTime wall) {
    // libpcap takes "-" for the standard output, which belongs to those who wait for "ready".
    if (path.empty() || path == "-")
        return base::fail(base::ErrorCode::kInvalidArgument, "a capture needs the path of a file");
    Pcap pcap(
        pcap_open_dead_with_tstamp_precision(DLT_EN10MB, kSnapLength, PCAP_TSTAMP_PRECISION_NANO));
    if (!pcap) return base::fail(base::ErrorCode::kExhausted, "cannot start a capture");
    TRY(auto fd, open_output(path, OutputMode::kReplace));
    std::FILE* const file = ::fdopen(fd.get(), "wb");
    if (file == nullptr)
        return base::fail(base::ErrorCode::kIo, "cannot write the capture",
                          static_cast<unsigned>(errno));
    (void)fd.release();                     // now the stream's
    std::vector<char> buffer(kBufferSize);  // the stream ignores the size of one it makes itself
    std::setvbuf(file, buffer.data(), _IOFBF, buffer.size());
    Dump dump(pcap_dump_fopen(pcap.get(), file));
    if (!dump) {
        const int reason = errno;
        std::fclose(file);
        return base::fail(base::ErrorCode::kIo, "cannot write the capture",
                          static_cast<unsigned>(reason));
    }
    // The file header goes out now: a full disk is found at once, and a reader sees a valid file
    // from the start.
    errno = 0;
    if (pcap_dump_flush(dump.get()) != 0)
        return base::fail(base::ErrorCode::kIo, "cannot write the capture",
                          static_cast<unsigned>(errno));
    return std::unique_ptr<Capture>(
        new Capture(path, clock, wall, std::move(pcap), std::move(buffer), std::move(dump)));
}

Capture::~Capture() {
    flush();
}

void Capture::frame(std::span<const std::byte> frame) {
    const std::lock_guard lock(mutex_);
    const std::size_t kept = std::min<std::size_t>(frame.size(), kSnapLength);
    const std::size_t size = kPacketHeaderSize + kept;
    // Only whole packets leave the buffer.
    if (buffered_ + size > kBufferSize && error() == 0) flush_locked();
    if (error() != 0) {
        counters_.lost.add();
        return;
    }
    // Taken under the lock, so that the times in the file never go back.
    const auto now = wall_.at(clock_.now()).count();
    pcap_pkthdr header{};
    header.ts.tv_sec = now / 1000000000;
    header.ts.tv_usec = now % 1000000000;
    header.len = static_cast<bpf_u_int32>(frame.size());
    header.caplen = static_cast<bpf_u_int32>(kept);
    errno = 0;
    pcap_dump(reinterpret_cast<u_char*>(dump_.get()), &header,
              reinterpret_cast<const u_char*>(frame.data()));
    // pcap_dump() says nothing when it fails; the stream below it does.
    if (std::ferror(pcap_dump_file(dump_.get())) != 0) {
        flush_locked();
        counters_.lost.add();
        return;
    }
    buffered_ += size;
    counters_.frames.add();
}

void Capture::flush() {
    const std::lock_guard lock(mutex_);
    if (buffered_ != 0 && error() == 0) flush_locked();
}

void Capture::flush_locked() {
    buffered_ = 0;
    std::FILE* const file = pcap_dump_file(dump_.get());
    const bool failed_before = std::ferror(file) != 0;
    const int reason = errno;
    errno = 0;
    if (pcap_dump_flush(dump_.get()) == 0 && !failed_before) return;
    const int now = errno != 0 ? errno : reason;
    error_.store(now != 0 ? now : EIO, std::memory_order_relaxed);
    OM_WARN("capture end: file={} reason={}", path_, std::strerror(error()));
}

}  // namespace openmana::fabric
