// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace openmana::base {

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;
    /// "10.0.0.1:4000" or "[fd00::1]:4000".
    [[nodiscard]] static Result<SocketAddress> parse(std::string_view text);
    [[nodiscard]] const sockaddr* get() const {
        return reinterpret_cast<const sockaddr*>(&storage);
    }
    [[nodiscard]] sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    [[nodiscard]] int family() const { return storage.ss_family; }
    /// As parse() takes it.
    [[nodiscard]] std::string text() const;
    /// Of one family, address and port.
    friend bool operator==(const SocketAddress& a, const SocketAddress& b);
};

}  // namespace openmana::base
