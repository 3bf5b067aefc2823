// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/calendar.h"
#include "base/datagram_socket.h"
#include "base/event_loop.h"
#include "base/frame.h"
#include "base/result.h"
#include "base/socket_address.h"
#include "base/state.h"
#include "esp/channel.h"
#include "fabric/key_file.h"

namespace openmana::fabric {

struct EncryptionConfig {
    std::string key_file;  ///< empty: nothing is encrypted
    esp::Sender::Limits limits;
};

/// An end of a tunnel, as both ends know it. An address that stands for any is none.
base::Result<esp::Endpoint> tunnel_end(const base::SocketAddress& address);

/// Frames to and from one other end as packets of ESP: what an uplink has between its frames and
/// its socket. Seals on any thread, opens on its loop.
class UplinkEncryption {
public:
    static base::Result<std::unique_ptr<UplinkEncryption>> create(base::EventLoop& loop,
                                                                  const EncryptionConfig& config,
                                                                  const base::SocketAddress& local,
                                                                  const base::SocketAddress& remote,
                                                                  const std::string& name);

    /// Packets of one thread, behind each other, so that the kernel can take neighbours of one size
    /// as one.
    class Sealed {
    public:
        static constexpr std::size_t kMaxPackets = 64;
        /// If it is more than one packet.
        static constexpr std::size_t kMaxBytes = 128U << 10;
        [[nodiscard]] std::span<const base::Datagram> datagrams() const {
            return std::span(datagrams_).first(count_);
        }

    private:
        friend class UplinkEncryption;
        std::vector<std::byte> bytes_;
        std::array<base::Datagram, kMaxPackets> datagrams_;
        std::size_t count_ = 0;
    };
    /// Seals the first of these frames: how many it took, of which those that could not be sealed
    /// are counted. `sealed` is good until the thread seals again.
    std::size_t seal(base::FrameViews frames, const Sealed*& sealed);
    /// Opens packets where they are, and puts their frames behind each other.
    void open(std::span<const base::ReceivedDatagram> datagrams,
              std::vector<base::FrameView>& frames);
    /// What is to be sent, if anything, so that the other end learns of an SA; at the start and
    /// after `open`. On the loop.
    [[nodiscard]] std::optional<base::Datagram> notice();

    /// Reads the key file now, and begins a new SA with the next frame. On the loop.
    base::Result<void> rekey();
    /// For another process of this host, which has the key file too. Before anything is sealed or
    /// opened there, and after anything was here.
    void save(base::StateWriter& out) const;
    void load(base::StateReader& in);
    [[nodiscard]] const esp::EspCounters& counters() const { return counters_; }

private:
    explicit UplinkEncryption(std::unique_ptr<KeyFile> key_file) : key_file_(std::move(key_file)) {}

    base::SystemCalendar calendar_;
    esp::EspCounters counters_;
    const std::unique_ptr<KeyFile> key_file_;
    std::unique_ptr<esp::Channel> channel_;
    // Of the loop, for their memory.
    std::vector<std::span<std::byte>> packets_;
    std::vector<esp::Opened> opened_;
    std::array<std::byte, esp::kSmallestPacket> notice_;
};

}  // namespace openmana::fabric
