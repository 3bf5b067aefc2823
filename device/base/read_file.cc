// SPDX-License-Identifier: Apache-2.0
#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/fd.h"

namespace openmana::base {

Result<std::string> read_file(const std::string& path, std::size_t most) {
    const auto failed = [] {
        return fail(ErrorCode::kIo, "cannot read the file", static_cast<unsigned>(errno));
    };
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) return failed();
    if (!S_ISREG(status.st_mode))
        return fail(ErrorCode::kInvalidArgument, "it is not a regular file");
    std::string text;
    std::array<char, 65536> part;
    while (true) {
        const ssize_t n = ::read(fd.get(), part.data(), part.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed();
        if (n == 0) return text;
        text.append(part.data(), static_cast<std::size_t>(n));
        if (text.size() > most) return fail(ErrorCode::kExhausted, "the file is too long");
    }
}

}  // namespace openmana::base
