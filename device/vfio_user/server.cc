// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/server.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "base/unix_socket.h"

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

namespace {

/// A client whose messages end the process is not served for ever: so often in a row.
constexpr std::uint32_t kMostEndsAtWork = 3;

}  // namespace

Result<std::unique_ptr<Server>> Server::create(base::EventLoop& loop, DeviceBackend& backend,
                                               const base::SocketPlace& place, std::string name,
                                               Moving moving, ServerLedger* ledger) {
    TRY(auto listener, base::UnixListener::create(place));
    return adopt(loop, backend, std::move(listener), std::move(name), moving, ledger);
}

Result<std::unique_ptr<Server>> Server::adopt(base::EventLoop& loop, DeviceBackend& backend,
                                              base::UnixListener listener, std::string name,
                                              Moving moving, ServerLedger* ledger) {
    TRY(auto acceptor,
        base::Acceptor::create(loop, std::move(listener), "vfio_user accept: nic=" + name));
    std::unique_ptr<Server> server(
        new Server(loop, backend, std::move(acceptor), std::move(name), moving, ledger));
    server->acceptor_->start(
        [self = server.get()](UniqueFd client) { self->accept(std::move(client)); });
    return server;
}

Result<std::unique_ptr<Server>> Server::take_over(base::EventLoop& loop, DeviceBackend& backend,
                                                  base::StateReader& in, const std::string& path,
                                                  std::string name, Moving moving,
                                                  ServerLedger* ledger) {
    in.begin("VFIO", 1);
    UniqueFd socket = in.descriptor();
    TRY_VOID(in.result());
    TRY(auto listener, base::UnixListener::adopt(std::move(socket), path));
    TRY(auto server, adopt(loop, backend, std::move(listener), std::move(name), moving, ledger));
    server->pause();
    server->load(in);
    in.end();
    TRY_VOID(in.result());
    return server;
}

Result<std::unique_ptr<Server>> Server::recover(base::EventLoop& loop, DeviceBackend& backend,
                                                ServerLedger& ledger, const std::string& path,
                                                std::string name, Moving moving) {
    // Until the server has one, in the ledger too, the next process needs the one that was left.
    const int left = ledger.listener.number();
    UniqueFd socket(::fcntl(left, F_DUPFD_CLOEXEC, 0));
    if (!socket)
        return fail(ErrorCode::kIo, "cannot keep the socket", static_cast<unsigned>(errno));
    auto listener = base::UnixListener::adopt(std::move(socket), path);
    if (!listener) {
        ledger.listener.forget();
        return tl::unexpected(listener.error());
    }
    TRY(auto server, adopt(loop, backend, std::move(*listener), std::move(name), moving, &ledger));
    ::close(left);
    server->pause();
    return server;
}

void Server::take_up() {
    if (ledger_->client.number() >= 0)
        recover_client();
    else if (ledger_->device_left() == DeviceState::kStop)
        recover_retained();
}

Server::Server(base::EventLoop& loop, DeviceBackend& backend,
               std::unique_ptr<base::Acceptor> acceptor, std::string name, Moving moving,
               ServerLedger* ledger)
    : loop_(loop),
      backend_(backend),
      moving_(moving),
      ledger_(ledger),
      name_(std::move(name)),
      acceptor_(std::move(acceptor)),
      patience_(loop, [this] {
          OM_INFO("client retain end: nic={}", name_);
          counters_.retains_ended.add();
          forget_device();
      }) {
    if (ledger_ == nullptr) return;
    ledger_->listener.hold(acceptor_->listener().fd());
    acceptor_->mark_accepts(ledger_->accepting);
}

Server::~Server() {
    if (paused_) {
        acceptor_->listener().keep_path(true);
        if (client_) loop_.remove(client_.get());
    } else if (session_) {
        end_client();
    } else if (retained_) {
        forget_device();
    }
    if (ledger_ != nullptr) ledger_->listener.forget();
}

void Server::accept(UniqueFd client) {
    note_client(client);
    if (const auto adopted = adopt(std::move(client), EPOLLIN, device_left()); !adopted) {
        OM_WARN("vfio_user accept: nic={} reason=\"{}\" errno={}", name_, adopted.error().text,
                adopted.error().detail);
        return;
    }
    counters_.clients.add();
    OM_INFO("client connect: nic={}", name_);
}

