// SPDX-License-Identifier: Apache-2.0
#include <mana/gdma.h>
#include <mana/queue.h>

#include <cstring>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using test::Request;

class RegistersTest : public FunctionFixture {};

TEST_F(RegistersTest, ReadAsTheDriverExpectsAtProbe) {
    EXPECT_EQ(driver->read64(0x08), 0x10000U);
    EXPECT_EQ(driver->read32(0x10), 0x1000U);
    EXPECT_EQ(driver->read64(0x18), 0x2000U);
    for (std::uint64_t word = 0; word < 8; ++word) EXPECT_EQ(driver->read32(0x2000 + 4 * word), 0U);
    EXPECT_EQ(driver->read64(0x20), 0U);
    EXPECT_EQ(driver->read64(0x10000), 0U);
    EXPECT_EQ(function.bar0_size(), 0x800000U);
}

TEST_F(RegistersTest, AnyWidthAndAlignmentReads) {
    std::array<std::byte, 7> bytes{};
    function.bar0_read(0x07, bytes);
    EXPECT_EQ(base::load_le<std::uint32_t>(bytes.data() + 1), 0x10000U);
    std::byte one{};
    function.bar0_read(0x11, {&one, 1});
    EXPECT_EQ(one, std::byte{0x10});
}

TEST_F(RegistersTest, StrayWritesAreCounted) {
    driver->write32(0x08, 1);
    driver->write64(0x3000, 1);
    const std::byte one{1};
    function.bar0_write(0x2000, {&one, 1});
    function.bar0_write(0x10000, {&one, 1});
    EXPECT_EQ(function.counters().bar_ignored.value(), 5U);
    EXPECT_EQ(driver->read64(0x08), 0x10000U);
}

class ShmTest : public FunctionFixture {
protected:
    std::array<std::uint32_t, 8> establish_words(GuestAddr eq, GuestAddr cq, GuestAddr rq,
                                                 GuestAddr sq) {
        mana_hw_shm_establish message{};
        const auto frame = [](std::uint8_t(&low)[6], GuestAddr address) {
            const std::uint64_t number = address.value() >> 12;
            std::memcpy(low, &number, 6);
        };
        frame(message.eq_frame, eq);
        frame(message.cq_frame, cq);
        frame(message.rq_frame, rq);
        frame(message.sq_frame, sq);
        message.header = 1;
        std::array<std::uint32_t, 8> words{};
        std::memcpy(words.data(), &message, 32);
        return words;
    }
};

