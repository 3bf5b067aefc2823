// SPDX-License-Identifier: Apache-2.0
#include "fabric/stream_uplink.h"

#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/endian.h"
#include "base/log.h"
#include "fabric/frame_headers.h"

namespace openmana::fabric {
namespace {

constexpr std::size_t kLengthBytes = UnsentFrames::kLengthBytes;
constexpr std::size_t kInputBytes = 256U << 10;
constexpr int kReadsPerTurn = 16;
constexpr int kStepsPerTurn = 16;

/// Does not wait for a server whose queue is full.
base::UniqueFd connect_now(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        fd.reset();
    return fd;
}

}  // namespace

StreamUplink::StreamUplink(base::EventLoop& loop, Switch& network, const UplinkConfig& config,
                           std::unique_ptr<base::Acceptor> acceptor)
    : Uplink(loop, network, config.name),
      path_(config.path),
      acceptor_(std::move(acceptor)),
      retry_(loop, [this] { try_connect(); }),
      input_(kInputBytes) {}

base::Result<std::unique_ptr<StreamUplink>> StreamUplink::create(base::EventLoop& loop,
                                                                 Switch& network,
                                                                 const UplinkConfig& config) {
    if (config.path.empty() || config.path.size() >= sizeof(sockaddr_un::sun_path))
        return base::fail(base::ErrorCode::kInvalidArgument, "not a path that a socket can have");
    TRY(auto state, open_inherited(config.inherited, loop.clock().now()));
    base::UniqueFd listening, connection;
    if (state) {
        state->begin("STRM", 1);
        listening = state->descriptor();
        connection = state->descriptor();
    }
    std::unique_ptr<base::Acceptor> acceptor;
    if (config.listen) {
        const std::string event = "uplink accept: uplink=" + config.name;
        if (listening) {
            TRY(auto listener, base::UnixListener::adopt(std::move(listening), config.path));
            TRY(acceptor, base::Acceptor::create(loop, std::move(listener), event));
        } else {
            TRY(acceptor, base::Acceptor::create(loop, {config.path, config.access}, event));
        }
    }
    std::unique_ptr<StreamUplink> uplink(
        new StreamUplink(loop, network, config, std::move(acceptor)));
    if (uplink->acceptor_) {
        uplink->acceptor_->start([raw = uplink.get()](base::UniqueFd fd) {
            // Others wait in the socket's queue until this one goes.
            raw->acceptor_->hold();
            raw->adopt(std::move(fd));
        });
    } else if (!state) {
        uplink->try_connect();
    }
    if (state) {
        uplink->load(*state, std::move(connection));
        state->end();
        TRY_VOID(state->result());
    }
    return uplink;
}

StreamUplink::~StreamUplink() {
    // No frame comes once the switch has let go of the port.
    network_.detach(*this);
    if (fd_) loop_.remove(fd_.get());
}

void StreamUplink::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out.begin("STRM", 1);
    out.descriptor(acceptor_ ? acceptor_->listener().fd() : -1);
    out.descriptor(fd_.get());
    base::save_counters(out, counters_);
    out.bytes(std::span(input_).first(fd_ ? filled_ : 0));
    out.bytes(unsent_.all());
    out.end();
}

/// Nothing of the connection is read or written before the loop runs.
void StreamUplink::load(base::StateReader& in, base::UniqueFd connection) {
    base::load_counters(in, counters_);
    const auto input = in.bytes();
    const auto unsent = in.bytes();
    in.require(input.size() < input_.size() && unsent.size() <= kMaxUnsent,
               "more than a connection may have");
    // The path is the other process's until this one goes on.
    if (acceptor_)
        loop_.post([token = std::weak_ptr<int>(alive_), this] {
            if (!token.expired()) acceptor_->listener().keep_path(false);
        });
    in.require(!connection || base::is_unix_stream(connection, false), "not a connection");
    if (!in.ok()) return;
    if (!connection) {
        if (!acceptor_) retry_.arm(kRetry);
        return;
    }
    const std::uint64_t connects = counters_.connects.value();
    if (acceptor_) acceptor_->hold();
    adopt(std::move(connection));
    if (!fd_) return;
    counters_.connects.add(connects - counters_.connects.value());
    std::ranges::copy(input, input_.begin());
    filled_ = input.size();
    {
        const std::lock_guard lock(mutex_);
        unsent_.restore(unsent);
    }
    if (!unsent.empty()) want_output();
}

void StreamUplink::try_connect() {
    base::UniqueFd fd = connect_now(path_);
    if (fd)
        adopt(std::move(fd));
    else
        retry_.arm(kRetry);
}

