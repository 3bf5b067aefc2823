// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "manactl/control_client.h"

namespace openmana::manactl {

/// `upgrade`: has another manad go on in the place of the one at the control socket, waits until it
/// does, and says how long each guest was not served. Ends the program if that comes to nothing.
struct Upgrade {
    std::string control;
    std::string program;  ///< what is started, by this process; empty: manad's own, by itself
    double patience = 30;
    bool last = false;  ///< nothing is done: only says what the last one came to
    bool as_json = false;

    void run() const;

private:
    void print(const json& now) const;
};

}  // namespace openmana::manactl
