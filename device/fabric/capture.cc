// SPDX-License-Identifier: Apache-2.0
#include "fabric/capture.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace openmana::fabric {
namespace {

constexpr int kSnapLength = 262144;

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
    errno = 0;
    Dump dump(pcap_dump_open(pcap.get(), path.c_str()));
    if (!dump)
        return base::fail(base::ErrorCode::kIo, "cannot write the capture",
                          static_cast<unsigned>(errno));
    // The file header goes out now: a full disk is found at once, and a reader sees a valid file
    // from the start.
    errno = 0;
    if (pcap_dump_flush(dump.get()) != 0)
        return base::fail(base::ErrorCode::kIo, "cannot write the capture",
                          static_cast<unsigned>(errno));
    return std::unique_ptr<Capture>(
        new Capture(path, clock, wall, std::move(pcap), std::move(dump)));
}

Capture::~Capture() {
    flush();
}

void Capture::frame(std::span<const std::byte> frame) {
    const std::lock_guard lock(mutex_);
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
    header.caplen = header.len < kSnapLength ? header.len : kSnapLength;
    errno = 0;
    pcap_dump(reinterpret_cast<u_char*>(dump_.get()), &header,
              reinterpret_cast<const u_char*>(frame.data()));
    // pcap_dump() says nothing when it fails; the stream below it does.
    if (std::ferror(pcap_dump_file(dump_.get())) != 0) {
        flush_locked();
        counters_.lost.add();
        return;
    }
    dirty_ = true;
    counters_.frames.add();
}

void Capture::flush() {
    const std::lock_guard lock(mutex_);
    if (dirty_ && error() == 0) flush_locked();
}

void Capture::flush_locked() {
    dirty_ = false;
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
