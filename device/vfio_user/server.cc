// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/unix_socket.h"

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;
using base::Result;
using base::UniqueFd;

namespace {

/// Fds of one receive, at most kMaxFds.
struct FdBatch {
    std::array<UniqueFd, kMaxFds> fds;
    std::size_t count = 0;
    bool overflow = false;
};

void collect_fds(msghdr& header, FdBatch& batch) {
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(&header, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            UniqueFd owner(fd);
            if (batch.count < batch.fds.size()) {
                batch.fds[batch.count++] = std::move(owner);
            } else {
                batch.overflow = true;
            }
        }
    }
    // The kernel closed what did not fit, or had no descriptor left for it.
    if ((header.msg_flags & MSG_CTRUNC) != 0) batch.overflow = true;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::create(base::EventLoop& loop, DeviceBackend& backend,
                                               const base::SocketPlace& place, std::string name,
                                               Moving moving) {
    TRY(auto acceptor, base::Acceptor::create(loop, place, "vfio_user accept: nic=" + name));
    std::unique_ptr<Server> server(
        new Server(loop, backend, std::move(acceptor), std::move(name), moving));
    server->acceptor_->start(
        [self = server.get()](UniqueFd client) { self->accept(std::move(client)); });
    return server;
}

Result<std::unique_ptr<Server>> Server::take_over(base::EventLoop& loop, DeviceBackend& backend,
                                                  base::StateReader& in, const std::string& path,
                                                  std::string name, Moving moving) {
    in.begin("VFIO", 1);
    UniqueFd socket = in.descriptor();
    TRY_VOID(in.result());
    TRY(auto listener, base::UnixListener::adopt(std::move(socket), path));
    TRY(auto acceptor,
        base::Acceptor::create(loop, std::move(listener), "vfio_user accept: nic=" + name));
    std::unique_ptr<Server> server(
        new Server(loop, backend, std::move(acceptor), std::move(name), moving));
    server->acceptor_->start(
        [self = server.get()](UniqueFd client) { self->accept(std::move(client)); });
    server->pause();
    server->load(in);
    in.end();
    TRY_VOID(in.result());
    return server;
}

Server::Server(base::EventLoop& loop, DeviceBackend& backend,
               std::unique_ptr<base::Acceptor> acceptor, std::string name, Moving moving)
    : loop_(loop),
      backend_(backend),
      moving_(moving),
      name_(std::move(name)),
      acceptor_(std::move(acceptor)),
      patience_(loop, [this] {
          OM_INFO("client retain end: nic={}", name_);
          counters_.retains_ended.add();
          forget_device();
      }) {}

Server::~Server() {
    if (paused_) {
        acceptor_->listener().keep_path(true);
        if (client_) loop_.remove(client_.get());
    } else if (session_) {
        end_client();
    } else if (retained_) {
        forget_device();
    }
}

void Server::accept(UniqueFd client) {
    if (const auto adopted = adopt(std::move(client), EPOLLIN); !adopted) {
        OM_WARN("vfio_user accept: nic={} reason=\"{}\" errno={}", name_, adopted.error().text,
                adopted.error().detail);
        return;
    }
    counters_.clients.add();
    OM_INFO("client connect: nic={}", name_);
}

Result<void> Server::adopt(UniqueFd client, std::uint32_t events) {
    TRY_VOID(loop_.add(client.get(), events, [this](std::uint32_t) { on_client(); }));
    client_ = std::move(client);
    patience_.cancel();
    session_.emplace(backend_, counters_, name_, moving_.device, std::exchange(retained_, false));
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
    if (const auto adopted = adopt(std::move(client), 0); !adopted) {
        in.refuse(adopted.error());
        return;
    }
    session_->load(in);
    blocked_ = session_->backlog() || !session_->output().empty();
}

void Server::leave_client() {
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
    leave_client();
    moving_.device->retain();
    retained_ = true;
    patience_.arm(moving_.retain);
    acceptor_->resume();
}

void Server::forget_device() {
    retained_ = false;
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
    const auto served = serve();
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
    const auto room = session_->receive_room();
    iovec vector{.iov_base = room.data(), .iov_len = room.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxFds)> control;
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(client_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes < 0) {
        if (errno == EAGAIN || errno == EINTR) return {};
        if (errno == ECONNRESET) return fail(ErrorCode::kClosed, "connection reset");
        return fail(ErrorCode::kIo, "cannot receive", static_cast<unsigned>(errno));
    }
    if (bytes == 0) return fail(ErrorCode::kClosed, "connection closed");
    if (header.msg_controllen == 0) [[likely]]
        return session_->receive(static_cast<std::size_t>(bytes), {});
    FdBatch batch;
    collect_fds(header, batch);
    if (batch.overflow)
        return fail(ErrorCode::kProtocol, "more fds than can be taken", batch.count);
    return session_->receive(static_cast<std::size_t>(bytes),
                             std::span(batch.fds).first(batch.count));
}

/// True if nothing is left to send.
Result<bool> Server::flush() {
    for (;;) {
        const auto output = session_->output();
        if (output.empty()) return true;
        const ssize_t bytes =
            ::send(client_.get(), output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (bytes < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) return false;
            if (errno == EPIPE || errno == ECONNRESET)
                return fail(ErrorCode::kClosed, "connection closed");
            return fail(ErrorCode::kIo, "cannot send", static_cast<unsigned>(errno));
        }
        session_->sent(static_cast<std::size_t>(bytes));
    }
}

}  // namespace openmana::vfio_user
