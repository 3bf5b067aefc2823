// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "fabric/switch.h"
#include "support/choices.h"
#include "support/hostile_driver.h"
#include "support/sim_executor.h"
#include "support/sim_nic.h"

/// What libFuzzer, or replay_main.cc, calls for each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace openmana::fuzz {

/// Inputs that go on for longer find nothing new and are slow.
constexpr unsigned kMaxSteps = 200;

/// Lets virtual time go on, for as many timers as one input may have: a QP whose peer has no
/// receive tries again every 2.56 ms, a thousand times for nothing new.
class Time {
public:
    static constexpr unsigned kMaxTimers = 256;
    explicit Time(test::SimWorld& world) : world_(world) {}
    void pass(base::Duration delay) {
        base::TimePoint last = world_.now();
        const auto enough = [&] {
            if (left_ != 0 && world_.now() != last) --left_;
            last = world_.now();
            return left_ == 0;
        };
        (void)world_.run_until(enough, delay);
        world_.run_until_idle();
    }

private:
    test::SimWorld& world_;
    unsigned left_ = kMaxTimers;
};

/// A whole NIC with guest memory, on virtual time.
struct FuzzNic : test::SimNic {
    FuzzNic(test::SimWorld& world, fabric::Switch& network, std::uint8_t number,
            std::uint64_t ram_bytes = 8U << 20, int file = -1, base::MemoryLoss* loss = nullptr)
        : SimNic(world, network, number, ram_bytes, file, loss) {}
};

/// A cable between two switches: what is behind it is no NIC of ours, so that traffic takes the
/// wire path. It breaks after as many frames as one input may send: the timers of those who wait
/// for an answer come next.
class Cable {
public:
    static constexpr unsigned kMaxFrames = 1024;
    Cable(fabric::Switch& a, fabric::Switch& b)
        : left_(a, right_, frames_), right_(b, left_, frames_) {}

private:
    class End final : public fabric::Port {
    public:
        End(fabric::Switch& own, End& other, unsigned& frames)
            : own_(own), other_(other), frames_(frames) {
            own_.attach(*this, nullptr);
        }
        ~End() override { own_.detach(*this); }
        void deliver(base::FrameViews frames) override {
            frames = frames.first(std::min<std::size_t>(frames.size(), kMaxFrames - frames_));
            frames_ += static_cast<unsigned>(frames.size());
            other_.own_.forward(other_, frames);
        }

    private:
        fabric::Switch& own_;
        End& other_;
        unsigned& frames_;
    };
    unsigned frames_ = 0;
    End left_;
    End right_;
};

/// What is behind the switch: swallows what the NIC sends.
class Hole final : public fabric::Port {
public:
    explicit Hole(fabric::Switch& network) : network_(network) { network_.attach(*this, nullptr); }
    ~Hole() override { network_.detach(*this); }
    void deliver(base::FrameViews) override {}

private:
    fabric::Switch& network_;
};

/// Told of the device's answer to each command that the target `hwc` makes of its input; for
/// hwc_reach.cc.
inline std::function<void(std::uint32_t opcode, std::uint32_t status)> on_answer;

/// A bug of the target: ends the process, so that the fuzzer keeps the input.
inline void require(bool condition, const char* what) {
    if (!condition) base::check_failed(what, "fuzz", 0);
}

}  // namespace openmana::fuzz
