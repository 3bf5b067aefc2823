// SPDX-License-Identifier: Apache-2.0
#include "manad/network_control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "manad/control.h"
#include "manad/fdb_control.h"
#include "manad/in_words.h"

namespace openmana::manad {
namespace {

using fabric::Direction;
using nlohmann::json;

json failure(const std::string& subject, const base::Error& error) {
    return manad::failure(in_words(subject, error));
}

json failure(const NicServer& nic, const base::Error& no_answer) {
    return manad::failure(nic.no_answer(no_answer));
}

/// What was asked of a NIC holds, or will once its thread goes on.
bool holds(const base::Result<void>& call) {
    return call || call.error().code == base::ErrorCode::kBusy;
}

json policy_row(const std::string& nic, const std::string& options,
                const fabric::FlowFile* flow_log) {
    const int error = flow_log != nullptr ? flow_log->error() : 0;
    return {{"nic", nic},
            {"options", options},
            {"lost", flow_log != nullptr ? flow_log->lost() : 0},
            {"error", error != 0 ? std::strerror(error) : ""}};
}

/// Has the NIC's thread let go of a file: to close it, too, may take as long as the disk does. It
/// is closed when this comes back, if nobody else has it.
void let_go(NicServer& nic, std::shared_ptr<void> file) {
    if (!file) return;
    (void)nic.call("file close", [file = std::move(file)]() mutable { file.reset(); });
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

NetworkControl::NetworkControl(base::EventLoop& loop, Networks& networks,
                               const std::vector<std::unique_ptr<NicServer>>& nics)
    : loop_(loop),
      networks_(networks),
      nics_(nics),
      wall_(base::WallTime::of_host(loop.clock())),
      flush_timer_(loop, [this] { flush(); }) {}

NetworkControl::~NetworkControl() {
    stop();
    // The flow logs of the NICs write their last lines while their files are still here.
    for (const auto& nic : nics_) (void)clear_policy(*nic);
}

NicServer* NetworkControl::find(const std::string& name) const {
    for (const auto& nic : nics_)
        if (nic->nic().config().name == name) return nic.get();
    return nullptr;
}

/// Null if it has none or several, or several uplinks, between which others send.
std::shared_ptr<LoopThread> NetworkControl::only_nic_of(const std::string& network,
                                                        const Options& options) const {
    const auto in_it = [&](const auto& nic) { return nic->network() == network; };
    if (std::ranges::count_if(nics_, in_it) != 1 ||
        std::ranges::count(options.uplinks, network, &fabric::UplinkConfig::network) != 1)
        return nullptr;
    return (*std::ranges::find_if(nics_, in_it))->shared_thread();
}

base::Result<void> NetworkControl::set_up(const Options& options, std::string& subject,
                                          HandedOver* handed) {
    if (!options.pcap.empty()) {
        subject = options.pcap;
        TRY_VOID(set_up_everything(options, handed));
    }
    for (const fabric::UplinkConfig& config : options.uplinks) {
        subject = config.name;
        fabric::UplinkConfig own = config;
        for (const NicOptions& nic : options.nics)
            if (nic.network == config.network) own.xdp.addresses.push_back(nic.nic.mac);
        const auto neighbour = std::ranges::find_if(
            uplinks_, [&](const auto& other) { return other->shares_with(config); });
        if (!config.vxlan.fdb.empty() && !files_) {
            TRY(files_, LoopThread::create("tables", "tables"));
        }
        TRY(auto uplink,
            UplinkServer::create(
                own, networks_.of(config.network), only_nic_of(config.network, options),
                neighbour == uplinks_.end() ? nullptr : neighbour->get(), files_.get()));
        uplinks_.push_back(std::move(uplink));
    }
    for (const FaultOptions& faults : options.faults)
        TRY_VOID(set_faults(*find(faults.nic), faults));
    if (handed != nullptr) TRY_VOID(take_flow_files(*handed, subject));
    for (const PolicyOptions& policy : options.policies) TRY_VOID(set_up_policy(policy, subject));
    return handed != nullptr ? go_on(*handed, subject) : base::Result<void>();
}

base::Result<void> NetworkControl::set_up_policy(const PolicyOptions& policy,
                                                 std::string& subject) {
    subject = policy.policy.flow_log;
    NicServer& nic = *find(policy.nic);
    if (const auto handed = handed_flow_files_.extract(policy.nic))
        return set_policy(nic, policy, handed.mapped());
    TRY(auto file, flow_file(subject));
    return set_policy(nic, policy, std::move(file));
}

Parsed<bool> NetworkControl::bring_policy_to(NicServer& nic, const Options& options) {
    const auto wanted = std::ranges::find(options.policies, nic.name(), &PolicyOptions::nic);
    const std::string text = wanted == options.policies.end() ? "" : wanted->text;
    if (settings_[&nic].policy == text) return false;
    if (text.empty()) {
        if (const auto done = clear_policy(nic); !done)
            return tl::unexpected(nic.no_answer(done.error()));
        return true;
    }
    auto file = flow_file(wanted->policy.flow_log);
    if (!file) return tl::unexpected(in_words(wanted->policy.flow_log, file.error()));
    if (const auto done = set_policy(nic, *wanted, std::move(*file)); !done)
        return tl::unexpected(nic.no_answer(done.error()));
    return true;
}

Parsed<bool> NetworkControl::bring_faults_to(NicServer& nic, const Options& options) {
    Settings wanted;
    for (const FaultOptions& faults : options.faults) {
        if (faults.nic != nic.name()) continue;
        if (faults.flaps.any()) wanted.flaps = faults.text;
        for (std::size_t i = 0; i < fabric::kDirections; ++i)
            if (faults.faults.any() && faults.directions[i]) wanted.faults[i] = faults.text;
    }
    const Settings& now = settings_[&nic];
    if (now.faults == wanted.faults && now.flaps == wanted.flaps) return false;
    auto done = clear_faults(nic);
    for (const FaultOptions& faults : options.faults)
        if (done && faults.nic == nic.name()) done = set_faults(nic, faults);
    if (!done) return tl::unexpected(nic.no_answer(done.error()));
    return true;
}

Parsed<bool> NetworkControl::bring_to(NicServer& nic, const Options& options) {
    const auto policy = bring_policy_to(nic, options);
    if (!policy) return policy;
    const auto faults = bring_faults_to(nic, options);
    if (!faults) return faults;
    return *policy || *faults;
}

void NetworkControl::add_metrics(MetricsText& text) const {
    using Type = MetricsText::Type;
    for (const auto& server : uplinks_) {
        const fabric::Uplink& uplink = server->uplink();
        const MetricsText::Labels labels{{"uplink", uplink.name()}, {"network", server->network()}};
        const auto add = [&](const base::CounterInfo& info, std::uint64_t value) {
            text.add(MetricsText::name_of(info.name), Type::kCounter, info.help, labels, value);
        };
        uplink.visit_counters(add);
        text.add("manad_uplink_connected", Type::kGauge, "whether the uplink has its other end",
                 labels, std::uint64_t{uplink.connected()});
    }
}

bool NetworkControl::serves_on(const LoopThread& thread) const {
    return std::ranges::any_of(uplinks_, [&](const auto& uplink) {
        return std::ranges::any_of(uplink->threads(),
                                   [&](const auto& its) { return its.get() == &thread; });
    });
}

base::Result<void> NetworkControl::start() {
    for (const auto& uplink : uplinks_) TRY_VOID(uplink->start());
    if (files_) TRY_VOID(files_->start());
    return {};
}

void NetworkControl::stop() {
    for (const auto& uplink : uplinks_) uplink->stop();
    if (files_) files_->stop();
}

std::vector<std::shared_ptr<LoopThread>> NetworkControl::threads() const {
    std::vector<std::shared_ptr<LoopThread>> threads;
    for (const auto& uplink : uplinks_)
        threads.insert(threads.end(), uplink->threads().begin(), uplink->threads().end());
    if (files_) threads.push_back(files_);
    return threads;
}

base::Result<fabric::Switch*> NetworkControl::network_for(const std::string& name) {
    if (fabric::Switch* const there = networks_.find(name)) return there;
    fabric::FrameTap* tap = nullptr;
    if (everything_) {
        TRY(tap, everything_->add_point(name));
    }
    fabric::Switch& made = networks_.add(name);
    if (tap != nullptr) made.set_tap(*tap);
    return &made;
}

void NetworkControl::expect(const std::string& network, const base::MacAddr& mac) {
    for (const auto& uplink : uplinks_)
        if (uplink->network() == network) uplink->uplink().expect(mac);
}

void NetworkControl::expect_no_more(const std::string& network, const base::MacAddr& mac) {
    for (const auto& uplink : uplinks_)
        if (uplink->network() == network) uplink->uplink().expect_no_more(mac);
}

void NetworkControl::forget(NicServer& nic) {
    const auto found = settings_.find(&nic);
    if (found == settings_.end()) return;
    Settings settings = std::move(found->second);
    settings_.erase(found);
    let_go(nic, std::move(settings.capture));
    let_go(nic, std::move(settings.flow_file));
    watch_captures();
}

/// What all NICs share is written out by any of them that does not hang.
std::vector<NetworkControl::Flush> NetworkControl::ask_to_flush() {
    std::vector<Flush> asked;
    const auto ask = [&](LoopThread& thread, const std::shared_ptr<fabric::Capture>& capture) {
        asked.push_back({thread, thread.ask("capture flush", [capture] { capture->flush(); })});
    };
    if (everything_) {
        const auto alive = std::find_if(nics_.begin(), nics_.end(), [](const auto& nic) {
            return !nic->thread().watch().hangs();
        });
        if (alive != nics_.end()) ask((*alive)->thread(), everything_);
    }
    for (const auto& [nic, settings] : settings_)
        if (settings.capture) ask(nic->thread(), settings.capture);
    return asked;
}

void NetworkControl::flush() {
    (void)ask_to_flush();
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

base::Result<void> NetworkControl::set_faults(NicServer& nic, const FaultOptions& options) {
    const auto set = nic.call("fault set", [&to = nic.nic(), options] {
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive})
            if (options.faults.any() && options.directions[index(direction)])
                to.path().set_faults(direction, options.faults);
        if (options.flaps.any()) to.set_flaps(options.flaps);
    });
    if (!holds(set)) return set;
    Settings& settings = settings_[&nic];
    if (options.flaps.any()) settings.flaps = options.text;
    for (std::size_t i = 0; i < fabric::kDirections; ++i)
        if (options.faults.any() && options.directions[i]) settings.faults[i] = options.text;
    return set;
}

base::Result<void> NetworkControl::clear_faults(NicServer& nic) {
    const auto cleared = nic.call("fault clear", [&of = nic.nic()] {
        for (const Direction direction : {Direction::kTransmit, Direction::kReceive})
            of.path().set_faults(direction, std::nullopt);
        of.set_flaps(std::nullopt);
    });
    if (!holds(cleared)) return cleared;
    Settings& settings = settings_[&nic];
    settings.faults = {};
    settings.flaps.clear();
    return cleared;
}

/// None without a path. NICs that name one file share it, so that their lines do not mix. One that
/// was moved away, or could not be written, is opened anew.
base::Result<std::shared_ptr<fabric::FlowFile>> NetworkControl::flow_file(const std::string& path) {
    if (path.empty()) return nullptr;
    for (const auto& [nic, settings] : settings_)
        if (settings.flow_file && settings.flow_file->path() == path &&
            settings.flow_file->current())
            return settings.flow_file;
    TRY(auto file, fabric::FlowFile::create(path));
    return std::shared_ptr<fabric::FlowFile>(std::move(file));
}

base::Result<void> NetworkControl::set_policy(NicServer& nic, const PolicyOptions& options,
                                              std::shared_ptr<fabric::FlowFile> file) {
    const auto set =
        nic.call("policy set", [&to = nic.nic(), policy = options.policy, file, wall = wall_] {
            to.path().set_policy(policy, file, wall);
        });
    if (!holds(set)) return set;
    Settings& settings = settings_[&nic];
    settings.policy = options.text;
    let_go(nic, std::exchange(settings.flow_file, std::move(file)));
    return set;
}

base::Result<void> NetworkControl::clear_policy(NicServer& nic) {
    const auto cleared = nic.call("policy clear", [&of = nic.nic(), wall = wall_] {
        of.path().set_policy(std::nullopt, nullptr, wall);
    });
    if (!holds(cleared)) return cleared;
    Settings& settings = settings_[&nic];
    settings.policy.clear();
    let_go(nic, std::exchange(settings.flow_file, nullptr));
    return cleared;
}

json NetworkControl::start_capture(NicServer& nic, const std::string& file) {
    const auto found = settings_.find(&nic);
    if (found != settings_.end() && found->second.capture)
        return failure(fmt::format("'{}' is being captured already, to {}", nic.name(),
                                   found->second.capture->path()));
    if (!absolute(file)) return failure("'file' is the absolute path of a file");
    // To open the file empties it: not for a NIC that does not answer.
    if (const auto answers = nic.call("capture start", [] {}); !answers)
        return failure(nic, answers.error());
    auto created = fabric::Capture::create(file, loop_.clock(), wall_);
    if (!created) return failure(file, created.error());
    std::shared_ptr<fabric::Capture> capture = std::move(*created);
    const auto set =
        nic.call("capture start", [&of = nic.nic(), capture] { of.path().set_capture(capture); });
    if (holds(set)) settings_[&nic].capture = std::move(capture);
    watch_captures();
    if (!set) return failure(nic, set.error());
    return {{"ok", true}};
}

json NetworkControl::stop_capture(NicServer& nic) {
    Settings& settings = settings_[&nic];
    if (!settings.capture) return failure(fmt::format("there is no capture of '{}'", nic.name()));
    const auto ended = nic.call("capture stop", [&of = nic.nic(), capture = settings.capture] {
        of.path().set_capture(nullptr);
        capture->flush();
    });
    if (!holds(ended)) return failure(nic, ended.error());
    auto capture = std::exchange(settings.capture, nullptr);
    watch_captures();
    if (!ended) return failure(nic, ended.error());
    json answer = capture_row(nic.name(), *capture);
    answer["ok"] = true;
    if (capture->error() != 0)
        answer = failure(fmt::format("{}: the capture ended early: {}", capture->path(),
                                     std::strerror(capture->error())));
    let_go(nic, std::move(capture));
    return answer;
}

json NetworkControl::capture(NicServer& nic, const std::string& action, const json& request) {
    if (action == "start") return start_capture(nic, text_of(request, "file"));
    if (action == "stop") return stop_capture(nic);
    return failure("'action' is 'start', 'stop' or 'show'");
}

json NetworkControl::fault(NicServer& nic, const std::string& action, const json& request) {
    if (action == "clear") {
        if (const auto cleared = clear_faults(nic); !cleared) return failure(nic, cleared.error());
        return {{"ok", true}};
    }
    if (action != "set") return failure("'action' is 'set', 'clear' or 'show'");
    const auto options = parse_faults(text_of(request, "options"));
    if (!options) return failure(options.error());
    if (!options->nic.empty()) return failure("the NIC is named before the options");
    if (const auto set = set_faults(nic, *options); !set) return failure(nic, set.error());
    return {{"ok", true}};
}

json NetworkControl::policy(NicServer& nic, const std::string& action, const json& request) {
    if (action == "clear") {
        if (const auto cleared = clear_policy(nic); !cleared) return failure(nic, cleared.error());
        return {{"ok", true}};
    }
    if (action != "set") return failure("'action' is 'set', 'clear' or 'show'");
    const auto options = parse_policy(text_of(request, "options"));
    if (!options) return failure(options.error());
    if (!options->nic.empty()) return failure("the NIC is named before the options");
    if (const std::string& log = options->policy.flow_log; !log.empty() && !absolute(log))
        return failure(fmt::format("flow-log={} is not the absolute path of a file", log));
    auto file = flow_file(options->policy.flow_log);
    if (!file) return failure(options->policy.flow_log, file.error());
    if (const auto set = set_policy(nic, *options, std::move(*file)); !set)
        return failure(nic, set.error());
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
        json counters = json::object();
        for (const auto& thread : server->threads())
            thread->watch().counters().visit(
                [&](const base::CounterInfo& info, std::uint64_t value) {
                    counters[info.name] = counters.value(info.name, std::uint64_t{0}) + value;
                });
        uplink.visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            counters[info.name] = value;
        });
        json failing = json::array();
        for (const fabric::Uplink::FailingEnd& end : uplink.failing_ends())
            failing.push_back({{"end", end.end}, {"reason", std::strerror(end.error)}});
        rows.push_back({{"uplink", uplink.name()},
                        {"network", server->network()},
                        {"connected", uplink.connected()},
                        {"failing", std::move(failing)},
                        {"counters", std::move(counters)}});
    }
    return {{"ok", true}, {"uplinks", rows}};
}

