// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/fd.h"

namespace openmana::manad {

/// Tells a service manager how it is (sd_notify(3)), if there is one. Its socket is found before
/// the sandbox is entered, in which none could be made; libsystemd makes one for each notice.
class ServiceNotice {
public:
    /// By NOTIFY_SOCKET, which the environment has or has not.
    ServiceNotice();
    [[nodiscard]] bool wanted() const { return static_cast<bool>(socket_); }
    /// "READY=1". Waits for nobody: a notice that does not get through is lost. From any thread.
    void tell(std::string_view state) const;

private:
    base::UniqueFd socket_;  // connected
};

}  // namespace openmana::manad
