// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// A listening Unix stream socket (non-blocking, close-on-exec) that removes its path when it goes.
/// A path left behind by a process that is gone is taken over; one that somebody serves is kBusy;
/// one that is no socket is kInvalidArgument.
class UnixListener {
public:
    static Result<UnixListener> create(const std::string& path);
    ~UnixListener();
    UnixListener(UnixListener&&) noexcept = default;
    UnixListener& operator=(UnixListener&&) = delete;

    [[nodiscard]] int fd() const { return fd_.get(); }
    /// The next client (non-blocking, close-on-exec), or an invalid descriptor if none can be had;
    /// errno then says why. `Acceptor` knows what to do about it.
    [[nodiscard]] UniqueFd accept() const;

private:
    UnixListener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
    UniqueFd fd_;
    std::string path_;
};

/// The process that connected this socket, if it is visible here.
std::optional<pid_t> peer_process(const UniqueFd& socket);

/// A blocking client of such a socket.
Result<UniqueFd> connect_unix(const std::string& path);

}  // namespace openmana::base
