// SPDX-License-Identifier: Apache-2.0
// The host's memcpy by size: the speed that guest-to-guest RDMA is measured against. Prints JSON.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

// As `manalab bench` measures RDMA: the best of as many rounds, each of at least as many messages.
constexpr int kRounds = 3;
constexpr double kSecondsPerRound = 0.05;
constexpr std::size_t kBytesPerRound = std::size_t{1} << 33;
constexpr std::size_t kMostCopies = 20000;

// Gb/s of copies between two buffers of `size` bytes.
double measure(std::size_t size) {
    std::vector<char> from(size, 'x');
    std::vector<char> to(size, 'y');
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        const std::size_t least = std::min(kMostCopies * size, kBytesPerRound);
        std::size_t bytes = 0;
        double elapsed = 0;
        while (elapsed < kSecondsPerRound || bytes < least) {
            const std::size_t batch = std::max<std::size_t>(1, (std::size_t{1} << 20) / size);
            for (std::size_t i = 0; i < batch; ++i) {
                std::memcpy(to.data(), from.data(), size);
                asm volatile("" : : "r"(to.data()), "r"(from.data()) : "memory");
            }
            bytes += batch * size;
            elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
        }
        best = std::max(best, static_cast<double>(bytes) * 8 / elapsed / 1e9);
    }
    return best;
}

}  // namespace

int main() {
    std::printf("{\"unit\": \"Gb/s\", \"sizes\": {");
    const char* separator = "";
    for (std::size_t size = 2; size <= (std::size_t{8} << 20); size *= 2) {
        std::printf("%s\"%zu\": %.2f", separator, size, measure(size));
        separator = ", ";
    }
    std::printf("}}\n");
    return EXIT_SUCCESS;
}
