// SPDX-License-Identifier: Apache-2.0
#include "manactl/control_client.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace openmana::manactl {
namespace {

constexpr int kTimeoutSeconds = 10;

}  // namespace

[[noreturn]] void die(const std::string& text) {
    std::fprintf(stderr, "manactl: %s\n", text.c_str());
    std::exit(1);
}

namespace {

/// The line that answers, or in words why there is none.
std::optional<std::string> exchange(const std::string& path, const std::string& line,
                                    std::string& why) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
        why = "the path is too long for a socket";
        return std::nullopt;
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    struct Socket {
        ~Socket() { ::close(fd); }
        const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    } const socket;
    const timeval timeout{kTimeoutSeconds, 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
        (void)::setsockopt(socket.fd, SOL_SOCKET, option, &timeout, sizeof timeout);
    if (::connect(socket.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        why = std::string(std::strerror(errno)) + " (is manad running with --control?)";
        return std::nullopt;
    }
    if (::send(socket.fd, line.data(), line.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(line.size())) {
        why = std::strerror(errno);
        return std::nullopt;
    }
    std::string answer;
    while (answer.empty() || answer.back() != '\n') {
        char buffer[65536];
        const ssize_t n = ::recv(socket.fd, buffer, sizeof buffer, 0);
        if (n <= 0) {
            why = n == 0 ? "manad closed the connection"
                         : std::string("no answer: ") + std::strerror(errno);
            return std::nullopt;
        }
        answer.append(buffer, static_cast<std::size_t>(n));
    }
    return answer;
}

}  // namespace

json ask(const std::string& path, const json& request) {
    std::string why;
    const auto answer = exchange(path, request.dump() + "\n", why);
    if (!answer) die(path + ": " + why);
    const json reply = json::parse(*answer, nullptr, false);
    if (!reply.is_object()) die(path + ": the answer is not JSON");
    if (!reply.value("ok", false)) die(reply.value("error", "the request failed"));
    return reply;
}

std::optional<json> try_to_ask(const std::string& path, const json& request) {
    std::string why;
    const auto answer = exchange(path, request.dump() + "\n", why);
    if (!answer) return std::nullopt;
    json reply = json::parse(*answer, nullptr, false);
    if (!reply.is_object() || !reply.value("ok", false)) return std::nullopt;
    return reply;
}

}  // namespace openmana::manactl
