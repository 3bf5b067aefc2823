// SPDX-License-Identifier: Apache-2.0
// The provider's data path on queues of the device library, in one process. For programs that link
// openmana_provider.
#pragma once

#include <dp_cq.h>
#include <mana/rnic.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "support/doorbell_sink.h"
#include "support/ext_host.h"
#include "support/hex.h"
#include "support/rdma_host.h"

namespace openmana::test {

/// Zeroed memory of a queue, aligned to a page as the provider's is.
class QueueMemory {
public:
    explicit QueueMemory(std::size_t bytes)
        : bytes_(bytes),
          data_(
              static_cast<std::uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) {
        std::memset(data_, 0, (bytes + 4095) / 4096 * 4096);
    }
    ~QueueMemory() { std::free(data_); }
    QueueMemory(const QueueMemory&) = delete;
    QueueMemory& operator=(const QueueMemory&) = delete;
    [[nodiscard]] std::uint8_t* data() const { return data_; }
    [[nodiscard]] std::size_t size() const { return bytes_; }
    [[nodiscard]] std::string hex(std::size_t offset, std::size_t length) const {
        return to_hex(std::as_bytes(std::span(data_ + offset, length)));
    }

private:
    std::size_t bytes_;
    std::uint8_t* data_;
};

/// The QPs of a context by queue id.
struct Tables {
    Tables() : sq(std::make_unique<mana_dp_table>()), rq(std::make_unique<mana_dp_table>()) {}
    ~Tables() {
        mana_dp_table_free(sq.get());
        mana_dp_table_free(rq.get());
    }
    Tables(const Tables&) = delete;
    Tables& operator=(const Tables&) = delete;
    std::unique_ptr<mana_dp_table> sq, rq;
};

/// What a context of the provider has of a device: the tables, and a doorbell page that leads to
/// the BAR of the driver's function.
struct ProviderContext {
    ProviderContext(HwcDriver& driver, std::uint32_t page) {
        sink.forward = [&driver, page](std::uint32_t offset, std::uint64_t value) {
            driver.write64(driver.doorbell_offset(page) + offset, value);
        };
    }
    DoorbellSink sink;
    Tables tables;
};

/// Polls until nothing is left, calls f(completion) for each; false if the ring was overrun.
template <typename F>
[[nodiscard]] bool poll_all(mana_dp_cq& cq, F&& f) {
    mana_completion c{};
    int got = 0;
    while ((got = mana_dp_cq_poll(&cq, &c)) > 0) f(c);
    mana_dp_cq_done(&cq);
    return got == 0;
}

/// What a StockProvider asks for at creation.
struct StockLimits {
    std::uint32_t wqes = 16;
    std::uint32_t sges = 2;
    std::uint32_t max_inline = 0;
    std::uint32_t cq_entries = 256;
};

/// A CQ and an RC QP in the public format: the stand-in for the driver creates them, the provider's
/// data path runs them.
class StockProvider {
public:
    StockProvider(RdmaHost& host, const StockLimits& limits)
        : host_(host), context_(host.hwc(), host.device.page) {
        const DriverCq handle = create_cq(limits.cq_entries);
        mana_stock_attr attr{};
        attr.format = MANA_DP_RC;
        attr.queues.max_send = attr.queues.max_recv = limits.wqes;
        attr.queues.max_send_sge = attr.queues.max_recv_sge = limits.sges;
        host_qp = host.create_rc(handle, handle,
                                 mana_stock_sq_bytes(MANA_DP_RC, limits.wqes, limits.sges),
                                 mana_stock_rq_bytes(limits.wqes, limits.sges));
        OM_CHECK(host_qp != nullptr);
        attr.queues.sq = bytes_of(host_qp->send.ring);
        attr.read = bytes_of(host_qp->read.ring);
        attr.queues.rq = bytes_of(host_qp->recv.ring);
        OM_CHECK(mana_stock_init(&qp, &attr) == 0);
        qp.sends.ring.id = host_qp->ids[0];
        qp.read.id = host_qp->ids[3];
        qp.receives.ring.id = qp.dp.qpn = host_qp->ids[4];
        qp.dp.doorbell = context_.sink.page();
        qp.dp.send_cq = qp.dp.recv_cq = &cq;
        const Tables& tables = context_.tables;
        OM_CHECK(mana_dp_table_add(tables.sq.get(), qp.sends.ring.id, &qp.dp) == 0);
        OM_CHECK(mana_dp_table_add(tables.rq.get(), qp.read.id, &qp.dp) == 0);
        OM_CHECK(mana_dp_table_add(tables.rq.get(), qp.receives.ring.id, &qp.dp) == 0);
        if (limits.max_inline > 0) add_inline_slots(limits);
    }
    ~StockProvider() { mana_stock_free(&qp); }
    StockProvider(const StockProvider&) = delete;
    StockProvider& operator=(const StockProvider&) = delete;

