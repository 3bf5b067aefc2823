// SPDX-License-Identifier: Apache-2.0
#include <spdlog/spdlog.h>

/// Called by libFuzzer before the first input: what the device logs about nonsense is no news here.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
    spdlog::set_level(spdlog::level::off);
    return 0;
}
