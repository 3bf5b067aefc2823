// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "base/event_loop.h"
#include "base/unix_socket.h"

namespace openmana::manad {

/// The control socket: one JSON object a line in, one a line out, in order (docs/manad.md). Lives
/// on one EventLoop.
///
/// A client that sends more than a line may hold, or does not read its answers, is dropped; others
/// do not notice.
class ControlServer {
public:
    static constexpr std::size_t kMaxLine = 256U << 10;  // the longest policy: 1,024 rules
    /// Connections at a time; they shall not take the descriptors that NICs need.
    static constexpr std::size_t kMaxClients = 64;
    static constexpr std::size_t kMaxUnread = 16U << 20;

    /// Gets a request (always an object) and gives the answer. May take its time, but blocks the
    /// other clients.
    using Handler = std::function<nlohmann::json(const nlohmann::json& request)>;

    static base::Result<std::unique_ptr<ControlServer>> create(base::EventLoop& loop,
                                                               const std::string& path,
                                                               Handler handler);
    ~ControlServer();

private:
    struct Client {
        base::UniqueFd fd;
        std::string input;
        std::string output;
        bool finished = false;  // no more requests will come; close when the output is gone
    };
    ControlServer(base::EventLoop& loop, base::UnixListener listener, Handler handler)
        : loop_(loop),
          listener_(std::move(listener)),
          handler_(std::move(handler)),
          accept_again_(loop, [this] { (void)loop_.modify(listener_.fd(), EPOLLIN); }) {}
    void accept();
    void serve(int fd, std::uint32_t events);
    bool receive(Client& client);
    void answer(Client& client, const std::string& line);
    bool send(Client& client);
    void drop(int fd);

    base::EventLoop& loop_;
    base::UnixListener listener_;
    Handler handler_;
    std::unordered_map<int, Client> clients_;
    base::Timer accept_again_;
    bool pausing_ = false;  // said so once
};

}  // namespace openmana::manad
