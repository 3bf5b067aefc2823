// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/busy_poll.h"
#include "base/clock.h"
#include "gdma/ring.h"
#include "rnic/ext_completions.h"
#include "rnic/send_format.h"

namespace openmana::rnic {

struct Datapath;
struct Qp;

/// Sends of the extension (docs/extensions.md): their producer lies in a record in guest memory,
/// the device counts PSNs, and work requests complete one by one.
class ExtSends final : public SendFormat {
public:
    /// `privileged`: its host is a kernel, and may register memory by a work request.
    ExtSends(Qp& qp, const gdma::SharedWords& record, gdma::Ring ring, bool privileged);
    ~ExtSends() override;
    ExtSends(const ExtSends&) = delete;
    ExtSends& operator=(const ExtSends&) = delete;

    bool ring_doorbell(std::uint32_t position) override;
    bool posted() override;
    void fetch(SendWqe& wqe, Psn next) override;
    void prefetch(std::uint32_t position) const override;
    void prefetch_keys(const gdma::MemoryTable& own, const gdma::MemoryTable& peer) override;
    std::uint16_t execute_local(const SendWqe& wqe) override;
    void complete(const SendWqe& wqe) override;
    void settle() override;
    void start(Psn first) override;
    Next next_datagram(Datagram& datagram) override;
    void complete_datagram() override;
    void reset() override;
    /// Into new ones of the same ring (format_state.cc). The host rings for what it posts, until
    /// its record is watched again.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

    void complete(const SendWqe& wqe, ExtOutcome outcome);
    /// The datagram that was taken last.
    [[nodiscard]] const SendWqe& datagram() const { return datagram_; }
    /// Tells the host once when the queue has drained in SQD.
    void report_drained();
    /// Completes all that is left as flushed. The host rings for what it posts from now on.
    void flush();

    [[nodiscard]] Qp& qp() { return qp_; }
    /// Looks at the producer index. True if it has moved.
    bool look();
    /// The host has to ring the doorbell from now on; true if it did post before it saw that.
    bool sleep();
    /// The host need not ring any more.
    void wake();

    // For the adapter's poller:
    base::TimePoint last_work{};
    base::BusyPoll busy_poll{std::chrono::microseconds(5)};
    bool watched = false;

private:
    /// The bytes of a WQE, or the vendor error that it has; then it is not taken.
    struct Taken {
        std::span<const std::byte> bytes;
        std::uint16_t error = 0;
    };
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self);
    [[nodiscard]] Taken take_wqe();
    void parse(SendWqe& wqe, std::span<const std::byte> bytes);
    [[nodiscard]] std::uint16_t parse_data(SendWqe& wqe, std::span<const std::byte> bytes,
                                           std::size_t at, std::uint32_t inline_bytes);

    // What sends need first: see ExtQueues::kSendBytes.
    const bool privileged_;
    bool drained_reported_ = false;
    bool bad_record_ = false;
    std::uint32_t peeked_ = 0;  // up to here the keys were asked for
    Qp& qp_;
    Datapath& datapath_;
    const gdma::SharedWords& record_;
    gdma::Ring ring_;
    Psn datagram_psn_{};
    SendWqe datagram_;
};

}  // namespace openmana::rnic
