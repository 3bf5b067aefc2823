// SPDX-License-Identifier: Apache-2.0
#include "base/file_watch.h"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

namespace openmana::base {
namespace {

constexpr std::uint32_t kWritten = IN_CLOSE_WRITE | IN_MOVED_TO | IN_ATTRIB;
constexpr std::uint32_t kGone = IN_DELETE | IN_MOVED_FROM;
constexpr std::uint32_t kBlind = IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED;

}  // namespace

Result<std::unique_ptr<FileWatch>> FileWatch::create(EventLoop& loop, const std::string& path,
                                                     Handler handler, Of of) {
    const auto failed = [](const char* text) {
        return fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
    };
    const std::filesystem::path file(path);
    const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
    if (!file.has_filename()) return fail(ErrorCode::kInvalidArgument, "not the name of a file");
    UniqueFd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (!fd) return failed("cannot watch files");
    std::uint32_t written = kWritten;
    if (of != Of::kContentAndRights) written &= ~std::uint32_t{IN_ATTRIB};
    if (of == Of::kContentAndBegin) written |= IN_MODIFY;
    // The directory: a file that another takes the place of is not the one that was watched.
    if (::inotify_add_watch(fd.get(), folder.c_str(),
                            written | kGone | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR) < 0)
        return failed("cannot watch the directory of the file");
    std::unique_ptr<FileWatch> watch(
        new FileWatch(loop, file.filename().string(), std::move(handler), std::move(fd)));
    TRY_VOID(
        loop.add(watch->fd_.get(), EPOLLIN, [raw = watch.get()](std::uint32_t) { raw->look(); }));
    return watch;
}

FileWatch::~FileWatch() {
    loop_.remove(fd_.get());
}

void FileWatch::look() {
    alignas(inotify_event) char buffer[4096];
    const ssize_t n = ::read(fd_.get(), buffer, sizeof buffer);
    std::optional<Event> last;
    bool blind = false;
    for (std::size_t at = 0; n > 0 && at < static_cast<std::size_t>(n);) {
        inotify_event event;
        std::memcpy(&event, buffer + at, sizeof event);
        const char* const name = buffer + at + sizeof event;
        const bool ours =
            event.len > 0 && name_ == std::string_view(name, ::strnlen(name, event.len));
        // What was lost may have been about it.
        if ((event.mask & IN_Q_OVERFLOW) != 0 || (ours && (event.mask & kWritten) != 0))
            last = Event::kWritten;
        else if (ours && (event.mask & IN_MODIFY) != 0)
            last = Event::kBegun;
        else if (ours && (event.mask & kGone) != 0)
            last = Event::kGone;
        blind = blind || (event.mask & kBlind) != 0;
        at += sizeof event + event.len;
    }
    if (last) handler_(*last);
    if (!blind) return;
    loop_.remove(fd_.get());
    handler_(Event::kBlind);
}

}  // namespace openmana::base
