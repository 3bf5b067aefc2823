// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/frame.h"
#include "support/hwc_driver.h"

namespace openmana::test {

/// What CONFIG_VPORT_RX carries.
struct RxConfig {
    bool enable = true;
    bool rss = false;
    bool update_default = true;
    std::uint64_t default_rq = 0;
    std::optional<std::array<std::byte, 40>> key;
    std::optional<std::vector<std::uint64_t>> table;
    std::uint16_t table_entries = 64;  ///< in the message, also without a table
    std::uint32_t room = 40;           ///< 32 as 6.12, 40 as 7.2
    unsigned packets_per_cqe = 1;      ///< 4, 8
    std::uint16_t version = 2;         ///< 5 as 7.3
};

/// Offloads of one packet, as the driver asks for them (GDMA 6.12).
struct TxOptions {
    bool ipv4 = false;
    bool ipv6 = false;
    bool ip_checksum = false;
    bool tcp_checksum = false;
    bool udp_checksum = false;
    bool no_completion = false;
    std::uint32_t transport = 0;
    std::optional<std::uint16_t> vlan_tci{};
    std::uint32_t mss = 0;  ///< not 0: segmentation, with `header_bytes` in SGE 0
    std::uint32_t header_bytes = 0;
    std::uint32_t vport_offset = 0;
    std::vector<std::size_t> pieces{};  ///< lengths of the first SGEs; the rest goes into one more
};

struct TxDone {
    std::uint32_t type = 0;
    std::uint32_t client = 0;
    std::uint32_t wqe_offset = 0;
    std::uint32_t queue_id = 0;
    bool is_sq = false;
};
struct RxDone {
    std::uint32_t type = 0;
    std::uint32_t flags = 0;
    std::uint32_t hash = 0;
    std::uint32_t wqe_offset = 0;
    base::Frame frame;
    std::array<std::byte, 60> cqe{};
};

/// A CQE that tells of several packets.
struct RxTogether {
    std::uint32_t type = 0;
    std::uint32_t flags = 0;
    std::uint32_t wqe_offset = 0;
    std::vector<std::pair<base::Frame, std::uint32_t>> packets;  ///< with their hashes
};

struct EthTx {
    std::uint64_t object = 0;
    DriverWq sq;
    DriverCq cq;
};
struct EthRx {
    std::uint64_t object = 0;
    std::uint32_t buffer_bytes = 0;
    DriverWq rq;
    DriverCq cq;
    std::deque<base::GuestAddr> buffers;  ///< posted, oldest first
};

/// A stand-in for the Ethernet half of the `mana` driver, on a driver stand-in that was brought up.
class EthGuest {
public:
    explicit EthGuest(HwcDriver& driver) : driver_(driver) {}

    /// QUERY_DEV_CONFIG, REGISTER_DEVICE, QUERY_VPORT_CONFIG.
    bool probe();
    /// One EQ, the vPort, `queues` TX and RX queues with buffers posted, RX enabled with the
    /// default table, fences.
    bool up(std::uint32_t queues = 1, std::uint32_t mtu = 1500, std::uint32_t rx_buffers = 16);
    bool down();

    Response config_tx(std::uint32_t pd, std::uint32_t page);
    Response config_rx(const RxConfig& config);
    Response fence(std::uint64_t object);
    Response destroy(std::uint32_t wq_type, std::uint64_t object);
    /// CREATE_WQ_OBJ alone, on regions of the caller.
    Response create_wq(std::uint32_t type, std::uint64_t wq_region, std::uint64_t cq_region,
                       std::uint32_t wq_bytes, std::uint32_t cq_bytes, std::uint32_t eq_id);
    std::optional<EthTx> create_tx(std::uint32_t sq_bytes = 8192, std::uint32_t cq_bytes = 16384,
                                   std::uint32_t page = ~0U);
    std::optional<EthRx> create_rx(std::uint32_t buffer_bytes, std::uint32_t rq_bytes = 16384,
                                   std::uint32_t cq_bytes = 32768, std::uint32_t page = ~0U);

    /// Puts the bytes into guest memory and posts a WQE for them, without a doorbell.
    void post(EthTx& tx, std::span<const std::byte> packet, const TxOptions& options = {});
    void send(EthTx& tx, std::span<const std::byte> packet, const TxOptions& options = {}) {
        post(tx, packet, options);
        tx.sq.doorbell();
    }
    static std::optional<TxDone> poll(EthTx& tx);
    void post_buffer(EthRx& rx);
    /// The next completion; the frame is read from the oldest buffer, which is not posted again.
    std::optional<RxDone> poll(EthRx& rx);
    /// Of an interface that asked for several packets in a CQE.
    std::optional<RxTogether> poll_together(EthRx& rx);

    [[nodiscard]] HwcDriver& driver() { return driver_; }

    DeviceRegistration device;
    std::uint64_t vport = 0;
    base::MacAddr mac{};
    std::uint32_t max_frame = 0;
    std::uint32_t table_entries = 0;
    std::optional<DriverEq> eq;
    std::vector<EthTx> tx;
    std::vector<EthRx> rx;
    /// For SGEs; the device's own key unless a test puts another.
    std::uint32_t key = 0;
    /// Queues are made by CREATE_PACKET_WQ of the extension, of the device's PD and page.
    bool packets = false;
    /// Rings are made of pages that do not follow each other, as 7.3 may make them.
    bool scattered = false;

private:
    HwcDriver& driver_;
};

}  // namespace openmana::test
