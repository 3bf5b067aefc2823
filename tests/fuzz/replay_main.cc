// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer in builds without it: runs the inputs of the given folders or files, and
// seeded mutations of them. An input that ends the process is kept as
// crash-<target>-<seed>-<number>.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "fuzz.h"

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Input = std::vector<std::uint8_t>;

Input current;
char kept[256];

/// Also from a signal handler: system calls only.
void keep_input() {
    const int fd = ::open(kept, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return;
    if (::write(fd, current.data(), current.size()) >= 0 && ::write(2, "input kept in ", 14) > 0 &&
        ::write(2, kept, std::strlen(kept)) > 0)
        (void)!::write(2, "\n", 1);
    ::close(fd);
}

void on_signal(int number) {
    keep_input();
    ::signal(number, SIG_DFL);
    ::raise(number);
}

void mutate(Input& input, const std::vector<Input>& corpus, openmana::base::Random& random) {
    for (std::uint64_t changes = 1 + random.below(8); changes > 0; --changes) {
        const std::size_t at = input.empty() ? 0 : random.below(input.size());
        switch (random.below(6)) {
            case 0:
                if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1U << random.below(8));
                break;
            case 1:
                if (!input.empty()) input[at] = static_cast<std::uint8_t>(random.next() >> 32);
                break;
            case 2: {
                Input extra(1 + random.below(32));
                for (auto& byte : extra) byte = static_cast<std::uint8_t>(random.next() >> 32);
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), extra.begin(),
                             extra.end());
                break;
            }
            case 3: {
                const std::size_t length =
                    std::min<std::size_t>(input.size() - at, random.below(32));
                input.erase(input.begin() + static_cast<std::ptrdiff_t>(at),
                            input.begin() + static_cast<std::ptrdiff_t>(at + length));
                break;
            }
            case 4: {
                const Input& other = corpus[random.below(corpus.size())];
                if (other.empty()) break;
                const std::size_t from = random.below(other.size());
                const std::size_t length = 1 + random.below(other.size() - from);
                const Input part(other.begin() + static_cast<std::ptrdiff_t>(from),
                                 other.begin() + static_cast<std::ptrdiff_t>(from + length));
                input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), part.begin(),
                             part.end());
                break;
            }
            default:
                input.resize(at);
                break;
        }
    }
    if (input.size() > 4096) input.resize(4096);
}

}  // namespace

int main(int argc, char** argv) {
    std::uint64_t mutations = 0;
    std::uint64_t seed = 1;
    std::vector<Input> corpus;
    const std::string target = std::filesystem::path(argv[0]).filename().string();
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (word.starts_with("--mutations=")) {
            mutations = std::strtoull(word.c_str() + 12, nullptr, 10);
            continue;
        }
        if (word.starts_with("--seed=")) {
            seed = std::strtoull(word.c_str() + 7, nullptr, 10);
            continue;
        }
        std::vector<std::filesystem::path> files{word};
        if (std::filesystem::is_directory(word)) {
            files.clear();
            for (const auto& entry : std::filesystem::directory_iterator(word))
                files.push_back(entry.path());
            std::ranges::sort(files);
        }
        for (const auto& file : files) {
            std::ifstream stream(file, std::ios::binary);
            if (!stream) {
                std::fprintf(stderr, "%s: cannot read %s\n", target.c_str(), file.c_str());
                return 2;
            }
            corpus.emplace_back(std::istreambuf_iterator<char>(stream),
                                std::istreambuf_iterator<char>());
        }
    }
    if (corpus.empty()) {
        std::fprintf(stderr, "%s: no inputs; give a folder or a file\n", target.c_str());
        return 2;
    }
    openmana::base::set_log_level(openmana::base::LogLevel::kOff);
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(keep_input);
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(number, on_signal);
    openmana::base::Random random(seed);
    for (std::uint64_t i = 0; i < corpus.size() + mutations; ++i) {
        current = corpus[i % corpus.size()];
        if (i >= corpus.size()) mutate(current, corpus, random);
        std::snprintf(kept, sizeof kept, "crash-%s-%llu-%llu", target.c_str(),
                      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(i));
        LLVMFuzzerTestOneInput(current.data(), current.size());
    }
    std::printf("%s: %zu inputs and %llu mutations (seed %llu), no finding\n", target.c_str(),
                corpus.size(), static_cast<unsigned long long>(mutations),
                static_cast<unsigned long long>(seed));
    return 0;
}
