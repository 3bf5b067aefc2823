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

json ask(const std::string& path, const json& request) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) die(path + ": the path is too long for a socket");
    std::memcpy(address.sun_path, path.data(), path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval timeout{kTimeoutSeconds, 0};
    for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
        (void)::setsockopt(fd, SOL_SOCKET, option, &timeout, sizeof timeout);
    if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        die(path + ": " + std::strerror(errno) + " (is manad running with --control?)");
    const std::string line = request.dump() + "\n";
    if (::send(fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
        die(path + ": " + std::strerror(errno));
    std::string answer;
    while (answer.empty() || answer.back() != '\n') {
        char buffer[65536];
        const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
        if (n == 0) die(path + ": manad closed the connection");
        if (n < 0) die(path + ": no answer: " + std::strerror(errno));
        answer.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(fd);
    const json reply = json::parse(answer, nullptr, false);
    if (!reply.is_object()) die(path + ": the answer is not JSON");
    if (!reply.value("ok", false)) die(reply.value("error", "the request failed"));
    return reply;
}

}  // namespace openmana::manactl
