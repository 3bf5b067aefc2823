// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parcel.h"
#include "base/result.h"

namespace openmana::manad {

/// What a daemon hands over to the process that takes its place (docs/manad.md): a first parcel
/// that says what there is, with the descriptors of its listening sockets and its uplinks, and one
/// for each NIC, in the order of the first.
struct HandedOver {
    static constexpr int kFormat = 1;
    /// Between two steps of the other process.
    static constexpr base::Duration kPatience = std::chrono::seconds(5);

    struct Nic {
        std::string name;
        std::string options;  ///< as it was made
        bool came_later = false;
        std::string policy;
        std::vector<std::string> faults;  ///< as --fault has them
        base::Parcel state;
    };
    base::UniqueFd control;                         ///< that listens
    std::map<std::string, base::UniqueFd> metrics;  ///< that listen, by the text of the option
    std::map<std::string, base::UniqueFd> uplinks;  ///< by name
    std::vector<Nic> nics;
};

/// The side of the process that comes. While it lives the other one waits, and goes on if this ends
/// without finish().
class TakeOver {
public:
    /// Asks the daemon with this control socket for all that it has. The error's text is for who
    /// has started this process; `why` has what the other one said, if it has refused.
    static base::Result<std::unique_ptr<TakeOver>> ask(const std::string& control,
                                                       std::string& why);

    [[nodiscard]] HandedOver& handed() { return handed_; }
    /// The NIC of that name; null if none was handed over.
    [[nodiscard]] HandedOver::Nic* nic(const std::string& name);
    /// Tells the other process to end, and waits until it has: then all is ours. Once.
    base::Result<void> finish();

private:
    explicit TakeOver(base::UniqueFd connection) : connection_(std::move(connection)) {}
    base::Result<void> receive();

    base::UniqueFd connection_;
    HandedOver handed_;
};

/// The side of the process that goes, on the connection of who has asked: the parcels, and then the
/// wait for what became of them. True if the other one has all of it and goes on in our place;
/// false if it has gone without.
base::Result<bool> hand_over(int connection, const nlohmann::json& head,
                             const std::vector<int>& descriptors,
                             const std::vector<std::vector<std::byte>>& states,
                             const std::vector<std::vector<int>>& state_descriptors);

}  // namespace openmana::manad
