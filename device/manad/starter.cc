// SPDX-License-Identifier: Apache-2.0
#include "manad/starter.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "manad/take_over_words.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;
using base::fail;

constexpr char kStart = 'S';
constexpr int kSocket = 3;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};

/// The program in this process, or the reason why not through the pipe, which it does not get.
[[noreturn]] void become(const std::vector<std::string>& words, int pipe) {
    for (const int number : kSignals) (void)::signal(number, SIG_DFL);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    const Starter::News failed{0, errno, true};
    (void)!::write(pipe, &failed, sizeof failed);
    ::_exit(127);
}

/// Its parent is gone when this returns: so it is the service manager's, as a new main process has
/// to be.
Starter::News start_one(const std::vector<std::string>& words) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0) return {0, errno, true};
    const base::UniqueFd from(pipe[0]);
    base::UniqueFd to(pipe[1]);
    const pid_t between = ::fork();
    if (between == 0) {
        const pid_t started = ::fork();
        if (started == 0) become(words, to.get());
        const Starter::News news{started > 0 ? started : 0, started > 0 ? 0 : errno, started <= 0};
        ::_exit(::write(to.get(), &news, sizeof news) == sizeof news ? 0 : 1);
    }
    const int error = errno;
    to.reset();
    if (between < 0) return {0, error, true};
    while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) {
    }
    // Both may write, in either order, until one has ended and the other is that program.
    Starter::News result{0, EIO, true};
    int failed = 0;
    for (Starter::News news; ::read(from.get(), &news, sizeof news) == sizeof news;) {
        failed = news.error != 0 ? news.error : failed;
        if (news.pid != 0) result = news;
    }
    return failed == 0 ? result : Starter::News{0, failed, true};
}

/// Of the process that is the starter.
[[noreturn]] void serve(const std::vector<std::string>& words) {
    // It ends when manad does, and not before.
    for (const int number : kSignals) (void)::signal(number, SIG_IGN);
    (void)::prctl(PR_SET_NAME, "manad-starter");
    Starter::News now;
    base::UniqueFd process;
    for (;;) {
        pollfd entries[] = {{kSocket, POLLIN, 0}, {process.get(), POLLIN, 0}};
        if (::poll(entries, 2, -1) < 0) continue;
        if (process && entries[1].revents != 0) {
            process.reset();
            now.ended = true;
            (void)::send(kSocket, &now, sizeof now, MSG_NOSIGNAL);
        }
        if (entries[0].revents == 0) continue;
        char asked = 0;
        if (::recv(kSocket, &asked, 1, 0) != 1) ::_exit(0);
        if (asked != kStart || process) continue;
        now = start_one(words);
        if (now.pid != 0) {
            process = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, now.pid, 0)));
            now.ended = !process;
        }
        (void)::send(kSocket, &now, sizeof now, MSG_NOSIGNAL);
    }
}

}  // namespace

base::Result<std::unique_ptr<Starter>> Starter::start(std::vector<std::string> words,
                                                      const std::string& control) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail(ErrorCode::kIo, "cannot have a pair of sockets", static_cast<unsigned>(errno));
    base::UniqueFd ours(pair[0]), theirs(pair[1]);
    words = words_to_take_over(words, control);
    const pid_t child = ::fork();
    if (child < 0)
        return fail(ErrorCode::kIo, "cannot start a process", static_cast<unsigned>(errno));
    if (child == 0) {
        ours.reset();
        if (theirs.get() != kSocket) {
            if (::dup3(theirs.get(), kSocket, O_CLOEXEC) < 0) ::_exit(1);
        } else {
            (void)theirs.release();
        }
        (void)::close_range(kSocket + 1, ~0U, 0);
        serve(words);
    }
    return std::unique_ptr<Starter>(new Starter(std::move(ours)));
}

base::Result<void> Starter::ask() {
    if (::send(socket_.get(), &kStart, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1)
        return fail(ErrorCode::kClosed, "the process that starts another manad has ended");
    return {};
}

std::optional<Starter::News> Starter::news() {
    News news;
    const ssize_t n = ::recv(socket_.get(), &news, sizeof news, MSG_DONTWAIT);
    if (n != sizeof news) return std::nullopt;
    return news;
}

}  // namespace openmana::manad
