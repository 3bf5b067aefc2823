// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>

#include "base/acceptor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::manad {

/// The answer to a request that cannot be met, and why.
[[nodiscard]] nlohmann::json failure(std::string text);
/// A text of a request; empty if there is none of that name.
[[nodiscard]] std::string text_of(const nlohmann::json& request, const char* key);

/// The control socket: one JSON object a line in, one a line out, in order (docs/manad.md). Lives
/// on one EventLoop.
///
/// A client has one request answered in a turn of the loop, and the next when it has taken that
/// answer. One that sends more than a line may hold is dropped. Others do not notice.
class ControlServer {
public:
    static constexpr std::size_t kMaxLine = 256U << 10;  // the longest policy: 1,024 rules
    /// Connections at a time; they shall not take the descriptors that NICs need.
    static constexpr std::size_t kMaxClients = 64;
    /// What is longer is an error.
    static constexpr std::size_t kMaxAnswer = 16U << 20;
    /// How deep in a request anything may lie: whoever copies or compares it goes down as far.
    static constexpr int kMaxDepth = 16;

    /// Gets a request (always an object) and gives the answer. May take its time, but blocks the
    /// other clients.
    /// `connection` is the client's socket: for who has more to say to it than an answer.
    using Handler = std::function<nlohmann::json(const nlohmann::json& request, int connection)>;

    static base::Result<std::unique_ptr<ControlServer>> create(base::EventLoop& loop,
                                                               const base::SocketPlace& place,
                                                               Handler handler);
    /// The same with a socket that listens already, of another process.
    static base::Result<std::unique_ptr<ControlServer>> take_over(base::EventLoop& loop,
                                                                  base::UniqueFd listening,
                                                                  const std::string& path,
                                                                  Handler handler);
    ~ControlServer();
    [[nodiscard]] base::UnixListener& listener() { return acceptor_->listener(); }

private:
    struct Client {
        base::UniqueFd fd;
        std::string input;
        std::string output;
        bool finished = false;  // no more bytes will come; close when all is answered
        [[nodiscard]] bool asks() const { return input.find('\n') != std::string::npos; }
    };
    static std::unique_ptr<ControlServer> serve(base::EventLoop& loop,
                                                std::unique_ptr<base::Acceptor> acceptor,
                                                Handler handler);
    ControlServer(base::EventLoop& loop, std::unique_ptr<base::Acceptor> acceptor, Handler handler)
        : loop_(loop), acceptor_(std::move(acceptor)), handler_(std::move(handler)) {}
    void adopt(base::UniqueFd fd);
    void serve(int fd, std::uint32_t events);
    bool receive(Client& client);
    void answer(Client& client);
    [[nodiscard]] nlohmann::json answer_to(const std::string& line, int connection);
    bool send(Client& client);
    void drop(int fd);

    base::EventLoop& loop_;
    std::unique_ptr<base::Acceptor> acceptor_;
    Handler handler_;
    std::unordered_map<int, Client> clients_;
};

}  // namespace openmana::manad
