// SPDX-License-Identifier: Apache-2.0
// Two QPs of one format on two CQs, for tests with real threads. The test is the device: whoever
// polls a CQ writes its CQEs first, by what the QP's records or rings say, as hardware would.
#pragma once

#include <dp_packet.h>
#include <mana/eth.h>

#include <mutex>

#include "provider_fixture.h"

namespace openmana::test {

inline constexpr std::uint32_t kRigDepth = 16;
inline constexpr std::uint32_t kRigEntries = 128;
/// What all receives get, and sends send; only what is registered of it may be looked at.
inline std::array<std::uint8_t, 8> rig_memory{};
inline const mana_dp_sge kRigSge{reinterpret_cast<std::uintptr_t>(rig_memory.data()), 8, 7};

/// What mana_cq has around the data path's CQ.
struct RigCq {
    RigCq(DoorbellSink& sink, const Tables& tables, bool extended)
        : cq(sink, tables, kRigEntries, extended) {
        mana_lock_init(&poll_lock, false);
    }
    TestCq cq;
    struct mana_lock poll_lock {};
};

/// Holds a lock of the provider.
class Held {
public:
    explicit Held(struct mana_lock& lock) : lock_(lock) { mana_lock(&lock_); }
    ~Held() { mana_unlock(&lock_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

private:
    struct mana_lock& lock_;
};

/// What all of them send: one SGE.
inline mana_dp_send rig_send(std::uint64_t id) {
    mana_dp_send wr{};
    wr.wr_id = id;
    wr.opcode = MANA_HW_EXT_WQE_SEND;
    wr.sge = &kRigSge;
    wr.sge_count = 1;
    return wr;
}

/// One QP, with its device. Posts return false when the queue takes no more.
class RigQp {
public:
    RigQp(RigCq& send_cq, RigCq& recv_cq) : send(&send_cq), recv(&recv_cq) {}
    virtual ~RigQp() = default;
    RigQp(const RigQp&) = delete;
    RigQp& operator=(const RigQp&) = delete;
    [[nodiscard]] virtual bool post_send(std::uint64_t id) = 0;
    [[nodiscard]] virtual bool post_recv(std::uint64_t id) = 0;
    /// CQEs for all that was posted. The caller holds the lock of the CQ's polls.
    virtual void complete_sends() = 0;
    virtual void complete_recvs() = 0;
    /// The device fails one direction.
    virtual void fail_sends() = 0;
    virtual void fail_recvs() = 0;
    /// What modify QP does: the state allows posts, or not.
    virtual void permit(bool allowed) = 0;
    /// RESET, and what the CQs hold of it is forgotten, one CQ after the other.
    virtual void reset() = 0;

    RigCq* const send;
    RigCq* const recv;
    /// The destroy command ended: no more CQEs. Under the locks of both CQs.
    bool gone = false;

protected:
    /// The rings of a stock or packet QP.
    static mana_dp_queues queues(QueueMemory& sq, QueueMemory& rq) {
        mana_dp_queues attr{};
        attr.max_send = attr.max_recv = kRigDepth;
        attr.max_send_sge = attr.max_recv_sge = 1;
        attr.signal_all = true;
        attr.sq = sq.data();
        attr.rq = rq.data();
        return attr;
    }
    void connect(mana_dp_qp& dp, DoorbellSink& sink) const {
        dp.doorbell = sink.page();
        dp.send_cq = &send->cq.dp;
        dp.recv_cq = &recv->cq.dp;
    }
    void forget(mana_dp_qp& dp) {
        for (RigCq* at : {send, recv}) {
            const Held held(at->poll_lock);
            mana_dp_cq_forget(&at->cq.dp, &dp);
        }
    }
};

class RigStockQp : public RigQp {
public:
    RigStockQp(enum mana_dp_format format, std::uint32_t index, DoorbellSink& sink,
               const Tables& tables, RigCq& send_cq, RigCq& recv_cq)
        : RigQp(send_cq, recv_cq),
          sq_id(0x800 + 16 * index),
          read_id(0x1800 + 16 * index),
          recv_id(0x2800 + 16 * index),
          sq_(4112),
          read_(4096),
          rq_(4096) {
        mana_stock_attr attr{};
        attr.format = format;
        attr.queues = queues(sq_, rq_);
        attr.read = read_.data();
        EXPECT_EQ(mana_stock_init(&qp, &attr), 0);
        qp.sends.ring.id = sq_id;
        qp.read.id = read_id;
        qp.receives.ring.id = qp.dp.qpn = recv_id;
        connect(qp.dp, sink);
        qp.send_side.posts = &sends_lock_;
        qp.recv_side.posts = &receives_lock_;
        qp.mtu = 1024;
        EXPECT_EQ(mana_dp_table_add(tables.sq.get(), sq_id, &qp.dp), 0);
        EXPECT_EQ(mana_dp_table_add(tables.rq.get(), recv_id, &qp.dp), 0);
        if (format == MANA_DP_RC) {
            EXPECT_EQ(mana_dp_table_add(tables.rq.get(), read_id, &qp.dp), 0);
        }
        qp.receives.allowed = qp.sends.allowed = true;
        mana_stock_start(&qp, kPsn);
        av_.stock_address = 0x9000;
    }
    ~RigStockQp() override { mana_stock_free(&qp); }
    bool post_send(std::uint64_t id) override { return post(rig_send(id)); }
    [[nodiscard]] bool post_read(std::uint64_t id) {
        mana_dp_send wr = rig_send(id);
        wr.opcode = MANA_HW_EXT_WQE_READ;
        return post(wr);
    }
    bool post_recv(std::uint64_t id) override {
        const Held held(receives_lock_);
        if (mana_stock_recv(&qp, id, &kRigSge, 1) != 0) return false;
        mana_stock_ring_recv(&qp, 1);
        return true;
    }
    void complete_sends() override {
        if (gone || sends_failed_) return;
        const std::uint32_t head = mana_load_acquire(&qp.sends.head);
        if (head == sent_) return;
        if (qp.dp.format == MANA_DP_RC) {
            send->cq.armed(read_id, kPsn + head - 1);
            sent_ = head;
            return;
        }
        mana_hw_rnic_ud_send_cqe cqe{};
        cqe.type_vendor = MANA_HW_RNIC_CQE_UD;
        for (; sent_ != head; ++sent_) send->cq.write(cqe, sq_id, true);
    }
    void complete_recvs() override {
        if (gone || recvs_failed_) return;
        const std::uint32_t head = mana_load_acquire(&qp.receives.head);
        for (; received_ != head; ++received_)
            recv->cq.received(
                recv_id, qp.dp.format == MANA_DP_RC ? MANA_HW_RNIC_CQE_SEND : MANA_HW_RNIC_CQE_UD,
                8, 32 * received_);
    }
    void fail_sends() override {
        if (gone || sends_failed_) return;
        send->cq.error(sq_id, true, 0x1c6, kPsn + sent_);
        sends_failed_ = true;
    }
    void fail_recvs() override {
        if (gone || recvs_failed_) return;
        recv->cq.error(recv_id, false, MANA_HW_RNIC_VE_FLUSHED, 0);
        recvs_failed_ = true;
    }
    void permit(bool allowed) override { mana_stock_permit(&qp, allowed, allowed); }
    void reset() override {
        forget(qp.dp);
        mana_stock_reset(&qp);
    }

    const std::uint32_t sq_id, read_id, recv_id;
    mana_stock_qp qp{};

private:
    bool post(mana_dp_send wr) {
        const Held held(sends_lock_);
        wr.av = &av_;
        if (mana_stock_send(&qp, &wr) != 0) return false;
        mana_stock_ring_send(&qp);
        return true;
    }
    static constexpr std::uint32_t kPsn = 100;
    QueueMemory sq_, read_, rq_;
    mana_dp_av av_{};
    struct mana_lock sends_lock_ {
    }, receives_lock_{};
    std::uint32_t sent_ = 0, received_ = 0;
    bool sends_failed_ = false, recvs_failed_ = false;
};

/// An SRQ with its lock, and how far the device is in it.
struct RigSrq {
    RigSrq() {
        EXPECT_EQ(mana_ext_srq_lay_out(kRigDepth, 1, &layout), 0);
        memory = std::make_unique<QueueMemory>(layout.bytes);
        EXPECT_EQ(mana_ext_srq_init(&locked.srq, kRigDepth, 1, &layout, memory->data()), 0);
        mana_lock_init(&locked.lock, false);
        locked.srq.lock = [](mana_ext_srq* srq) {
            mana_lock(&reinterpret_cast<Locked*>(srq)->lock);
        };
        locked.srq.unlock = [](mana_ext_srq* srq) {
            mana_unlock(&reinterpret_cast<Locked*>(srq)->lock);
        };
    }
    ~RigSrq() { mana_ext_srq_free(&locked.srq); }
    RigSrq(const RigSrq&) = delete;
    RigSrq& operator=(const RigSrq&) = delete;
    bool post(std::uint64_t id) {
        const Held held(locked.lock);
        if (mana_ext_srq_recv(&locked.srq, id, &kRigSge, 1) != 0) return false;
        mana_ext_srq_ring(&locked.srq);
        return true;
    }
    /// The device takes the next receive, if there is one: its cookie.
    std::optional<std::uint32_t> take() {
        const std::lock_guard lock(device);
        if (consumer == mana_load_acquire(&locked.srq.record->producer)) return std::nullopt;
        mana_hw_ext_receive wqe{};
        std::memcpy(
            &wqe,
            locked.srq.ring + std::size_t{consumer++ & (locked.srq.count - 1)} * locked.srq.stride,
            sizeof(wqe));
        return wqe.cookie;
    }
    struct Locked {
        mana_ext_srq srq{};  // first: the data path's callbacks get its address
        struct mana_lock lock {};
    };
    Locked locked;
    mana_ext_srq_layout layout{};
    std::unique_ptr<QueueMemory> memory;
    std::mutex device;
    std::uint32_t consumer = 0;
};

class RigExtQp : public RigQp {
public:
    RigExtQp(std::uint32_t index, DoorbellSink& sink, const Tables& tables, RigCq& send_cq,
             RigCq& recv_cq, RigSrq* srq)
        : RigQp(send_cq, recv_cq), srq_(srq) {
        mana_ext_attr attr{};
        attr.signal_all = true;
        attr.max_send = attr.max_recv = kRigDepth;
        attr.max_send_sge = attr.max_recv_sge = 1;
        attr.srq = srq != nullptr ? &srq->locked.srq : nullptr;
        mana_ext_layout layout{};
        EXPECT_EQ(mana_ext_lay_out(&attr, &layout), 0);
        memory_ = std::make_unique<QueueMemory>(layout.bytes);
        EXPECT_EQ(mana_ext_init(&qp, &attr, &layout, memory_->data()), 0);
        qp.sq_id = 0x700 + index;
        qp.dp.qpn = 0x300 + index;
        connect(qp.dp, sink);
        qp.can_send = true;
        qp.can_recv = srq == nullptr;
        EXPECT_EQ(mana_dp_table_add(tables.rq.get(), qp.dp.qpn, &qp.dp), 0);
    }
    ~RigExtQp() override { mana_ext_free(&qp); }
    bool post_send(std::uint64_t id) override {
        const mana_dp_send wr = rig_send(id);
        if (mana_ext_send(&qp, &wr) != 0) return false;
        mana_ext_ring_send(&qp);
        return true;
    }
    bool post_recv(std::uint64_t id) override {
        if (srq_ != nullptr) return srq_->post(id);
        if (mana_ext_recv(&qp, id, &kRigSge, 1) != 0) return false;
        mana_ext_ring_recv(&qp);
        return true;
    }
    void complete_sends() override {
        if (gone) return;
        const std::uint32_t posted = mana_load_acquire(&qp.record->sq_producer);
        for (; sent_ != posted; ++sent_)
            complete(*send, MANA_HW_EXT_WQE_SEND, sent_, sends_failed_);
    }
    void complete_recvs() override {
        if (gone) return;
        if (srq_ != nullptr) {
            while (const auto cookie = srq_->take())
                complete(*recv, MANA_HW_EXT_WC_RECV, *cookie, recvs_failed_);
            return;
        }
        const std::uint32_t posted = mana_load_acquire(&qp.record->rq_producer);
        for (; received_ != posted; ++received_)
            complete(*recv, MANA_HW_EXT_WC_RECV, received_ & (qp.rq_count - 1), recvs_failed_);
    }
    void fail_sends() override { sends_failed_ = true; }
    void fail_recvs() override { recvs_failed_ = true; }
    void permit(bool allowed) override {
        mana_ext_permit(&qp, allowed, allowed && srq_ == nullptr);
    }
    void reset() override {
        forget(qp.dp);
        mana_ext_reset(&qp);
    }
    mana_ext_qp qp{};

private:
    void complete(RigCq& at, std::uint8_t opcode, std::uint32_t cookie, bool failed) const {
        mana_hw_ext_cqe cqe{};
        cqe.type = MANA_HW_EXT_CQE;
        cqe.opcode = opcode;
        cqe.status = failed ? MANA_HW_WC_WR_FLUSH_ERR : MANA_HW_WC_SUCCESS;
        cqe.cookie = cookie;
        at.cq.write(cqe, qp.dp.qpn, opcode != MANA_HW_EXT_WC_RECV);
    }
    RigSrq* srq_;
    std::unique_ptr<QueueMemory> memory_;
    std::uint32_t sent_ = 0, received_ = 0;
    bool sends_failed_ = false, recvs_failed_ = false;
};

class RigPacketQp : public RigQp {
public:
    RigPacketQp(std::uint32_t index, DoorbellSink& sink, RigCq& send_cq, RigCq& recv_cq)
        : RigQp(send_cq, recv_cq), sq_(4096), rq_(4096), send_ring_(4096), recv_ring_(4096) {
        mana_packet_attr attr{};
        attr.queues = queues(sq_, rq_);
        attr.send_cq = send_ring_.data();
        attr.recv_cq = recv_ring_.data();
        mana_packet_layout layout{};
        EXPECT_EQ(mana_packet_lay_out(&attr, &layout), 0);
        EXPECT_EQ(mana_packet_init(&qp, &attr, &layout), 0);
        qp.dp.qpn = 0xc00000 + index;
        connect(qp.dp, sink);
        mana_packet_join(&send->cq.dp, &qp.send_side);
        mana_packet_join(&recv->cq.dp, &qp.recv_side);
        mana_packet_start(&qp, kSq + index, 0x20, kRq + index, 0x30);
        qp.sends.allowed = qp.receives.allowed = true;
    }
    ~RigPacketQp() override { mana_packet_free(&qp); }
    bool post_send(std::uint64_t id) override {
        const Held held(sq_lock_);
        const mana_dp_send wr = rig_send(id);
        if (mana_packet_send(&qp, &wr) != 0) return false;
        mana_packet_ring_send(&qp);
        return true;
    }
    bool post_recv(std::uint64_t id) override {
        const Held held(rq_lock_);
        if (mana_packet_recv(&qp, id, &kRigSge, 1) != 0) return false;
        mana_packet_ring_recv(&qp);
        return true;
    }
    void complete_sends() override {
        if (gone || ended_) return;
        const std::uint32_t head = mana_load_acquire(&qp.sends.head);
        mana_hw_eth_tx_cqe cqe{};
        cqe.type = MANA_HW_ETH_CQE_TX_OK | MANA_HW_ETH_CQE_CLIENT;
        for (; sent_ != head; ++sent_)
            write_cqe(qp.send_side.ring, qp.send_side.ring.entries + sent_, &cqe, qp.sends.ring.id,
                      true);
    }
    void complete_recvs() override {
        if (gone || ended_) return;
        const std::uint32_t head = mana_load_acquire(&qp.receives.head);
        mana_hw_eth_rx_cqe cqe{};
        cqe.type = MANA_HW_ETH_CQE_RX_OK | MANA_HW_ETH_CQE_CLIENT;
        cqe.packets[0].length = 60;
        for (; received_ != head; ++received_)
            write_cqe(qp.recv_side.ring, qp.recv_side.ring.entries + received_, &cqe,
                      qp.receives.ring.id, false);
    }
    /// Both directions end with the move to ERR, while nobody polls or arms.
    void fail_sends() override {
        if (gone || ended_) return;
        ended_ = true;
        mana_packet_end(&qp);
    }
    void fail_recvs() override { fail_sends(); }
    void permit(bool allowed) override {
        const Held sends(sq_lock_);
        const Held receives(rq_lock_);
        qp.sends.allowed = qp.receives.allowed = allowed;
    }
    void reset() override {
        for (const auto& [at, side] : {std::pair{send, &qp.send_side}, {recv, &qp.recv_side}}) {
            const Held polls(at->poll_lock);
            const Held armings(at->cq.dp.arm_lock);
            mana_packet_leave(&at->cq.dp, side);
        }
        permit(false);
        mana_packet_reset(&qp);
    }
    mana_packet_qp qp{};

private:
    static constexpr std::uint32_t kSq = 0x1440, kRq = 0x70;
    QueueMemory sq_, rq_, send_ring_, recv_ring_;
    struct mana_lock sq_lock_ {
    }, rq_lock_{};
    std::uint32_t sent_ = 0, received_ = 0;
    bool ended_ = false;
};

enum class RigFormat { kRc, kUd, kExtended, kSharedReceive, kPacket };

/// Two QPs of a format on the same two CQs.
class Rig {
public:
    explicit Rig(RigFormat format)
        : format_(format),
          send(sink_, tables_, format != RigFormat::kRc && format != RigFormat::kUd),
          recv(sink_, tables_, format != RigFormat::kRc && format != RigFormat::kUd) {
        sink_.forward = [](std::uint32_t, std::uint64_t) {};
        if (format == RigFormat::kSharedReceive) srq_.emplace();
        for (std::uint32_t i = 0; i < 2; ++i) qps[i] = make(i);
    }
    void register_memory() {
        mana_dp_region_enter(regions_.get(), &region_, kRigSge.lkey, kRigSge.address,
                             kRigSge.length);
    }
    /// The memory is its owner's alone then.
    void deregister_memory() {
        mana_dp_region_leave(&region_);
        rig_memory.fill(0x60);
    }
    const RigFormat format_;
    DoorbellSink sink_;
    Tables tables_;
    RigCq send, recv;
    std::optional<RigSrq> srq_;
    std::array<std::unique_ptr<RigQp>, 2> qps;

private:
    std::unique_ptr<mana_dp_regions> regions_ = std::make_unique<mana_dp_regions>();
    mana_dp_region region_{};
    std::unique_ptr<RigQp> make(std::uint32_t index) {
        // Of an SRQ the pollers of both CQs take receives.
        RigCq& receives = srq_ && index == 1 ? send : recv;
        switch (format_) {
            case RigFormat::kRc:
            case RigFormat::kUd: {
                auto qp = std::make_unique<RigStockQp>(
                    format_ == RigFormat::kRc ? MANA_DP_RC : MANA_DP_UD, index, sink_, tables_,
                    send, receives);
                qp->qp.regions = regions_.get();
                return qp;
            }
            case RigFormat::kExtended:
            case RigFormat::kSharedReceive:
                return std::make_unique<RigExtQp>(index, sink_, tables_, send, receives,
                                                  srq_ ? &*srq_ : nullptr);
            case RigFormat::kPacket:
                return std::make_unique<RigPacketQp>(index, sink_, send, receives);
        }
        return nullptr;
    }
};

}  // namespace openmana::test