/// GDMA appendix B, at its addresses. Ids differ from the example where the document says they
/// must: RQ 1 is the GSI's (RNIC 3.2).
TEST(BringUp, MatchesTheWorkedBytes) {
    test::SimWorld world;
    test::SimExecutor executor(world);
    base::GuestMemory memory;
    test::GuestRam ram(memory, 1 << 20, GuestAddr(0x123456000));
    test::FakeIrq irq;
    FunctionConfig config;
    config.max_cqs = 4096;
    Function function(executor, memory, irq, config);
    test::HwcDriver driver(function, ram, irq);

    const std::array<std::uint32_t, 8> stores{0x00123456, 0x34570000, 0x00000012, 0x00123458,
                                              0x34590000, 0x00000012, 0x00000000, 0x00000001};
    EXPECT_EQ(driver.shm_request(stores), 0x81U);
    EXPECT_EQ(driver.read32(0x201c), 0x81U);
    const GuestAddr eq(0x123456000), cq(0x123457000), rq(0x123458000), sq(0x123459000);
    const std::uint32_t rq_id = 4, sq_id = 4, key = ram.read<std::uint32_t>(eq + 9 * 16) & 0xffffff;
    const std::array<std::array<std::uint32_t, 2>, 11> events{{{0x00000001, 0x20000081},
                                                               {0x01000001, 0x20000082},
                                                               {0x02000000 | rq_id, 0x20000082},
                                                               {0x03000000 | sq_id, 0x20000082},
                                                               {0x04000001, 0x20000082},
                                                               {0x05001000, 0x20000082},
                                                               {0x06001000, 0x20000082},
                                                               {0x07001000, 0x20000082},
                                                               {0x08000001, 0x20000082},
                                                               {0x09000000 | key, 0x20000082},
                                                               {0x00000000, 0x20000083}}};
    for (std::size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(ram.read<std::uint32_t>(eq + 16 * i), events[i][0]) << i;
        EXPECT_EQ(ram.read<std::uint64_t>(eq + (16 * i + 4)), 0U) << i;
        EXPECT_EQ(ram.read<std::uint32_t>(eq + (16 * i + 12)), events[i][1]) << i;
    }
    EXPECT_EQ(ram.read<std::uint32_t>(eq + (16 * 11 + 12)), 0U);
    EXPECT_EQ(irq.count(0), 1U);
    // Five events a time, an interrupt for the rest each time.
    driver.write64(0x10000 + 0xff8, 0x8000010500000001);
    EXPECT_EQ(irq.count(0), 2U);
    driver.write64(0x10000 + 0xff8, 0x8000010A00000001);
    EXPECT_EQ(irq.count(0), 3U);
    driver.write64(0x10000 + 0xff8, 0x8000010B00000001);
    EXPECT_EQ(irq.count(0), 3U);

    // The receive buffer and the request.
    const GuestAddr request(0x123470000), response(0x123480000);
    ram.write<std::uint32_t>(rq + 4, 0x201);
    ram.write<std::uint64_t>(rq + 16, response.value());
    ram.write<std::uint32_t>(rq + 24, key);
    ram.write<std::uint32_t>(rq + 28, 4096);
    ram.write<std::uint32_t>(sq + 4, 0x601);
    ram.write<std::uint64_t>(sq + 32, request.value());
    ram.write<std::uint32_t>(sq + 40, key);
    ram.write<std::uint32_t>(sq + 44, 44);
    const std::array<std::uint32_t, 11> words{0, 0xA, 1, 0x2C, 0, 0xA, 1, 0x20, 1, 0, 1};
    for (std::size_t i = 0; i < words.size(); ++i) ram.write(request + 4 * i, words[i]);
    driver.write64(0x10000 + 0x400, 0x0000002000000000 | rq_id);
    driver.write64(0x10000 + 0x000, 0x0000004000000000 | sq_id);

    const std::array<std::uint32_t, 8> answer{0, 0xA, 1, 0x20, 1, 0, 0, 0};
    for (std::size_t i = 0; i < answer.size(); ++i)
        EXPECT_EQ(ram.read<std::uint32_t>(response + 4 * i), answer[i]);
    std::array<std::uint32_t, 16> cqe{};
    cqe[0] = 0xC0;
    cqe[6] = 0x20;
    cqe[15] = 0x20000000 | rq_id;
    for (std::size_t i = 0; i < cqe.size(); ++i)
        EXPECT_EQ(ram.read<std::uint32_t>(cq + 4 * i), cqe[i]) << i;
    EXPECT_EQ(ram.read<std::uint32_t>(eq + 16 * 11), 1U);
    EXPECT_EQ(ram.read<std::uint32_t>(eq + (16 * 11 + 12)), 0x20000003U);
    EXPECT_EQ(ram.read<std::uint32_t>(eq + (16 * 12 + 12)), 0x20000040U);
    EXPECT_EQ(irq.count(0), 4U);
}

TEST_F(ShmTest, RefusesWhatIsNoRequest) {
    for (const std::uint32_t header : {0x3U, 0x7U, 0x0U, 0x9U, 0x101U, 0x81U, 0x80000001U}) {
        const std::uint32_t answer = driver->shm_request({0, 0, 0, 0, 0, 0, 0, header});
        EXPECT_EQ(answer & 0x800000ff, (header & 7) | 0x80) << header;
        EXPECT_NE(answer >> 8 & 0xff, 0U) << header;
    }
    EXPECT_EQ(function.counters().shm_failed.value(), 7U);
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
}

