// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/histogram.h"

namespace openmana::rnic {

/// What a request asks for, as far as figures tell requests apart.
enum class RequestKind : std::uint8_t { kSend, kWrite, kRead, kAtomic, kDatagram };

/// Histograms of the requests that the guest of one NIC posts: bytes of each that is done, and of
/// some how long it took. Its executor adds, any thread reads.
class RequestFigures {
public:
    struct Info {
        const char* name;  ///< layer.object.unit
        const char* help;  ///< one line
        double per_unit;   ///< values that are one of the unit in the name
    };
    static constexpr Info kSeconds{"rnic.request.seconds",
                                   "time from a doorbell to the completion of the last request "
                                   "that it posted, of about one doorbell in 16",
                                   1e9};
    static constexpr Info kBytes{"rnic.request.bytes", "payload of requests that are done", 1};

    /// To be asked at each doorbell: whether this one is timed. About one in 16 is, by chance, so
    /// that what comes in rounds is hit in each of its places: reading a clock twice takes as long
    /// as a quarter of a small request.
    [[nodiscard]] bool time_this() {
        if (--untimed_ > 0) return false;
        untimed_ = 1 + static_cast<std::uint32_t>(chance_.below(2 * kOneIn - 1));
        return true;
    }
    void add_time(RequestKind kind, base::Duration time) {
        times_[index(kind)].add(static_cast<std::uint64_t>(time.count()));
    }
    void add_bytes(RequestKind kind, std::uint64_t bytes) { bytes_[index(kind)].add(bytes); }

    /// Calls f(Info, name of the kind, HistogramReading) for each. Of atomics, which have 8
    /// bytes, there are times only; of datagrams, which are done when they are sent, bytes only.
    template <typename F>
    void visit(F&& f) const {
        for (const RequestKind of :
             {RequestKind::kSend, RequestKind::kWrite, RequestKind::kRead, RequestKind::kAtomic})
            f(kSeconds, name(of), times_[index(of)].read());
        for (const RequestKind of :
             {RequestKind::kSend, RequestKind::kWrite, RequestKind::kRead, RequestKind::kDatagram})
            f(kBytes, name(of), bytes_[index(of)].read());
    }
    [[nodiscard]] static constexpr const char* name(RequestKind kind) {
        constexpr std::array<const char*, 5> kNames{"send", "write", "read", "atomic", "datagram"};
        return kNames[index(kind)];
    }

private:
    static constexpr std::uint32_t kOneIn = 16;
    static constexpr std::size_t index(RequestKind kind) { return static_cast<std::size_t>(kind); }
    /// 0.5 us to 2.1 s, and 16 bytes to 4 MiB.
    using Times = base::Histogram<500, 1, 24>;
    using Bytes = base::Histogram<16, 2, 11>;

    std::uint32_t untimed_ = 1;  // doorbells until one is timed: the first is
    base::Random chance_{1};
    std::array<Bytes, 5> bytes_;
    std::array<Times, 4> times_;
};

/// The doorbell of one queue pair that is timed, from when it rings until the last request that it
/// posted is done. Executor.
class RequestTiming {
public:
    /// Something is posted, up to `end`. Not if another one is timed.
    void begin(std::uint32_t end, base::TimePoint now) {
        if (stage_ != Stage::kNone) return;
        stage_ = Stage::kPosted;
        end_ = end;
        since_ = now;
    }
    [[nodiscard]] bool waits() const { return stage_ == Stage::kPosted; }
    /// The requests up to `position` are taken. True if the last one of these is the one.
    [[nodiscard]] bool take(std::uint32_t position) {
        if (static_cast<std::int32_t>(position - end_) < 0) return false;
        stage_ = Stage::kTaken;
        return true;
    }
    /// It is done.
    [[nodiscard]] base::Duration end(base::TimePoint now) {
        stage_ = Stage::kNone;
        return now - since_;
    }
    void forget() { stage_ = Stage::kNone; }

private:
    enum class Stage : std::uint8_t { kNone, kPosted, kTaken };
    Stage stage_ = Stage::kNone;
    std::uint32_t end_ = 0;
    base::TimePoint since_{};
};

}  // namespace openmana::rnic
