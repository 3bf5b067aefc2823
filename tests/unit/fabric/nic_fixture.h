// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fabric/nic.h"

#include <gtest/gtest.h>
#include <mana/rnic.h>
#include <mana/rnic_queue.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/rdma_host.h"
#include "support/sim_executor.h"
#include "unit/fabric/frames.h"

namespace openmana::fabric::nic_test {

using namespace std::chrono_literals;
using ::openmana::test::Completion;
using ::openmana::test::DriverCq;
using ::openmana::test::DriverMr;
using ::openmana::test::FakeIrq;
using ::openmana::test::GuestRam;
using ::openmana::test::HostQp;
using ::openmana::test::Peer;
using ::openmana::test::RdmaHost;
using ::openmana::test::Request;
using ::openmana::test::SendWr;
using ::openmana::test::SimExecutor;
using ::openmana::test::SimWorld;

constexpr std::uint64_t kMr = 4U << 20;
constexpr std::uint32_t kAll =
    gdma::kLocalRead | gdma::kLocalWrite | gdma::kRemoteRead | gdma::kRemoteWrite;

inline NicConfig nic_config(std::uint8_t number, std::uint8_t seed = 0) {
    NicConfig config;
    config.name = std::string(1, static_cast<char>('a' + number - 1));
    config.mac = ::openmana::test::test_mac(number);
    config.seed = seed != 0 ? seed : number;
    return config;
}

/// A NIC, its driver, and one queue pair.
struct Machine {
    /// `address`: the last octet of the one that it uses, and then it has that machine's numbers
    /// and keys too; 0: its own.
    Machine(SimWorld& world, Switch& network, std::uint8_t number, std::uint8_t address = 0,
            bool extensions = false)
        : Machine(world, network, nic_config(number, address), address != 0 ? address : number,
                  extensions) {}
    Machine(SimWorld& world, Switch& network, NicConfig config, std::uint8_t address,
            bool extensions = false)
        : executor(world),
          ram(memory),
          nic(executor, memory, irq, network, std::move(config)),
          host(nic.function(), ram, irq, nic.config().mac, ::openmana::test::ipv4_gid(address)) {
        if (extensions) host.features |= MANA_HW_RNIC_FEATURE_EXTENSIONS;
        OM_CHECK(host.bring_up());
        send_cq = *host.create_cq(16384);
        recv_cq = *host.create_cq(16384);
        qp = host.create_rc(send_cq, recv_cq, 16384, 4096);
        buffer = ram.alloc(kMr);
        mr = *host.hwc().create_mr(host.pd, buffer, kMr, kAll);
    }
    [[nodiscard]] std::span<std::byte> bytes(std::uint64_t length) {
        return ram.bytes(buffer, length);
    }
    void poll() {
        HostQp* const qps[] = {qp.get()};
        host.poll(send_cq, qps, done);
        host.poll(recv_cq, qps, done);
    }
    [[nodiscard]] Peer as_peer(std::uint32_t psn) const {
        return {host.gid(), host.mac(), qp->qpn(), psn};
    }

    SimExecutor executor;
    base::GuestMemory memory;
    GuestRam ram;
    FakeIrq irq;
    Nic nic;
    RdmaHost host;
    DriverCq send_cq, recv_cq;
    std::unique_ptr<HostQp> qp;
    base::GuestAddr buffer{};
    DriverMr mr;
    std::vector<Completion> done;
};

class CountingTap final : public FrameTap {
public:
    void frame(std::span<const std::byte> frame) override {
        if (read_headers(frame).roce()) ++roce;
    }
    std::uint64_t roce = 0;
};
class Lines final : public FlowSink {
public:
    void line(std::string_view text) override { all.push_back(nlohmann::json::parse(text)); }
    std::vector<nlohmann::json> all;
};

class NicTest : public ::testing::Test {
protected:
    void connect(Machine& from, Machine& to, std::uint32_t mtu = 1024) {
        ASSERT_TRUE(to.host.connect(*to.qp, 0x900, from.as_peer(0x100), mtu));
        ASSERT_TRUE(from.host.connect(*from.qp, 0x100, to.as_peer(0x900), mtu));
        world.run_until_idle();
    }
    /// Writes the start of A's buffer to B's, `count` times, and waits for all completions.
    bool write(std::uint32_t length, std::size_t count = 1, Machine* from = nullptr,
               Machine* to = nullptr) {
        Machine& source = from != nullptr ? *from : a;
        Machine& target = to != nullptr ? *to : b;
        base::Random random(++fills);
        for (std::byte& byte : source.bytes(length)) byte = static_cast<std::byte>(random.next());
        source.done.clear();
        for (std::size_t i = 0; i < count; ++i) {
            SendWr request;
            request.opcode = MANA_HW_RNIC_WQE_WRITE;
            request.id = i;
            request.sges = {{source.buffer.value(), gdma::Key(source.mr.lkey), length}};
            request.remote_address = target.buffer.value() + (&source == &target ? kMr / 2 : 0);
            request.rkey = target.mr.rkey;
            if (!source.host.post_send(*source.qp, request)) return false;
        }
        return world.run_until(
            [&] {
                source.poll();
                return source.done.size() >= count;
            },
            60s);
    }
    bool wrote(std::uint32_t length) {
        return write(length) && a.done[0].vendor == 0 &&
               std::ranges::equal(a.bytes(length), b.bytes(length));
    }
    std::uint64_t counter(Machine& machine, const std::string& name) {
        std::uint64_t result = 0;
        machine.nic.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            if (name == info.name) result = value;
        });
        return result;
    }
    void policy(Machine& machine, const PolicyConfig& config,
                std::shared_ptr<FlowSink> sink = nullptr) {
        machine.nic.path().set_policy(config, std::move(sink), base::WallTime());
    }

    SimWorld world;
    Switch network{world};
    Machine a{world, network, 1};
    Machine b{world, network, 2};
    std::uint64_t fills = 0;
};

}  // namespace openmana::fabric::nic_test
