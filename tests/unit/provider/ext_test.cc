// SPDX-License-Identifier: Apache-2.0
// The extended format with the test as the device: bytes, indices, limits.
#include "provider_fixture.h"

namespace openmana::test {
namespace {

using Rung = std::vector<DoorbellSink::Write>;
constexpr std::uint32_t kQpn = 0x321, kSq = 0x654;

class ExtTest : public ::testing::Test {
protected:
    ExtTest() : cq(sink, tables, 64, true) { open({}); }
    ~ExtTest() override { mana_ext_free(&qp); }
    static mana_ext_attr attributes() {
        mana_ext_attr attr{};
        attr.max_send = attr.max_recv = 8;
        attr.max_send_sge = attr.max_recv_sge = 2;
        return attr;
    }
    void open(std::optional<mana_ext_attr> wanted) {
        if (memory) {
            mana_dp_table_remove(tables.rq.get(), kQpn, &qp.dp);
            mana_dp_cq_forget(&cq.dp, &qp.dp);
            mana_ext_free(&qp);
        }
        const mana_ext_attr attr = wanted.value_or(attributes());
        ASSERT_EQ(mana_ext_lay_out(&attr, &layout), 0);
        memory = std::make_unique<QueueMemory>(layout.bytes);
        ASSERT_EQ(mana_ext_init(&qp, &attr, &layout, memory->data()), 0);
        qp.sq_id = kSq;
        qp.dp.qpn = kQpn;
        qp.dp.doorbell = sink.page();
        qp.dp.send_cq = qp.dp.recv_cq = &cq.dp;
        qp.can_send = qp.can_recv = true;
        ASSERT_EQ(mana_dp_table_add(tables.rq.get(), kQpn, &qp.dp), 0);
    }
    mana_dp_send wr(std::uint8_t opcode, std::uint32_t sges = 1) {
        mana_dp_send out{};
        out.wr_id = next_id++;
        out.opcode = opcode;
        out.sge = kSges;
        out.sge_count = sges;
        out.value = 0xaabbccdd;
        out.remote_address = 0x1122334455667788;
        out.rkey = 0x99aa01;
        out.flags = MANA_HW_EXT_WQE_SIGNALED;
        return out;
    }
    /// Posts; the bytes of the WQE.
    std::string post(const mana_dp_send& send) {
        const auto at = qp.sq_producer;
        EXPECT_EQ(mana_ext_send(&qp, &send), 0);
        return memory->hex(std::size_t{at} * 64, (qp.sq_producer - at) * std::size_t{64});
    }
    void done(std::uint32_t cookie, std::uint8_t opcode, std::uint8_t status = 0,
              std::uint8_t flags = 0) {
        mana_hw_ext_cqe cqe{};
        cqe.type = MANA_HW_EXT_CQE;
        cqe.opcode = opcode;
        cqe.status = status;
        cqe.flags = flags;
        cqe.cookie = cookie;
        cqe.length = 77;
        cqe.value = 0x01020304;
        cqe.source_qpn = 5;
        cqe.vendor_error = 0x111;
        cqe.timestamp = 123456789;
        cq.write(cqe, kQpn, !(opcode & 0x80));
    }
    /// A WQE with all but its data, as ibv_wr_* makes it.
    void begin(mana_ext_wqe& wqe, std::uint8_t opcode) {
        mana_ext_wqe_begin(&qp, &wqe, qp.max_wqe_units);
        mana_ext_wqe_control(&wqe, opcode, 0, 0);
        mana_ext_wqe_open_data(&qp, &wqe, opcode);
        if (qp.datagrams) wqe.bytes += sizeof(mana_hw_ext_ud);
        if (opcode >= MANA_HW_EXT_WQE_WRITE && opcode <= MANA_HW_EXT_WQE_FETCH_ADD)
            mana_ext_wqe_remote(&wqe, 0x1000, 1);
        if (mana_ext_is_atomic(opcode)) mana_ext_wqe_atomic(&wqe, 1, 2);
        const mana_hw_ext_bind bind{};
        if (opcode == MANA_HW_EXT_WQE_BIND_MW) mana_ext_wqe_bind(&wqe, &bind);
    }
    std::uint32_t arm(bool solicited) {
        mana_dp_cq_arm(&cq.dp, solicited);
        return cq.dp.record->arm;
    }
    static constexpr mana_dp_sge kSges[3] = {
        {0x7f0011223340, 3000, 0x102}, {0x7f0055667780, 100, 0x304}, {0x1000, 8, 0x506}};
    static constexpr const char* kSge = "40332211007f000002010000b80b0000";

