// SPDX-License-Identifier: Apache-2.0
// What encryption between two hosts costs: packets sealed and opened on one core, by size of the
// payload and of the batch.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/clock.h"
#include "esp/channel.h"

using namespace openmana;

namespace {

void require(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "esp_bench: %s\n", what);
    std::exit(1);
}

const base::SystemClock kClock;
const base::SystemCalendar kCalendar;

struct Host {
    explicit Host(std::uint8_t number) {
        esp::Channel::Config config;
        config.name = "bench";
        config.flow.sender = {{192, 0, 2, number}, 4500, false};
        config.flow.receiver = {{192, 0, 2, static_cast<std::uint8_t>(3 - number)}, 4500, false};
        auto ring = esp::KeyRing::parse(std::string(64, '1'), nullptr);
        require(ring.has_value(), "no key");
        auto made = esp::Channel::create(kClock, kCalendar, std::make_shared<esp::KeyStore>(*ring),
                                         std::move(config), counters);
        require(made.has_value(), "no channel");
        channel = std::move(*made);
    }
    esp::EspCounters counters;
    std::unique_ptr<esp::Channel> channel;
};

/// Packets of a batch, behind each other, as one system call sends them.
class Batch {
public:
    Batch(std::size_t payload, std::size_t count)
        : frame_(payload, std::byte{0x5a}),
          size_(esp::sealed_size(payload)),
          bytes_(size_ * count),
          results_(count) {
        for (std::size_t i = 0; i < count; ++i)
            packets_.push_back(std::span(bytes_).subspan(i * size_, size_));
    }
    void seal(Host& from) {
        auto batch = from.channel->begin(static_cast<std::uint32_t>(packets_.size()));
        require(batch.has_value(), "no SA");
        const std::span<const std::byte> parts[] = {frame_};
        for (const auto packet : packets_)
            require(batch->seal(parts, esp::NextHeader::kEthernet, packet.data()) == size_,
                    "not sealed");
    }
    void open(Host& at) {
        at.channel->open(packets_, results_);
        for (const auto& result : results_)
            require(result.verdict == esp::Verdict::kOpened, "not opened");
    }

private:
    const std::vector<std::byte> frame_;
    const std::size_t size_;
    std::vector<std::byte> bytes_;
    std::vector<std::span<std::byte>> packets_;
    std::vector<esp::Opened> results_;
};

void report(benchmark::State& state) {
    const std::int64_t packets = state.iterations() * state.range(1);
    state.SetItemsProcessed(packets);
    state.SetBytesProcessed(packets * state.range(0));
}

void seal(benchmark::State& state) {
    Host a(1);
    Batch batch(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)));
    for (auto _ : state) batch.seal(a);
    report(state);
}

void seal_and_open(benchmark::State& state) {
    Host a(1);
    Host b(2);
    Batch batch(static_cast<std::size_t>(state.range(0)), static_cast<std::size_t>(state.range(1)));
    for (auto _ : state) {
        batch.seal(a);
        batch.open(b);
    }
    report(state);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->ArgNames({"payload", "batch"});
    for (const int payload : {64, 1438, 4170, 8938})
        for (const int batch : {1, 16}) benchmark->Args({payload, batch});
}
BENCHMARK(seal)->Apply(sizes);
BENCHMARK(seal_and_open)->Apply(sizes);

}  // namespace

BENCHMARK_MAIN();