void Server::note_client(const UniqueFd& client) {
    if (ledger_ == nullptr) return;
    ledger_->begin_session();
    ledger_->client.hold(client.get());
}

void Server::note_retained(bool retained) {
    retained_ = retained;
    if (ledger_ != nullptr) ledger_->retained.store(retained ? 1 : 0, std::memory_order_relaxed);
}

Result<void> Server::adopt(UniqueFd client, std::uint32_t events, DeviceState device) {
    const auto watched = loop_.add(client.get(), events, [this](std::uint32_t) { on_client(); });
    if (!watched) {
        if (ledger_ != nullptr) ledger_->client.forget();
        return watched;
    }
    client_ = std::move(client);
    patience_.cancel();
    session_.emplace(backend_, counters_, name_, moving_.device, device, ledger_);
    note_retained(false);
    connected_.store(true, std::memory_order_relaxed);
    if (const auto process = base::peer_process(client_.get())) follower_.emplace(*process);
    blocked_ = false;
    acceptor_->hold();
    return {};
}

void Server::pause() {
    paused_ = true;
    acceptor_->hold();
    // Neither can fail: changing what a watched descriptor is watched for takes no memory.
    if (client_) (void)loop_.modify(client_.get(), 0);
}

void Server::resume() {
    paused_ = false;
    acceptor_->listener().keep_path(false);
    if (!client_) {
        if (retained_ && !patience_.armed()) patience_.arm(moving_.retain);
        acceptor_->resume();
    } else if (const char* const reason = std::exchange(unwanted_, nullptr); reason != nullptr) {
        drop_client(reason);
    } else {
        (void)loop_.modify(client_.get(), blocked_ ? EPOLLOUT : EPOLLIN);
    }
}

void Server::save(base::StateWriter& out) const {
    OM_CHECK(paused_);
    out.begin("VFIO", 1);
    out.descriptor(acceptor_->listener().fd());
    out.descriptor(client_.get());
    if (session_) session_->save(out);
    out.end();
}

void Server::load(base::StateReader& in) {
    UniqueFd client = in.descriptor();
    if (!client) return;
    in.require(base::is_unix_stream(client, false), "not a client's socket");
    if (!in.ok()) return;
    note_client(client);
    if (const auto adopted = adopt(std::move(client), 0, device_left()); !adopted) {
        in.refuse(adopted.error());
        return;
    }
    session_->load(in);
    blocked_ = session_->backlog() || !session_->output().empty();
}

/// As long as one that was left just now.
void Server::recover_retained() {
    OM_WARN("client retain lost: nic={} seconds={} reason=\"what the NIC was went with a process\"",
            name_, std::chrono::duration_cast<std::chrono::seconds>(moving_.retain).count());
    note_retained(true);
}

/// Nothing that went wrong with it keeps the server from the next client.
void Server::recover_client() {
    const DeviceState device = ledger_->device_left();
    if (device != DeviceState::kRunning)
        OM_WARN("migration lost: nic={} reason=\"what the NIC was went with a process\"", name_);
    if (const auto adopted = adopt(UniqueFd(ledger_->client.number()), 0, device); !adopted) {
        OM_ERROR("client drop: nic={} reason=\"{}\" errno={}", name_, adopted.error().text,
                 adopted.error().detail);
        forget_device();
        return;
    }
    blocked_ = true;  // so that what is there is handled before more is received
    if (ledger_->at_work.exchange(0, std::memory_order_relaxed) != 0 &&
        ledger_->ends_at_work.fetch_add(1, std::memory_order_relaxed) + 1 >= kMostEndsAtWork)
        unwanted_ = "manad has ended each time that it served it";
    if (const auto recovered = session_->recover(); !recovered) unwanted_ = recovered.error().text;
}

void Server::leave_client() {
    if (ledger_ != nullptr) ledger_->client.forget();
    loop_.remove(client_.get());
    session_.reset();
    connected_.store(false, std::memory_order_relaxed);
    follower_.reset();
    client_.reset();
}

void Server::end_client() {
    leave_client();
    forget_device();
    acceptor_->resume();
}

