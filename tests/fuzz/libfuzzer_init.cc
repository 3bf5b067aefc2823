// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

/// Called by libFuzzer before the first input: what the device logs about nonsense is no news here.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
    openmana::base::set_log_level(openmana::base::LogLevel::kOff);
    return 0;
}

/// Read by AddressSanitizer; the environment's ASAN_OPTIONS goes before it. Of the defaults, these
/// take time and memory from inputs that are small and end soon: frees of hundreds of inputs kept
/// back, thirty frames of each allocation, shadow memory given back to the kernel and fetched
/// again.
extern "C" const char* __asan_default_options() {
    return "quarantine_size_mb=16:malloc_context_size=10:clear_shadow_mmap_threshold=16777216";
}
