// SPDX-License-Identifier: Apache-2.0
#include "fabric/key_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error_text.h"
#include "base/fd.h"
#include "base/log.h"
#include "esp/secret.h"

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

/// One byte more than a key file may have, so that a longer one shows.
constexpr std::size_t kRead = esp::KeyRing::kMaxText + 1;

base::Result<void> check_status(const struct stat& status, uid_t user) {
    const auto refused = [](const char* why) { return fail(ErrorCode::kPermission, why); };
    if (!S_ISREG(status.st_mode)) return refused("a key file is a regular file");
    if (status.st_uid != 0 && status.st_uid != user)
        return refused("a key file belongs to the user that manad runs as, or to root");
    const mode_t others = status.st_uid == 0 && user != 0 ? 0037 : 0077;
    if ((status.st_mode & others) != 0)
        return refused("a key file is for its owner alone: chmod 600");
    return {};
}

base::Result<std::shared_ptr<const esp::KeyRing>> read_keys(const std::string& path, uid_t user,
                                                            const esp::KeyRing* before) {
    const auto failed = [] {
        return errno == ELOOP
                   ? fail(ErrorCode::kPermission, "a symbolic link is not followed")
                   : fail(ErrorCode::kIo, "cannot read the key file", static_cast<unsigned>(errno));
    };
    // A pipe without a writer would be waited for.
    const base::UniqueFd fd(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0) return failed();
    TRY_VOID(check_status(status, user));
    TRY(const auto pages, esp::SecretPages::create(kRead));
    const auto bytes = pages.bytes();
    std::size_t size = 0;
    for (ssize_t n = 1; n != 0 && size < bytes.size();) {
        n = ::read(fd.get(), bytes.data() + size, bytes.size() - size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed();
        size += static_cast<std::size_t>(n);
    }
    return esp::KeyRing::parse({reinterpret_cast<const char*>(bytes.data()), size}, before);
}

/// What is wrong, in words for the log: a key file's error may be about a line.
std::string reason_of(const base::Error& error) {
    if (error.code == ErrorCode::kIo || error.detail == 0) return base::to_string(error);
    return "line " + std::to_string(error.detail) + ": " + error.text;
}

}  // namespace

base::Result<std::unique_ptr<KeyFile>> KeyFile::create(base::EventLoop& loop,
                                                       const std::string& path) {
    std::unique_ptr<KeyFile> file(new KeyFile(path));
    // Watched first: what is written while it is read is read again. Where the system gives no
    // watch, manactl has it read.
    auto watch = base::FileWatch::create(
        loop, path, [raw = file.get()](base::FileWatch::Event event) { raw->changed(event); },
        base::FileWatch::Of::kContentAndRights);
    if (watch)
        file->watch_ = std::move(*watch);
    else
        OM_WARN("key file watch: file={} reason=\"{}\"", path, reason_of(watch.error()));
    TRY(auto ring, read_keys(path, file->user_, nullptr));
    file->keys_ = std::make_shared<esp::KeyStore>(std::move(ring));
    return file;
}

KeyFile::KeyFile(std::string path) : user_(::geteuid()), path_(std::move(path)) {}

void KeyFile::say_gone() {
    if (!std::exchange(gone_, true))
        OM_WARN(
            "key file gone: file={} reason=\"the keys stay what they are, until there is another "
            "file\"",
            path_);
}

void KeyFile::changed(base::FileWatch::Event event) {
    if (event == base::FileWatch::Event::kBlind)
        OM_WARN(
            "key file watch: file={} reason=\"its directory was moved or removed: manactl rekey "
            "reads the file\"",
            path_);
    const auto read = reload();
    if (read) return;
    if (read.error().code == ErrorCode::kIo && read.error().detail == ENOENT)
        say_gone();
    else
        OM_WARN("key file refused: file={} reason=\"{}\"; the keys are what they were", path_,
                reason_of(read.error()));
}

base::Result<void> KeyFile::reload() {
    const auto before = keys_->ring();
    TRY(auto ring, read_keys(path_, user_, before.get()));
    gone_ = false;
    if (ring->same(*before)) return {};
    OM_INFO("key file read: file={} keys={}", path_, ring->size());
    keys_->replace(std::move(ring));
    if (replaced_) replaced_();
    return {};
}

}  // namespace openmana::fabric
