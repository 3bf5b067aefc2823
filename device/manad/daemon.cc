// SPDX-License-Identifier: Apache-2.0
#include "manad/daemon.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/heap.h"
#include "base/log.h"

namespace openmana::manad {
namespace {

using nlohmann::json;

json failure(std::string text) {
    return {{"ok", false}, {"error", std::move(text)}};
}

template <typename Counters>
void add_counters(json& into, const Counters& counters) {
    counters.visit(
        [&](const base::CounterInfo& info, std::uint64_t value) { into[info.name] = value; });
}

}  // namespace

base::Result<std::unique_ptr<Daemon>> Daemon::create(const Options& options, std::string& subject) {
    subject = "event loop";
    TRY(auto loop, base::EventLoop::create());
    std::unique_ptr<Daemon> daemon(new Daemon(std::move(loop)));
    for (const NicOptions& nic : options.nics) {
        subject = nic.socket;
        TRY(auto server, NicServer::create(nic, daemon->switch_));
        daemon->nics_.push_back(std::move(server));
    }
    TRY_VOID(daemon->network_.set_up(options, subject));
    if (!options.control.empty()) {
        subject = options.control;
        TRY(daemon->control_, ControlServer::create(*daemon->loop_, options.control,
                                                    [raw = daemon.get()](const json& request) {
                                                        return raw->handle(request);
                                                    }));
    }
    return daemon;
}

Daemon::~Daemon() {
    // All threads end before the first NIC goes: they reach each other's NICs.
    for (const auto& nic : nics_) nic->stop();
    network_.stop();
}

void Daemon::run() {
    for (const auto& nic : nics_) nic->start();
    network_.start();
    loop_->run();
}

json Daemon::handle(const json& request) {
    const auto text = [&](const char* key) {
        const auto found = request.find(key);
        return found != request.end() && found->is_string() ? found->get<std::string>()
                                                            : std::string();
    };
    const std::string command = text("command");
    const std::string name = text("nic");
    if (auto answer = network_.handle(command, request)) return std::move(*answer);
    std::vector<NicServer*> chosen;
    for (const auto& nic : nics_)
        if (name.empty() || nic->nic().config().name == name) chosen.push_back(nic.get());
    if (chosen.empty()) return failure(fmt::format("there is no NIC '{}'", name));
    if (command == "status") return status();
    if (command == "stats") return stats(chosen);
    if (command == "qps") return qps(chosen);
    if (command != "link" && command != "reset")
        return failure(fmt::format("unknown command '{}'", command));
    if (name.empty()) return failure(fmt::format("'{}' needs a NIC", command));
    NicServer& nic = *chosen.front();
    if (command == "reset") {
        nic.call([&] { nic.reset(); });
        return {{"ok", true}};
    }
    const std::string state = text("state");
    if (state != "up" && state != "down") return failure("'state' is 'up' or 'down'");
    nic.call([&] { nic.nic().set_link(state == "up"); });
    OM_INFO("link: nic={} state={}", name, state);
    return {{"ok", true}};
}

json Daemon::status() {
    json rows = json::array();
    for (const auto& nic : nics_) {
        const auto& config = nic->nic().config();
        std::size_t qps = 0;
        bool client = false;
        gdma::ObjectCounts counts;
        nic->call([&] {
            qps = nic->nic().rdma().qp_status().size();
            client = nic->client_connected();
            counts = nic->nic().function().object_counts();
        });
        const json objects = {
            {"eqs", counts.eqs},         {"cqs", counts.cqs},
            {"sqs", counts.sqs},         {"rqs", counts.rqs},
            {"pds", counts.pds},         {"mrs", counts.keys},
            {"regions", counts.regions}, {"doorbell_pages", counts.doorbell_pages}};
        rows.push_back({{"nic", config.name},
                        {"mac", to_string(config.mac)},
                        {"link", nic->nic().link() ? "up" : "down"},
                        {"client", client},
                        {"mtu", config.max_mtu},
                        {"qps", qps},
                        {"objects", objects},
                        {"socket", nic->socket()}});
    }
    return {{"ok", true}, {"nics", rows}, {"heap_bytes", base::heap_bytes()}};
}

json Daemon::stats(const std::vector<NicServer*>& nics) {
    json rows = json::array();
    for (NicServer* nic : nics) {
        json counters = json::object();
        nic->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            counters[info.name] = value;
        });
        rows.push_back({{"nic", nic->nic().config().name}, {"counters", counters}});
    }
    json network = json::object();
    add_counters(network, switch_.counters());
    return {{"ok", true}, {"nics", rows}, {"switch", network}};
}

json Daemon::qps(const std::vector<NicServer*>& nics) {
    json rows = json::array();
    for (NicServer* nic : nics) {
        std::vector<rnic::QpStatus> qps;
        nic->call([&] { qps = nic->nic().rdma().qp_status(); });
        for (const rnic::QpStatus& qp : qps)
            rows.push_back({{"nic", nic->nic().config().name},
                            {"qpn", qp.qpn},
                            {"type", qp.type},
                            {"state", qp.state},
                            {"path", qp.path},
                            {"remote_qpn", qp.remote_qpn},
                            {"tx_messages", qp.tx_messages},
                            {"tx_bytes", qp.tx_bytes},
                            {"rx_messages", qp.rx_messages},
                            {"rx_bytes", qp.rx_bytes},
                            {"retries", qp.retries},
                            {"rnr_retries", qp.rnr_retries},
                            {"credit_waits", qp.credit_waits},
                            {"errors", qp.errors},
                            {"rate_mbps", qp.rate_mbps}});
    }
    return {{"ok", true}, {"qps", rows}};
}

}  // namespace openmana::manad
