// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include "base/fd.h"
#include "base/result.h"
#include "base/state.h"
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
    /// Goes on with the file of another process, as its save() has it: behind what that has
    /// written, with nothing lost or twice if that has flushed it and writes no more.
    static base::Result<std::unique_ptr<Capture>> resume(base::StateReader& in,
                                                         const base::Clock& clock,
                                                         base::WallTime wall);
    /// After flush().
    void save(base::StateWriter& out) const;
    ~Capture() override;

    /// A frame that passes the first point.
    void frame(std::span<const std::byte> frame) override { write(0, frame); }
    /// Takes those of the other points.
    [[nodiscard]] FrameTap& tap(std::size_t point) { return points_[point]; }
    /// The point of that name; nothing if there is none.
    [[nodiscard]] FrameTap* find_point(const std::string& name);
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
    struct CloseFile {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    using File = std::unique_ptr<std::FILE, CloseFile>;
    class Point final : public FrameTap {
    public:
        Point(Capture& capture, std::uint32_t number, std::string name)
            : capture_(capture), number_(number), name_(std::move(name)) {}
        [[nodiscard]] const std::string& name() const { return name_; }
        void frame(std::span<const std::byte> frame) override { capture_.write(number_, frame); }

    private:
        Capture& capture_;
        const std::uint32_t number_;
        const std::string name_;
    };
    Capture(std::string path, const base::Clock& clock, base::WallTime wall)
        : path_(std::move(path)), clock_(clock), wall_(wall), buffer_(kBufferSize) {}
    base::Result<void> open(base::UniqueFd fd);
    base::Result<void> begin(std::span<const std::string> points);
    void write(std::uint32_t point, std::span<const std::byte> frame);
    void flush_locked();

    const std::string path_;
    const base::Clock& clock_;
    const base::WallTime wall_;
    std::deque<Point> points_;
    mutable std::mutex mutex_;  // protects the next four, and points_ while one is added
    std::vector<char> buffer_;  // of the stream, which is closed first
    File file_;
    std::size_t buffered_ = 0;  // bytes of whole packets in the buffer
    bool several_ = false;      // points: pcapng
    std::atomic<int> error_{0};
    CaptureCounters counters_;
};

}  // namespace openmana::fabric
