// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/result.h"

namespace openmana::manad {

/// Starts a thread. The system may have no room for another: then there is an error.
template <typename F>
base::Result<std::thread> start_thread(const std::string& name, F f) {
    try {
        return std::thread([name = name.substr(0, 15), f = std::move(f)]() mutable {
            ::pthread_setname_np(::pthread_self(), name.c_str());
            f();
        });
    } catch (const std::system_error& error) {
        return base::fail(base::ErrorCode::kIo, "cannot start a thread",
                          static_cast<unsigned>(error.code().value()));
    }
}

}  // namespace openmana::manad
