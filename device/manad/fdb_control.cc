// SPDX-License-Identifier: Apache-2.0
#include "manad/fdb_control.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/mac_text.h"
#include "fabric/vxlan_uplink.h"
#include "manad/control.h"

namespace openmana::manad {
namespace {

using fabric::Fdb;
using fabric::FdbLine;
using nlohmann::json;

/// Of an answer: a table may be longer than what a control client may leave unread.
constexpr std::size_t kMaxRows = 4096;

struct Found {
    fabric::VxlanUplink* uplink;
    const std::string* network;
    /// As Linux would call its device.
    [[nodiscard]] std::string device() const {
        return fmt::format("vxlan{}", uplink->fdb().context().local.vni);
    }
};

std::vector<Found> vxlan_uplinks(const std::vector<std::unique_ptr<UplinkServer>>& servers) {
    std::vector<Found> found;
    for (const auto& server : servers)
        if (auto* const uplink = dynamic_cast<fabric::VxlanUplink*>(&server->uplink()))
            found.push_back({uplink, &server->network()});
    return found;
}

const char* name_of(Fdb::Origin origin) {
    switch (origin) {
        case Fdb::Origin::kOption:
            return "option";
        case Fdb::Origin::kFile:
            return "file";
        case Fdb::Origin::kControl:
            return "control";
        case Fdb::Origin::kLearned:
            return "learned";
    }
    return "";
}

json row_of(const Found& of, const Fdb::Row& row) {
    json result = {{"mac", base::to_string(row.mac)},
                   {"dev", of.device()},
                   {"uplink", of.uplink->name()},
                   {"network", *of.network},
                   {"dst", fabric::ip_text(row.end.address)},
                   {"port", row.end.port},
                   {"vni", row.end.vni},
                   {"src_vni", of.uplink->fdb().context().local.vni},
                   {"from", name_of(row.origin)}};
    if (row.origin == Fdb::Origin::kLearned)
        result["age_s"] = std::chrono::duration_cast<std::chrono::seconds>(row.age).count();
    return result;
}

json show(const std::vector<Found>& uplinks) {
    json rows = json::array();
    std::size_t left_out = 0;
    for (const Found& of : uplinks) {
        // Not on its thread, which has frames to take in.
        for (const Fdb::Row& row : of.uplink->fdb().rows()) {
            if (rows.size() < kMaxRows)
                rows.push_back(row_of(of, row));
            else
                ++left_out;
        }
    }
    return {{"ok", true}, {"rows", rows}, {"left_out", left_out}};
}

/// The one that a line is about.
tl::expected<Found, std::string> choose(const std::vector<Found>& uplinks, const FdbLine& line) {
    std::optional<Found> chosen;
    for (const Found& of : uplinks) {
        if (!line.device.empty() && line.device != of.device() && line.device != of.uplink->name())
            continue;
        if (line.source_vni && *line.source_vni != of.uplink->fdb().context().local.vni) continue;
        if (chosen)
            return tl::unexpected(std::string(
                "there are several VXLAN uplinks: name one by src_vni N, or by dev NAME as manactl "
                "uplinks shows it"));
        chosen = of;
    }
    if (!chosen) return tl::unexpected(std::string("there is no such VXLAN uplink"));
    return *chosen;
}

json change(const std::vector<Found>& uplinks, const std::string& text) {
    const auto line = fabric::parse_fdb_line(text);
    if (!line) return failure(line.error());
    if (!*line) return failure("one of add, append, replace, del and show is missing");
    const auto chosen = choose(uplinks, **line);
    if (!chosen) return failure(chosen.error());
    const auto done = chosen->uplink->fdb().command(**line);
    if (!done) return failure(done.error());
    OM_INFO("fdb change: uplink={} mac={} dst={}", chosen->uplink->name(),
            base::to_string((*line)->mac), fabric::ip_text((*line)->address));
    return {{"ok", true}};
}

}  // namespace

json answer_fdb(const std::vector<std::unique_ptr<UplinkServer>>& servers, const json& request) {
    const std::vector<Found> uplinks = vxlan_uplinks(servers);
    if (uplinks.empty()) return failure("there is no VXLAN uplink");
    const auto line = request.find("line");
    if (line == request.end()) return show(uplinks);
    if (!line->is_string()) return failure("'line' is a line as bridge fdb takes it");
    return change(uplinks, line->get<std::string>());
}

}  // namespace openmana::manad
