// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "base/executor.h"
#include "base/state.h"
#include "rnic/segment.h"

namespace openmana::rnic {

struct Datapath;
struct Qp;

/// Bytes of requests that wait for receives, of all queue pairs of a NIC.
struct ReceiveWaitBudget {
    static constexpr std::uint64_t kMost = 8U << 20;
    std::uint64_t used = 0;
};

/// Requests from the wire that wait for a receive (ROCE 4.8): the one that needs it, and what came
/// behind it in PSN order. They are copies, bounded by queue pair and NIC: what is too much is
/// dropped as if it was lost. Owner's executor.
class ReceiveWait {
public:
    explicit ReceiveWait(Qp& qp);
    ~ReceiveWait() { clear(); }
    ReceiveWait(const ReceiveWait&) = delete;
    ReceiveWait& operator=(const ReceiveWait&) = delete;

    /// A request has come. True if it is dealt with: something waits before it.
    [[nodiscard]] bool takes(const Segment& segment);
    /// It found no receive, and is tried again. Nothing waits yet.
    void begin(const Segment& segment);
    /// Into one that was just made.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    /// Forgets all. Not while others wait for this thread: it may be much to free.
    void clear();

    /// Requests that wait, and what the timer does for them.
    [[nodiscard]] std::size_t size() const { return requests_.size(); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] bool timer() const { return timer_.armed(); }
    /// What they take, counted anew: as bytes() says.
    [[nodiscard]] std::uint64_t stored() const;

private:
    struct Request {
        Segment segment;  // without its payload
        std::vector<std::byte> payload;
    };
    /// What the requester of another `manad` has under way at most, with MTU 4096.
    static constexpr std::size_t kMostRequests = 512;
    static constexpr std::uint64_t kMostBytes = 1280U << 10;

    [[nodiscard]] static std::uint64_t cost(std::size_t payload);
    [[nodiscard]] bool push(const Segment& segment);
    void pop();
    void drop(const Segment& segment);
    void refuse();
    void try_again();
    [[nodiscard]] bool execute(Request& request);

    Qp& qp_;
    Datapath& datapath_;  // of the queue pair, of which this is all that is left at the end
    base::Timer timer_;
    std::list<Request> requests_;  // has no memory but that of its elements
    std::uint64_t bytes_ = 0;
    Psn next_{};                  // behind the last one
    std::optional<Psn> dropped_;  // the last one of what was dropped behind it
    bool copied_ = false;         // the first one has come again
};

}  // namespace openmana::rnic
