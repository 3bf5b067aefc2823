// SPDX-License-Identifier: Apache-2.0
// What the host's user types or sends: the command line of manad, its configuration file, and lines
// of its control socket, against a daemon with two NICs whose threads do not run. So these stay,
// and no other comes, which would have a thread.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "fuzz.h"
#include "manad/config_file.h"
#include "manad/control.h"
#include "manad/daemon.h"
#include "manad/options.h"

using namespace openmana;

namespace {

void command_line(std::string_view text) {
    std::vector<std::string> words{"manad"};
    for (std::size_t at = 0; at <= text.size() && words.size() < 32;) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        words.emplace_back(text.substr(at, end - at));
        // An argument ends at its first NUL, as in any program.
        words.back() = words.back().c_str();
        at = end + 1;
    }
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    const auto parsed = manad::parse_options(static_cast<int>(argv.size()), argv.data());
    fuzz::require(parsed.exit || !parsed.options.nics.empty() || !parsed.options.control.empty(),
                  "no NIC and no reason to stop");
    fuzz::require(!parsed.exit || !parsed.text.empty(), "stopped without a word");
}

void configuration(std::string_view text) {
    const auto config = manad::read_config(std::string(text), "f");
    if (!config) {
        fuzz::require(config.error().starts_with("f:"), "an error without a line");
        return;
    }
    for (const manad::OptionText& nic : config->nics) (void)manad::parse_nic(nic.text, {});
    for (const manad::OptionText& uplink : config->uplinks) (void)manad::parse_uplink(uplink.text);
    for (const manad::OptionText& policy : config->policies) (void)manad::parse_policy(policy.text);
    for (const manad::OptionText& fault : config->faults) (void)manad::parse_faults(fault.text);
}

struct Served {
    Served() {
        openmana::base::set_log_level(openmana::base::LogLevel::kOff);
        char name[] = "/tmp/openmana-fuzz-XXXXXX";
        fuzz::require(::mkdtemp(name) != nullptr, "mkdtemp");
        folder = name;
        manad::Options options;
        for (const char* id : {"a", "b"}) {
            manad::NicOptions nic;
            nic.nic.name = id;
            nic.nic.mac = manad::default_mac(id);
            nic.socket = folder + "/" + id;
            options.nics.push_back(nic);
        }
        std::string subject;
        auto made = manad::Daemon::create(options, subject);
        fuzz::require(made.has_value(), "daemon");
        daemon = std::move(*made);
    }
    ~Served() {
        daemon.reset();
        std::filesystem::remove_all(folder);
    }
    std::string folder;
    std::unique_ptr<manad::Daemon> daemon;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    if ((data[0] & 1) != 0) {
        if ((data[0] & 2) != 0)
            configuration(text);
        else
            command_line(text);
        return 0;
    }
    static Served served;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const auto request = nlohmann::json::parse(text.substr(at, end - at), nullptr, false);
        if (request.is_object() && manad::text_of(request, "command") != "nic") {
            const auto reply = served.daemon->handle(request);
            fuzz::require(reply.is_object() && reply.contains("ok"), "answer without ok");
            (void)reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        }
        at = end + 1;
    }
    return 0;
}
