// SPDX-License-Identifier: Apache-2.0
// The extended data path against the device library, both in one process.
#include <mana/gdma.h>

#include <random>

#include "provider_fixture.h"
#include "unit/rnic/ext_fixture.h"

namespace openmana::test {
namespace {

mana_ext_attr attributes(bool datagrams = false) {
    mana_ext_attr attr{};
    attr.datagrams = datagrams;
    attr.max_send = attr.max_recv = 32;
    attr.max_send_sge = 4;
    attr.max_recv_sge = 3;
    attr.max_inline = 100;
    return attr;
}

/// The provider's half of one side of an ExtLink.
struct Provider : ExtProvider {
    Provider(ExtLink::Side& side, const mana_ext_attr& attr)
        : ExtProvider(side.node->host.hwc(), side.send_cq, side.recv_cq, side.qp, attr,
                      side.srq ? &*side.srq : nullptr),
          side(side) {}
    [[nodiscard]] mana_dp_sge sge(std::uint64_t offset, std::uint32_t length) const {
        return {side.buffer.value() + offset, length, side.mr.lkey};
    }
    int recv(std::uint64_t id, std::uint64_t offset, std::uint32_t length) {
        const int ret = ExtProvider::recv(id, sge(offset, length));
        ring_recv(1);
        return ret;
    }
    int post(const mana_dp_send& wr) {
        const int ret = send(wr);
        ring_send();
        return ret;
    }
    void poll() {
        EXPECT_TRUE(poll_all(send_cq, [this](const mana_completion& c) { sent.push_back(c); }));
        EXPECT_TRUE(poll_all(recv_cq, [this](const mana_completion& c) { received.push_back(c); }));
    }

    ExtLink::Side& side;
    std::vector<mana_completion> sent, received;
};

class ExtDeviceTest : public ::testing::TestWithParam<bool> {
protected:
    void open(std::uint32_t type = MANA_HW_EXT_QP_RC, bool srq = false) {
        const bool datagrams = type == MANA_HW_EXT_QP_UD;
        const mana_ext_attr attr = attributes(datagrams);
        ExtLink::Options options;
        options.a = options.b = queue_sizes(attr);
        options.a.type = options.b.type = type;
        options.srq = srq;
        options.connect = !datagrams;
        // The providers of an earlier link go before what they are attached to.
        a.reset();
        b.reset();
        link = std::make_unique<ExtLink>(GetParam(), options);
        if (datagrams)
            OM_CHECK(link->a.host->start_datagrams(link->a.qp, 0x1111) &&
                     link->b.host->start_datagrams(link->b.qp, 0x1111));
        a = std::make_unique<Provider>(link->a, attr);
        b = std::make_unique<Provider>(link->b, attr);
    }
    mana_dp_send wr(std::uint8_t opcode, std::uint64_t from, std::uint32_t length,
                    std::uint64_t to = 0) {
        list = a->sge(from, length);
        mana_dp_send out{};
        out.wr_id = next_id++;
        out.opcode = opcode;
        out.flags = MANA_HW_EXT_WQE_SIGNALED;
        out.sge = &list;
        out.sge_count = 1;
        out.value = 0x55667788;
        out.remote_address = link->b.buffer.value() + to;
        out.rkey = link->b.mr.rkey;
        return out;
    }
    bool run(std::size_t sends, std::size_t receives = 0) {
        return link->world.run_until(
            [&] {
                a->poll();
                b->poll();
                return a->sent.size() >= sends && b->received.size() >= receives;
            },
            std::chrono::seconds(60));
    }
    std::unique_ptr<ExtLink> link;
    std::unique_ptr<Provider> a, b;
    mana_dp_sge list{};
    std::uint64_t next_id = 1;
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtDeviceTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtDeviceTest, EachOperation) {
    open();
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 5000, 300000)), 0);
    ASSERT_TRUE(run(1));
    EXPECT_EQ(a->sent[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_EQ(a->sent[0].opcode, MANA_WC_RDMA_WRITE);
    EXPECT_NE(a->sent[0].timestamp, 0U);
    EXPECT_TRUE(link->same(0, 300000, 5000));
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_READ, 600000, 5000, 1000)), 0);
    ASSERT_TRUE(run(2));
    EXPECT_TRUE(link->same(600000, 1000, 5000));
    ASSERT_EQ(b->recv(7, 700000, 6000), 0);
    ASSERT_EQ(b->recv(8, 700000, 6000), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND_IMM, 100, 5000)), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE_IMM, 100, 50, 400000)), 0);
    ASSERT_TRUE(run(4, 2));
    EXPECT_EQ(b->received[0].wr_id, 7U);
    EXPECT_EQ(b->received[0].length, 5000U);
    EXPECT_EQ(b->received[0].flags, MANA_WC_WITH_IMM);
    EXPECT_EQ(b->received[0].value, 0x55667788U);
    EXPECT_EQ(b->received[1].opcode, MANA_WC_RECV_RDMA_WITH_IMM);
    EXPECT_TRUE(link->same(100, 700000, 5000));
    link->b.word(512) = 40;
    mana_dp_send atomic = wr(MANA_HW_EXT_WQE_FETCH_ADD, 800, 8, 512);
    atomic.swap_add = 2;
    ASSERT_EQ(a->post(atomic), 0);
    atomic = wr(MANA_HW_EXT_WQE_CMP_SWAP, 808, 8, 512);
    atomic.compare = 42;
    atomic.swap_add = 7;
    ASSERT_EQ(a->post(atomic), 0);
    ASSERT_TRUE(run(6));
    EXPECT_EQ(link->a.word(800), 40U);
    EXPECT_EQ(link->a.word(808), 42U);
    EXPECT_EQ(link->b.word(512), 7U);
    EXPECT_EQ(a->sent[5].opcode, MANA_WC_COMP_SWAP);
}

