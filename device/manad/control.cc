// SPDX-License-Identifier: Apache-2.0
#include "manad/control.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"

namespace openmana::manad {

nlohmann::json failure(std::string text) {
    return {{"ok", false}, {"error", std::move(text)}};
}

std::string text_of(const nlohmann::json& request, const char* key) {
    const auto found = request.find(key);
    return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

base::Result<std::unique_ptr<ControlServer>> ControlServer::create(base::EventLoop& loop,
                                                                   const base::SocketPlace& place,
                                                                   Handler handler) {
    TRY(auto acceptor, base::Acceptor::create(loop, place, "control accept:"));
    return serve(loop, std::move(acceptor), std::move(handler));
}

base::Result<std::unique_ptr<ControlServer>> ControlServer::take_over(base::EventLoop& loop,
                                                                      base::UniqueFd listening,
                                                                      const std::string& path,
                                                                      Handler handler) {
    TRY(auto listener, base::UnixListener::adopt(std::move(listening), path));
    TRY(auto acceptor, base::Acceptor::create(loop, std::move(listener), "control accept:"));
    return serve(loop, std::move(acceptor), std::move(handler));
}

std::unique_ptr<ControlServer> ControlServer::serve(base::EventLoop& loop,
                                                    std::unique_ptr<base::Acceptor> acceptor,
                                                    Handler handler) {
    std::unique_ptr<ControlServer> server(
        new ControlServer(loop, std::move(acceptor), std::move(handler)));
    server->acceptor_->start(
        [raw = server.get()](base::UniqueFd fd) { raw->adopt(std::move(fd)); });
    return server;
}

ControlServer::~ControlServer() {
    for (const auto& [fd, client] : clients_) loop_.remove(fd);
}

void ControlServer::adopt(base::UniqueFd fd) {
    if (clients_.size() >= kMaxClients) {
        OM_DEBUG("control drop: reason=too many connections");
        return;
    }
    const int number = fd.get();
    if (!loop_.add(number, EPOLLIN,
                   [this, number](std::uint32_t events) { serve(number, events); }))
        return;
    clients_[number].fd = std::move(fd);
}

void ControlServer::drop(int fd) {
    loop_.remove(fd);
    clients_.erase(fd);
}

void ControlServer::serve(int fd, std::uint32_t events) {
    Client& client = clients_.at(fd);
    bool alive = true;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !client.finished && !client.asks())
        alive = receive(client);
    if (alive && client.output.empty() && client.asks()) answer(client);
    if (alive) alive = send(client);
    const bool asks = client.asks();
    if (!alive || (client.finished && client.output.empty() && !asks)) {
        drop(fd);
        return;
    }
    const std::uint32_t wanted =
        (client.finished || asks ? 0U : EPOLLIN) | (client.output.empty() && !asks ? 0U : EPOLLOUT);
    if (!loop_.modify(fd, wanted)) drop(fd);
}

bool ControlServer::receive(Client& client) {
    char buffer[4096];
    const ssize_t n = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) client.finished = true;
    client.input.append(buffer, static_cast<std::size_t>(n));
    if (std::min(client.input.find('\n'), client.input.size()) > kMaxLine) {
        OM_DEBUG("control drop: reason=\"line too long\"");
        return false;
    }
    return true;
}

nlohmann::json ControlServer::answer_to(const std::string& line, int connection) {
    bool deep = false;
    const auto keep = [&deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        deep = deep || depth > kMaxDepth;
        return !deep;
    };
    const auto request = nlohmann::json::parse(line, keep, false);
    if (deep) return failure(fmt::format("a request is nested {} levels deep at most", kMaxDepth));
    if (!request.is_object()) return failure("a request is one JSON object on a line");
    return handler_(request, connection);
}

void ControlServer::answer(Client& client) {
    const std::size_t end = client.input.find('\n');
    const std::string line = client.input.substr(0, end);
    client.input.erase(0, end + 1);
    const auto text = [](const nlohmann::json& reply) {
        return reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    };
    std::string reply = text(answer_to(line, client.fd.get()));
    if (reply.size() > kMaxAnswer)
        reply = text(failure(fmt::format("the answer has more than {} MiB", kMaxAnswer >> 20)));
    client.output += reply;
    client.output += '\n';
}

bool ControlServer::send(Client& client) {
    while (!client.output.empty()) {
        const ssize_t n =
            ::send(client.fd.get(), client.output.data(), client.output.size(), MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN || errno == EINTR;
        client.output.erase(0, static_cast<std::size_t>(n));
    }
    return true;
}

}  // namespace openmana::manad
