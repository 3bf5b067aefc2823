// SPDX-License-Identifier: Apache-2.0
// Extended UD: datagrams to queue pairs and groups, with their GRH and sender.
#include "ext_verbs_fixture.h"

namespace openmana::test {
namespace {

class ExtUdTest : public ExtVerbsTest {
protected:
    void open_ud(const ExtLink::Options& wish = ExtLink::Options()) {
        ExtLink::Options options = wish;
        options.a.type = options.b.type = MANA_HW_EXT_QP_UD;
        options.connect = false;
        open(options);
        ASSERT_TRUE(link->a.host->start_datagrams(link->a.qp, 0x1234));
        ASSERT_TRUE(link->b.host->start_datagrams(link->b.qp, 0x1234));
    }
    ExtWr datagram(std::uint64_t from, std::uint32_t length, std::uint32_t qkey = 0x1234) {
        ExtWr wr = ExtVerbsTest::datagram(from, length, qkey);
        wr.ud->udp_source_port = 0xc111;
        wr.ud->traffic_class = 0x68;
        return wr;
    }
    /// A's queue pair and memory are those of a program from here on, whose PD this is.
    DriverPd become_program() {
        RdmaHost& host = link->a.node->host;
        const auto pd = host.hwc().create_pd(false, MANA_HW_EXT_PD_GRANTED_SOURCES);
        OM_CHECK(pd.has_value());
        host.pd = *pd;
        ExtQpOptions options;
        options.type = MANA_HW_EXT_QP_UD;
        const auto qp = link->a.host->create_qp(link->a.send_cq, link->a.recv_cq, options);
        const auto mr = host.hwc().create_mr(*pd, link->a.buffer, ExtLink::kMr, ExtLink::kAll);
        OM_CHECK(qp.has_value() && mr.has_value());
        link->a.qp = *qp;
        link->a.mr = *mr;
        OM_CHECK(link->a.host->start_datagrams(link->a.qp, 0x1234));
        return *pd;
    }
    /// Whether a datagram from that address arrives.
    bool arrives_from(const roce::Gid& source) {
        link->b.recv(1, 0x80000, 1000);
        ExtWr wr = datagram(0, 10);
        std::ranges::copy(source, wr.ud->source_gid);
        const std::size_t sent = link->sent.size(), received = link->received.size();
        link->a.post(wr);
        EXPECT_TRUE(link->run(sent + 1));
        link->idle();
        EXPECT_EQ(link->sent.back().status, 0);
        return link->received.size() > received;
    }
    [[nodiscard]] std::uint64_t foreign_sources() const {
        return link->a.node->rnic.counters().drop_foreign_source.value();
    }
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtUdTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtUdTest, DatagramComesWithItsGrhAndSender) {
    open_ud();
    link->b.recv(9, 0x80000, 4096);
    ExtWr wr = datagram(10, 1000);
    wr.opcode = MANA_HW_EXT_WQE_SEND_IMM;
    wr.value = 0x01020304;
    wr.flags |= MANA_HW_EXT_WQE_SOLICITED;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1, 1));
    const auto& cqe = link->received[0];
    EXPECT_EQ(cqe.length, 1040U);
    EXPECT_EQ(cqe.cookie, 9U);
    EXPECT_EQ(cqe.source_qpn, link->a.qp.qpn);
    EXPECT_EQ(cqe.value, 0x01020304U);
    EXPECT_EQ(cqe.flags, MANA_HW_EXT_CQE_GRH | MANA_HW_EXT_CQE_IMMEDIATE | MANA_HW_EXT_CQE_IPV4 |
                             MANA_HW_EXT_CQE_SOLICITED);
    EXPECT_TRUE(std::ranges::equal(cqe.source_mac, link->a.node->host.mac()));
    EXPECT_TRUE(link->same(10, 0x80000 + 40, 1000));
    EXPECT_EQ(link->b.at(0x80000 + 20, 1)[0], std::byte{0x45});
}

TEST_P(ExtUdTest, InlineDatagram) {
    open_ud();
    link->b.recv(9, 0x80000, 4096);
    ExtWr wr = datagram(0, 0);
    wr.flags |= MANA_HW_EXT_WQE_INLINE;
    wr.data.assign(100, std::byte{0x5a});
    link->a.post(wr);
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_TRUE(std::ranges::equal(link->b.at(0x80000 + 40, 100), wr.data));
}

