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

/// The whole of a regular file, or what is wrong with it.
tl::expected<std::string, std::string> content_of(const std::string& path) {
    const auto failed = [] { return tl::unexpected(std::string(std::strerror(errno))); };
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd) return failed();
    struct stat about {};
    if (::fstat(fd.get(), &about) != 0) return failed();
    if (!S_ISREG(about.st_mode)) return tl::unexpected(std::string("not a regular file"));
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
    return text;
}

}  // namespace

base::Result<std::unique_ptr<FdbFile>> FdbFile::create(base::EventLoop& loop, Fdb& fdb,
                                                       std::string path, std::string label) {
    std::unique_ptr<FdbFile> file(new FdbFile(fdb, std::move(path), std::move(label)));
    TRY(file->watch_, base::FileWatch::create(loop, file->path_,
                                              [raw = file.get()](base::FileWatch::Event event) {
                                                  raw->changed(event);
                                              }));
    file->read();
    return file;
}

void FdbFile::changed(base::FileWatch::Event event) {
    switch (event) {
        case base::FileWatch::Event::kWritten:
            read();
            break;
        case base::FileWatch::Event::kGone:
            keep("the file has gone");
            break;
        case base::FileWatch::Event::kBlind:
            keep("its directory has gone: what is written there later is not seen");
            break;
    }
}

void FdbFile::read() {
    const auto text = content_of(path_);
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