    DoorbellSink sink;
    Tables tables;
    TestCq cq;
    mana_ext_layout layout{};
    std::unique_ptr<QueueMemory> memory;
    mana_ext_qp qp{};
    std::uint64_t next_id = 1;
};

TEST_F(ExtTest, LayoutHoldsWhatIsAskedFor) {
    EXPECT_EQ(layout.wqe_bytes, 64U);
    EXPECT_EQ(layout.max_inline, 32U);
    EXPECT_EQ(layout.sq_bytes, 512U);
    EXPECT_EQ(layout.rq_stride, 64U);
    EXPECT_EQ(layout.rq_bytes, 512U);
    EXPECT_EQ(layout.record, 1024U);
    EXPECT_EQ(layout.bytes, 1088U);
    mana_ext_attr attr = attributes();
    attr.datagrams = true;
    attr.max_inline = 200;
    ASSERT_EQ(mana_ext_lay_out(&attr, &layout), 0);
    EXPECT_EQ(layout.wqe_bytes, 320U);
    EXPECT_EQ(layout.max_inline, 240U);
    attr.max_inline = 1000;
    EXPECT_EQ(mana_ext_lay_out(&attr, &layout), EINVAL);
    attr.max_inline = 0;
    attr.max_recv_sge = 64;
    EXPECT_EQ(mana_ext_lay_out(&attr, &layout), EINVAL);
}

TEST_F(ExtTest, BytesOfEachOpcode) {
    const std::string kRemote = "887766554433221101aa990000000000";
    const std::string kZero(32, '0');
    EXPECT_EQ(post(wr(MANA_HW_EXT_WQE_SEND)).substr(0, 64),
              "00010200ddccbbaa0000000000000000" + std::string(kSge));
    EXPECT_EQ(post(wr(MANA_HW_EXT_WQE_WRITE_IMM)).substr(0, 96),
              "04010300ddccbbaa0000000000000000" + kRemote + kSge);
    EXPECT_EQ(post(wr(MANA_HW_EXT_WQE_READ)).substr(0, 96),
              "05010300ddccbbaa0000000000000000" + kRemote + kSge);
    mana_dp_send atomic = wr(MANA_HW_EXT_WQE_CMP_SWAP);
    atomic.sge = &kSges[2];
    atomic.swap_add = 0x0102030405060708;
    atomic.compare = 0x1112131415161718;
    EXPECT_EQ(post(atomic), "06010400ddccbbaa0000000000000000" + kRemote +
                                "08070605040302011817161514131211" +
                                "00100000000000000605000008000000");
    EXPECT_EQ(post(wr(MANA_HW_EXT_WQE_LOCAL_INV)).substr(0, 32),
              "08010100ddccbbaa0000000000000000");
    mana_dp_send bind = wr(MANA_HW_EXT_WQE_BIND_MW, 0);
    bind.value = 0;
    bind.bind = {0x501, 0x502, 0x601, 7, 0x10000, 0x2000};
    EXPECT_EQ(post(bind).substr(0, 96),
              "09010300000000000000000000000000"
              "01050000020500000106000007000000"
              "00000100000000000020000000000000");
}

TEST_F(ExtTest, DatagramsCarryTheirAddress) {
    mana_ext_attr attr = attributes();
    attr.datagrams = true;
    open(attr);
    mana_dp_av av{};
    av.ud.dest_gid[0] = 0xfd;
    av.ud.source_gid[15] = 2;
    av.ud.dest_mac[5] = 9;
    av.ud.udp_source_port = 0xc001;
    av.ud.hop_limit = 64;
    mana_dp_send send = wr(MANA_HW_EXT_WQE_SEND);
    send.av = &av;
    send.dest_qpn = 0x1234;
    send.qkey = 0x80010000;
    EXPECT_EQ(post(send).substr(0, 192),
              "00010600ddccbbaa0000000000000000"
              "fd000000000000000000000000000000"
              "00000000000000000000000000000002"
              "00000000000901c04000000000000000"
              "34120000000001800000000000000000" +
                  std::string(kSge));
    send.av = nullptr;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    send.av = &av;
    send.opcode = MANA_HW_EXT_WQE_WRITE;
    EXPECT_EQ(mana_ext_send(&qp, &send), EOPNOTSUPP);
}

TEST_F(ExtTest, DatagramsFitTheMtu) {
    mana_ext_attr attr = attributes();
    attr.datagrams = true;
    attr.mtu = 1024;
    open(attr);
    const mana_dp_av av{};
    mana_dp_sge sge{0x1000, 1024, 1};
    mana_dp_send send = wr(MANA_HW_EXT_WQE_SEND);
    send.av = &av;
    send.sge = &sge;
    EXPECT_EQ(mana_ext_send(&qp, &send), 0);
    sge.length = 1025;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    mana_ext_wqe wqe{};
    begin(wqe, MANA_HW_EXT_WQE_SEND);
    EXPECT_TRUE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 1000));
    EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 25));
    EXPECT_TRUE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 24));
}

