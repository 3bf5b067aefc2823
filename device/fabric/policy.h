// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/frame.h"
#include "fabric/acl.h"
#include "fabric/frame_headers.h"
#include "fabric/shaper.h"
#include "rnic/network.h"

namespace openmana::fabric {

/// What the host allows a NIC. The default allows everything, but for other MAC addresses than the
/// NIC's own.
struct PolicyConfig {
    bool check_mac = false;           ///< nor does any frame have others than the guest may have
    bool any_mac = false;             ///< the guest may have each MAC address that nobody else has
    std::vector<base::MacAddr> macs;  ///< it has these besides its own, and no other NIC has
    std::vector<Prefix> addresses;    ///< and from these IP addresses only, unless empty
    Acl acl;
    ShaperConfig shaper;
    bool shape[kDirections] = {true,
                               false};  ///< which directions the rates are for, each by itself
    std::string flow_log;               ///< file; empty: none
    base::Duration flow_idle = std::chrono::seconds(60);

    [[nodiscard]] bool filters() const {
        return check_mac || any_mac || !macs.empty() || !addresses.empty() || !acl.empty() ||
               !flow_log.empty();
    }
    [[nodiscard]] bool shapes() const {
        return shaper.limit != 0 || shaper.classes[0].limit != 0 || shaper.classes[1].limit != 0;
    }
};

#define OM_POLICY_COUNTERS(X)                                             \
    X(spoofed_mac, "fabric.policy.spoofed_mac",                           \
      "frames dropped: from a MAC address that the NIC may not have")     \
    X(spoofed_ip, "fabric.policy.spoofed_ip",                             \
      "frames dropped: from an IP address that the NIC may not use")      \
    X(denied, "fabric.policy.denied", "frames dropped by an access rule") \
    X(malformed, "fabric.policy.malformed",                               \
      "frames dropped: no rule can be applied to such headers")

OM_COUNTERS(PolicyCounters, OM_POLICY_COUNTERS);

/// The IPv6 link-local address that follows from a MAC address (RFC 4291 2.5.1), which is the NIC's
/// own whatever anybody says.
[[nodiscard]] roce::Gid own_link_local(const base::MacAddr& mac);

/// Spoof protection and access rules of one NIC. No state but its counters. Does not change.
class Filter {
public:
    Filter(const base::MacAddr& mac, const PolicyConfig& config, PolicyCounters& counters)
        : mac_(mac),
          check_mac_(config.check_mac),
          any_mac_(config.any_mac),
          macs_(config.macs),
          addresses_(config.addresses),
          acl_(config.acl),
          counters_(counters) {}
    /// True if the frame may pass; counts if not.
    [[nodiscard]] bool passes(Direction direction, const FrameHeaders& headers,
                              std::span<const std::byte> frame) const;
    /// Whether the guest may have the MAC address, if nobody else has. Any thread.
    [[nodiscard]] bool may_have(const base::MacAddr& mac) const;
    [[nodiscard]] const std::vector<base::MacAddr>& macs() const { return macs_; }
    /// Whether it names the addresses of the NIC, and this one among them.
    [[nodiscard]] bool names_addresses() const { return !addresses_.empty(); }
    [[nodiscard]] bool grants(const roce::Gid& address) const {
        return may_use(address, roce::is_ipv4(address));
    }
    /// True if all RDMA packets of the NIC from and to these addresses would pass, both ways. The
    /// source is the NIC's own end. Counts nothing. Any thread.
    [[nodiscard]] bool passes_rdma(const rnic::Ends& ends) const;

private:
    [[nodiscard]] bool owns_source(const FrameHeaders& headers,
                                   std::span<const std::byte> frame) const;
    [[nodiscard]] bool may_use(const roce::Gid& address, bool ipv4) const;

    const base::MacAddr mac_;
    const bool check_mac_;
    const bool any_mac_;
    const std::vector<base::MacAddr> macs_;
    const std::vector<Prefix> addresses_;
    const Acl acl_;
    PolicyCounters& counters_;
};

}  // namespace openmana::fabric
