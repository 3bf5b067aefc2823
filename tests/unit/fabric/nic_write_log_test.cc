// SPDX-License-Identifier: Apache-2.0
// What a NIC writes to guest memory, by whatever path and on whose thread: the write log names each
// page that changed, and no other.
#include <gtest/gtest.h>
#include <mana/queue.h>

#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <span>
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
    void fill(Machine& machine) { fill(machine.bytes(kMr)); }
    void fill(std::span<std::byte> bytes) {
        base::Random random(++fills);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
    }
    static base::Frame frame_to(const Machine& machine, unsigned number) {
        base::Frame frame(1400);
        std::memcpy(frame.data(), machine.host.mac().data(), 6);
        frame[6] = std::byte{2};
        frame[12] = std::byte{0x88};
        frame[13] = std::byte{0xb5};
        for (std::size_t i = 14; i < frame.size(); ++i)
            frame[i] = static_cast<std::byte>(number + i + 1);
        return frame;
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

// As a guest's memory mostly is: each page is found by itself.
TEST_P(NicWriteLogTest, RegionsOfPagesThatDoNotFollowEachOther) {
    constexpr std::uint32_t kLength = 20 * kPage;
    const auto pages = a.ram.alloc_scattered(kLength / kPage);
    ASSERT_EQ(b.ram.alloc_scattered(kLength / kPage), pages);
    const auto scatter = [&](Machine& machine) {
        const auto region = machine.host.hwc().create_region(pages, kLength);
        OM_CHECK(region.has_value());
        return *machine.host.hwc().create_mr_of(machine.host.pd, *region, kLength, kAll);
    };
    const DriverMr here = scatter(a);
    const DriverMr there = scatter(b);
    for (const std::uint32_t opcode : {MANA_HW_RNIC_WQE_WRITE, MANA_HW_RNIC_WQE_READ}) {
        SCOPED_TRACE(opcode);
        for (const std::uint64_t page : pages)
            for (Machine* const machine : {&a, &b})
                fill(machine->ram.bytes(base::GuestAddr(page), kPage));
        SendWr wr = request(opcode, kLength - 3 * kPage);
        wr.sges = {{kLength + kPage / 2, gdma::Key(here.lkey), kLength - 3 * kPage}};
        wr.remote_address = kLength + kPage + 50;
        wr.rkey = there.rkey;
        post(wr);
        expect_exact([&] {
            a.qp->read.doorbell();
            a.qp->send.doorbell();
        });
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
    expect_exact([&] { b.nic.deliver(frame_to(b, 0)); });
}

TEST_P(NicWriteLogTest, FramesThatShareACompletion) {
    ::openmana::test::EthGuest guest(b.host.hwc());
    ASSERT_TRUE(guest.probe());
    ASSERT_TRUE(guest.up());
    for (const unsigned together : {4U, 8U}) {
        SCOPED_TRACE(together);
        ::openmana::test::RxConfig config;
        config.default_rq = guest.rx[0].object;
        config.packets_per_cqe = together;
        config.version = 5;
        ASSERT_TRUE(guest.config_rx(config).ok());
        world.run_until_idle();
        expect_exact([&] {
            for (unsigned i = 0; i < together; ++i) b.nic.deliver(frame_to(b, i));
            world.advance(1ms);
        });
        const auto told = guest.poll_together(guest.rx[0]);
        ASSERT_TRUE(told);
        EXPECT_EQ(told->packets.size(), together);
    }
}

// Messages, completions of both queues and events of the channel by which a driver gives commands.
TEST_P(NicWriteLogTest, AnswersToCommands) {
    ::openmana::test::HwcDriver& driver = b.host.hwc();
    for (int i = 0; i < 3; ++i) {
        driver.queue_request(Request(MANA_HW_CREATE_PD, 48, 48));
        expect_exact([&] { driver.ring_requests(); });
        const auto answer = driver.take_response();
        ASSERT_TRUE(answer);
        EXPECT_TRUE(answer->ok());
        driver.post_receive();
    }
}

/// Two guests that have the extension.
class ExtWriteLogTest : public NicWriteLogTest {
protected:
    void SetUp() override {
        if (!GetParam()) network.set_tap(tap);
        for (Side* const side : {&c, &d}) ASSERT_TRUE(side->open());
        const auto all = d.machine.host.hwc().create_mr(d.machine.host.pd, d.machine.buffer, kMr,
                                                        kAll | gdma::kRemoteAtomic);
        ASSERT_TRUE(all);
        target = *all;
        ASSERT_TRUE(
            d.ext.connect(d.qp, 900, {c.machine.host.gid(), c.machine.host.mac(), c.qp.qpn, 100}));
        ASSERT_TRUE(
            c.ext.connect(c.qp, 100, {d.machine.host.gid(), d.machine.host.mac(), d.qp.qpn, 900}));
        world.advance(100ms);
        for (Side* const side : {&c, &d}) ASSERT_TRUE(side->machine.memory.log_writes());
    }
    struct Side {
        Side(SimWorld& world, Switch& network, std::uint8_t number)
            : machine(world, network, number, 0, true), ext(machine.host) {}
        bool open() {
            auto queue = ext.create_cq(256);
            if (!queue) return false;
            cq = *queue;
            auto pair = ext.create_qp(cq, cq);
            if (!pair) return false;
            qp = *pair;
            return true;
        }
        [[nodiscard]] std::uint64_t page_of(std::uint64_t address) const {
            return (address - machine.ram.start().value()) / kPage;
        }
        /// Of the queue pair's rings and record.
        [[nodiscard]] Pages rings() const {
            Pages pages;
            for (const std::uint64_t page : qp.memory.ring.pages) pages.insert(page_of(page));
            return pages;
        }
        [[nodiscard]] gdma::Sge sge(std::uint64_t offset, std::uint32_t length) const {
            return {machine.buffer.value() + offset, gdma::Key(machine.mr.lkey), length};
        }
        Machine machine;
        ::openmana::test::ExtHost ext;
        ::openmana::test::ExtCq cq;
        ::openmana::test::ExtQp qp;
    };
    [[nodiscard]] ::openmana::test::ExtWr request(std::uint8_t opcode, std::uint32_t length) {
        ::openmana::test::ExtWr wr;
        wr.opcode = opcode;
        wr.sges = {c.sge(30 * kPage + 8, length)};
        wr.remote_address = d.machine.buffer.value() + 40 * kPage + 16;
        wr.rkey = target.rkey;
        wr.swap_add = 1;
        return wr;
    }
    void fill_both() {
        for (Side* const side : {&c, &d}) fill(side->machine.bytes(150 * kPage));
    }
    /// Beside `ignored`, log and change are the same.
    static void expect_same(Side& side, const std::vector<std::byte>& before,
                            const Pages& ignored) {
        Pages log = logged(side.machine), change = changed(side.machine, before);
        for (const std::uint64_t page : ignored) {
            log.erase(page);
            change.erase(page);
        }
        EXPECT_EQ(log, change) << side.machine.nic.config().name;
    }
    /// The processor that posts writes to its rings, and a queue pair says in its record what that
    /// says already.
    void expect_exact_of(const ::openmana::test::ExtWr& wr) {
        for (Side* const side : {&c, &d}) (void)logged(side->machine);
        const auto before = image(c.machine);
        const auto before_peer = image(d.machine);
        c.ext.post(c.qp, wr);
        world.advance(100ms);
        expect_same(c, before, c.rings());
        expect_same(d, before_peer, d.rings());
        const auto done = c.cq.poll();
        ASSERT_TRUE(done);
        EXPECT_EQ(done->status, 0);
    }

    Side c{world, network, 3};
    Side d{world, network, 4};
    DriverMr target;  ///< of all of D's buffer, for atomics too
};

INSTANTIATE_TEST_SUITE_P(Paths, ExtWriteLogTest, ::testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Local" : "Wire"; });

TEST_P(ExtWriteLogTest, AtomicsAndTheirResults) {
    fill_both();
    expect_exact_of(request(MANA_HW_EXT_WQE_FETCH_ADD, 8));
    auto swap = request(MANA_HW_EXT_WQE_CMP_SWAP, 8);
    swap.compare = d.machine.ram.read<std::uint64_t>(base::GuestAddr(swap.remote_address));
    expect_exact_of(swap);
}

TEST_P(ExtWriteLogTest, WritesAndReads) {
    for (const std::uint32_t length : {1U, 4096U, 100000U})
        for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_WRITE, MANA_HW_EXT_WQE_READ}) {
            fill_both();
            expect_exact_of(request(opcode, length));
        }
}

TEST_P(ExtWriteLogTest, ReceivesAndEventsOfBothEnds) {
    const std::array<gdma::Sge, 2> places{d.sge(7 * kPage + 1, kPage),
                                          d.sge(90 * kPage, 4 * kPage)};
    for (const std::uint8_t opcode : {MANA_HW_EXT_WQE_SEND, MANA_HW_EXT_WQE_WRITE_IMM}) {
        SCOPED_TRACE(opcode);
        d.ext.recv(d.qp, 1, places);
        c.cq.arm();
        d.cq.arm();
        world.advance(100ms);
        fill_both();
        expect_exact_of(request(opcode, 3 * kPage));
        ASSERT_TRUE(d.cq.poll());
    }
}

// Where it is has been kept since the queue was made, so nobody looks for it to write there.
TEST_P(ExtWriteLogTest, AQueueThatGoesToSleepSaysSoInItsRecord) {
    fill(c.machine);
    c.ext.post(c.qp, request(MANA_HW_EXT_WQE_WRITE, 100));
    (void)logged(c.machine);
    const auto before = image(c.machine);
    world.advance(100ms);
    const std::uint64_t record = c.page_of(c.qp.memory.ring.pages.back());
    ASSERT_TRUE(changed(c.machine, before).contains(record)) << "it was asleep";
    EXPECT_TRUE(logged(c.machine).contains(record));
    world.advance(100ms);
    EXPECT_EQ(logged(c.machine), Pages()) << "one that sleeps writes nothing";
}

}  // namespace
}  // namespace openmana::fabric::nic_test
