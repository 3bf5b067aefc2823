// SPDX-License-Identifier: Apache-2.0
#include "manad/xdp_keeper.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <type_traits>

#include "base/log.h"
#include "manad/privileges.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;
using base::fail;
using fabric::XdpConfig;
using fabric::XdpHandles;
using fabric::XdpRequest;

/// Drivers may take seconds.
constexpr timeval kPatience{15, 0};
constexpr std::size_t kMaxFds = 4 + XdpConfig::kMaxQueues;
constexpr int kFirstFd = 3;

/// What both sides are, being one program, sends itself.
struct Question {
    std::uint32_t number = 0;
    char interface[16] = {};
    XdpConfig::Mode mode = XdpConfig::Mode::kAuto;
    unsigned queues = 0;
    std::uint64_t key = 0;
};
struct Answer {
    std::uint32_t number = 0;
    bool opened = false;
    ErrorCode code = ErrorCode::kIo;
    std::uint64_t detail = 0;
    char text[128] = {};
    XdpHandles::Facts facts;
};
static_assert(std::is_trivially_copyable_v<Question> && std::is_trivially_copyable_v<Answer>);

struct Control {
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxFds * sizeof(int))> bytes{};
};

msghdr message_of(iovec& part, Control& control, std::size_t length) {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = length > 0 ? control.bytes.data() : nullptr;
    message.msg_controllen = length;
    return message;
}

void send_answer(int socket, const Answer& answer, const std::vector<int>& fds) {
    Control control;
    iovec part{const_cast<Answer*>(&answer), sizeof answer};
    const std::size_t bytes = fds.size() * sizeof(int);
    msghdr message = message_of(part, control, fds.empty() ? 0 : CMSG_SPACE(bytes));
    if (!fds.empty()) {
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        std::memcpy(CMSG_DATA(header), fds.data(), bytes);
    }
    (void)::sendmsg(socket, &message, MSG_NOSIGNAL);
}

void answer(int socket, const Question& question, const std::vector<std::string>& interfaces) {
    Answer result;
    result.number = question.number;
    const XdpRequest request{
        std::string(question.interface, ::strnlen(question.interface, sizeof question.interface)),
        question.mode, question.queues, question.key};
    const bool named = std::ranges::find(interfaces, request.interface) != interfaces.end();
    const auto handles = named && question.queues <= XdpConfig::kMaxQueues
                             ? fabric::open_xdp(request)
                             : fail(ErrorCode::kPermission, "it is no interface of an uplink");
    std::vector<int> fds;
    if (handles) {
        result.opened = true;
        result.facts = handles->facts;
        fds = {handles->memory.get(), handles->table.get(), handles->link.get(),
               handles->groups.get()};
        for (const base::UniqueFd& queue : handles->queues) fds.push_back(queue.get());
    } else {
        result.code = handles.error().code;
        result.detail = handles.error().detail;
        std::strncpy(result.text, handles.error().text, sizeof result.text - 1);
    }
    send_answer(socket, result, fds);
}

/// Of the process that is the keeper.
[[noreturn]] void serve(base::UniqueFd socket, const std::vector<std::string>& interfaces,
                        const std::optional<Account>& account) {
    // It ends when manad does, and not before: manad may have been asked to by the same signal.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) (void)::signal(number, SIG_IGN);
    (void)::prctl(PR_SET_NAME, "manad-xdp");
    if (::dup2(socket.get(), kFirstFd) < 0) ::_exit(1);
    if (socket.get() == kFirstFd) (void)socket.release();
    (void)::close_range(kFirstFd + 1, ~0U, 0);
    const std::vector<unsigned> rights{CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_IPC_LOCK};
    auto limited = start_as(account, rights);
    if (limited) limited = keep_rights(rights);
    if (!limited) {
        OM_ERROR("xdp keeper end: reason=\"{}\" errno={}", limited.error().text,
                 limited.error().detail);
        ::_exit(1);
    }
    for (;;) {
        Question question;
        const ssize_t n = ::recv(kFirstFd, &question, sizeof question, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n != static_cast<ssize_t>(sizeof question)) ::_exit(0);
        answer(kFirstFd, question, interfaces);
    }
}

/// The descriptors that came with a message.
std::vector<base::UniqueFd> take_fds(msghdr& message) {
    std::vector<base::UniqueFd> fds;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (std::size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0);
             at += sizeof(int)) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
            fds.emplace_back(fd);
        }
    }
    return fds;
}

}  // namespace

base::Result<std::shared_ptr<XdpKeeper>> XdpKeeper::start(std::vector<std::string> interfaces,
                                                          const std::optional<Account>& account) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail(ErrorCode::kIo, "cannot have a pair of sockets", static_cast<unsigned>(errno));
    base::UniqueFd ours(pair[0]), theirs(pair[1]);
    (void)::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    const pid_t child = ::fork();
    if (child < 0)
        return fail(ErrorCode::kIo, "cannot start a process", static_cast<unsigned>(errno));
    if (child == 0) {
        ours.reset();
        serve(std::move(theirs), interfaces, account);
    }
    OM_INFO("xdp keeper start: pid={}", child);
    return std::shared_ptr<XdpKeeper>(new XdpKeeper(std::move(ours)));
}

base::Result<void> XdpKeeper::give(Options& options) {
    std::vector<std::string> interfaces;
    for (const fabric::UplinkConfig& uplink : options.uplinks)
        if (uplink.kind == fabric::UplinkConfig::Kind::kXdp) interfaces.push_back(uplink.interface);
    if (interfaces.empty()) return {};
    TRY(auto keeper, start(std::move(interfaces), options.user));
    for (fabric::UplinkConfig& uplink : options.uplinks)
        if (uplink.kind == fabric::UplinkConfig::Kind::kXdp) uplink.xdp.opener = keeper;
    return {};
}

base::Result<XdpHandles> XdpKeeper::open(const XdpRequest& request) {
    const std::lock_guard lock(mutex_);
    Question question{++asked_, {}, request.mode, request.queues, request.key};
    if (request.interface.size() >= sizeof question.interface)
        return fail(ErrorCode::kNotFound, "there is no such interface");
    std::memcpy(question.interface, request.interface.data(), request.interface.size());
    if (::send(socket_.get(), &question, sizeof question, MSG_NOSIGNAL) < 0)
        return fail(ErrorCode::kClosed, "the process that keeps the rights has ended");
    for (;;) {
        Answer answer;
        Control control;
        iovec part{&answer, sizeof answer};
        msghdr message = message_of(part, control, control.bytes.size());
        const ssize_t n = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN)
            return fail(ErrorCode::kBusy, "the interface takes too long to be opened");
        if (n != static_cast<ssize_t>(sizeof answer))
            return fail(ErrorCode::kClosed, "the process that keeps the rights has ended");
        std::vector<base::UniqueFd> fds = take_fds(message);
        if (answer.number != question.number) continue;  // it took too long, and is not wanted now
        if (!answer.opened) {
            answer.text[sizeof answer.text - 1] = '\0';
            return fail(answer.code, keep_locked(answer.text), answer.detail);
        }
        if (fds.size() != 4 + std::size_t{answer.facts.queues})
            return fail(ErrorCode::kExhausted, "no descriptors left for the interface");
        XdpHandles handles;
        handles.facts = answer.facts;
        handles.memory = std::move(fds[0]);
        handles.table = std::move(fds[1]);
        handles.link = std::move(fds[2]);
        handles.groups = std::move(fds[3]);
        for (std::size_t i = 4; i < fds.size(); ++i) handles.queues.push_back(std::move(fds[i]));
        return handles;
    }
}

}  // namespace openmana::manad