TEST_F(ExtTest, OpcodesThatTheQpLacks) {
    mana_ext_attr attr = attributes();
    attr.refused = MANA_EXT_RELIABLE;
    open(attr);
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_READ, MANA_HW_EXT_WQE_CMP_SWAP,
                                      MANA_HW_EXT_WQE_FETCH_ADD, MANA_HW_EXT_WQE_SEND_INV}) {
        const auto send = wr(opcode);
        EXPECT_EQ(mana_ext_send(&qp, &send), EOPNOTSUPP) << int{opcode};
    }
    for (const std::uint8_t opcode :
         {MANA_HW_EXT_WQE_SEND, MANA_HW_EXT_WQE_SEND_IMM, MANA_HW_EXT_WQE_WRITE,
          MANA_HW_EXT_WQE_WRITE_IMM, MANA_HW_EXT_WQE_LOCAL_INV, MANA_HW_EXT_WQE_BIND_MW}) {
        const auto send = wr(opcode);
        EXPECT_EQ(mana_ext_send(&qp, &send), 0) << int{opcode};
    }
    for (const int opcode : {+MANA_HW_EXT_WQE_FAST_REGISTER, 11, 31, 32, 255}) {
        const auto send = wr(static_cast<std::uint8_t>(opcode));
        EXPECT_EQ(mana_ext_send(&qp, &send), EOPNOTSUPP) << opcode;
    }
    EXPECT_EQ(qp.sq_posted, 6U);
}

TEST_F(ExtTest, RequestsWithoutDataHaveNoList) {
    // What stands in a request's list is nobody's concern: it may be a union's other half.
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_LOCAL_INV, MANA_HW_EXT_WQE_BIND_MW}) {
        mana_dp_send send = wr(opcode, 1000);
        send.sge = nullptr;
        EXPECT_EQ(mana_ext_send(&qp, &send), 0) << int{opcode};
    }
    EXPECT_EQ(qp.sq_posted, 2U);
}

