// SPDX-License-Identifier: Apache-2.0
#include "eth/flow_table.h"

#include <mana/ext_eth.h>

#include <algorithm>
#include <cstring>

#include "base/endian.h"
#include "eth/ip.h"
#include "eth/spread.h"

namespace openmana::eth {
namespace {

using base::load_be;

static_assert(sizeof(FlowFields) == sizeof(mana_hw_ext_flow_fields));

constexpr std::size_t kPortsBytes = 4;

template <std::size_t size>
void copy(std::uint8_t (&to)[size], const std::byte* from, std::size_t bytes = size) {
    std::memcpy(to, from, bytes);
}

void take_transport(mana_hw_ext_flow_fields& fields, std::uint8_t protocol,
                    std::span<const std::byte> transport) {
    fields.protocol = protocol;
    if ((protocol != kProtocolTcp && protocol != kProtocolUdp) || transport.size() < kPortsBytes)
        return;
    copy(fields.source_port, transport.data());
    copy(fields.dest_port, transport.data() + 2);
}

void take_ipv4(mana_hw_ext_flow_fields& fields, std::span<const std::byte> ip) {
    if (ip.size() < kIpv4Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x40}) return;
    const std::size_t header = ipv4_header_bytes(ip.data());
    if (header < kIpv4Bytes || header > ip.size()) return;
    fields.traffic_class = std::to_integer<std::uint8_t>(ip[1]);
    copy(fields.source_ip, ip.data() + 12, 4);
    copy(fields.dest_ip, ip.data() + 16, 4);
    const bool fragment = (load_be<std::uint16_t>(ip.data() + 6) & 0x3fff) != 0;
    take_transport(fields, std::to_integer<std::uint8_t>(ip[9]),
                   fragment ? std::span<const std::byte>() : ip.subspan(header));
}

void take_ipv6(mana_hw_ext_flow_fields& fields, std::span<const std::byte> ip) {
    if (ip.size() < kIpv6Bytes || (ip[0] & std::byte{0xf0}) != std::byte{0x60}) return;
    fields.traffic_class = static_cast<std::uint8_t>(load_be<std::uint16_t>(ip.data()) >> 4 & 0xff);
    copy(fields.source_ip, ip.data() + 8);
    copy(fields.dest_ip, ip.data() + 24);
    take_transport(fields, std::to_integer<std::uint8_t>(ip[6]), ip.subspan(kIpv6Bytes));
}

}  // namespace

FlowFields flow_fields(std::span<const std::byte> frame) {
    FlowFields out{};
    if (frame.size() < kEthernetBytes) return out;
    mana_hw_ext_flow_fields fields{};
    copy(fields.dest_mac, frame.data());
    copy(fields.source_mac, frame.data() + 6);
    auto rest = frame.subspan(kMacsBytes);
    if (load_be<std::uint16_t>(rest.data()) == kTypeVlan &&
        rest.size() >= kVlanBytes + kTypeBytes) {
        fields.tagged = 1;
        copy(fields.vlan, rest.data() + 2);
        rest = rest.subspan(kVlanBytes);
    }
    copy(fields.ether_type, rest.data());
    const auto type = load_be<std::uint16_t>(rest.data());
    if (type == kTypeIpv4)
        take_ipv4(fields, rest.subspan(kTypeBytes));
    else if (type == kTypeIpv6)
        take_ipv6(fields, rest.subspan(kTypeBytes));
    std::memcpy(out.data(), &fields, sizeof fields);
    return out;
}

bool can_match(const FlowFields& value, const FlowFields& mask) {
    mana_hw_ext_flow_fields fields{};
    std::memcpy(&fields, mask.data(), sizeof fields);
    std::uint64_t beside = 0;
    for (std::size_t i = 0; i < value.size(); ++i) beside |= value[i] & ~mask[i];
    return beside == 0 && fields.reserved == 0;
}

std::optional<std::uint64_t> FlowTable::add(std::uint32_t priority, const FlowFields& value,
                                            const FlowFields& mask, FlowTarget target) {
    if (rules_.size() >= kMaxRules) return std::nullopt;
    const Rule rule{priority, next_handle_++, value, mask, target};
    const auto place = std::upper_bound(rules_.begin(), rules_.end(), rule, comes_before);
    rules_.insert(place, rule);
    return rule.handle;
}

bool FlowTable::remove(std::uint64_t handle) {
    return std::erase_if(rules_, [&](const Rule& rule) { return rule.handle == handle; }) != 0;
}

void FlowTable::forget(FlowTarget target) {
    std::erase_if(rules_, [&](const Rule& rule) { return rule.target == target; });
}

std::optional<ReceiveQueue*> FlowTable::find(std::span<const std::byte> frame) const {
    if (rules_.empty()) return std::nullopt;
    const FlowFields fields = flow_fields(frame);
    for (const Rule& rule : rules_) {
        std::uint64_t difference = 0;
        for (std::size_t i = 0; i < fields.size(); ++i)
            difference |= (fields[i] & rule.mask[i]) ^ rule.value[i];
        if (difference != 0) continue;
        if (const auto* spread = std::get_if<Spread*>(&rule.target))
            return (*spread)->choose(fields);
        return std::get<ReceiveQueue*>(rule.target);
    }
    return std::nullopt;
}

void FlowTable::save(base::StateWriter& out, const HandleOf& handle_of) const {
    out(next_handle_);
    out.count(rules_.size());
    for (const Rule& rule : rules_)
        out(rule.priority, rule.handle, rule.value, rule.mask, handle_of(rule.target));
}

void FlowTable::load(base::StateReader& in, const FindTarget& find) {
    in(next_handle_);
    const std::size_t count = in.count(2 * sizeof(FlowFields));
    in.require(next_handle_ != 0 && count <= kMaxRules, "more flow rules than there may be");
    for (std::size_t i = 0; i < count && in.ok(); ++i) {
        Rule rule;
        in(rule.priority, rule.handle, rule.value, rule.mask);
        const auto target = find(in.get<std::uint64_t>());
        in.require(target && can_match(rule.value, rule.mask) && rule.handle < next_handle_ &&
                       (rules_.empty() || comes_before(rules_.back(), rule)),
                   "flow rule that cannot be");
        if (!in.ok()) return;
        rule.target = *target;
        rules_.push_back(rule);
    }
}

}  // namespace openmana::eth
