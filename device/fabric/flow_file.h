// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"
#include "base/state.h"

namespace openmana::fabric {

/// Takes the lines of a flow log, without newline. From any thread.
class FlowSink {
public:
    virtual ~FlowSink() = default;
    virtual void line(std::string_view json) = 0;
};

/// A file of JSON lines, appended to. After an error it says so once in the log and drops the rest.
class FlowFile final : public FlowSink {
public:
    static base::Result<std::unique_ptr<FlowFile>> create(const std::string& path);
    /// Goes on with the file of another process, as its save() has it.
    static base::Result<std::unique_ptr<FlowFile>> resume(base::StateReader& in);
    void save(base::StateWriter& out) const;
    void line(std::string_view json) override;
    [[nodiscard]] const std::string& path() const { return path_; }
    /// True while lines can be written and the path still leads to the file: not once it was
    /// renamed or removed (log rotation). Does not wait for those who write lines.
    [[nodiscard]] bool current() const;
    /// errno of the error that ended the log, or 0; and how many lines were lost by it.
    [[nodiscard]] int error() const { return error_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }

private:
    FlowFile(std::string path, base::UniqueFd fd, const struct stat& status)
        : path_(std::move(path)),
          device_(status.st_dev),
          inode_(status.st_ino),
          fd_(std::move(fd)) {}
    const std::string path_;
    const dev_t device_;
    const ino_t inode_;
    mutable std::mutex mutex_;  // protects fd_, and keeps lines whole
    base::UniqueFd fd_;
    std::atomic<int> error_{0};
    std::atomic<std::uint64_t> lost_{0};
};

}  // namespace openmana::fabric