TEST_F(ExtTest, PiecesOfDataStayWithinTheWqe) {
    // Two SGEs behind the head of a WRITE fill the unit; an atomic has room for one.
    ASSERT_EQ(qp.max_wqe_units, 1U);
    mana_ext_wqe wqe{};
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_CMP_SWAP, MANA_HW_EXT_WQE_FETCH_ADD}) {
        begin(wqe, opcode);
        EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, "12345678", 8));
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 9));
        EXPECT_TRUE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 8));
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 0));
        EXPECT_EQ(wqe.bytes, 64U);
    }
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_LOCAL_INV, MANA_HW_EXT_WQE_BIND_MW}) {
        begin(wqe, opcode);
        const auto bytes = wqe.bytes;
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 8));
        EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, "1", 1));
        EXPECT_EQ(wqe.bytes, bytes);
    }
    begin(wqe, MANA_HW_EXT_WQE_READ);
    EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, "1", 1));
    const char text[33] = "0123456789abcdef0123456789abcdef";
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_SEND, MANA_HW_EXT_WQE_WRITE}) {
        begin(wqe, opcode);
        EXPECT_TRUE(mana_ext_wqe_add_inline(&wqe, text, 20));
        EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, text, 13));
        EXPECT_TRUE(mana_ext_wqe_add_inline(&wqe, text, 12));
        EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, text, 1));
        // not both kinds
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 8));
        EXPECT_LE(wqe.bytes, 64U);
        begin(wqe, opcode);
        EXPECT_TRUE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 0x80000000));
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 1));
        EXPECT_TRUE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 0));
        EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 0));
        EXPECT_FALSE(mana_ext_wqe_add_inline(&wqe, text, 1));
        EXPECT_LE(wqe.bytes, 64U);
    }
    // without SGEs an atomic has no room for one
    mana_ext_attr attr = attributes();
    attr.max_send_sge = 0;
    open(attr);
    begin(wqe, MANA_HW_EXT_WQE_FETCH_ADD);
    EXPECT_FALSE(mana_ext_wqe_add_sge(&wqe, 0x1000, 1, 8));
}

TEST_F(ExtTest, NoMoreSendsThanAskedFor) {
    mana_ext_attr attr = attributes();
    attr.max_send_sge = 3;  // two units
    attr.max_send = 5;      // the ring has 16 units
    open(attr);
    for (int lap = 0; lap < 10; ++lap) {
        std::uint32_t at = 0;
        for (std::uint32_t i = 0; i < 5; ++i) {
            at = qp.sq_producer;
            const auto send = wr(MANA_HW_EXT_WQE_WRITE, lap % 3 + 1);
            ASSERT_EQ(mana_ext_send(&qp, &send), 0) << lap;
        }
        const auto send = wr(MANA_HW_EXT_WQE_SEND);
        ASSERT_EQ(mana_ext_send(&qp, &send), ENOMEM) << lap;
        done(at, MANA_HW_EXT_WQE_WRITE);
        ASSERT_EQ(cq.poll().size(), 1U);
    }
}

TEST_F(ExtTest, InlineDataIsInTheWqe) {
    const char text[] = "0123456789abcdef0123";
    const mana_dp_sge sges[2] = {{reinterpret_cast<std::uint64_t>(text), 10, 0},
                                 {reinterpret_cast<std::uint64_t>(text) + 10, 10, 0}};
    mana_dp_send send = wr(MANA_HW_EXT_WQE_WRITE, 2);
    send.sge = sges;
    send.flags |= MANA_HW_EXT_WQE_INLINE;
    const auto bytes = post(send);
    EXPECT_EQ(bytes.substr(0, 32), "03090400ddccbbaa1400000000000000");
    EXPECT_EQ(bytes.substr(64, 40), to_hex(std::as_bytes(std::span(text, 20))));
    const mana_dp_sge big{reinterpret_cast<std::uint64_t>(text), 33, 0};
    send.sge = &big;
    send.sge_count = 1;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    send.opcode = MANA_HW_EXT_WQE_READ;
    send.sge = sges;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
}

TEST_F(ExtTest, DoorbellOnlyIfAsked) {
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    EXPECT_EQ(qp.record->sq_producer, 0U);
    mana_ext_ring_send(&qp);
    EXPECT_EQ(qp.record->sq_producer, 1U);
    EXPECT_TRUE(sink.take().empty());
    qp.record->sq_kick = 1;
    mana_ext_ring_send(&qp);  // nothing new
    EXPECT_TRUE(sink.take().empty());
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    mana_ext_ring_send(&qp);
    EXPECT_EQ(sink.take(), (Rung{{0x000, (2ULL << 32) | kSq}}));
    ASSERT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    mana_ext_ring_recv(&qp);
    EXPECT_EQ(qp.record->rq_producer, 1U);
    EXPECT_TRUE(sink.take().empty());
    qp.record->rq_kick = 1;
    ASSERT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    mana_ext_ring_recv(&qp);
    EXPECT_EQ(sink.take(), (Rung{{0x400, (2ULL << 32) | kQpn}}));
}

