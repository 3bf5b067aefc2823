// SPDX-License-Identifier: Apache-2.0
// The RDMA data path without a VM: two NICs in one process, driven by a stand-in for driver and
// provider, on one thread and virtual time. The figures include the stand-in's own work.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <mana/queue.h>
#include <mana/rnic_queue.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/bench_nic.h"
#include "pci/endpoint.h"
#include "vfio_user/session.h"
#include "vfio_user/version.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kBuffer = 4U << 20;
constexpr std::uint32_t kSendRing = 65536;
constexpr std::uint32_t kMtu = 4096;
constexpr std::size_t kWqeBytes = 64;
constexpr int kPending = 32;  // lists whose doorbells wait for the device

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
    /// The device gets what was gathered: together, or one message at a time, of which it has done
    /// one before it sees the next. False if it refuses.
    bool deliver(bool together) {
        gathers_ = false;
        const std::size_t messages = std::exchange(gathered_, 0);
        const std::size_t step = together ? messages : 1;
        for (std::size_t i = 0; i < messages; i += step) {
            const auto room = session_->receive_room();
            std::memcpy(room.data(), &messages_[i], step * sizeof(Message));
            if (!session_->receive(step * sizeof(Message), {})) return false;
        }
        return true;
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
        OM_CHECK(data.size() == sizeof(Message::data) && gathered_ < messages_.size());
        Message& message = messages_[gathered_++];
        message.header = {1, vfio_user::Command::kRegionWrite, sizeof message,
                          vfio_user::kFlagNoReply, 0};
        message.access = {offset, vfio_user::kRegionBar0, sizeof message.data};
        std::memcpy(message.data.data(), data.data(), data.size());
    }
    void reset() override { function_.reset(); }

private:
    struct Message {
        vfio_user::Header header;
        vfio_user::RegionAccess access;
        std::array<std::byte, 8> data;
    };
    gdma::Function& function_;
    pci::Endpoint endpoint_;
    vfio_user::Counters counters_;
    std::optional<vfio_user::Session> session_;
    bool gathers_ = false;
    std::array<Message, 2 * kPending> messages_{};
    std::size_t gathered_ = 0;
};

/// A NIC whose driver's accesses pass a Client.
struct End : BenchNic {
    End(SimWorld& world, fabric::Switch& network, std::uint8_t number, std::uint64_t ram_bytes)
        : BenchNic(world, network, number, ram_bytes),
          client(nic.function(), memory),
          host(client, ram, irq, test_mac(number), ipv4_gid(number)) {}
    bool bring_up() {
        if (!host.bring_up() || !add_buffer(host, kBuffer)) return false;
        auto queue = host.create_cq(65536);
        if (!queue) return false;
        cq = std::make_unique<DriverCq>(std::move(*queue));
        return true;
    }

    /// A region at the buffer's addresses whose memory is in pages, none beside the one before.
    std::optional<DriverMr> scatter(std::uint64_t length) {
        const auto pages = ram.alloc_scattered((length + GuestRam::kPage - 1) / GuestRam::kPage);
        const auto region = host.hwc().create_region(pages, length);
        if (!region) return std::nullopt;
        return host.hwc().create_mr_of(host.pd, *region, buffer.value(), kAllAccess);
    }