TEST_P(ExtDeviceTest, InlineData) {
    open();
    const std::string text =
        "inline data of more than one unit, that is of more than 64 bytes in all";
    mana_dp_send send = wr(MANA_HW_EXT_WQE_WRITE, 0, 0, 5000);
    list = {reinterpret_cast<std::uint64_t>(text.data()), static_cast<std::uint32_t>(text.size()),
            0};
    send.flags |= MANA_HW_EXT_WQE_INLINE;
    // Often enough for WQEs over the end of the ring.
    for (std::size_t i = 0; i < 200; ++i) {
        std::ranges::fill(link->b.at(5000, text.size()), std::byte{0});
        ASSERT_EQ(a->post(send), 0);
        ASSERT_TRUE(run(i + 1));
        ASSERT_EQ(a->sent[i].status, MANA_HW_WC_SUCCESS);
        ASSERT_EQ(std::memcmp(link->b.at(5000, text.size()).data(), text.data(), text.size()), 0);
    }
}

TEST_P(ExtDeviceTest, ManyOfAllKinds) {
    for (const bool srq : {false, true}) {
        SCOPED_TRACE(srq);
        open(MANA_HW_EXT_QP_RC, srq);
        std::mt19937 random(srq ? 11 : 12);
        static constexpr std::uint8_t kOpcodes[] = {MANA_HW_EXT_WQE_WRITE, MANA_HW_EXT_WQE_READ,
                                                    MANA_HW_EXT_WQE_SEND, MANA_HW_EXT_WQE_WRITE_IMM,
                                                    MANA_HW_EXT_WQE_CMP_SWAP};
        std::vector<std::uint64_t> expected;
        std::uint64_t receives = 0, taken = 0;
        for (int posted = 0; posted < 1500;) {
            const std::uint8_t opcode = kOpcodes[random() % 5];
            const bool atomic = opcode == MANA_HW_EXT_WQE_CMP_SWAP;
            const bool takes =
                opcode == MANA_HW_EXT_WQE_SEND || opcode == MANA_HW_EXT_WQE_WRITE_IMM;
            if (b->recv(receives, 800000, 8192) == 0) ++receives;
            mana_dp_send send =
                wr(opcode, random() % 1000 * 8, atomic ? 8 : random() % 5000, random() % 1000 * 8);
            const bool wanted = random() % 3 == 0;
            if (!wanted) send.flags = 0;
            if (takes && taken == receives) continue;
            const int ret = a->post(send);
            if (ret == 0) {
                ++posted;
                taken += takes;
                if (wanted) expected.push_back(send.wr_id);
            } else {
                ASSERT_EQ(ret, ENOMEM);
            }
            if (random() % 8 == 0 || ret != 0) {
                mana_dp_send last = wr(MANA_HW_EXT_WQE_WRITE, 0, 8);
                if (a->post(last) == 0) expected.push_back(last.wr_id);
                ASSERT_TRUE(run(expected.size()));
            }
        }
        ASSERT_TRUE(run(expected.size(), taken));
        ASSERT_EQ(a->sent.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(a->sent[i].wr_id, expected[i]);
            ASSERT_EQ(a->sent[i].status, MANA_HW_WC_SUCCESS);
        }
        ASSERT_EQ(b->received.size(), taken);
        for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(b->received[i].wr_id, i);
    }
}

