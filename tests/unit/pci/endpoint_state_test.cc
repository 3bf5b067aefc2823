// SPDX-License-Identifier: Apache-2.0
// A function that goes on elsewhere: what its driver sees, and what its client has lent.
#include <gtest/gtest.h>
#include <linux/pci_regs.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "pci/endpoint.h"
#include "support/state_damage.h"
#include "support/vfio_user_client.h"

namespace openmana::pci {
namespace {

using base::GuestAddr;
using base::StateReader;
using base::StateWriter;
using base::UniqueFd;
using test::for_each_damage;
using test::make_eventfd;
using test::make_memfd;
using test::read_state;
using test::take_signals;
using test::Written;
using vfio_user::kIrqMsix;
using vfio_user::kRegionConfig;

constexpr unsigned kMsixRegion = 4;
constexpr unsigned kVectors = 4;

class NoModel final : public FunctionModel {
public:
    [[nodiscard]] std::uint64_t bar0_size() const override { return 65536; }
    void bar0_read(std::uint64_t, std::span<std::byte>) override {}
    void bar0_write(std::uint64_t, std::span<const std::byte>) override {}
    void reset() override {}
};

/// A function with all that is below its model.
struct Nic {
    explicit Nic(std::uint64_t serial = 7, unsigned vectors = kVectors)
        : endpoint(
              memory,
              {.name = "nic", .msix_vectors = vectors, .serial = serial, .dma = {.ranges = 8}}) {
        endpoint.attach(model, gate);
    }
    template <typename T>
    void write(unsigned region, std::uint64_t offset, T value) {
        EXPECT_TRUE(endpoint.region_write(region, offset, std::as_bytes(std::span(&value, 1))));
    }
    [[nodiscard]] std::vector<std::byte> all(unsigned region) {
        std::vector<std::byte> bytes(endpoint.region(region).size);
        EXPECT_TRUE(endpoint.region_read(region, 0, bytes));
        return bytes;
    }
    void set_bus_master(bool on) {
        write<std::uint16_t>(kRegionConfig, PCI_COMMAND,
                             on ? PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER : PCI_COMMAND_MEMORY);
    }
    UniqueFd assign(unsigned vector) {
        UniqueFd fd = make_eventfd();
        EXPECT_TRUE(endpoint.irq_assign(kIrqMsix, vector, UniqueFd(::dup(fd.get()))));
        return fd;
    }
    [[nodiscard]] Written device() const {
        return test::written({}, [&](StateWriter& out) { endpoint.save(out); });
    }
    [[nodiscard]] Written lent() const {
        return test::written({}, [&](StateWriter& out) { endpoint.save_lent(out); });
    }
    /// The reason of a refusal, or "".
    std::string load(const Written& state) {
        const auto read = read_state(state, {}, [&](StateReader& in) { endpoint.load(in); });
        return read ? "" : read.error().text;
    }
    std::string load_lent(const Written& state) {
        const auto read = read_state(state, {}, [&](StateReader& in) { endpoint.load_lent(in); });
        return read ? "" : read.error().text;
    }

