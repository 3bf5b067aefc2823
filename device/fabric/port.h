// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/frame.h"

namespace openmana::fabric {

struct KnownAddress;

/// Where a switch hands frames to, and from where it gets them: those of one thread by one door.
class Port {
    /// Addresses that the switch was asked for by some frames, each in the place that it shares
    /// with others: as long as they are good no lock is needed.
    class Kept {
    public:
        [[nodiscard]] const std::shared_ptr<KnownAddress>& at(std::uint64_t mac) const {
            return places_[place(mac)];
        }
        void keep(std::uint64_t mac, std::shared_ptr<KnownAddress> known) {
            places_[place(mac)] = std::move(known);
        }
        void clear() { places_.fill(nullptr); }

    private:
        static constexpr std::size_t kPlaces = 256;
        /// Neighbours in a network have places of their own; who chooses addresses that share one
        /// has but his own frames looked up.
        static std::size_t place(std::uint64_t mac) {
            return (mac ^ mac >> 8 ^ mac >> 16) % kPlaces;
        }
        std::array<std::shared_ptr<KnownAddress>, kPlaces> places_;
    };

public:
    /// Where one thread at a time sends frames in. A port has one; who sends in on several threads
    /// has one more for each. The order of frames is kept by a door, not between two.
    class Door {
        friend class Switch;
        Kept sources_, destinations_;
    };
    /// What comes by a tunnel does not leave by one: so several ends of tunnels that know each
    /// other make no loop.
    enum class Kind : std::uint8_t { kPlain, kTunnel };
    explicit Port(Kind kind = Kind::kPlain) : kind_(kind) {}
    virtual ~Port() = default;
    /// Frames towards this port, in their order. From any thread that transmits; the bytes are good
    /// during the call only.
    virtual void deliver(base::FrameViews frames) = 0;
    void deliver(base::FrameView frame) { deliver(base::FrameViews(&frame, 1)); }
    /// True if frames may come without their ICRC, for whoever is here checks none of this process.
    [[nodiscard]] virtual bool inside() const { return false; }
    /// A frame that came from here, and whose destination is, or long ago was, behind this port: it
    /// is not sent back. On the thread that sent it in.
    virtual void returned(base::FrameView frame) { (void)frame; }

private:
    friend class Switch;
    [[nodiscard]] bool may_send_to(const Port& other) const {
        return kind_ != Kind::kTunnel || other.kind_ != Kind::kTunnel;
    }
    const Kind kind_;
    Door door_;
};

}  // namespace openmana::fabric
