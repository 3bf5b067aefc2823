// SPDX-License-Identifier: Apache-2.0
// The RDMA data path without a VM: two NICs in one process, driven by a stand-in for driver and
// provider, on one thread and virtual time. The figures include the stand-in's own work.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <mana/queue.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fabric/nic.h"
#include "fabric/switch.h"
#include "pci/endpoint.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/rdma_host.h"
#include "support/sim_executor.h"
#include "vfio_user/session.h"
#include "vfio_user/version.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kBuffer = 4U << 20;
constexpr std::uint32_t kAllAccess = 15;
constexpr std::uint32_t kSendRing = 65536;
constexpr std::uint32_t kMtu = 4096;
constexpr std::size_t kWqeBytes = 64;

/// What QEMU does with the guest's accesses: straight to the function, or, while writes are
/// gathered, as messages that the device finds in its socket together.
class Client final : public pci::FunctionModel {
public:
    Client(gdma::Function& function, base::GuestMemory& memory)
        : function_(function), endpoint_(memory, {}) {
        endpoint_.attach(function, function.gate());
        session_.emplace(endpoint_, counters_, "bench");
        const vfio_user::VersionHead version{vfio_user::kVersionMajor, vfio_user::kVersionMinor};
        std::vector<std::byte> hello;
        vfio_user::put_message(hello, 1, vfio_user::Command::kVersion, 0,
                               std::as_bytes(std::span(&version, 1)));
        std::copy(hello.begin(), hello.end(), session_->receive_room().begin());
        OM_CHECK(session_->receive(hello.size(), {}).has_value());
        session_->sent(session_->output().size());
    }
    void gather() { gathers_ = true; }
    /// The device gets what was gathered. False if it refuses.
    bool deliver() {
        gathers_ = false;
        const std::size_t bytes = std::exchange(gathered_, 0);
        return session_->receive(bytes, {}).has_value();
    }

    [[nodiscard]] std::uint64_t bar0_size() const override { return function_.bar0_size(); }
    void bar0_read(std::uint64_t offset, std::span<std::byte> data) override {
        function_.bar0_read(offset, data);
    }
    void bar0_write(std::uint64_t offset, std::span<const std::byte> data) override {
        if (!gathers_) {
            function_.bar0_write(offset, data);
            return;
        }
        struct {
            vfio_user::Header header;
            vfio_user::RegionAccess access;
            std::array<std::byte, 8> data;
        } message{{1, vfio_user::Command::kRegionWrite, sizeof message, vfio_user::kFlagNoReply, 0},
                  {offset, vfio_user::kRegionBar0, sizeof message.data},
                  {}};
        OM_CHECK(data.size() == sizeof message.data);
        std::memcpy(message.data.data(), data.data(), data.size());
        std::memcpy(session_->receive_room().data() + gathered_, &message, sizeof message);
        gathered_ += sizeof message;
    }
    void reset() override { function_.reset(); }

private:
    gdma::Function& function_;
    pci::Endpoint endpoint_;
    vfio_user::Counters counters_;
    std::optional<vfio_user::Session> session_;
    bool gathers_ = false;
    std::size_t gathered_ = 0;
};

/// A NIC with its driver, and one buffer.
struct End {
    End(SimWorld& world, fabric::Switch& network, std::uint8_t number, std::uint64_t ram_bytes)
        : executor(world),
          ram(memory, ram_bytes),
          nic(executor, memory, irq, network, config(number)),
          client(nic.function(), memory),
          host(client, ram, irq, test_mac(number), ipv4_gid(number)) {}

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
        return true;
    }

    /// A region at the buffer's addresses whose memory is in pages, none beside the one before.
    std::optional<DriverMr> scatter(std::uint64_t length) {
        const auto pages = ram.alloc_scattered(length / GuestRam::kPage);
        const auto region = host.hwc().create_region(pages, length);
        if (!region) return std::nullopt;
        return host.hwc().create_mr_of(host.pd, *region, buffer.value(), kAllAccess);
    }

    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    fabric::Nic nic;
    Client client;
    RdmaHost host;
    base::GuestAddr buffer{};
    DriverMr mr;
    std::unique_ptr<DriverCq> cq;
};

