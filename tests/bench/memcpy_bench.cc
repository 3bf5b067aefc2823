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

constexpr int kRounds = 5;
constexpr double kSecondsPerRound = 0.05;

// Gb/s of copies between two buffers of `size` bytes: the best of a few rounds.
double measure(std::size_t size) {
    std::vector<char> from(size, 'x');
    std::vector<char> to(size, 'y');
    double best = 0;
    for (int round = 0; round < kRounds; ++round) {
        using Clock = std::chrono::steady_clock;
        const auto begin = Clock::now();
        std::size_t bytes = 0;
        double elapsed = 0;
        while (elapsed < kSecondsPerRound) {
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
