// SPDX-License-Identifier: Apache-2.0
#include "manad/network_control.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace openmana::manad {
namespace {

using fabric::Direction;
using nlohmann::json;

json failure(std::string text) {
    return {{"ok", false}, {"error", std::move(text)}};
}

json failure(const std::string& subject, const base::Error& error) {
    const bool has_errno = error.code == base::ErrorCode::kIo && error.detail != 0;
    return failure(fmt::format("{}: {}{}{}", subject, error.text, has_errno ? ": " : "",
                               has_errno ? std::strerror(static_cast<int>(error.detail)) : ""));
}

std::string text_of(const json& request, const char* key) {
    const auto found = request.find(key);
    return found != request.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename Counters>
json counters_of(const Counters& counters) {
    json result = json::object();
    counters.visit(
        [&](const base::CounterInfo& info, std::uint64_t value) { result[info.name] = value; });
    return result;
}

json policy_row(const std::string& nic, const std::string& options,
                const fabric::FlowFile* flow_log) {
    const int error = flow_log != nullptr ? flow_log->error() : 0;
    return {{"nic", nic},
            {"options", options},
            {"lost", flow_log != nullptr ? flow_log->lost() : 0},
            {"error", error != 0 ? std::strerror(error) : ""}};
}

bool absolute(const std::string& path) {
    return path.starts_with('/') && path.find('\0') == std::string::npos;
}

json capture_row(const std::string& nic, const fabric::Capture& capture) {
    return {{"nic", nic},
            {"file", capture.path()},
            {"frames", capture.counters().frames.value()},
            {"lost", capture.counters().lost.value()},
            {"error", capture.error() != 0 ? std::strerror(capture.error()) : ""}};
}

}  // namespace

NetworkControl::NetworkControl(base::EventLoop& loop, fabric::Switch& network,
                               const std::vector<std::unique_ptr<NicServer>>& nics)
    : loop_(loop),
      network_(network),
      nics_(nics),
      wall_(base::WallTime::of_host(loop.clock())),
      flush_timer_(loop, [this] { flush(); }) {}

NetworkControl::~NetworkControl() {
    stop();
    // The flow logs of the NICs write their last lines while their files are still here.
    for (const auto& nic : nics_) clear_policy(*nic);
}

NicServer* NetworkControl::find(const std::string& name) const {
    for (const auto& nic : nics_)
        if (nic->nic().config().name == name) return nic.get();
    return nullptr;
}

base::Result<void> NetworkControl::set_up(const Options& options, std::string& subject) {
    if (!options.pcap.empty()) {
        subject = options.pcap;
        TRY(everything_, fabric::Capture::create(options.pcap, loop_.clock(), wall_));
        network_.set_tap(*everything_);
        watch_captures();
    }
    for (const fabric::UplinkConfig& config : options.uplinks) {
        subject = config.name;
        TRY(auto uplink, UplinkServer::create(config, network_));
        uplinks_.push_back(std::move(uplink));
    }
    for (const FaultOptions& faults : options.faults) set_faults(*find(faults.nic), faults);
    for (const PolicyOptions& policy : options.policies) {
        subject = policy.policy.flow_log;
        TRY_VOID(set_policy(*find(policy.nic), policy));
    }
    return {};
}

void NetworkControl::start() {
    for (const auto& uplink : uplinks_) uplink->start();
}

void NetworkControl::stop() {
    for (const auto& uplink : uplinks_) uplink->stop();
}

void NetworkControl::flush() {
    if (everything_) everything_->flush();
    for (const auto& [nic, settings] : settings_)
        if (settings.capture) settings.capture->flush();
    watch_captures();
}

void NetworkControl::watch_captures() {
    bool any = everything_ != nullptr;
    for (const auto& [nic, settings] : settings_) any = any || settings.capture != nullptr;
    if (any)
        flush_timer_.arm(fabric::Capture::kFlushInterval);
    else
        flush_timer_.cancel();
}

void NetworkControl::set_faults(NicServer& nic, const FaultOptions& options) {
    Settings& settings = settings_[&nic];
    nic.call([&] {
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive})
            if (options.faults.any() && options.directions[index(direction)])
                nic.nic().path().set_faults(direction, options.faults);
        if (options.flaps.any()) nic.nic().set_flaps(options.flaps);
    });
    if (options.flaps.any()) settings.flaps = options.text;
    for (std::size_t i = 0; i < fabric::kDirections; ++i)
        if (options.faults.any() && options.directions[i]) settings.faults[i] = options.text;
}

void NetworkControl::clear_faults(NicServer& nic) {
    Settings& settings = settings_[&nic];
    nic.call([&] {
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive})
            nic.nic().path().set_faults(direction, std::nullopt);
        nic.nic().set_flaps(std::nullopt);
    });
    settings.faults = {};
    settings.flaps.clear();
}

/// NICs that name one file share it, so that their lines do not mix. One that was moved away, or
/// could not be written, is opened anew.
base::Result<std::shared_ptr<fabric::FlowFile>> NetworkControl::flow_file(const std::string& path) {
    for (const auto& [nic, settings] : settings_)
        if (settings.flow_file && settings.flow_file->path() == path &&
            settings.flow_file->current())
            return settings.flow_file;
    TRY(auto file, fabric::FlowFile::create(path));
    return std::shared_ptr<fabric::FlowFile>(std::move(file));
}

