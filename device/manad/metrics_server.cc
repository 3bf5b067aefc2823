// SPDX-License-Identifier: Apache-2.0
#include "manad/metrics_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include "base/activity.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;
using base::fail;

base::Result<base::UniqueFd> listen_at(const base::SocketAddress& address) {
    base::UniqueFd fd(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
            0 ||
        ::listen(fd.get(), SOMAXCONN) != 0)
        return fail(ErrorCode::kIo, "cannot listen for HTTP", static_cast<unsigned>(errno));
    return fd;
}

MHD_Result respond(MHD_Connection* to, unsigned status, std::string_view text, const char* type) {
    MHD_Response* const response = ::MHD_create_response_from_buffer(
        text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;  // ends the connection
    (void)::MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)::MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    const MHD_Result queued = ::MHD_queue_response(to, status, response);
    ::MHD_destroy_response(response);
    return queued;
}

}  // namespace

/// What libmicrohttpd calls.
struct MetricsAnswer {
    static MHD_Result answer(void* server, MHD_Connection* to, const char* url, const char* method,
                             const char*, const char*, std::size_t* upload_size, void**) {
        const std::string_view verb = method;
        const char* const plain = "text/plain; charset=utf-8";
        *upload_size = 0;
        if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD)
            return respond(to, MHD_HTTP_METHOD_NOT_ALLOWED, "GET /metrics\n", plain);
        if (std::string_view(url) != "/metrics")
            return respond(to, MHD_HTTP_NOT_FOUND, "The figures are at /metrics.\n", plain);
        const char* const accept =
            ::MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
        const bool open =
            accept != nullptr &&
            std::string_view(accept).find("application/openmetrics-text") != std::string_view::npos;
        return respond(to, MHD_HTTP_OK, static_cast<MetricsServer*>(server)->make_(open),
                       open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                            : "text/plain; version=0.0.4; charset=utf-8");
    }
};

base::Result<std::unique_ptr<MetricsServer>> MetricsServer::create(base::EventLoop& loop,
                                                                   const MetricsPlace& place,
                                                                   Make make,
                                                                   base::UniqueFd inherited) {
    std::unique_ptr<MetricsServer> server(new MetricsServer(loop, std::move(make)));
    base::UniqueFd fd;
    if (place.path.empty()) {
        fd = std::move(inherited);
        if (!fd) {
            TRY(fd, listen_at(place.address));
        }
    } else {
        auto listener = inherited ? base::UnixListener::adopt(std::move(inherited), place.path)
                                  : base::UnixListener::create({place.path, place.access});
        if (!listener) return tl::unexpected(listener.error());
        server->path_.emplace(std::move(*listener));
        fd = base::UniqueFd(::fcntl(server->path_->fd(), F_DUPFD_CLOEXEC, 0));
        if (!fd) return fail(ErrorCode::kIo, "no descriptor", static_cast<unsigned>(errno));
    }
    const int listening = fd.get();
    server->http_ = ::MHD_start_daemon(
        MHD_USE_EPOLL, 0, nullptr, nullptr, &MetricsAnswer::answer, server.get(),
        MHD_OPTION_LISTEN_SOCKET, listening, MHD_OPTION_CONNECTION_LIMIT, kMaxClients,
        MHD_OPTION_CONNECTION_TIMEOUT, kPatienceSeconds, MHD_OPTION_END);
    if (server->http_ == nullptr) return fail(ErrorCode::kExhausted, "cannot serve HTTP");
    server->listening_ = fd.release();  // now the library's
    const MHD_DaemonInfo* const info =
        ::MHD_get_daemon_info(server->http_, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == nullptr) return fail(ErrorCode::kUnsupported, "the HTTP library has no epoll");
    TRY_VOID(
        loop.add(info->epoll_fd, EPOLLIN, [raw = server.get()](std::uint32_t) { raw->run(); }));
    server->epoll_ = info->epoll_fd;
    return server;
}

MetricsServer::MetricsServer(base::EventLoop& loop, Make make)
    : loop_(loop), make_(std::move(make)), timer_(loop, [this] { run(); }) {}

MetricsServer::~MetricsServer() {
    if (epoll_ >= 0) loop_.remove(epoll_);
    if (http_ != nullptr) ::MHD_stop_daemon(http_);
}

void MetricsServer::run() {
    const base::Activity::Scope doing("metrics");
    (void)::MHD_run(http_);
    MHD_UNSIGNED_LONG_LONG wait = 0;
    if (::MHD_get_timeout(http_, &wait) == MHD_YES)
        timer_.arm(std::chrono::milliseconds(wait));
    else
        timer_.cancel();
}

}  // namespace openmana::manad
