// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace openmana::test {

/// A directory of a test's own, which goes with what is in it. Throws std::system_error if it
/// cannot be made, which fails the test.
class TempDir {
public:
    /// `name`: what its name begins with.
    explicit TempDir(const char* name)
        : path_((std::filesystem::temp_directory_path() / name).string() + "-XXXXXX") {
        if (::mkdtemp(path_.data()) == nullptr)
            throw std::system_error(errno, std::generic_category(), path_);
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace openmana::test
