// SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace openmana::base {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return fail(ErrorCode::kInvalidArgument, "not a path that a socket can have");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

}  // namespace

Result<UniqueFd> connect_unix(const std::string& path) {
    TRY(const sockaddr_un address, address_of(path));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return fail(ErrorCode::kIo, "cannot create a socket", static_cast<unsigned>(errno));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return fail(ErrorCode::kIo, "cannot connect to the socket", static_cast<unsigned>(errno));
    return fd;
}

Result<UnixListener> UnixListener::create(const std::string& path) {
    TRY(const sockaddr_un address, address_of(path));
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) {
        if (!S_ISSOCK(status.st_mode))
            return fail(ErrorCode::kInvalidArgument, "the path exists and is not a socket");
        if (connect_unix(path)) return fail(ErrorCode::kBusy, "the socket is in use");
        if (::unlink(path.c_str()) != 0)
            return fail(ErrorCode::kIo, "cannot remove the old socket",
                        static_cast<unsigned>(errno));
    }
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail(ErrorCode::kIo, "cannot create a socket", static_cast<unsigned>(errno));
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return fail(ErrorCode::kIo, "cannot bind the socket", static_cast<unsigned>(errno));
    UnixListener listener(std::move(fd), path);
    if (::listen(listener.fd(), 8) != 0)
        return fail(ErrorCode::kIo, "cannot listen on the socket", static_cast<unsigned>(errno));
    return listener;
}

UnixListener::~UnixListener() {
    if (fd_) ::unlink(path_.c_str());
}

UniqueFd UnixListener::accept() const {
    return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

std::optional<pid_t> peer_process(const UniqueFd& socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    // A process of another PID namespace has the number 0.
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0)
        return std::nullopt;
    return peer.pid;
}

}  // namespace openmana::base
