// SPDX-License-Identifier: Apache-2.0
// manactl: asks a running manad through its control socket, and prints the answer as a table or as
// JSON.
#include <grp.h>
#include <pwd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "manactl/control_client.h"
#include "manactl/tables.h"
#include "manactl/upgrade.h"
#include "manactl/watch.h"

namespace {

using namespace openmana::manactl;

/// The commands about captures, faults and policies: each is start or set, stop or clear, and show.
class NetworkCommands {
public:
    explicit NetworkCommands(CLI::App& app) {
        capture_ =
            app.add_subcommand("capture", "Write the frames of a NIC to a file, for Wireshark");
        add(*capture_, "start", "Start to write")->add_option("file", file_, "File")->required();
        add(*capture_, "stop", "End it, and say how many frames there were");
        fault_ = app.add_subcommand("fault", "Make the link of a NIC a bad one");
        add_options(
            *add(*fault_, "set",
                 "Set faults: dir=tx|rx|both,loss=1%,dup=..,reorder=..,corrupt=..,delay=10us,"
                 "jitter=..,flap=UP/DOWN,seed=N"));
        add(*fault_, "clear", "Take all faults away");
        policy_ = app.add_subcommand("policy", "What a NIC may do, and how fast");
        add_options(*add(*policy_, "set", "Replace the policy: keys as of manad --policy"));
        add(*policy_, "clear", "Allow everything");
        for (CLI::App* command : {capture_, fault_, policy_}) {
            command->require_subcommand(1);
            command->add_subcommand("show", "What is set, for all NICs");
        }
        nics_ = app.add_subcommand("nic", "NICs that come and go while others are at work");
        nics_->require_subcommand(1);
        CLI::App* const made = nics_->add_subcommand("add", "Make a NIC: keys as of manad --nic");
        add_options(*made);
        made->add_option("--policy", policy_text_,
                         "What it may do, from its first frame on: keys "
                         "as of manad --policy, but nic=");
        add(*nics_, "remove", "End a NIC that has no client")
            ->add_flag("--force", force_, "One that has a client, too: its guest loses it");
        reload_ = app.add_subcommand(
            "reload", "Read the configuration anew: NICs, policies, faults, level of the log");
        uplinks_ = app.add_subcommand("uplinks", "Uplinks and their counters");
        fdb_ = app.add_subcommand("fdb", "Which ends of VXLAN tunnels have which MAC addresses");
        fdb_->add_option(
            "words", words_,
            "show, or as bridge fdb has it: add|append|replace|del MAC dst IP [port P] "
            "[vni N] [src_vni N] [dynamic] [dev UPLINK]");
        rekey_ = app.add_subcommand("rekey",
                                    "Read the key files of encrypted uplinks, and begin new keys");
        rekey_->add_option("uplink", uplink_, "Only this one, by its name in `uplinks`");
    }
    [[nodiscard]] bool parsed() const { return command() != nullptr; }
    [[nodiscard]] json request() const {
        json request = {{"command", command()->get_name()}};
        if (command() == uplinks_ || command() == reload_) return request;
        if (command() == fdb_) {
            std::string line;
            for (const std::string& word : words_) line += (line.empty() ? "" : " ") + word;
            if (!line.empty() && line != "show" && line != "list") request["line"] = line;
            return request;
        }
        if (command() == rekey_) {
            if (!uplink_.empty()) request["uplink"] = uplink_;
            return request;
        }
        const std::string action = command()->get_subcommands().front()->get_name();
        request["action"] = action;
        if (!nic_.empty()) request["nic"] = nic_;
        // A relative path is one of this program's directory, not of manad's.
        if (!file_.empty()) request["file"] = std::filesystem::absolute(file_).string();
        if (force_) request["force"] = true;
        if (action == "add") {
            request["options"] = with_ids(with_absolute(joined(options_), "socket="));
            if (!policy_text_.empty()) request["policy"] = with_absolute(policy_text_, "flow-log=");
        }
        if (action == "set") {
            const std::string text = joined(options_);
            request["options"] = command() == policy_ ? with_absolute(text, "flow-log=") : text;
        }
        return request;
    }
    void print(const json& reply) const {
        if (command() == uplinks_) {
            for (const auto& uplink : reply["uplinks"]) {
                std::printf("%s  network %s  %s\n", cell(uplink["uplink"]).c_str(),
                            cell(uplink.value("network", json())).c_str(),
                            uplink["connected"] == true ? "connected" : "not connected");
                for (const auto& end : uplink.value("failing", json::array()))
                    std::printf("    cannot send to %s: %s\n", cell(end["end"]).c_str(),
                                cell(end["reason"]).c_str());
                print_counters(uplink["counters"], true);
            }
        } else if (command() == reload_) {
            std::printf("%s\n", cell(reply["done"]).c_str());
        } else if (command() == fdb_) {
            print_fdb(reply);
        } else if (reply.contains("rows") && command() == capture_) {
            print_table({"nic", "frames", "lost", "file", "error"}, reply["rows"]);
        } else if (reply.contains("rows")) {
            const bool directions = command() == fault_;
            print_table(directions ? std::vector<std::string>{"nic", "dir", "options"}
                                   : std::vector<std::string>{"nic", "options", "lost", "error"},
                        reply["rows"]);
        } else if (reply.contains("frames")) {
            std::printf("%s frames in %s\n", reply["frames"].dump().c_str(),
                        reply["file"].get<std::string>().c_str());
        }
    }

private:
    /// As `bridge fdb show` does, so that it can be a table's file.
    static void print_fdb(const json& reply) {
        for (const auto& row : reply.value("rows", json::array())) {
            std::string line =
                cell(row["mac"]) + " dev " + cell(row["dev"]) + " dst " + cell(row["dst"]);
            line += " port " + cell(row["port"]);
            if (row["vni"] != row["src_vni"]) line += " vni " + cell(row["vni"]);
            line += " src_vni " + cell(row["src_vni"]) + " self";
            const std::string from = cell(row["from"]);
            const char* const state = from == "learned" ? ""
                                      : from == "file"  ? " extern_learn"
                                                        : " permanent";
            std::printf("%s%s\n", line.c_str(), state);
        }
        if (const auto left_out = reply.value("left_out", std::uint64_t{0}); left_out > 0)
            std::fprintf(stderr, "manactl: %s more entries\n", std::to_string(left_out).c_str());
    }
    static std::string joined(const std::vector<std::string>& parts) {
        std::string text;
        for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
        return text;
    }
    /// Where the value of a key is in "key=value,key=value"; nothing if it is not there.
    static std::optional<std::pair<std::size_t, std::size_t>> value_of(const std::string& text,
                                                                       const std::string& key) {
        std::size_t at = text.starts_with(key) ? 0 : text.find("," + key);
        if (at == std::string::npos) return std::nullopt;
        at = text.find('=', at) + 1;
        return std::pair(at, std::min(text.find(',', at), text.size()) - at);
    }
    /// The path that a key names is one of this program's directory, too.
    static std::string with_absolute(std::string text, const std::string& key) {
        const auto place = value_of(text, key);
        if (!place || place->second == 0) return text;
        const std::string file = text.substr(place->first, place->second);
        return text.replace(place->first, place->second, std::filesystem::absolute(file).string());
    }
    /// manad looks no names up once it runs.
    static std::string with_ids(std::string text) {
        const auto place = value_of(text, "access=");
        if (!place) return text;
        std::string access = text.substr(place->first, place->second);
        const std::size_t colon = access.find(':');
        if (colon == std::string::npos) return text;
        const std::size_t end = std::min(access.find(':', colon + 1), access.size());
        const std::string group = access.substr(colon + 1, end - colon - 1);
        if (const ::group* const entry = ::getgrnam(group.c_str()))
            access.replace(colon + 1, group.size(), std::to_string(entry->gr_gid));
        if (const passwd* const entry = ::getpwnam(access.substr(0, colon).c_str()))
            access.replace(0, colon, std::to_string(entry->pw_uid));
        return text.replace(place->first, place->second, access);
    }
    CLI::App* add(CLI::App& command, const char* action, const char* help) {
        CLI::App* const added = command.add_subcommand(action, help);
        added->add_option("nic", nic_, "NIC")->required();
        return added;
    }
    void add_options(CLI::App& command) {
        command.add_option("options", options_, "key=value,...")->required();
    }
    [[nodiscard]] const CLI::App* command() const {
        for (const CLI::App* command :
             {nics_, reload_, capture_, fault_, policy_, uplinks_, fdb_, rekey_})
            if (command->parsed()) return command;
        return nullptr;
    }

