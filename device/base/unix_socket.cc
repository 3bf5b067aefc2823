// SPDX-License-Identifier: Apache-2.0
#include "base/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

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

tl::unexpected<Error> failed(const char* text) {
    return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
}

bool same_file(const struct stat& one, const struct stat& other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Whether somebody has the socket at the path, as far as this network namespace knows. The
/// system's table names sockets as they were bound: by a path, which leads to this one or does not,
/// or relative to a directory that is not known, which may be this one's.
bool is_bound(const std::string& path, const struct stat& socket) {
    std::ifstream table("/proc/self/net/unix");
    if (!table) return true;
    const std::filesystem::path name = std::filesystem::path(path).filename();
    std::string line;
    std::getline(table, line);  // names of the columns
    while (std::getline(table, line)) {
        // Seven words of one blank between, and the path if there is one: "@..." is none.
        std::istringstream words(line);
        std::string bound;
        for (int word = 0; word < 7; ++word) words >> bound;
        words.ignore();
        if (!std::getline(words, bound) || bound.starts_with('@')) continue;
        if (std::filesystem::path(bound).filename() != name) continue;
        struct stat other {};
        if (!bound.starts_with('/') ||
            (::stat(bound.c_str(), &other) == 0 && same_file(socket, other)))
            return true;
    }
    return false;
}

/// Whether the socket at the path is one that nobody serves.
Result<void> check_left_behind(const sockaddr_un& address, const SocketPlace& place,
                               const struct stat& socket) {
    const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return failed("cannot create a socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
        return fail(ErrorCode::kBusy, "the socket is in use");
    if (errno == ECONNREFUSED) return {};
    if (errno == EACCES) {
        // One that an earlier process gave away as this one will cannot be asked any more.
        if (socket.st_uid == place.access.owner.value_or(::geteuid()) &&
            !is_bound(place.path, socket))
            return {};
        return fail(ErrorCode::kBusy, "the socket is another's, who may be using it");
    }
    return errno == EAGAIN ? fail(ErrorCode::kBusy, "the socket is in use")
                           : failed("cannot tell whether the socket is in use");
}

/// Gives the socket that is bound to the path to its owner and group.
Result<void> hand_over(const std::string& path, const SocketAccess& access) {
    if (!access.owner && !access.group) return {};
    // Who may write to the directory may have put something else there.
    const UniqueFd socket(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    if (!socket || ::fstat(socket.get(), &status) != 0) return failed("cannot find the new socket");
    if (!S_ISSOCK(status.st_mode) || status.st_uid != ::geteuid())
        return fail(ErrorCode::kBusy, "something else has taken the place of the socket");
    constexpr auto kSame = static_cast<std::uint32_t>(-1);
    if (::fchownat(socket.get(), "", access.owner.value_or(kSame), access.group.value_or(kSame),
                   AT_EMPTY_PATH) != 0)
        return failed("cannot give the socket to its owner and group");
    return {};
}

/// Binds with the mode that the descriptor has, to a path that is not there.
Result<void> bind_to(const UniqueFd& fd, const sockaddr_un& address, mode_t mode) {
    // The path gets the mode of the descriptor, less the umask. The process is asked for no other
    // file meanwhile: those have modes of their own.
    if (::fchmod(fd.get(), mode) != 0) return failed("cannot set the mode of a socket");
    const mode_t before = ::umask(0);
    const int bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const int error = errno;
    ::umask(before);
    errno = error;
    if (bound != 0) return failed("cannot bind the socket");
    return {};
}

}  // namespace

Result<UniqueFd> connect_unix(const std::string& path) {
    TRY(const sockaddr_un address, address_of(path));
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return failed("cannot create a socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return failed("cannot connect to the socket");
    return fd;
}

Result<UnixListener> UnixListener::create(const SocketPlace& place) {
    const std::string& path = place.path;
    TRY(const sockaddr_un address, address_of(path));
    struct stat status {};
    if (::lstat(path.c_str(), &status) == 0) {
        if (!S_ISSOCK(status.st_mode))
            return fail(ErrorCode::kInvalidArgument, "the path exists and is not a socket");
        TRY_VOID(check_left_behind(address, place, status));
        if (::unlink(path.c_str()) != 0) return failed("cannot remove the old socket");
    }
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return failed("cannot create a socket");
    TRY_VOID(bind_to(fd, address, place.access.mode));
    UnixListener listener(std::move(fd), path);
    // Nobody can connect before it listens.
    TRY_VOID(hand_over(path, place.access));
    if (::listen(listener.fd(), 8) != 0) return failed("cannot listen on the socket");
    return listener;
}

Result<UnixListener> UnixListener::adopt(UniqueFd socket, std::string path) {
    if (!is_unix_stream(socket, true))
        return fail(ErrorCode::kInvalidArgument, "not a listening socket");
    sockaddr_un address{};
    socklen_t bytes = sizeof address;
    if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
        return failed("cannot tell where a socket listens");
    const auto named = bytes - std::min<std::size_t>(bytes, offsetof(sockaddr_un, sun_path));
    if (std::string_view(address.sun_path, ::strnlen(address.sun_path, named)) != path)
        return fail(ErrorCode::kInvalidArgument, "the socket listens at another path");
    UnixListener listener(std::move(socket), std::move(path));
    listener.keep_path(true);
    return listener;
}

UnixListener::~UnixListener() {
    if (fd_ && !keeps_path_) ::unlink(path_.c_str());
}

UniqueFd UnixListener::accept() const {
    return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

int socket_option(int socket, int option) {
    int value = -1;
    socklen_t bytes = sizeof value;
    return ::getsockopt(socket, SOL_SOCKET, option, &value, &bytes) == 0 ? value : -1;
}

bool is_unix_stream(const UniqueFd& socket, bool listens) {
    const auto option = [&](int name) { return socket_option(socket.get(), name); };
    return option(SO_DOMAIN) == AF_UNIX && option(SO_TYPE) == SOCK_STREAM &&
           option(SO_ACCEPTCONN) == (listens ? 1 : 0);
}

std::optional<pid_t> peer_process(int socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    // A process of another PID namespace has the number 0.
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0)
        return std::nullopt;
    return peer.pid;
}

}  // namespace openmana::base
