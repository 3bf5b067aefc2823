// SPDX-License-Identifier: Apache-2.0
#include <sys/epoll.h>

#include <cstdio>
#include <cstring>

#include "base/bus_guard.h"
#include "base/event_signal.h"
#include "base/log.h"
#include "manad/daemon.h"
#include "manad/options.h"
#include "manad/signals.h"

namespace {

using namespace openmana;

/// Ends the program with one line on stderr.
int give_up(const std::string& subject, const base::Error& error) {
    const bool has_errno = error.code == base::ErrorCode::kIo && error.detail != 0;
    std::fprintf(stderr, "manad: %s: %s%s%s\n", subject.c_str(), error.text, has_errno ? ": " : "",
                 has_errno ? std::strerror(static_cast<int>(error.detail)) : "");
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    const manad::ParsedOptions parsed = manad::parse_options(argc, argv);
    if (parsed.exit) {
        std::fputs(parsed.text.c_str(), parsed.status == 0 ? stdout : stderr);
        return parsed.status;
    }
    base::log_to_stderr(parsed.options.log_level);

    const auto signals = manad::prepare_signals();
    if (!signals) return give_up("signals", signals.error());
    if (auto guarded = base::BusGuard::install(); !guarded)
        return give_up("signals", guarded.error());
    if (const auto& safe = base::EventSignal::shared().ready(); !safe)
        OM_WARN("interrupts unsafe: a client can stall its peers reason=\"{}\" errno={}",
                safe.error().text, safe.error().detail);

    std::string subject;
    auto created = manad::Daemon::create(parsed.options, subject);
    if (!created) return give_up(subject, created.error());
    manad::Daemon& daemon = **created;
    if (auto added =
            daemon.loop().add(signals->get(), EPOLLIN, [&](std::uint32_t) { daemon.stop(); });
        !added)
        return give_up("signals", added.error());
    std::puts("ready");
    std::fflush(stdout);
    daemon.run();
    OM_INFO("manad stop");
    return 0;
}