TEST_F(ShmTest, RefusesRingsOutsideGuestMemory) {
    const auto page = [&] { return ram.alloc(4096); };
    const GuestAddr nowhere(0x2000000123458000);
    EXPECT_EQ(driver->shm_request(establish_words(nowhere, page(), page(), page())) & 0xffff,
              0x381U);
    EXPECT_EQ(driver->shm_request(establish_words(page(), nowhere, page(), page())) & 0xffff,
              0x381U);
    EXPECT_EQ(driver->shm_request(establish_words(page(), page(), nowhere, page())) & 0xffff,
              0x381U);
    EXPECT_EQ(driver->shm_request(establish_words(page(), page(), page(), nowhere)) & 0xffff,
              0x381U);
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
    EXPECT_TRUE(driver->bring_up());
}

TEST_F(ShmTest, RingsInMemoryThatTheClientKeepsToItselfAreCounted) {
    const GuestAddr own(0x40000000);
    ASSERT_TRUE(memory.map_hole(own, 4096));
    const auto words = establish_words(ram.alloc(4096), own, ram.alloc(4096), ram.alloc(4096));
    EXPECT_EQ(driver->shm_request(words) & 0xffff, 0x381U);
    EXPECT_EQ(function.counters().shm_unshared.value(), 1U);
    const GuestAddr nowhere(0x2000000123458000);
    EXPECT_EQ(driver->shm_request(
                  establish_words(nowhere, ram.alloc(4096), ram.alloc(4096), ram.alloc(4096))) &
                  0xffff,
              0x381U);
    EXPECT_EQ(function.counters().shm_unshared.value(), 1U);
}

TEST_F(ShmTest, InitEventsThatTheDriverNeverSeesAreCounted) {
    const auto words =
        establish_words(ram.alloc(4096), ram.alloc(4096), ram.alloc(4096), ram.alloc(4096));
    EXPECT_EQ(driver->shm_request(words) & 0xffff, 0x81U);
    EXPECT_EQ(function.counters().shm_unshared.value(), 0U);
    EXPECT_TRUE(driver->shut_down());
    EXPECT_EQ(function.counters().shm_unshared.value(), 1U);
    EXPECT_TRUE(driver->bring_up());
    EXPECT_TRUE(driver->shut_down());
    EXPECT_EQ(function.counters().shm_unshared.value(), 1U);
}

TEST_F(ShmTest, RefusesAVectorThatDoesNotExist) {
    auto words =
        establish_words(ram.alloc(4096), ram.alloc(4096), ram.alloc(4096), ram.alloc(4096));
    words[6] = 65U << 16;
    EXPECT_EQ(driver->shm_request(words), 0x281U);
}

TEST_F(ShmTest, DestroyDropsEverything) {
    ASSERT_TRUE(driver->bring_up());
    ASSERT_TRUE(driver->register_device(3));
    ASSERT_TRUE(driver->create_pd());
    const auto epoch = function.epoch();
    EXPECT_TRUE(driver->shut_down());
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
    EXPECT_EQ(ethernet.resets, 1);
    EXPECT_EQ(rdma.resets, 1);
    EXPECT_NE(function.epoch(), epoch);
    EXPECT_TRUE(driver->bring_up());
    EXPECT_TRUE(driver->register_device(3));
}

TEST_F(ShmTest, EstablishWithoutDestroyStartsAnew) {
    ASSERT_TRUE(driver->bring_up());
    ASSERT_TRUE(driver->register_device(2));
    EXPECT_TRUE(driver->bring_up());
    EXPECT_EQ(ethernet.resets, 1);
    EXPECT_TRUE(driver->register_device(2));
}

TEST_F(ShmTest, ResetClearsTheAperture) {
    ASSERT_TRUE(driver->bring_up());
    EXPECT_EQ(driver->read32(0x201c), 0x81U);
    function.reset();
    for (std::uint64_t word = 0; word < 8; ++word) EXPECT_EQ(driver->read32(0x2000 + 4 * word), 0U);
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
}

TEST_F(ShmTest, KeysFromBeforeAResetAreNotReusedAtOnce) {
    ASSERT_TRUE(driver->bring_up());
    const auto before = driver->register_device(3);
    function.reset();
    ASSERT_TRUE(driver->bring_up());
    const auto after = driver->register_device(3);
    EXPECT_NE(before->gpa_key, after->gpa_key);
}

