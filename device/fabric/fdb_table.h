// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "base/frame.h"
#include "base/keyed_hash.h"
#include "base/state.h"
#include "fabric/fdb_line.h"
#include "fabric/tunnel_end.h"

namespace openmana::fabric {

/// What stands for all that has no entry: frames for groups and unknown addresses.
inline constexpr base::MacAddr kFloodMac{};

/// A MAC address in a word, which the process's hash takes.
[[nodiscard]] std::uint64_t mac_word(const base::MacAddr& mac);
[[nodiscard]] base::MacAddr mac_of_word(std::uint64_t word);

/// How the lines of a table are to be read.
struct FdbContext {
    TunnelEnd local;     ///< this end, with the VNI that the table is of
    std::string device;  ///< only lines of this `dev`; empty: of any
    /// Of the table's network: none of another VNI or device.
    [[nodiscard]] bool concerns(const FdbLine& line) const {
        return (!line.source_vni || *line.source_vni == local.vni) &&
               (device.empty() || line.device == device);
    }
    /// Where the line sends to.
    [[nodiscard]] TunnelEnd end_of(const FdbLine& line) const {
        return {line.address, line.port.value_or(local.port), line.vni.value_or(local.vni)};
    }
};

using TunnelEnds = std::vector<TunnelEnd>;

/// MAC addresses with the ends of tunnels that have them, as somebody wrote them down. For one
/// thread.
class FdbTable {
public:
    static constexpr std::size_t kMaxAddresses = 65536;
    static constexpr std::size_t kMaxEnds = 1024;  ///< of one address
    static constexpr std::size_t kMaxText = 16U << 20;

    /// Does what a line says, which is of the table's network; else nothing has changed, and the
    /// text says why.
    tl::expected<void, std::string> apply(const FdbLine& line, const FdbContext& context);
    /// A whole file; the text says which line is wrong and why.
    [[nodiscard]] static tl::expected<FdbTable, std::string> read(std::string_view text,
                                                                  const FdbContext& context);

    void save(base::StateWriter& out) const;
    void load(base::StateReader& in, const FdbContext& context);

    /// Null if the address has no entry.
    [[nodiscard]] const TunnelEnds* find(const base::MacAddr& mac) const {
        const auto found = entries_.find(mac_word(mac));
        return found == entries_.end() ? nullptr : &found->second;
    }
    [[nodiscard]] std::size_t size() const { return entries_.size(); }
    /// False: to add an address moves all that there are.
    [[nodiscard]] bool has_room() const { return entries_.size() < entries_.bucket_count(); }
    /// A copy with room for as many again.
    [[nodiscard]] FdbTable larger() const;
    template <typename F>
    void visit(F&& f) const {
        for (const auto& [word, ends] : entries_)
            for (const TunnelEnd& end : ends) f(mac_of_word(word), end);
    }

private:
    tl::expected<void, std::string> add(const FdbLine& line, const TunnelEnd& end);
    tl::expected<void, std::string> remove(const FdbLine& line, const FdbContext& context);

    // Its load factor is 1, which has_room() takes for granted.
    std::unordered_map<std::uint64_t, TunnelEnds, base::KeyedHash> entries_;
};

}  // namespace openmana::fabric