/// The next client finds it as this one has left it.
void Server::retain_device() {
    OM_INFO("client retain: nic={} seconds={}", name_,
            std::chrono::duration_cast<std::chrono::seconds>(moving_.retain).count());
    counters_.retains.add();
    note_retained(true);
    leave_client();
    moving_.device->retain();
    patience_.arm(moving_.retain);
    acceptor_->resume();
}

void Server::forget_device() {
    note_retained(false);
    patience_.cancel();
    backend_.client_gone();
    if (moving_.device != nullptr) moving_.device->client_gone();
}

void Server::drop_client(const char* reason) {
    if (!session_) return;
    if (paused_) {
        unwanted_ = reason;
        return;
    }
    OM_ERROR("client drop: nic={} reason=\"{}\"", name_, reason);
    end_client();
}

void Server::on_client() {
    // That the client has gone is known even now. It waits.
    if (paused_) return;
    if (ledger_ != nullptr) ledger_->at_work.store(1, std::memory_order_relaxed);
    const auto served = serve();
    if (ledger_ != nullptr) {
        ledger_->at_work.store(0, std::memory_order_relaxed);
        if (ledger_->ends_at_work.load(std::memory_order_relaxed) != 0) [[unlikely]]
            ledger_->ends_at_work.store(0, std::memory_order_relaxed);
    }
    if (served) [[likely]] {
        if (follower_) follower_->served(loop_.sleeps(), loop_.clock());
        return;
    }
    if (served.error().code == ErrorCode::kClosed) {
        OM_INFO("client disconnect: nic={}", name_);
        if (moving_.retain.count() > 0 && session_->retainable()) return retain_device();
    } else {
        if (served.error().code == ErrorCode::kProtocol) counters_.malformed.add();
        OM_WARN("client drop: nic={} reason=\"{}\" detail={:#x}", name_, served.error().text,
                served.error().detail);
    }
    end_client();
}

/// One batch. The loop looks at the socket again before it sleeps, and does in between what the
/// batch has posted.
Result<void> Server::serve() {
    if (!blocked_) {
        TRY_VOID(receive());
    }
    for (;;) {
        TRY(const bool empty, flush());
        if (!empty) {
            if (!blocked_) TRY_VOID(loop_.modify(client_.get(), EPOLLOUT));
            blocked_ = true;
            return {};
        }
        if (!session_->backlog()) break;
        TRY_VOID(session_->resume());
    }
    if (blocked_) TRY_VOID(loop_.modify(client_.get(), EPOLLIN));
    blocked_ = false;
    return {};
}

Result<void> Server::receive() {
    ServerLedger::Transfer& transfer = session_->next_receive();
    if (::recvmmsg(client_.get(), &transfer.message, 1, MSG_DONTWAIT | MSG_CMSG_CLOEXEC, nullptr) <
        0) {
        if (errno == EAGAIN || errno == EINTR) return {};
        if (errno == ECONNRESET) return fail(ErrorCode::kClosed, "connection reset");
        return fail(ErrorCode::kIo, "cannot receive", static_cast<unsigned>(errno));
    }
    const std::size_t bytes = transfer.message.msg_len;
    if (bytes == 0) return fail(ErrorCode::kClosed, "connection closed");
    if (transfer.message.msg_hdr.msg_controllen == 0) [[likely]]
        return session_->receive(bytes, {});
    FdBatch batch = transfer.take_fds();
    if (batch.overflow)
        return fail(ErrorCode::kProtocol, "more fds than can be taken", batch.count);
    return session_->receive(bytes, std::span(batch.fds).first(batch.count));
}

/// True if nothing is left to send.
Result<bool> Server::flush() {
    while (!session_->output().empty()) {
        ServerLedger::Transfer& transfer = session_->next_send();
        if (::sendmmsg(client_.get(), &transfer.message, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return false;
            if (errno == EPIPE || errno == ECONNRESET)
                return fail(ErrorCode::kClosed, "connection closed");
            return fail(ErrorCode::kIo, "cannot send", static_cast<unsigned>(errno));
        }
        session_->sent(transfer.message.msg_len);
    }
    return true;
}

}  // namespace openmana::vfio_user