/// Two NICs, and connections between them.
struct Pair {
    explicit Pair(std::uint64_t ram_bytes = 64U << 20)
        : a(world, network, 1, ram_bytes), b(world, network, 2, ram_bytes) {}
    bool open(std::size_t connections, std::uint32_t send_ring) {
        if (!a.bring_up() || !b.bring_up()) return false;
        for (std::size_t i = 0; i < connections; ++i) {
            auto from = a.host.create_rc(*a.cq, *a.cq, send_ring, 4096);
            auto to = b.host.create_rc(*b.cq, *b.cq, 4096, 4096);
            if (!from || !to ||
                !b.host.connect(*to, 1, {a.host.gid(), a.host.mac(), from->qpn(), 1}, kMtu) ||
                !a.host.connect(*from, 1, {b.host.gid(), b.host.mac(), to->qpn(), 1}, kMtu))
                return false;
            qps.push_back(std::move(from));
            peers.push_back(std::move(to));
        }
        world.run_until_idle();
        return true;
    }

    SimWorld world;
    fabric::Switch network{world};
    End a, b;
    std::vector<std::unique_ptr<HostQp>> qps, peers;
};

/// Posts WRITEs as a provider does that has little to do: a work request of 64 bytes of which only
/// PSN and keys change, one doorbell for a list, and one completion for its last.
class Writer {
public:
    Writer(Pair& pair, HostQp& qp, std::uint32_t length) : pair_(pair), qp_(qp) {
        packets_ = std::max(1U, (length + kMtu - 1) / kMtu);
        psn_ = qp.next_psn;
        auto& words = template_;
        words[1] = kMtu << 16 | MANA_HW_OOB_LARGE << MANA_HW_WQE_OOB_CODE_SHIFT | 1;
        words[2] = MANA_HW_RNIC_WQE_WRITE | MANA_HW_RNIC_OOB_SIGNALED;
        words[4] = static_cast<std::uint32_t>(pair.b.buffer.value() >> 32);
        words[5] = static_cast<std::uint32_t>(pair.b.buffer.value());
        words[6] = pair.b.mr.rkey;
        words[7] = length;
        words[8] = static_cast<std::uint32_t>(pair.a.buffer.value());
        words[9] = static_cast<std::uint32_t>(pair.a.buffer.value() >> 32);
        words[10] = pair.a.mr.lkey;
        words[11] = length;
    }
    void use_keys(std::uint32_t lkey, std::uint32_t rkey) {
        template_[10] = lkey;
        template_[6] = rkey;
    }
    void post() {
        auto wqe = template_;
        wqe[2] |= psn_ << MANA_HW_RNIC_OOB_PSN_SHIFT;
        std::memcpy(qp_.send.ring.at(head_ % qp_.send.ring.bytes), wqe.data(), kWqeBytes);
        head_ += kWqeBytes;
        psn_ = (psn_ + packets_) & 0xffffff;
    }
    /// Reads the newest work requests, as the device would.
    void read_back(std::uint32_t count) {
        std::array<std::byte, kWqeBytes> wqe;
        for (std::uint32_t i = count; i > 0; --i) {
            std::memcpy(wqe.data(), qp_.send.ring.at((head_ - i * kWqeBytes) % qp_.send.ring.bytes),
                        wqe.size());
            benchmark::DoNotOptimize(wqe);
        }
    }
    /// Rings, and asks for the completion of the last. Its PSN.
    std::uint32_t ring() {
        pair_.a.host.hwc().ring_sq(qp_.send.page, qp_.send.id, head_);
        const std::uint32_t last = (psn_ - 1) & 0xffffff;
        pair_.a.host.arm_send(qp_, last);
        return last;
    }
    /// Rings, and waits for the completion of the last.
    bool finish() {
        const std::uint32_t last = ring();
        for (int turn = 0; turn < 1000; ++turn) {
            while (const auto cqe = pair_.a.cq->poll()) {
                if ((cqe->get<std::uint32_t>(0) & MANA_HW_RNIC_CQE_TYPE) != MANA_HW_RNIC_CQE_ARMED)
                    return false;
                if ((cqe->get<std::uint32_t>(8) & 0xffffff) == last) return true;
                pair_.a.host.arm_send(qp_, last);
            }
            pair_.world.run_until_idle();
        }
        return false;
    }

private:
    Pair& pair_;
    HostQp& qp_;
    std::array<std::uint32_t, kWqeBytes / 4> template_{};
    std::uint32_t packets_ = 1;
    std::uint32_t psn_ = 0;
    std::uint32_t head_ = 0;
};

/// Makes everything a frame.
class NoTap final : public fabric::FrameTap {
public:
    void frame(std::span<const std::byte>) override {}
};

