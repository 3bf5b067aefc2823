// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pcap/pcap.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"
#include "base/wall_time.h"

namespace openmana::fabric {

/// Sees frames that pass a point, in their order. From any thread.
class FrameTap {
public:
    virtual ~FrameTap() = default;
    virtual void frame(std::span<const std::byte> frame) = 0;
};

#define OM_CAPTURE_COUNTERS(X)                                        \
    X(frames, "fabric.capture.frames", "frames written to a capture") \
    X(lost, "fabric.capture.lost", "frames not written because the file could not take them")

OM_COUNTERS(CaptureCounters, OM_CAPTURE_COUNTERS);

/// A capture file with nanosecond time stamps, for tshark and Wireshark: of one point in pcap
/// format, of several in pcapng, where each is an interface with a name. Thread-safe. Each write to
/// the file is one of whole packets, so that it can be read while it grows. After an error (disk
/// full) it writes nothing more, says so once in the log, and keeps the reason.
class Capture final : public FrameTap {
public:
    /// How long a frame may wait for the disk; the owner has flush() called this often.
    static constexpr base::Duration kFlushInterval = std::chrono::milliseconds(200);
    /// Bytes that gather before they go to the file; more than any packet takes.
    static constexpr std::size_t kBufferSize = 1 << 20;

    /// Creates or overwrites the file. `points` are the names of several; with none, or one, there
    /// is one.
    static base::Result<std::unique_ptr<Capture>> create(const std::string& path,
                                                         const base::Clock& clock,
                                                         base::WallTime wall,
                                                         std::span<const std::string> points = {});
    ~Capture() override;

    /// A frame that passes the first point.
    void frame(std::span<const std::byte> frame) override { write(0, frame); }
    /// Takes those of the other points.
    [[nodiscard]] FrameTap& tap(std::size_t point) { return points_[point]; }
    /// One more point, of a file that was begun with several. Not while another is added.
    base::Result<FrameTap*> add_point(const std::string& name);
    /// Hands what was written to the system; costs nothing if there is nothing. Waits for the disk,
    /// as frame() may.
    void flush();
    /// errno of the error that ended the capture, or 0.
    [[nodiscard]] int error() const { return error_.load(std::memory_order_relaxed); }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const CaptureCounters& counters() const { return counters_; }

private:
    struct CloseDump {
        void operator()(pcap_dumper_t* dump) const { pcap_dump_close(dump); }
    };
    struct ClosePcap {
        void operator()(pcap_t* pcap) const { pcap_close(pcap); }
    };
    using Pcap = std::unique_ptr<pcap_t, ClosePcap>;
    using Dump = std::unique_ptr<pcap_dumper_t, CloseDump>;
    struct CloseFile {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, CloseFile>;
    class Point final : public FrameTap {
    public:
        Point(Capture& capture, std::uint32_t number) : capture_(capture), number_(number) {}
        void frame(std::span<const std::byte> frame) override { capture_.write(number_, frame); }

    private:
        Capture& capture_;
        const std::uint32_t number_;
    };
    Capture(std::string path, const base::Clock& clock, base::WallTime wall)
        : path_(std::move(path)), clock_(clock), wall_(wall), buffer_(kBufferSize) {}
    base::Result<void> begin(std::span<const std::string> points);
    void write(std::uint32_t point, std::span<const std::byte> frame);
    void flush_locked();

    const std::string path_;
    const base::Clock& clock_;
    const base::WallTime wall_;
    std::deque<Point> points_;
    std::mutex mutex_;  // protects the next five
    Pcap pcap_;
    std::vector<char> buffer_;   // of the stream, which is closed first
    File own_;                   // of a pcapng file
    Dump dump_;                  // of a pcap file
    std::size_t buffered_ = 0;   // bytes of whole packets in the buffer
    std::FILE* file_ = nullptr;  // the stream of either
    std::atomic<int> error_{0};
    CaptureCounters counters_;
};

}  // namespace openmana::fabric