json NetworkControl::rekey(const std::string& name) {
    bool any = false;
    for (const auto& server : uplinks_) {
        fabric::Uplink& uplink = server->uplink();
        if (!name.empty() && uplink.name() != name) continue;
        if (uplink.encryption() == nullptr) {
            if (!name.empty()) return failure(fmt::format("'{}' is not encrypted", name));
            continue;
        }
        any = true;
        std::size_t queue = 0;
        for (const auto& thread : server->threads()) {
            const auto asked = thread->call(
                "rekey", [encryption = uplink.encryption(queue++)] { return encryption->rekey(); });
            if (!asked)
                return failure(fmt::format("uplink '{}': {}", uplink.name(), asked.error().text));
            if (!*asked) return failure(fmt::format("uplink '{}'", uplink.name()), asked->error());
        }
        OM_INFO("rekey: uplink={}", uplink.name());
    }
    if (any) return {{"ok", true}};
    return failure(name.empty() ? "no uplink is encrypted"
                                : fmt::format("there is no uplink '{}'", name));
}

std::optional<json> NetworkControl::handle(const std::string& command, const json& request) {
    if (command == "uplinks") return uplinks();
    if (command == "fdb") return answer_fdb(uplinks_, request);
    if (command == "rekey") return rekey(text_of(request, "uplink"));
    if (command != "capture" && command != "fault" && command != "policy") return std::nullopt;
    const std::string action = text_of(request, "action");
    if (action == "show") {
        // Whoever asks may read the files next: they hold the frames that the answer counts.
        if (command == "capture") {
            const auto start = loop_.clock().now();
            for (Flush& asked : ask_to_flush())
                (void)asked.thread.get(std::move(asked.answer), start + asked.thread.patience());
        }
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
