// SPDX-License-Identifier: Apache-2.0
// What the provider's own work costs: posting and polling one WRITE in either format. The benchmark
// writes the completions, so no time of the device is in the figures.
#include <benchmark/benchmark.h>

#include <cstring>

#include "support/provider_host.h"

namespace openmana::test {
namespace {

constexpr std::uint32_t kEntries = 256;
constexpr std::uint32_t kRq = 4, kRead = 5, kSq = 8;

/// A CQ with its writer.
struct Queue {
    explicit Queue(bool extended) : ring(kEntries * 64 + 64) {
        auto* const record = reinterpret_cast<mana_hw_ext_cq_record*>(ring.data() + kEntries * 64);
        mana_dp_cq_init(&cq, ring.data(), kEntries, extended ? record : nullptr, tables.sq.get(),
                        tables.rq.get());
        cq.doorbell = sink.page();
        sink.forward = [](std::uint32_t, std::uint64_t) {};
    }
    template <typename T>
    void write(const T& data, std::uint32_t id) {
        mana_hw_cqe* const cqe = cq.ring + (produced & (kEntries - 1));
        std::memcpy(cqe->data, &data, sizeof data);
        cqe->word = id | (produced >> cq.shift & 7) << MANA_HW_OWNER_SHIFT;
        ++produced;
    }
    QueueMemory ring;
    Tables tables;
    DoorbellSink sink;
    mana_dp_cq cq{};
    std::uint32_t produced = kEntries;
};

mana_dp_send write_request(const mana_dp_sge& sge) {
    mana_dp_send wr{};
    wr.opcode = MANA_HW_EXT_WQE_WRITE;
    wr.flags = MANA_HW_EXT_WQE_SIGNALED;
    wr.sge = &sge;
    wr.sge_count = 1;
    wr.rkey = 1;
    return wr;
}

void post_poll_extended(benchmark::State& state) {
    Queue queue(true);
    mana_ext_attr attr{};
    attr.max_send = attr.max_recv = 64;
    attr.max_send_sge = attr.max_recv_sge = 1;
    mana_ext_layout layout{};
    if (mana_ext_lay_out(&attr, &layout) != 0) return state.SkipWithError("no layout");
    const QueueMemory rings(layout.bytes);
    mana_ext_qp qp{};
    if (mana_ext_init(&qp, &attr, &layout, rings.data()) != 0) return state.SkipWithError("no QP");
    qp.dp.qpn = kRq;
    qp.dp.doorbell = queue.sink.page();
    qp.dp.send_cq = qp.dp.recv_cq = &queue.cq;
    qp.can_send = true;
    (void)mana_dp_table_add(queue.tables.rq.get(), kRq, &qp.dp);
    const mana_dp_sge sge{0x1000, 8, 7};
    const mana_dp_send wr = write_request(sge);
    mana_hw_ext_cqe cqe{};
    cqe.type = MANA_HW_EXT_CQE;
    cqe.opcode = MANA_HW_EXT_WQE_WRITE;
    mana_completion c{};
    for (auto _ : state) {
        cqe.cookie = qp.sq_producer;
        if (mana_ext_send(&qp, &wr) != 0) state.SkipWithError("full");
        mana_ext_ring_send(&qp);
        queue.write(cqe, kRq);
        if (mana_dp_cq_poll(&queue.cq, &c) != 1) state.SkipWithError("no completion");
        mana_dp_cq_done(&queue.cq);
    }
    mana_ext_free(&qp);
}
BENCHMARK(post_poll_extended);

void post_poll_stock(benchmark::State& state) {
    Queue queue(false);
    mana_stock_attr attr{};
    attr.format = MANA_DP_RC;
    attr.queues.max_send = attr.queues.max_recv = 64;
    attr.queues.max_send_sge = attr.queues.max_recv_sge = 1;
    const QueueMemory sq(mana_stock_sq_bytes(MANA_DP_RC, 64, 1) + 16);
    const QueueMemory read(MANA_STOCK_READ_BYTES);
    const QueueMemory rq(mana_stock_rq_bytes(64, 1));
    attr.queues.sq = sq.data();
    attr.read = read.data();
    attr.queues.rq = rq.data();
    mana_stock_qp qp{};
    if (mana_stock_init(&qp, &attr) != 0) return state.SkipWithError("no QP");
    qp.sends.ring.id = kSq;
    qp.read.id = kRead;
    qp.receives.ring.id = qp.dp.qpn = kRq;
    qp.mtu = 1024;
    qp.dp.doorbell = queue.sink.page();
    qp.dp.send_cq = qp.dp.recv_cq = &queue.cq;
    (void)mana_dp_table_add(queue.tables.rq.get(), kRead, &qp.dp);
    mana_stock_start(&qp, 0);
    qp.sends.allowed = true;
    const mana_dp_sge sge{0x1000, 8, 7};
    const mana_dp_send wr = write_request(sge);
    mana_hw_rnic_armed_cqe cqe{};
    cqe.type = MANA_HW_RNIC_CQE_ARMED;
    mana_completion c{};
    for (auto _ : state) {
        cqe.psn = qp.next_psn;
        if (mana_stock_send(&qp, &wr) != 0) state.SkipWithError("full");
        mana_stock_ring_send(&qp);
        queue.write(cqe, kRead);
        if (mana_dp_cq_poll(&queue.cq, &c) != 1) state.SkipWithError("no completion");
        mana_dp_cq_done(&queue.cq);
    }
    mana_stock_free(&qp);
}
BENCHMARK(post_poll_stock);

}  // namespace
}  // namespace openmana::test

BENCHMARK_MAIN();
