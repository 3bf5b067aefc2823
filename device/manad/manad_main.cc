// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/bus_guard.h"
#include "base/event_signal.h"
#include "base/log.h"
#include "manad/connections.h"
#include "manad/daemon.h"
#include "manad/in_words.h"
#include "manad/ledger.h"
#include "manad/monitor.h"
#include "manad/open_ends.h"
#include "manad/options.h"
#include "manad/privileges.h"
#include "manad/sandbox.h"
#include "manad/service_notice.h"
#include "manad/signals.h"
#include "manad/starter.h"
#include "manad/take_over.h"
#include "manad/xdp_keeper.h"

namespace {

using namespace openmana;

/// Ends the program with one line on stderr.
int give_up(const std::string& subject, const base::Error& error) {
    std::fprintf(stderr, "manad: %s\n", manad::in_words(subject, error).c_str());
    return 1;
}

/// None if nobody could ask for it, or it could be for nothing.
base::Result<std::unique_ptr<manad::Starter>> make_starter(int argc, char** argv,
                                                           const manad::Options& options) {
    const bool bound = std::ranges::any_of(options.uplinks, [](const auto& uplink) {
        return uplink.kind == fabric::UplinkConfig::Kind::kXdp;
    });
    if (options.control.empty() || bound) return nullptr;
    return manad::Starter::start({argv, argv + argc}, options.control);
}

/// NICs that may come while it runs.
constexpr std::size_t kMoreNics = 64;

/// Where this process is to write down what another one needs, and which one it is.
struct Life {
    std::unique_ptr<manad::Ledger> ledger;  // null: without a monitor
    unsigned number = 1;
    std::vector<int> kept;  // descriptors from before it, which others have, too
};

/// One that goes on behind a crash lets go of nothing that the next one needs.
int give_up(const Life& life, const std::string& subject, const base::Error& error) {
    const int status = give_up(subject, error);
    if (life.number != 1) ::_exit(status);
    return status;
}

/// With a monitor this returns in another process, and once more for each that goes on. `options`
/// then are what the one before had.
base::Result<Life> begin_life(manad::Options& options) {
    Life life;
    life.kept = manad::open_descriptors();
    if (!options.monitor) return life;
    TRY(life.ledger, manad::Ledger::create(options.nics.size() + kMoreNics));
    TRY(life.number, manad::start_monitor(*life.ledger));
    if (life.number == 1) return life;
    const std::size_t closed = life.ledger->recover(options, life.kept);
    OM_WARN("manad recover: process={} nics={} closed={}", life.number, options.nics.size(),
            closed);
    return life;
}

/// What another process hands over, if this one is to take its place. `subject` gets what an error
/// is about.
base::Result<std::unique_ptr<manad::TakeOver>> ask_for_place(const manad::Options& options,
                                                             const Life& life,
                                                             std::string& subject) {
    // Who goes on behind a crash has taken that place before.
    if (options.take_over.empty() || life.number != 1) return nullptr;
    std::string why;
    const pid_t main = life.ledger ? ::getppid() : ::getpid();
    auto asked = manad::TakeOver::ask(options.take_over, main, why);
    subject = "--take-over " +
              (why.empty() ? options.take_over : fmt::format("{}: {}", options.take_over, why));
    return asked;
}

/// First for the threads of a daemon that is to end, then for everything else, such as files that
/// are closed.
constexpr manad::SignalThread::Patience kPatience{.to_end = std::chrono::seconds(5),
                                                  .last_resort = std::chrono::seconds(30)};

/// Ends the program without its threads. Nobody else does: they use what would be destroyed. The
/// sockets come first, since the log may be what hangs, and connections, since files may not close.
/// Those of clients are for the next process, if a monitor that was not told to end starts one.
[[noreturn]] void abandon(const manad::Daemon& daemon, const Life& life) {
    if (!daemon.shares()) {
        for (const std::string& socket : daemon.sockets()) ::unlink(socket.c_str());
        std::vector<int> others = life.kept;
        if (life.ledger)
            for (const int client : life.ledger->clients()) others.push_back(client);
        manad::end_connections(others);
    }
    for (const std::string& thread : daemon.hanging()) OM_ERROR("thread abandon: {}", thread);
    OM_ERROR("manad stop: reason=\"threads hang\"");
    ::_exit(1);
}

}  // namespace

