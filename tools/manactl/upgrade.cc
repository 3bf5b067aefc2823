// SPDX-License-Identifier: Apache-2.0
#include "manactl/upgrade.h"

#include <fcntl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "manad/take_over_words.h"

namespace openmana::manactl {
namespace {

using std::chrono::steady_clock;

constexpr auto kBetweenLooks = std::chrono::milliseconds(20);

/// The texts of a file of /proc, each of which ends with a zero.
std::vector<std::string> texts_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), {}};
    std::vector<std::string> texts;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\0', at), all.size());
        texts.push_back(all.substr(at, end - at));
        at = end + 1;
    }
    return texts;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(text.data());
    all.push_back(nullptr);
    return all;
}

/// The program with what that process was started with: arguments, environment, directory, output.
pid_t start_like(long process, const std::string& program, const std::string& control) {
    const std::string about = "/proc/" + std::to_string(process);
    std::vector<std::string> given = texts_of(about + "/cmdline");
    std::vector<std::string> environment = texts_of(about + "/environ");
    if (given.empty() || environment.empty())
        die("cannot see how manad was started, process " + std::to_string(process));
    given[0] = program;
    std::vector<std::string> words = manad::words_to_take_over(given, control);
    const pid_t child = ::fork();
    if (child < 0) die(std::string("cannot start a process: ") + std::strerror(errno));
    if (child > 0) return child;
    (void)::setsid();
    for (const int number : {STDOUT_FILENO, STDERR_FILENO}) {
        const int fd = ::open((about + "/fd/" + std::to_string(number)).c_str(),
                              O_WRONLY | O_APPEND | O_NOCTTY);
        if (fd >= 0) (void)::dup2(fd, number);
    }
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) (void)::dup2(nothing, STDIN_FILENO);
    if (::chdir((about + "/cwd").c_str()) != 0) ::_exit(126);
    ::execvpe(program.c_str(), pointers(words).data(), pointers(environment).data());
    ::_exit(127);
}

}  // namespace

void Upgrade::print(const json& now) const {
    if (as_json) {
        std::printf("%s\n", now.dump(2).c_str());
        return;
    }
    const long before = now["from"].get<long>();
    if (before == 0) {
        std::printf("manad %ld has taken nobody's place\n", now["pid"].get<long>());
        return;
    }
    std::vector<double> blackouts;
    std::string each;
    for (const auto& nic : now["nics"]) {
        blackouts.push_back(nic["blackout_ms"].get<double>());
        char text[64];
        std::snprintf(text, sizeof text, " %s %.1f", nic["nic"].get<std::string>().c_str(),
                      blackouts.back());
        each += text;
    }
    std::ranges::sort(blackouts);
    std::printf("manad %ld goes on as %ld:", before, now["pid"].get<long>());
    if (blackouts.empty())
        std::printf(" no NICs\n");
    else
        std::printf("%s ms, median %.1f ms, max %.1f ms\n", each.c_str(),
                    blackouts[blackouts.size() / 2], blackouts.back());
}

void Upgrade::run() const {
    const json look{{"command", "upgrade"}, {"action", "show"}};
    json now = ask(control, last || !program.empty() ? look : json{{"command", "upgrade"}});
    if (last) {
        print(now);
        return;
    }
    const long before = now["pid"].get<long>();
    const pid_t child = program.empty() ? 0 : start_like(before, program, control);
    const auto deadline = steady_clock::now() + std::chrono::duration<double>(patience);
    while (steady_clock::now() < deadline) {
        std::this_thread::sleep_for(kBetweenLooks);
        const auto seen = try_to_ask(control, look);
        // Who was asked may have ended before it answered: then the other one is there.
        if (!seen) continue;
        now = *seen;
        if (now.value("under_way", false)) continue;
        if (now["pid"].get<long>() != before) {
            print(now);
            return;
        }
        if (const std::string failed = now.value("failed", ""); !failed.empty()) die(failed);
        int status = 0;
        if (child > 0 && ::waitpid(child, &status, WNOHANG) == child)
            die("the new manad ended before it was ready, with status " +
                std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128));
    }
    if (now["pid"].get<long>() != before)
        die("manad " + std::to_string(now["pid"].get<long>()) +
            " goes on, and does not serve all guests so far");
    die("no other manad goes on so far; this one does");
}

}  // namespace openmana::manactl