base::Result<void> NetworkControl::set_policy(NicServer& nic, const PolicyOptions& options) {
    std::shared_ptr<fabric::FlowFile> file;
    if (!options.policy.flow_log.empty()) {
        TRY(file, flow_file(options.policy.flow_log));
    }
    nic.call([&] { nic.nic().path().set_policy(options.policy, file, wall_); });
    Settings& settings = settings_[&nic];
    settings.policy = options.text;
    settings.flow_file = std::move(file);
    return {};
}

void NetworkControl::clear_policy(NicServer& nic) {
    nic.call([&] { nic.nic().path().set_policy(std::nullopt, nullptr, wall_); });
    Settings& settings = settings_[&nic];
    settings.policy.clear();
    settings.flow_file.reset();
}

json NetworkControl::capture(NicServer& nic, const std::string& action, const json& request) {
    Settings& settings = settings_[&nic];
    const std::string& name = nic.nic().config().name;
    if (action == "stop") {
        if (!settings.capture) return failure(fmt::format("there is no capture of '{}'", name));
        nic.call([&] { nic.nic().path().set_capture(nullptr); });
        settings.capture->flush();
        json answer = capture_row(name, *settings.capture);
        const int error = settings.capture->error();
        settings.capture.reset();
        watch_captures();
        if (error != 0)
            return failure(fmt::format("{}: the capture ended early: {}",
                                       answer["file"].get<std::string>(), std::strerror(error)));
        answer["ok"] = true;
        return answer;
    }
    if (action != "start") return failure("'action' is 'start', 'stop' or 'show'");
    if (settings.capture)
        return failure(
            fmt::format("'{}' is being captured already, to {}", name, settings.capture->path()));
    const std::string file = text_of(request, "file");
    if (!absolute(file)) return failure("'file' is the absolute path of a file");
    auto capture = fabric::Capture::create(file, loop_.clock(), wall_);
    if (!capture) return failure(file, capture.error());
    settings.capture = std::move(*capture);
    nic.call([&] { nic.nic().path().set_capture(settings.capture); });
    watch_captures();
    return {{"ok", true}};
}

json NetworkControl::fault(NicServer& nic, const std::string& action, const json& request) {
    if (action == "clear") {
        clear_faults(nic);
        return {{"ok", true}};
    }
    if (action != "set") return failure("'action' is 'set', 'clear' or 'show'");
    const auto options = parse_faults(text_of(request, "options"));
    if (!options) return failure(options.error());
    if (!options->nic.empty()) return failure("the NIC is named before the options");
    set_faults(nic, *options);
    return {{"ok", true}};
}

json NetworkControl::policy(NicServer& nic, const std::string& action, const json& request) {
    if (action == "clear") {
        clear_policy(nic);
        return {{"ok", true}};
    }
    if (action != "set") return failure("'action' is 'set', 'clear' or 'show'");
    const auto options = parse_policy(text_of(request, "options"));
    if (!options) return failure(options.error());
    if (!options->nic.empty()) return failure("the NIC is named before the options");
    if (const std::string& log = options->policy.flow_log; !log.empty() && !absolute(log))
        return failure(fmt::format("flow-log={} is not the absolute path of a file", log));
    if (const auto set = set_policy(nic, *options); !set)
        return failure(options->policy.flow_log, set.error());
    return {{"ok", true}};
}

json NetworkControl::show(const std::string& command) const {
    json rows = json::array();
    if (everything_ && command == "capture") rows.push_back(capture_row("all", *everything_));
    for (const auto& nic : nics_) {
        const auto found = settings_.find(nic.get());
        const std::string& name = nic->nic().config().name;
        if (found == settings_.end()) continue;
        const Settings& settings = found->second;
        if (command == "capture" && settings.capture)
            rows.push_back(capture_row(name, *settings.capture));
        if (command == "policy" && !settings.policy.empty())
            rows.push_back(policy_row(name, settings.policy, settings.flow_file.get()));
        if (command != "fault") continue;
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive})
            if (const std::string& text = settings.faults[index(direction)]; !text.empty())
                rows.push_back({{"nic", name},
                                {"dir", direction == Direction::kTransmit ? "tx" : "rx"},
                                {"options", text}});
        if (!settings.flaps.empty())
            rows.push_back({{"nic", name}, {"dir", "link"}, {"options", settings.flaps}});
    }
    return {{"ok", true}, {"rows", rows}};
}

json NetworkControl::uplinks() const {
    json rows = json::array();
    for (const auto& server : uplinks_) {
        const fabric::Uplink& uplink = server->uplink();
        rows.push_back({{"uplink", uplink.name()},
                        {"connected", uplink.connected()},
                        {"counters", counters_of(uplink.counters())}});
    }
    return {{"ok", true}, {"uplinks", rows}};
}

std::optional<json> NetworkControl::handle(const std::string& command, const json& request) {
    if (command == "uplinks") return uplinks();
    if (command != "capture" && command != "fault" && command != "policy") return std::nullopt;
    const std::string action = text_of(request, "action");
    if (action == "show") {
        // Whoever asks may read the files next: they hold the frames that the answer counts.
        if (command == "capture") flush();
        return show(command);
    }
    const std::string name = text_of(request, "nic");
    NicServer* const nic = find(name);
    if (nic == nullptr) return failure(fmt::format("there is no NIC '{}'", name));
    json answer = command == "capture" ? capture(*nic, action, request)
                  : command == "fault" ? fault(*nic, action, request)
                                       : policy(*nic, action, request);
    if (answer["ok"] == true) OM_INFO("{} {}: nic={}", command, action, name);
    return answer;
}

}  // namespace openmana::manad