TEST_F(ExtTest, ReceiveWqes) {
    ASSERT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    ASSERT_EQ(mana_ext_recv(&qp, 2, kSges, 0), 0);
    EXPECT_EQ(memory->hex(512, 32), "01000000000000000000000000000000" + std::string(kSge));
    EXPECT_EQ(memory->hex(576, 16), "00000000010000000000000000000000");
    EXPECT_EQ(mana_ext_recv(&qp, 3, kSges, 3), EINVAL);
    qp.can_recv = false;
    EXPECT_EQ(mana_ext_recv(&qp, 3, kSges, 1), EINVAL);
}

TEST_F(ExtTest, FullQueuesStayAsTheyWere) {
    for (int i = 0; i < 8; ++i) (void)post(wr(MANA_HW_EXT_WQE_SEND));
    const auto send = wr(MANA_HW_EXT_WQE_SEND);
    EXPECT_EQ(mana_ext_send(&qp, &send), ENOMEM);
    EXPECT_EQ(qp.sq_producer, 8U);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    EXPECT_EQ(mana_ext_recv(&qp, 1, kSges, 1), ENOMEM);
    EXPECT_EQ(qp.rq_producer, 8U);
    // A completion finishes all sends before it.
    done(2, MANA_HW_EXT_WQE_SEND);
    ASSERT_EQ(cq.poll().size(), 1U);
    for (int i = 0; i < 3; ++i) (void)post(wr(MANA_HW_EXT_WQE_SEND));
    EXPECT_EQ(mana_ext_send(&qp, &send), ENOMEM);
    done(0, MANA_HW_EXT_WC_RECV);
    ASSERT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    EXPECT_EQ(mana_ext_recv(&qp, 1, kSges, 1), ENOMEM);
}

TEST_F(ExtTest, RefusesWhatDoesNotFit) {
    mana_dp_send send = wr(MANA_HW_EXT_WQE_SEND, 3);
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    const mana_dp_sge huge[2] = {{0, 0x80000000, 1}, {0, 1, 1}};
    send = wr(MANA_HW_EXT_WQE_WRITE, 2);
    send.sge = huge;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    send = wr(MANA_HW_EXT_WQE_FETCH_ADD);
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);  // 3000 bytes
    send = wr(MANA_HW_EXT_WQE_FAST_REGISTER);
    EXPECT_EQ(mana_ext_send(&qp, &send), EOPNOTSUPP);
    send = wr(MANA_HW_EXT_WQE_SEND);
    qp.can_send = false;
    EXPECT_EQ(mana_ext_send(&qp, &send), EINVAL);
    EXPECT_EQ(qp.sq_producer, 0U);
}

TEST_F(ExtTest, WqesGoOverTheEndOfTheRing) {
    mana_ext_attr attr = attributes();
    attr.max_send_sge = 3;  // two units
    attr.max_send = 5;      // 16 units
    open(attr);
    ASSERT_EQ(qp.sq_units, 16U);
    for (int i = 0; i < 40; ++i) {
        const auto at = qp.sq_producer;
        const auto send = wr(MANA_HW_EXT_WQE_WRITE, i % 3 ? 3 : 1);
        ASSERT_EQ(mana_ext_send(&qp, &send), 0);
        if (i % 3) {
            // the last SGE is in the second unit
            ASSERT_EQ(memory->hex((at + 1) % 16 * std::size_t{64}, 16),
                      "00100000000000000605000008000000")
                << i;
        }
        ASSERT_EQ(memory->hex(at % 16 * std::size_t{64}, 2), "0301");
        done(at, MANA_HW_EXT_WQE_WRITE);
        const auto wc = cq.poll();
        ASSERT_EQ(wc.size(), 1U);
        ASSERT_EQ(wc[0].wr_id, send.wr_id);
        ASSERT_EQ(qp.sq_finished, qp.sq_posted);
    }
}

