// SPDX-License-Identifier: Apache-2.0
// WRITEs of extended queues (docs/extensions.md): posted in memory and found there, without a
// doorbell but for the first. Set up as the others of rnic_bench.cc.
#include <benchmark/benchmark.h>
#include <mana/ext.h>

#include "bench/bench_nic.h"
#include "support/ext_host.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kBuffer = 1U << 20;

struct ExtEnd : BenchHost {
    ExtEnd(SimWorld& world, fabric::Switch& network, std::uint8_t number)
        : BenchHost(world, network, number, true) {}
    bool bring_up() {
        if (!BenchHost::bring_up(kBuffer)) return false;
        auto queue = ext.create_cq(4096);
        if (!queue) return false;
        cq = std::move(*queue);
        ExtQpOptions options;
        options.sq_bytes = 65536;
        auto made = ext.create_qp(cq, cq, options);
        if (!made) return false;
        qp = std::move(*made);
        return true;
    }
    [[nodiscard]] Peer peer() const { return {host.gid(), host.mac(), qp.qpn, 1}; }

    ExtHost ext{host};
    ExtCq cq;
    ExtQp qp;
};

/// range(1) WRITEs of range(0) bytes a time, from the record to the completions.
void write_record(benchmark::State& state) {
    const auto length = static_cast<std::uint32_t>(state.range(0));
    const auto list = static_cast<std::size_t>(state.range(1));
    SimWorld world;
    fabric::Switch network(world);
    ExtEnd a(world, network, 1);
    ExtEnd b(world, network, 2);
    ExtPath path;
    path.mtu = 4096;
    if (!a.bring_up() || !b.bring_up() || !a.ext.connect(a.qp, 1, b.peer(), path) ||
        !b.ext.connect(b.qp, 1, a.peer(), path)) {
        state.SkipWithError("set-up failed");
        return;
    }
    ExtWr wr;
    wr.opcode = MANA_HW_EXT_WQE_WRITE;
    wr.sges = {gdma::Sge{a.buffer.value(), gdma::Key(a.mr.lkey), length}};
    wr.remote_address = b.buffer.value();
    wr.rkey = b.mr.rkey;
    const auto wqe = wr.wqe();
    for (auto _ : state) {
        for (std::size_t i = 0; i < list; ++i) a.ext.post_raw(a.qp, wqe);
        std::size_t done = 0;
        for (int turn = 0; done < list && turn < 100; ++turn) {
            world.run_until_idle();
            while (const auto cqe = a.cq.poll()) done += cqe->status == 0 ? 1 : 0;
        }
        if (done != list) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    const auto requests = static_cast<std::int64_t>(state.iterations()) * state.range(1);
    state.SetItemsProcessed(requests);
    state.SetBytesProcessed(requests * state.range(0));
    state.counters["doorbells"] = static_cast<double>(a.qp.doorbells);
}
BENCHMARK(write_record)->Args({8, 1})->Args({8, 64})->Args({4096, 1})->Args({65536, 1});

}  // namespace
}  // namespace openmana::test
