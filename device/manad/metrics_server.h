// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"
#include "base/socket_address.h"
#include "base/unix_socket.h"

struct MHD_Daemon;

namespace openmana::manad {

/// One `--metrics`: a TCP address, or a Unix socket.
struct MetricsPlace {
    base::SocketAddress address;  ///< if there is no path
    std::string path;
    base::SocketAccess access;
    std::string text;  ///< as given
};

/// Answers `GET /metrics` (HTTP 1.1, by libmicrohttpd) with what `make` gives then. Lives on one
/// EventLoop, which outlives it: everything happens there. So many connections at a time, each for
/// so long; who sends something else gets the status for it.
class MetricsServer {
public:
    static constexpr unsigned kMaxClients = 32;
    static constexpr unsigned kPatienceSeconds = 30;

    /// The figures, as OpenMetrics if the client wants that.
    using Make = std::function<std::string(bool open_metrics)>;

    /// `inherited`: a socket of that place which listens already, of another process.
    static base::Result<std::unique_ptr<MetricsServer>> create(base::EventLoop& loop,
                                                               const MetricsPlace& place, Make make,
                                                               base::UniqueFd inherited = {});
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    MetricsServer& operator=(const MetricsServer&) = delete;

    /// The socket that it listens at; who leaves the place to another process says so.
    [[nodiscard]] int listening() const { return listening_; }
    void keep_path(bool keep) {
        if (path_) path_->keep_path(keep);
    }

private:
    friend struct MetricsAnswer;
    MetricsServer(base::EventLoop& loop, Make make);
    void run();

    base::EventLoop& loop_;
    const Make make_;
    std::optional<base::UnixListener> path_;  // whose descriptor libmicrohttpd has a copy of
    MHD_Daemon* http_ = nullptr;
    int epoll_ = -1;
    int listening_ = -1;  // libmicrohttpd's
    base::Timer timer_;   // of connections that are silent
};

}  // namespace openmana::manad