TEST_P(ExtDeviceTest, UnreliableConnection) {
    open(MANA_HW_EXT_QP_UC);
    ASSERT_EQ(b->recv(5, 700000, 6000), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND, 0, 3000)), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 3000, 500000)), 0);
    ASSERT_TRUE(run(2, 1));
    EXPECT_TRUE(link->same(0, 700000, 3000));
    link->idle();
    EXPECT_TRUE(link->same(0, 500000, 3000));
}

TEST_P(ExtDeviceTest, Datagrams) {
    open(MANA_HW_EXT_QP_UD);
    mana_dp_av av{};
    std::ranges::copy(link->b.node->host.gid(), av.ud.dest_gid);
    std::ranges::copy(link->a.node->host.gid(), av.ud.source_gid);
    std::ranges::copy(link->b.node->host.mac(), av.ud.dest_mac);
    av.ud.udp_source_port = 0xc000;
    av.ud.hop_limit = 64;
    ASSERT_EQ(b->recv(5, 700000, 1000), 0);
    mana_dp_send send = wr(MANA_HW_EXT_WQE_SEND_IMM, 0, 500);
    send.av = &av;
    send.dest_qpn = link->b.qp.qpn;
    send.qkey = 0x1111;
    ASSERT_EQ(a->post(send), 0);
    ASSERT_TRUE(run(1, 1));
    EXPECT_EQ(b->received[0].length, 540U);
    EXPECT_EQ(b->received[0].flags, MANA_WC_GRH | MANA_WC_WITH_IMM);
    EXPECT_EQ(b->received[0].source_qpn, link->a.qp.qpn);
    EXPECT_EQ(b->received[0].sl, 10);  // IPv4 and UDP
    EXPECT_TRUE(link->same(0, 700040, 500));
}

TEST_P(ExtDeviceTest, WindowIsBoundAndInvalidated) {
    open();
    const auto window = link->b.host->create_key(MANA_HW_MR_WINDOW_TYPE2);
    ASSERT_TRUE(window.has_value());
    mana_dp_send bind{};
    bind.wr_id = 1;
    bind.opcode = MANA_HW_EXT_WQE_BIND_MW;
    bind.flags = MANA_HW_EXT_WQE_SIGNALED;
    const std::uint32_t key = (window->rkey & ~0xffU) | ((window->rkey + 1) & 0xff);
    bind.bind = {window->rkey,
                 key,
                 link->b.mr.lkey,
                 MANA_HW_ACCESS_REMOTE_WRITE,
                 link->b.buffer.value() + 4096,
                 4096};
    ASSERT_EQ(b->post(bind), 0);
    link->idle();
    b->poll();
    ASSERT_EQ(b->sent.size(), 1U);
    EXPECT_EQ(b->sent[0].status, MANA_HW_WC_SUCCESS);
    EXPECT_EQ(b->sent[0].opcode, MANA_WC_BIND_MW);
    mana_dp_send write = wr(MANA_HW_EXT_WQE_WRITE, 0, 100, 5000);
    write.rkey = key;
    ASSERT_EQ(a->post(write), 0);
    ASSERT_EQ(b->recv(5, 700000, 1000), 0);
    mana_dp_send send = wr(MANA_HW_EXT_WQE_SEND_INV, 0, 100);
    send.value = key;
    ASSERT_EQ(a->post(send), 0);
    ASSERT_TRUE(run(2, 1));
    EXPECT_EQ(b->received[0].flags, MANA_WC_WITH_INV);
    EXPECT_EQ(b->received[0].value, key);
    EXPECT_TRUE(link->same(0, 5000, 100));
    ASSERT_EQ(a->post(write), 0);
    ASSERT_TRUE(run(3));
    EXPECT_EQ(a->sent[2].status, MANA_HW_WC_REM_ACCESS_ERR);
}

TEST_P(ExtDeviceTest, ErrorFlushesAllAndPostsInErrorToo) {
    open();
    for (int i = 0; i < 4; ++i) ASSERT_EQ(a->recv(100 + i, 0, 64), 0);
    mana_dp_send bad = wr(MANA_HW_EXT_WQE_WRITE, 0, 100);
    bad.rkey ^= 0x1000;
    ASSERT_EQ(a->post(bad), 0);
    mana_dp_send unsignaled = wr(MANA_HW_EXT_WQE_WRITE, 0, 100);
    unsignaled.flags = 0;
    ASSERT_EQ(a->post(unsignaled), 0);
    ASSERT_TRUE(run(2));
    EXPECT_EQ(a->sent[0].status, MANA_HW_WC_REM_ACCESS_ERR);
    EXPECT_EQ(a->sent[1].status, MANA_HW_WC_WR_FLUSH_ERR);
    a->poll();
    ASSERT_EQ(a->received.size(), 4U);
    EXPECT_EQ(a->received[3].wr_id, 103U);
    EXPECT_EQ(a->received[3].status, MANA_HW_WC_WR_FLUSH_ERR);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 100)), 0);
    ASSERT_EQ(a->recv(104, 0, 64), 0);
    ASSERT_TRUE(run(3));
    a->poll();
    EXPECT_EQ(a->sent[2].status, MANA_HW_WC_WR_FLUSH_ERR);
    ASSERT_EQ(a->received.size(), 5U);
    EXPECT_EQ(a->received[4].wr_id, 104U);
}

