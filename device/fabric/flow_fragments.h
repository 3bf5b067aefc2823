// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "base/clock.h"
#include "fabric/flow_key.h"
#include "fabric/frame_headers.h"

namespace openmana::fabric {

/// Which connection the later fragments of a packet belong to: only the first one names ports. On
/// the flow log's executor.
class FlowFragments {
public:
    /// Packets of which later fragments are expected, and for how long: as a host waits for them.
    static constexpr std::size_t kMaxPackets = 4096;
    static constexpr base::Duration kWait = std::chrono::seconds(30);

    /// A packet whose first fragment was seen. Whole, it is kept for what the rate limit says of
    /// its last fragment, but its number may belong to another packet now.
    class Packet {
    public:
        explicit Packet(const FlowKey& flow) : flow_(flow) {}
        [[nodiscard]] const FlowKey& flow() const { return flow_; }
        [[nodiscard]] bool whole() const { return total_ != 0 && bytes_ >= total_; }
        void count(const FrameHeaders& fragment);
        template <typename Archive, typename Self>
        static void fields(Archive& a, Self& self) {
            a(self.flow_, self.bytes_, self.total_);
        }

    private:
        FlowKey flow_;
        std::uint64_t bytes_ = 0, total_ = 0;  // seen; of the packet, 0 until its end was seen
    };

    /// Takes the first fragment of a packet.
    void expect(Direction direction, const FrameHeaders& first, const FlowKey& flow,
                base::TimePoint now);
    /// The packet whose first fragment came before this one, or null.
    [[nodiscard]] Packet* find(Direction direction, const FrameHeaders& fragment,
                               base::TimePoint now);
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);

private:
    /// What all fragments of a packet have in common (RFC 791 3.2, RFC 8200 4.5). Hosts
    /// of two VLANs may have the same addresses.
    struct Key {
        Direction direction = Direction::kTransmit;
        std::uint8_t protocol = 0;  // IPv4; of IPv6 the first fragment may say more than the others
        std::uint32_t id = 0;
        roce::Vlan vlan = roce::kNoVlan;
        roce::Gid source{}, destination{};
        friend bool operator==(const Key&, const Key&) = default;
        template <typename Archive, typename Self>
        static void fields(Archive& a, Self& self) {
            a.choice(self.direction, Direction::kReceive);
            a(self.protocol, self.id, self.vlan, self.source, self.destination);
        }
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    struct Entry {
        Key key;
        base::TimePoint start{};
        Packet packet;
    };
    [[nodiscard]] static Key key_of(Direction direction, const FrameHeaders& headers);
    void drop_oldest();

    std::list<Entry> packets_;  // oldest first
    std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> index_;
};

}  // namespace openmana::fabric
