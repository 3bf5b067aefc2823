// SPDX-License-Identifier: Apache-2.0
#include "manad/control.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !client.finished)
        alive = receive(client);
    if (alive) alive = send(client);
    if (!alive || (client.finished && client.output.empty())) {
        drop(fd);
        return;
    }
    const std::uint32_t wanted =
        (client.finished ? 0U : EPOLLIN) | (client.output.empty() ? 0U : EPOLLOUT);
    if (!loop_.modify(fd, wanted)) drop(fd);
}

bool ControlServer::receive(Client& client) {
    char buffer[4096];
    const ssize_t n = ::recv(client.fd.get(), buffer, sizeof buffer, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) client.finished = true;
    client.input.append(buffer, static_cast<std::size_t>(n));
    std::size_t start = 0;
    // One packet may ask for more than a client may leave unread.
    for (std::size_t end; client.output.size() <= kMaxUnread &&
                          (end = client.input.find('\n', start)) != std::string::npos;
         start = end + 1)
        answer(client, client.input.substr(start, end - start));
    client.input.erase(0, start);
    if (client.input.size() > kMaxLine || client.output.size() > kMaxUnread) {
        OM_DEBUG("control drop: reason=\"{}\"",
                 client.input.size() > kMaxLine ? "line too long" : "answers not read");
        return false;
    }
    return true;
}

void ControlServer::answer(Client& client, const std::string& line) {
    bool deep = false;
    const auto keep = [&deep](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
        deep = deep || depth > kMaxDepth;
        return !deep;
    };
    const auto request = nlohmann::json::parse(line, keep, false);
    nlohmann::json reply;
    if (deep)
        reply = failure(fmt::format("a request is nested {} levels deep at most", kMaxDepth));
    else if (!request.is_object())
        reply = failure("a request is one JSON object on a line");
    else
        reply = handler_(request, client.fd.get());
    client.output += reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