    Client client;
    RdmaHost host;
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
/// PSN and keys change, one doorbell for a list, and one completion for its last. It knows all it
/// needs itself, so that what many of them cost is not their own memory.
class alignas(64) Writer {
public:
    Writer(Pair& pair, HostQp& qp, std::uint32_t length)
        : pair_(pair),
          ring_(qp.send.ring.at(0)),
          ring_mask_(static_cast<std::uint32_t>(qp.send.ring.bytes - 1)),
          sq_(qp.send.id),
          page_(qp.send.page),
          completion_rq_(qp.ids[3]),
          packets_(std::max(1U, (length + kMtu - 1) / kMtu)),
          psn_(qp.next_psn) {
        const auto& pages = qp.send.ring.pages;
        OM_CHECK(pages.back() - pages.front() == (pages.size() - 1) * GuestRam::kPage);
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
        std::memcpy(ring_ + (head_ & ring_mask_), wqe.data(), kWqeBytes);
        head_ += kWqeBytes;
        psn_ = (psn_ + packets_) & 0xffffff;
    }
    /// Reads the newest work requests, as the device would.
    void read_back(std::uint32_t count) {
        std::array<std::byte, kWqeBytes> wqe;
        for (std::uint32_t i = count; i > 0; --i) {
            std::memcpy(wqe.data(), ring_ + ((head_ - i * kWqeBytes) & ring_mask_), wqe.size());
            benchmark::DoNotOptimize(wqe);
        }
    }
    /// Rings, and asks for the completion of the last. Its PSN.
    std::uint32_t ring() {
        pair_.a.host.hwc().ring_sq(page_, sq_, head_);
        const std::uint32_t last = (psn_ - 1) & 0xffffff;
        arm(last);
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
                arm(last);
            }
            pair_.world.run_until_idle();
        }
        return false;
    }

private:
    void arm(std::uint32_t psn) { pair_.a.host.hwc().ring_rq_client(page_, completion_rq_, psn); }

    std::array<std::uint32_t, kWqeBytes / 4> template_{};
    Pair& pair_;
    std::byte* const ring_;
    const std::uint32_t ring_mask_;
    const std::uint32_t sq_;
    const std::uint32_t page_;
    const std::uint32_t completion_rq_;
    const std::uint32_t packets_;
    std::uint32_t psn_;
    std::uint32_t head_ = 0;
};

double cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

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

/// WRITEs of range(0) bytes in lists of 64 with the write log and without it, by turns, each turn
/// with a log that has noted nothing yet. With range(1) memory is in single pages at both ends. The
/// counters: CPU time of a WRITE without it, and what one with it takes beside that, the median of
/// all rounds, the lowest and the highest.
void write_log(benchmark::State& state) {
    constexpr int kList = 64;
    constexpr double kBytesOfTurn = 512U << 20;
    const auto length = static_cast<std::uint32_t>(state.range(0));
    const int lists = static_cast<int>(std::min(2000.0, kBytesOfTurn / kList / length));
    Pair pair;
    if (!pair.open(1, kSendRing)) {
        state.SkipWithError("set-up failed");
        return;
    }
    Writer writer(pair, *pair.qps[0], length);
    if (state.range(1) != 0) {
        const auto from = pair.a.scatter(length);
        const auto to = pair.b.scatter(length);
        OM_CHECK(from && to);
        writer.use_keys(from->lkey, to->rkey);
    }
    const auto turn = [&](bool logs) {
        for (End* const end : {&pair.a, &pair.b}) {
            end->memory.log_no_writes();
            if (logs) OM_CHECK(end->memory.log_writes());
        }
        const double before = cpu_seconds();
        for (int i = 0; i < lists; ++i) {
            for (int n = 0; n < kList; ++n) writer.post();
            OM_CHECK(writer.finish());
        }
        return (cpu_seconds() - before) / (lists * kList) * 1e9;
    };
    (void)turn(true);
    (void)turn(false);
    std::vector<double> without, ratios;
    for (auto _ : state) {
        const bool logged_first = ratios.size() % 2 == 0;
        const double first = turn(logged_first);
        const double second = turn(!logged_first);
        without.push_back(logged_first ? second : first);
        ratios.push_back(logged_first ? first / second : second / first);
    }
    std::ranges::sort(without);
    std::ranges::sort(ratios);
    state.counters["without_ns"] = without[without.size() / 2];
    state.counters["ratio"] = ratios[ratios.size() / 2];
    state.counters["lowest"] = ratios.front();
    state.counters["highest"] = ratios.back();
}
BENCHMARK(write_log)
    ->ArgsProduct({{8, 4096, 65536, 1 << 20}, {0, 1}})
    ->Iterations(31)
    ->Unit(benchmark::kMillisecond);

