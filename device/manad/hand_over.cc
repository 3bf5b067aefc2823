// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "manad/at_rest.h"
#include "manad/control.h"
#include "manad/daemon.h"

// How a daemon goes on in another process.

namespace openmana::manad {

using nlohmann::json;

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
        // Policies may have been changed since the other process has read its options.
        std::erase_if(options.policies,
                      [&](const PolicyOptions& policy) { return policy.nic == nic.name; });
        if (nic.policy.empty()) continue;
        auto policy = parse_policy(nic.policy);
        if (!policy)
            return base::fail(base::ErrorCode::kInvalidArgument,
                              "the policy of a NIC that is handed over makes no sense");
        policy->nic = nic.name;
        options.policies.push_back(std::move(*policy));
    }
    for (fabric::UplinkConfig& uplink : options.uplinks)
        if (const auto found = handed.uplinks.find(uplink.name); found != handed.uplinks.end())
            uplink.inherited = std::make_shared<base::UniqueFd>(std::move(found->second));
    return {};
}

json Daemon::handle(const json& request, int connection) {
    if (text_of(request, "command") == "take-over") return hand_over(connection);
    return handle(request);
}

/// Nothing of what is here may change meanwhile, and nothing that is done is the last of it before
/// the other process says that it has all: so this one can go on if it does not.
json Daemon::hand_over(int connection) {
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
    for (const auto& nic : nics_)
        if (nic->moving()) return failure("the guest of NIC '" + nic->name() + "' is being moved");
    json head{
        {"format", HandedOver::kFormat}, {"descriptors", json::array()}, {"nics", json::array()}};
    std::vector<int> descriptors;
    const auto add = [&](const char* kind, const std::string& name, int descriptor) {
        head["descriptors"].push_back({{"kind", kind}, {"name", name}});
        descriptors.push_back(descriptor);
    };
    add("control", options_.control, control_->listener().fd());
    for (std::size_t i = 0; i < metrics_.size(); ++i)
        add("metrics", options_.metrics[i].text, metrics_[i]->listening());
    for (const auto& [name, descriptor] : network_.descriptors()) add("uplink", name, descriptor);
    std::vector<std::vector<std::byte>> states;
    std::vector<std::vector<int>> state_descriptors;
    for (const auto& nic : nics_) {
        const NicOptions& options = *options_of(nic->name());
        head["nics"].push_back({{"name", nic->name()},
                                {"options", options.text},
                                {"came_later", options.came_later},
                                {"policy", network_.policy_of(*nic)}});
        base::StateWriter out(clock_.now());
        nic->save(out);
        const auto used = out.descriptors();
        state_descriptors.emplace_back(used.begin(), used.end());
        states.push_back(std::move(out).finish());
    }
    const std::string yes = json{{"ok", true}}.dump() + "\n";
    if (::send(connection, yes.data(), yes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(yes.size()))
        return failure("the other process has gone");
    const auto taken = manad::hand_over(connection, head, descriptors, states, state_descriptors);
    if (taken && *taken) {
        OM_INFO("manad stop: reason=\"another process goes on\"");
        // Nothing is let go of: all of it is the other's, and so are the paths of the sockets.
        ::_exit(0);
    }
    OM_ERROR("hand over failed: reason=\"{}\"",
             taken ? "the other process has ended" : taken.error().text);
    return failure("nothing was handed over");
}

}  // namespace openmana::manad
