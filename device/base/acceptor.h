// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/unix_socket.h"

namespace openmana::base {

/// Takes the clients of a listening Unix socket, one after the other.
///
/// A socket with a client for whom nothing can be done for now (no descriptor, no memory) stays
/// readable, and who goes on watching it spins. So it is left alone for kPause and then tried
/// again, until the client can be taken. The log has one warning of that, whatever the number of
/// tries, and another only after a client was taken in between.
///
/// Lives on one EventLoop: everything happens on the loop's thread, the callback included; create
/// and destroy there, or while the loop does not run. The loop outlives it.
class Acceptor {
public:
    static constexpr Duration kPause = std::chrono::milliseconds(100);

    /// Gets a connection (non-blocking, close-on-exec). May hold and resume, but not destroy the
    /// acceptor.
    using OnClient = std::function<void(UniqueFd client)>;

    /// Listens, and holds until `start`. `event` opens the warning: "control accept:", with ids
    /// behind the colon where there are any.
    static Result<std::unique_ptr<Acceptor>> create(EventLoop& loop, const SocketPlace& place,
                                                    std::string event);
    /// The same of one that listens already.
    static Result<std::unique_ptr<Acceptor>> create(EventLoop& loop, UnixListener listener,
                                                    std::string event);
    ~Acceptor();
    Acceptor(const Acceptor&) = delete;
    Acceptor& operator=(const Acceptor&) = delete;

    /// `mark` is 1 from before a client is taken until its callback has returned: for who goes on
    /// behind a crash. Outlives this.
    void mark_accepts(std::atomic<std::uint32_t>& mark) { mark_ = &mark; }
    /// Once.
    void start(OnClient on_client);
    /// Leaves who comes in the socket's queue until `resume`.
    void hold();
    void resume();
    [[nodiscard]] UnixListener& listener() { return listener_; }
    [[nodiscard]] const UnixListener& listener() const { return listener_; }

private:
    Acceptor(EventLoop& loop, UnixListener listener, std::string event);
    void accept();
    void take_client();
    /// Neither can fail: changing what a watched descriptor is watched for takes no memory.
    void watch();
    void unwatch();

    EventLoop& loop_;
    UnixListener listener_;
    const std::string event_;
    std::atomic<std::uint32_t>* mark_ = nullptr;
    OnClient on_client_;
    Timer again_;
    bool held_ = true;
    bool said_ = false;  // the warning, since the last client
};

}  // namespace openmana::base