    CLI::App* nics_;
    CLI::App* reload_;
    CLI::App* capture_;
    CLI::App* fault_;
    CLI::App* policy_;
    CLI::App* uplinks_;
    CLI::App* fdb_;
    CLI::App* rekey_;
    std::vector<std::string> words_;
    std::string nic_;
    std::string uplink_;
    std::string file_;
    std::vector<std::string> options_;
    std::string policy_text_;
    bool force_ = false;
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"manactl: look at a running manad and change its network"};
    app.set_version_flag("--version", "manactl " OPENMANA_VERSION);
    app.require_subcommand(1);
    app.fallthrough();
    std::string control;
    bool as_json = false;
    app.add_option("--control", control, "Control socket of manad")
        ->envname("MANAD_CONTROL")
        ->required();
    app.add_flag("--json", as_json, "Print the answer as JSON");

    std::string nic;
    bool qps = false;
    bool all = false;
    std::string link_state;
    auto* status = app.add_subcommand("status", "One line for each NIC");
    auto* stats = app.add_subcommand("stats", "Counters of each NIC, or of each of its QPs");
    stats->add_option("nic", nic, "Only this NIC");
    stats->add_flag("--qp", qps, "Figures of each QP");
    stats->add_flag("--all", all, "Counters that are zero too");
    Watch watch;
    for (CLI::App* const command : {status, stats}) {
        command
            ->add_option(
                "--watch", watch.seconds,
                "Again and again, with what happens in a second; SECONDS between two looks")
            ->expected(0, 1)
            ->default_str("1")
            ->type_name("SECONDS")
            ->check(CLI::Range(0.01, 86400.0));
        command->add_option("--count", watch.count, "Looks until --watch ends")
            ->needs("--watch")
            ->check(CLI::PositiveNumber);
    }
    auto* link = app.add_subcommand("link", "Take the link of a NIC up or down");
    link->add_option("nic", nic, "NIC")->required();
    link->add_option("state", link_state, "up or down")
        ->required()
        ->check(CLI::IsMember({"up", "down"}));
    auto* reset =
        app.add_subcommand("reset", "Reset the function of a NIC, as a function-level reset does");
    reset->add_option("nic", nic, "NIC")->required();
    Upgrade upgrade;
    auto* upgrading = app.add_subcommand(
        "upgrade", "Have a new manad go on in the place of this one; guests do not notice");
    upgrading->add_option("program", upgrade.program,
                          "What this process starts, for a manad that is no service; without it "
                          "manad starts its own program anew");
    upgrading->add_flag("--last", upgrade.last, "Only say what the last one came to");
    upgrading->add_option("--timeout", upgrade.patience, "Seconds to wait for it")
        ->default_str("30")
        ->check(CLI::Range(0.1, 3600.0));
    NetworkCommands network(app);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        std::fprintf(stderr, "manactl: %s\n", error.what());
        return 2;
    }

    if (upgrading->parsed()) {
        upgrade.control = control;
        upgrade.as_json = as_json;
        upgrade.run();
        return 0;
    }
    json request = {{"command", status->parsed()  ? "status"
                                : reset->parsed() ? "reset"
                                : link->parsed()  ? "link"
                                                  : "stats"}};
    if (!nic.empty()) request["nic"] = nic;
    if (link->parsed()) request["state"] = link_state;
    if (stats->parsed() && qps) request["command"] = "qps";
    if (network.parsed()) request = network.request();
    if (watch.seconds > 0) {
        if (qps) die("--watch shows no figures of QPs");
        watch.control = control;
        watch.as_json = as_json;
        request["command"] = "stats";
        watch.run(request, status->parsed());
        return 0;
    }
    const json reply = ask(control, request);
    if (as_json) {
        std::printf("%s\n", reply.dump(2).c_str());
    } else if (network.parsed()) {
        network.print(reply);
    } else if (status->parsed()) {
        print_status(reply["nics"]);
    } else if (stats->parsed() && qps) {
        print_table({"nic", "qpn", "type", "state", "path", "remote_qpn", "tx_messages", "tx_bytes",
                     "rx_messages", "rx_bytes", "retries", "rnr_retries", "errors", "rate_mbps"},
                    reply["qps"]);
        if (const auto all = reply.value("all", std::size_t{0}); all > reply["qps"].size())
            std::fprintf(stderr, "manactl: %zu of %zu queue pairs\n", reply["qps"].size(), all);
        for (const auto& text : reply.value("silent", json::array()))
            std::fprintf(stderr, "manactl: %s\n", cell(text).c_str());
    } else if (stats->parsed()) {
        print_stats(reply, all);
    }
    return 0;
}
