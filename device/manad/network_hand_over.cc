// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manad/network_control.h"

// How what a daemon's networks have goes to another process, and comes from one.

namespace openmana::manad {
namespace {

/// By what all VXLAN networks with one local address find their sockets.
std::string endpoint_name(const fabric::UplinkConfig& config) {
    return config.local.text();
}

}  // namespace

void give_uplinks(Options& options, HandedOver& handed) {
    for (fabric::UplinkConfig& uplink : options.uplinks) {
        uplink.inherited = handed.take("uplink", uplink.name);
        if (uplink.kind == fabric::UplinkConfig::Kind::kVxlan)
            uplink.inherited_endpoint = handed.take("endpoint", endpoint_name(uplink));
    }
}

std::optional<std::string> NetworkControl::find_bond() const {
    for (const auto& uplink : uplinks_)
        if (const char* const why = uplink->uplink().bond(); why != nullptr)
            return fmt::format("uplink '{}' cannot go to another process: it {}",
                               uplink->uplink().name(), why);
    return std::nullopt;
}

std::vector<fabric::FlowFile*> NetworkControl::flow_files() const {
    std::vector<fabric::FlowFile*> files;
    for (const auto& nic : nics_) {
        const auto found = settings_.find(nic.get());
        fabric::FlowFile* const file =
            found == settings_.end() ? nullptr : found->second.flow_file.get();
        if (file != nullptr && std::ranges::find(files, file) == files.end()) files.push_back(file);
    }
    return files;
}

NetworkControl::Wishes NetworkControl::wishes_of(NicServer& nic) const {
    const auto found = settings_.find(&nic);
    if (found == settings_.end()) return {};
    const Settings& settings = found->second;
    Wishes wishes{settings.policy, settings.faults, settings.flaps, {}};
    const auto files = flow_files();
    const auto file = std::ranges::find(files, settings.flow_file.get());
    if (file != files.end()) wishes.flow_log = std::to_string(file - files.begin());
    return wishes;
}

void NetworkControl::save(const AddParcel& add) {
    const auto write = [&](const char* kind, const std::string& name, const auto& what) {
        base::StateWriter out(loop_.clock().now());
        what.save(out);
        add(kind, name, std::move(out));
    };
    std::vector<const fabric::VxlanEndpoint*> endpoints;
    for (const auto& uplink : uplinks_) {
        write("uplink", uplink->uplink().name(), uplink->uplink());
        const fabric::VxlanEndpoint* const endpoint = uplink->endpoint();
        if (endpoint == nullptr || std::ranges::find(endpoints, endpoint) != endpoints.end())
            continue;
        endpoints.push_back(endpoint);
        write("endpoint", endpoint->local().text(), *endpoint);
    }
    const auto write_capture = [&](const std::string& name, fabric::Capture& capture) {
        capture.flush();
        write("capture", name, capture);
    };
    if (everything_) write_capture("", *everything_);
    for (const auto& nic : nics_) {
        const auto found = settings_.find(nic.get());
        if (found != settings_.end() && found->second.capture)
            write_capture(nic->name(), *found->second.capture);
        base::StateWriter stages(loop_.clock().now());
        nic->save_stages(stages);
        add("stages", nic->name(), std::move(stages));
    }
    const auto files = flow_files();
    for (std::size_t i = 0; i < files.size(); ++i) write("flow-log", std::to_string(i), *files[i]);
}

/// One that is to go elsewhere now, or nowhere, ends where the other process has left it.
base::Result<void> NetworkControl::set_up_everything(const Options& options, HandedOver* handed) {
    const std::vector<std::string> names = network_names(options);
    const auto parcel = handed != nullptr ? handed->take("capture", "") : nullptr;
    TRY(auto state, fabric::open_inherited(parcel, loop_.clock().now()));
    if (state) {
        TRY(auto before, fabric::Capture::resume(*state, loop_.clock(), wall_));
        if (before->path() == options.pcap) everything_ = std::move(before);
    }
    if (!everything_) {
        TRY(everything_, fabric::Capture::create(options.pcap, loop_.clock(), wall_, names));
    }
    for (const std::string& name : names) {
        fabric::FrameTap* tap = everything_->find_point(name);
        if (tap == nullptr) {
            TRY(tap, everything_->add_point(name));
        }
        networks_.of(name).set_tap(*tap);
    }
    watch_captures();
    return {};
}

base::Result<void> NetworkControl::take_flow_files(HandedOver& handed, std::string& subject) {
    std::map<std::string, std::shared_ptr<fabric::FlowFile>> files;
    for (const HandedOver::Nic& nic : handed.nics) {
        if (nic.flow_log.empty()) continue;
        subject = "flow log";
        std::shared_ptr<fabric::FlowFile>& file = files[nic.flow_log];
        if (!file) {
            const auto parcel = handed.take("flow-log", nic.flow_log);
            if (!parcel) return base::fail(base::ErrorCode::kProtocol, "it was not handed over");
            TRY(auto state, fabric::open_inherited(parcel, loop_.clock().now()));
            TRY(file, fabric::FlowFile::resume(*state));
        }
        handed_flow_files_[nic.name] = file;
    }
    return {};
}

/// Once all is set that was: what the other process had seen by then, and captures of single NICs.
base::Result<void> NetworkControl::go_on(HandedOver& handed, std::string& subject) {
    handed_flow_files_.clear();
    for (const auto& nic : nics_) {
        subject = nic->name();
        const auto seen = handed.take("stages", nic->name());
        TRY(auto stages, fabric::open_inherited(seen, loop_.clock().now()));
        if (stages) {
            nic->nic().load_stages(*stages);
            TRY_VOID(stages->result());
        }
        const auto parcel = handed.take("capture", nic->name());
        TRY(auto state, fabric::open_inherited(parcel, loop_.clock().now()));
        if (!state) continue;
        TRY(std::shared_ptr<fabric::Capture> capture,
            fabric::Capture::resume(*state, loop_.clock(), wall_));
        nic->nic().path().set_capture(capture);
        settings_[nic.get()].capture = std::move(capture);
    }
    watch_captures();
    return {};
}

}  // namespace openmana::manad