// As after a migration that has left the NIC behind: the driver's queues were another one's.
TEST_F(ShmTest, DoorbellsBeforeAnyQueueIsMadeAreCounted) {
    driver->write64(driver->doorbell_offset(0) + MANA_HW_DB_SQ, 0x10);
    EXPECT_EQ(function.counters().doorbell_strange.value(), 1);
    ASSERT_TRUE(driver->bring_up());
    driver->write64(driver->doorbell_offset(0) + MANA_HW_DB_SQ, 0xffff);
    EXPECT_EQ(function.counters().doorbell_strange.value(), 1);
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 2);
    ASSERT_TRUE(driver->shut_down());
    driver->write64(driver->doorbell_offset(0) + MANA_HW_DB_SQ, 0x10);
    EXPECT_EQ(function.counters().doorbell_strange.value(), 2);
}

class HwcTest : public DriverFixture {};

TEST_F(HwcTest, UnknownOpcodeIsUnsupportedWithABareHeader) {
    auto response = driver->call(Request(6, 40, 400));
    EXPECT_EQ(response.status, 0xffffffffU);
    EXPECT_EQ(response.bytes.size(), 32U);
    EXPECT_EQ(response.get<std::uint32_t>(12), 32U);
    response = driver->call(Request(98, 40, 32));
    EXPECT_EQ(response.status, 0xffffffffU);
}

TEST_F(HwcTest, EchoesIdsAndAnswersTheRequestedSize) {
    Request request(MANA_HW_LIST_DEVICES, 40, 500, 0, 1, 7);
    request.put<std::uint16_t>(10, 0x1234)
        .put<std::uint32_t>(36, 0xabcdef01)
        .put<std::uint16_t>(34, 9);
    const auto response = driver->call(request);
    EXPECT_TRUE(response.ok());
    EXPECT_EQ(response.bytes.size(), 500U);
    EXPECT_EQ(response.get<std::uint32_t>(4), 3U);
    EXPECT_EQ(response.get<std::uint16_t>(8), 1U);
    EXPECT_EQ(response.get<std::uint16_t>(10), 0x1234U);
    EXPECT_EQ(response.get<std::uint32_t>(12), 500U);
    EXPECT_EQ(response.get<std::uint32_t>(16), 9U << 16);
    EXPECT_EQ(response.get<std::uint32_t>(20), 0xabcdef01U);
    EXPECT_EQ(response.get<std::uint32_t>(496), 0U);
}

TEST_F(HwcTest, CutsTheResponseToTheRoom) {
    const auto response = driver->call(Request(MANA_HW_QUERY_MAX_RESOURCES, 40, 44));
    EXPECT_TRUE(response.ok());
    EXPECT_EQ(response.bytes.size(), 44U);
    EXPECT_EQ(response.get<std::uint32_t>(36), function.config().max_sqs);
}

TEST_F(HwcTest, ClientSeesTheVersionAndMayLimitIt) {
    ethernet.handler = [](const HwcRequest& request, HwcReply& reply) {
        EXPECT_EQ(request.response_version(), 3);
        reply.put<std::uint32_t>(32, 77);
        if (request.opcode() == 0x20002) reply.set_version(2);
    };
    auto response = driver->call(Request(0x20001, 88, 80, 2, 1, 3));
    EXPECT_EQ(response.get<std::uint16_t>(8), 3U);
    EXPECT_EQ(response.get<std::uint32_t>(32), 77U);
    response = driver->call(Request(0x20002, 88, 80, 2, 1, 3));
    EXPECT_EQ(response.get<std::uint16_t>(8), 2U);
}

TEST_F(HwcTest, SeveralRequestsAreHandledInOrder) {
    driver->post_receive();
    driver->post_receive();
    driver->queue_request(Request(MANA_HW_QUERY_MAX_RESOURCES, 40, 72).put<std::uint16_t>(10, 1));
    driver->queue_request(Request(MANA_HW_LIST_DEVICES, 40, 296).put<std::uint16_t>(10, 2));
    driver->queue_request(Request(6, 40, 32).put<std::uint16_t>(10, 3));
    driver->ring_requests();
    for (std::uint16_t id = 1; id <= 3; ++id) {
        const auto response = driver->take_response();
        ASSERT_TRUE(response);
        EXPECT_EQ(response->get<std::uint16_t>(10), id);
    }
}

