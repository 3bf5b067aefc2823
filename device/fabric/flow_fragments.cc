// SPDX-License-Identifier: Apache-2.0
#include "fabric/flow_fragments.h"

namespace openmana::fabric {

std::size_t FlowFragments::KeyHash::operator()(const Key& key) const {
    FlowKey all{FlowKind::kUdp, key.source, key.destination, key.id, key.protocol, key.vlan};
    if (key.direction == Direction::kReceive) all.kind = FlowKind::kTcp;
    return FlowKeyHash()(all);
}

FlowFragments::Key FlowFragments::key_of(Direction direction, const FrameHeaders& headers) {
    return {direction,           headers.ipv4() ? headers.protocol : std::uint8_t{0},
            headers.fragment_id, headers.vlan,
            headers.source,      headers.destination};
}

void FlowFragments::Packet::count(const FrameHeaders& fragment) {
    const std::size_t bytes = fragment.end - fragment.fragment_data;
    bytes_ += bytes;
    if (!fragment.more_fragments) total_ = fragment.fragment_offset + bytes;
}

void FlowFragments::save(base::StateWriter& out) const {
    out.count(packets_.size());
    for (const Entry& entry : packets_) out(entry.key, entry.start, entry.packet);
}

void FlowFragments::load(base::StateReader& in) {
    std::size_t left = in.count();
    in.require(left <= kMaxPackets, "more packets in fragments than are followed");
    for (; left > 0 && in.ok(); --left) {
        Entry entry{in.get<Key>(), in.get<base::TimePoint>(), Packet(FlowKey{})};
        in(entry.packet);
        if (!in.ok() || index_.contains(entry.key)) continue;
        index_[entry.key] = packets_.insert(packets_.end(), entry);
    }
}

void FlowFragments::drop_oldest() {
    index_.erase(packets_.front().key);
    packets_.pop_front();
}

void FlowFragments::expect(Direction direction, const FrameHeaders& first, const FlowKey& flow,
                           base::TimePoint now) {
    const Key key = key_of(direction, first);
    if (const auto known = index_.find(key); known != index_.end()) {
        packets_.erase(known->second);
        index_.erase(known);
    }
    if (packets_.size() == kMaxPackets) drop_oldest();
    const auto entry = packets_.insert(packets_.end(), {key, now, Packet(flow)});
    entry->packet.count(first);
    index_[key] = entry;
}

FlowFragments::Packet* FlowFragments::find(Direction direction, const FrameHeaders& fragment,
                                           base::TimePoint now) {
    while (!packets_.empty() && packets_.front().start + kWait <= now) drop_oldest();
    const auto found = index_.find(key_of(direction, fragment));
    return found == index_.end() ? nullptr : &found->second->packet;
}

}  // namespace openmana::fabric
