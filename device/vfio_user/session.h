// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "base/state.h"
#include "vfio_user/counters.h"
#include "vfio_user/device_backend.h"
#include "vfio_user/features.h"
#include "vfio_user/message.h"
#include "vfio_user/server_ledger.h"

namespace openmana::vfio_user {

/// One client's conversation, without its socket: bytes and fds go in, calls of the backend and
/// bytes come out.
///
/// The owner reads from the socket into `receive_room()`, says what came with `receive()`, then
/// sends `output()` and confirms with `sent()`. Replies gather in the output; when too many do,
/// handling stops with `backlog()` true, and the owner calls `resume()` once the output is sent. It
/// receives more only when there is no backlog. Handling a message allocates nothing but what the
/// output buffer grows.
///
/// An error of `receive` or `resume` ends the conversation: the client broke the framing.
///
/// All that it knows is in its ledger, if that is the owner's, whenever the process ends. A message
/// is handled and answered in one step of the ledger: one that had no answer is handled again, and
/// no answer is given twice. So whatever a message does may be done twice (docs/manad.md).
class Session {
public:
    /// `movable`, if any, is the device too, which another client may have left in `device`.
    /// `ledger`: one whose session has begun, or null.
    Session(DeviceBackend& backend, Counters& counters, std::string name,
            MovableDevice* movable = nullptr, DeviceState device = DeviceState::kRunning,
            ServerLedger* ledger = nullptr);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// Never empty while there is no backlog.
    [[nodiscard]] std::span<std::byte> receive_room();
    /// `bytes` were stored in the room. The fds belong to the message that the last of these bytes
    /// is part of: a receive on a stream socket ends behind the bytes that fds were sent with.
    base::Result<void> receive(std::size_t bytes, std::span<base::UniqueFd> fds);
    base::Result<void> resume() { return handle_all(); }
    [[nodiscard]] bool backlog() const { return backlog_; }

    [[nodiscard]] std::span<const std::byte> output() const {
        return std::span(ledger_.output)
            .subspan(state_.output_begin, state_.output_end - state_.output_begin);
    }
    void sent(std::size_t bytes);

    /// Whether a device that this client leaves now is one that another can go on with: the client
    /// had something to do with it, and has not moved it.
    [[nodiscard]] bool retainable() const;

    /// For the next call of receive() and of sent(), into the room and from the output.
    [[nodiscard]] ServerLedger::Transfer& next_receive();
    [[nodiscard]] ServerLedger::Transfer& next_send();

    /// Between two calls of the others: what was negotiated, and what is on its way in and out, for
    /// another process of this host.
    void save(base::StateWriter& out) const;
    /// Of a fresh session. Good for nothing after a refusal.
    void load(base::StateReader& in);
    /// Goes on, with a backlog, where the process has ended that wrote the ledger. Of a fresh
    /// session.
    base::Result<void> recover();

private:
    using FdSpan = std::span<base::UniqueFd>;

    base::Result<void> handle_all();
    base::Result<void> handle_messages();
    void compact();
    void put_reply();
    void complete_message();
    void commit();
    [[nodiscard]] bool posts_writes(const Header& header) const;
    void handle(const Message& message, FdSpan fds);
    base::Result<void> dispatch(const Message& message, FdSpan fds);
    base::Result<void> on_version(Reader reader);
    base::Result<void> on_dma_map(Reader reader, FdSpan fds);
    base::Result<void> on_dma_unmap(Reader reader);
    base::Result<void> on_device_info(Reader reader);
    base::Result<void> on_region_info(Reader reader);
    base::Result<void> on_irq_info(Reader reader);
    base::Result<void> on_set_irqs(Reader reader, FdSpan fds);
    base::Result<void> set_eventfds(const IrqSet& request, FdSpan fds);
    base::Result<void> on_region_read(Reader reader);
    base::Result<void> on_region_write(Reader reader, bool posted);
    base::Result<void> on_write_multi(Reader reader, bool posted);
    base::Result<void> on_feature(Command command, Reader reader);
    base::Result<void> write_region(const RegionAccess& access, std::span<const std::byte> data,
                                    bool posted);
    void write_gathered();
    void drop_fds(FdSpan fds);

    DeviceBackend& backend_;
    Counters& counters_;
    const std::string name_;
    std::optional<Features> features_;  // of a device that can move
    std::array<Region, kRegionCount> regions_;

    // `state_` is what the ledger gets next. Of the input, `first_fds_` came with earlier bytes of
    // the message at the begin, until that is handled; `last_fds_` belong to the message that ends
    // at or behind the end.
    const std::unique_ptr<ServerLedger> own_ledger_;  // or null
    ServerLedger& ledger_;
    ServerLedger::State state_;
    std::vector<base::UniqueFd> first_fds_;
    std::vector<base::UniqueFd> last_fds_;
    bool backlog_ = false;
    bool again_ = false;  // the next message that has an answer may have been handled before

    // Writes to BAR0 that nobody waits for, until something else comes or there are enough. Their
    // data are in the input. So the device sees what else is on its way.
    static constexpr std::size_t kMaxGathered = 64;
    std::array<base::BarWrite, kMaxGathered> gathered_;
    std::size_t gathered_count_ = 0;

    std::vector<std::byte> reply_;  // to one message
};

}  // namespace openmana::vfio_user