TEST_F(HwcTest, RequestWithoutReceiveBufferIsDroppedUnexecuted) {
    const auto malformed = function.counters().hwc_malformed.value();
    driver->queue_request(Request(MANA_HW_CREATE_PD, 48, 48));
    driver->queue_request(Request(MANA_HW_CREATE_PD, 48, 48));
    driver->ring_requests();
    EXPECT_TRUE(driver->take_response());
    EXPECT_FALSE(driver->take_response());
    EXPECT_EQ(function.counters().hwc_malformed.value(), malformed + 1);
    EXPECT_EQ(function.object_counts().pds, at_rest.pds + 1);
}

TEST_F(HwcTest, MalformedMessagesAreDropped) {
    const auto malformed = function.counters().hwc_malformed.value();
    EXPECT_FALSE(driver->call(Request(3, 40, 296).put<std::uint32_t>(12, 41))
                     .arrived);  // more than was sent
    EXPECT_FALSE(driver->call(Request(3, 40, 296).put<std::uint32_t>(12, 39))
                     .arrived);  // less than a header
    EXPECT_FALSE(
        driver->call(Request(3, 39, 296).put<std::uint32_t>(28, 296)).arrived);  // short in fact
    EXPECT_FALSE(driver->call(Request(3, 40, 31)).arrived);  // no room for a header
    EXPECT_FALSE(
        driver->call(Request(3, 40, 296).put<std::uint32_t>(0, 1)).arrived);  // unknown header
    EXPECT_EQ(function.counters().hwc_malformed.value(), malformed + 5);
    EXPECT_TRUE(driver->call(Request(3, 40, 296)).ok());
}

TEST_F(HwcTest, BadWqesAreSkippedAndTheChannelLives) {
    const std::array<std::byte, 24> oob{};
    const Sge foreign{ram.alloc(4096).value(), Key(0xdead00), 40};
    driver->hwc_sq.post(oob, std::span(&foreign, 1));
    driver->ring_requests();
    std::array<std::byte, 32> garbage{};
    garbage.fill(std::byte{0xff});
    driver->hwc_sq.post_raw(garbage);
    driver->ring_requests();
    EXPECT_FALSE(driver->take_response());
    EXPECT_EQ(function.counters().hwc_malformed.value(), 2U);
    EXPECT_TRUE(driver->call(Request(3, 40, 296)).ok());
}

TEST_F(HwcTest, PositionPastTheRingIsMalformed) {
    driver->ring_sq(driver->hwc_sq.page, driver->hwc_sq.id, driver->hwc_sq.head() + 0x10000000);
    EXPECT_EQ(function.counters().hwc_malformed.value(), 1U);
}

TEST_F(HwcTest, ManyRequestsWrapAllRings) {
    for (int i = 0; i < 2000; ++i) ASSERT_TRUE(driver->call(Request(3, 40, 296)).ok()) << i;
    EXPECT_FALSE(driver->hwc_cq.ring.overflowed());
    EXPECT_FALSE(driver->hwc_eq.ring.overflowed());
}

TEST_F(HwcTest, LinkEventsReachTheHwcEq) {
    driver->events.clear();
    function.notify_link(false);
    function.notify_link(true);
    (void)driver->call(Request(3, 40, 296));
    ASSERT_EQ(driver->events.size(), 2U);
    EXPECT_EQ(driver->events[0].type, 133);
    EXPECT_EQ(driver->events[0].data[0], 3U << 24);
    EXPECT_EQ(driver->events[1].data[0], 2U << 24);
    function.reset();
    function.notify_link(true);
}

