// SPDX-License-Identifier: Apache-2.0
#include "fabric/acl.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

namespace openmana::fabric {
namespace {

using base::ErrorCode;
using base::fail;

constexpr std::size_t kMaxRules = 1024;

std::optional<unsigned> number(std::string_view text, unsigned highest) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value > highest)
        return std::nullopt;
    return value;
}

/// The words of a rule, one after the other.
class Words {
public:
    explicit Words(std::string_view text) : text_(text) { skip(); }
    [[nodiscard]] std::string_view peek() const { return text_.substr(0, text_.find(' ')); }
    std::string_view take() {
        const std::string_view word = peek();
        text_.remove_prefix(word.size());
        skip();
        return word;
    }
    /// Takes the word if it is this one.
    bool take(std::string_view word) {
        if (peek() != word || word.empty()) return false;
        take();
        return true;
    }
    [[nodiscard]] bool done() const { return text_.empty(); }

private:
    void skip() { text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size())); }
    std::string_view text_;
};

base::Result<PortRange> parse_ports(std::string_view text) {
    PortRange range;
    const std::size_t dash = text.find('-');
    const auto first = number(text.substr(0, dash), 0xffff);
    const auto last =
        dash == std::string_view::npos ? first : number(text.substr(dash + 1), 0xffff);
    if (!first || !last || *first > *last)
        return fail(ErrorCode::kInvalidArgument, "'port' needs N or N-M, at most 65535");
    range.first = static_cast<std::uint16_t>(*first);
    range.last = static_cast<std::uint16_t>(*last);
    return range;
}

base::Result<void> parse_end(Words& words, std::optional<Prefix>& prefix,
                             std::optional<PortRange>& ports) {
    if (!words.take("any")) {
        TRY(prefix, Prefix::parse(words.take()));
    }
    if (words.take("port")) {
        TRY(ports, parse_ports(words.take()));
    }
    return {};
}

base::Result<void> parse_subject(Words& words, AclRule& rule) {
    using Subject = AclRule::Subject;
    const std::string_view word = words.peek();
    if (word.empty() || word == "from" || word == "to") return {};
    words.take();
    if (word == "any") return {};
    rule.subject = Subject::kProtocol;
    if (word == "arp") {
        rule.subject = Subject::kArp;
    } else if (word == "ip") {
        rule.subject = Subject::kIp;
    } else if (word == "icmp") {
        rule.subject = Subject::kIcmp;
    } else if (word == "rdma") {
        rule.subject = Subject::kRdma;
    } else if (word == "tcp") {
        rule.protocol = kProtocolTcp;
    } else if (word == "udp") {
        rule.protocol = kProtocolUdp;
    } else if (const auto protocol = number(word, 255)) {
        rule.protocol = static_cast<std::uint8_t>(*protocol);
    } else {
        return fail(ErrorCode::kInvalidArgument,
                    "not one of any, arp, ip, tcp, udp, icmp, rdma, a number, 'from' or 'to'");
    }
    return {};
}

}  // namespace

base::Result<Prefix> Prefix::parse(std::string_view text) {
    const std::size_t slash = text.find('/');
    const std::string address(text.substr(0, slash));
    Prefix prefix;
    if (::inet_pton(AF_INET, address.c_str(), prefix.address.data() + 12) == 1) {
        prefix.ipv4 = true;
        prefix.address[10] = prefix.address[11] = 0xff;
    } else if (::inet_pton(AF_INET6, address.c_str(), prefix.address.data()) != 1) {
        return fail(ErrorCode::kInvalidArgument, "not an IPv4 or IPv6 address");
    }
    if (slash != std::string_view::npos) {
        const auto bits = number(text.substr(slash + 1), prefix.ipv4 ? 32 : 128);
        if (!bits) return fail(ErrorCode::kInvalidArgument, "not a prefix length for its address");
        prefix.bits = static_cast<std::uint8_t>(*bits + (prefix.ipv4 ? 96 : 0));
    }
    return prefix;
}