TEST_P(ExtUdTest, WrongKeyNoReceiveAndShortReceiveAreDropped) {
    open_ud();
    link->a.post(datagram(0, 100));
    ASSERT_TRUE(link->run(1));
    link->idle();
    link->b.recv(1, 0x80000, 100);
    link->a.post(datagram(0, 100));
    link->a.post(datagram(0, 10, 0x9999));
    link->a.post(datagram(0, 60));
    ASSERT_TRUE(link->run(4, 1));
    link->idle();
    ASSERT_EQ(link->received.size(), 1U);
    EXPECT_EQ(link->received[0].length, 100U);
    for (const auto& cqe : link->sent) EXPECT_EQ(cqe.status, 0);
}

TEST_P(ExtUdTest, ReceiveBeyondItsRegionServesWhatFits) {
    open_ud();
    link->b.recv(1, ExtLink::kMr - 140, 2048);
    link->b.recv(2, ExtLink::kMr - 140, 2048);
    link->a.post(datagram(0, 100));
    ASSERT_TRUE(link->run(1, 1));
    EXPECT_EQ(link->received[0].length, 140U);
    link->a.post(datagram(0, 101));
    ASSERT_TRUE(link->run(2, 2));
    EXPECT_EQ(link->received[1].status, 4);
    EXPECT_EQ(link->b.state(), unsigned{MANA_HW_RNIC_QP_ERR});
}

// ROCE 10: 107, 117
TEST_P(ExtUdTest, LocalErrorsStopTheSendQueue) {
    struct Case {
        std::function<void(ExtWr&)> spoil;
        std::uint8_t status;
    };
    const Case cases[] = {
        {[](ExtWr& wr) { wr.sges[0].length = 4097; }, 1},
        {[](ExtWr& wr) { wr.sges[0].key = gdma::Key(3); }, 4},
        {[](ExtWr& wr) { wr.opcode = MANA_HW_EXT_WQE_READ; }, 2},
    };
    for (const Case& test : cases) {
        open_ud();
        link->a.recv(3, 0x80000, 1000);
        link->b.recv(4, 0x80000, 1000);
        ExtWr wr = datagram(0, 100);
        test.spoil(wr);
        wr.flags = 0;
        link->a.post(wr);
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(2));
        EXPECT_EQ(link->sent[0].status, test.status);
        EXPECT_EQ(link->sent[1].status, 5);
        EXPECT_EQ(link->a.state(), unsigned{MANA_HW_RNIC_QP_SQE});
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(3));
        EXPECT_EQ(link->sent[2].status, 5) << "flushed as well";
        // What comes in is served as before.
        EXPECT_TRUE(link->a.recv_cq.drain().empty());
        ExtWr back = datagram(0, 0);
        back.sges = {link->b.sge(0, 50)};
        std::ranges::copy(link->b.node->host.gid(), back.ud->source_gid);
        std::ranges::copy(link->a.node->host.gid(), back.ud->dest_gid);
        std::ranges::copy(link->a.node->host.mac(), back.ud->dest_mac);
        back.ud->dest_qpn = link->a.qp.qpn;
        link->b.post(back);
        link->idle();
        ASSERT_EQ(link->a.recv_cq.drain().size(), 1U);
        ASSERT_TRUE(link->a.host->to_state(link->a.qp, MANA_HW_RNIC_QP_RTS));
        link->a.post(datagram(0, 100));
        ASSERT_TRUE(link->run(4, 1));
        EXPECT_EQ(link->sent[3].status, 0);
        EXPECT_EQ(link->received[0].length, 140U);
    }
}

TEST_P(ExtUdTest, MulticastReachesMembersOnBothNics) {
    open_ud();
    roce::Gid group{};
    group[10] = group[11] = 0xff;
    group[12] = 239;
    group[15] = 7;
    ASSERT_TRUE(link->b.host->multicast(link->b.qp, group, true));
    ASSERT_TRUE(link->b.host->multicast(link->b.qp, group, true)) << "twice is once";
    ASSERT_TRUE(link->a.host->multicast(link->a.qp, group, true));
    EXPECT_FALSE(link->a.host->multicast(link->a.qp, link->a.node->host.gid(), true));
    link->a.recv(1, 0x80000, 1000);
    ExtWr wr = datagram(0, 100);
    std::ranges::copy(group, wr.ud->dest_gid);
    const std::uint8_t mac[] = {1, 0, 0x5e, 0, 0, 7};
    std::ranges::copy(mac, wr.ud->dest_mac);
    wr.ud->dest_qpn = 0xffffff;
    link->a.post(wr);
    ASSERT_TRUE(link->run(1));
    const auto own = link->a.recv_cq.drain();
    ASSERT_EQ(own.size(), 1U) << "the sender is a member";
    EXPECT_EQ(own[0].source_qpn, link->a.qp.qpn);
    ASSERT_TRUE(link->a.host->multicast(link->a.qp, group, false));
    EXPECT_FALSE(link->a.host->multicast(link->a.qp, group, false));
}

