// SPDX-License-Identifier: Apache-2.0
#include "manad/service_notice.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace openmana::manad {

ServiceNotice::ServiceNotice() {
    const char* const path = std::getenv("NOTIFY_SOCKET");
    if (path == nullptr || *path == '\0') return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    base::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool fits = (*path == '/' || *path == '@') && length < sizeof address.sun_path;
    if (fits) std::memcpy(address.sun_path, path, length);
    if (*path == '@') address.sun_path[0] = '\0';  // one without a file
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    if (!fits || !socket ||
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
        OM_WARN("service manager: not told anything socket={}", path);
        return;
    }
    socket_ = std::move(socket);
}

void ServiceNotice::tell(std::string_view state) const {
    if (socket_) (void)::send(socket_.get(), state.data(), state.size(), MSG_NOSIGNAL);
}

}  // namespace openmana::manad
