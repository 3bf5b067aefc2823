// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "gdma/function.h"
#include "support/guest_ram.h"
#include "support/hwc_driver.h"
#include "support/sim_executor.h"

namespace openmana::gdma {

/// A device that remembers what it was asked.
class FakeClient final : public Client {
public:
    explicit FakeClient(std::uint16_t type) : type_(type) {}
    [[nodiscard]] std::uint16_t device_type() const override { return type_; }
    void command(const HwcRequest& request, HwcReply& reply) override {
        opcodes.push_back(request.opcode());
        if (handler) handler(request, reply);
    }
    void reset() override {
        ++resets;
        if (on_reset) on_reset();
    }
    std::vector<std::uint32_t> opcodes;
    int resets = 0;
    std::function<void(const HwcRequest&, HwcReply&)> handler;
    std::function<void()> on_reset;

private:
    const std::uint16_t type_;
};

class FakeTarget final : public DoorbellTarget {
public:
    void ring(std::uint32_t position) override { positions.push_back(position); }
    void ring_client(std::uint32_t value) override { client_values.push_back(value); }
    void prepare(std::uint32_t position) const override { hints.push_back(position); }
    mutable std::vector<std::uint32_t> hints;
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> client_values;
};

/// A function with an Ethernet and an RDMA device and a driver on it, not yet brought up.
class FunctionFixture : public testing::Test {
protected:
    explicit FunctionFixture(FunctionConfig config = {})
        : function(executor, memory, irq, std::move(config)) {
        function.attach(rdma);
        function.attach(ethernet);
        driver.emplace(function, ram, irq);
    }
    test::SimWorld world;
    test::SimExecutor executor{world};
    base::GuestMemory memory;
    test::GuestRam ram{memory};
    test::FakeIrq irq;
    FakeClient ethernet{2};
    FakeClient rdma{3};
    Function function;
    std::optional<test::HwcDriver> driver;
};

/// The same with the channel up and both devices registered.
class DriverFixture : public FunctionFixture {
protected:
    explicit DriverFixture(FunctionConfig config = {}) : FunctionFixture(std::move(config)) {}
    void SetUp() override {
        ASSERT_TRUE(driver->bring_up());
        const auto first = driver->register_device(2);
        const auto second = driver->register_device(3);
        ASSERT_TRUE(first && second);
        eth = *first;
        rnic = *second;
        at_rest = function.object_counts();
    }
    /// A CQ on `eq` over a fresh ring.
    Handle<CompletionQueue> make_cq(Handle<EventQueue> eq, test::DriverCq& view,
                                    std::uint64_t bytes = 4096, bool scattered = false) {
        const auto ring = driver->alloc_ring(bytes, scattered);
        const auto handle = driver->create_region(ring);
        if (!handle) return nullptr;
        auto region = function.regions().claim(RegionHandle(*handle));
        if (!region) return nullptr;
        auto cq =
            function.cqs().create(std::move(*region), bytes, std::move(eq), page_of(rnic), {});
        if (!cq) return nullptr;
        view = driver->make_cq(ring, (*cq)->id().value(), rnic.page);
        return *cq;
    }
    [[nodiscard]] Handle<PageGrant> page_of(const test::DeviceRegistration& device) const {
        return *function.pages().find(DoorbellPage(device.page));
    }
    test::DeviceRegistration eth, rnic;
    ObjectCounts at_rest;
};

}  // namespace openmana::gdma
