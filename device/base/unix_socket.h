// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <concepts>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// Who may connect to a socket: whom its owner, group and mode let write. What is not given stays
/// that of the process.
struct SocketAccess {
    std::optional<uid_t> owner;
    std::optional<gid_t> group;
    mode_t mode = 0600;
};

/// Where a socket is, and who may connect to it.
struct SocketPlace {
    template <std::convertible_to<std::string> Path>
    SocketPlace(const Path& at, SocketAccess who = {}) : path(at), access(who) {}
    std::string path;
    SocketAccess access;
};

/// A listening Unix stream socket (non-blocking, close-on-exec) that removes its path when it goes.
/// A path left behind by a process that is gone is taken over, also if it was given to the same
/// owner; one that somebody serves, or may serve for all that this process is let know, is kBusy;
/// one that is no socket is kInvalidArgument.
///
/// At no time may more connect than `access` says, whatever the process's umask is. Who may write
/// to the directory cannot have anything but a socket of this process changed.
class UnixListener {
public:
    static Result<UnixListener> create(const SocketPlace& place);
    /// A socket that listens at the path already, as another process of this host has handed it
    /// over. The path stays that process's until `keep_path(false)`.
    static Result<UnixListener> adopt(UniqueFd socket, std::string path);
    ~UnixListener();
    UnixListener(UnixListener&&) noexcept = default;
    UnixListener& operator=(UnixListener&&) = delete;

    [[nodiscard]] int fd() const { return fd_.get(); }
    /// Whether the path is still there when this goes: another process goes on with the socket.
    void keep_path(bool keep) { keeps_path_ = keep; }
    /// The next client (non-blocking, close-on-exec), or an invalid descriptor if none can be had;
    /// errno then says why. `Acceptor` knows what to do about it.
    [[nodiscard]] UniqueFd accept() const;

private:
    UnixListener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
    UniqueFd fd_;
    std::string path_;
    bool keeps_path_ = false;
};

/// An option (SOL_SOCKET) that is a number; -1 if it cannot be had, as of what is no socket.
[[nodiscard]] int socket_option(int socket, int option);

/// A Unix stream socket, one that listens or one that is connected.
[[nodiscard]] bool is_unix_stream(const UniqueFd& socket, bool listens);

/// The process that connected this socket, if it is visible here.
std::optional<pid_t> peer_process(int socket);

/// A blocking client of such a socket.
Result<UniqueFd> connect_unix(const std::string& path);

}  // namespace openmana::base