/// A CQ's lock protects what its own QPs have of it, and no more.
TEST_F(ExtTest, CqesOfQpsThatUseAnotherCqAreSkipped) {
    TestCq other(sink, tables, 64, true);
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    ASSERT_EQ(mana_ext_recv(&qp, 42, kSges, 1), 0);
    mana_hw_ext_cqe cqe{};
    cqe.type = MANA_HW_EXT_CQE;
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    other.write(cqe, kQpn, false);
    cqe.opcode = MANA_HW_EXT_WQE_SEND;
    other.write(cqe, kQpn, true);
    EXPECT_TRUE(other.poll().empty());
    EXPECT_EQ(other.dp.record->consumer, 66U);
    EXPECT_EQ(other.dp.last, nullptr) << "nobody tells this CQ when the QP goes";
    // Its receives go to the other one now: there sends are still nobody's.
    qp.dp.recv_cq = &other.dp;
    other.write(cqe, kQpn, true);
    EXPECT_TRUE(other.poll().empty());
    done(0, MANA_HW_EXT_WQE_SEND);
    EXPECT_EQ(cq.poll().size(), 1U);
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    other.write(cqe, kQpn, false);
    EXPECT_EQ(other.poll().size(), 1U);
}

TEST_F(ExtTest, CompletionsSayAll) {
    (void)post(wr(MANA_HW_EXT_WQE_READ));
    done(0, MANA_HW_EXT_WQE_READ, MANA_HW_WC_REM_ACCESS_ERR);
    auto wc = cq.poll();
    ASSERT_EQ(wc.size(), 1U);
    EXPECT_EQ(wc[0].wr_id, 1U);
    EXPECT_EQ(wc[0].opcode, MANA_WC_RDMA_READ);
    EXPECT_EQ(wc[0].status, MANA_HW_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc[0].vendor_error, 0x111U);
    EXPECT_EQ(wc[0].qpn, kQpn);
    EXPECT_EQ(wc[0].timestamp, 123456789U);
    EXPECT_EQ(cq.dp.record->consumer, 65U);
    ASSERT_EQ(mana_ext_recv(&qp, 42, kSges, 1), 0);
    done(0, MANA_HW_EXT_WC_RECV_WRITE_IMM, 0, MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IMMEDIATE);
    wc = cq.poll();
    ASSERT_EQ(wc.size(), 1U);
    EXPECT_EQ(wc[0].wr_id, 42U);
    EXPECT_EQ(wc[0].opcode, MANA_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc[0].flags, MANA_WC_GRH | MANA_WC_WITH_IMM);
    EXPECT_EQ(wc[0].value, 0x01020304U);
    EXPECT_EQ(wc[0].source_qpn, 5U);
    EXPECT_EQ(wc[0].length, 77U);
    // QPs that nobody knows any more
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    mana_dp_table_remove(tables.rq.get(), kQpn, &qp.dp);
    done(0, MANA_HW_EXT_WC_RECV);
    EXPECT_TRUE(cq.poll().empty());
}

// As ConnectX tells it (IBTA A17.4.5.1): UCX finds the addresses of a datagram by it.
TEST_F(ExtTest, DatagramsSayWhichIpTheyCameBy) {
    const std::pair<int, int> expected[] = {
        {MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IPV4, 10}, {MANA_HW_EXT_CQE_GRH, 9}, {0, 0}};
    for (const auto& [flags, sl] : expected) {
        ASSERT_EQ(mana_ext_recv(&qp, 42, kSges, 1), 0);
        done(0, MANA_HW_EXT_WC_RECV, 0, static_cast<std::uint8_t>(flags));
        const auto wc = cq.poll();
        ASSERT_EQ(wc.size(), 1U);
        EXPECT_EQ(wc[0].sl, sl);
    }
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    done(0, MANA_HW_EXT_WQE_SEND);
    const auto wc = cq.poll();
    ASSERT_EQ(wc.size(), 1U);
    EXPECT_EQ(wc[0].sl, 0);
}