/// Lists of 16 as RoCEv2 frames: cut, copied and with the ICRC that a capture has to show, through
/// the switch, checked, placed and acknowledged.
void write_wire(benchmark::State& state) {
    NoTap tap;
    Pair pair;
    pair.network.set_tap(tap);
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 16);
}
BENCHMARK(write_wire)->Arg(8)->Arg(4096)->Arg(65536);

/// The same past access rules that look at each frame, and a switch that nobody captures at.
void write_rules(benchmark::State& state) {
    Pair pair;
    fabric::PolicyConfig policy;
    policy.acl = *fabric::Acl::parse("deny rdma from any port 9");
    for (End* const end : {&pair.a, &pair.b}) end->nic.path().set_policy(policy, nullptr, {});
    write_lists(state, pair, static_cast<std::uint32_t>(state.range(0)), 16);
}
BENCHMARK(write_rules)->Arg(8)->Arg(4096)->Arg(65536);

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

/// How the doorbells of kPending lists, each on a connection of its own, come to the device.
enum class Arrival {
    kNever,     ///< as without `device` above
    kSingly,    ///< each when all before it is done
    kTogether,  ///< as messages in the socket, as when guests post faster than it works
};

/// The same, with the device's part by itself: first all lists are posted, then it gets their
/// doorbells, then the completions are polled. `device_ns` is the time that it takes for a WRITE.
void lists_and_device(benchmark::State& state, Arrival arrival) {
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
            if (arrival == Arrival::kNever)
                writer.read_back(16);
            else
                writer.ring();
        }
        if (arrival == Arrival::kNever) return true;
        const double before = cpu_seconds();
        if (!pair.a.client.deliver(arrival == Arrival::kTogether)) return false;
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
    const double writes = static_cast<double>(state.iterations()) * kPending * 16;
    state.SetItemsProcessed(state.iterations() * kPending * 16);
    if (arrival != Arrival::kNever) state.counters["device_ns"] = in_device * 1e9 / writes;
}
void write_single_qps(benchmark::State& state) {
    lists_and_device(state, Arrival::kSingly);
}
BENCHMARK(write_single_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(2000);
void write_pending_qps(benchmark::State& state) {
    lists_and_device(state, Arrival::kTogether);
}
BENCHMARK(write_pending_qps)->Arg(1)->Arg(100)->Arg(1000)->Arg(10000)->Iterations(2000);
void touch_pending_qps(benchmark::State& state) {
    lists_and_device(state, Arrival::kNever);
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

/// Bytes that this process has in memory, less those of the guests.
std::size_t host_memory(Pair& pair) {
    std::ifstream status("/proc/self/statm");
    std::size_t size = 0;
    std::size_t resident = 0;
    status >> size >> resident;
    for (End* const end : {&pair.a, &pair.b}) {
        std::vector<unsigned char> pages(end->ram.size() / GuestRam::kPage);
        OM_CHECK(::mincore(end->ram.at(end->ram.start()), end->ram.size(), pages.data()) == 0);
        resident -= static_cast<std::size_t>(
            std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
    }
    return resident * GuestRam::kPage;
}

/// Host memory that an idle connected queue pair takes, with its four regions of ring memory.
void idle_qp_memory(benchmark::State& state) {
    constexpr std::size_t kCount = 4000;
    for (auto _ : state) {
        Pair pair((64U << 20) + kCount * (64U << 10));
        if (!pair.open(1, 4096)) {
            state.SkipWithError("set-up failed");
            return;
        }
        (void)::malloc_trim(0);
        const std::size_t before = host_memory(pair);
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
        (void)::malloc_trim(0);
        state.counters["bytes"] = static_cast<double>(host_memory(pair) - before) / kCount;
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