    [[nodiscard]] bool connect(std::uint32_t psn, const Peer& peer, std::uint32_t mtu) {
        if (!host_.connect(*host_qp, psn, peer, mtu)) return false;
        qp.mtu = mtu;
        mana_stock_start(&qp, psn);
        qp.sends.allowed = qp.receives.allowed = true;
        return true;
    }
    [[nodiscard]] int send(const mana_dp_send& wr) { return mana_stock_send(&qp, &wr); }
    void ring_send() { mana_stock_ring_send(&qp); }
    [[nodiscard]] int recv(std::uint64_t id, const mana_dp_sge& sge) {
        return mana_stock_recv(&qp, id, &sge, 1);
    }
    void ring_recv(std::uint32_t count) { mana_stock_ring_recv(&qp, count); }
    template <typename F>
    [[nodiscard]] bool poll(F&& f) {
        return poll_all(cq, f);
    }
    [[nodiscard]] const DoorbellSink& doorbells() const { return context_.sink; }

    mana_dp_cq cq{};
    mana_stock_qp qp{};
    std::unique_ptr<HostQp> host_qp;

private:
    static std::uint8_t* bytes_of(const RingMemory& ring) {
        return reinterpret_cast<std::uint8_t*>(ring.at(0));
    }
    DriverCq create_cq(std::uint32_t entries) {
        HwcDriver& hwc = host_.hwc();
        const RingMemory ring = hwc.alloc_ring(std::uint64_t{entries} * sizeof(mana_hw_cqe));
        Request request(MANA_HW_RNIC_CREATE_CQ, 64, 48, MANA_HW_RNIC_DEVICE_TYPE);
        request.put<std::uint64_t>(40, host_.adapter)
            .put<std::uint64_t>(48, hwc.create_region(ring).value())
            .put<std::uint32_t>(56, host_.eq.id)
            .put<std::uint32_t>(60, host_.device.page);
        const Response response = host_.call(request.fit());
        OM_CHECK(response.ok());
        mana_dp_cq_init(&cq, ring.at(0), entries, nullptr, context_.tables.sq.get(),
                        context_.tables.rq.get());
        cq.id = response.get<std::uint32_t>(40);
        cq.doorbell = context_.sink.page();
        DriverCq handle;
        handle.handle = response.get<std::uint64_t>(32);
        return handle;
    }
    /// Registered memory, as the provider has it for what its posts copy.
    void add_inline_slots(const StockLimits& limits) {
        const std::uint64_t bytes =
            std::uint64_t{mana_round_up_power(limits.wqes)} * limits.max_inline;
        const base::GuestAddr address = host_.ram().alloc(bytes);
        const auto region = host_.hwc().create_mr(host_.pd, address, bytes, gdma::kLocalRead);
        OM_CHECK(region.has_value());
        mana_dp_inline& slots = qp.sends.inline_slots;
        slots.base = reinterpret_cast<std::uint8_t*>(host_.ram().at(address));
        slots.address = address.value();
        slots.stride = limits.max_inline;
        slots.lkey = region->lkey;
    }

