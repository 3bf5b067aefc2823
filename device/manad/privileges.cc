// SPDX-License-Identifier: Apache-2.0
#include "manad/privileges.h"

#include <cap-ng.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace openmana::manad {
namespace {

using base::ErrorCode;

/// Ports below it are for who has the right to them, on a system that was not told otherwise.
constexpr in_port_t kFirstFreePort = 1024;

tl::unexpected<base::Error> failed(const char* text) {
    return base::fail(ErrorCode::kIo, text, static_cast<unsigned>(errno));
}

/// Marks these, of those that the process has, as the ones that it shall keep.
void choose(const std::vector<unsigned>& capabilities) {
    std::vector<unsigned> kept;
    for (const unsigned capability : capabilities)
        if (::capng_have_capability(CAPNG_PERMITTED, capability) != 0) kept.push_back(capability);
    ::capng_clear(CAPNG_SELECT_BOTH);
    constexpr auto kUse = static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED);
    for (const unsigned capability : kept) (void)::capng_update(CAPNG_ADD, kUse, capability);
}

base::Result<void> read_capabilities() {
    errno = 0;  // libcap-ng sets it only if a system call failed
    if (::capng_get_caps_process() != 0) return failed("cannot read the capabilities");
    return {};
}

base::Result<void> become(const Account& account) {
    const auto groups = account.listed ? CAPNG_INIT_SUPP_GRP : CAPNG_DROP_SUPP_GRP;
    const auto flags = static_cast<capng_flags_t>(groups | CAPNG_CLEAR_BOUNDING);
    errno = 0;
    if (::capng_change_id(static_cast<int>(account.uid), static_cast<int>(account.gid), flags) != 0)
        return failed("cannot become the user");
    uid_t real = 0;
    uid_t effective = 0;
    uid_t saved = 0;
    if (::getresuid(&real, &effective, &saved) != 0 || real != account.uid ||
        effective != account.uid || saved != account.uid || ::setuid(0) == 0)
        return base::fail(ErrorCode::kPermission, "the rights of root are still there");
    return {};
}

}  // namespace

std::vector<unsigned> capabilities_to_start(const Options& options) {
    using Kind = fabric::UplinkConfig::Kind;
    std::vector<unsigned> needed;
    const auto need = [&](unsigned capability) {
        if (std::find(needed.begin(), needed.end(), capability) == needed.end())
            needed.push_back(capability);
    };
    const auto give_away = [&](const base::SocketAccess& access) {
        if (access.owner || access.group) need(CAP_CHOWN);
    };
    give_away(options.control_access);
    for (const NicOptions& nic : options.nics) give_away(nic.access);
    for (const fabric::UplinkConfig& uplink : options.uplinks) {
        give_away(uplink.access);
        // To find out what XDP sockets can; a process of its own makes them (XdpKeeper).
        if (uplink.kind == Kind::kXdp) need(CAP_NET_RAW);
        // A TAP device, or more buffers for UDP sockets than the system gives to all.
        if (uplink.kind != Kind::kStream && uplink.kind != Kind::kXdp) need(CAP_NET_ADMIN);
        if ((uplink.kind == Kind::kUdp || uplink.kind == Kind::kVxlan) &&
            fabric::port_of(uplink.local) < kFirstFreePort)
            need(CAP_NET_BIND_SERVICE);
    }
    return needed;
}

base::Result<void> start_as(const std::optional<Account>& account,
                            const std::vector<unsigned>& capabilities) {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("cannot rule out new rights");
    if (!account || (account->uid == ::geteuid() && account->gid == ::getegid())) return {};
    if (::geteuid() != 0)
        return base::fail(ErrorCode::kPermission, "only root can become another user");
    TRY_VOID(read_capabilities());
    choose(capabilities);
    return become(*account);
}

base::Result<void> keep_rights(const std::vector<unsigned>& capabilities) {
    TRY_VOID(read_capabilities());
    choose(capabilities);
    errno = 0;
    if (::capng_apply(CAPNG_SELECT_CAPS) != 0) return failed("cannot give up the capabilities");
    return {};
}

base::Result<void> drop_privileges() {
    const bool root = ::geteuid() == 0;
    TRY_VOID(keep_rights(root ? std::vector<unsigned>{CAP_DAC_OVERRIDE} : std::vector<unsigned>{}));
    if (root)
        OM_WARN("privileges kept: uid=0 reason=\"started as root without --user\"");
    else
        OM_INFO("privileges: uid={} gid={} capabilities=none", ::geteuid(), ::getegid());
    return {};
}

}  // namespace openmana::manad
