// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/frame.h"
#include "roce/address.h"

namespace openmana::rnic {

/// The addresses that an adapter was given. Changed on the executor under an exclusion of the gate;
/// visitors read them. Answers are statuses of the hardware channel.
class Addresses {
public:
    /// `own`: the MAC address that it has without being given it.
    explicit Addresses(const base::MacAddr& own) : own_(own) {}

    /// The same address comes once for each interface that has it.
    std::uint32_t add(const roce::Gid& gid);
    std::uint32_t remove(const roce::Gid& gid);
    std::uint32_t add(const base::MacAddr& mac);
    std::uint32_t remove(const base::MacAddr& mac);
    void clear();
    [[nodiscard]] bool owns(const roce::Gid& gid) const;
    [[nodiscard]] bool owns(const base::MacAddr& mac) const;

private:
    struct Entry {
        roce::Gid gid;
        std::uint32_t uses;
    };
    const base::MacAddr own_;
    std::vector<Entry> gids_;
    std::vector<base::MacAddr> macs_;
};

}  // namespace openmana::rnic