int main(int argc, char** argv) {
    const manad::ParsedOptions parsed = manad::parse_options(argc, argv);
    if (parsed.exit) {
        std::fputs(parsed.text.c_str(), parsed.status == 0 ? stdout : stderr);
        return parsed.status;
    }
    base::log_to_stderr(parsed.options.log_level);
    base::log_as(parsed.options.log_format);

    manad::Options options = parsed.options;
    auto starter = make_starter(argc, argv, options);
    if (!starter) return give_up("upgrade", starter.error());
    if (auto kept = manad::XdpKeeper::give(options); !kept) return give_up("xdp", kept.error());
    if (auto started = manad::start_as(options.user, manad::capabilities_to_start(options));
        !started)
        return give_up(options.user ? "--user" : "privileges", started.error());

    const auto life = begin_life(options);
    if (!life) return give_up("--monitor", life.error());
    manad::Ledger* const ledger = life->ledger.get();

    auto signals = manad::prepare_signals();
    if (!signals) return give_up(*life, "signals", signals.error());
    if (auto guarded = base::BusGuard::install(); !guarded)
        return give_up(*life, "signals", guarded.error());
    if (const auto& safe = base::EventSignal::shared().ready(); !safe)
        OM_WARN("interrupts unsafe: a client can stall its peers reason=\"{}\" errno={}",
                safe.error().text, safe.error().detail);

    std::string subject;
    auto asked = ask_for_place(options, *life, subject);
    if (!asked) return give_up(*life, subject, asked.error());
    std::unique_ptr<manad::TakeOver> taken = std::move(*asked);
    // The other process is told why this one does not go on in its place.
    const auto fail = [&taken, &life](const std::string& subject, const base::Error& error) {
        if (taken) taken->refuse(manad::in_words(subject, error));
        return give_up(*life, subject, error);
    };
    auto created =
        manad::Daemon::create(options, subject, manad::LoopThread::kPatience, taken.get(), ledger);
    if (!created) return fail(subject, created.error());
    // Before any thread starts: each has capabilities of its own.
    if (auto dropped = manad::drop_privileges(); !dropped)
        return fail("privileges", dropped.error());
    manad::Daemon& daemon = **created;
    daemon.set_reload([argc, argv] { return manad::parse_options(argc, argv); });
    if (*starter)
        if (auto set = daemon.set_starter(std::move(*starter)); !set)
            return fail("upgrade", set.error());
    auto thread = manad::SignalThread::create(
        std::move(*signals), kPatience,
        {.end = [&] { daemon.stop(); },
         .reload = [&] { daemon.loop().post([&] { daemon.reload_and_tell(); }); },
         .give_up = [&] { abandon(daemon, *life); }});
    if (!thread) return fail("signals", thread.error());
    const manad::ServiceNotice notice;
    daemon.on_handed_over([&notice](pid_t next) { notice.tell(fmt::format("MAINPID={}", next)); });
    if (auto entered = manad::enter_sandbox(options.seccomp); !entered)
        return fail("--seccomp", entered.error());
    if (taken) {
        if (auto finished = taken->finish(); !finished)
            return give_up(*life, "--take-over", finished.error());
    }
    if (auto started = daemon.start(); !started) return give_up(*life, "threads", started.error());
    taken.reset();  // guests are served, so what it gives back may take its time
    for (const std::string& line : manad::open_ends(options)) OM_INFO("open: {}", line);
    if (ledger != nullptr) ledger->set_ready();
    if (life->number == 1) {
        std::puts("ready");
        std::fflush(stdout);
    }
    notice.tell("READY=1");
    daemon.run();
    notice.tell("STOPPING=1");
    thread->reset();
    manad::end_connections(life->kept);  // nobody waits for files that do not close
    OM_INFO("manad stop: reason=\"it was asked to\"");
    return 0;
}
