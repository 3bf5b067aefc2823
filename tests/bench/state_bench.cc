// SPDX-License-Identifier: Apache-2.0
// What it takes to write the state of a NIC and to read it, by how many objects the guest has
// (docs/benchmarks.md). One NIC, one thread; the memory of its guest stays where it is.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "base/state.h"
#include "bench_nic.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kRam = 512U << 20;

/// A NIC with so many RC queue pairs, or so many memory regions of one page.
class Subject {
public:
    Subject(std::uint64_t qps, std::uint64_t mrs)
        : nic_(world_, switch_, 1, kRam),
          host_(nic_.nic.function(), nic_.ram, nic_.irq, test_mac(1), ipv4_gid(1)) {
        OM_CHECK(host_.bring_up());
        const auto cq = host_.create_cq();
        OM_CHECK(cq.has_value());
        for (std::uint64_t i = 0; i < qps; ++i) {
            qps_.push_back(host_.create_rc(*cq, *cq));
            OM_CHECK(qps_.back() != nullptr);
            OM_CHECK(
                host_.connect(*qps_.back(), 0x100, {ipv4_gid(2), test_mac(2), 0x100000, 0x900}));
        }
        const base::GuestAddr page = nic_.ram.alloc(4096);
        for (std::uint64_t i = 0; i < mrs; ++i)
            OM_CHECK(host_.hwc().create_mr(host_.pd, page, 4096, kAllAccess).has_value());
        world_.run_until_idle();
    }
    [[nodiscard]] std::vector<std::byte> save() const {
        base::StateWriter out(world_.now());
        nic_.nic.save(out);
        return std::move(out).finish();
    }
    /// Into a NIC beside it, which has no guest.
    void load(std::span<const std::byte> state, benchmark::State& timing) {
        timing.PauseTiming();
        auto other = std::make_unique<fabric::Nic>(nic_.executor, nic_.memory, nic_.irq, elsewhere_,
                                                   SimNic::config(1));
        timing.ResumeTiming();
        auto in = base::StateReader::open(state, world_.now());
        OM_CHECK(in && other->load(*in));
        timing.PauseTiming();
        other.reset();
        timing.ResumeTiming();
    }

private:
    SimWorld world_;
    fabric::Switch switch_{world_};
    fabric::Switch elsewhere_{world_};
    BenchNic nic_;
    RdmaHost host_;
    std::vector<std::unique_ptr<HostQp>> qps_;
};

void save(benchmark::State& timing, std::uint64_t qps, std::uint64_t mrs) {
    const Subject subject(qps, mrs);
    std::size_t bytes = 0;
    for (auto _ : timing) bytes = subject.save().size();
    timing.counters["bytes"] = static_cast<double>(bytes);
}

void load(benchmark::State& timing, std::uint64_t qps, std::uint64_t mrs) {
    Subject subject(qps, mrs);
    const std::vector<std::byte> state = subject.save();
    for (auto _ : timing) subject.load(state, timing);
    timing.counters["bytes"] = static_cast<double>(state.size());
}

void save_qps(benchmark::State& timing) {
    save(timing, static_cast<std::uint64_t>(timing.range(0)), 0);
}
void load_qps(benchmark::State& timing) {
    load(timing, static_cast<std::uint64_t>(timing.range(0)), 0);
}
void save_mrs(benchmark::State& timing) {
    save(timing, 0, static_cast<std::uint64_t>(timing.range(0)));
}
void load_mrs(benchmark::State& timing) {
    load(timing, 0, static_cast<std::uint64_t>(timing.range(0)));
}
BENCHMARK(save_qps)->RangeMultiplier(10)->Range(1, 10000)->Unit(benchmark::kMillisecond);
BENCHMARK(load_qps)->RangeMultiplier(10)->Range(1, 10000)->Unit(benchmark::kMillisecond);
BENCHMARK(save_mrs)->RangeMultiplier(10)->Range(1, 100000)->Unit(benchmark::kMillisecond);
BENCHMARK(load_mrs)->RangeMultiplier(10)->Range(1, 100000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace openmana::test

BENCHMARK_MAIN();