/// Of its tag, for who answers by ibv_init_ah_from_wc.
TEST_F(ExtTest, DatagramsSayWithWhichPriorityTheyCame) {
    ASSERT_EQ(mana_ext_recv(&qp, 42, kSges, 1), 0);
    mana_hw_ext_cqe cqe{};
    cqe.flags = MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IPV4;
    cqe.vlan = 5 << MANA_HW_EXT_VLAN_PRIORITY_SHIFT | 100;
    cqe.opcode = MANA_HW_EXT_WC_RECV;
    mana_completion c{};
    mana_ext_complete(&qp, &cqe, &c);
    EXPECT_EQ(c.sl, 0x5a);
}

TEST_F(ExtTest, PollingNothingWritesNothing) {
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    done(0, MANA_HW_EXT_WQE_SEND);
    ASSERT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(cq.dp.record->consumer, 65U);
    cq.dp.record->consumer = 0xdead;
    EXPECT_TRUE(cq.poll().empty());
    mana_dp_cq_arm(&cq.dp, false);
    EXPECT_EQ(cq.dp.record->consumer, 0xdeadU);
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    done(1, MANA_HW_EXT_WQE_SEND);
    ASSERT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(cq.dp.record->consumer, 66U);
}

/// Sends that were polled are posted again before the batch ends: as many as the CQ was made for,
/// which is half of its ring, have room in it all the time.
TEST_F(ExtTest, ABatchWithoutEndLeavesRoomForWhatItsSendsArePostedAgain) {
    mana_ext_attr attr = attributes();
    attr.max_send = cq.dp.entries / 2;
    open(attr);
    std::uint32_t written = cq.dp.entries;
    const auto send_and_complete = [&] {
        const std::uint32_t at = qp.sq_producer;
        const auto send = wr(MANA_HW_EXT_WQE_SEND);
        ASSERT_EQ(mana_ext_send(&qp, &send), 0);
        // The device's rule (docs/extensions.md, Queues).
        ASSERT_LT(written++ - cq.dp.record->consumer, cq.dp.entries);
        done(at, MANA_HW_EXT_WQE_SEND);
    };
    for (std::uint32_t i = 0; i < attr.max_send; ++i) ASSERT_NO_FATAL_FAILURE(send_and_complete());
    mana_completion c{};
    for (std::uint64_t id = 1; id < 1000; ++id) {
        ASSERT_EQ(mana_dp_cq_poll(&cq.dp, &c), 1);
        ASSERT_EQ(c.wr_id, id);
        ASSERT_NO_FATAL_FAILURE(send_and_complete());
    }
}

TEST_F(ExtTest, ArmingIsASequence) {
    EXPECT_EQ(arm(true), 1U << MANA_HW_EXT_ARM_SEQUENCE_SHIFT | MANA_HW_EXT_ARM_SOLICITED);
    EXPECT_EQ(arm(false), 2U << MANA_HW_EXT_ARM_SEQUENCE_SHIFT);
    mana_dp_cq_event(&cq.dp);
    EXPECT_EQ(arm(true), 3U << MANA_HW_EXT_ARM_SEQUENCE_SHIFT | MANA_HW_EXT_ARM_SOLICITED);
    EXPECT_TRUE(sink.take().empty());
}

TEST_F(ExtTest, SolicitedDoesNotWeakenNext) {
    const auto solicited = [this] { return (arm(true) & MANA_HW_EXT_ARM_SOLICITED) != 0; };
    (void)arm(false);
    EXPECT_FALSE(solicited());
    EXPECT_FALSE(solicited());
    mana_dp_cq_event(&cq.dp);
    EXPECT_TRUE(solicited());
    // The event of the first arming lies unread when the second is made.
    (void)arm(false);
    (void)arm(false);
    mana_dp_cq_event(&cq.dp);
    EXPECT_FALSE(solicited());
    mana_dp_cq_event(&cq.dp);
    EXPECT_TRUE(solicited());
    // Armed again and again without an event: it is forgotten in the end.
    for (int i = 0; i < 10; ++i) (void)arm(false);
    mana_dp_cq_event(&cq.dp);
    mana_dp_cq_event(&cq.dp);
    EXPECT_TRUE(solicited());
    mana_dp_cq_event(&cq.dp);
    EXPECT_TRUE(solicited());
}

