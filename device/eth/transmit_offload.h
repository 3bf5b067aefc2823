// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/frame.h"
#include "gdma/types.h"
#include "gdma/wqe.h"

namespace openmana::eth {

/// How a TX WQE ended: the CQE type (MANA_HW_ETH_CQE_TX_*).
using TxStatus = std::uint8_t;
template <typename T>
using TxResult = tl::expected<T, TxStatus>;

/// What the OOB of a TX WQE asks for (GDMA 6.12).
struct TxOffload {
    bool ipv4 = false;
    bool ipv6 = false;
    bool ip_checksum = false;
    bool tcp_checksum = false;
    bool udp_checksum = false;
    bool checksums = false;       ///< those that the packet has, whole; the five above are false
    std::uint32_t transport = 0;  ///< offset of the transport header; 0: not told
    std::uint32_t vport_offset = 0;
    std::optional<std::uint16_t> vlan_tci;  ///< tag to insert
    bool segment = false;
    std::uint32_t mss = 0;  ///< payload bytes of a segment
};
[[nodiscard]] TxResult<TxOffload> parse_tx_oob(const gdma::Wqe& wqe);
/// The same on a packet queue, where MANA_HW_EXT_TX_CHECKSUMS has a meaning.
[[nodiscard]] TxResult<TxOffload> parse_packet_oob(const gdma::Wqe& wqe);
/// Whether it asks for no completion (GDMA 6.12, bit 7). Linux never does; DPDK's driver does, for
/// all packets of a burst but the last, and takes each completion for all packets up to the next
/// one that asked for it. So a packet that failed has none either: it would be taken for another's.
[[nodiscard]] bool wants_no_completion(const gdma::Wqe& wqe);

/// Puts the checksums and the tag into a complete packet without tag.
[[nodiscard]] TxResult<void> finish_packet(const TxOffload& offload, base::Frame& frame);

/// Reads a list of guest memory spans from front to back, each byte once.
class SpanReader {
public:
    explicit SpanReader(const gdma::SpanList& spans) : spans_(spans) {}
    /// There must be as much left.
    void read(std::span<std::byte> target);

private:
    const gdma::SpanList& spans_;
    std::size_t index_ = 0;
    std::size_t offset_ = 0;
};

/// Cuts a big TCP packet into frames (GDMA 6.12, TSO). Owns a copy of the headers.
class Segmenter {
public:
    static constexpr std::size_t kMaxHeaders = 256;
    static constexpr std::uint64_t kMaxPayload = 512ULL << 10;
    /// Bounds the work that one WQE can ask for: enough for kMaxPayload with a segment size of 32
    /// bytes.
    static constexpr std::uint64_t kMaxSegments = 16384;

    /// `headers`: exactly Ethernet, IP and TCP headers. `max_frame`: without tag.
    static TxResult<Segmenter> create(const TxOffload& offload, std::span<const std::byte> headers,
                                      std::uint64_t payload_bytes, std::size_t max_frame);
    [[nodiscard]] std::uint64_t segments() const { return segments_; }
    [[nodiscard]] bool done() const { return next_ == segments_; }
    /// The next frame, with payload from `payload`.
    [[nodiscard]] base::Frame next(SpanReader& payload);

private:
    Segmenter() = default;

    std::array<std::byte, kMaxHeaders + 4> headers_{};  // with the tag
    std::size_t header_bytes_ = 0;
    std::size_t ip_ = 0;  // offsets in headers_
    std::size_t tcp_ = 0;
    bool ipv4_ = false;
    std::uint16_t id_ = 0;
    std::uint32_t sequence_ = 0;
    std::uint8_t flags_ = 0;
    std::uint32_t mss_ = 0;
    std::uint64_t left_ = 0;
    std::uint64_t next_ = 0;
    std::uint64_t segments_ = 0;
};

}  // namespace openmana::eth
