// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "fabric/xdp_opener.h"
#include "manad/account.h"
#include "manad/options.h"

namespace openmana::manad {

/// A process that keeps the rights to open interfaces, so that one which went away and came back
/// can be had again by a manad that has none. It opens those interfaces that the options name, and
/// does nothing else; it ends with manad.
class XdpKeeper final : public fabric::XdpOpener {
public:
    /// Before manad gives up rights, and has threads. It becomes that user too.
    static base::Result<std::shared_ptr<XdpKeeper>> start(std::vector<std::string> interfaces,
                                                          const std::optional<Account>& account);
    /// If an uplink needs one, all of them have it.
    static base::Result<void> give(Options& options);
    base::Result<fabric::XdpHandles> open(const fabric::XdpRequest& request) override;

private:
    explicit XdpKeeper(base::UniqueFd socket) : socket_(std::move(socket)) {}
    /// The same text, for as long as this lives.
    const char* keep_locked(std::string text) {
        return texts_.insert(std::move(text)).first->c_str();
    }

    const base::UniqueFd socket_;
    std::mutex mutex_;  // one asks at a time; protects what follows
    std::uint32_t asked_ = 0;
    std::set<std::string> texts_;
};

}  // namespace openmana::manad
