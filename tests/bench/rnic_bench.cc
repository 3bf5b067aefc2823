// SPDX-License-Identifier: Apache-2.0
// The RDMA data path without a VM: two NICs in one process, driven by a stand-in for driver and
// provider, on one thread and virtual time. The figures include the stand-in's own work.
#include <benchmark/benchmark.h>
#include <mana/rnic_queue.h>

#include <cstring>
#include <memory>
#include <vector>

#include "fabric/nic.h"
#include "fabric/switch.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kBuffer = 4U << 20;
constexpr std::uint32_t kAllAccess = 15;

/// A NIC with its driver, one buffer and one queue pair.
struct End {
    End(SimWorld& world, fabric::Switch& network, std::uint8_t number)
        : executor(world),
          ram(memory),
          nic(executor, memory, irq, network, config(number)),
          host(nic.function(), ram, irq, test_mac(number), ipv4_gid(number)) {}

    static fabric::NicConfig config(std::uint8_t number) {
        fabric::NicConfig config;
        config.name = number == 1 ? "a" : "b";
        config.mac = test_mac(number);
        return config;
    }
    bool bring_up() {
        if (!host.bring_up()) return false;
        buffer = ram.alloc(kBuffer);
        const auto region = host.hwc().create_mr(host.pd, buffer, kBuffer, kAllAccess);
        auto queue = host.create_cq(65536);
        if (!region || !queue) return false;
        mr = *region;
        cq = std::make_unique<DriverCq>(std::move(*queue));
        qp = host.create_rc(*cq, *cq, 65536, 4096);
        return qp != nullptr;
    }

    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    fabric::Nic nic;
    RdmaHost host;
    base::GuestAddr buffer{};
    DriverMr mr;
    std::unique_ptr<DriverCq> cq;
    std::unique_ptr<HostQp> qp;
};

/// WRITEs of range(0) bytes, one at a time, from the doorbell to the completion.
void write_local(benchmark::State& state) {
    const auto length = static_cast<std::uint32_t>(state.range(0));
    SimWorld world;
    fabric::Switch network(world);
    End a(world, network, 1);
    End b(world, network, 2);
    const bool ready =
        a.bring_up() && b.bring_up() &&
        a.host.connect(*a.qp, 1, {b.host.gid(), b.host.mac(), b.qp->qpn(), 1}, 4096) &&
        b.host.connect(*b.qp, 1, {a.host.gid(), a.host.mac(), a.qp->qpn(), 1}, 4096);
    if (!ready) {
        state.SkipWithError("set-up failed");
        return;
    }
    SendWr wr;
    wr.opcode = MANA_HW_RNIC_WQE_WRITE;
    wr.sges = {gdma::Sge{a.buffer.value(), gdma::Key(a.mr.lkey), length}};
    wr.remote_address = b.buffer.value();
    wr.rkey = b.mr.rkey;
    HostQp* const qps[] = {a.qp.get()};
    std::vector<Completion> done;
    for (auto _ : state) {
        done.clear();
        a.host.post_send(*a.qp, wr);
        for (int turn = 0; done.empty() && turn < 100; ++turn) {
            world.run_until_idle();
            a.host.poll(*a.cq, qps, done);
        }
        if (done.size() != 1 || done[0].vendor != 0) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    state.SetBytesProcessed(state.iterations() * length);
}
BENCHMARK(write_local)->Arg(8)->Arg(4096)->Arg(65536)->Arg(1 << 20);

/// The copy that such a WRITE cannot avoid.
void copy_alone(benchmark::State& state) {
    const auto length = static_cast<std::size_t>(state.range(0));
    std::vector<std::byte> from(kBuffer, std::byte{1});
    std::vector<std::byte> to(kBuffer);
    for (auto _ : state) {
        std::memcpy(to.data(), from.data(), length);
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy_alone)->Arg(8)->Arg(4096)->Arg(65536)->Arg(1 << 20);

}  // namespace
}  // namespace openmana::test

BENCHMARK_MAIN();