    base::GuestMemory memory;
    base::Gate gate;
    Endpoint endpoint;
    NoModel model;
};

class EndpointStateTest : public testing::Test {
protected:
    /// As a driver leaves it that was brought up.
    void set_up_as_a_driver() {
        nic.write<std::uint64_t>(kRegionConfig, PCI_BASE_ADDRESS_0, 0x4012340000);
        nic.write<std::uint8_t>(kRegionConfig, PCI_INTERRUPT_LINE, 11);
        nic.write<std::uint16_t>(kRegionConfig, kCapMsix + PCI_MSIX_FLAGS, PCI_MSIX_FLAGS_ENABLE);
        nic.set_bus_master(true);
        nic.write<std::uint64_t>(kMsixRegion, 16, 0xfee00000);
        nic.write<std::uint64_t>(kMsixRegion, 24, 0x4021);
        nic.endpoint.raise(3);  // nobody has given its eventfd
    }
    Nic nic;
    Nic other;
};

TEST_F(EndpointStateTest, TheDriverSeesTheSameDevice) {
    set_up_as_a_driver();
    ASSERT_EQ(other.load(nic.device()), "");
    EXPECT_EQ(other.all(kRegionConfig), nic.all(kRegionConfig));
    EXPECT_EQ(other.all(kMsixRegion), nic.all(kMsixRegion)) << "the table, and what is pending";
    EXPECT_EQ(other.device().bytes, nic.device().bytes);
}

TEST_F(EndpointStateTest, AnInterruptThatWasPendingComesWhenItsEventfdDoes) {
    nic.endpoint.raise(2);
    ASSERT_EQ(other.load(nic.device()), "");
    const UniqueFd eventfd = other.assign(2);
    EXPECT_EQ(take_signals(eventfd), 1U);
    EXPECT_EQ(nic.device().descriptors.size(), 0U) << "the device goes without the client's";
}

TEST_F(EndpointStateTest, AClientThatIsThereAlreadyGetsWhatWasPending) {
    nic.endpoint.raise(2);
    const UniqueFd eventfd = other.assign(2);
    ASSERT_EQ(other.load(nic.device()), "");
    EXPECT_EQ(take_signals(eventfd), 1U);

    nic.set_bus_master(false);
    Nic third;
    const UniqueFd held = third.assign(2);
    ASSERT_EQ(third.load(nic.device()), "");
    EXPECT_EQ(take_signals(held), 0U) << "without mastering nothing is sent";
}

TEST_F(EndpointStateTest, WhatTheClientHasMaskedStaysMasked) {
    const UniqueFd eventfd = nic.assign(1);
    nic.endpoint.irq_mask(kIrqMsix, 1, true);
    nic.endpoint.raise(1);
    ASSERT_EQ(other.load(nic.device()), "");
    ASSERT_EQ(other.load_lent(nic.lent()), "");
    EXPECT_EQ(take_signals(eventfd), 0U);
    other.endpoint.irq_mask(kIrqMsix, 1, false);
    EXPECT_EQ(take_signals(eventfd), 1U);
}

TEST_F(EndpointStateTest, WithoutMasteringNothingIsReachedOrSent) {
    ASSERT_TRUE(nic.endpoint.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    const UniqueFd eventfd = nic.assign(0);
    nic.set_bus_master(false);
    nic.endpoint.raise(0);
    ASSERT_EQ(other.load(nic.device()), "");
    ASSERT_EQ(other.load_lent(nic.lent()), "");
    std::array<std::byte, 8> bytes{};
    EXPECT_FALSE(other.memory.read(GuestAddr(0x1000), bytes));
    EXPECT_EQ(take_signals(eventfd), 0U);
    other.set_bus_master(true);
    EXPECT_TRUE(other.memory.read(GuestAddr(0x1000), bytes));
    EXPECT_EQ(take_signals(eventfd), 1U);
}

TEST_F(EndpointStateTest, AClientThatNeverWroteTheCommandRegisterIsNotKeptFromAnything) {
    ASSERT_TRUE(nic.endpoint.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    ASSERT_EQ(other.load(nic.device()), "");
    ASSERT_EQ(other.load_lent(nic.lent()), "");
    std::array<std::byte, 8> bytes{};
    EXPECT_TRUE(other.memory.read(GuestAddr(0x1000), bytes));
}

TEST_F(EndpointStateTest, EventfdsAreTheSameInTheOtherProcess) {
    const UniqueFd one = nic.assign(1);
    const UniqueFd two = nic.assign(2);
    ASSERT_EQ(other.load(nic.device()), "");
    ASSERT_EQ(other.load_lent(nic.lent()), "");
    EXPECT_EQ(take_signals(one) + take_signals(two), 0U) << "a state that is read signals nothing";
    other.endpoint.raise(1);
    other.endpoint.raise(2);
    other.endpoint.raise(2);
    EXPECT_EQ(take_signals(one), 1U);
    EXPECT_EQ(take_signals(two), 2U);
    other.endpoint.raise(0);
    EXPECT_TRUE((other.all(kMsixRegion)[4096] & std::byte{1}) != std::byte{0}) << "it has none";
}

TEST_F(EndpointStateTest, WritingAStateChangesNothing) {
    set_up_as_a_driver();
    const UniqueFd eventfd = nic.assign(0);
    const auto config = nic.all(kRegionConfig);
    (void)nic.device();
    (void)nic.lent();
    EXPECT_EQ(nic.all(kRegionConfig), config);
    nic.endpoint.raise(0);
    EXPECT_EQ(take_signals(eventfd), 1U);
}

TEST_F(EndpointStateTest, TheStateOfAnotherFunctionIsRefused) {
    Nic of_another_serial(8);
    Nic of_more_vectors(7, kVectors + 1);
    for (Nic* const target : {&of_another_serial, &of_more_vectors}) {
        const auto before = target->all(kRegionConfig);
        EXPECT_EQ(target->load(nic.device()), "configuration space of another function");
        EXPECT_EQ(target->all(kRegionConfig), before);
    }
    EXPECT_EQ(of_more_vectors.load_lent(nic.lent()), "another number of vectors");
}

TEST_F(EndpointStateTest, WhatIsNoEventfdIsRefused) {
    const UniqueFd eventfd = nic.assign(0);
    Written state = nic.lent();
    const UniqueFd memory = make_memfd(4096);
    state.descriptors[0] = memory.get();
    EXPECT_EQ(other.load_lent(state), "not an eventfd");
}

TEST_F(EndpointStateTest, DamageIsRefusedOrGivesADeviceThatCanBeReset) {
    set_up_as_a_driver();
    ASSERT_TRUE(nic.endpoint.dma_map({0x1000, 0x1000, 0, true, true}, make_memfd(0x1000)));
    const UniqueFd eventfd = nic.assign(1);
    base::set_log_level(base::LogLevel::kWarn);  // resets are many
    unsigned taken = 0;
    for_each_damage(nic.device().bytes, [&](const std::vector<std::byte>& bytes, const auto&) {
        Nic target;
        if (target.load({bytes, {}}).empty()) ++taken;
        target.endpoint.raise(1);
        target.endpoint.device_reset();
        EXPECT_EQ(target.all(kRegionConfig), Nic().all(kRegionConfig));
        target.endpoint.client_gone();
    });
    EXPECT_GT(taken, 0U) << "what a driver may have written differently";
    const Written lent = nic.lent();
    for_each_damage(lent.bytes, [&](const std::vector<std::byte>& bytes, const auto&) {
        Nic target;
        (void)target.load_lent({bytes, lent.descriptors});
        target.endpoint.raise(1);
        target.endpoint.client_gone();
        EXPECT_EQ(target.memory.range_count(), 0U);
    });
    base::set_log_level(base::LogLevel::kInfo);
}

}  // namespace
}  // namespace openmana::pci