/// Lists of `list` WRITEs of `length` bytes on one connection.
void write_lists(benchmark::State& state, Pair& pair, std::uint32_t length, int list,
                 bool pages = false) {
    if (!pair.open(1, kSendRing)) {
        state.SkipWithError("set-up failed");
        return;
    }
    Writer writer(pair, *pair.qps[0], length);
    if (pages) {
        const auto from = pair.a.scatter(length);
        const auto to = pair.b.scatter(length);
        if (!from || !to) {
            state.SkipWithError("no MR");
            return;
        }
        writer.use_keys(from->lkey, to->rkey);
    }
    for (auto _ : state) {
        for (int i = 0; i < list; ++i) writer.post();
        if (!writer.finish()) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * list);
    state.SetBytesProcessed(state.iterations() * list * length);
    state.counters["Gb/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()) * list * length * 8e-9,
                           benchmark::Counter::kIsRate);
}

/// WRITEs of range(0) bytes, one at a time, from the doorbell to the completion.
void write_local(benchmark::State& state) {
    Pair pair;
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 1);
}
BENCHMARK(write_local)->Arg(8)->Arg(4096)->Arg(65536)->Arg(1 << 20);

/// The same as lists of 64 with one doorbell.
void write_local_list(benchmark::State& state) {
    Pair pair;
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 64);
}
BENCHMARK(write_local_list)->Arg(8)->Arg(65536);

/// As write_local, with memory in single pages at both ends, as a guest's mostly is.
void write_pages(benchmark::State& state) {
    Pair pair;
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 1, true);
}
BENCHMARK(write_pages)->Arg(65536)->Arg(1 << 20);

/// Lists of 16 as RoCEv2 frames: cut, copied and with ICRC, through the switch, checked, placed
/// and acknowledged.
void write_wire(benchmark::State& state) {
    NoTap tap;
    Pair pair;
    pair.network.set_tap(tap);
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 16);
}
BENCHMARK(write_wire)->Arg(8)->Arg(4096)->Arg(65536);