TEST_P(ExtDeviceTest, ResetAndReconnect) {
    open();
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(b->recv(1, 700000, 6000), 0);
        ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND, 0, 3000)), 0);
        ASSERT_EQ(b->recv(2, 700000, 6000), 0);
        ASSERT_TRUE(run(static_cast<std::size_t>(round) + 1, static_cast<std::size_t>(round) + 1));
        ASSERT_EQ(b->received.back().wr_id, 1U);
        ASSERT_EQ(a->sent.back().status, MANA_HW_WC_SUCCESS);
        for (Provider* side : {a.get(), b.get()}) {
            ASSERT_TRUE(side->side.host->to_state(side->side.qp, MANA_HW_RNIC_QP_RESET));
            mana_dp_cq_forget(&side->send_cq, &side->qp.dp);
            mana_dp_cq_forget(&side->recv_cq, &side->qp.dp);
            mana_ext_reset(&side->qp);
        }
        link->connect({});
    }
}

TEST_P(ExtDeviceTest, ResizeKeepsWhatWasNotPolled) {
    open();
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 8)), 0);
    ASSERT_TRUE(run(1));
    for (int i = 0; i < 5; ++i) ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 8)), 0);
    link->world.advance(std::chrono::milliseconds(1));
    ASSERT_TRUE(link->a.host->resize_cq(link->a.send_cq, 1024));
    const ExtCq& device = link->a.send_cq;
    mana_dp_cq_replace(&a->send_cq, device.memory.ring.at(0), device.entries,
                       reinterpret_cast<mana_hw_ext_cq_record*>(device.memory.record()),
                       device.consumer);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 8)), 0);
    ASSERT_TRUE(run(7));
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(a->sent[i].wr_id, i + 1);
}

TEST_P(ExtDeviceTest, EventsOncePerArming) {
    open();
    (void)link->a.node->host.eq.drain();
    mana_dp_cq_arm(&a->send_cq, false);
    for (int i = 0; i < 3; ++i) ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_WRITE, 0, 8)), 0);
    ASSERT_TRUE(run(3));
    EXPECT_EQ(link->a.node->host.eq.drain().size(), 1U);
    mana_dp_cq_arm(&b->recv_cq, true);
    (void)link->b.node->host.eq.drain();
    ASSERT_EQ(b->recv(1, 700000, 6000), 0);
    ASSERT_EQ(b->recv(2, 700000, 6000), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND, 0, 8)), 0);
    ASSERT_TRUE(run(4, 1));
    EXPECT_TRUE(link->b.node->host.eq.drain().empty());
    mana_dp_send solicited = wr(MANA_HW_EXT_WQE_SEND, 0, 8);
    solicited.flags |= MANA_HW_EXT_WQE_SOLICITED;
    ASSERT_EQ(a->post(solicited), 0);
    ASSERT_TRUE(run(5, 2));
    EXPECT_EQ(link->b.node->host.eq.drain().size(), 1U);
}

TEST_P(ExtDeviceTest, AnyEventIsNotLostToSolicited) {
    open();
    (void)link->b.node->host.eq.drain();
    mana_dp_cq_arm(&b->recv_cq, false);
    mana_dp_cq_arm(&b->recv_cq, true);
    ASSERT_EQ(b->recv(1, 700000, 6000), 0);
    ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND, 0, 8)), 0);
    ASSERT_TRUE(run(1, 1));
    EXPECT_EQ(link->b.node->host.eq.drain().size(), 1U);
}

TEST_P(ExtDeviceTest, ReceivesRingNoDoorbell) {
    open();
    for (std::uint64_t i = 0; i < 20; ++i) {
        ASSERT_EQ(b->recv(i, 700000, 6000), 0);
        ASSERT_EQ(a->post(wr(MANA_HW_EXT_WQE_SEND, 0, 8)), 0);
        ASSERT_TRUE(run(i + 1, i + 1));
    }
    EXPECT_EQ(b->doorbells().count, 0U);
}

}  // namespace
}  // namespace openmana::test
