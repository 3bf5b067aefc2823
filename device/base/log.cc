// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace openmana::base {

void log_to_stderr(spdlog::level::level_enum level) {
    auto logger = std::make_shared<spdlog::logger>(
        "openmana", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    logger->set_level(level);
    logger->flush_on(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace openmana::base