/// Lists of 16 WRITEs of 8 bytes on range(0) connections in turn. Without `device` the work
/// requests are written, read once and never rung for: what the stand-in and the guest's memory
/// cost.
void lists_on_many_qps(benchmark::State& state, bool device) {
    const auto count = static_cast<std::size_t>(state.range(0));
    Pair pair((64U << 20) + count * (64U << 10));
    if (!pair.open(count, 4096)) {
        state.SkipWithError("set-up failed");
        return;
    }
    std::vector<Writer> writers;
    for (const auto& qp : pair.qps) writers.emplace_back(pair, *qp, 8);
    std::size_t next = 0;
    const auto list = [&] {
        Writer& writer = writers[next];
        next = (next + 7919) % count;  // not in the order of their memory
        for (int i = 0; i < 16; ++i) writer.post();
        if (device) return writer.finish();
        writer.read_back(16);
        return true;
    };
    // The first use of fresh memory is a matter of the system.
    for (std::size_t i = 0; i < std::max<std::size_t>(count, 1000); ++i)
        if (!list()) break;
    for (auto _ : state) {
        if (!list()) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * 16);
}
void write_many_qps(benchmark::State& state) {
    lists_on_many_qps(state, true);
}
BENCHMARK(write_many_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(40000);
void touch_many_qps(benchmark::State& state) {
    lists_on_many_qps(state, false);
}
BENCHMARK(touch_many_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(40000);

/// The same where the doorbells of kPending lists, and of as many connections, wait for the device
/// at a time, as they do when guests post faster than it works: each of the lists on a connection
/// of its own, rung and armed, as messages in the socket.
constexpr int kPending = 32;
double cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
void pending_lists(benchmark::State& state, bool device) {
    const auto count = static_cast<std::size_t>(state.range(0));
    const std::uint32_t ring = count >= kPending ? 4096 : kSendRing;
    Pair pair((64U << 20) + count * (64U << 10));
    if (!pair.open(count, ring)) {
        state.SkipWithError("set-up failed");
        return;
    }
    std::vector<Writer> writers;
    for (const auto& qp : pair.qps) writers.emplace_back(pair, *qp, 8);
    std::size_t next = 0;
    double in_device = 0;
    const auto burst = [&] {
        pair.a.client.gather();
        for (int pending = 0; pending < kPending; ++pending) {
            Writer& writer = writers[next];
            next = (next + 7919) % count;
            for (int i = 0; i < 16; ++i) writer.post();
            if (device)
                writer.ring();
            else
                writer.read_back(16);
        }
        if (!device) return true;
        const double before = cpu_seconds();
        if (!pair.a.client.deliver()) return false;
        pair.world.run_until_idle();
        in_device += cpu_seconds() - before;
        int done = 0;
        while (const auto cqe = pair.a.cq->poll())
            done += (cqe->get<std::uint32_t>(0) & MANA_HW_RNIC_CQE_TYPE) == MANA_HW_RNIC_CQE_ARMED;
        return done == kPending;
    };
    for (std::size_t i = 0; i < std::max<std::size_t>(count, 1000); i += kPending)
        if (!burst()) break;
    in_device = 0;
    for (auto _ : state) {
        if (!burst()) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * kPending * 16);
    if (device)
        state.counters["device_ns"] =
            in_device * 1e9 / (static_cast<double>(state.iterations()) * kPending * 16);
}
void write_pending_qps(benchmark::State& state) {
    pending_lists(state, true);
}
BENCHMARK(write_pending_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(2000);
void touch_pending_qps(benchmark::State& state) {
    pending_lists(state, false);
}
BENCHMARK(touch_pending_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(2000);

/// Lists of 16 WRITEs of 8 bytes, each with other keys at both ends, of range(0) regions. Without
/// `device` as above.
void lists_of_many_mrs(benchmark::State& state, bool device) {
    const auto count = static_cast<std::size_t>(state.range(0));
    Pair pair;
    if (!pair.open(1, kSendRing)) {
        state.SkipWithError("set-up failed");
        return;
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> keys;
    for (std::size_t i = 0; i < count; ++i) {
        const auto from =
            pair.a.host.hwc().create_mr(pair.a.host.pd, pair.a.buffer, 4096, kAllAccess);
        const auto to =
            pair.b.host.hwc().create_mr(pair.b.host.pd, pair.b.buffer, 4096, kAllAccess);
        if (!from || !to) {
            state.SkipWithError("no MR");
            return;
        }
        keys.emplace_back(from->lkey, to->rkey);
    }
    Writer writer(pair, *pair.qps[0], 8);
    std::size_t next = 0;
    const auto list = [&] {
        for (int i = 0; i < 16; ++i) {
            writer.use_keys(keys[next].first, keys[next].second);
            next = (next + 7919) % count;
            writer.post();
        }
        if (device) return writer.finish();
        writer.read_back(16);
        return true;
    };
    for (int i = 0; i < 1000; ++i)
        if (!list()) break;
    for (auto _ : state) {
        if (!list()) {
            state.SkipWithError("a WRITE did not complete");
            return;
        }
    }
    state.SetItemsProcessed(state.iterations() * 16);
}
void write_many_mrs(benchmark::State& state) {
    lists_of_many_mrs(state, true);
}
BENCHMARK(write_many_mrs)->Arg(1)->Arg(1000)->Arg(100000)->Iterations(40000);
void touch_many_mrs(benchmark::State& state) {
    lists_of_many_mrs(state, false);
}
BENCHMARK(touch_many_mrs)->Arg(1)->Arg(1000)->Arg(100000)->Iterations(40000);

/// Host memory that an idle connected queue pair takes, with its four regions of ring memory.
void idle_qp_memory(benchmark::State& state) {
    constexpr std::size_t kCount = 4000;
    for (auto _ : state) {
        Pair pair((64U << 20) + kCount * (64U << 10));
        if (!pair.open(1, 4096)) {
            state.SkipWithError("set-up failed");
            return;
        }
        const auto before = ::mallinfo2();
        for (std::size_t i = 0; i < kCount; ++i) {
            // What the stand-in keeps of it goes at once.
            const auto qp = pair.a.host.create_rc(*pair.a.cq, *pair.a.cq, 4096, 4096);
            if (!qp ||
                !pair.a.host.connect(*qp, 1, {pair.b.host.gid(), pair.b.host.mac(), 5, 1}, kMtu)) {
                state.SkipWithError("no QP");
                return;
            }
        }
        pair.world.run_until_idle();
        const auto after = ::mallinfo2();
        state.counters["bytes"] =
            static_cast<double>(after.uordblks - before.uordblks + (after.hblkhd - before.hblkhd)) /
            kCount;
    }
}
BENCHMARK(idle_qp_memory)->Iterations(1)->Unit(benchmark::kMillisecond);

/// The copy that a WRITE cannot avoid.
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
