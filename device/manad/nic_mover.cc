// SPDX-License-Identifier: Apache-2.0
#include "manad/nic_mover.h"

#include <algorithm>
#include <utility>

#include "base/activity.h"
#include "base/gate.h"
#include "base/state.h"

namespace openmana::manad {

using base::ErrorCode;
using base::fail;
using base::Result;

void NicMover::stop() {
    const base::Activity::Scope doing("stop");
    nic_.stop();
    endpoint_.stop();
    executor_.pause();
    stopped_ = true;
    moved_ = false;
}

void NicMover::start() {
    const base::Activity::Scope doing("start");
    stopped_ = false;
    executor_.resume();
    nic_.start();
    // Of a channel that there still is: it needs the guest's memory.
    if (std::exchange(asks_, false)) {
        nic_.function().recover();
        nic_.function().request_reset();
    }
    endpoint_.start(std::exchange(moved_, false));
}

void NicMover::stop_lost() {
    stop();
    moved_ = asks_ = true;
}

Result<std::vector<std::byte>> NicMover::save() {
    const base::Activity::Scope doing("save of the state");
    if (lost())
        return fail(ErrorCode::kInvalidArgument,
                    "what the NIC was went with a process: its driver has to reset it first");
    base::StateWriter out(executor_.now());
    out.begin("MOVE", 1);
    endpoint_.save(out);
    nic_.save(out);
    out.end();
    return std::move(out).finish();
}

/// What a state leaves to be done waits until the NIC runs. A client may have any number of them
/// read before that.
Result<void> NicMover::load(std::span<const std::byte> state) {
    const base::Activity::Scope doing("load of a state");
    if (executor_.waiting() >= kMostWaiting)
        return fail(ErrorCode::kExhausted, "too much waits for the NIC to run", kMostWaiting);
    forget();
    auto loaded = read(state);
    moved_ = loaded.has_value();
    if (!loaded) forget();
    return loaded;
}

Result<void> NicMover::read(std::span<const std::byte> state) {
    TRY(auto in, base::StateReader::open(state, executor_.now()));
    in.begin("MOVE", 1);
    endpoint_.load(in);
    TRY_VOID(in.result());
    TRY_VOID(nic_.load(in));
    in.end();
    return in.result();
}

void NicMover::forget() {
    endpoint_.forget();
    moved_ = asks_ = false;
}

/// Objects are written shorter than they are kept.
std::size_t NicMover::expected_state() const {
    constexpr std::size_t kRest = 64U << 10;
    return nic_.function().account().used() + kRest;
}

/// What a guest can make a NIC keep is bounded by its account; the rest is small.
std::size_t NicMover::max_state() const {
    constexpr std::size_t kRest = 64U << 20;
    return nic_.config().memory + kRest;
}

Result<void> NicMover::log_writes() {
    TRY(auto logs, memory_.make_logs());
    const base::Gate::Exclusion alone(nic_.function().gate(), {"begin of a write log"});
    memory_.log_writes(std::move(logs));
    return {};
}

void NicMover::log_no_writes() {
    std::vector<base::PageLog> gone;
    const base::Gate::Exclusion alone(nic_.function().gate(), {"end of a write log"});
    gone = memory_.log_no_writes();
}

/// Visitors note a page before they write to it: in an exclusion none is in between. Each step is
/// bounded, and there are as many as what is logged has, however long what is asked for is.
Result<void> NicMover::report_writes(std::uint64_t address, std::uint64_t length,
                                     std::uint64_t unit, std::span<std::byte> bits) {
    constexpr std::uint64_t kStep = 64ULL << 20;
    if (!memory_.logs_writes()) return fail(ErrorCode::kInvalidArgument, "no write log is kept");
    const base::GuestMemory::WriteReport report{base::GuestAddr(address), unit, bits};
    memory_.each_logged(
        base::GuestAddr(address), length, kStep, [&](base::GuestAddr at, std::uint64_t bytes) {
            const base::Gate::Exclusion alone(nic_.function().gate(), {"report of a write log"});
            memory_.take_written(at, bytes, report);
        });
    return {};
}

void NicMover::retain() {
    if (memory_.logs_writes()) log_no_writes();
    if (!stopped_) stop();
    endpoint_.give_back();
    moved_ = true;
}

void NicMover::client_gone() {
    log_no_writes();
    if (stopped_) start();
}

}  // namespace openmana::manad
