// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/heap.h"
#include "base/log.h"
#include "base/unix_socket.h"
#include "manad/at_rest.h"
#include "manad/control.h"
#include "manad/daemon.h"
#include "manad/upgrade.h"

// How a daemon goes on in another process.

namespace openmana::manad {

using nlohmann::json;

namespace {

/// Policies and faults may have been changed since the other process has read its options.
base::Result<void> take_wishes(Options& options, const HandedOver::Nic& nic) {
    std::erase_if(options.policies,
                  [&](const PolicyOptions& policy) { return policy.nic == nic.name; });
    std::erase_if(options.faults,
                  [&](const FaultOptions& faults) { return faults.nic == nic.name; });
    if (!nic.policy.empty()) {
        auto policy = parse_policy(nic.policy);
        if (!policy)
            return base::fail(base::ErrorCode::kInvalidArgument,
                              "the policy of a NIC that is handed over makes no sense");
        policy->nic = nic.name;
        options.policies.push_back(std::move(*policy));
    }
    const auto take_faults = [&](const std::string& text, bool transmit, bool receive) {
        if (text.empty()) return true;
        auto faults = parse_faults(text);
        if (!faults) return false;
        faults->nic = nic.name;
        faults->directions = {transmit, receive};
        if (transmit || receive)
            faults->flaps = {};
        else
            faults->faults = {};
        options.faults.push_back(std::move(*faults));
        return true;
    };
    if (!take_faults(nic.transmit_faults, true, false) ||
        !take_faults(nic.receive_faults, false, true) || !take_faults(nic.flaps, false, false))
        return base::fail(base::ErrorCode::kInvalidArgument,
                          "the faults of a NIC that is handed over make no sense");
    return {};
}

}  // namespace

base::Result<void> take_options(Options& options, HandedOver& handed, std::string& subject) {
    for (HandedOver::Nic& nic : handed.nics) {
        const auto own = std::ranges::find_if(
            options.nics, [&](const NicOptions& other) { return other.nic.name == nic.name; });
        subject = nic.name;
        if (own == options.nics.end()) {
            if (!nic.came_later)
                return base::fail(base::ErrorCode::kInvalidArgument,
                                  "a NIC that is handed over is not among the options");
            auto parsed = parse_nic(nic.options, options.socket_access);
            if (!parsed)
                return base::fail(base::ErrorCode::kInvalidArgument,
                                  "the options of a NIC that is handed over make no sense");
            parsed->came_later = true;
            options.nics.push_back(std::move(*parsed));
        } else if (own->text != nic.options) {
            return base::fail(base::ErrorCode::kInvalidArgument,
                              "a NIC that is handed over has other options");
        }
        TRY_VOID(take_wishes(options, nic));
    }
    give_uplinks(options, handed);
    return {};
}

json Daemon::handle(const json& request, int connection) {
    if (text_of(request, "command") != "take-over") return handle(request);
    const auto format = request.find("format");
    if (format == request.end() || *format != json(HandedOver::kFormat))
        return failure("it hands over in another format than is asked for");
    const auto main = request.find("main");
    const bool named = main != request.end() && main->is_number_integer();
    return hand_over(connection, named ? main->get<pid_t>() : 0);
}

/// Nothing of what is here may change meanwhile, and nothing that is done is the last of it before
/// the other process says that it has all: so this one can go on if it does not.
json Daemon::hand_over(int connection, pid_t main) {
    if (!leaving_.empty()) return failure("a NIC that was removed is not gone yet");
    if (const auto bond = network_.find_bond()) return failure(*bond);
    OM_INFO("hand over: nics={}", nics_.size());
    const auto of = [this](const LoopThread& thread, auto&& step) {
        for (const auto& nic : nics_)
            if (&nic->thread() == &thread) step(*nic);
    };
    const auto rest = AtRest::create(
        threads_.all(), patience_,
        [of](const LoopThread& thread) { of(thread, [](NicServer& nic) { nic.pause(); }); },
        [of](const LoopThread& thread) { of(thread, [](NicServer& nic) { nic.resume(); }); });
    if (!rest) return failure(rest.error().text);
    for (const auto& nic : nics_) {
        const std::string name = "NIC '" + nic->name() + "'";
        if (nic->waits_for_reset())
            return failure("the driver of " + name + " has yet to reset it after a crash");
        if (nic->moving())
            return failure(nic->has_client() ? "the guest of " + name + " is being moved"
                                             : name + " is kept for a client that has gone");
    }
    const WarmHeap heap;  // for one state after the other
    HandOver other(connection);
    shares_.store(true, std::memory_order_relaxed);
    auto handed = send_all(other);
    if (handed) handed = other.wait();
    if (handed) {
        OM_INFO("manad stop: reason=\"another process goes on\"");
        const auto next = main > 0 ? main : base::peer_process(connection);
        if (next && on_handed_over_) on_handed_over_(*next);
        other.end();
        // Nothing is let go of: all of it is the other's, and so are the paths of the sockets.
        ::_exit(0);
    }
    shares_.store(false, std::memory_order_relaxed);
    std::string why = other.why();
    if (why.empty()) why = handed.error().text;
    OM_ERROR("hand over failed: reason=\"{}\"", why);
    if (upgrade_) upgrade_->fail(why);
    return failure("nothing was handed over: " + why);
}

/// The states of NICs, which are the most of it, go last: the other one reads one while the next is
/// written.
base::Result<void> Daemon::send_all(HandOver& other) {
    json head{{"format", HandedOver::kFormat},
              {"pid", ::getpid()},
              {"descriptors", json::array()},
              {"parcels", json::array()},
              {"nics", json::array()}};
    std::vector<int> descriptors;
    const auto add = [&](const char* kind, const std::string& name, int descriptor) {
        head["descriptors"].push_back({{"kind", kind}, {"name", name}});
        descriptors.push_back(descriptor);
    };
    add("control", options_.control, control_->listener().fd());
    for (std::size_t i = 0; i < metrics_.size(); ++i)
        add("metrics", options_.metrics[i].text, metrics_[i]->listening());
    std::vector<base::StateWriter> parcels;
    network_.save([&](const char* kind, const std::string& name, base::StateWriter state) {
        head["parcels"].push_back({{"kind", kind}, {"name", name}});
        parcels.push_back(std::move(state));
    });
    for (const auto& nic : nics_) {
        const NicOptions& options = *options_of(nic->name());
        const NetworkControl::Wishes wishes = network_.wishes_of(*nic);
        head["nics"].push_back(
            {{"name", nic->name()},
             {"options", options.text},
             {"came_later", options.came_later},
             {"paused", static_cast<std::int64_t>(nic->paused_at().time_since_epoch().count())},
             {"policy", wishes.policy},
             {"transmit_faults", wishes.faults[fabric::index(fabric::Direction::kTransmit)]},
             {"receive_faults", wishes.faults[fabric::index(fabric::Direction::kReceive)]},
             {"flaps", wishes.flaps},
             {"flow_log", wishes.flow_log}});
    }
    TRY_VOID(other.begin(head, descriptors));
    for (base::StateWriter& parcel : parcels) TRY_VOID(other.send(std::move(parcel)));
    for (const auto& nic : nics_) {
        base::StateWriter state(clock_.now());
        nic->save(state);
        TRY_VOID(other.send(std::move(state)));
    }
    return {};
}

json Daemon::upgrade(const json& request) {
    const std::string action = text_of(request, "action");
    if (action != "show" && !action.empty()) return failure("'action' is 'show'");
    if (action.empty()) {
        if (const auto bond = network_.find_bond()) return failure(*bond);
        if (!upgrade_) return failure("this manad was started so that it starts no other one");
        if (const auto asked = upgrade_->start(); !asked) return failure(asked.error().text);
    }
    json answer{{"ok", true},
                {"pid", ::getpid()},
                {"from", from_},
                {"heap_bytes", base::heap_bytes()},
                {"nics", json::array()}};
    // Whoever waits for the end of it waits until guests are served, here too.
    answer["under_way"] =
        (upgrade_ && upgrade_->under_way()) ||
        std::ranges::any_of(nics_, [](const auto& nic) { return nic->waits_to_serve(); });
    if (upgrade_) answer["failed"] = upgrade_->failed();
    for (const auto& nic : nics_)
        if (const base::Duration blackout = nic->blackout(); blackout.count() != 0)
            answer["nics"].push_back(
                {{"nic", nic->name()},
                 {"blackout_ms", std::chrono::duration<double, std::milli>(blackout).count()}});
    return answer;
}

}  // namespace openmana::manad