void StreamUplink::adopt(base::UniqueFd fd) {
    const int number = fd.get();
    {
        const std::lock_guard lock(mutex_);
        fd_ = std::move(fd);
    }
    connected_.store(true, std::memory_order_relaxed);
    filled_ = 0;
    counters_.connects.add();
    OM_INFO("uplink connect: uplink={}", name_);
    if (!loop_.add(number, EPOLLIN, [this](std::uint32_t events) { serve(events); }))
        disconnect("no room to watch the connection");
}

void StreamUplink::disconnect(const char* reason) {
    OM_INFO("uplink disconnect: uplink={} reason=\"{}\"", name_, reason);
    UnsentFrames unsent;  // freed outside the lock
    {
        const std::lock_guard lock(mutex_);
        loop_.remove(fd_.get());
        fd_.reset();
        std::swap(unsent, unsent_);
    }
    connected_.store(false, std::memory_order_relaxed);
    if (acceptor_)
        acceptor_->resume();
    else
        retry_.arm(kRetry);
}

void StreamUplink::serve(std::uint32_t events) {
    if ((events & EPOLLOUT) != 0) {
        Sent sent = Sent::kMore;
        for (int i = 0; i < kStepsPerTurn && sent == Sent::kMore; ++i) {
            const std::lock_guard lock(mutex_);
            sent = write_locked();
        }
        if (sent == Sent::kOver) {
            disconnect("write failed");
            return;
        }
        if (sent == Sent::kAll && !loop_.modify(fd_.get(), EPOLLIN)) {
            disconnect("cannot watch the connection");
            return;
        }
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    for (int i = 0; i < kReadsPerTurn; ++i) {
        const std::size_t before = filled_;
        if (!read()) {
            disconnect("the other end is gone");
            return;
        }
        if (filled_ == before) return;
        if (!parse()) {
            counters_.protocol_errors.add();
            disconnect("what came is no frame");
            return;
        }
    }
}

/// False when the connection is over.
bool StreamUplink::read() {
    const ssize_t n =
        ::recv(fd_.get(), input_.data() + filled_, input_.size() - filled_, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    filled_ += static_cast<std::size_t>(n);
    return n != 0;
}

/// Takes the whole frames out of the input. False if there is something else in it.
bool StreamUplink::parse() {
    std::size_t at = 0;
    while (filled_ - at >= kLengthBytes) {
        const std::size_t length = base::load_be<std::uint32_t>(input_.data() + at);
        if (length == 0 || length > kMaxFrame) return false;
        if (filled_ - at - kLengthBytes < length) break;
        receive({input_.data() + at + kLengthBytes, length});
        at += kLengthBytes + length;
    }
    std::memmove(input_.data(), input_.data() + at, filled_ - at);
    filled_ -= at;
    return true;
}

/// Sends a step of what waits.
StreamUplink::Sent StreamUplink::write_locked() {
    UnsentFrames::Step step = unsent_.next_step();
    if (step.count == 0) return Sent::kAll;
    msghdr message{};
    message.msg_iov = step.parts.data();
    message.msg_iovlen = step.count;
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) return errno == EINTR ? Sent::kMore : errno == EAGAIN ? Sent::kFull : Sent::kOver;
    unsent_.sent(static_cast<std::size_t>(n));
    if (unsent_.empty()) return Sent::kAll;
    return static_cast<std::size_t>(n) == step.bytes ? Sent::kMore : Sent::kFull;
}

void StreamUplink::want_output() {
    loop_.post([token = std::weak_ptr<int>(alive_), this] {
        if (token.expired() || !fd_) return;
        if (!loop_.modify(fd_.get(), EPOLLIN | EPOLLOUT)) disconnect("cannot watch the connection");
    });
}

void StreamUplink::send(base::FrameView frame) {
    const std::lock_guard lock(mutex_);
    const std::size_t needed = frame.size() + kLengthBytes;
    if (!fd_ || frame.empty() || frame.size() > kMaxFrame ||
        needed > kMaxUnsent - std::min(unsent_.bytes(), kMaxUnsent)) {
        counters_.tx_dropped.add();
        return;
    }
    counters_.tx_frames.add();
    counters_.tx_bytes.add(frame.size());
    std::byte length[kLengthBytes];
    base::store_be(length, static_cast<std::uint32_t>(frame.size()));
    std::size_t sent = 0;
    const bool waiting = !unsent_.empty();
    if (!waiting) {
        iovec parts[2] = {{length, kLengthBytes},
                          {const_cast<std::byte*>(frame.data()), frame.size()}};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        // An error is left to the loop, which sees it too and ends the connection.
        if (n > 0) sent = static_cast<std::size_t>(n);
        if (sent == needed) return;
    }
    const bool slow = unsent_.bytes() > kMarkUnsent;
    unsent_.add(frame);
    unsent_.sent(sent);
    if (slow && sent == 0) {
        const auto copy = unsent_.last();
        if (mark_congestion(copy, read_headers(copy))) counters_.tx_marked.add();
    }
    if (!waiting) want_output();
}

}  // namespace openmana::fabric
