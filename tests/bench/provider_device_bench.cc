// SPDX-License-Identifier: Apache-2.0
// The provider's data path at both ends and two NICs of the device library between them, in one
// process, on one thread and virtual time: posting, doorbells, what the device does, polling. Each
// completion and what arrived are looked at; anything wrong ends the program with an error.
#include <benchmark/benchmark.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "bench/bench_nic.h"
#include "support/provider_host.h"

namespace openmana::test {
namespace {

constexpr std::uint64_t kBuffer = 8U << 20;
constexpr std::uint64_t kTargets = kBuffer / 2;  // of the buffer, where data arrives
constexpr std::uint64_t kBack = kBuffer / 4;     // of either half, the other direction's
constexpr std::uint32_t kWqes = 128;
constexpr std::uint32_t kInline = 64;
constexpr std::uint32_t kMtu = 4096;
constexpr std::uint32_t kCqEntries = 1024;
constexpr int kTurns = 1000;
constexpr int kWarmUp = 100;  // the first use of fresh memory is a matter of the system

/// Set by whatever went wrong, for the status of the program.
bool failed = false;

void fail(benchmark::State& state, const char* text) {
    failed = true;
    state.SkipWithError(text);
}

/// An end without the extension: PSNs, doorbells, armed completions.
struct Stock : BenchHost {
    Stock(SimWorld& world, fabric::Switch& network, std::uint8_t number)
        : BenchHost(world, network, number, false) {}
    [[nodiscard]] bool open() {
        if (!bring_up(kBuffer)) return false;
        StockLimits limits;
        limits.wqes = kWqes;
        limits.sges = 1;
        limits.max_inline = kInline;
        limits.cq_entries = kCqEntries;
        provider = std::make_unique<StockProvider>(host, limits);
        return true;
    }
    [[nodiscard]] bool connect(const Peer& peer) { return provider->connect(1, peer, kMtu); }
    std::unique_ptr<StockProvider> provider;
};

/// An end with it: doorbell records, a completion for each send.
struct Extended : BenchHost {
    Extended(SimWorld& world, fabric::Switch& network, std::uint8_t number)
        : BenchHost(world, network, number, true) {}
    [[nodiscard]] bool open() {
        if (!bring_up(kBuffer)) return false;
        mana_ext_attr attr{};
        attr.max_send = attr.max_recv = kWqes;
        attr.max_send_sge = attr.max_recv_sge = 1;
        attr.max_inline = kInline;
        auto made_cq = ext.create_cq(kCqEntries);
        if (!made_cq) return false;
        cq = std::move(*made_cq);
        auto made_qp = ext.create_qp(cq, cq, queue_sizes(attr));
        if (!made_qp) return false;
        qp = std::move(*made_qp);
        provider = std::make_unique<ExtProvider>(host.hwc(), cq, cq, qp, attr);
        return true;
    }
    [[nodiscard]] bool connect(const Peer& peer) {
        ExtPath path;
        path.mtu = kMtu;
        return ext.connect(qp, 1, peer, path);
    }
    ExtHost ext{host};
    ExtCq cq;
    ExtQp qp;
    std::unique_ptr<ExtProvider> provider;
};

/// Two ends and a connection. Without `local` messages go as frames through the switch.
template <typename End>
struct Link {
    explicit Link(bool local) {
        if (!local) network.set_tap(tap);
    }
    [[nodiscard]] bool open() {
        if (!a.open() || !b.open() || !a.connect(peer(b)) || !b.connect(peer(a))) return false;
        world.run_until_idle();
        return true;
    }
    [[nodiscard]] static Peer peer(const End& end) {
        return {end.host.gid(), end.host.mac(), end.provider->qp.dp.qpn, 1};
    }
    SimWorld world;
    NoTap tap;
    fabric::Switch network{world};
    End a{world, network, 1}, b{world, network, 2};
};

struct Work {
    std::uint8_t opcode = MANA_HW_EXT_WQE_WRITE;
    std::uint32_t length = 8;
    std::uint32_t list = 1;    ///< work requests with one doorbell
    bool inline_data = false;  ///< from memory of the application that is not registered
    std::uint64_t place = 0;   ///< in both halves of the buffers
};

/// Lists of the same work request from one end of a link to the other, each with other data.
template <typename End>
class Flow {
public:
    Flow(SimWorld& world, End& from, End& to, const Work& work)
        : world_(world),
          from_(from),
          to_(to),
          work_(work),
          reads_(work.opcode == MANA_HW_EXT_WQE_READ),
          sends_(work.opcode == MANA_HW_EXT_WQE_SEND),
          // Long messages have one place for all, as perftest's have.
          slots_(work.length <= 4096 ? work.list : 1),
          stride_((work.length + 63) / 64 * 64),
          stamps_(slots_) {
        OM_CHECK(slots_ * stride_ <= kBack && work.list <= kWqes);
        OM_CHECK(!work.inline_data || (stride_ == kInline && slots_ <= kWqes));
        source_ = work.inline_data ? texts_.data()
                                   : reinterpret_cast<std::uint8_t*>(memory(data_from(), 0));
        target_ = reinterpret_cast<std::uint8_t*>(memory(data_to(), kTargets));
        std::minstd_rand random(work.length);
        for (std::uint64_t i = 0; i < slots_ * stride_; ++i) {
            source_[i] = static_cast<std::uint8_t>(random());
            target_[i] = static_cast<std::uint8_t>(~source_[i]);
        }
        wr_.opcode = work.opcode;
        wr_.flags = MANA_HW_EXT_WQE_SIGNALED;
        if (work.inline_data) wr_.flags |= MANA_HW_EXT_WQE_INLINE;
        wr_.sge = &sge_;
        wr_.sge_count = 1;
        wr_.rkey = to.mr.rkey;
        sge_.length = work.length;
        sge_.lkey = work.inline_data ? 0 : from.mr.lkey;
        begin_counting();
    }

