// SPDX-License-Identifier: Apache-2.0
#include <mana/gdma.h>

#include "unit/gdma/fixture.h"

namespace openmana::gdma {
namespace {

using test::Request;

class HostileTest : public DriverFixture {
protected:
    static FunctionConfig config() {
        FunctionConfig config;
        config.doorbell_pages = 16;
        config.max_eqs = 20;
        config.max_cqs = 20;
        config.max_pds = 20;
        config.max_mrs = 40;
        config.max_regions = 20;
        config.max_region_pages = 4000;
        config.max_device_memory = 1 << 16;
        return config;
    }
    HostileTest() : DriverFixture(config()) {}
    std::uint64_t value(base::Random& random) {
        switch (random.below(6)) {
            case 0:
                return random.below(40);
            case 1:
                return ~random.below(40);
            case 2:
                return 0x1000 + random.below(200);  // handles
            case 3:
                return 4096 * random.below(8);
            case 4:
                return 1ULL << 32 | random.below(40) << 8;  // MR handles
            default:
                return random.next() >> random.below(64);
        }
    }
};

TEST_F(HostileTest, RandomRequestsAreAnswered) {
    static constexpr std::array<std::uint32_t, 22> kOpcodes{1,  2,  3,  4,  5,       10,     12, 13,
                                                            22, 24, 25, 26, 27,      29,     30, 31,
                                                            32, 84, 96, 97, 0x20001, 0x30005};
    base::Random random(20261121);
    std::uint64_t succeeded = 0;
    for (int i = 0; i < 30000; ++i) {
        const std::uint32_t opcode = kOpcodes[random.below(kOpcodes.size())];
        // Now and then the driver loses its devices: without them most would be refused.
        if (opcode == 5 && random.below(20) != 0) continue;
        const std::size_t size =
            random.below(4) == 0 ? 40 + random.below(200) : 40 + 8 * random.below(12);
        Request request(opcode, size, static_cast<std::uint32_t>(32 + random.below(300)),
                        static_cast<std::uint16_t>(random.below(4)));
        for (std::size_t at = 40; at + 4 <= size; at += 4)
            if (random.below(2) == 0)
                request.put<std::uint32_t>(at, static_cast<std::uint32_t>(value(random)));
        for (std::size_t at = 40; at + 8 <= size; at += 8)
            if (random.below(3) == 0) request.put<std::uint64_t>(at, value(random));
        if (opcode == 12 && random.below(2) == 0 && size >= 80)
            request.put<std::uint32_t>(40, 4)
                .put(48, rnic.pd)
                .put(52, rnic.page)
                .put<std::uint32_t>(68, 4096);
        if (opcode == 25 && random.below(2) == 0 && size >= 72)
            request.put<std::uint64_t>(40, 4096)
                .put<std::uint64_t>(48, 0)
                .put<std::uint32_t>(56, 1)
                .put<std::uint32_t>(60, 1)
                .put<std::uint64_t>(64, 0x100000000);
        const auto response = driver->call(request);
        ASSERT_TRUE(response.arrived) << i;
        succeeded += response.ok() ? 1 : 0;
        if (random.below(500) == 0) {
            function.reset();
            ASSERT_EQ(function.object_counts(), ObjectCounts{});
            ASSERT_TRUE(driver->bring_up());
        }
        if (const auto again = driver->register_device(3)) rnic = *again;
        (void)driver->register_device(2);
    }
    EXPECT_GT(succeeded, 3000U);
    function.reset();
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
}

TEST_F(HostileTest, RandomRegisterWritesAreSurvived) {
    base::Random random(4711);
    for (int i = 0; i < 100000; ++i) {
        std::array<std::byte, 24> data;
        for (std::size_t at = 0; at < data.size(); at += 8)
            base::store_le(data.data() + at, value(random));
        std::uint64_t offset = random.below(function.bar0_size() - data.size());
        if (random.below(4) == 0) offset = 0x2000 + 4 * random.below(8);
        if (random.below(4) == 0) {
            static constexpr std::array<std::uint64_t, 9> kDoorbells{
                0, 0x10, 0x400, 0x408, 0x410, 0x800, 0x810, 0xff0, 0xff8};
            offset =
                0x10000 + 0x1000 * random.below(20) + kDoorbells[random.below(kDoorbells.size())];
        }
        function.bar0_write(offset, std::span(data).first(random.below(data.size() + 1)));
    }
    function.reset();
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
    EXPECT_TRUE(driver->bring_up());
}

TEST_F(HostileTest, GuestMemoryMayVanishAtAnyTime) {
    ASSERT_TRUE(driver->create_eq(3, rnic, 1));
    ASSERT_TRUE(memory.unmap(ram.start(), ram.size()));
    driver->queue_request(Request(MANA_HW_LIST_DEVICES, 40, 296));
    driver->hwc_sq.doorbell();
    EXPECT_FALSE(driver->take_response());
    function.notify_link(false);
    EXPECT_FALSE(driver->bring_up());
    EXPECT_EQ(function.object_counts(), ObjectCounts{});
    ASSERT_TRUE(memory.map_host(ram.start(), ram.bytes(ram.start(), ram.size())));
    EXPECT_TRUE(driver->bring_up());
}

TEST_F(HostileTest, TestEventStormsStayBounded) {
    const auto eq = driver->create_eq(3, rnic, 1, 4096);
    ASSERT_TRUE(eq);
    for (int i = 0; i < 5000; ++i)
        ASSERT_TRUE(
            driver
                ->call(Request(MANA_HW_GENERATE_TEST_EQE, 44, 32, 3).put<std::uint32_t>(40, eq->id))
                .ok());
    auto view = *eq;
    EXPECT_EQ(view.drain().size(), 256U);
    EXPECT_FALSE(view.ring.overflowed());
    view.arm();
    EXPECT_EQ(view.drain().size(), 1U);
}

}  // namespace
}  // namespace openmana::gdma