TEST_F(HwcTest, CommandsRunUnderAnExclusion) {
    // Exclusions nest on the owning thread only; one more must not block here, a visit from
    // elsewhere must wait.
    std::atomic<bool> entered{false};
    std::thread visitor;
    ethernet.handler = [&](const HwcRequest&, HwcReply&) {
        visitor = std::thread([&] {
            const base::Gate::Visit visit(function.gate());
            entered = true;
        });
        for (int i = 0; i < 1000; ++i) std::this_thread::yield();
        EXPECT_FALSE(entered);
    };
    ASSERT_TRUE(driver->call(Request(0x20001, 88, 80, 2)).ok());
    visitor.join();
    EXPECT_TRUE(entered);
}

class DoorbellTest : public DriverFixture {
protected:
    FakeTarget target;
};

TEST_F(DoorbellTest, ReachTheTargetOnItsPageOnly) {
    auto sq = function.sqs().allocate(1, 1);
    const auto rq = function.rqs().allocate(4, 4);
    ASSERT_TRUE(sq && rq);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target);
    function.rqs().connect(rq->first(), DoorbellPage(rnic.page), &target);
    driver->ring_sq(rnic.page, sq->first().value(), 0xffffffe0);
    driver->ring_rq(rnic.page, rq->first().value(), 64, 7);
    driver->ring_rq_client(rnic.page, rq->first().value(), 0x123456);
    EXPECT_EQ(target.positions, (std::vector<std::uint32_t>{0xffffffe0, 64}));
    EXPECT_EQ(target.client_values, std::vector<std::uint32_t>{0x123456});
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 0U);

    driver->ring_sq(eth.page, sq->first().value(), 32);
    driver->ring_sq(0, sq->first().value(), 32);
    driver->ring_rq(eth.page, rq->first().value(), 32);
    driver->ring_rq_client(eth.page, rq->first().value(), 1);
    driver->ring_sq(rnic.page, 0xffffff, 32);
    driver->ring_rq(rnic.page, rq->first().value() + 1, 32);
    driver->ring_cq(rnic.page, driver->hwc_cq.id, 64, true);
    driver->ring_eq(rnic.page, driver->hwc_eq.id, 256, true);
    driver->ring_cq(rnic.page, 0xffffff, 64, true);
    driver->ring_eq(rnic.page, 0xffff, 64, true);
    driver->write64(driver->doorbell_offset(rnic.page) + 0x100, 1);
    driver->write64(0x10000 + 0x1000ULL * function.config().doorbell_pages - 0x1000 + 0x1000, 1);
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 12U);
    EXPECT_EQ(target.positions.size(), 2U);

    const Sqn id = sq->first();
    sq = base::fail(base::ErrorCode::kNotFound, "freed");
    driver->ring_sq(rnic.page, id.value(), 96);
    EXPECT_EQ(target.positions.size(), 2U);
}

TEST_F(DoorbellTest, ShortOnesAreRelative) {
    const auto sq = function.sqs().allocate(1, 1);
    const auto rq = function.rqs().allocate(1, 1);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target);
    function.rqs().connect(rq->first(), DoorbellPage(rnic.page), &target);
    const std::uint64_t page = driver->doorbell_offset(rnic.page);
    driver->write32(page + 0x010, sq->first().value() << 16 | 64);
    driver->write32(page + 0x010, sq->first().value() << 16 | 96);
    driver->write32(page + 0x410, rq->first().value() << 16 | 32);
    EXPECT_EQ(target.positions, (std::vector<std::uint32_t>{64, 160, 32}));

    auto eq = driver->create_eq(3, rnic, 1);
    ASSERT_TRUE(eq);
    test::DriverCq view;
    auto cq = make_cq(*function.eqs().find(Eqn(eq->id)), view);
    ASSERT_NE(cq, nullptr);
    cq->post({}, 1, false);
    driver->write32(page + 0x810, 1U << 31 | view.id << 16 | 1);  // consumed one, armed
    EXPECT_FALSE(eq->poll());
    cq->post({}, 1, false);
    EXPECT_TRUE(eq->poll());
    const auto interrupts = irq.count(1);
    driver->write32(page + 0xff0, 1U << 31 | eq->id << 16 | 1);
    EXPECT_EQ(irq.count(1), interrupts);
    cq = nullptr;
}