TEST_F(ExtTest, ResizedCqGoesOn) {
    (void)post(wr(MANA_HW_EXT_WQE_SEND));
    QueueMemory bigger(128 * 64 + 64);
    auto* record = reinterpret_cast<mana_hw_ext_cq_record*>(bigger.data() + 128 * 64);
    mana_dp_cq_replace(&cq.dp, bigger.data(), 128, record, 128);
    auto* cqe = reinterpret_cast<mana_hw_cqe*>(bigger.data());
    cqe->data[0] = MANA_HW_EXT_CQE;
    cqe->word = kQpn | 1U << MANA_HW_OWNER_SHIFT;
    EXPECT_EQ(cq.poll().size(), 1U);
    EXPECT_EQ(record->consumer, 129U);
}

TEST_F(ExtTest, ResetStartsAnew) {
    for (int i = 0; i < 8; ++i) (void)post(wr(MANA_HW_EXT_WQE_SEND));
    mana_ext_ring_send(&qp);
    ASSERT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
    mana_ext_ring_recv(&qp);
    mana_ext_reset(&qp);
    EXPECT_EQ(qp.record->sq_producer, 0U);
    EXPECT_EQ(qp.record->rq_producer, 0U);
    for (int i = 0; i < 8; ++i) (void)post(wr(MANA_HW_EXT_WQE_SEND));
    for (int i = 0; i < 8; ++i) ASSERT_EQ(mana_ext_recv(&qp, 1, kSges, 1), 0);
}

TEST_F(ExtTest, SharedReceivesCompleteInAnyOrder) {
    mana_ext_srq_layout shared{};
    ASSERT_EQ(mana_ext_srq_lay_out(4, 2, &shared), 0);
    EXPECT_EQ(shared.bytes, 4U * 64 + 64);
    EXPECT_EQ(mana_ext_srq_lay_out(4, 64, &shared), EINVAL);
    ASSERT_EQ(mana_ext_srq_lay_out(4, 2, &shared), 0);
    QueueMemory ring(shared.bytes);
    mana_ext_srq srq{};
    ASSERT_EQ(mana_ext_srq_init(&srq, 4, 2, &shared, ring.data()), 0);
    mana_ext_attr attr = attributes();
    attr.srq = &srq;
    open(attr);
    EXPECT_EQ(layout.rq_bytes, 0U);
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(mana_ext_srq_recv(&srq, 100 + i, kSges, 1), 0);
    EXPECT_EQ(mana_ext_srq_recv(&srq, 104, kSges, 1), ENOMEM);
    EXPECT_EQ(mana_ext_srq_recv(&srq, 104, kSges, 3), EINVAL);
    mana_ext_srq_ring(&srq);
    EXPECT_EQ(srq.record->producer, 4U);
    done(2, MANA_HW_EXT_WC_RECV);
    done(0, MANA_HW_EXT_WC_RECV);
    auto wc = cq.poll();
    ASSERT_EQ(wc.size(), 2U);
    EXPECT_EQ(wc[0].wr_id, 102U);
    EXPECT_EQ(wc[1].wr_id, 100U);
    // Freed cookies come again; ring slots go on in order.
    ASSERT_EQ(mana_ext_srq_recv(&srq, 200, kSges, 1), 0);
    ASSERT_EQ(mana_ext_srq_recv(&srq, 201, kSges, 1), 0);
    EXPECT_EQ(mana_ext_srq_recv(&srq, 202, kSges, 1), ENOMEM);
    EXPECT_EQ(ring.hex(4, 4), "00000000");
    EXPECT_EQ(ring.hex(64 + 4, 4), "02000000");
    // What is thrown away with a QP comes back too.
    done(3, MANA_HW_EXT_WC_RECV);
    mana_dp_cq_forget(&cq.dp, &qp.dp);
    EXPECT_TRUE(cq.poll().empty());
    EXPECT_EQ(mana_ext_srq_recv(&srq, 202, kSges, 1), 0);
    mana_ext_srq_free(&srq);
}

}  // namespace
}  // namespace openmana::test
