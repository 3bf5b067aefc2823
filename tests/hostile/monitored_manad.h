// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "process.h"
#include "support/eventually.h"

namespace openmana::test {

/// A manad with a monitor: the process that a test started, and the one that serves.
class MonitoredManad {
public:
    explicit MonitoredManad(std::vector<std::string> words)
        : has_starter_(std::ranges::find(words, "--control") != words.end()),
          process_(std::move(words)) {}

    /// On a busy machine the starter may not have said yet that it is called otherwise.
    [[nodiscard]] bool says_ready() const {
        return process_.says_ready() &&
               (!has_starter_ || eventually([&] { return child("manad-starter") > 0; }));
    }
    [[nodiscard]] Process& process() { return process_; }
    /// Its number, or -1.
    [[nodiscard]] pid_t serving() const { return child("manad"); }
    /// The first child of that name, or -1.
    [[nodiscard]] pid_t child(std::string_view wanted) const {
        const std::string monitor = std::to_string(process_.pid());
        std::ifstream children("/proc/" + monitor + "/task/" + monitor + "/children");
        for (pid_t number = -1; children >> number;) {
            std::string name;
            std::getline(std::ifstream("/proc/" + std::to_string(number) + "/comm"), name);
            if (name == wanted) return number;
        }
        return -1;
    }
    /// The next one, once there is one.
    [[nodiscard]] pid_t serving_after(pid_t before) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (std::chrono::steady_clock::now() < end) {
            const pid_t now = serving();
            if (now > 0 && now != before) return now;
            ::usleep(1000);
        }
        return -1;
    }
    /// Kills the one that serves. The next one.
    pid_t kill() const {
        const pid_t before = serving();
        if (before <= 0) return -1;
        ::kill(before, SIGKILL);
        return serving_after(before);
    }
    [[nodiscard]] std::size_t open_files() const {
        std::size_t count = 0;
        std::error_code error;
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(
                 "/proc/" + std::to_string(process_.pid()) + "/fd", error))
            ++count;
        return count;
    }
    /// True once it has no more files open than that: what a client had is closed a moment later.
    [[nodiscard]] bool files_back_to(std::size_t count) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (std::chrono::steady_clock::now() < end) {
            if (open_files() <= count) return true;
            ::usleep(1000);
        }
        return false;
    }

private:
    const bool has_starter_;
    Process process_;
};

}  // namespace openmana::test
