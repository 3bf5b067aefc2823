// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_follower.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace openmana::base {
namespace {

constexpr int kStateField = 3;
constexpr int kProcessorField = 39;

/// The CPU of a thread that runs or is ready to, from its line in /proc (proc(5), "stat").
std::optional<int> cpu_of(std::string_view line) {
    // The second field is the name, which may hold anything.
    const auto name_end = line.rfind(')');
    if (name_end == std::string_view::npos) return std::nullopt;
    line.remove_prefix(name_end + 1);
    for (int field = kStateField; field <= kProcessorField; ++field) {
        const auto start = line.find_first_not_of(' ');
        if (start == std::string_view::npos) return std::nullopt;
        line.remove_prefix(start);
        const std::string_view word = line.substr(0, line.find(' '));
        if (field == kStateField && word != "R") return std::nullopt;
        if (int cpu = -1;
            field == kProcessorField &&
            std::from_chars(word.data(), word.data() + word.size(), cpu).ec == std::errc())
            return cpu;
        line.remove_prefix(word.size());
    }
    return std::nullopt;
}

std::optional<int> cpu_of_thread(int folder, const char* thread) {
    const UniqueFd file(
        ::openat(folder, (std::string(thread) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return std::nullopt;
    std::array<char, 1024> line;
    const ssize_t bytes = ::read(file.get(), line.data(), line.size());
    if (bytes <= 0) return std::nullopt;
    return cpu_of({line.data(), static_cast<std::size_t>(bytes)});
}

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

std::optional<int> CpuFollower::leader_cpu() const {
    const std::unique_ptr<DIR, CloseFolder> folder(
        ::opendir(("/proc/" + std::to_string(leader_) + "/task").c_str()));
    if (!folder) return std::nullopt;
    const int own = ::sched_getcpu();
    std::optional<int> found;
    while (const dirent* entry = ::readdir(folder.get())) {
        if (entry->d_name[0] == '.') continue;
        const auto cpu = cpu_of_thread(::dirfd(folder.get()), entry->d_name);
        if (cpu == own) return cpu;
        if (cpu) found = cpu;
    }
    return found;
}

bool CpuFollower::move_to(int cpu) {
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || cpu < 0 || cpu >= CPU_SETSIZE ||
        !CPU_ISSET(cpu, &allowed))
        return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    const bool moved = ::sched_setaffinity(0, sizeof one, &one) == 0;
    (void)::sched_setaffinity(0, sizeof allowed, &allowed);
    return moved;
}

void CpuFollower::look(std::uint64_t sleeps, TimePoint now) {
    const auto cpu = leader_cpu();
    const bool apart = cpu && *cpu != ::sched_getcpu();
    // Moves that do not last, or that are not allowed, are tried ever more seldom.
    pause_ = apart && apart_ ? std::min(2 * pause_, kLongest) : kShortest;
    apart_ = apart;
    if (apart) (void)move_to(*cpu);
    sleeps_ = sleeps;
    next_ = now + pause_;
}

}  // namespace openmana::base
