// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parcel.h"
#include "base/result.h"
#include "base/state.h"
#include "manad/warm_heap.h"

namespace openmana::manad {

/// What a daemon hands over to the process that takes its place (docs/manad.md): a first parcel
/// that says what there is, with the descriptors of its listening sockets and its uplinks, and one
/// for each NIC, in the order of the first.
struct HandedOver {
    static constexpr int kFormat = 2;
    /// Between two steps of the other process.
    static constexpr base::Duration kPatience = std::chrono::seconds(5);

    struct Nic {
        std::string name;
        std::string options;  ///< as it was made
        bool came_later = false;
        base::TimePoint paused{};  ///< by the clock of this host
        std::string policy;
        std::string transmit_faults, receive_faults, flaps;  ///< as --fault has them
        std::string flow_log;                                ///< the name of its parcel
        base::Parcel state;
    };
    pid_t pid = 0;                                  ///< who hands over
    base::UniqueFd control;                         ///< that listens
    std::map<std::string, base::UniqueFd> metrics;  ///< that listen, by the text of the option
    /// States of the rest, by kind and name: uplinks, ends of tunnels, captures, flow logs, and
    /// what the stages of a NIC have seen.
    std::map<std::pair<std::string, std::string>, std::shared_ptr<base::Parcel>> parcels;
    std::vector<Nic> nics;
    /// Takes one out; null if there is none.
    std::shared_ptr<base::Parcel> take(const std::string& kind, const std::string& name) {
        const auto node = parcels.extract({kind, name});
        return node ? node.mapped() : nullptr;
    }
};

/// The side of the process that comes. While it lives the other one waits, and goes on if this ends
/// without finish(). All memory that it will take it has before it asks: others wait from then on.
class TakeOver {
public:
    /// Asks the daemon with this control socket for all that it has. The error's text is for who
    /// has started this process; `why` has what the other one said, if it has refused. `main`: the
    /// process that a service manager is to know as the one that goes on.
    static base::Result<std::unique_ptr<TakeOver>> ask(const std::string& control, pid_t main,
                                                       std::string& why);

    [[nodiscard]] HandedOver& handed() { return handed_; }
    /// The NIC of that name with its state, which comes while the other process still writes those
    /// behind it; null if none was handed over.
    base::Result<HandedOver::Nic*> nic(const std::string& name);
    /// Tells the other process to end, and waits until it does nothing more: then all is ours.
    /// Once.
    base::Result<void> finish();
    /// Tells it why that does not come to pass, instead.
    void refuse(const std::string& why);

private:
    explicit TakeOver(base::UniqueFd connection) : connection_(std::move(connection)) {}
    base::Result<void> receive();

    base::UniqueFd connection_;
    base::UniqueFd process_;  // the other one, to see whether it has ended
    HandedOver handed_;
    std::size_t received_ = 0;  // states of NICs
    std::optional<WarmHeap> heap_;
};

/// The side of the process that goes, on the connection of who has asked. Whatever fails: nobody
/// else goes on.
class HandOver {
public:
    explicit HandOver(int connection) : connection_(connection) {}
    /// What comes first, and the descriptors that it names.
    base::Result<void> begin(const nlohmann::json& head, std::span<const int> descriptors);
    base::Result<void> send(base::StateWriter state);
    /// Waits until the other one has said that it has all.
    base::Result<void> wait();
    /// What it said of why it does not go on, after an error; empty if it did not.
    [[nodiscard]] std::string why();
    /// This process does nothing more: the other one goes on.
    void end();

private:
    const int connection_;
    bool refused_ = false;
};

}  // namespace openmana::manad
