// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/guest_memory.h"
#include "fabric/nic.h"
#include "fabric/switch.h"
#include "support/choices.h"
#include "support/hostile_driver.h"
#include "support/sim_executor.h"

/// What libFuzzer, or replay_main.cc, calls for each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace openmana::fuzz {

/// Inputs that go on for longer find nothing new and are slow.
constexpr unsigned kMaxSteps = 200;

/// A whole NIC with guest memory, on virtual time.
struct FuzzNic {
    FuzzNic(test::SimWorld& world, fabric::Switch& network, std::uint8_t host,
            std::uint64_t ram_bytes = 8U << 20)
        : executor(world),
          ram(memory, ram_bytes),
          nic(executor, memory, irq, network, config(host)) {}

    static fabric::NicConfig config(std::uint8_t host) {
        fabric::NicConfig nic;
        nic.name = "nic" + std::to_string(host);
        nic.mac = test::test_mac(host);
        return nic;
    }
    test::SimExecutor executor;
    base::GuestMemory memory;
    test::GuestRam ram;
    test::FakeIrq irq;
    fabric::Nic nic;
};

/// A cable between two switches: what is behind it is no NIC of ours, so that traffic takes the
/// wire path.
class Cable {
public:
    Cable(fabric::Switch& a, fabric::Switch& b) : left_(a, right_), right_(b, left_) {}

private:
    class End final : public fabric::Port {
    public:
        End(fabric::Switch& own, End& other) : own_(own), other_(other) {
            own_.attach(*this, nullptr);
        }
        ~End() override { own_.detach(*this); }
        void deliver(std::span<const std::byte> frame) override {
            other_.own_.forward(other_, frame);
        }

    private:
        fabric::Switch& own_;
        End& other_;
    };
    End left_;
    End right_;
};

/// A bug of the target: ends the process, so that the fuzzer keeps the input.
inline void require(bool condition, const char* what) {
    if (!condition) base::check_failed(what, "fuzz", 0);
}

}  // namespace openmana::fuzz