TEST_F(DoorbellTest, AQueueConnectedAnewBeginsAnew) {
    const auto sq = function.sqs().allocate(1, 1);
    const std::uint64_t page = driver->doorbell_offset(rnic.page);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target);
    driver->write32(page + 0x010, sq->first().value() << 16 | 64);
    FakeTarget other;
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &other);
    driver->write32(page + 0x010, sq->first().value() << 16 | 32);
    EXPECT_EQ(target.positions, std::vector<std::uint32_t>{64});
    EXPECT_EQ(other.positions, std::vector<std::uint32_t>{32});
}

TEST_F(DoorbellTest, MemoryThatIsGoneIsNoMatter) {
    const auto sq = function.sqs().allocate(1, 1);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target, sizeof target);
    function.sqs().set_beyond(sq->first(), reinterpret_cast<const void*>(4096), 640);
    driver->ring_sq(rnic.page, sq->first().value(), 64);
    function.rqs().prefetch(Rqn(0xffffff));
    EXPECT_EQ(target.positions, std::vector<std::uint32_t>{64});
}

TEST_F(DoorbellTest, AWriteOfManyBytesIsManyDoorbells) {
    const auto rq = function.rqs().allocate(1, 1);
    function.rqs().connect(rq->first(), DoorbellPage(rnic.page), &target);
    const std::array<std::uint64_t, 2> values{mana_hw_wq_doorbell(rq->first().value(), 1, 32),
                                              mana_hw_rq_client_doorbell(rq->first().value(), 5)};
    function.bar0_write(driver->doorbell_offset(rnic.page) + 0x400,
                        std::as_bytes(std::span(values)));
    EXPECT_EQ(target.positions.size(), 1U);
    EXPECT_EQ(target.client_values.size(), 1U);
}

/// BAR0 writes that are handed over together.
class DoorbellRunTest : public DoorbellTest {
protected:
    void add(std::uint64_t in_page, std::uint64_t value) {
        words_.push_back(value);
        offsets_.push_back(driver->doorbell_offset(rnic.page) + in_page);
    }
    void deliver() {
        std::vector<base::BarWrite> writes;
        for (std::size_t i = 0; i < words_.size(); ++i)
            writes.push_back({offsets_[i], std::as_bytes(std::span(&words_[i], 1))});
        function.bar0_writes(writes);
    }
    std::vector<std::uint64_t> words_;
    std::vector<std::uint64_t> offsets_;
};

TEST_F(DoorbellRunTest, RingsAllInOrderAndAnnouncesTheLaterOnes) {
    const auto sq = function.sqs().allocate(1, 1);
    const auto rq = function.rqs().allocate(1, 1);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target);
    function.rqs().connect(rq->first(), DoorbellPage(rnic.page), &target);
    std::vector<std::uint32_t> expected;
    for (std::uint32_t i = 1; i <= 20; ++i) {
        add(MANA_HW_DB_SQ, mana_hw_wq_doorbell(sq->first().value(), 0, 64 * i));
        add(MANA_HW_DB_RQ_CLIENT, mana_hw_rq_client_doorbell(rq->first().value(), i));
        expected.push_back(64 * i);
    }
    deliver();
    EXPECT_EQ(target.positions, expected);
    EXPECT_EQ(target.client_values.size(), 20U);
    // Each but the first.
    EXPECT_EQ(target.hints.size(), 39U);
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 0U);
}

TEST_F(DoorbellRunTest, WhatMakesNoSenseIsIgnoredAsAlways) {
    const auto sq = function.sqs().allocate(1, 1);
    function.sqs().connect(sq->first(), DoorbellPage(rnic.page), &target);
    const std::uint64_t good = mana_hw_wq_doorbell(sq->first().value(), 0, 64);
    add(MANA_HW_DB_SQ, mana_hw_wq_doorbell(0xffffff, 0, 64));
    add(MANA_HW_DB_RQ, mana_hw_wq_doorbell(0xffffff, 0, 64));
    add(MANA_HW_DB_SQ, mana_hw_wq_doorbell(0, 0, 64));
    add(MANA_HW_DB_SQ + 0x100, good);
    add(MANA_HW_DB_SQ, good);
    deliver();
    const std::byte one{1};
    const std::array<base::BarWrite, 3> odd{{{0x10000, {}}, {0x10003, {&one, 1}}, {0, {&one, 1}}}};
    function.bar0_writes(odd);
    function.bar0_writes({});
    EXPECT_EQ(target.positions, std::vector<std::uint32_t>{64});
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 4U);
    EXPECT_EQ(function.counters().bar_ignored.value(), 2U);
}

