// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sched.h>

#include <cstdlib>
#include <string>

#include "base/fd.h"

namespace openmana::test {

/// A network namespace of the calling thread, and of what it starts, until this goes.
class NetworkNamespace {
public:
    NetworkNamespace()
        : before_(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)),
          made_(before_ && ::unshare(CLONE_NEWNET) == 0) {}
    ~NetworkNamespace() {
        if (made_) (void)::setns(before_.get(), CLONE_NEWNET);
    }
    NetworkNamespace(const NetworkNamespace&) = delete;
    NetworkNamespace& operator=(const NetworkNamespace&) = delete;
    /// False: nobody but root can.
    [[nodiscard]] bool made() const { return made_; }
    /// `ip` with these words; false if it failed.
    static bool ip(const std::string& words) {
        return std::system(("ip " + words + " >/dev/null 2>&1").c_str()) == 0;  // NOLINT
    }

private:
    base::UniqueFd before_;
    bool made_;
};

}  // namespace openmana::test
