// SPDX-License-Identifier: Apache-2.0
// What a NIC writes to guest memory, by whatever path and on whose thread: the write log names each
// page that changed, and no other.
#include <gtest/gtest.h>
#include <mana/queue.h>

#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include "support/eth_guest.h"
#include "support/ext_host.h"
#include "unit/fabric/nic_fixture.h"

namespace openmana::fabric::nic_test {
namespace {

using Pages = std::set<std::uint64_t>;
constexpr std::uint64_t kPage = base::PageLog::kPage;

/// Local path and wire.
class NicWriteLogTest : public NicTest, public ::testing::WithParamInterface<bool> {
protected:
    void SetUp() override {
        connect(a, b);
        if (!GetParam()) network.set_tap(tap);
        for (Machine* const machine : {&a, &b}) ASSERT_TRUE(machine->memory.log_writes());
    }
    /// Of the part of RAM that is in use at all.
    [[nodiscard]] static std::vector<std::byte> image(Machine& machine) {
        const auto bytes = machine.ram.bytes(machine.ram.start(), kUsed);
        return {bytes.begin(), bytes.end()};
    }
    static Pages logged(Machine& machine) {
        std::vector<std::byte> bits(kUsed / kPage / 8);
        machine.memory.take_written(machine.ram.start(), kUsed, {machine.ram.start(), kPage, bits});
        Pages pages;
        for (std::uint64_t i = 0; i < kUsed / kPage; ++i)
            if ((bits[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0}) pages.insert(i);
        return pages;
    }
    static Pages changed(Machine& machine, const std::vector<std::byte>& before) {
        const auto after = image(machine);
        Pages pages;
        for (std::uint64_t i = 0; i < kUsed / kPage; ++i)
            if (std::memcmp(&before[i * kPage], &after[i * kPage], kPage) != 0) pages.insert(i);
        return pages;
    }
    /// `act` lets the devices work; the processors have done their part before.
    void expect_exact(const std::function<void()>& act) {
        std::vector<std::vector<std::byte>> before;
        for (Machine* const machine : {&a, &b}) {
            (void)logged(*machine);
            before.push_back(image(*machine));
        }
        act();
        world.run_until_idle();
        EXPECT_EQ(logged(a), changed(a, before[0])) << "a";
        EXPECT_EQ(logged(b), changed(b, before[1])) << "b";
    }
    [[nodiscard]] SendWr request(std::uint32_t opcode, std::uint32_t length) {
        SendWr wr;
        wr.opcode = opcode;
        wr.sges = {{a.buffer.value() + kPage / 2, gdma::Key(a.mr.lkey), length}};
        wr.remote_address = b.buffer.value() + 100 * kPage + 50;
        wr.rkey = b.mr.rkey;
        return wr;
    }
    /// Posts it without its doorbell, so that the processor's part is over before the device's.
    void post(const SendWr& wr) { ASSERT_TRUE(a.host.post_send(*a.qp, wr, false)); }
    void fill(Machine& machine) {
        base::Random random(++fills);
        for (std::byte& byte : machine.bytes(kMr)) byte = static_cast<std::byte>(random.next());
    }

    static constexpr std::uint64_t kUsed = 16U << 20;
    CountingTap tap;
};

INSTANTIATE_TEST_SUITE_P(Paths, NicWriteLogTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(NicWriteLogTest, AWriteAndItsCompletion) {
    for (const std::uint32_t length : {1U, 4000U, 70000U}) {
        fill(a);
        post(request(MANA_HW_RNIC_WQE_WRITE, length));
        expect_exact([&] { a.qp->send.doorbell(); });
    }
}

TEST_P(NicWriteLogTest, AReadAndItsCompletion) {
    for (const std::uint32_t length : {1U, 9000U, 300000U}) {
        fill(b);
        post(request(MANA_HW_RNIC_WQE_READ, length));
        expect_exact([&] {
            a.qp->read.doorbell();
            a.qp->send.doorbell();
        });
        a.poll();
    }
}

TEST_P(NicWriteLogTest, AReceiveAndItsCompletion) {
    fill(a);
    const gdma::Sge place{b.buffer.value() + 7 * kPage + 1, gdma::Key(b.mr.lkey), 20 * kPage};
    ASSERT_TRUE(b.host.post_recv(*b.qp, 1, std::span(&place, 1)));
    world.run_until_idle();
    post(request(MANA_HW_RNIC_WQE_SEND, 3 * kPage));
    expect_exact([&] { a.qp->send.doorbell(); });
}

TEST_P(NicWriteLogTest, EventsOfCqsThatAreArmed) {
    fill(a);
    a.send_cq.arm();
    world.run_until_idle();
    post(request(MANA_HW_RNIC_WQE_WRITE, 100));
    expect_exact([&] { a.qp->send.doorbell(); });
}

TEST_P(NicWriteLogTest, FramesOfTheEthernetDevice) {
    ::openmana::test::EthGuest guest(b.host.hwc());
    ASSERT_TRUE(guest.probe());
    ASSERT_TRUE(guest.up());
    world.run_until_idle();
    expect_exact([&] {
        base::Frame frame(1400);
        std::memcpy(frame.data(), b.host.mac().data(), 6);
        frame[6] = std::byte{2};
        frame[12] = std::byte{0x88};
        frame[13] = std::byte{0xb5};
        for (std::size_t i = 14; i < frame.size(); ++i) frame[i] = static_cast<std::byte>(i + 1);
        b.nic.deliver(frame);
    });
}

// The words by which an extended queue says whether it sleeps are written over with what they were,
// and the host writes to the same page: so log and change need not be the same.
TEST_P(NicWriteLogTest, AnExtendedConnectionMissesNothing) {
    Machine c(world, network, 3, 0, true);
    Machine d(world, network, 4, 0, true);
    ::openmana::test::ExtHost first(c.host), second(d.host);
    auto cq = first.create_cq(256);
    auto other_cq = second.create_cq(256);
    ASSERT_TRUE(cq && other_cq);
    auto qp = first.create_qp(*cq, *cq);
    auto peer = second.create_qp(*other_cq, *other_cq);
    ASSERT_TRUE(qp && peer);
    ASSERT_TRUE(second.connect(*peer, 900, {c.host.gid(), c.host.mac(), qp->qpn, 100}));
    ASSERT_TRUE(first.connect(*qp, 100, {d.host.gid(), d.host.mac(), peer->qpn, 900}));
    cq->arm();
    world.advance(100ms);
    ASSERT_TRUE(c.memory.log_writes());
    ASSERT_TRUE(d.memory.log_writes());
    for (int round = 0; round < 3; ++round) {
        (void)logged(c);
        (void)logged(d);
        ::openmana::test::ExtWr add;
        add.opcode = MANA_HW_EXT_WQE_FETCH_ADD;
        add.sges = {{c.buffer.value() + 30 * kPage, gdma::Key(c.mr.lkey), 8}};
        add.remote_address = d.buffer.value() + 40 * kPage;
        add.rkey = d.mr.rkey;
        add.swap_add = 1;
        first.post(*qp, add);
        const auto before = image(c);
        const auto before_peer = image(d);
        world.advance(100ms);
        const Pages log = logged(c), log_peer = logged(d);
        for (const std::uint64_t page : changed(c, before)) EXPECT_TRUE(log.contains(page)) << page;
        for (const std::uint64_t page : changed(d, before_peer))
            EXPECT_TRUE(log_peer.contains(page)) << page;
    }
}

}  // namespace
}  // namespace openmana::fabric::nic_test
