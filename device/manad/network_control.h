// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/wall_time.h"
#include "fabric/capture.h"
#include "fabric/flow_log.h"
#include "manad/metrics_text.h"
#include "manad/network_options.h"
#include "manad/networks.h"
#include "manad/nic_server.h"
#include "manad/options.h"
#include "manad/take_over.h"
#include "manad/uplink_server.h"

namespace openmana::manad {

/// Uplinks of the options that another process had go on with what it has handed over.
void give_uplinks(Options& options, HandedOver& handed);

/// The host's hand on the networks of a daemon: captures, faults and policies of its NICs, and the
/// uplinks. Lives on the daemon's loop; outlives the threads of the NICs, but not the NICs.
///
/// Files that NICs write are opened here, but written and closed by the threads of NICs: the disk
/// may take its time.
class NetworkControl {
public:
    NetworkControl(base::EventLoop& loop, Networks& networks,
                   const std::vector<std::unique_ptr<NicServer>>& nics);
    ~NetworkControl();

    /// Sets up what the command line asks for, before any thread runs. `subject` gets what the
    /// error is about.
    /// `handed`: what another process had, besides the options.
    base::Result<void> set_up(const Options& options, std::string& subject,
                              HandedOver* handed = nullptr);
    base::Result<void> start();
    void stop();
    /// Those of the uplinks.
    [[nodiscard]] std::vector<std::shared_ptr<LoopThread>> threads() const;
    /// The network of a NIC that is about to come, which is made if it is not there. An error says
    /// why it cannot be.
    base::Result<fabric::Switch*> network_for(const std::string& name);
    /// Lets go of what was set for a NIC that has left, which its thread then does, too.
    void forget(NicServer& nic);
    /// Tells uplinks of a network of a NIC that came.
    void expect(const std::string& network, const base::MacAddr& mac);
    /// And of one that has left.
    void expect_no_more(const std::string& network, const base::MacAddr& mac);
    /// Before the NIC's thread runs. `subject` gets what the error is about.
    base::Result<void> set_up_policy(const PolicyOptions& policy, std::string& subject);
    /// Policy and faults of the NIC are what these options say then. True if they were others; the
    /// error is for the one who asked.
    Parsed<bool> bring_to(NicServer& nic, const Options& options);
    /// Figures of the uplinks.
    void add_metrics(MetricsText& text) const;
    /// Whether an uplink is served by that thread.
    [[nodiscard]] bool serves_on(const LoopThread& thread) const;
    /// The NIC of that name; null if there is none.
    [[nodiscard]] NicServer* find(const std::string& name) const;

    /// What keeps this from going on in another process, in words for who has asked; nothing if
    /// nothing does.
    [[nodiscard]] std::optional<std::string> find_bond() const;
    /// All that another process goes on with, but for the NICs themselves: it is given to `add`, by
    /// kind and name. While all threads rest.
    using AddParcel =
        std::function<void(const char* kind, const std::string& name, base::StateWriter state)>;
    void save(const AddParcel& add);
    /// What was set for a NIC, in the words of the options.
    struct Wishes {
        std::string policy;
        std::array<std::string, fabric::kDirections> faults;
        std::string flaps;
        std::string flow_log;  ///< the name of its parcel
    };
    [[nodiscard]] Wishes wishes_of(NicServer& nic) const;

    /// Answers the requests `capture`, `fault`, `policy`, `rekey`, `fdb` and `uplinks`; nothing
    /// for others.
    std::optional<nlohmann::json> handle(const std::string& command, const nlohmann::json& request);

private:
    [[nodiscard]] std::shared_ptr<LoopThread> only_nic_of(const std::string& network,
                                                          const Options& options) const;
    /// What is set for one NIC, besides what the NIC itself knows.
    struct Settings {
        std::shared_ptr<fabric::Capture> capture;
        std::array<std::string, fabric::kDirections> faults;
        std::string flaps;
        std::string policy;
        std::shared_ptr<fabric::FlowFile> flow_file;
    };
    Parsed<bool> bring_policy_to(NicServer& nic, const Options& options);
    Parsed<bool> bring_faults_to(NicServer& nic, const Options& options);
    // These give what came of the NIC's call: no answer, if they give an error.
    base::Result<void> set_faults(NicServer& nic, const FaultOptions& options);
    base::Result<void> clear_faults(NicServer& nic);
    base::Result<void> set_policy(NicServer& nic, const PolicyOptions& options,
                                  std::shared_ptr<fabric::FlowFile> file);
    base::Result<void> clear_policy(NicServer& nic);
    base::Result<void> set_up_everything(const Options& options, HandedOver* handed);
    base::Result<void> take_flow_files(HandedOver& handed, std::string& subject);
    base::Result<void> go_on(HandedOver& handed, std::string& subject);
    base::Result<std::shared_ptr<fabric::FlowFile>> flow_file(const std::string& path);
    [[nodiscard]] std::vector<fabric::FlowFile*> flow_files() const;
    nlohmann::json start_capture(NicServer& nic, const std::string& file);
    nlohmann::json stop_capture(NicServer& nic);
    nlohmann::json capture(NicServer& nic, const std::string& action,
                           const nlohmann::json& request);
    nlohmann::json fault(NicServer& nic, const std::string& action, const nlohmann::json& request);
    nlohmann::json policy(NicServer& nic, const std::string& action, const nlohmann::json& request);
    [[nodiscard]] nlohmann::json show(const std::string& command) const;
    [[nodiscard]] nlohmann::json uplinks() const;
    nlohmann::json rekey(const std::string& name);
    /// What a thread was asked to write out.
    struct Flush {
        LoopThread& thread;
        Answer<void> answer;
    };
    std::vector<Flush> ask_to_flush();
    void flush();
    void watch_captures();

    base::EventLoop& loop_;
    Networks& networks_;
    const std::vector<std::unique_ptr<NicServer>>& nics_;
    const base::WallTime wall_;
    std::shared_ptr<fabric::Capture> everything_;  // --pcap
    std::unordered_map<NicServer*, Settings> settings_;
    /// Of another process, by NIC, until its policy is set.
    std::map<std::string, std::shared_ptr<fabric::FlowFile>> handed_flow_files_;
    std::shared_ptr<LoopThread> files_;  // reads tables of VXLAN networks, if any is in a file
    std::vector<std::unique_ptr<UplinkServer>> uplinks_;
    base::Timer flush_timer_;
};

}  // namespace openmana::manad
