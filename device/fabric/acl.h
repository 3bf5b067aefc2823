// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fabric/frame_headers.h"
#include "roce/address.h"

namespace openmana::fabric {

/// A range of IPv4 or IPv6 addresses: "10.0.0.0/24", "fd00::1". The two families never match each
/// other.
struct Prefix {
    roce::Gid address{};
    std::uint8_t bits = 128;  ///< of the GID: 96 more than written for IPv4
    bool ipv4 = false;

    [[nodiscard]] static base::Result<Prefix> parse(std::string_view text);
    [[nodiscard]] bool contains(const roce::Gid& gid, bool gid_is_ipv4) const;
};

/// As Prefix::parse() reads it.
[[nodiscard]] std::string address_text(const roce::Gid& address, bool ipv4);

/// Both ends included.
struct PortRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0xffff;
    [[nodiscard]] bool contains(std::uint16_t port) const { return port >= first && port <= last; }
};

/// One line of an access list:
///
///     allow|deny [tx|rx|both] [any|arp|ip|tcp|udp|icmp|rdma|NUMBER]
///         [from ADDRESS[/LENGTH]|any [port N[-M]]] [to ADDRESS[/LENGTH]|any [port N[-M]]]
///
/// `tx` is what the guest sends; `icmp` is that of both IP versions, `rdma` RoCEv2, and `udp` all
/// UDP, RoCEv2 included. Left out, a part means "any" and both directions. A rule that names an
/// address or a port matches IP only.
struct AclRule {
    enum class Subject : std::uint8_t { kAny, kArp, kIp, kIcmp, kRdma, kProtocol };

    bool allow = true;
    bool directions[kDirections] = {true, true};
    Subject subject = Subject::kAny;
    std::uint8_t protocol = 0;  ///< kProtocol
    std::optional<Prefix> source, destination;
    std::optional<PortRange> source_ports, destination_ports;

    [[nodiscard]] static base::Result<AclRule> parse(std::string_view text);
    /// Later fragments have no ports: a rule with ports that denies takes them for a match, one
    /// that allows does not. A rule that denies RDMA also stops the first fragment of such a
    /// packet, without which nobody can put it together.
    [[nodiscard]] bool matches(Direction direction, const FrameHeaders& headers) const;
    /// False if two packets of one RDMA connection may differ in whether they match: by the port
    /// that they come from, which is their sender's choice.
    [[nodiscard]] bool decides_by_addresses() const {
        return !source_ports || (subject == Subject::kProtocol && protocol != kProtocolUdp);
    }
};

/// Rules in order; the first that matches decides, and without one the frame passes.
class Acl {
public:
    /// Rules separated by ';'.
    [[nodiscard]] static base::Result<Acl> parse(std::string_view text);
    [[nodiscard]] bool empty() const { return rules_.empty(); }
    [[nodiscard]] const std::vector<AclRule>& rules() const { return rules_; }
    [[nodiscard]] bool allows(Direction direction, const FrameHeaders& headers) const;
    /// True if what becomes of an RDMA packet follows from the addresses of its ends.
    [[nodiscard]] bool decides_by_addresses() const {
        return std::ranges::all_of(rules_, &AclRule::decides_by_addresses);
    }

private:
    std::vector<AclRule> rules_;
};

}  // namespace openmana::fabric
