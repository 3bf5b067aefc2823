// SPDX-License-Identifier: Apache-2.0
// What a Daemon counts, for `manactl stats` and for Prometheus. No other thread is asked: all of
// these are read as they are.
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/heap.h"
#include "manad/daemon.h"
#include "manad/metrics_text.h"

namespace openmana::manad {
namespace {

using nlohmann::json;
using rnic::RequestFigures;

template <typename Counters>
void add_counters(json& into, const Counters& counters) {
    counters.visit(
        [&](const base::CounterInfo& info, std::uint64_t value) { into[info.name] = value; });
}

/// Of the NIC's requests, by name and kind, those histograms that have anything: the end of each
/// bucket (null: it has none) with what is in it.
json requests(NicServer& nic) {
    json result = json::object();
    nic.nic().rdma().request_figures().visit([&](const RequestFigures::Info& info, const char* kind,
                                                 const base::HistogramReading& reading) {
        if (reading.count() == 0) return;
        json buckets = json::array();
        for (std::size_t i = 0; i < reading.counts.size(); ++i) {
            if (reading.counts[i] == 0) continue;
            json end;
            if (i < reading.upper.size())
                end = static_cast<double>(reading.upper[i]) / info.per_unit;
            buckets.push_back({end, reading.counts[i]});
        }
        result[info.name][kind] = {{"count", reading.count()},
                                   {"sum", static_cast<double>(reading.sum) / info.per_unit},
                                   {"buckets", buckets}};
    });
    return result;
}

/// States that a queue pair of the NIC is in, with how many are.
json qp_states(NicServer& nic) {
    json result = json::object();
    nic.nic().rdma().qp_states().visit([&](const char* state, std::uint64_t count) {
        if (count > 0) result[state] = count;
    });
    return result;
}

void add_requests(MetricsText& text, NicServer& nic) {
    const std::string_view name = nic.name();
    const std::string_view network = nic.network();
    nic.nic().rdma().request_figures().visit([&](const RequestFigures::Info& info, const char* kind,
                                                 const base::HistogramReading& reading) {
        text.add(MetricsText::name_of(info.name), info.help,
                 {{"nic", name}, {"network", network}, {"kind", kind}}, reading, info.per_unit);
    });
    nic.nic().rdma().qp_states().visit([&](const char* state, std::uint64_t count) {
        text.add("manad_rnic_qps", MetricsText::Type::kGauge, "queue pairs in each state",
                 {{"nic", name}, {"network", network}, {"state", state}}, count);
    });
}

}  // namespace

std::string Daemon::metrics(bool open_metrics) {
    using Type = MetricsText::Type;
    MetricsText text;
    // Of memory, what is now; all else is counted.
    const auto type_of = [](std::string_view name) {
        return name.starts_with("nic.memory.") && name != "nic.memory.refused" ? Type::kGauge
                                                                               : Type::kCounter;
    };
    const auto adding = [&](const MetricsText::Labels& labels) {
        return [&text, &type_of, labels](const base::CounterInfo& info, std::uint64_t value) {
            text.add(MetricsText::name_of(info.name), type_of(info.name), info.help, labels, value);
        };
    };
    for (const auto& nic : nics_) {
        const MetricsText::Labels labels{{"nic", nic->name()}, {"network", nic->network()}};
        nic->visit_counters(adding(labels));
        text.add("manad_nic_link_up", Type::kGauge, "whether the NIC's link is up", labels,
                 std::uint64_t{nic->nic().link()});
        text.add("manad_nic_client_connected", Type::kGauge, "whether a guest has the NIC", labels,
                 std::uint64_t{nic->has_client()});
        add_requests(text, *nic);
    }
    for (const auto& [name, network] : networks_.all())
        network->counters().visit(adding({{"network", name}}));
    network_.add_metrics(text);
    watch_->counters().visit(adding({{"nic", ""}, {"network", ""}}));
    const auto cpu = std::clock();
    text.add("manad_heap_bytes", Type::kGauge, "bytes that manad has allocated", {},
             std::uint64_t{base::heap_bytes()});
    text.add("process_cpu_seconds", Type::kCounter, "time that all threads have used", {},
             static_cast<double>(cpu) / CLOCKS_PER_SEC);
    text.add("manad_nics_leaving", Type::kGauge, "NICs that were removed and are not gone", {},
             std::uint64_t{leaving_.size()});
    return open_metrics ? text.open_metrics() : text.prometheus();
}

json Daemon::stats(const std::vector<NicServer*>& nics) {
    json rows = json::array();
    for (NicServer* nic : nics) {
        json counters = json::object();
        nic->visit_counters([&](const base::CounterInfo& info, std::uint64_t value) {
            counters[info.name] = value;
        });
        rows.push_back({{"nic", nic->name()},
                        {"network", nic->network()},
                        {"counters", counters},
                        {"requests", requests(*nic)},
                        {"qps", qp_states(*nic)}});
    }
    json networks = json::array();
    json sum = json::object();
    for (const auto& [name, network] : networks_.all()) {
        json counters = json::object();
        add_counters(counters, network->counters());
        for (const auto& [counter, value] : counters.items())
            sum[counter] = sum.value(counter, std::uint64_t{0}) + value.get<std::uint64_t>();
        networks.push_back({{"network", name}, {"counters", std::move(counters)}});
    }
    add_counters(sum, watch_->counters());  // of this thread, which is no NIC's
    const std::chrono::duration<double> at = clock_.now().time_since_epoch();
    return {{"ok", true},
            {"at_s", at.count()},
            {"nics", rows},
            {"networks", networks},
            {"switch", sum}};
}

}  // namespace openmana::manad