    RdmaHost& host_;
    ProviderContext context_;
};

/// The size of queues for these limits, as an ExtHost creates them.
inline ExtQpOptions queue_sizes(const mana_ext_attr& attr) {
    mana_ext_layout layout{};
    OM_CHECK(mana_ext_lay_out(&attr, &layout) == 0);
    ExtQpOptions options;
    options.sq_bytes = layout.sq_bytes;
    options.rq_bytes = layout.rq_bytes;
    options.stride = layout.rq_stride;
    return options;
}

/// The provider's data path on an extended QP and its CQs, which an ExtHost has made; both CQs may
/// be the same one. With an SRQ: of 64 receives of up to 3 SGEs.
class ExtProvider {
public:
    ExtProvider(HwcDriver& driver, const ExtCq& send_device, const ExtCq& recv_device,
                const ExtQp& device, mana_ext_attr attr, const ExtSrq* srq_device = nullptr)
        : context_(driver, device.page), has_srq_(srq_device != nullptr) {
        mana_dp_cq& receives = &send_device == &recv_device ? send_cq : recv_cq;
        init_cq(send_cq, send_device);
        if (&receives == &recv_cq) init_cq(recv_cq, recv_device);
        if (srq_device != nullptr) {
            mana_ext_srq_layout layout{};
            OM_CHECK(mana_ext_srq_lay_out(64, 3, &layout) == 0);
            OM_CHECK(layout.ring_bytes == srq_device->bytes && layout.stride == srq_device->stride);
            OM_CHECK(mana_ext_srq_init(&srq, 64, 3, &layout, srq_device->memory.ring.at(0)) == 0);
            attr.srq = &srq;
        }
        mana_ext_layout layout{};
        OM_CHECK(mana_ext_lay_out(&attr, &layout) == 0);
        OM_CHECK(mana_ext_init(&qp, &attr, &layout, device.memory.ring.at(0)) == 0);
        qp.sq_id = device.sq_id;
        qp.dp.qpn = device.qpn;
        qp.dp.doorbell = context_.sink.page();
        qp.dp.send_cq = &send_cq;
        qp.dp.recv_cq = &receives;
        qp.can_send = true;
        qp.can_recv = !has_srq_;
        OM_CHECK(mana_dp_table_add(context_.tables.rq.get(), qp.dp.qpn, &qp.dp) == 0);
    }
    ~ExtProvider() {
        mana_ext_free(&qp);
        if (has_srq_) mana_ext_srq_free(&srq);
    }
    ExtProvider(const ExtProvider&) = delete;
    ExtProvider& operator=(const ExtProvider&) = delete;

    [[nodiscard]] int send(const mana_dp_send& wr) { return mana_ext_send(&qp, &wr); }
    void ring_send() { mana_ext_ring_send(&qp); }
    [[nodiscard]] int recv(std::uint64_t id, const mana_dp_sge& sge) {
        return has_srq_ ? mana_ext_srq_recv(&srq, id, &sge, 1) : mana_ext_recv(&qp, id, &sge, 1);
    }
    void ring_recv(std::uint32_t) {
        if (has_srq_)
            mana_ext_srq_ring(&srq);
        else
            mana_ext_ring_recv(&qp);
    }
    /// The CQ of the sends, which may be that of the receives too.
    template <typename F>
    [[nodiscard]] bool poll(F&& f) {
        return poll_all(send_cq, f);
    }
    [[nodiscard]] const DoorbellSink& doorbells() const { return context_.sink; }

    mana_dp_cq send_cq{}, recv_cq{};
    mana_ext_srq srq{};
    mana_ext_qp qp{};

private:
    void init_cq(mana_dp_cq& cq, const ExtCq& device) {
        mana_dp_cq_init(&cq, device.memory.ring.at(0), device.entries,
                        reinterpret_cast<mana_hw_ext_cq_record*>(device.memory.record()),
                        context_.tables.sq.get(), context_.tables.rq.get());
    }

    ProviderContext context_;
    const bool has_srq_;
};

}  // namespace openmana::test