    /// One list: posted, rung for, completed, arrived. False if anything was wrong.
    [[nodiscard]] bool list() {
        if (sends_ && !post_receives()) return false;
        for (std::uint32_t i = 0; i < work_.list; ++i)
            if (!post(i % slots_)) return wrong("a work request was refused");
        from_.provider->ring_send();
        for (int turn = 0; turn < kTurns && error_ == nullptr; ++turn) {
            world_.run_until_idle();
            if (!from_.provider->poll([this](const mana_completion& c) { sent(c); }) ||
                (sends_ && !to_.provider->poll([this](const mana_completion& c) { received(c); })))
                return wrong("a completion queue was overrun");
            if (completed_ == posted_ && (!sends_ || received_ == posted_)) return stamps_came();
        }
        return wrong("a work request did not complete");
    }
    void begin_counting() {
        posted_before_ = posted_;
        operations_before_ = operations();
        bytes_before_ = bytes();
        doorbells_before_ = from_.provider->doorbells().count;
    }
    /// What the device says that it did since is what was posted, and all data is there.
    [[nodiscard]] bool check() {
        const std::uint64_t requests = posted_ - posted_before_;
        if (executed() != requests) return wrong("the device executed other than what was posted");
        if (moved() != requests * work_.length) return wrong("the device moved other data");
        for (std::uint64_t slot = 0; slot < slots_; ++slot)
            if (std::memcmp(source_ + slot * stride_, target_ + slot * stride_, work_.length) != 0)
                return wrong("other data arrived");
        return true;
    }
    [[nodiscard]] const char* error() const { return error_; }
    [[nodiscard]] std::uint64_t executed() const { return operations() - operations_before_; }
    [[nodiscard]] std::uint64_t moved() const { return bytes() - bytes_before_; }
    [[nodiscard]] std::uint64_t doorbells() const {
        return from_.provider->doorbells().count - doorbells_before_;
    }

private:
    [[nodiscard]] bool wrong(const char* text) {
        if (error_ == nullptr) error_ = text;
        return false;
    }
    [[nodiscard]] End& data_from() const { return reads_ ? to_ : from_; }
    [[nodiscard]] End& data_to() const { return reads_ ? from_ : to_; }
    [[nodiscard]] std::byte* memory(End& end, std::uint64_t half) {
        return end.ram.at(end.buffer + half + work_.place);
    }
    /// Where a slot of the sources or targets is for the device.
    [[nodiscard]] std::uint64_t address(const End& end, std::uint64_t half,
                                        std::uint64_t slot) const {
        return end.buffer.value() + half + work_.place + slot * stride_;
    }
    /// What the responder's end did.
    [[nodiscard]] std::uint64_t operations() const {
        const rnic::RnicCounters& counters = to_.nic.rdma().counters();
        return (reads_   ? counters.rx_reads
                : sends_ ? counters.rx_sends
                         : counters.rx_writes)
            .value();
    }
    [[nodiscard]] std::uint64_t bytes() const {
        return data_to().nic.rdma().counters().rx_bytes.value();
    }
    [[nodiscard]] bool post_receives() {
        for (std::uint32_t i = 0; i < work_.list; ++i) {
            const mana_dp_sge sge{address(to_, kTargets, i % slots_), work_.length, to_.mr.lkey};
            if (to_.provider->recv(posted_ + i, sge) != 0) return wrong("a receive was refused");
        }
        to_.provider->ring_recv(work_.list);
        return true;
    }
    [[nodiscard]] bool post(std::uint64_t slot) {
        stamps_[slot] = ++stamp_;
        std::memcpy(source_ + slot * stride_, &stamp_, sizeof stamp_);
        if (work_.inline_data)
            sge_.address = reinterpret_cast<std::uint64_t>(source_ + slot * stride_);
        else
            sge_.address = address(from_, reads_ ? kTargets : 0, slot);
        wr_.remote_address = address(to_, reads_ ? 0 : kTargets, slot);
        wr_.wr_id = posted_;
        if (from_.provider->send(wr_) != 0) return false;
        ++posted_;
        return true;
    }
    void sent(const mana_completion& c) {
        const std::uint8_t opcode = reads_   ? MANA_WC_RDMA_READ
                                    : sends_ ? MANA_WC_SEND
                                             : MANA_WC_RDMA_WRITE;
        if (c.status != MANA_HW_WC_SUCCESS || c.opcode != opcode || c.wr_id != completed_ ||
            c.qpn != from_.provider->qp.dp.qpn)
            (void)wrong("a wrong completion of a send");
        ++completed_;
    }
    void received(const mana_completion& c) {
        if (c.status != MANA_HW_WC_SUCCESS || c.opcode != MANA_WC_RECV || c.wr_id != received_ ||
            c.qpn != to_.provider->qp.dp.qpn || c.length != work_.length)
            (void)wrong("a wrong completion of a receive");
        ++received_;
    }
    [[nodiscard]] bool stamps_came() {
        for (std::uint64_t slot = 0; slot < slots_; ++slot) {
            std::uint64_t found = 0;
            std::memcpy(&found, target_ + slot * stride_, sizeof found);
            if (found != stamps_[slot]) return wrong("old data arrived");
        }
        return error_ == nullptr;
    }