TEST_F(DoorbellRunTest, AQueueThatAnEarlierDoorbellEndsIsNotTouched) {
    /// Ends the other queue with its first doorbell.
    struct Ender final : DoorbellTarget {
        void ring(std::uint32_t) override { end(); }
        std::function<void()> end;
    } ender;
    const auto first = function.sqs().allocate(1, 1);
    const auto second = function.sqs().allocate(1, 1);
    auto victim = std::make_unique<FakeTarget>();
    function.sqs().connect(first->first(), DoorbellPage(rnic.page), &ender);
    function.sqs().connect(second->first(), DoorbellPage(rnic.page), victim.get());
    ender.end = [&] {
        function.sqs().connect(second->first(), DoorbellPage(rnic.page), nullptr);
        victim.reset();
    };
    add(MANA_HW_DB_SQ, mana_hw_wq_doorbell(first->first().value(), 0, 64));
    for (int i = 0; i < 20; ++i)
        add(MANA_HW_DB_SQ, mana_hw_wq_doorbell(second->first().value(), 0, 64));
    deliver();
    EXPECT_EQ(victim, nullptr);
    EXPECT_EQ(function.counters().doorbell_ignored.value(), 20U);
}

TEST_F(DoorbellTest, QueueIdsFollowTheRules) {
    const auto srq = function.sqs().allocate(3, 4);
    const auto rrq = function.rqs().allocate(2, 4);
    EXPECT_EQ(srq->first().value() % 4, 0U);
    EXPECT_EQ(rrq->first().value() % 4, 0U);
    EXPECT_EQ(rrq->at(1).value() % 4, 1U);
    EXPECT_NE(driver->hwc_rq.id, 1U);
    {
        const auto one = function.rqs().allocate_reserved(Rqn(1));
        EXPECT_EQ(one->first().value(), 1U);
        EXPECT_EQ(function.object_counts().rqs, at_rest.rqs + 3);
        EXPECT_EQ(function.rqs().allocate_reserved(Rqn(1)).error().code, base::ErrorCode::kBusy);
    }
    EXPECT_TRUE(function.rqs().allocate_reserved(Rqn(1)));
    // Freed blocks are not used again at once, and no id twice.
    std::vector<std::uint32_t> seen;
    for (int i = 0; i < 100; ++i) {
        const auto id = function.rqs().allocate(2, 4);
        ASSERT_TRUE(id);
        EXPECT_EQ(std::count(seen.begin(), seen.end(), id->first().value()), 0);
        seen.push_back(id->first().value());
    }
    EXPECT_FALSE(function.rqs().allocate(5, 1));
    EXPECT_FALSE(function.rqs().allocate(1, 8));
    EXPECT_FALSE(function.sqs().allocate(0, 1));
}

TEST_F(DoorbellTest, SingleIdsAreUniqueAndComeBack) {
    std::vector<bool> used(1 << 16);
    std::vector<SqIds> held;
    base::Random random(7);
    for (int i = 0; i < 20000; ++i) {
        if (held.size() < 50 || random.below(2) == 0) {
            auto id = function.sqs().allocate(1, 1);
            ASSERT_TRUE(id);
            ASSERT_FALSE(used.at(id->first().value()));
            used[id->first().value()] = true;
            held.push_back(std::move(*id));
        } else {
            const auto victim = random.below(held.size());
            used[held[victim].first().value()] = false;
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(victim));
        }
    }
    held.clear();
    EXPECT_EQ(function.object_counts().sqs, at_rest.sqs);
}

}  // namespace
}  // namespace openmana::gdma
