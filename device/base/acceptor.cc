// SPDX-License-Identifier: Apache-2.0
#include "base/acceptor.h"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace openmana::base {
namespace {

/// Of an accept: nobody waits after all, or the next call may well succeed.
bool passes_at_once(int error) {
    return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::create(EventLoop& loop, const SocketPlace& place,
                                                   std::string event) {
    TRY(auto listener, UnixListener::create(place));
    return create(loop, std::move(listener), std::move(event));
}

Result<std::unique_ptr<Acceptor>> Acceptor::create(EventLoop& loop, UnixListener listener,
                                                   std::string event) {
    std::unique_ptr<Acceptor> acceptor(new Acceptor(loop, std::move(listener), std::move(event)));
    TRY_VOID(loop.add(acceptor->listener_.fd(), 0,
                      [raw = acceptor.get()](std::uint32_t) { raw->accept(); }));
    return acceptor;
}

Acceptor::Acceptor(EventLoop& loop, UnixListener listener, std::string event)
    : loop_(loop),
      listener_(std::move(listener)),
      event_(std::move(event)),
      again_(loop, [this] { watch(); }) {}

Acceptor::~Acceptor() {
    loop_.remove(listener_.fd());
}

void Acceptor::start(OnClient on_client) {
    OM_CHECK(!on_client_);
    on_client_ = std::move(on_client);
    resume();
}

void Acceptor::hold() {
    held_ = true;
    again_.cancel();
    unwatch();
}

void Acceptor::resume() {
    // Not while it pauses.
    if (!std::exchange(held_, false)) return;
    watch();
}

void Acceptor::accept() {
    // Another handler may have called `hold` after the loop had learnt of the client.
    if (held_) return;
    if (mark_ != nullptr) mark_->store(1, std::memory_order_seq_cst);
    take_client();
    if (mark_ != nullptr) mark_->store(0, std::memory_order_seq_cst);
}

void Acceptor::take_client() {
    UniqueFd client = listener_.accept();
    if (!client) {
        const int error = errno;
        if (passes_at_once(error)) return;
        if (!std::exchange(said_, true)) OM_WARN("{} reason=\"{}\"", event_, std::strerror(error));
        unwatch();
        again_.arm(kPause);
        return;
    }
    said_ = false;
    on_client_(std::move(client));
}

void Acceptor::watch() {
    (void)loop_.modify(listener_.fd(), EPOLLIN);
}

void Acceptor::unwatch() {
    (void)loop_.modify(listener_.fd(), 0);
}

}  // namespace openmana::base