    SimWorld& world_;
    End& from_;
    End& to_;
    const Work work_;
    const bool reads_, sends_;
    const std::uint64_t slots_, stride_;
    std::vector<std::uint64_t> stamps_;  // the newest of each slot
    std::array<std::uint8_t, std::size_t{kWqes} * kInline> texts_{};
    std::uint8_t* source_ = nullptr;
    std::uint8_t* target_ = nullptr;
    mana_dp_sge sge_{};
    mana_dp_send wr_{};
    std::uint64_t stamp_ = 0;
    std::uint64_t posted_ = 0, completed_ = 0, received_ = 0;
    std::uint64_t posted_before_ = 0, operations_before_ = 0, bytes_before_ = 0;
    std::uint64_t doorbells_before_ = 0;
    const char* error_ = nullptr;
};

/// Lists of work requests from A to B.
template <typename End>
void run(benchmark::State& state, const Work& work, bool local = true) {
    Link<End> link(local);
    if (!link.open()) return fail(state, "set-up failed");
    Flow<End> flow(link.world, link.a, link.b, work);
    for (int i = 0; i < kWarmUp; ++i)
        if (!flow.list()) return fail(state, flow.error());
    flow.begin_counting();
    for (auto _ : state)
        if (!flow.list()) return fail(state, flow.error());
    if (!flow.check()) return fail(state, flow.error());
    const auto requests = static_cast<std::int64_t>(state.iterations()) * work.list;
    state.SetItemsProcessed(requests);
    state.SetBytesProcessed(requests * work.length);
    state.counters["device_ops"] = static_cast<double>(flow.executed());
    state.counters["device_bytes"] = static_cast<double>(flow.moved());
    state.counters["doorbells"] = static_cast<double>(flow.doorbells());
}

Work work_of(const benchmark::State& state, std::uint8_t opcode) {
    Work work;
    work.opcode = opcode;
    work.length = static_cast<std::uint32_t>(state.range(0));
    work.list = static_cast<std::uint32_t>(state.range(1));
    return work;
}

template <typename End>
void write(benchmark::State& state) {
    run<End>(state, work_of(state, MANA_HW_EXT_WQE_WRITE));
}
BENCHMARK_TEMPLATE(write, Extended)->ArgsProduct({{8, 65536}, {1, 32}});
BENCHMARK_TEMPLATE(write, Stock)->ArgsProduct({{8, 65536}, {1, 32}});

template <typename End>
void write_inline(benchmark::State& state) {
    Work work = work_of(state, MANA_HW_EXT_WQE_WRITE);
    work.inline_data = true;
    run<End>(state, work);
}
BENCHMARK_TEMPLATE(write_inline, Extended)->ArgsProduct({{8}, {1, 32}});
BENCHMARK_TEMPLATE(write_inline, Stock)->ArgsProduct({{8}, {1, 32}});

template <typename End>
void send(benchmark::State& state) {
    run<End>(state, work_of(state, MANA_HW_EXT_WQE_SEND));
}
BENCHMARK_TEMPLATE(send, Extended)->ArgsProduct({{8, 65536}, {1, 32}});
BENCHMARK_TEMPLATE(send, Stock)->ArgsProduct({{8, 65536}, {1, 32}});

template <typename End>
void read(benchmark::State& state) {
    run<End>(state, work_of(state, MANA_HW_EXT_WQE_READ));
}
BENCHMARK_TEMPLATE(read, Extended)->ArgsProduct({{8, 65536}, {1, 32}});
BENCHMARK_TEMPLATE(read, Stock)->ArgsProduct({{8, 65536}, {1, 32}});

/// As `write`, by RoCEv2 frames.
template <typename End>
void write_wire(benchmark::State& state) {
    run<End>(state, work_of(state, MANA_HW_EXT_WQE_WRITE), false);
}
BENCHMARK_TEMPLATE(write_wire, Extended)->ArgsProduct({{8, 65536}, {32}});
BENCHMARK_TEMPLATE(write_wire, Stock)->ArgsProduct({{8, 65536}, {32}});

/// There and back, each to its completion and to the other end's knowledge of it: `one_way` is half
/// of the time for both.
template <typename End>
void ping_pong(benchmark::State& state, std::uint8_t opcode) {
    Link<End> link(true);
    if (!link.open()) return fail(state, "set-up failed");
    Work work;
    work.opcode = opcode;
    Flow<End> ping(link.world, link.a, link.b, work);
    work.place = kBack;
    Flow<End> pong(link.world, link.b, link.a, work);
    for (int i = 0; i < kWarmUp; ++i)
        if (!ping.list() || !pong.list()) return fail(state, "nothing went there and back");
    ping.begin_counting();
    pong.begin_counting();
    for (auto _ : state) {
        if (!ping.list()) return fail(state, ping.error());
        if (!pong.list()) return fail(state, pong.error());
    }
    if (!ping.check()) return fail(state, ping.error());
    if (!pong.check()) return fail(state, pong.error());
    state.counters["one_way"] =
        benchmark::Counter(2 * static_cast<double>(state.iterations()),
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
    state.counters["device_ops"] = static_cast<double>(ping.executed() + pong.executed());
    state.counters["device_bytes"] = static_cast<double>(ping.moved() + pong.moved());
    state.counters["doorbells"] = static_cast<double>(ping.doorbells() + pong.doorbells());
}
template <typename End>
void write_ping_pong(benchmark::State& state) {
    ping_pong<End>(state, MANA_HW_EXT_WQE_WRITE);
}
BENCHMARK_TEMPLATE(write_ping_pong, Extended);
BENCHMARK_TEMPLATE(write_ping_pong, Stock);
template <typename End>
void send_ping_pong(benchmark::State& state) {
    ping_pong<End>(state, MANA_HW_EXT_WQE_SEND);
}
BENCHMARK_TEMPLATE(send_ping_pong, Extended);
BENCHMARK_TEMPLATE(send_ping_pong, Stock);

}  // namespace
}  // namespace openmana::test

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return ran == 0 || openmana::test::failed ? 1 : 0;
}