std::string address_text(const roce::Gid& address, bool ipv4) {
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(ipv4 ? AF_INET : AF_INET6, address.data() + (ipv4 ? 12 : 0), text, sizeof text);
    return text;
}

bool Prefix::contains(const roce::Gid& gid, bool gid_is_ipv4) const {
    if (gid_is_ipv4 != ipv4) return false;
    const std::size_t whole = bits / 8;
    if (std::memcmp(gid.data(), address.data(), whole) != 0) return false;
    if (bits % 8 == 0) return true;
    const auto mask = static_cast<std::uint8_t>(0xff00U >> (bits % 8));
    return ((gid[whole] ^ address[whole]) & mask) == 0;
}

base::Result<AclRule> AclRule::parse(std::string_view text) {
    Words words(text);
    AclRule rule;
    if (words.take("deny"))
        rule.allow = false;
    else if (!words.take("allow"))
        return fail(ErrorCode::kInvalidArgument, "a rule starts with allow or deny");
    if (words.take("tx"))
        rule.directions[index(Direction::kReceive)] = false;
    else if (words.take("rx"))
        rule.directions[index(Direction::kTransmit)] = false;
    else
        words.take("both");
    TRY_VOID(parse_subject(words, rule));
    if (words.take("from")) TRY_VOID(parse_end(words, rule.source, rule.source_ports));
    if (words.take("to")) TRY_VOID(parse_end(words, rule.destination, rule.destination_ports));
    if (!words.done())
        return fail(ErrorCode::kInvalidArgument, "a rule ends with [from ...] [to ...]");
    const bool ports = rule.source_ports || rule.destination_ports;
    const bool can_have_ports = rule.subject == Subject::kRdma ||
                                (rule.subject == Subject::kProtocol &&
                                 (rule.protocol == kProtocolTcp || rule.protocol == kProtocolUdp));
    if (ports && !can_have_ports)
        return fail(ErrorCode::kInvalidArgument, "only tcp, udp and rdma have ports");
    return rule;
}

bool AclRule::matches(Direction direction, const FrameHeaders& headers) const {
    if (!directions[index(direction)]) return false;
    bool subject_matches = true;
    switch (subject) {
        case Subject::kAny:
            break;
        case Subject::kArp:
            subject_matches = headers.kind == FrameHeaders::Kind::kArp;
            break;
        case Subject::kIp:
            subject_matches = headers.ip();
            break;
        case Subject::kIcmp:
            subject_matches =
                headers.ip() &&
                headers.protocol == (headers.ipv4() ? kProtocolIcmp : kProtocolIcmpv6);
            break;
        case Subject::kRdma:
            subject_matches = headers.roce() || (!allow && headers.first_of_roce());
            break;
        case Subject::kProtocol:
            subject_matches = headers.ip() && headers.protocol == protocol;
            break;
    }
    if (!subject_matches) return false;
    const bool has_addresses = headers.ip() || subject == Subject::kArp;
    if ((source || destination) && !has_addresses) return false;
    if (source && !source->contains(headers.source, headers.ipv4())) return false;
    if (destination && !destination->contains(headers.destination, headers.ipv4())) return false;
    if (!source_ports && !destination_ports) return true;
    if (headers.fragment) return !allow;
    return (!source_ports || source_ports->contains(headers.source_port)) &&
           (!destination_ports || destination_ports->contains(headers.destination_port));
}

base::Result<Acl> Acl::parse(std::string_view text) {
    Acl acl;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(';'), text.size());
        const std::string_view rule = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (rule.find_first_not_of(' ') == std::string_view::npos) continue;
        TRY(auto parsed, AclRule::parse(rule));
        if (acl.rules_.size() == kMaxRules)
            return fail(ErrorCode::kExhausted, "more than 1024 rules");
        acl.rules_.push_back(parsed);
    }
    return acl;
}

bool Acl::allows(Direction direction, const FrameHeaders& headers) const {
    for (const AclRule& rule : rules_)
        if (rule.matches(direction, headers)) return rule.allow;
    return true;
}

}  // namespace openmana::fabric
