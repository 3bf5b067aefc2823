// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/switch.h"
#include "manad/options.h"

namespace openmana::manad {

/// Their names, in the order in which the options name them first.
[[nodiscard]] std::vector<std::string> network_names(const Options& options);

/// The networks of a daemon: each is a switch of its own, with its own NICs, uplinks, addresses and
/// claims to them. Nothing leads from one to another, so the same addresses may be in several. None
/// goes; outlives the NICs and uplinks. Of the main thread.
class Networks {
public:
    struct Network {
        std::string name;
        std::unique_ptr<fabric::Switch> network;
    };
    Networks(const base::Clock& clock, const Options& options);
    /// One that is there.
    [[nodiscard]] fabric::Switch& of(const std::string& name) const;
    /// Null if there is none of that name.
    [[nodiscard]] fabric::Switch* find(const std::string& name) const;
    /// One that is not there yet.
    fabric::Switch& add(const std::string& name);
    [[nodiscard]] const std::vector<Network>& all() const { return all_; }

private:
    const base::Clock& clock_;
    std::vector<Network> all_;
};

}  // namespace openmana::manad
