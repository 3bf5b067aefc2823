// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "base/unix_socket.h"
#include "manad/network_options.h"

namespace openmana::manad {

/// A user of this system and the group that goes with it.
struct Account {
    uid_t uid = 0;
    gid_t gid = 0;
    bool listed = true;  ///< in the system's list of users, which knows its other groups
};

/// "USER[:GROUP]", by name or number. Without GROUP it is that of the user, so a number that the
/// system does not know needs one.
[[nodiscard]] Parsed<Account> parse_account(const std::string& text);
/// From now on names that nobody asked for before are not known any more: to look one up the C
/// library may load code and ask other programs, which manad does not once it is ready. For the
/// main thread, as all of these.
void know_no_more_accounts();

/// "USER:GROUP:MODE" of a socket, each of which may be empty. Without MODE the group may connect
/// too if there is one, else the owner alone.
[[nodiscard]] Parsed<base::SocketAccess> parse_access(const std::string& text);

}  // namespace openmana::manad
