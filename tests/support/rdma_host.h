// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mana/rnic.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/frame.h"
#include "gdma/wqe.h"
#include "pci/function_model.h"
#include "roce/address.h"
#include "support/hwc_driver.h"

namespace openmana::test {

/// A send work request as an application gives it to its provider.
struct SendWr {
    std::uint32_t opcode = 2;  ///< MANA_HW_RNIC_WQE_*
    std::vector<gdma::Sge> sges;
    std::uint64_t remote_address = 0;
    std::uint32_t rkey = 0;  ///< WRITE, READ; the key to invalidate
    std::uint32_t immediate = 0;
    bool fence = false;
    bool solicited = false;
    bool signaled = true;  ///< else its completion shows with a later one
    std::uint64_t id = 0;
};
struct Completion {
    bool receive = false;
    std::uint64_t id = 0;
    std::uint32_t type = 0;    ///< of the CQE; sends: 7
    std::uint32_t vendor = 0;  ///< vendor error; 0: success
    std::uint32_t length = 0;  ///< receives
    std::uint32_t immediate = 0;
    bool signaled = true;  ///< false: the provider keeps it to itself
};

/// An RC QP with what its provider keeps of it (RNIC 3).
struct HostQp {
    std::uint64_t handle = 0;
    std::array<std::uint32_t, 5> ids{};  ///< in the order of the command; ids[4] is the QPN
    DriverWq send, read, recv;
    bool datagrams = false;   ///< UD: no `read`, and work requests are the test's to build
    bool unreliable = false;  ///< UC: no `read`; ids[2] is the memory-management queue
    std::uint32_t mtu = 1024;
    std::uint32_t next_psn = 0;
    std::uint32_t ssn = 0;
    struct Posted {
        std::uint64_t id;
        std::uint32_t last_psn;
        std::uint32_t bytes;  ///< of ring
        bool signaled;
    };
    struct PostedReceive {
        std::uint64_t id;
        std::uint32_t position;
        std::uint32_t bytes;
    };
    std::deque<Posted> sends;
    std::deque<PostedReceive> receives;
    std::uint32_t send_used = 0;  ///< bytes of the rings between producer and consumer
    std::uint32_t recv_used = 0;
    std::vector<std::pair<std::uint64_t, RingMemory>>
        memory;  ///< regions given to the QP, and their pages
    [[nodiscard]] std::uint32_t qpn() const { return ids[4]; }
};

/// What a connection allows, as its two modifies say.
struct QpLimits {
    std::uint32_t rnr_retry = 7;
    std::uint32_t rnr_timer = 16;  ///< code for the peer: 2.56 ms
    std::uint32_t reads_in = 16;
    std::uint8_t reads_out = 16;
    std::uint32_t access =
        1 | MANA_HW_RNIC_QP_ACCESS_REMOTE_WRITE | MANA_HW_RNIC_QP_ACCESS_REMOTE_READ;
};

/// How to reach the other end of an RC connection.
struct Peer {
    roce::Gid gid{};
    base::MacAddr mac{};
    std::uint32_t qpn = 0;
    std::uint32_t psn = 0;  ///< the first that it sends
};

/// The RDMA half of a well-behaved driver, and the data path of its provider, over a HwcDriver.
/// Commands that fail return nothing; `tamper`, if set, may spoil each request before it goes out.
class RdmaHost {
public:
    RdmaHost(pci::FunctionModel& function, GuestRam& ram, FakeIrq& irq, const base::MacAddr& mac,
             const roce::Gid& gid);

    /// HWC, device registration, an EQ for QP events and one for completions, adapter, MAC and GID,
    /// a PD.
    bool bring_up();
    Response call(Request& request);
    std::function<void(Request&)> tamper;

    bool config_address(const roce::Gid& gid, bool add);
    std::optional<DriverCq> create_cq(std::uint32_t bytes = 4096);
    bool destroy_cq(const DriverCq& cq);
    /// Rings: sends `send_bytes`, receives `recv_bytes`, READ scatter lists `read_bytes`, powers of
    /// two.
    std::unique_ptr<HostQp> create_rc(const DriverCq& send_cq, const DriverCq& recv_cq,
                                      std::uint32_t send_bytes = 4096,
                                      std::uint32_t recv_bytes = 4096,
                                      std::uint32_t read_bytes = 4096);
    /// A UC QP, with the rings of create_rc.
    std::unique_ptr<HostQp> create_uc(const DriverCq& send_cq, const DriverCq& recv_cq,
                                      std::uint32_t send_bytes = 4096,
                                      std::uint32_t recv_bytes = 4096);
    bool destroy_rc(HostQp& qp);
    /// A UD QP in RTS; `gsi` for QP 1. Its number is ids[4].
    std::unique_ptr<HostQp> create_ud(const DriverCq& send_cq, const DriverCq& recv_cq,
                                      std::uint32_t qkey, bool gsi = false);
    bool to_state(const HostQp& qp, std::uint32_t state);
    /// RESET to RTS; sends from `psn` on, and arms the first completion.
    bool connect(HostQp& qp, std::uint32_t psn, const Peer& peer, std::uint32_t mtu = 1024,
                 std::uint8_t timeout = 14, std::uint32_t retries = 7,
                 const QpLimits& limits = QpLimits());
    /// The address of a drained connection, and the UDP port that its packets come from.
    bool set_path(const HostQp& qp, const Peer& peer, std::uint16_t udp_port);
    /// The PSN and ring positions begin anew, as after a RESET.
    bool reset(HostQp& qp);

    /// False if the ring is full. `ring` for the last of a list.
    bool post_send(HostQp& qp, const SendWr& wr, bool ring = true);
    bool post_recv(HostQp& qp, std::uint64_t id, std::span<const gdma::Sge> sges, bool ring = true);
    void arm_send(HostQp& qp, std::uint32_t psn);
    /// What the CQEs of this CQ, for these QPs, come to. QPs that are not listed are ignored.
    void poll(DriverCq& cq, std::span<HostQp* const> qps, std::vector<Completion>& out);

    [[nodiscard]] HwcDriver& hwc() { return hwc_; }
    [[nodiscard]] GuestRam& ram() { return ram_; }
    [[nodiscard]] const roce::Gid& gid() const { return gid_; }
    [[nodiscard]] const base::MacAddr& mac() const { return mac_; }

    DeviceRegistration device;
    DriverEq fatal_eq;
    DriverEq eq;
    DriverPd pd;
    std::uint64_t adapter = 0;
    /// What `bring_up` asks for.
    std::uint64_t features = MANA_HW_RNIC_FEATURE_ERROR_CQES;

private:
    std::optional<std::uint64_t> region_of(HostQp& qp, const RingMemory& ring);
    [[nodiscard]] Request state_request(const HostQp& qp, std::uint64_t mask,
                                        std::uint32_t state) const;
    void put_path(Request& request, const Peer& peer, std::uint16_t udp_port) const;
    void retire(HostQp& qp, std::uint32_t psn, std::vector<Completion>& out);

    HwcDriver hwc_;
    GuestRam& ram_;
    const base::MacAddr mac_;
    const roce::Gid gid_;
    std::vector<std::uint32_t> cq_ids_;
};

/// 10.0.0.`host` as a GID.
[[nodiscard]] roce::Gid ipv4_gid(std::uint8_t host);
[[nodiscard]] roce::Gid ipv6_gid(std::uint8_t host);
[[nodiscard]] base::MacAddr test_mac(std::uint8_t host);

}  // namespace openmana::test