TEST_P(ExtUdTest, AProgramSendsFromAddressesThatItWasGranted) {
    open_ud();
    ExtHost& host = *link->a.host;
    const roce::Gid own = link->a.node->host.gid();
    const roce::Gid others = ipv4_gid(9);
    ASSERT_TRUE(link->a.node->host.config_address(others, true));
    EXPECT_TRUE(arrives_from(others)) << "the kernel sends from any address of the adapter";

    const DriverPd pd = become_program();
    EXPECT_FALSE(arrives_from(own)) << "not one without a grant";
    EXPECT_EQ(foreign_sources(), 1U);
    ASSERT_TRUE(host.grant_source(pd, own, 3));
    EXPECT_TRUE(arrives_from(own));
    EXPECT_FALSE(arrives_from(others));
    EXPECT_EQ(foreign_sources(), 2U);
    ASSERT_TRUE(host.grant_source(pd, others, 15));
    EXPECT_TRUE(arrives_from(others));
    EXPECT_TRUE(arrives_from(own)) << "a second one takes the place of none";
    ASSERT_TRUE(host.revoke_source(15));
    EXPECT_FALSE(arrives_from(others));
    EXPECT_TRUE(arrives_from(own));
    ASSERT_TRUE(host.grant_source(pd, others, 3));
    EXPECT_FALSE(arrives_from(own)) << "one number, one address";
    EXPECT_TRUE(arrives_from(others));
}

TEST_P(ExtUdTest, AGrantIsForOnePdAndDoesNotMakeAnAddress) {
    open_ud();
    ExtHost& host = *link->a.host;
    const roce::Gid own = link->a.node->host.gid();
    const DriverPd first = become_program();
    ASSERT_TRUE(host.grant_source(first, own, 0));
    ASSERT_TRUE(arrives_from(own));
    ASSERT_TRUE(host.grant_source(first, ipv4_gid(7), 1));
    EXPECT_FALSE(arrives_from(ipv4_gid(7))) << "the adapter does not have it";
    const DriverPd second = become_program();
    EXPECT_FALSE(arrives_from(own)) << "granted to another PD";
    ASSERT_TRUE(host.grant_source(second, own, 0));
    EXPECT_TRUE(arrives_from(own));
    ASSERT_TRUE(host.revoke_source(0));
    EXPECT_FALSE(arrives_from(own)) << "revoked from all PDs";
}

TEST_P(ExtUdTest, ABadGrantIsRefused) {
    open_ud();
    ExtHost& host = *link->a.host;
    const roce::Gid own = link->a.node->host.gid();
    EXPECT_FALSE(host.grant_source(link->a.node->host.pd, own, 0)) << "a PD of the kernel";
    EXPECT_EQ(host.status, gdma::kHwcInvalidParameter);
    const DriverPd pd = become_program();
    EXPECT_FALSE(host.grant_source(pd, own, MANA_HW_EXT_PD_SOURCES));
    EXPECT_EQ(host.status, gdma::kHwcInvalidParameter);
    EXPECT_FALSE(host.revoke_source(MANA_HW_EXT_PD_SOURCES));
    EXPECT_EQ(host.status, gdma::kHwcInvalidParameter);
    EXPECT_FALSE(host.grant_source({.handle = pd.handle + 1000}, own, 0));
    EXPECT_EQ(host.status, gdma::kHwcNotFound);
    EXPECT_FALSE(arrives_from(own));
}

TEST_P(ExtUdTest, SrqReceiveKeptByAnEndingQpComesBack) {
    for (const bool destroyed : {true, false}) {
        ExtLink::Options options;
        options.srq = true;
        open_ud(options);
        link->b.recv(42, 0x80000, 100);
        link->a.post(datagram(0, 200));
        ASSERT_TRUE(link->run(1));
        link->idle();
        EXPECT_EQ(link->b.host->query_srq(*link->b.srq)->posted, 0U) << "taken, kept";
        ASSERT_TRUE(destroyed ? link->b.host->destroy_qp(link->b.qp)
                              : link->b.host->to_state(link->b.qp, MANA_HW_RNIC_QP_RESET));
        link->idle();
        ASSERT_EQ(link->received.size(), 1U);
        EXPECT_EQ(link->received[0].cookie, 42U);
        EXPECT_EQ(link->received[0].status, 5);
    }
}

}  // namespace
}  // namespace openmana::test
