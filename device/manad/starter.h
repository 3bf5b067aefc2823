// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace openmana::manad {

/// A process that starts the program of this one anew: with its arguments, and with the user, the
/// rights, the environment, the directory and the standard streams that this one began with and may
/// have given up since. It starts nothing else, whoever asks, and ends with manad.
class Starter {
public:
    /// Before manad gives up rights, and has threads. `words` are its arguments; what is started
    /// takes the place of the daemon at `control`.
    static base::Result<std::unique_ptr<Starter>> start(std::vector<std::string> words,
                                                        const std::string& control);
    /// Has it start one; the one before has ended.
    base::Result<void> ask();
    /// Readable when there is news.
    [[nodiscard]] int fd() const { return socket_.get(); }
    struct News {
        pid_t pid = 0;  ///< of the one that was started; 0: none could be
        int error = 0;  ///< errno, why not
        bool ended = false;
    };
    [[nodiscard]] std::optional<News> news();

private:
    explicit Starter(base::UniqueFd socket) : socket_(std::move(socket)) {}
    const base::UniqueFd socket_;
};

}  // namespace openmana::manad
