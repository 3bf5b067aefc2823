// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// Tells that a file was written anew: somebody closed it after writing, or moved another one to
/// its place; and that it has gone. The file need not be there, its directory must be. A symbolic
/// link is watched as the link that it is. Of the loop's thread.
class FileWatch {
public:
    enum class Event : std::uint8_t {
        kWritten,
        kBegun,  ///< somebody is at it: changed it, and did not close it yet
        kGone,   ///< what comes in its place is told, too
        kBlind,  ///< its directory went away: nothing more is told
    };
    using Handler = std::function<void(Event)>;
    /// What counts as written anew.
    enum class Of : std::uint8_t {
        kContent,
        kContentAndRights,  ///< another owner or mode, too
        kContentAndBegin,   ///< kBegun is told, too
    };
    static Result<std::unique_ptr<FileWatch>> create(EventLoop& loop, const std::string& path,
                                                     Handler handler, Of of = Of::kContent);
    /// Tells now what is to be told. What was read before it of a file is whole if it told nothing.
    void look();
    ~FileWatch();
    FileWatch(const FileWatch&) = delete;
    FileWatch& operator=(const FileWatch&) = delete;

private:
    FileWatch(EventLoop& loop, std::string name, Handler handler, UniqueFd fd)
        : loop_(loop), name_(std::move(name)), handler_(std::move(handler)), fd_(std::move(fd)) {}
    EventLoop& loop_;
    const std::string name_;  // in its directory
    const Handler handler_;
    UniqueFd fd_;
};

}  // namespace openmana::base
