// SPDX-License-Identifier: Apache-2.0
#include "fabric/fdb_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fd.h"
#include "base/log.h"

namespace openmana::fabric {
namespace {

/// While somebody writes it so often that none is whole.
constexpr int kMaxReads = 3;

/// The whole of a file, or what is wrong with it.
tl::expected<std::string, std::string> content_of(const std::string& path, uid_t user) {
    const auto refused = [](const char* why) { return tl::unexpected(std::string(why)); };
    const auto failed = [&] {
        return refused(errno == ELOOP ? "a symbolic link is not followed" : std::strerror(errno));
    };
    // A pipe without a writer would be waited for.
    const base::UniqueFd fd(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW));
    if (!fd) return failed();
    struct stat about {};
    if (::fstat(fd.get(), &about) != 0) return failed();
    if (!S_ISREG(about.st_mode)) return refused("not a regular file");
    if (about.st_uid != 0 && about.st_uid != user)
        return refused("a table belongs to the user that manad runs as, or to root");
    if ((about.st_mode & 0022) != 0)
        return refused("a table is written by its owner alone: chmod go-w");
    std::string text;
    // One byte more than may be: then it is too long, which the reader of the text says.
    while (text.size() <= FdbTable::kMaxText) {
        char buffer[65536];
        const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed();
        if (n == 0) break;
        text.append(buffer, static_cast<std::size_t>(n));
    }
    if (!text.empty() && text.size() <= FdbTable::kMaxText && text.back() != '\n')
        return refused("its last line has no end: it is not whole");
    return text;
}

}  // namespace

FdbFile::FdbFile(Fdb& fdb, std::string path, std::string label)
    : fdb_(fdb), path_(std::move(path)), label_(std::move(label)), user_(::geteuid()) {}

base::Result<std::unique_ptr<FdbFile>> FdbFile::create(base::EventLoop& loop, Fdb& fdb,
                                                       std::string path, std::string label) {
    std::unique_ptr<FdbFile> file(new FdbFile(fdb, std::move(path), std::move(label)));
    TRY(file->watch_, base::FileWatch::create(
                          loop, file->path_,
                          [raw = file.get()](base::FileWatch::Event event) { raw->changed(event); },
                          base::FileWatch::Of::kContentAndBegin));
    file->read();
    return file;
}

void FdbFile::changed(base::FileWatch::Event event) {
    switch (event) {
        case base::FileWatch::Event::kWritten:
            begun_ = false;
            again_ = true;
            if (!reading_) read();
            break;
        case base::FileWatch::Event::kBegun:
            begun_ = true;
            break;
        case base::FileWatch::Event::kGone:
            begun_ = false;
            keep("the file has gone");
            break;
        case base::FileWatch::Event::kBlind:
            keep("its directory has gone: what is written there later is not seen");
            break;
    }
}

void FdbFile::read() {
    tl::expected<std::string, std::string> text;
    again_ = true;
    for (int i = 0; i < kMaxReads && again_; ++i) {
        again_ = false;
        text = content_of(path_, user_);
        reading_ = true;
        watch_->look();
        reading_ = false;
    }
    // Who is at it will close it, which is told.
    if (begun_) return;
    if (!text) {
        keep(text.error());
        return;
    }
    auto table = FdbTable::read(*text, fdb_.context());
    if (!table) {
        keep(table.error());
        return;
    }
    const std::size_t addresses = table->size();
    fdb_.set_file(std::move(*table));
    fdb_.count_read(true);
    OM_INFO("fdb read: {} file={} addresses={}", label_, path_, addresses);
}

void FdbFile::keep(const std::string& reason) {
    fdb_.count_read(false);
    OM_WARN("fdb kept: {} file={} reason=\"{}\"", label_, path_, reason);
}

}  // namespace openmana::fabric
