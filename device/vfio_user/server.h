// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/acceptor.h"
#include "base/clock.h"
#include "base/cpu_follower.h"
#include "base/event_loop.h"
#include "base/executor.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/state.h"
#include "base/unix_socket.h"
#include "vfio_user/counters.h"
#include "vfio_user/device_backend.h"
#include "vfio_user/session.h"

namespace openmana::vfio_user {

/// A device that can move, if there is one, and how long it is kept for another client when one has
/// closed the connection: that client finds it in STOP. Zero: it is reset.
struct Moving {
    MovableDevice* device = nullptr;
    base::Duration retain{};
};

/// Serves one device on a Unix socket, to one client at a time. Further clients wait in the
/// socket's queue: a QEMU that starts while the one before it dies gets its turn. Created and
/// destroyed on the loop's thread, or while the loop does not run; everything it does happens
/// there. Outlived by loop and backend; a client that is still connected at the end counts as gone.
///
/// A server can be handed over to another process of this host, so that neither the client nor who
/// waits to be one notices: it pauses, its state is written, and the other process reads it. Then
/// either this server ends while it pauses, and the other one resumes; or the other ends, and this
/// one resumes. Both have all descriptors meanwhile; who ends in a pause leaves client, backend and
/// socket as they are.
///
/// A server with a ledger of its owner's can also be gone on for when its process has ended at any
/// instruction, by one that has the descriptors and that memory: recover().
class Server {
public:
    /// `name` is the NIC in log lines. `moving.device` is the device too.
    static base::Result<std::unique_ptr<Server>> create(base::EventLoop& loop,
                                                        DeviceBackend& backend,
                                                        const base::SocketPlace& place,
                                                        std::string name, Moving moving = {},
                                                        ServerLedger* ledger = nullptr);
    /// The server whose state `in` has, in a pause; the backend's was read before. `path` is that
    /// of the socket.
    static base::Result<std::unique_ptr<Server>> take_over(base::EventLoop& loop,
                                                           DeviceBackend& backend,
                                                           base::StateReader& in,
                                                           const std::string& path,
                                                           std::string name, Moving moving = {},
                                                           ServerLedger* ledger = nullptr);
    /// The server that `ledger` is of, in a pause, without the client: take_up() has that. If it
    /// fails, the ledger still has a socket that listens, for the next process.
    static base::Result<std::unique_ptr<Server>> recover(base::EventLoop& loop,
                                                         DeviceBackend& backend,
                                                         ServerLedger& ledger,
                                                         const std::string& path, std::string name,
                                                         Moving moving = {});
    /// Behind recover(): goes on with the client, or with the device that one has left. The backend
    /// has recovered before. What had no answer is handled after the pause.
    void take_up();
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    [[nodiscard]] const Counters& counters() const { return counters_; }
    /// Ends the conversation with the client, if there is one: it went too far for the device. In
    /// a pause, when that is over. `reason` is a literal.
    void drop_client(const char* reason);
    /// Nothing is read from the client or sent to it, and nobody is accepted, until resume().
    void pause();
    void resume();
    /// In a pause.
    void save(base::StateWriter& out) const;
    /// From any thread, as it was a moment ago.
    [[nodiscard]] bool connected() const { return connected_.load(std::memory_order_relaxed); }

private:
    Server(base::EventLoop& loop, DeviceBackend& backend, std::unique_ptr<base::Acceptor> acceptor,
           std::string name, Moving moving, ServerLedger* ledger);
    /// Of a socket that listens.
    static base::Result<std::unique_ptr<Server>> adopt(base::EventLoop& loop,
                                                       DeviceBackend& backend,
                                                       base::UnixListener listener,
                                                       std::string name, Moving moving,
                                                       ServerLedger* ledger);
    void load(base::StateReader& in);
    void recover_client();
    void note_client(const base::UniqueFd& client);
    void accept(base::UniqueFd client);
    base::Result<void> adopt(base::UniqueFd client, std::uint32_t events, DeviceState device);
    [[nodiscard]] DeviceState device_left() const {
        return retained_ ? DeviceState::kStop : DeviceState::kRunning;
    }
    void recover_retained();
    void note_retained(bool retained);
    void on_client();
    base::Result<void> serve();
    base::Result<void> receive();
    base::Result<bool> flush();
    void leave_client();
    void end_client();
    void retain_device();
    void forget_device();

    base::EventLoop& loop_;
    DeviceBackend& backend_;
    const Moving moving_;
    ServerLedger* const ledger_;  // or null: the session has its own
    const std::string name_;
    Counters counters_;
    std::unique_ptr<base::Acceptor> acceptor_;
    base::UniqueFd client_;
    std::optional<Session> session_;
    std::atomic<bool> connected_{false};         // whether there is one; tells of itself alone
    std::optional<base::CpuFollower> follower_;  // of the client's CPU
    bool blocked_ = false;  // the client does not take its replies: wait until it does, and read
                            // nothing meanwhile
    bool paused_ = false;
    base::Timer patience_;            // with a device that was left
    bool retained_ = false;           // it is one
    const char* unwanted_ = nullptr;  // why the client is dropped after the pause
};

}  // namespace openmana::vfio_user
