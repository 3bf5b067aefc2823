// SPDX-License-Identifier: Apache-2.0
#include "base/lent_files.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

namespace openmana::base {

Result<LentFiles::Id> LentFiles::id_of(const UniqueFd& fd) {
    struct stat status {};
    const int flags = ::fcntl(fd.get(), F_GETFL);
    if (flags < 0 || ::fstat(fd.get(), &status) != 0)
        return fail(ErrorCode::kIo, "cannot examine the memory file", static_cast<unsigned>(errno));
    return Id{status.st_dev, status.st_ino, flags & O_ACCMODE};
}

Result<LentFiles::File> LentFiles::find(const UniqueFd& fd) {
    TRY(const Id id, id_of(fd));
    if (const auto known = files_.find(id); known != files_.end())
        if (File file = known->second.lock()) return file;
    std::erase_if(files_, [](const auto& entry) { return entry.second.expired(); });
    if (files_.size() >= kMost)
        return fail(ErrorCode::kExhausted, "guest memory of too many files", kMost);
    UniqueFd copy(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy)
        return fail(ErrorCode::kIo, "cannot keep the memory file", static_cast<unsigned>(errno));
    auto file = std::make_shared<const UniqueFd>(std::move(copy));
    files_.emplace(id, file);
    return file;
}

Result<LentFiles::File> LentFiles::adopt(UniqueFd fd) {
    TRY(const Id id, id_of(fd));
    auto file = std::make_shared<const UniqueFd>(std::move(fd));
    files_.insert_or_assign(id, file);
    return file;
}

}  // namespace openmana::base
