// SPDX-License-Identifier: Apache-2.0
#include "manad/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/heap.h"
#include "base/log.h"
#include "manad/dma_limits.h"
#include "manad/in_words.h"
#include "manad/nic_mtus.h"
#include "manad/open_ends.h"
#include "manad/qp_rows.h"
#include "manad/vlan_options.h"

namespace openmana::manad {
namespace {

using nlohmann::json;

json objects(const gdma::ObjectCounts& counts) {
    return {{"eqs", counts.eqs},         {"cqs", counts.cqs},
            {"sqs", counts.sqs},         {"rqs", counts.rqs},
            {"pds", counts.pds},         {"mrs", counts.keys},
            {"regions", counts.regions}, {"doorbell_pages", counts.doorbell_pages}};
}

json memory(const base::MemoryAccount& account) {
    return {{"used", account.used()}, {"limit", account.limit()}};
}

/// Whether the options have a NIC of that name.
bool names(const Options& options, const NicOptions& nic) {
    return std::ranges::any_of(
        options.nics, [&](const NicOptions& other) { return other.nic.name == nic.nic.name; });
}

std::string has_client(const std::string& nic) {
    return fmt::format("NIC '{}' has a client: take the device from the guest first, or force it",
                       nic);
}

}  // namespace

base::Result<std::unique_ptr<Daemon>> Daemon::create(const Options& given, std::string& subject,
                                                     base::Duration patience, TakeOver* taken,
                                                     Ledger* ledger) {
    Options options = given;
    if (taken != nullptr) {
        subject = "--take-over";
        TRY_VOID(take_options(options, taken->handed(), subject));
    }
    subject = "event loop";
    TRY(auto loop, base::EventLoop::create());
    std::unique_ptr<Daemon> daemon(new Daemon(std::move(loop), options, patience));
    if (taken != nullptr) {
        daemon->from_ = taken->handed().pid;
        daemon->shares_.store(true, std::memory_order_relaxed);
    }
    daemon->ledger_ = ledger;
    if (auto made = daemon->make(options, subject, taken); !made) {
        // As behind a crash: the next process finds all that is in the ledger.
        if (ledger != nullptr && ledger->ready()) (void)daemon.release();
        return tl::unexpected(made.error());
    }
    return daemon;
}

base::Result<void> Daemon::make(const Options& options, std::string& subject, TakeOver* taken) {
    const pci::DmaLimits limits = dma_limits_of_each(options.nics.size(), mappings_of_a_process());
    std::vector<std::string> cut;
    const auto find_once = [&known = path_mtus_](const fabric::UplinkConfig& uplink) {
        return known.emplace(uplink.name, fabric::find_mtu(uplink)).first->second;
    };
    for (NicOptions& nic : with_mtus_of_paths(options, cut, find_once)) {
        subject = nic.socket;
        nic.dma = limits;
        HandedOver::Nic* handed = nullptr;
        if (taken != nullptr) {
            TRY(handed, taken->nic(nic.nic.name));
        }
        std::optional<base::StateReader> state;
        if (handed != nullptr) {
            TRY(state, base::StateReader::open(handed->state.bytes, clock_.now(),
                                               handed->state.descriptors));
        }
        TRY(auto server,
            NicServer::create(nic, networks_.of(nic.network), patience_, state ? &*state : nullptr,
                              ledger_ != nullptr ? ledger_->claim(nic) : nullptr));
        if (handed != nullptr) {
            server->set_handed_over(handed->paused);
            handed->state = {};  // whose memory the next one gets
        }
        nics_.push_back(std::move(server));
        add_socket(nic.socket);
    }
    for (const std::string& line : cut) OM_WARN("{}", line);
    TRY_VOID(network_.set_up(options, subject, taken != nullptr ? &taken->handed() : nullptr));
    for (const fabric::UplinkConfig& uplink : options.uplinks)
        if (uplink.listen) add_socket(uplink.path);
    for (const auto& nic : nics_) threads_.add(nic->shared_thread());
    for (const auto& thread : network_.threads()) threads_.add(thread);
    if (!options.control.empty()) {
        subject = options.control;
        const auto handler = [this](const json& request, int connection) {
            return handle(request, connection);
        };
        base::UniqueFd listening;
        if (taken != nullptr) listening = std::move(taken->handed().control);
        auto control =
            listening
                ? ControlServer::take_over(*loop_, std::move(listening), options.control, handler)
                : ControlServer::create(*loop_, {options.control, options.control_access}, handler);
        if (!control) return tl::unexpected(control.error());
        control_ = std::move(*control);
        add_socket(options.control);
    }
    for (const MetricsPlace& place : options.metrics) {
        subject = place.text;
        base::UniqueFd listening;
        if (taken != nullptr) listening = std::move(taken->handed().metrics[place.text]);
        TRY(auto server,
            MetricsServer::create(
                *loop_, place, [this](bool open) { return metrics(open); }, std::move(listening)));
        metrics_.push_back(std::move(server));
        if (!place.path.empty()) add_socket(place.path);
    }
    return {};
}

Daemon::~Daemon() {
    end();
}

base::Result<void> Daemon::set_starter(std::unique_ptr<Starter> starter) {
    TRY(upgrade_, Upgrade::create(*loop_, std::move(starter)));
    return {};
}

void Daemon::add_socket(const std::string& path) {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(path);
}

std::vector<std::string> Daemon::sockets() const {
    const std::lock_guard lock(mutex_);
    return sockets_;
}

/// Those of NICs may have changed.
void Daemon::note_policies() {
    if (ledger_ == nullptr) return;
    for (const auto& nic : nics_) nic->note_policy(network_.wishes_of(*nic).policy);
}

base::Result<void> Daemon::start() {
    note_policies();
    serves_.store(true, std::memory_order_relaxed);
    shares_.store(false, std::memory_order_relaxed);
    // What another process has handed over is this one's now.
    if (control_) control_->listener().keep_path(false);
    for (const auto& server : metrics_) server->keep_path(false);
    for (const auto& nic : nics_) TRY_VOID(nic->start());
    TRY_VOID(network_.start());
    return watchdog_.start([this] {
        std::vector<std::shared_ptr<LoopWatch>> watches{watch_};
        for (const LoopThreads::Shared& thread : threads_.all())
            watches.emplace_back(thread, &thread->watch());
        return watches;
    });
}

void Daemon::run() {
    loop_->run();
    end();
}

/// All threads end before the first NIC goes: they reach each other's NICs. The watchdog may hang
/// in a line of the log, and keeps none of them from its end.
void Daemon::end() {
    for (const LoopThreads::Shared& thread : threads_.all()) thread->ask_to_stop();
    serves_.store(false, std::memory_order_relaxed);
    watchdog_.stop();
    threads_.stop();
}

std::vector<std::string> Daemon::hanging() const {
    std::vector<std::string> lines;
    const auto add = [&](const LoopWatch& watch) {
        lines.push_back(fmt::format("{} doing=\"{}\"", watch.label(), watch.doing()));
    };
    // Where the main thread itself hangs, it has asked nobody to end yet.
    const bool asked = !serves_.load(std::memory_order_relaxed);
    if (!asked) add(*watch_);
    for (const LoopThreads::Shared& thread : threads_.all())
        if (asked ? thread->serves() : thread->watch().hangs()) add(thread->watch());
    return lines;
}

Parsed<void> Daemon::add_nic(const NicOptions& nic, const std::optional<PolicyOptions>& policy) {
    Options wanted = options_;
    wanted.nics.push_back(nic);
    if (policy) wanted.policies.push_back(*policy);
    if (auto conflict = find_conflict(wanted)) return tl::unexpected(std::move(*conflict));
    pci::DmaLimits promised{.ranges = 0, .bytes = 0};
    for (const auto& other : nics_) {
        promised.ranges += other->dma_limits().ranges;
        promised.bytes += other->dma_limits().bytes;
    }
    Options alone = options_;
    alone.nics = {nic};
    std::vector<std::string> lines;
    const auto known = [this](const fabric::UplinkConfig& uplink) {
        return path_mtus_.at(uplink.name);
    };
    NicOptions made = with_mtus_of_paths(alone, lines, known).front();
    made.nic.apart = true;  // while it can fail: threads of others are at work
    made.dma = dma_limits_of_another(promised, mappings_of_a_process());
    if (made.dma.ranges == 0)
        return tl::unexpected(std::string(
            "the NICs that are there have all the mappings (vm.max_map_count) or all the address "
            "space that the system gives a process"));
    std::string subject;
    const auto network = network_.network_for(nic.network);
    if (!network) return tl::unexpected(in_words(nic.network, network.error()));
    // Noted with the NIC: whenever this process ends, the next one has neither without the other.
    const std::string policy_text = policy ? policy->text : std::string();
    auto server = NicServer::create(
        made, **network, patience_, nullptr,
        ledger_ != nullptr ? ledger_->claim(made, policy_text) : NicLedgerClaim());
    if (!server) return tl::unexpected(in_words(nic.socket, server.error()));
    nics_.push_back(std::move(*server));
    auto ready = policy ? network_.set_up_policy(*policy, subject) : base::Result<void>();
    if (ready) {
        subject = "thread";
        ready = nics_.back()->start();
    }
    if (!ready) {
        network_.forget(*nics_.back());
        nics_.pop_back();
        return tl::unexpected(in_words(subject, ready.error()));
    }
    threads_.add(nics_.back()->shared_thread());
    network_.expect(nic.network, nic.nic.mac);
    add_socket(nic.socket);
    options_ = std::move(wanted);
    for (const std::string& line : lines) OM_WARN("{}", line);
    alone.uplinks.clear();
    if (policy) alone.policies = {*policy};
    for (const std::string& line : open_ends(alone)) OM_INFO("open: {}", line);
    return {};
}

Parsed<void> Daemon::remove_nic(const std::string& name, bool force) {
    const auto found =
        std::ranges::find_if(nics_, [&](const auto& nic) { return nic->name() == name; });
    if (found == nics_.end()) return tl::unexpected(fmt::format("there is no NIC '{}'", name));
    NicServer& nic = **found;
    if (!force) {
        const auto client = nic.call("nic remove", [&nic] { return nic.status().client; });
        if (!client) return tl::unexpected(nic.no_answer(client.error()));
        if (*client) return tl::unexpected(has_client(name));
    }
    // Once it is begun it is done, whether that is waited for or not.
    const auto left = nic.call("nic remove", [&nic] { nic.leave(); });
    if (!left && left.error().code != base::ErrorCode::kBusy)
        return tl::unexpected(nic.no_answer(left.error()));
    OM_INFO("nic stop: nic={}", name);
    std::erase_if(options_.nics, [&](const NicOptions& other) { return other.nic.name == name; });
    std::erase_if(options_.policies, [&](const PolicyOptions& other) { return other.nic == name; });
    std::erase_if(options_.faults, [&](const FaultOptions& other) { return other.nic == name; });
    {
        const std::lock_guard lock(mutex_);
        std::erase(sockets_, nic.socket());
    }
    network_.forget(nic);
    network_.expect_no_more(nic.network(), nic.nic().config().mac);
    std::unique_ptr<NicServer> owner = std::move(*found);
    nics_.erase(found);
    let_go(std::move(owner));
    return {};
}

NicOptions* Daemon::options_of(const std::string& nic) {
    const auto found = std::ranges::find_if(
        options_.nics, [&](const NicOptions& other) { return other.nic.name == nic; });
    return found == options_.nics.end() ? nullptr : &*found;
}

std::optional<std::string> Daemon::find_obstacle(const Options& wanted) {
    if (wanted.fixed != options_.fixed) {
        const auto [old, now] = std::ranges::mismatch(options_.fixed, wanted.fixed);
        const auto& [option, text] = now != wanted.fixed.end() ? *now : *old;
        return fmt::format("{}={}: cannot change while manad runs", option, text);
    }
    for (const NicOptions& nic : wanted.nics)
        if (const NicOptions* const there = options_of(nic.nic.name);
            there != nullptr && there->text != nic.text)
            return fmt::format("NIC '{}' cannot change while it is there ({}): remove it first",
                               nic.nic.name, there->text);
    for (const NicOptions& nic : options_.nics) {
        if (nic.came_later || names(wanted, nic)) continue;
        NicServer& server = *find(nic.nic.name);
        const auto status = server.call("status", [&server] { return server.status(); });
        if (!status) return server.no_answer(status.error());
        if (status->client) return has_client(nic.nic.name);
    }
    return std::nullopt;
}

Parsed<std::vector<std::string>> Daemon::add_nics_of(const Options& wanted) {
    std::vector<std::string> added;
    for (const NicOptions& nic : wanted.nics) {
        if (NicOptions* const there = options_of(nic.nic.name)) {
            there->came_later = false;
            continue;
        }
        const auto policy = std::ranges::find(wanted.policies, nic.nic.name, &PolicyOptions::nic);
        const auto made =
            add_nic(nic, policy == wanted.policies.end() ? std::nullopt
                                                         : std::optional<PolicyOptions>(*policy));
        if (made) {
            added.push_back(nic.nic.name);
            continue;
        }
        for (const std::string& name : added) (void)remove_nic(name, true);
        return tl::unexpected(made.error());
    }
    return added;
}

Parsed<std::size_t> Daemon::remove_nics_not_of(const Options& wanted) {
    std::vector<std::string> gone;
    for (const NicOptions& nic : options_.nics)
        if (!nic.came_later && !names(wanted, nic)) gone.push_back(nic.nic.name);
    for (const std::string& name : gone)
        if (const auto removed = remove_nic(name, false); !removed)
            return tl::unexpected(removed.error());
    return gone.size();
}

Parsed<std::string> Daemon::reload() {
    auto done = bring_to_read();
    note_policies();  // what was done before it failed, too
    return done;
}

Parsed<std::string> Daemon::bring_to_read() {
    if (!read_again_) return tl::unexpected(std::string("there is nothing to read again"));
    const ParsedOptions parsed = read_again_();
    if (parsed.exit) {
        constexpr std::string_view kProgram = "manad: ";
        std::string why = parsed.text;
        if (why.starts_with(kProgram)) why.erase(0, kProgram.size());
        if (why.ends_with('\n')) why.pop_back();
        return tl::unexpected(std::move(why));
    }
    const Options& wanted = parsed.options;
    if (auto obstacle = find_obstacle(wanted)) return tl::unexpected(std::move(*obstacle));
    const auto added = add_nics_of(wanted);
    if (!added) return tl::unexpected(added.error());
    std::size_t changed = 0;
    for (const NicOptions& nic : wanted.nics) {
        const auto done = network_.bring_to(*find(nic.nic.name), wanted);
        if (!done) return tl::unexpected(done.error());
        const bool fresh = std::ranges::find(*added, nic.nic.name) != added->end();
        changed += static_cast<std::size_t>(*done && !fresh);
    }
    const auto removed = remove_nics_not_of(wanted);
    if (!removed) return tl::unexpected(removed.error());
    std::erase_if(options_.policies,
                  [&](const PolicyOptions& policy) { return !options_of(policy.nic)->came_later; });
    options_.policies.insert(options_.policies.end(), wanted.policies.begin(),
                             wanted.policies.end());
    options_.faults = wanted.faults;
    options_.log_level = wanted.log_level;
    base::set_log_level(wanted.log_level);
    return fmt::format("{} NICs added, {} removed, {} with another policy or other faults",
                       added->size(), *removed, changed);
}

void Daemon::reload_and_tell() {
    const base::Activity::Scope doing("reload");
    if (const auto done = reload())
        OM_INFO("reload: done=\"{}\"", *done);
    else
        OM_ERROR("reload refused: reason=\"{}\"", done.error());
}

/// Threads of others may be at work with what they found of it before it left: each has to come to
/// the end of that first.
void Daemon::let_go(std::unique_ptr<NicServer> nic) {
    leaving_.push_back(std::move(nic));
    const auto place = std::prev(leaving_.end());
    threads_.after_all(*loop_, [this, place] {
        LoopThread& thread = (*place)->thread();
        thread.loop().post([this, place, &thread] {
            place->reset();
            loop_->post([this, place, &thread] {
                leaving_.erase(place);
                end_thread(thread);
            });
        });
    });
}

/// If no uplink is served by it.
void Daemon::end_thread(const LoopThread& thread) {
    if (network_.serves_on(thread)) return;
    if (const LoopThreads::Shared last = threads_.take(thread)) last->stop();
}

json Daemon::handle(const json& request) {
    const base::Activity::Scope doing("control request");
    const auto text = [&](const char* key) { return text_of(request, key); };
    const std::string command = text("command");
    const std::string name = text("nic");
    if (auto answer = network_.handle(command, request)) {
        note_policies();
        return std::move(*answer);
    }
    if (command == "nic") {
        json answer = change_nics(request);
        note_policies();
        return answer;
    }
    if (command == "upgrade") return upgrade(request);
    if (command == "reload") {
        const auto done = reload();
        if (!done) return failure(done.error());
        OM_INFO("reload: done=\"{}\"", *done);
        return {{"ok", true}, {"done", *done}};
    }
    std::vector<NicServer*> chosen;
    for (const auto& nic : nics_)
        if (name.empty() || nic->name() == name) chosen.push_back(nic.get());
    if (chosen.empty() && !name.empty()) return failure(fmt::format("there is no NIC '{}'", name));
    if (command == "status") return status();
    if (command == "stats") return stats(chosen);
    if (command == "qps") return qps(chosen);
    if (command != "link" && command != "reset")
        return failure(fmt::format("unknown command '{}'", command));
    if (name.empty()) return failure(fmt::format("'{}' needs a NIC", command));
    NicServer& nic = *chosen.front();
    if (command == "reset") {
        if (const auto done = nic.call("reset", [&nic] { nic.reset(); }); !done)
            return failure(nic.no_answer(done.error()));
        return {{"ok", true}};
    }
    const std::string state = text("state");
    if (state != "up" && state != "down") return failure("'state' is 'up' or 'down'");
    const auto set = nic.call("link", [&of = nic.nic(), up = state == "up"] { of.set_link(up); });
    if (!set) return failure(nic.no_answer(set.error()));
    OM_INFO("link: nic={} state={}", name, state);
    return {{"ok", true}};
}

json Daemon::change_nics(const json& request) {
    const auto text = [&](const char* key) { return text_of(request, key); };
    const std::string action = text("action");
    if (action == "remove") {
        const auto force = request.find("force");
        const auto removed =
            remove_nic(text("nic"), force != request.end() && *force == json(true));
        if (!removed) return failure(removed.error());
        return {{"ok", true}};
    }
    if (action != "add") return failure("'action' is 'add' or 'remove'");
    auto nic = parse_nic(text("options"), options_.socket_access);
    if (!nic) return failure(nic.error());
    nic->came_later = true;
    if (!nic->socket.starts_with('/'))
        return failure(fmt::format("socket={} is not an absolute path", nic->socket));
    std::optional<PolicyOptions> policy;
    if (const std::string wanted = text("policy"); !wanted.empty()) {
        auto parsed = parse_policy(wanted);
        if (!parsed) return failure("policy: " + parsed.error());
        if (!parsed->nic.empty()) return failure("policy: the NIC is named before");
        parsed->nic = nic->nic.name;
        policy = std::move(*parsed);
    }
    if (const auto added = add_nic(*nic, policy); !added) return failure(added.error());
    return {{"ok", true}};
}

/// Asks all NICs at once, so that many that hang are waited for as long as one.
json Daemon::status() {
    const auto start = clock_.now();
    std::vector<Answer<NicServer::Status>> answers;
    for (const auto& nic : nics_)
        answers.push_back(nic->thread().ask("status", [of = nic.get()] { return of->status(); }));
    json rows = json::array();
    for (std::size_t i = 0; i < nics_.size(); ++i) {
        NicServer& nic = *nics_[i];
        const auto& config = nic.nic().config();
        json row = {{"nic", config.name},
                    {"network", nic.network()},
                    {"vlan", vlan_text(config.vlans)},
                    {"mac", to_string(config.mac)},
                    {"link", nic.nic().link() ? "up" : "down"},
                    {"client", nullptr},
                    {"mtu", config.max_mtu},
                    {"qps", nullptr},
                    {"objects", nullptr},
                    {"memory", memory(nic.nic().function().account())},
                    {"socket", nic.socket()}};
        if (const auto status = nic.thread().get(std::move(answers[i]), start + patience_)) {
            row["client"] = status->client;
            row["qps"] = status->qps;
            row["objects"] = objects(status->objects);
        } else {
            const LoopWatch& watch = nic.thread().watch();
            const auto now = clock_.now();
            const base::Duration silence = std::max(watch.silent_for(now), now - start);
            row["hangs_s"] = std::chrono::duration<double>(silence).count();
            row["doing"] = watch.doing();
        }
        rows.push_back(std::move(row));
    }
    return {{"ok", true},
            {"nics", rows},
            {"leaving", leaving_.size()},
            {"heap_bytes", base::heap_bytes()}};
}

json Daemon::qps(const std::vector<NicServer*>& nics) {
    const auto start = clock_.now();
    std::vector<Answer<std::vector<rnic::QpStatus>>> answers;
    for (NicServer* const nic : nics)
        answers.push_back(
            nic->thread().ask("status of QPs", [nic] { return nic->nic().rdma().qp_status(); }));
    QpRows rows;
    json silent = json::array();
    for (std::size_t i = 0; i < nics.size(); ++i) {
        NicServer& nic = *nics[i];
        const auto qps = nic.thread().get(std::move(answers[i]), start + patience_);
        if (!qps) {
            silent.push_back(nic.no_answer(qps.error()));
            continue;
        }
        rows.add(nic.name(), *qps);
    }
    if (!nics.empty() && silent.size() == nics.size())
        return failure(silent.front().get<std::string>());
    return {{"ok", true}, {"qps", rows.take()}, {"all", rows.all()}, {"silent", silent}};
}

}  // namespace openmana::manad
