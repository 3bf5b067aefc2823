// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::base {

/// The files that one client has lent memory of: a descriptor of each and of each kind of access,
/// as long as somebody holds it. A client may lend thousands of parts of one file.
class LentFiles {
public:
    using File = std::shared_ptr<const UniqueFd>;
    /// A guest has a few, and one for each piece of memory that is plugged into it.
    static constexpr std::size_t kMost = 512;

    /// The one that `fd`, a file of memory (FileMapping), is open on; a copy of `fd` if there was
    /// none. kExhausted if there are too many.
    Result<File> find(const UniqueFd& fd);
    /// `fd` itself is the one from now on.
    Result<File> adopt(UniqueFd fd);

private:
    struct Id {
        dev_t device = 0;
        ino_t inode = 0;
        int access = 0;
        auto operator<=>(const Id&) const = default;
    };
    static Result<Id> id_of(const UniqueFd& fd);
    std::map<Id, std::weak_ptr<const UniqueFd>> files_;
};

}  // namespace openmana::base
