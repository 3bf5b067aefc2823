// SPDX-License-Identifier: Apache-2.0
// Seeded runs of several NICs on virtual time: see docs/testing.md.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "sim/simulation.h"

namespace openmana::sim {
namespace {

struct Arguments {
    std::uint64_t seed = 1;
    std::uint64_t runs = 1;
    std::uint64_t move = 0;
    bool verbose = false;
    std::optional<Path> only;
};

constexpr const char* kHelp =
    "usage: sim_test [--seed=N] [--runs=N] [--path=wire|local|mixed] [--move=N] [--verbose]\n"
    "  --seed=N   first seed (1)\n"
    "  --runs=N   that many seeds, one after the other (1)\n"
    "  --path=P   only this path; else each seed runs on the wire and on the local path, every\n"
    "             fourth on both by turns, and what the hosts see has to be the same\n"
    "  --move=N   with one event of N a NIC becomes another one, which has read its state\n"
    "  --verbose  all posts, frames and completions\n";

bool number(std::string_view text, std::uint64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

std::optional<Arguments> parse(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const auto value = word.substr(std::min(word.size(), word.find('=') + 1));
        if (word.starts_with("--seed=") && number(value, arguments.seed)) continue;
        if (word.starts_with("--runs=") && number(value, arguments.runs)) continue;
        if (word.starts_with("--move=") && number(value, arguments.move)) continue;
        if (word == "--verbose") {
            arguments.verbose = true;
            continue;
        }
        bool known = false;
        for (const Path path : {Path::kWire, Path::kLocal, Path::kMixed}) {
            if (!word.starts_with("--path=") || value != name(path)) continue;
            arguments.only = path;
            known = true;
        }
        if (!known) return std::nullopt;
    }
    return arguments;
}

struct Totals {
    std::uint64_t runs = 0, operations = 0, frames = 0, lost = 0, errors = 0, worn_out = 0,
                  rnr_worn_out = 0, stragglers = 0, timeouts = 0, moves = 0;
    // Runs that had
    std::uint64_t with_stragglers = 0, with_timeouts = 0, with_few_retries = 0, with_scarce = 0,
                  with_worn_out = 0, with_rnr_worn_out = 0;
    void add(const Script& script, const Outcome& outcome) {
        ++runs;
        operations += outcome.operations;
        frames += outcome.frames;
        lost += outcome.lost;
        errors += outcome.errors;
        worn_out += outcome.worn_out;
        rnr_worn_out += outcome.rnr_worn_out;
        stragglers += outcome.stragglers;
        timeouts += outcome.timeouts;
        moves += outcome.moves;
        const auto any = [&](auto match) {
            return std::ranges::any_of(script.connections, match) ? 1U : 0U;
        };
        with_few_retries += any([](const ConnectionSetup& c) { return c.retries < 4; });
        with_scarce += any([](const ConnectionSetup& c) { return c.scarce; });
        with_stragglers += outcome.stragglers > 0 ? 1 : 0;
        with_timeouts += outcome.timeouts > 0 ? 1 : 0;
        with_worn_out += outcome.worn_out > 0 ? 1 : 0;
        with_rnr_worn_out += outcome.rnr_worn_out > 0 ? 1 : 0;
    }
};

std::string describe(const Script& script, const Weather& weather) {
    return std::to_string(script.nodes) + " NICs, " + std::to_string(script.connections.size()) +
           " connections, " + std::to_string(script.phases.size()) + " phases, " +
           (script.ipv6 ? "IPv6, " : "IPv4, ") +
           (script.shared_cqs ? "shared CQs, window " : "own CQs, window ") +
           std::to_string(script.window) + ", " + weather.text();
}

/// What is wrong with the two runs of one script beside each other (invariant 12).
std::string differences(const Outcome& one, const Outcome& two, const char* other) {
    for (std::size_t p = 0; p < one.phases.size(); ++p)
        for (std::size_t c = 0; c < one.phases[p].size(); ++c) {
            const Observation& a = one.phases[p][c];
            const Observation& b = two.phases[p][c];
            if (a.comparable && b.comparable && a != b)
                return "phase " + std::to_string(p) + ", connection " + std::to_string(c) +
                       ": the hosts see something else than " + other;
        }
    return {};
}

/// All paths of one seed. False after a failure, which it has printed.
bool run_seed(std::uint64_t seed, const Arguments& arguments, Totals& totals) {
    const Script script(seed);
    const Weather weather = Weather::of(seed);
    if (arguments.verbose)
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                    describe(script, weather).c_str());
    std::optional<Outcome> wire;
    for (const Path path : {Path::kWire, Path::kLocal, Path::kMixed}) {
        if (arguments.only ? *arguments.only != path : path == Path::kMixed && seed % 4 != 0)
            continue;
        Outcome outcome = Simulation(script, path, weather, arguments.verbose,
                                     static_cast<unsigned>(arguments.move))
                              .run();
        totals.add(script, outcome);
        if (outcome.failure.empty() && wire)
            outcome.failure = differences(*wire, outcome, "on the wire");
        if (outcome.failure.empty() && arguments.move != 0)
            outcome.failure = differences(Simulation(script, path, weather, false).run(), outcome,
                                          "without moves");
        if (!outcome.failure.empty()) {
            std::printf(
                "FAILED seed %llu on path %s: %s\n  %s\n"
                "  replay: sim_test --seed=%llu --path=%s --move=%llu --verbose\n",
                static_cast<unsigned long long>(seed), name(path), outcome.failure.c_str(),
                describe(script, weather).c_str(), static_cast<unsigned long long>(seed),
                name(path), static_cast<unsigned long long>(arguments.move));
            return false;
        }
        if (path == Path::kWire) wire = std::move(outcome);
    }
    return true;
}

int main(int argc, char** argv) {
    const auto arguments = parse(argc, argv);
    if (!arguments) {
        std::fputs(kHelp, stderr);
        return 2;
    }
    Totals totals;
    std::uint64_t failures = 0;
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t i = 0; i < arguments->runs && failures < 10; ++i)
        if (!run_seed(arguments->seed + i, *arguments, totals)) ++failures;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const auto print = [](const char* what, std::uint64_t value) {
        std::printf("%llu %s, ", static_cast<unsigned long long>(value), what);
    };
    print("seeds", arguments->runs);
    print("runs", totals.runs);
    print("operations", totals.operations);
    print("frames", totals.frames);
    print("lost", totals.lost);
    print("error completions", totals.errors);
    print("stragglers", totals.stragglers);
    print("timeouts", totals.timeouts);
    print("moves", totals.moves);
    print("connections worn out by the network", totals.worn_out);
    print("by late receives", totals.rnr_worn_out);
    std::printf("%llu failures; %.1f s\n", static_cast<unsigned long long>(failures), took.count());
    std::printf(
        "runs with stragglers %llu, timeouts %llu, fewer than 4 retries %llu, worn out %llu; "
        "scarce receives %llu, worn out %llu\n",
        static_cast<unsigned long long>(totals.with_stragglers),
        static_cast<unsigned long long>(totals.with_timeouts),
        static_cast<unsigned long long>(totals.with_few_retries),
        static_cast<unsigned long long>(totals.with_worn_out),
        static_cast<unsigned long long>(totals.with_scarce),
        static_cast<unsigned long long>(totals.with_rnr_worn_out));
    return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace openmana::sim

int main(int argc, char** argv) {
    return openmana::sim::main(argc, argv);
}
