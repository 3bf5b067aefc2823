// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "fabric/output_file.h"

namespace openmana::fabric {

base::Result<std::unique_ptr<FlowFile>> FlowFile::create(const std::string& path) {
    TRY(auto fd, open_output(path, OutputMode::kAppend));
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0)
        return base::fail(base::ErrorCode::kIo, "cannot write the file",
                          static_cast<unsigned>(errno));
    return std::unique_ptr<FlowFile>(new FlowFile(path, std::move(fd), status));
}

void FlowFile::save(base::StateWriter& out) const {
    const std::lock_guard lock(mutex_);
    out.begin("FLOW", 1);
    out.bytes(std::as_bytes(std::span(path_)));
    out.descriptor(fd_.get());
    out(static_cast<std::uint64_t>(device_), static_cast<std::uint64_t>(inode_), error_, lost_);
    out.end();
}

base::Result<std::unique_ptr<FlowFile>> FlowFile::resume(base::StateReader& in) {
    in.begin("FLOW", 1);
    const auto path = in.bytes();
    base::UniqueFd fd = in.descriptor();
    struct stat status {};
    status.st_dev = in.get<std::uint64_t>();
    status.st_ino = in.get<std::uint64_t>();
    std::unique_ptr<FlowFile> file(
        new FlowFile(std::string(reinterpret_cast<const char*>(path.data()), path.size()),
                     std::move(fd), status));
    in(file->error_, file->lost_);
    in.require(static_cast<bool>(file->fd_) != (file->error() != 0), "no flow log");
    in.end();
    TRY_VOID(in.result());
    return file;
}

void FlowFile::line(std::string_view json) {
    std::string text(json);
    text += '\n';
    const std::lock_guard lock(mutex_);
    std::string_view left = text;
    if (!fd_) lost_.fetch_add(1, std::memory_order_relaxed);
    while (fd_ && !left.empty()) {
        const ssize_t n = ::write(fd_.get(), left.data(), left.size());
        if (n >= 0) {
            left.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno != EINTR) {
            error_.store(errno, std::memory_order_relaxed);
            lost_.fetch_add(1, std::memory_order_relaxed);
            OM_WARN("flow log end: file={} reason=\"{}\"", path_, std::strerror(errno));
            fd_.reset();
        }
    }
}

bool FlowFile::current() const {
    struct stat named {};
    return error() == 0 && ::lstat(path_.c_str(), &named) == 0 && named.st_dev == device_ &&
           named.st_ino == inode_;
}

}  // namespace openmana::fabric
